// A session without a model: random queries, keys and values per position and layer, a real cache, a real policy and
// the ops of a backend, called in the order of lib/runtime/prefill.cpp and lib/models/attend.cpp. Tests look at
// tables, lists and attention outputs after every pass. The inputs depend on (position, layer) alone, so that two
// policies, backends or chunk sizes see the same conversation.
#pragma once

#include "tests/cmocka_cpp.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory_resource>
#include <span>
#include <vector>

#include "core/thread_pool.h"
#include "cpu/backend.h"
#include "kv/kv_cache.h"
#include "kv/page_copies.h"
#include "kv/spill_store.h"
#include "models/attend.h"
#include "models/compensate.h"
#include "ops/ops.h"
#include "policy/page_fetcher.h"
#include "policy/policy.h"
#include "policy/prompts.h"
#include "policy/room.h"
#include "quant/half.h"
#include "tests/policy/every_policy.h"

namespace weir::test {

// Seeded numbers (splitmix64): the same on every machine.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  uint64_t bits() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(bits() % n); }
  // Nearly normal, mean 0 and variance 1: four uniform numbers added.
  float normal() {
    const uint64_t b = bits();
    const auto sum = static_cast<float>((b & 0xFFFF) + (b >> 16 & 0xFFFF) + (b >> 32 & 0xFFFF) + (b >> 48));
    return (sum / 65535.0f - 2.0f) * 1.7320508f;
  }

 private:
  uint64_t state_;
};

struct SimShape {
  uint32_t n_layers = 3, n_kv_heads = 2, group = 4, head_dim = 64;
  uint32_t batch = 512;  // most tokens of a prompt chunk
  bool rotate = true;    // queries and keys are rotated to their positions; tests that plant directions switch it off
  uint32_t n_heads() const { return n_kv_heads * group; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
};

// What a model would project, for every position and layer, before rotation.
class Inputs {
 public:
  Inputs(const SimShape& s, uint32_t n_tok, uint64_t seed) : shape(s), n_tokens(n_tok) {
    for (uint32_t layer = 0; layer < s.n_layers; ++layer) {
      Numbers numbers(seed * 1000 + layer);
      q_.emplace_back(size_t{n_tok} * s.n_heads() * s.head_dim);
      k_.emplace_back(size_t{n_tok} * s.n_kv_heads * s.head_dim);
      v_.emplace_back(size_t{n_tok} * s.n_kv_heads * s.head_dim);
      for (auto* part : {&q_.back(), &k_.back(), &v_.back()}) {
        for (float& x : *part) x = numbers.normal();
      }
    }
  }
  float* q(uint32_t layer, uint32_t pos) { return &q_[layer][size_t{pos} * shape.n_heads() * shape.head_dim]; }
  float* k(uint32_t layer, uint32_t pos) { return &k_[layer][size_t{pos} * shape.n_kv_heads * shape.head_dim]; }
  float* v(uint32_t layer, uint32_t pos) { return &v_[layer][size_t{pos} * shape.n_kv_heads * shape.head_dim]; }
  const float* q(uint32_t layer, uint32_t pos) const { return const_cast<Inputs*>(this)->q(layer, pos); }
  const float* k(uint32_t layer, uint32_t pos) const { return const_cast<Inputs*>(this)->k(layer, pos); }
  const float* v(uint32_t layer, uint32_t pos) const { return const_cast<Inputs*>(this)->v(layer, pos); }

  SimShape shape;
  uint32_t n_tokens;

 private:
  std::vector<std::vector<float>> q_, k_, v_;  // [n_layers][n_tokens, heads, head_dim]
};

// cos and sin of one position, [head_dim / 2, 2].
inline void fill_rotation(const SimShape& s, uint32_t pos, float* cos_sin) {
  for (uint32_t i = 0; i < s.head_dim / 2; ++i) {
    const double angle = s.rotate ? pos * std::pow(10000.0, -2.0 * i / s.head_dim) : 0.0;
    cos_sin[2 * i] = static_cast<float>(std::cos(angle));
    cos_sin[2 * i + 1] = static_cast<float>(std::sin(angle));
  }
}

struct PolicySpec {
  const char* name = "dense";
  uint32_t budget = 0, context = 0, max_prompt = 0;
  std::vector<weir_key_value> options;
  uint32_t spill_pages = 0;  // with recall: pages that the store holds whatever is in them; 0: the whole context
  uint32_t n_threads = 1;
  const char* head_file = "";  // the text that the option heads_file would name
};

class Sim {
 public:
  Sim(const Backend& b, const Inputs& in, const PolicySpec& spec) : backend(b), inputs(in), shape(in.shape) {
    PolicyConfig config;
    config.n_layers = shape.n_layers;
    config.n_heads = shape.n_heads();
    config.n_kv_heads = shape.n_kv_heads;
    config.head_dim = shape.head_dim;
    config.context_tokens = spec.context;
    config.trained_tokens = 1u << 14;
    config.budget_tokens = spec.budget;
    config.max_prompt_tokens = spec.max_prompt;
    config.attn_scale = shape.scale();
    config.options = spec.options;
    config.head_file = spec.head_file;
    if (!make_policy(spec.name, config, storage_, policy_).ok())
      fail_msg("policy %s: %s", spec.name, last_error_text());
    lay_out(spec.n_threads);
    step_.kv = &kv;
    if (needs().recall_slots != 0) start_store(spec.spill_pages);
  }
  ~Sim() { policy_->~Policy(); }
  Sim(const Sim&) = delete;
  Sim& operator=(const Sim&) = delete;

  const Policy& policy() const { return *policy_; }
  const PolicyNeeds& needs() const { return policy_->needs(); }
  uint32_t n_tokens() const { return kv.n_tokens(); }

  void prefill(uint32_t n_tok) {
    EarlierPrompts earlier(*policy_, kv);
    if (!policy_->admit_prompt(kv, n_tok).ok()) fail_msg("a prompt of %u tokens: %s", n_tok, last_error_text());
    const uint32_t before = kv.n_tokens();
    for (uint32_t done = 0; done < n_tok;) {
      const uint32_t n = next_chunk(*policy_, kv, n_tok - done, shape.batch);
      assert_true(n >= 1 && n <= n_tok - done && n <= shape.batch);
      done += n;
      make_room(n, Phase::kPrompt);
      check(kv.reserve(n, policy_->prompt_flags(), kv.n_tokens() + n));
      run(n, false, n_tok - done);
      commit();
    }
    make_room(0, Phase::kPromptEnd);
    policy_->prompt_end(kv, before);
    earlier.end();
  }
  void step() {
    make_room(1, Phase::kDecode);
    check(kv.reserve(1, 0, kv.n_tokens() + 1));
    run(1, true, 0);
    commit();
  }
  void steps(uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) step();
  }
  void pin(uint32_t first, uint32_t end) {
    if (!policy_->admit_pin(kv, first, end).ok()) fail_msg("pin: %s", last_error_text());
    assert_true(kv.set_flags(first, end, kPageKept, 0) > 0);
  }

  // With recall: the bytes of all copies, to be damaged.
  std::span<std::byte> copies() { return store_.cells_memory(); }
  PageFetcher* fetcher() { return step_.b.fetcher; }  // null: attention asks for no pages
  // First positions of a stream's resident pages.
  std::vector<uint32_t> pages(uint32_t stream) const {
    const StreamView s = kv.stream(stream);
    std::vector<uint32_t> resident;
    for (uint32_t row = 0; row < s.n_pages; ++row) {
      if (s.slots[row] != kNoSlot) resident.push_back(s.first_pos[row]);
    }
    return resident;
  }
  std::vector<std::vector<uint32_t>> all_pages() const {
    std::vector<std::vector<uint32_t>> all;
    for (uint32_t s = 0; s < kv.shape().n_streams(); ++s) all.push_back(pages(s));
    return all;
  }
  // Row of the page that begins at `pos`; kNone when the page has left, for good or to come back.
  uint32_t row_of(uint32_t stream, uint32_t pos) const {
    const StreamView s = kv.stream(stream);
    for (uint32_t row = 0; row < s.n_pages; ++row) {
      if (s.first_pos[row] == pos && s.slots[row] != kNoSlot) return row;
    }
    return Policy::kNone;
  }
  // Rows that the latest step attended for a head: its list, or all.
  std::vector<uint32_t> attended(uint32_t layer, uint32_t head) const {
    const uint32_t kv_head = head / shape.group;
    const Listed& l = listed_[layer];
    if (l.n.empty()) {
      std::vector<uint32_t> all(kv.stream(layer * shape.n_kv_heads + kv_head).n_pages);
      for (uint32_t row = 0; row < all.size(); ++row) all[row] = row;
      return all;
    }
    const uint32_t list = l.n.size() == shape.n_heads() ? head : kv_head;
    const auto first = l.rows.begin() + static_cast<ptrdiff_t>(size_t{list} * kv.shape().capacity(layer));
    return std::vector<uint32_t>(first, first + l.n[list]);
  }
  bool selects(uint32_t layer) const { return !listed_[layer].n.empty(); }
  // With a history, for on_layer: the tokens behind the sinks that a head attended; none if it looked at its sinks
  // alone. And the keys that were read for it.
  std::vector<uint32_t> chosen(uint32_t head) const {
    const auto first = chosen_.begin() + static_cast<ptrdiff_t>(size_t{head} * needs().history.tokens);
    return std::vector<uint32_t>(first, first + n_chosen_[head]);
  }
  uint32_t n_read(uint32_t head) const { return n_read_[head / shape.group]; }
  // The latest pass: rotated queries [n_tok, n_heads, head_dim], masses [n_heads, capacity].
  const std::vector<float>& q(uint32_t layer) const { return last_q_[layer]; }
  const std::vector<float>& mass(uint32_t layer) const { return last_mass_[layer]; }

  const Backend& backend;
  const Inputs& inputs;
  const SimShape shape;
  KvCache kv;
  PageCopies cold;
  // Attention outputs of all positions, [n_layers][positions, n_heads, head_dim].
  std::vector<std::vector<float>> out;
  uint32_t n_evicted = 0;
  float soft_cap = 0.0f;  // of the logits of every layer; set before the first token
  // Before a page leaves; after the attention of a layer in a decode step, its observation included.
  std::function<void(uint32_t stream, const StreamView&, uint32_t row, const RoomArgs&)> on_evict;
  std::function<void(uint32_t layer)> on_layer;

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  struct Listed {
    std::vector<uint32_t> rows, n;
  };

  static void check(Status status) {
    if (!status.ok()) fail_msg("%s", last_error_text());
  }
  // Bytes of 0xFF are NaN in f32 and bf16, so that reading memory before it is written shows.
  static std::byte* take(std::vector<Line>& lines, uint64_t bytes) {
    lines.resize(bytes / sizeof(Line) + 1);
    std::memset(lines.data(), 0xFF, lines.size() * sizeof(Line));
    return lines[0].bytes;
  }

  void lay_out(uint32_t n_threads) {
    const PolicyNeeds& n = needs();
    KvShape kv_shape;
    kv_shape.n_layers = shape.n_layers;
    kv_shape.n_kv_heads = shape.n_kv_heads;
    kv_shape.head_dim = shape.head_dim;
    kv_shape.pages_per_stream = n.pages_per_stream;
    kv_shape.digest = n.digest;
    kv_shape.n_wide_layers = n.n_wide_layers;
    kv_shape.wide_pages = n.wide_pages;
    kv_shape.prompt_scores = n.prompt_scores;
    kv_shape.recall_slots = n.recall_slots;
    kv_shape.one_pool = n.one_pool;
    kv_shape.by_layer = n.layer_pages;
    kv_shape.last_gaps = n.last_gaps;
    kv_shape.windows = storage_.windows;
    kv_shape.own_pages = kv_shape.windows.pages(shape.batch, n.context_tokens);
    kv_shape.history = n.history;
    kv_shape.history_from_layer = n.history_from_layer;
    kv_shape.history.n_layers = shape.n_layers - n.history_from_layer;
    kv.set_shape(kv_shape, &left_, &history_);
    for (Part* part : {static_cast<Part*>(&kv), static_cast<Part*>(&left_), static_cast<Part*>(&history_)})
      parts_.add(*part);
    Arena measured[3], arenas[3];
    Arenas sizes = {measured[0], measured[1], measured[2], measured[2], measured[2], measured[2], measured[2]};
    parts_.lay_out(sizes);
    for (int i = 0; i < 3; ++i) arenas[i] = Arena(take(memory_[i], measured[i].used()), measured[i].used());
    Arenas memory = {arenas[0], arenas[1], arenas[2], arenas[2], arenas[2], arenas[2], arenas[2]};
    parts_.lay_out(memory);
    parts_.reset();
    cold.start(kv, nullptr);
    step_.copies = &cold;
    const uint32_t pages = kv_shape.max_capacity(), n_heads = shape.n_heads();
    OpShapes shapes;
    shapes.n_threads = n_threads;
    shapes.max_tok = shape.batch;
    shapes.max_cols = shapes.max_rows = n_heads * shape.head_dim;
    shapes.n_heads = n_heads;
    shapes.n_kv_heads = shape.n_kv_heads;
    shapes.head_dim = shape.head_dim;
    shapes.max_pages = pages;
    shapes.history_tokens = n.history.group != 0 ? n.history.tokens + n.history.n_sink : 0;
    check(pool_.start(n_threads));
    cx_.pool = &pool_;
    cx_.scratch_bytes = backend.scratch_bytes(shapes);
    cx_.scratch = take(scratch_, cx_.scratch_bytes);
    const uint32_t n_lists = !n.page_lists ? 0 : n.list_per_head ? n_heads : shape.n_kv_heads;
    if (n.page_mass) mass_.assign(size_t{n_heads} * pages, NAN);
    if (n.digest != DigestKind::kNone) score_.assign(size_t{n_heads} * pages, NAN);
    select_.assign(size_t{n_lists} * pages, UINT32_MAX);
    n_select_.assign(n_lists, UINT32_MAX);
    if (n.prompt_rows != 0) token_mass_.assign(size_t{shape.n_kv_heads} * pages * kPageTokens, NAN);
    out.resize(shape.n_layers);
    last_q_.resize(shape.n_layers);
    last_mass_.resize(shape.n_layers);
    listed_.resize(shape.n_layers);
  }

  // A store without threads, and the window that prompts read cold pages through.
  void start_store(uint32_t n_pages) {
    SpillOptions o;
    o.page_bytes = static_cast<uint32_t>(kv.shape().page_bytes());
    o.max_pages = kv.shape().n_streams() * kv.shape().pages_per_stream;
    o.budget_bytes = spill_worst_bytes(o.page_bytes, n_pages != 0 ? n_pages : o.max_pages);
    check(store_.create(o));
    cold.start(kv, &store_);
    step_.backend = &backend;
    Arena measured;
    lay_out_store(measured);
    Arena arena(take(staging_, measured.used()), measured.used());
    lay_out_store(arena);
  }

  void lay_out_store(Arena& arena) {
    const uint64_t page_bytes = kv_page_bytes(KvFormat::kBf16, shape.head_dim);
    step_.b.staging.lay_out(shape.n_kv_heads, page_bytes, shape.n_heads(), shape.batch, arena);
    if (needs().fetch_pages != 0)
      step_.b.fetcher = PageFetcher::lay_out(shape.n_kv_heads, page_bytes, needs().fetch_pages, arena);
  }

  void commit() {
    const uint32_t first = kv.n_tokens();
    kv.commit();
    cold.seal(first);
  }

  void make_room(uint32_t n_tok, Phase phase) {
    const auto told = [](void* sim, uint32_t stream, const StreamView& s, uint32_t row, const RoomArgs& room) {
      Sim& self = *static_cast<Sim*>(sim);
      assert_true(row < s.n_pages);
      if (self.on_evict) self.on_evict(stream, s, row, room);
      ++self.n_evicted;
    };
    weir::make_room(*policy_, kv, n_tok, phase, {told, this});
  }

  static float* data(std::vector<float>& v) { return v.empty() ? nullptr : v.data(); }

  void run(uint32_t n_tok, bool is_decode, uint32_t n_left) {
    const uint32_t pos = kv.n_tokens();
    assert_true(pos + n_tok <= inputs.n_tokens);
    cos_sin_.resize(size_t{n_tok} * shape.head_dim);
    cos_sin_sink_.resize(cos_sin_.size());
    for (uint32_t i = 0; i < n_tok; ++i) {
      fill_rotation(shape, pos + i, &cos_sin_[size_t{i} * shape.head_dim]);
      const uint32_t sink_pos = needs().sink_query ? policy_->in_cache_pos(kv, pos + i) : pos + i;
      fill_rotation(shape, sink_pos, &cos_sin_sink_[size_t{i} * shape.head_dim]);
    }
    for (uint32_t layer = 0; layer < shape.n_layers; ++layer) run_layer(layer, n_tok, is_decode, n_left);
  }

  void run_layer(uint32_t layer, uint32_t n_tok, bool is_decode, uint32_t n_left) {
    const uint32_t pos = kv.n_tokens();
    const size_t n_q = size_t{n_tok} * shape.n_heads() * shape.head_dim,
                 n_kv = size_t{n_tok} * shape.n_kv_heads * shape.head_dim;
    q_.assign(inputs.q(layer, pos), inputs.q(layer, pos) + n_q);
    k_.assign(inputs.k(layer, pos), inputs.k(layer, pos) + n_kv);
    if (needs().sink_query) q_sink_.assign(n_q, NAN);
    RopeAppendArgs append = {};
    append.q = q_.data();
    append.q_sink = data(q_sink_);
    append.k = k_.data();
    append.v = inputs.v(layer, pos);
    append.cos_sin = cos_sin_.data();
    append.cos_sin_sink = cos_sin_sink_.data();
    append.rope_dim = shape.head_dim;
    append.layout = RopeLayout::kHalfSplit;
    append.n_tok = n_tok;
    append.n_heads = shape.n_heads();
    append.pos = pos;
    append.kv = kv.view(layer);
    append.append_row = kv.append_rows(layer);
    check(backend.ops.rope_append(cx_, append));
    digest_pages(layer, n_tok);
    is_decode ? attend_step(layer) : attend_chunk(layer, n_tok, n_left);
    last_q_[layer] = q_;
  }

  void digest_pages(uint32_t layer, uint32_t n_tok) {
    const KvView view = kv.view(layer);
    const uint32_t before = kv.n_tokens(), after = before + n_tok;
    if (view.digest == DigestKind::kNone || view.digest == DigestKind::kMinMax) return;
    if (before / kPageTokens == after / kPageTokens) return;
    check(backend.ops.page_digest(cx_, {view, kv.append_rows(layer), whole_pages(after) - before / kPageTokens}));
  }

  AttnPagedArgs attn_args(uint32_t layer, uint32_t n_tok, const PageLists& lists) {
    const AttnScope scope = policy_->step_rules().scope;
    const size_t at = out[layer].size();
    out[layer].resize(at + q_.size(), NAN);
    AttnPagedArgs a = {};
    a.out = out[layer].data() + at;
    a.q = q_.data();
    a.q_sink = data(q_sink_);
    a.kv = kv.view(layer);
    a.n_tok = n_tok;
    a.n_heads = shape.n_heads();
    a.pos = kv.n_tokens();
    a.scale = shape.scale();
    a.n_sink_pages = scope.n_sink_pages;
    a.n_sink = scope.n_sink;
    a.window = scope.window;
    a.list_per_head = lists.select != nullptr && needs().list_per_head;
    a.soft_cap = soft_cap;
    set_head_windows(kv, layer, a);
    return a;
  }

  bool has_history(uint32_t layer) const { return needs().history.group != 0 && layer >= needs().history_from_layer; }

  // Attention over the tokens that mattered to earlier steps.
  void attend_history(uint32_t layer) {
    const uint32_t capacity = needs().history.tokens;
    const HistoryRules rules = policy_->history_rules();
    chosen_.assign(size_t{shape.n_heads()} * capacity, UINT32_MAX);
    n_chosen_.assign(shape.n_heads(), UINT32_MAX);
    n_read_.assign(shape.n_kv_heads, UINT32_MAX);
    const AttnPagedArgs a = attn_args(layer, 1, {});
    const HistorySize size = policy_->history_size(a.pos + 1 - std::min(a.pos + 1, rules.n_sink));
    check(backend.ops.attn_history(
        cx_, {a, kv.history(layer), rules, size, kv.flags(layer), n_read_.data(), chosen_.data(), n_chosen_.data()}));
  }

  void attend_step(uint32_t layer) {
    if (has_history(layer)) {
      attend_history(layer);
      if (on_layer) on_layer(layer);
      return;
    }
    const uint32_t n_heads = shape.n_heads();
    PageLists lists;
    if (!select_.empty()) {
      check(policy_->select(
          cx_, backend.ops, kv,
          {layer, n_heads, q_.data(), data(score_), select_.data(), n_select_.data(), &cold, step_.b.fetcher}, lists));
    }
    if (lists.select != nullptr)
      list_whole_windows(kv, layer, n_heads, needs().list_per_head, select_.data(), n_select_.data());
    AttnPagedArgs a = attn_args(layer, 1, lists);
    a.page_mass = data(mass_);
    if (has_compensation(kv, a)) a.lse = lse_of(1);
    if (lists.stop.microbatch != 0) {
      check(attend_until_enough(cx_, backend.ops, a, lists, select_.data(), n_select_.data()));
    } else {
      AttnPagedArgs listed = a;
      listed.select = lists.select;
      listed.n_select = lists.n_select;
      check(backend.ops.attn_paged(cx_, listed));
    }
    compensate(kv, layer, a);
    listed_[layer] = {};
    if (lists.select != nullptr) listed_[layer] = {select_, n_select_};
    last_mass_[layer] = mass_;
    check(policy_->observe(cx_, backend.ops, kv,
                           {layer, n_heads, q_.data(), data(mass_), data(score_), lists, kv.n_tokens() + 1}));
    if (on_layer) on_layer(layer);
  }

  float* lse_of(uint32_t n_tok) {
    lse_.assign(size_t{n_tok} * shape.n_heads(), NAN);
    return lse_.data();
  }

  void attend_chunk(uint32_t layer, uint32_t n_tok, uint32_t n_left) {
    const uint32_t n_heads = shape.n_heads();
    AttnPagedArgs a = attn_args(layer, n_tok, {});
    a.lse = needs().prompt_rows != 0 || has_compensation(kv, a) ? lse_of(n_tok) : nullptr;
    step_.cx = cx_;
    if (has_cold_pages(step_, layer)) return check(attend_chunk_cold(step_, a, layer));
    check(backend.ops.attn_paged(cx_, a));
    compensate(kv, layer, a);
    if (needs().prompt_rows == 0) return;
    const uint32_t n_rows = std::min(n_tok, needs().prompt_rows), first = n_tok - n_rows;
    check(policy_->observe_prompt(
        cx_, backend.ops, kv,
        {layer, n_heads, q_.data() + size_t{first} * n_heads * shape.head_dim, lse_.data() + size_t{first} * n_heads,
         n_rows, kv.n_tokens() + first, n_left, token_mass_.data(), 0, soft_cap}));
  }

  PolicyStorage storage_;
  Policy* policy_ = nullptr;
  ThreadPool pool_{std::pmr::new_delete_resource()};
  OpContext cx_;
  std::vector<Line> memory_[3], scratch_, staging_;
  LeftSums left_;
  AttnHistory history_;
  PartList parts_;
  SpillStore store_{std::pmr::new_delete_resource(), std::pmr::new_delete_resource(), std::pmr::new_delete_resource()};
  Step step_;
  std::vector<float> q_, q_sink_, k_, cos_sin_, cos_sin_sink_, mass_, score_, lse_, token_mass_;
  std::vector<uint32_t> select_, n_select_, chosen_, n_chosen_, n_read_;
  std::vector<Listed> listed_;
  std::vector<std::vector<float>> last_q_, last_mass_;
};

// Equal to the last bit, and every element was written.
inline void assert_same_outputs(const Sim& a, const Sim& b, const char* what) {
  for (uint32_t layer = 0; layer < a.shape.n_layers; ++layer) {
    const auto &x = a.out[layer], &y = b.out[layer];
    assert_int_equal(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i]) || std::memcmp(&x[i], &y[i], sizeof(float)) != 0) {
        fail_msg("%s on %s, layer %u, element %zu: %.9g and %.9g", what, a.backend.name, layer, i, double{x[i]},
                 double{y[i]});
      }
    }
  }
}

inline const Backend* const kBackends[] = {&reference_backend(), &cpu_backend()};

// Prompt lengths around the borders of pages.
inline constexpr uint32_t kRaggedPrompts[] = {1, 15, 16, 17, 31, 32, 33, 100};

}  // namespace weir::test
