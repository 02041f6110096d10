// vulkan: the beginning of a decode step against the definition in tests/runtime/host_begin.cpp, every rule over random
// tables and several steps: tables, counters and events are the same, rotations are near those in double.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <tuple>
#include <vector>

#include "device/kernels/step_begin.h"
#include "tests/cmocka_cpp.h"
#include "tests/runtime/host_queue.h"
#include "tests/vulkan/device_arrays.h"
#include "vulkan/rope_turns.h"
#include "vulkan/steps.h"

namespace weir::vulkan {
namespace {

uint64_t random_state = 1;
uint32_t below(uint32_t n) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(random_state >> 33) % n;
}
bool one_in(uint32_t n) { return below(n) == 0; }

using test::open_context;

void expect_ok(const Status& status) {
  if (!status.ok()) fail_msg("%s", last_error_text());
}

// What a case has of each kind, in one block of words that the host and the device have alike.
struct Shape {
  uint32_t n_layers, n_kv_heads;
  std::vector<uint32_t> capacity;  // of each stream
  bool windows, prompt_scores, sink;
  uint32_t rope_dim = 8, n_rotations = 1;
  uint32_t ring = 64;  // entries

  uint32_t n_streams() const { return n_layers * n_kv_heads; }
  uint32_t n_rows() const {
    uint32_t n = 0;
    for (const uint32_t c : capacity) n += c;
    return n;
  }
  uint32_t stride() const { return rope_dim + 6; }
};

// Where arrays are, in words.
struct Layout {
  explicit Layout(const Shape& shape) : shape(shape) {
    const uint32_t rows = shape.n_rows(), streams = shape.n_streams();
    for (uint32_t& at : table) at = take(rows);
    prompt_score = take(rows);
    last_gap = take(rows);
    free_slots = take(rows);
    n_pages = take(streams);
    append_row = take(streams);
    row_begin = take(streams + 1);
    window = take(streams);
    state = take(sizeof(StepState) / sizeof(uint32_t));
    counter = take(1);
    compared = n_words;
    angles = take(shape.n_rotations * shape.rope_dim);
    cos_sin = take(shape.n_rotations * shape.stride());
    cos_sin_sink = take(shape.n_rotations * shape.stride());
  }
  uint32_t take(uint32_t n) {
    const uint32_t at = n_words;
    n_words = (n_words + n + 3) / 4 * 4;
    return at;
  }

  KvTables tables(uint32_t* words) const {
    const auto at = [&](uint32_t word) { return words + word; };
    const auto floats = [&](uint32_t word) { return reinterpret_cast<float*>(words + word); };
    KvTables t = {};
    t.slots = at(table[0]), t.first_pos = at(table[1]), t.len = at(table[2]), t.flags = at(table[3]);
    t.stamp = at(table[4]), t.last_score = floats(table[5]);
    t.prompt_score = shape.prompt_scores ? floats(prompt_score) : nullptr;
    t.last_gap = at(last_gap);
    t.n_pages = at(n_pages), t.append_row = at(append_row), t.free_slots = at(free_slots);
    t.row_begin = t.slot_begin = at(row_begin), t.window = at(window);
    t.n_layers = shape.n_layers, t.n_kv_heads = shape.n_kv_heads;
    t.has_windows = shape.windows;
    return t;
  }

  const Shape& shape;
  uint32_t n_words = 0;
  uint32_t table[6], prompt_score, last_gap, free_slots, n_pages, append_row, row_begin, window, state, counter,
      compared, angles, cos_sin, cos_sin_sink;
};

// A decode step over such a block.
struct Case {
  Case(const Shape& wanted, const StepRules& rules, uint32_t pos)
      : shape(wanted), rules(rules), at(shape), host(at.n_words), ring(kLargeRing) {
    Context& c = open_context();
    void *words = nullptr, *staged = nullptr;
    expect_ok(c.memory.allocate(c.device, at.n_words * sizeof(uint32_t), &words));
    expect_ok(c.memory.allocate_staging(c.device, shape.ring * sizeof(PageEvent), 64, &staged));
    device = static_cast<uint32_t*>(words);
    events = static_cast<PageEvent*>(staged);
    for (uint32_t& word : host) word = below(UINT32_MAX);
    fill_tables(pos);
    std::vector<double> radians(angles().size());
    for (double& angle : radians) angle = (below(1000) + 1) / 1000.0;
    std::memcpy(angles().data(), radians.data(), radians.size() * sizeof(double));
    turns.resize(radians.size());
    turns_of(radians, turns.data());
  }
  ~Case() {
    Context& c = context();
    expect_ok(c.release(device));
    expect_ok(c.memory.release_staging(c.device, events));
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  KvTables tables() { return at.tables(host.data()); }
  StepState& state() { return *reinterpret_cast<StepState*>(host.data() + at.state); }
  std::span<double> angles() {
    return {reinterpret_cast<double*>(host.data() + at.angles), size_t{shape.n_rotations} * (shape.rope_dim / 2)};
  }
  StepBeginArgs args(uint32_t* words, const PageEventRing& r) const {
    StepBeginArgs a = {};
    a.tables = at.tables(words);
    a.tables.ruled_stream = ruled_stream;
    a.rules = rules;
    a.state = reinterpret_cast<StepState*>(words + at.state);
    a.angles = reinterpret_cast<const double*>(words + at.angles);
    for (uint32_t i = 0; i < shape.n_rotations; ++i) a.magnitude[i] = 1.0 + 0.25 * i;
    a.rope_dim = shape.rope_dim;
    a.n_rotations = shape.n_rotations;
    a.stride = shape.stride();
    a.cos_sin = reinterpret_cast<float*>(words + at.cos_sin);
    a.cos_sin_sink = shape.sink ? reinterpret_cast<float*>(words + at.cos_sin_sink) : nullptr;
    a.counter = words + at.counter;
    a.events = r;
    return a;
  }

  void fill_tables(uint32_t pos);
  void change_between_steps();
  bool step();  // false: a stream had no room, so no other step can follow
  StepBeginArgs device_args() {
    const uint64_t ring_bytes = shape.ring * sizeof(PageEvent);
    auto* const ring_at = reinterpret_cast<PageEvent*>(context().memory.staged_address(events, ring_bytes));
    return args(device, {ring_at, shape.ring});
  }
  void put();
  void begin_on_host();
  void compare();
  void compare_events(const StepState& got);
  void compare_rotation(const float* got, const float* want);

  static constexpr uint32_t kLargeRing = 1u << 15;  // for all pages of a case
  const Shape shape;
  StepRules rules;
  const Layout at;
  std::vector<uint32_t> host;
  std::vector<uint64_t> turns;
  std::vector<PageEvent> ring;
  uint32_t* device = nullptr;
  PageEvent* events = nullptr;
  uint32_t ruled_stream = 0;
  uint64_t evicted_before = 0;
  uint64_t n_evicted = 0, n_dropped = 0;  // over all steps
};

float random_score() {
  switch (below(10)) {
    case 0:
      return NAN;
    case 1:
      return 0.0f;
    case 2:
      return -0.0f;
    case 3:
      return one_in(2) ? -INFINITY : INFINITY;
    case 4:
      return -NAN;
    case 5:
      return 0x1p-149f * static_cast<float>(below(one_in(2) ? 6 : 400));  // below the normal numbers
    case 6:
      return 1.2e-38f * static_cast<float>(1 + below(5));
    default:
      return static_cast<float>(below(6)) * 0.25f - 0.25f;  // ties
  }
}

// Streams hold the same open page, of earlier pages some. The first ones hold the prompt; the application has pinned or
// unpinned some.
void Case::fill_tables(uint32_t pos) {
  const KvTables t = tables();
  const uint32_t n_filled = (pos + kPageTokens - 1) / kPageTokens, n_prompt = one_in(3) ? 0 : below(n_filled + 1);
  const bool unpinned = one_in(2), any_order = one_in(2);
  uint32_t first = 0;
  uint64_t n_resident = 0;
  for (uint32_t s = 0; s < shape.n_streams(); ++s) {
    const uint32_t capacity = shape.capacity[s], most = std::min(capacity, n_filled);
    const uint32_t n = most == 0 ? 0 : one_in(4) ? 1 + below(most) : most - (most > 1 && one_in(4) ? 1 : 0);
    host[at.row_begin + s] = first;
    t.n_pages[s] = n;
    // As many of the pages before the open one, ascending.
    uint32_t page = 0;
    for (uint32_t row = 0; row < n; ++row) {
      const uint32_t spare = n_filled - page - (n - row);  // that may still be left out
      const uint32_t skipped = spare == 0 || !one_in(4) ? 0 : below(std::min(spare, 9u) + 1);
      page = row + 1 == n ? n_filled - 1 : page + skipped;
      const uint32_t r = first + row;
      t.first_pos[r] = page * kPageTokens;
      t.len[r] = std::min(kPageTokens, pos - t.first_pos[r]);
      t.flags[r] = page >= n_prompt ? 0u : unpinned ? uint32_t{kPagePrompt} : kPagePrompt | kPagePinned;
      if (one_in(12)) t.flags[r] |= kPageKept;
      t.stamp[r] = any_order ? 1 + below(pos + 3) : t.first_pos[r] + 1 + below(6);
      t.last_score[r] = random_score();
      t.last_gap[r] = below(40);
      ++page;
    }
    std::vector<uint32_t> slots(capacity);
    for (uint32_t i = 0; i < capacity; ++i) slots[i] = first + i;
    for (uint32_t i = capacity; i-- > 1;) std::swap(slots[i], slots[below(i + 1)]);
    for (uint32_t i = 0; i < capacity; ++i) (i < n ? t.slots[first + i] : t.free_slots[first + i - n]) = slots[i];
    host[at.window + s] = !shape.windows || (s == 0 ? !one_in(2) : one_in(2)) ? 0 : (capacity - 1) * kPageTokens;
    first += capacity;
    n_resident += n;
  }
  host[at.row_begin + shape.n_streams()] = first;
  ruled_stream = shape.n_streams() - 1;
  host[at.window + ruled_stream] = 0;
  StepState& st = state();
  st.n_tokens = pos;
  // Counters whose low words overflow.
  st.pages_evicted = st.pages_evicted_before = (uint64_t{below(3)} << 32) - (one_in(2) ? below(9) : 0);
  st.prompt_pages_evicted = (uint64_t{1} << 32) - below(5);
  st.pages_resident = n_resident + (one_in(3) ? (uint64_t{7} << 32) - n_resident - below(4) : 0);
  st.pages_resident_max = st.pages_resident + (one_in(2) ? 0 : below(50));
  st.n_without_room = 0;
  host[at.counter] = 0;
}

void Case::change_between_steps() {
  const KvTables t = tables();
  for (uint32_t s = 0; s < shape.n_streams(); ++s) {
    for (uint32_t row = t.row_begin[s]; row < t.row_begin[s] + t.n_pages[s]; ++row) {
      if (!one_in(5)) continue;
      const uint32_t since = state().n_tokens + 9 - t.first_pos[row];  // now and then beyond the next step
      t.stamp[row] = t.first_pos[row] + 1 + (one_in(2) ? since - 1 - below(std::min(since, 12u)) : below(since));
      t.last_score[row] = random_score();
    }
  }
  StepState& st = state();
  ++st.n_tokens;
  st.pages_evicted_before = st.pages_evicted;
  st.pages_attended = below(1000);
}

void Case::put() {
  Context& c = context();
  std::vector<uint32_t> words = host;
  std::memcpy(words.data() + at.angles, turns.data(), turns.size() * sizeof(uint64_t));
  expect_ok(c.copy_in(device, words.data(), words.size() * sizeof(uint32_t)));
  expect_ok(c.recorder.wait(c.device));
  std::memset(static_cast<void*>(events), 0xA5, shape.ring * sizeof(PageEvent));
}

void Case::begin_on_host() {
  OpContext cx;
  evicted_before = state().pages_evicted_before;
  expect_ok(host_module::step_begin(cx, args(host.data(), {host_module::seen(ring.data()), kLargeRing})));
}

// The host's events are in the order of the streams, the device's only within each; the ring may have room for a part.
void Case::compare_events(const StepState& got) {
  const uint64_t n = got.pages_evicted - evicted_before, n_kept = std::min<uint64_t>(n, shape.ring);
  assert_true(n <= kLargeRing);
  n_evicted += n;
  n_dropped += n - n_kept;
  using Key = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>;
  const auto key = [](const PageEvent& e) {
    return Key(e.layer, e.kv_head, e.first_pos, e.n_tokens, e.flags, e.left_at);
  };
  const auto stream = [](const Key& k) { return std::pair(std::get<0>(k), std::get<1>(k)); };
  std::vector<Key> want, have;
  for (uint64_t i = 0; i < n; ++i) want.push_back(key(ring[(evicted_before + i) % kLargeRing]));
  for (uint64_t i = 0; i < n_kept; ++i) {
    const PageEvent& e = events[(evicted_before + i) % shape.ring];
    assert_int_equal(e.index, evicted_before + i);
    have.push_back(key(e));
  }
  std::stable_sort(have.begin(), have.end(), [&](const Key& x, const Key& y) { return stream(x) < stream(y); });
  if (n_kept == n) {
    assert_true(have == want);
  } else {
    std::sort(have.begin(), have.end());
    std::sort(want.begin(), want.end());
    assert_true(std::includes(want.begin(), want.end(), have.begin(), have.end()));
  }
  for (uint64_t i = n_kept; i < shape.ring; ++i) {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(&events[(evicted_before + i) % shape.ring]);
    assert_true(std::all_of(bytes, bytes + sizeof(PageEvent), [](uint8_t b) { return b == 0xA5; }));
  }
}

void Case::compare_rotation(const float* got, const float* want) {
  for (uint32_t i = 0; i < shape.n_rotations * shape.stride(); ++i) {
    // The gaps between rotations stay as they were.
    if (i % shape.stride() >= shape.rope_dim) {
      assert_memory_equal(got + i, want + i, sizeof(float));
    } else if (!(std::abs(got[i] - want[i]) <= 4e-7f)) {
      fail_msg("factor %u is %.9g, not %.9g", i, static_cast<double>(got[i]), static_cast<double>(want[i]));
    }
  }
}

void Case::compare() {
  Context& c = context();
  std::vector<uint32_t> got(at.n_words);
  expect_ok(c.copy_out(got.data(), device, got.size() * sizeof(uint32_t)));
  expect_ok(c.recorder.wait(c.device));
  for (uint32_t i = 0; i < at.compared; ++i) {
    if (got[i] != host[i])
      fail_msg("word %u is %u, not %u (tables from 0, pages %u, state %u)", i, got[i], host[i], at.n_pages, at.state);
  }
  const auto floats = [](const std::vector<uint32_t>& words, uint32_t first) {
    return reinterpret_cast<const float*>(words.data() + first);
  };
  compare_rotation(floats(got, at.cos_sin), floats(host, at.cos_sin));
  if (shape.sink && rules.in_cache_pos) {
    compare_rotation(floats(got, at.cos_sin_sink), floats(host, at.cos_sin_sink));
  } else {
    assert_memory_equal(got.data() + at.cos_sin_sink, host.data() + at.cos_sin_sink,
                        shape.n_rotations * shape.stride() * sizeof(float));
  }
  StepState state_got;
  std::memcpy(&state_got, got.data() + at.state, sizeof(state_got));
  compare_events(state_got);
}

bool Case::step() {
  put();
  expect_ok(step_begin(device_args()));
  expect_ok(context().recorder.wait(context().device));
  begin_on_host();
  compare();
  return state().n_without_room == 0;
}

// --- rules -----------------------------------------------------------------------------------------------------------

StepRules random_rules(VictimRule victim, uint32_t capacity) {
  StepRules r;
  r.victim = victim;
  const uint32_t in_cache = below(3);
  r.in_cache_pos = in_cache != 0;
  r.in_cache_limit = in_cache == 2 ? 1 + below(200) : 0;
  r.front_rows = below(3);
  if (victim == VictimRule::kWindow)
    r.window_tokens = one_in(3) ? 0 : one_in(5) ? UINT32_MAX : 1 + below(capacity * 16);
  if (one_in(2)) {
    r.protect.pages = below(7);
  } else {
    r.protect.share = static_cast<float>(below(101)) * 0.01f;
  }
  if (one_in(2)) {
    r.decode_pages = 1 + below(capacity);
    r.all_pages = capacity;
    r.whole_prompt_pages = below(capacity);
  }
  r.recent_tokens = one_in(3) ? 0 : one_in(8) ? UINT32_MAX : below(capacity) * kPageTokens + below(3);
  r.per_step = one_in(2);
  r.by_gap = one_in(2);
  r.seed = one_in(4) ? UINT32_MAX : below(1000);
  r.leave_at_once = one_in(3) ? below(capacity) : 0;
  return r;
}

Shape random_shape(uint32_t n_layers, uint32_t n_kv_heads, uint32_t max_rows) {
  Shape shape = {n_layers, n_kv_heads, {}, one_in(2), one_in(2), !one_in(4)};
  const uint32_t rows = 4 + below(max_rows - 3);
  for (uint32_t s = 0; s < n_layers * n_kv_heads; ++s)
    shape.capacity.push_back(one_in(4) ? 4 + below(max_rows - 3) : rows);
  shape.n_rotations = 1 + below(kMaxRotations);
  shape.rope_dim = 2 * (1 + below(20));
  shape.ring = one_in(2) ? 8 : 1u << 12;
  return shape;
}

void run_rule(VictimRule victim, bool expects_evictions) {
  random_state = 17 + static_cast<uint64_t>(victim);
  constexpr struct {
    uint32_t n_layers, n_kv_heads, rows, cases;
  } kSizes[] = {{1, 1, 4, 12}, {3, 2, 12, 60}, {5, 8, 40, 20}, {7, 3, 90, 16}, {2, 2, 600, 6}};
  uint64_t n_evicted = 0, n_dropped = 0, n_steps = 0;
  for (const auto& size : kSizes) {
    for (uint32_t i = 0; i < size.cases; ++i) {
      const Shape shape = random_shape(size.n_layers, size.n_kv_heads, size.rows);
      const uint32_t least = *std::min_element(shape.capacity.begin(), shape.capacity.end());
      const uint32_t most = *std::max_element(shape.capacity.begin(), shape.capacity.end());
      // Often a page opens in the first step or soon after.
      const uint32_t pos = one_in(12) ? 0 : kPageTokens * (1 + below(most + most / 4)) - (one_in(3) ? 0 : below(4));
      Case test(shape, random_rules(victim, least), pos);
      bool has_room = test.step();
      for (uint32_t step = 1; has_room && step < 6; ++step) {
        test.change_between_steps();
        has_room = test.step();
        ++n_steps;
      }
      n_evicted += test.n_evicted;
      n_dropped += test.n_dropped;
    }
  }
  assert_true(n_steps > 100);
  assert_int_equal(n_evicted > 100, expects_evictions);
  // Rules like kMarked rarely evict more than a page of each stream in a step.
  assert_int_equal(n_dropped > 10, expects_evictions);
}

void step_begin__never(void**) { run_rule(VictimRule::kNever, false); }
void step_begin__window(void**) { run_rule(VictimRule::kWindow, true); }
void step_begin__stalest(void**) { run_rule(VictimRule::kStalest, true); }
void step_begin__lightest(void**) { run_rule(VictimRule::kLightest, true); }
void step_begin__marked(void**) { run_rule(VictimRule::kMarked, true); }
void step_begin__random(void**) { run_rule(VictimRule::kRandom, true); }

// Scores by the steps since their stamps, some in the future: quotients that are equal or a bit apart.
void step_begin__lightest_per_step(void**) {
  random_state = 21;
  StepRules rules;
  rules.victim = VictimRule::kLightest;
  rules.per_step = true;
  for (uint32_t i = 0; i < 30; ++i) {
    const float scale = i % 3 == 0 ? 0x1p-149f : i % 3 == 1 ? 0x1p-126f : 0x1.234566p-3f;
    Case test({5, 8, std::vector<uint32_t>(40, 12), false, false, false}, rules, 12 * kPageTokens);
    const KvTables t = test.tables();
    for (uint32_t row = 0; row < test.shape.n_rows(); ++row) {
      t.flags[row] = 0;
      t.stamp[row] = 12 * kPageTokens + 3 - below(7);
      t.last_score[row] = scale * static_cast<float>(1 + below(15));
    }
    assert_true(test.step());
    assert_true(test.n_evicted >= 8);
  }
}

// Steps of an answer, recorded once; between them only the number of tokens changes.
void step_begin__recorded_once(void**) {
  random_state = 5;
  Context& c = open_context();
  Shape shape = {4, 3, std::vector<uint32_t>(12, 9), false, true, true};
  StepRules rules;
  rules.victim = VictimRule::kStalest;
  Case test(shape, rules, 37);
  for (uint32_t row = 0; row < shape.n_rows(); ++row) test.tables().flags[row] = 0;
  test.put();
  Recorded work;
  expect_ok(c.recorder.begin_recording(c.device, 4096, work));
  expect_ok(step_begin(test.device_args()));
  expect_ok(c.recorder.end_recording(c.device));
  for (uint32_t i = 0; i < 200; ++i) {
    expect_ok(c.recorder.launch(c.device, work));
    expect_ok(c.recorder.wait(c.device));
    test.begin_on_host();
    test.compare();
    std::memset(static_cast<void*>(test.events), 0xA5, shape.ring * sizeof(PageEvent));
    test.state().n_tokens = 38 + i;
    auto* const state = reinterpret_cast<StepState*>(test.device + test.at.state);
    expect_ok(c.copy_in(&state->n_tokens, &test.state().n_tokens, sizeof(uint32_t)));
  }
  expect_ok(c.recorder.wait(c.device));
  assert_int_equal(test.state().n_without_room, 0);
  assert_true(test.n_evicted >= 48);
  c.recorder.destroy(c.device, work);
}

// 40 streams, of which most lose nearly all of their pages.
void step_begin__many_pages_at_once(void**) {
  random_state = 9;
  Shape shape = {5, 8, std::vector<uint32_t>(40, 300), true, true, true};
  shape.ring = 1u << 14;
  StepRules rules;
  rules.victim = VictimRule::kStalest;
  rules.decode_pages = 5;
  rules.all_pages = 20;
  Case test(shape, rules, 300 * kPageTokens - 5);
  for (uint32_t row = 0; row < shape.n_rows(); ++row) test.tables().flags[row] = one_in(50) ? uint32_t{kPageKept} : 0;
  assert_true(test.step());
  assert_true(test.n_evicted > 2000);
}

void step_begin__refuses(void**) {
  const Shape shape = {1, 1, {4}, false, false, false};
  Case test(shape, {}, 3);
  StepBeginArgs a = test.device_args();
  a.digest_elements = 7;
  assert_int_equal(step_begin(a).code(), WEIR_ERR_INTERNAL);
  assert_non_null(std::strstr(last_error_text(), "digests"));
  a = test.device_args();
  a.events.capacity = 63;
  assert_int_equal(step_begin(a).code(), WEIR_ERR_INTERNAL);
  a = test.device_args();
  a.cos_sin = nullptr;
  a.state = nullptr;
  a.tables.n_pages = test.host.data();
  assert_int_equal(step_begin(a).code(), WEIR_ERR_INTERNAL);
}

// --- rotations -------------------------------------------------------------------------------------------------------

void rotations__near_double_at_every_position(void**) {
  random_state = 3;
  Shape shape = {1, 1, {4}, false, false, true};
  shape.n_rotations = 2;
  shape.rope_dim = 256;
  StepRules rules;
  rules.in_cache_pos = true;
  rules.in_cache_limit = 1000;
  double worst = 0.0;
  for (const uint32_t pos : {0u, 1u, 15u, 16u, 1000u, 131071u, 1048575u}) {
    Case test(shape, rules, 8);
    std::vector<double> radians(shape.n_rotations * shape.rope_dim / 2);
    for (uint32_t i = 0; i < radians.size(); ++i)
      radians[i] = std::pow(i < 128 ? 1e4 : 5e6, -2.0 * (i % 128) / shape.rope_dim);
    constexpr double kOther[] = {0.0,   -0.5,  std::numbers::pi,  std::numbers::pi / 2, std::numbers::pi / 4, 7.0, 100,
                                 -31.4, -1e-9, -std::numbers::pi, 5.497787143782138};
    std::copy(std::begin(kOther), std::end(kOther), radians.begin() + 40);
    std::copy(radians.begin(), radians.end(), test.angles().begin());
    turns_of(radians, test.turns.data());
    test.state().n_tokens = pos;
    test.put();
    expect_ok(step_begin(test.device_args()));
    std::vector<float> got(size_t{2} * shape.n_rotations * shape.stride());
    Context& c = context();
    const uint32_t first[2] = {test.at.cos_sin, test.at.cos_sin_sink};
    for (uint32_t i = 0; i < 2; ++i)
      expect_ok(c.copy_out(got.data() + i * got.size() / 2, test.device + first[i], got.size() / 2 * sizeof(float)));
    expect_ok(c.recorder.wait(c.device));
    for (uint32_t i = 0; i < 2 * radians.size(); ++i) {
      const size_t pair = i % radians.size(), rotation = pair / 128;
      const double angle = radians[pair] * (i < radians.size() ? pos : std::min(pos, 1000u));
      const double magnitude = 1.0 + 0.25 * static_cast<double>(rotation);
      const float* const have =
          got.data() + i / radians.size() * (got.size() / 2) + rotation * shape.stride() + 2 * (pair % 128);
      const double off =
          std::max(std::abs(have[0] - std::cos(angle) * magnitude), std::abs(have[1] - std::sin(angle) * magnitude)) /
          magnitude;
      worst = std::max(worst, off);
      if (!(off <= 2e-7)) fail_msg("position %u, %.9g radians: off by %.3g", pos, radians[pair], off);
      if (pos == 0) assert_true(have[0] == static_cast<float>(magnitude) && have[1] == 0.0f);
    }
  }
  print_message("rotations are off by up to %.2g\n", worst);
}

}  // namespace
}  // namespace weir::vulkan

int main() {
  using namespace weir::vulkan;
  const CMUnitTest tests[] = {
      cmocka_unit_test(step_begin__never),
      cmocka_unit_test(step_begin__window),
      cmocka_unit_test(step_begin__stalest),
      cmocka_unit_test(step_begin__lightest),
      cmocka_unit_test(step_begin__marked),
      cmocka_unit_test(step_begin__random),
      cmocka_unit_test(step_begin__lightest_per_step),
      cmocka_unit_test(step_begin__recorded_once),
      cmocka_unit_test(step_begin__many_pages_at_once),
      cmocka_unit_test(step_begin__refuses),
      cmocka_unit_test(rotations__near_double_at_every_position),
  };
  return cmocka_run_group_tests_name("vulkan_step_begin", tests, nullptr, nullptr);
}
