// Attention of one decode step in shapes of an 8B model (8 KV heads, 4 query heads each, 128 channels), one call per
// layer, in turns: dense, `quest`'s three operations, and attn_history. Prints medians as JSON lines.
//   bench_history [-n TOKENS] [-s STEPS] [-j THREADS] [-b QUEST_PAGES] [-k TOP] [-c CANDIDATES]
// Keys are noise; queries drift slowly (a tenth of each is new), so that what mattered to one step mostly matters to
// the next. Heads of a group have nothing in common, so that lists overlap as little as they can. Without -k and -c the
// sizes are those of the policy's defaults; quest attends as many tokens as attn_history reads keys of.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory_resource>
#include <vector>

#include "core/memory.h"
#include "cpu/backend.h"
#include "ops/ops.h"
#include "policy/policy.h"
#include "quant/half.h"

namespace weir {
namespace {

constexpr uint32_t kKvHeads = 8, kGroup = 4, kHeads = kKvHeads * kGroup, kDim = 128;
constexpr uint64_t kColdBytes = uint64_t{384} << 20;  // of keys and values, far beyond all caches

struct Options {
  uint32_t tokens = 4096, steps = 40, threads = 1, quest_pages = 0;
  HistorySize size;
};

uint64_t random_bits(uint64_t& state) {
  uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
// Roughly normal.
float noise(uint64_t& state) {
  const uint64_t bits = random_bits(state);
  float sum = 0.0f;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>(bits >> (16 * i) & 0xFFFF) / 65536.0f - 0.5f;
  return sum * 1.7320508f;
}

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<ptrdiff_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

// One layer's pages and tables.
struct Layer {
  Layer(const Options& o, uint32_t capacity, uint32_t list_room, uint64_t seed, std::pmr::memory_resource* memory)
      : pool(size_t{kKvHeads} * capacity * page_elements(), memory),
        digests(size_t{kKvHeads} * capacity * 2 * kDim, memory),
        entries(memory) {
    uint64_t state = seed;
    for (uint16_t& x : pool) x = f32_to_bf16(noise(state));
    for (size_t page = 0; page < size_t{kKvHeads} * capacity; ++page)
      digest_page(DigestKind::kMinMax, &pool[page * page_elements()], kPageTokens, kDim, &digests[page * 2 * kDim]);
    tokens = o.tokens + o.steps + 1;
    entries.assign(size_t{kHeads} * kHistoryKinds * tokens, 0.0f);
    lists.assign(size_t{kHeads} * kHistoryKinds * list_room, 0);
    heads.assign(kHeads, {});
    sums.assign(size_t{kKvHeads} * 2 * kDim, 0.0);
    known.assign(size_t{2} * kKvHeads, 0);
    fill.assign(kKvHeads, min_fill());
    history = {entries.data(),          lists.data(), heads.data(), sums.data(), known.data(),
               known.data() + kKvHeads, fill.data(),  tokens,       list_room};
  }
  static size_t page_elements() { return size_t{2} * kPageTokens * kDim; }
  std::pmr::vector<uint16_t> pool, digests;
  std::pmr::vector<float> entries;
  std::vector<float> fill;
  std::vector<uint32_t> lists, known;
  std::vector<HeadHistory> heads;
  std::vector<double> sums;
  HistoryView history;
  uint32_t tokens;
};

// Tables of pages that all layers share: slots in a shuffled order, as after long use.
struct Tables {
  explicit Tables(uint32_t n) : capacity(n) {
    uint64_t state = 7;
    for (uint32_t head = 0; head < kKvHeads; ++head) {
      for (uint32_t row = 0; row < n; ++row) {
        slots.push_back(head * n + row);
        first_pos.push_back(row * kPageTokens);
      }
      for (uint32_t i = n; i > 1; --i) std::swap(slots[head * n + i - 1], slots[head * n + random_bits(state) % i]);
    }
    len.assign(slots.size(), kPageTokens);
    flags.assign(slots.size(), 0);
    n_pages.assign(kKvHeads, n);
  }
  void set_tokens(uint32_t n) {
    for (uint32_t head = 0; head < kKvHeads; ++head) {
      n_pages[head] = whole_pages(n);
      for (uint32_t row = 0; row < capacity; ++row) {
        const uint32_t first = row * kPageTokens;
        len[head * capacity + row] = n > first ? std::min(kPageTokens, n - first) : 0;
      }
    }
  }
  KvView view(Layer& layer) {
    KvView v;
    v.pool = layer.pool.data();
    v.digests = layer.digests.data();
    v.digest = DigestKind::kMinMax;
    v.slots = slots.data();
    v.first_pos = first_pos.data();
    v.len = len.data();
    v.n_pages = n_pages.data();
    v.capacity = capacity;
    v.n_kv_heads = kKvHeads;
    v.head_dim = kDim;
    return v;
  }
  uint32_t capacity;
  std::vector<uint32_t> slots, first_pos, len, flags, n_pages;
};

void check(Status status) {
  if (status.ok()) return;
  std::fprintf(stderr, "bench_history: %s\n", last_error_text());
  std::exit(1);
}

class Bench {
 public:
  Bench(const Options& o, const Policy& policy)
      : o_(o), rules_(policy.history_rules()), tables_(whole_pages(o.tokens + o.steps + 1)), pool_(&memory_) {
    size_ = o.size.top != 0 ? o.size : policy.history_size(o.tokens - rules_.n_sink);
    quest_pages_ = o.quest_pages != 0 ? o.quest_pages : std::max(2u, whole_pages(size_.candidates));
    const uint64_t layer_bytes = uint64_t{kKvHeads} * tables_.capacity * Layer::page_elements() * sizeof(uint16_t);
    const auto n_layers = static_cast<uint32_t>(std::clamp<uint64_t>(kColdBytes / layer_bytes, 1, 64));
    const auto room = static_cast<uint32_t>(list_room(rules_, size_, o.tokens + o.steps + 1));
    for (uint32_t i = 0; i < n_layers; ++i) layers_.emplace_back(o, tables_.capacity, room, i + 1, &memory_);
    check(pool_.start(o.threads));
    OpShapes shapes;
    shapes.n_threads = o.threads;
    shapes.max_tok = 32;
    shapes.n_heads = kHeads;
    shapes.n_kv_heads = kKvHeads;
    shapes.head_dim = kDim;
    shapes.max_pages = tables_.capacity;
    shapes.history_tokens = o.tokens + o.steps + 1 + rules_.n_sink;
    scratch_.resize(cpu_backend().scratch_bytes(shapes) / sizeof(Line) + 1);
    cx_.pool = &pool_;
    cx_.scratch = scratch_[0].bytes;
    cx_.scratch_bytes = scratch_.size() * sizeof(Line);
    q_.resize(size_t{32} * kHeads * kDim);
    out_.resize(size_t{kHeads} * kDim);
    score_.resize(size_t{kHeads} * tables_.capacity);
    group_score_.resize(score_.size());
    select_.resize(score_.size());
    n_select_.resize(kHeads);
  }

  void run() {
    ThreadPool::Lease lease(pool_);
    begin();
    std::vector<double> dense, quest, ours;
    double read = 0.0;
    for (uint32_t step = 0; step < o_.steps; ++step) {
      const uint32_t pos = o_.tokens + step;
      tables_.set_tokens(pos + 1);
      drift(q_.data());
      for (Layer& layer : layers_) {
        dense.push_back(time([&] { check(cpu_backend().ops.attn_paged(cx_, args(layer, pos))); }));
        quest.push_back(time([&] { run_quest(layer, pos); }));
        ours.push_back(time([&] { run_history(layer, pos); }));
        for (uint32_t head = 0; head < kKvHeads; ++head) read += n_read_[head];
      }
    }
    read /= double(o_.steps) * double(layers_.size()) * kKvHeads * o_.tokens;
    const double d = median(dense), q = median(quest), h = median(ours);
    std::printf("{\"tokens\": %u, \"layers\": %zu, \"threads\": %u, \"top\": %u, \"candidates\": %u, ", o_.tokens,
                layers_.size(), o_.threads, size_.top, size_.candidates);
    std::printf("\"quest_pages\": %u, \"dense_us\": %.1f, \"quest_us\": %.1f, \"quest_score_us\": %.1f, ", quest_pages_,
                d * 1e6, q * 1e6, median(score_s_) * 1e6);
    std::printf("\"lfps_us\": %.1f, \"dense_gbps\": %.2f, \"times_dense\": %.2f, \"times_quest\": %.2f, ", h * 1e6,
                4.0 * kDim * kKvHeads * o_.tokens / d * 1e-9, d / h, q / h);
    std::printf("\"keys_read_percent\": %.2f}\n", 100.0 * read);
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  template <class F>
  static double time(const F& f) {
    const double start = seconds();
    f();
    return seconds() - start;
  }

  // A tenth of the queries' variance is new; logits have a standard deviation of 2.
  void drift(float* q) {
    for (size_t i = 0; i < size_t{kHeads} * kDim; ++i) q[i] = 0.9486833f * q[i] + 2.0f * 0.3162278f * noise(state_);
  }

  void begin() {
    tables_.set_tokens(o_.tokens);
    const uint32_t n_rows = std::min(20u, o_.tokens);
    const size_t row = size_t{kHeads} * kDim;
    for (size_t i = 0; i < row; ++i) q_[i] = 2.0f * noise(state_);
    for (uint32_t r = 1; r < n_rows; ++r) {
      std::copy_n(q_.data() + (r - 1) * row, row, q_.data() + r * row);
      drift(q_.data() + r * row);
    }
    for (Layer& layer : layers_) {
      check(cpu_backend().ops.history_begin(
          cx_, {q_.data(), tables_.view(layer), n_rows, kHeads, o_.tokens - n_rows, 1.0f / std::sqrt(float(kDim)), 0.0f,
                layer.history, rules_, size_.candidates}));
    }
    std::copy_n(q_.data() + (n_rows - 1) * row, row, q_.data());
  }

  AttnPagedArgs args(Layer& layer, uint32_t pos) {
    AttnPagedArgs a = {};
    a.out = out_.data();
    a.q = q_.data();
    a.kv = tables_.view(layer);
    a.n_tok = 1;
    a.n_heads = kHeads;
    a.pos = pos;
    a.scale = 1.0f / std::sqrt(float(kDim));
    return a;
  }

  void run_quest(Layer& layer, uint32_t pos) {
    const OpTable& ops = cpu_backend().ops;
    AttnPagedArgs a = args(layer, pos);
    score_s_.push_back(time([&] {
      check(ops.page_score(cx_, {score_.data(), q_.data(), a.kv, kHeads, 1.0f, 0.125f}));
    }));
    check(ops.page_select(cx_, {score_.data(), group_score_.data(), select_.data(), n_select_.data(),
                                tables_.flags.data(), tables_.n_pages.data(), tables_.capacity, kHeads, kKvHeads,
                                a.scale, AggMode::kMaxRaw, quest_pages_, 0, 0}));
    a.select = select_.data();
    a.n_select = n_select_.data();
    check(ops.attn_paged(cx_, a));
  }

  void run_history(Layer& layer, uint32_t pos) {
    AttnHistoryArgs a = {args(layer, pos), layer.history, rules_, size_, tables_.flags.data(), n_read_};
    check(cpu_backend().ops.attn_history(cx_, a));
  }

  Options o_;
  HistoryRules rules_;
  HistorySize size_;
  uint32_t quest_pages_;
  Tables tables_;
  HostMemory memory_{AllocatorHooks()};
  std::vector<Layer> layers_;
  ThreadPool pool_;
  std::vector<Line> scratch_;
  OpContext cx_;
  std::vector<double> score_s_;  // quest's estimates alone
  uint64_t state_ = 99;
  std::vector<float> q_, out_, score_, group_score_;
  std::vector<uint32_t> select_, n_select_;
  uint32_t n_read_[kKvHeads] = {};
};

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::Options o;
  for (int option; (option = getopt(argc, argv, "n:s:j:b:k:c:")) != -1;) {
    const auto value = optarg != nullptr ? static_cast<uint32_t>(std::strtoul(optarg, nullptr, 10)) : 0u;
    switch (option) {
      case 'n':
        o.tokens = value;
        break;
      case 's':
        o.steps = value;
        break;
      case 'j':
        o.threads = value;
        break;
      case 'b':
        o.quest_pages = value;
        break;
      case 'k':
        o.size.top = value;
        break;
      case 'c':
        o.size.candidates = value;
        break;
      default:
        return 2;
    }
  }
  weir::PolicyConfig config;
  config.n_layers = 1;
  config.n_heads = weir::kHeads;
  config.n_kv_heads = weir::kKvHeads;
  config.head_dim = weir::kDim;
  config.context_tokens = o.tokens + o.steps + 1;
  weir::PolicyStorage storage;
  weir::Policy* policy = nullptr;
  weir::check(weir::make_policy("lfps", config, storage, policy));
  weir::Bench(o, *policy).run();
  return 0;
}
