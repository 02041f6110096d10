// PSA over a pool that is smaller than the context. First it traces which pages the steps of a text attend, with all
// pages in the pool, and counts for pools of several sizes how many pages would have to come back under different rules
// for which page leaves: a pool per stream, and one pool of all streams. Then sessions that recall pages take the same
// steps, one after the other in each step, and their times are compared. One JSON line each.
//
//   bench_page_pool -m MODEL -t TEXT [-p PROMPT_TOKENS] [-n STEPS] [-j THREADS] [-f FILE_MIB] [-s SPILL_KIB]
//                   [-b BUDGET_TOKENS[u]]... [-o KEY=VALUE]...       u: pool=unified
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <tuple>

#include "tests/bench/session_bench.h"
#include "weir/experimental.h"

namespace {

using namespace session_bench;

struct Settings {
  const char* model = nullptr;
  const char* text = nullptr;
  uint32_t n_prompt = 1024, n_steps = 96, n_threads = 2;
  uint32_t file_mib = 0, spill_kib = 0;
  std::vector<std::string> budgets, texts;
};

// Rows that a stream attended in a step, in their order, and the scores of all its rows.
struct Access {
  std::vector<uint32_t> rows;
  std::vector<float> score;
};
struct Trace {
  uint32_t n_heads = 0, n_layers = 0;
  std::vector<Access> of;  // [steps][layers][KV heads]
  const Access& at(uint32_t step, uint32_t stream) const { return of[size_t{step} * n_streams() + stream]; }
  uint32_t n_streams() const { return n_layers * n_heads; }
  uint32_t n_steps() const { return static_cast<uint32_t>(of.size()) / n_streams(); }
};

weir_status on_layer(void* user, const weir_trace_layer* l) {
  Trace& t = *static_cast<Trace*>(user);
  t.n_heads = l->n_kv_heads;
  t.n_layers = std::max(t.n_layers, l->layer + 1);
  for (uint32_t h = 0; h < l->n_kv_heads; ++h) {
    Access a;
    const float* score = l->score + size_t{h} * l->capacity;
    const uint32_t n = l->n_pages[h];
    a.score.assign(score, score + n);
    for (uint32_t i = 0; i < (l->listed != nullptr ? l->n_listed[h] : n); ++i)
      a.rows.push_back(l->listed != nullptr ? l->listed[size_t{h} * l->capacity + i] : i);
    const auto first = [&](uint32_t row) { return row + 1 == n ? INFINITY : score[row]; };
    std::stable_sort(a.rows.begin(), a.rows.end(), [&](uint32_t x, uint32_t y) { return first(x) > first(y); });
    t.of.push_back(std::move(a));
  }
  return WEIR_OK;
}

// Which page leaves.
enum Rule { kPerStream, kLastUse, kLastStep, kNextUse, kOptimal };
const char* const kRules[] = {"a pool per stream", "one pool, last use", "one pool, last step, executed layers first",
                              "one pool, next use", "one pool, optimal"};

// Counts what comes back in the steps after the first half, so that pools are filled.
class Pool {
 public:
  Pool(const Trace& t, Rule rule, uint32_t slots_per_stream, uint32_t microbatch)
      : t_(t), rule_(rule), share_(slots_per_stream), microbatch_(microbatch) {}

  double recalled_per_step() {
    const uint32_t n = t_.n_steps(), from = n / 2;
    uint64_t counted = 0;
    pages_.resize(t_.n_streams());
    for (step_ = 0; step_ < n; ++step_) {
      n_missed_ = 0;
      for (layer_ = 0; layer_ < t_.n_layers; ++layer_) {
        for (uint32_t h = 0; h < t_.n_heads; ++h) attend(layer_ * t_.n_heads + h);
      }
      if (step_ >= from) counted += n_missed_;
    }
    return static_cast<double>(counted) / (n - from);
  }

 private:
  struct Page {
    bool in = false, known = false;
    uint32_t step = 0;
    uint64_t clock = 0;
  };
  using Key = std::tuple<double, double, double, double>;  // the least leaves

  void attend(uint32_t stream) {
    const Access& a = t_.at(step_, stream);
    if (pages_[stream].size() < a.score.size()) pages_[stream].resize(a.score.size());
    for (size_t i = 0; i < a.rows.size(); ++i) {
      Page& page = pages_[stream][a.rows[i]];
      if (!page.in) {
        // A page that is new has not come back.
        if (page.known || a.rows[i] + 1 != a.score.size()) ++n_missed_;
        if (rule_ == kPerStream ? n_in_[stream] >= share_ : n_all_ >= share_ * t_.n_streams()) evict(stream, a, i);
        page.in = page.known = true;
        ++n_in_[stream], ++n_all_;
      }
      page.step = step_ + 1;
      page.clock = ++clock_;
    }
  }

  // Steps from now until the stream attends the page again, in layers.
  double next_use(uint32_t stream, uint32_t row) const {
    const uint32_t layer = stream / t_.n_heads;
    for (uint32_t s = layer > layer_ ? step_ : step_ + 1; s < t_.n_steps(); ++s) {
      const auto& rows = t_.at(s, stream).rows;
      if (std::find(rows.begin(), rows.end(), row) != rows.end()) return (s - step_) * double(t_.n_layers) + layer;
    }
    return 1e9;
  }

  Key key(uint32_t stream, uint32_t row) const {
    const Page& p = pages_[stream][row];
    const uint32_t layer = stream / t_.n_heads;
    const bool executed = layer <= layer_;
    const auto& score = t_.at(executed ? step_ : std::max(step_, 1u) - 1, stream).score;
    const double value = row < score.size() ? double{score[row]} : 0.0;
    // Executed layers first, the latest of them first.
    const double order = executed ? -1.0 - layer : 0.0;
    switch (rule_) {
      case kPerStream:
        return {p.step, value, row, 0};
      case kLastUse:
        return {p.clock, 0, 0, 0};
      case kLastStep:
        return {p.step, order, value, 0};
      case kNextUse:  // how often its layer has run since without it
        return {-double(step_ + (executed ? 1 : 0) - double(p.step)), order, value, 0};
      case kOptimal:
        return {-next_use(stream, row), 0, 0, 0};
    }
    return {};
  }

  // Not a page of this microbatch and the next one.
  void evict(uint32_t stream, const Access& a, size_t i) {
    const size_t first = i / microbatch_ * microbatch_, end = std::min(a.rows.size(), first + 2 * microbatch_);
    Key best = {INFINITY, 0, 0, 0};
    Page* leaves = nullptr;
    uint32_t from = 0;
    for (uint32_t s = 0; s < t_.n_streams(); ++s) {
      if (rule_ == kPerStream && s != stream) continue;
      for (uint32_t row = 0; row + 1 < pages_[s].size(); ++row) {
        if (!pages_[s][row].in) continue;
        const auto begin = a.rows.begin();
        if (s == stream && std::find(begin + first, begin + end, row) != begin + end) continue;
        const Key k = key(s, row);
        if (leaves == nullptr || k < best) best = k, leaves = &pages_[s][row], from = s;
      }
    }
    if (leaves == nullptr) return;
    leaves->in = false;
    --n_in_[from], --n_all_;
  }

  const Trace& t_;
  Rule rule_;
  uint32_t share_, microbatch_, step_ = 0, layer_ = 0;
  uint64_t clock_ = 0, n_missed_ = 0, n_all_ = 0;
  std::vector<std::vector<Page>> pages_;
  std::map<uint32_t, uint64_t> n_in_;
};

struct Model {
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  std::vector<weir_token> tokens;
};

weir_session* open_session(const Settings& s, const Model& m, std::vector<weir_key_value> options, uint32_t budget,
                           uint32_t flags) {
  weir_session_options o = WEIR_SESSION_OPTIONS_INIT;
  o.device = WEIR_DEVICE_CPU;
  o.context_tokens = s.n_prompt + s.n_steps + 16;
  o.policy = "psa";
  o.policy_options = options.data();
  o.n_policy_options = static_cast<uint32_t>(options.size());
  o.budget_tokens = budget;
  o.flags = flags;
  const std::string path = "/tmp/weir-pool-" + std::to_string(getpid()) + "-" + std::to_string(budget);
  if (budget != 0) o.spill_budget_bytes = uint64_t{s.spill_kib} << 10;
  if (budget != 0 && s.file_mib != 0) o.spill_path = path.c_str(), o.spill_file_bytes = uint64_t{s.file_mib} << 20;
  weir_session* session = nullptr;
  check(weir_session_create(m.model, &o, &session), "create");
  // In the same pieces, whatever the pool has room for: matrices of other sizes round in other ways.
  constexpr uint32_t kPiece = 16;
  for (uint32_t i = 0; i < s.n_prompt; i += kPiece) {
    const uint32_t n = std::min(kPiece, s.n_prompt - i);
    check(weir_session_prefill(session, m.tokens.data() + i, n, nullptr, nullptr), "prefill");
  }
  return session;
}

void count_misses(const Trace& t, uint32_t microbatch) {
  uint64_t attended = 0;
  uint32_t most = 0;
  for (const Access& a : t.of) attended += a.rows.size(), most = std::max<uint32_t>(most, a.score.size());
  const double mean = static_cast<double>(attended) / t.of.size();
  std::printf("{\"trace\": {\"streams\": %u, \"steps\": %u, \"pages\": %u, \"attended\": %.2f}}\n", t.n_streams(),
              t.n_steps(), most, mean);
  for (const double share : {0.6, 0.8, 0.95, 1.0, 1.05, 1.2, 1.5}) {
    const auto slots = std::max(2 * microbatch + 1, static_cast<uint32_t>(std::lround(share * mean)));
    for (Rule rule : {kPerStream, kLastUse, kLastStep, kNextUse, kOptimal}) {
      const double n = Pool(t, rule, slots, microbatch).recalled_per_step();
      std::printf("{\"rule\": \"%s\", \"slots_per_stream\": %u, \"recalled_per_step\": %.1f, \"hits\": %.4f}\n",
                  kRules[rule], slots, n, 1.0 - n / (mean * t.n_streams()));
      std::fflush(stdout);
    }
  }
}

void time_sessions(const Settings& s, const Model& m, const std::vector<weir_key_value>& options) {
  std::vector<weir_session*> sessions = {open_session(s, m, options, 0, 0)};
  std::vector<weir_key_value> recall = options;
  recall.push_back({"recall", "on"});
  recall.push_back({"pool", "stream"});
  for (const std::string& b : s.budgets) {
    recall.back().value = b.back() == 'u' ? "unified" : "stream";
    sessions.push_back(open_session(s, m, recall, static_cast<uint32_t>(std::stoul(b)), 0));
  }
  std::vector<std::vector<double>> ms(sessions.size());
  std::vector<uint64_t> before(sessions.size());
  std::vector<bool> other(sessions.size());
  for (uint32_t i = 0; i < s.n_steps; ++i) {
    const float* want = nullptr;
    for (size_t k = 0; k < sessions.size(); ++k) {
      const auto started = std::chrono::steady_clock::now();
      check(weir_session_step(sessions[k], m.tokens[s.n_prompt + i]), "step");
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - started;
      weir_session_stats stats = WEIR_SESSION_STATS_INIT;
      check(weir_session_get_stats(sessions[k], &stats), "stats");
      if (i == s.n_steps / 2) before[k] = stats.pages_recalled;
      if (i > s.n_steps / 2) ms[k].push_back(took.count());
      const float* logits = nullptr;
      uint32_t n = 0;
      check(weir_session_logits(sessions[k], &logits, &n), "logits");
      if (k == 0) want = logits;
      if (std::memcmp(logits, want, n * sizeof(float)) != 0 && !other[k]) {
        std::fprintf(stderr, "budget %s: other logits from step %u on\n", s.budgets[k - 1].c_str(), i);
        other[k] = true;
      }
    }
  }
  for (size_t k = 0; k < sessions.size(); ++k) {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    check(weir_session_get_stats(sessions[k], &stats), "stats");
    check(weir_session_memory(sessions[k], &memory), "memory");
    std::sort(ms[k].begin(), ms[k].end());
    std::printf(
        "{\"budget\": \"%s\", \"ms_median\": %.3f, \"recalled_per_step\": %.1f, \"recall_ms\": %.3f, \"kv_bytes\": "
        "%llu, "
        "\"spill_stored_bytes\": %llu, \"late_allocs\": %llu, \"as_planned\": %s}\n",
        k == 0 ? "none" : s.budgets[k - 1].c_str(), ms[k][ms[k].size() / 2],
        static_cast<double>(stats.pages_recalled - before[k]) / static_cast<double>(ms[k].size()),
        stats.pages_recalled == 0 ? 0.0 : 1e-6 * static_cast<double>(stats.recall_ns) / static_cast<double>(s.n_steps),
        static_cast<unsigned long long>(memory.kv_budget_bytes),
        static_cast<unsigned long long>(stats.spill_stored_bytes),
        static_cast<unsigned long long>(memory.allocs_while_decoding),
        memory.bytes == memory.plan_bytes ? "true" : "false");
    weir_session_destroy(sessions[k]);
  }
  std::printf("{\"same_logits\": %s}\n", std::find(other.begin(), other.end(), true) == other.end() ? "true" : "false");
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  read_flags(argc, argv,
             {{'m', &s.model},
              {'t', &s.text},
              {'p', nullptr, &s.n_prompt},
              {'n', nullptr, &s.n_steps},
              {'j', nullptr, &s.n_threads},
              {'f', nullptr, &s.file_mib},
              {'s', nullptr, &s.spill_kib},
              {'b', nullptr, nullptr, &s.budgets},
              {'o', nullptr, nullptr, &s.texts}});
  if (s.model == nullptr || s.text == nullptr) {
    std::fprintf(stderr, "bench_page_pool: -m MODEL and -t TEXT are required\n");
    return 2;
  }
  uint32_t microbatch = 4;
  std::vector<weir_key_value> options = {{"skip_layers", "0"}, {"max_pages", "1048576"}};
  for (std::string& text : s.texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    text[equals] = '\0';
    options.push_back({text.c_str(), text.c_str() + equals + 1});
    if (std::strcmp(text.c_str(), "mb") == 0) microbatch = static_cast<uint32_t>(std::stoul(text.substr(equals + 1)));
  }
  // The default is another one with recall.
  const std::string mb = std::to_string(microbatch);
  if (std::none_of(options.begin(), options.end(), [](const auto& o) { return std::strcmp(o.key, "mb") == 0; }))
    options.push_back({"mb", mb.c_str()});
  Model m;
  weir_runtime_options threads = WEIR_RUNTIME_OPTIONS_INIT;
  threads.n_threads = s.n_threads;
  check(weir_runtime_create(&threads, &m.runtime), "runtime");
  check(weir_model_open(m.runtime, s.model, nullptr, &m.model), "model");
  std::ifstream file(s.text, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  m.tokens.resize(text.size());
  uint64_t n = 0;
  check(weir_tokenize(m.model, text.data(), text.size(), 0, m.tokens.data(), m.tokens.size(), &n), "tokenize");
  if (n < s.n_prompt + s.n_steps) {
    std::fprintf(stderr, "bench_page_pool: the text has %llu tokens\n", static_cast<unsigned long long>(n));
    return 2;
  }
  if (s.budgets.empty()) {
    weir_session* traced = open_session(s, m, options, 0, WEIR_SESSION_TRACE);
    const auto trace = reinterpret_cast<weir_session_trace_fn>(weir_get_experimental("weir_session_trace"));
    Trace t;
    check(trace(traced, on_layer, &t), "trace");
    for (uint32_t i = 0; i < s.n_steps; ++i) check(weir_session_step(traced, m.tokens[s.n_prompt + i]), "step");
    weir_session_destroy(traced);
    count_misses(t, microbatch);
  } else {
    time_sessions(s, m, options);
  }
  weir_model_close(m.model);
  weir_runtime_destroy(m.runtime);
  return 0;
}
