// weir bench: tokens and bytes a second of decode steps at chosen KV depths, against the memory bandwidth of this
// machine. The bandwidth is measured between the steps of each depth, so that both see the same noise. A depth is
// reached by filling the KV memory with random values (an experimental function of the library), not by computing it.
// Steps are reported by their median; the bandwidth by its best pass, which makes the fraction a careful one. On a GPU
// the yardstick is a copy within its memory, and the parts of a step are measured by themselves. Several sessions step
// together; then tokens and bytes are those of all of them, and the weights count once. With --spill the counters of
// the store of spilled pages are beside each depth.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>

#include "bench_bandwidth.h"
#include "bench_model.h"
#include "bench_plot.h"
#include "commands.h"
#include "conversation.h"
#include "out_file.h"
#include "output.h"
#include "terminal.h"
#include "weir/experimental.h"

namespace weir_cli {
namespace {

using Clock = std::chrono::steady_clock;
using BenchFill = weir_status (*)(weir_session*, uint32_t n_tokens);

constexpr uint32_t kWarmUpSteps = 2;
// Before each depth on Vulkan there are steps of another session until they have not become faster by 1 % for so many
// seconds, and at most so many seconds in all. NVIDIA's driver raises the clock of a GPU without a CUDA program only
// under load: on an H100 the first 0.3 s of steps took twice as long as later ones. Copies do not raise it so far.
constexpr double kSteadySeconds = 2.0, kMaxWarmUpSeconds = 30.0, kSteadyGrowth = 1.01;
constexpr uint32_t kWarmUpTokens = 64;      // steps that are timed together,
constexpr double kWarmUpPartSeconds = 0.1;  // and no more once they took so long
constexpr uint32_t kProfileTokens = 32;     // positions that measuring the parts may take
constexpr const char* kPartNames[] = {"products", "scoring", "selection", "attention", "other"};
constexpr uint32_t kRounds = 4;  // the steps of a depth are cut into so many, with a bandwidth pass around each

struct BenchFlags {
  std::string model;
  std::string shape;
  std::string type = "q8_0";
  std::string cache_dir;
  std::string commit;
  std::vector<uint32_t> depths = {0};
  std::string results;  // a file of JSON lines to draw instead of measuring
  std::string plot;
  uint32_t n_steps = 32;
  uint32_t prefill = 512;
  uint32_t n_sessions = 1;
  bool spill = false;
  bool json = false;
  SessionFlags session;
};

// Counters of spilled pages, of all sessions.
struct SpillCounts {
  uint64_t n_recalled = 0, n_restored = 0, n_evicted = 0, n_waits = 0, n_errors = 0, recall_ns = 0;
  // At the end, pages in host memory or the file alone, and pages and bytes of the store, how many of them raw.
  uint64_t n_cold = 0, n_dropped = 0, n_stored = 0, n_raw = 0, stored_bytes = 0;
  uint64_t plan_raw_bytes = 0, plan_compressed_bytes = 0;  // room that the session has for pages of either kind

  void add(const weir_plan_info& plan, const weir_session_stats& stats) {
    n_recalled += stats.pages_recalled;
    n_restored += stats.spill_restored;
    n_evicted += stats.pages_evicted;
    n_waits += stats.spill_waits;
    n_errors += stats.spill_errors;
    recall_ns += stats.recall_ns;
    n_cold += stats.pages_cold;
    n_dropped += stats.pages_dropped;
    n_stored += stored_pages(plan, stats);
    n_raw += stats.spill_pages_raw;
    stored_bytes += stats.spill_stored_bytes;
  }
  void subtract_steps(const SpillCounts& before) {
    n_recalled -= before.n_recalled;
    n_restored -= before.n_restored;
    n_evicted -= before.n_evicted;
    n_waits -= before.n_waits;
    n_errors -= before.n_errors;
    recall_ns -= before.recall_ns;
  }
};

struct Row {
  uint32_t depth = 0;
  double step_s = 0;        // median
  uint64_t read_bytes = 0;  // of a step: weights and KV
  uint64_t kv_bytes = 0;    // pages that hold tokens, of all sessions
  double part_s[5] = {};    // on a GPU, of one session: products, scoring, selection, attention, the rest
  SpillCounts spill;        // of the measured steps
  double mean_s = 0;        // of a step; pages are copied out in one step of 16, which a median does not see
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// How many experts a token goes through, 0 when the model has none.
uint64_t experts_used(const weir_model* model) {
  const std::string wanted = std::string(model_info(model).architecture) + ".expert_used_count";
  const std::optional<std::string> value = metadata_value(model, wanted);
  return value ? std::stoull(*value) : 0;
}

// Every weight is read once a step, except the embedding, of which it is one row, or all when it is the output matrix
// too; and of the experts' matrices only those of the chosen experts.
uint64_t step_weight_bytes(const weir_model* model) {
  uint64_t all = 0, embedding = 0, embedding_row = 0;
  bool tied = true;
  const uint64_t n_used = experts_used(model);
  for (uint32_t i = 0; i < model_info(model).n_tensors; ++i) {
    weir_tensor_info t = WEIR_TENSOR_INFO_INIT;
    check(weir_model_tensor_info(model, i, &t), "cannot describe tensor " + std::to_string(i));
    const std::string name = t.name;
    if (name == "output.weight") tied = false;
    if (name == "rope_freqs.weight") continue;
    if (name == "token_embd.weight") {
      embedding = t.bytes;
      embedding_row = t.bytes / std::max<uint64_t>(t.dims[0], 1);
    }
    // A stack's slowest axis counts the experts.
    const bool of_experts = name.find("_exps.") != std::string::npos;
    all += of_experts ? t.bytes / std::max<uint64_t>(t.dims[0], 1) * n_used : t.bytes;
  }
  return tied ? all : all - embedding + embedding_row;
}

class Bench {
 public:
  Bench(const BenchFlags& flags, const std::string& path)
      : flags_(flags), runtime_(create_runtime(flags.session.threads, flags.session.device)) {
    const auto start = Clock::now();
    model_ = open_model(runtime_.get(), path);
    load_s_ = seconds_since(start);
    info_ = model_info(model_.get());
    weight_bytes_ = step_weight_bytes(model_.get());
    fill_ = reinterpret_cast<BenchFill>(weir_get_experimental("weir_bench_fill"));
    SessionOptions options(flags.session);
    checked_plan(model_.get(), options.get());
    const weir_plan_info plan = make_plan(model_.get(), options.get());
    device_ = plan.device;
    on_gpu_ = device_ != WEIR_DEVICE_CPU;
    attends_on_host_ = on_gpu_ && plan.device_bytes <= plan.workspace_bytes;  // no keys and values
    has_parts_ = on_gpu_ && flags.n_sessions == 1;
    if (flags.spill && make_plan(model_.get(), options.get()).spill_bytes == 0)
      throw UsageError("bench: --spill needs a policy that recalls pages, and a --budget below the context");
  }

  void run() {
    if (!on_gpu_) meter_.emplace(weir_runtime_thread_count(runtime_.get()));
    for (uint32_t depth : flags_.depths) rows_.push_back(measure_depth(depth));
    if (flags_.prefill > 0) measure_prefill();
    progress_.clear();
  }

  void print_json() const {
    nlohmann::ordered_json out = {{"device", device()},
                                  {"cpu_target", weir_runtime_cpu_target(runtime_.get())},
                                  {"threads", weir_runtime_thread_count(runtime_.get())},
                                  {"shape", flags_.shape.empty() ? std::string(info_.name) : flags_.shape},
                                  {"type", info_.weight_type},
                                  {"policy", flags_.session.policy},
                                  {"budget", flags_.session.budget},
                                  {on_gpu_ ? "copy_gbps" : "read_gbps", read_gbps_}};
    if (attends_on_host_) out["attention"] = "host";
    if (on_gpu_) {
      out["gpu"] = gpu_.name;
      out["device_bytes"] = session_plan_.device_bytes;
      out["device_weights_bytes"] = session_plan_.device_weights_bytes;
      out["driver_bytes"] = gpu_.library_bytes;
    }
    if (flags_.session.budget_bytes > 0) out["budget_bytes"] = flags_.session.budget_bytes;
    if (flags_.n_sessions > 1) out["sessions"] = flags_.n_sessions;
    if (flags_.session.kv != "bf16") out["kv"] = flags_.session.kv;
    if (!flags_.session.policy_options.empty()) out["options"] = flags_.session.policy_options;
    auto& rows = out["rows"] = nlohmann::ordered_json::array();
    for (const Row& r : rows_) {
      rows.push_back({{"depth", r.depth},
                      {"tok_per_s", tokens_per_s(r)},
                      {"gbps", gbps(r)},
                      {on_gpu_ ? "fraction_of_copy" : "fraction_of_read", gbps(r) / read_gbps_},
                      {"kv_bytes", r.kv_bytes}});
      if (flags_.spill) rows.back()["spill"] = spill_json(r);
      if (!has_parts_) continue;
      auto& parts = rows.back()["part_us"] = nlohmann::ordered_json::object();
      for (size_t i = 0; i < 5; ++i) parts[kPartNames[i]] = r.part_s[i] * 1e6;
    }
    if (prefill_s_ > 0) {
      const double rate = flags_.prefill / prefill_s_;
      out["prefill"] = {
          {"tokens", flags_.prefill}, {"tok_per_s", rate}, {"ratio_to_decode", rate / tokens_per_s(rows_.front())}};
    }
    out["load_ms"] = load_s_ * 1e3;
    out["version"] = weir_version_string();
    if (!flags_.commit.empty()) out["commit"] = flags_.commit;
    put_line(dump_json(out));
  }

  void print_table() const {
    put_format("%s, %s, %s of weights read a step, policy %s\n",
               plain_line(info_.name[0] != '\0' ? info_.name : info_.architecture).c_str(), info_.weight_type,
               human_bytes(weight_bytes_).c_str(), flags_.session.policy.c_str());
    if (flags_.n_sessions > 1) put_format("%u sessions in each step\n", flags_.n_sessions);
    if (attends_on_host_) put_format("attention of steps on the host, keys and values in its memory\n");
    if (on_gpu_) {
      put_format("%s, memory copy %.1f GB/s, loaded in %.1f ms\n\n", gpu_.name, read_gbps_, load_s_ * 1e3);
    } else {
      put_format("%s %s, %u threads, memory read %.1f GB/s, loaded in %.1f ms\n\n", device().c_str(),
                 weir_runtime_cpu_target(runtime_.get()), weir_runtime_thread_count(runtime_.get()), read_gbps_,
                 load_s_ * 1e3);
    }
    put_format("%10s %10s %10s %10s %12s", "depth", "tok/s", "GB/s", on_gpu_ ? "of copy" : "of read", "KV");
    for (size_t i = 0; has_parts_ && i < 5; ++i) put_format(" %10s", kPartNames[i]);
    put_format("%s\n", has_parts_ ? "  (us)" : "");
    for (const Row& r : rows_) {
      put_format("%10s %10.2f %10.2f %8.1f %% %12s", grouped(r.depth).c_str(), tokens_per_s(r), gbps(r),
                 100 * gbps(r) / read_gbps_, human_bytes(r.kv_bytes).c_str());
      for (size_t i = 0; has_parts_ && i < 5; ++i) put_format(" %10.1f", r.part_s[i] * 1e6);
      put_format("\n");
    }
    if (flags_.spill) print_spill();
    if (prefill_s_ > 0) {
      const double rate = flags_.prefill / prefill_s_;
      put_format("\nprefill of %s tokens: %.1f tok/s, %.1f times decode\n", grouped(flags_.prefill).c_str(), rate,
                 rate / tokens_per_s(rows_.front()));
    }
  }

 private:
  // Streams that the budget rules, of all sessions, in all measured steps.
  double stream_steps() const {
    return static_cast<double>(session_plan_.n_streams - session_plan_.n_window_streams) * flags_.n_sessions *
           flags_.n_steps;
  }
  double ratio(const Row& row) const {
    return row.spill.stored_bytes == 0 ? 0
                                       : static_cast<double>(row.spill.n_stored * session_plan_.page_bytes) /
                                             static_cast<double>(row.spill.stored_bytes);
  }

  nlohmann::ordered_json spill_json(const Row& row) const {
    const SpillCounts& c = row.spill;
    return {{"mean_tok_per_s", flags_.n_sessions / row.mean_s},
            {"recalls_per_stream_step", static_cast<double>(c.n_recalled) / stream_steps()},
            {"restored_per_step", static_cast<double>(c.n_restored) / flags_.n_steps},
            {"evictions_per_stream_step", static_cast<double>(c.n_evicted) / stream_steps()},
            {"recall_us_per_step", static_cast<double>(c.recall_ns) * 1e-3 / flags_.n_steps},
            {"waits", c.n_waits},
            {"errors", c.n_errors},
            {"pages_cold", c.n_cold},
            {"pages_dropped", c.n_dropped},
            {"pages_raw", c.n_raw},
            {"stored_bytes", c.stored_bytes},
            {"plan_raw_bytes", c.plan_raw_bytes},
            {"plan_compressed_bytes", c.plan_compressed_bytes},
            {"ratio", ratio(row)}};
  }

  void print_spill() const {
    put_format("\nroom for %s of raw pages and %s of compressed ones\n",
               human_bytes(rows_.back().spill.plan_raw_bytes).c_str(),
               human_bytes(rows_.back().spill.plan_compressed_bytes).c_str());
    put_format("%10s %14s %10s %14s %10s %12s %12s %8s %12s %8s\n", "depth", "recalls", "restored", "recalls", "waits",
               "cold pages", "raw pages", "dropped", "stored", "ratio");
    put_format("%10s %14s %10s %14s\n", "", "stream x step", "a step", "us a step");
    for (const Row& r : rows_) {
      put_format("%10s %14.2f %10.1f %14.1f %10s %12s %12s %8s %12s %8.2f\n", grouped(r.depth).c_str(),
                 static_cast<double>(r.spill.n_recalled) / stream_steps(),
                 static_cast<double>(r.spill.n_restored) / flags_.n_steps,
                 static_cast<double>(r.spill.recall_ns) * 1e-3 / flags_.n_steps, grouped(r.spill.n_waits).c_str(),
                 grouped(r.spill.n_cold).c_str(), grouped(r.spill.n_raw).c_str(), grouped(r.spill.n_dropped).c_str(),
                 human_bytes(r.spill.stored_bytes).c_str(), ratio(r));
    }
  }

  SpillCounts spill_counts() const {
    SpillCounts counts;
    counts.plan_raw_bytes = session_plan_.spill_raw_bytes;
    counts.plan_compressed_bytes = session_plan_.spill_compressed_bytes;
    for (const weir_session* session : handles_) counts.add(session_plan_, session_stats(session));
    return counts;
  }

  double tokens_per_s(const Row& row) const { return flags_.n_sessions / row.step_s; }
  static double gbps(const Row& row) { return static_cast<double>(row.read_bytes) / row.step_s / 1e9; }
  std::string device() const { return !on_gpu_ ? "cpu" : device_ == WEIR_DEVICE_VULKAN ? "vulkan" : "cuda"; }

  weir_token random_token() {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<weir_token>((random_ >> 33) % std::max(info_.vocab_size, 1u));
  }

  void note(const std::string& text) {
    progress_.update([&] { return text; });
  }

  void measure_bandwidth() {
    if (on_gpu_) {
      const auto measure = reinterpret_cast<weir_bench_device_fn>(weir_get_experimental("weir_bench_device"));
      if (measure == nullptr) throw std::runtime_error("this library has no weir_bench_device");
      check(measure(runtime_.get(), device_, &gpu_), "cannot measure the device");
    }
    read_gbps_ = std::max(read_gbps_, on_gpu_ ? gpu_.copy_gbps : meter_->best_gbps(2));
  }

  // The session is a small one of its own, because steps of a measured one would move it away from its depth.
  void warm_up() {
    SessionFlags flags;
    flags.device = flags_.session.device;
    flags.context = flags.batch = kWarmUpTokens;
    flags.host_attention = attends_on_host_;
    SessionOptions options(flags);
    const SessionPtr session = create_session(model_.get(), options.get());
    const auto start = Clock::now();
    double least = std::numeric_limits<double>::infinity();
    for (auto gained = start; seconds_since(gained) < kSteadySeconds && seconds_since(start) < kMaxWarmUpSeconds;) {
      check(weir_session_reset(session.get()), "cannot begin anew");
      const auto first = Clock::now();
      uint32_t n = 0;
      do {
        check(weir_session_step(session.get(), static_cast<weir_token>(n % info_.vocab_size)), "cannot decode");
      } while (++n < kWarmUpTokens && seconds_since(first) < kWarmUpPartSeconds);
      const double seconds = seconds_since(first) / n;
      if (seconds * kSteadyGrowth >= least) continue;
      least = seconds;
      gained = Clock::now();
    }
  }

  // What the parts of a step take by themselves; the rest is what the whole step takes beyond them.
  void measure_parts(weir_session* session, Row& row) {
    const auto profile = reinterpret_cast<weir_bench_profile_fn>(weir_get_experimental("weir_bench_profile"));
    if (profile == nullptr) throw std::runtime_error("this library has no weir_bench_profile");
    check(profile(session, random_token(), row.part_s), "cannot measure the parts of a step");
    row.part_s[4] = std::max(0.0, row.step_s - row.part_s[0] - row.part_s[1] - row.part_s[2] - row.part_s[3]);
  }

  // `n_sessions`: how many there will be, for which the memory must do.
  SessionPtr open_session(uint32_t n_tokens, uint32_t n_sessions) {
    SessionFlags flags = flags_.session;
    // Sessions that step together lie in the prefill buffers of one, which are no longer than its context.
    if (flags.context == 0) flags.context = std::max(n_tokens, n_sessions);
    SessionOptions options(flags);
    const weir_plan_info plan = session_plan_ = make_plan(model_.get(), options.get());
    const uint64_t available = available_memory_bytes();
    if (available > 0 && (plan.total_bytes - plan.device_bytes) * n_sessions > available) {
      throw std::runtime_error((n_sessions == 1 ? "a session" : grouped(n_sessions) + " sessions, each") + " of " +
                               grouped(n_tokens) + " tokens takes " + human_bytes(plan.total_bytes) + ", " +
                               human_bytes(available) + " of memory are free");
    }
    return create_session(model_.get(), options.get());
  }

  // One session of the depth, or all that step together.
  void open_sessions(uint32_t depth, uint32_t n_tokens) {
    handles_.clear();
    for (uint32_t i = 0; i < flags_.n_sessions; ++i) {
      sessions_.push_back(open_session(n_tokens, flags_.n_sessions - i));
      handles_.push_back(sessions_.back().get());
      if (depth == 0) continue;
      if (fill_ == nullptr)
        throw std::runtime_error("this library has no weir_bench_fill, so only depth 0 can be measured");
      check(fill_(handles_.back(), depth), "cannot fill the KV memory to depth " + std::to_string(depth));
    }
    tokens_.resize(handles_.size());
  }

  void step() {
    for (weir_token& token : tokens_) token = random_token();
    check(handles_.size() == 1 ? weir_session_step(handles_[0], tokens_[0])
                               : weir_step_many(handles_.data(), tokens_.data(), flags_.n_sessions),
          "cannot decode");
  }

  Row measure_depth(uint32_t depth) {
    const std::string what = "depth " + grouped(depth);
    note(what);
    open_sessions(depth, depth + flags_.n_steps + kWarmUpSteps + (has_parts_ ? kProfileTokens : 0));
    if (device_ == WEIR_DEVICE_VULKAN) {
      note(what + ", until steps are steady");
      warm_up();
    }
    for (uint32_t i = 0; i < kWarmUpSteps; ++i) step();
    std::vector<double> seconds;
    uint64_t kv_bytes = 0, attended_bytes = 0;
    const SpillCounts before = spill_counts();
    measure_bandwidth();
    for (uint32_t round = 0; round < kRounds; ++round) {
      while (seconds.size() < static_cast<size_t>(flags_.n_steps) * (round + 1) / kRounds) {
        note(what + ", step " + std::to_string(seconds.size() + 1) + " of " + std::to_string(flags_.n_steps));
        const auto start = Clock::now();
        step();
        seconds.push_back(seconds_since(start));
        for (const weir_session* session : handles_) {
          kv_bytes += session_memory(session).kv_bytes;
          attended_bytes += attended(session_plan_, session_stats(session));
        }
      }
      measure_bandwidth();
    }
    Row row;
    row.depth = depth;
    row.step_s = median(seconds);
    row.mean_s = std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
    row.kv_bytes = kv_bytes / seconds.size();
    row.read_bytes = weight_bytes_ + attended_bytes / seconds.size();
    row.spill = spill_counts();
    row.spill.subtract_steps(before);
    if (has_parts_) measure_parts(handles_[0], row);
    sessions_.clear();
    return row;
  }

  // Bytes of pages that the latest step attended, and of the digests when it chose among them.
  static uint64_t attended(const weir_plan_info& plan, const weir_session_stats& stats) {
    const uint64_t digest_bytes =
        plan.kv_bytes == 0 ? 0 : plan.digest_bytes * plan.page_bytes / plan.kv_bytes;  // of a page
    const uint64_t pages = stats.pages_attended * plan.page_bytes;
    return stats.pages_attended < stats.pages_resident ? pages + stats.pages_resident * digest_bytes : pages;
  }

  void measure_prefill() {
    std::vector<weir_token> tokens(flags_.prefill);
    for (weir_token& token : tokens) token = random_token();
    const SessionPtr session = open_session(flags_.prefill + 1, 1);
    // A GPU loads its kernels when they are first used.
    for (int left = on_gpu_ ? 3 : 1; left > 0; --left) {
      check(weir_session_reset(session.get()), "cannot begin anew");
      const auto start = Clock::now();
      prefill(session.get(), tokens, [&](uint64_t done, uint64_t total) {
        note("prefill " + grouped(done) + " of " + grouped(total) + " tokens");
        return true;
      });
      const double seconds = seconds_since(start);
      prefill_s_ = prefill_s_ > 0 ? std::min(prefill_s_, seconds) : seconds;
    }
  }

  const BenchFlags& flags_;
  RuntimePtr runtime_;
  ModelPtr model_;
  weir_model_info info_ = WEIR_MODEL_INFO_INIT;
  weir_plan_info session_plan_ = WEIR_PLAN_INFO_INIT;  // of the latest session
  BenchFill fill_ = nullptr;
  std::vector<SessionPtr> sessions_;  // of the latest depth
  std::vector<weir_session*> handles_;
  std::vector<weir_token> tokens_;  // of a step
  std::optional<BandwidthMeter> meter_;
  ProgressLine progress_;
  int32_t device_ = WEIR_DEVICE_CPU;
  bool on_gpu_ = false, attends_on_host_ = false;
  bool has_parts_ = false;  // of steps: only those of one session can be measured
  weir_bench_device gpu_ = {sizeof(weir_bench_device), 0, {}, 0, 0, 0};
  uint64_t weight_bytes_ = 0;  // read in a step
  uint64_t random_ = 1;
  double load_s_ = 0;
  double prefill_s_ = 0;
  double read_gbps_ = 0;
  std::vector<Row> rows_;
};

// In the user's own cache; a folder that all users share is only where nothing else is known.
std::string default_cache_dir() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value != nullptr && *value == '/' ? value : "";
  };
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/weir-bench";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/weir-bench";
  const std::string temporary = variable("TMPDIR");
  return (temporary.empty() ? "/tmp" : temporary) + "/weir-bench-" + std::to_string(::geteuid());
}

int draw_results(const BenchFlags& flags) {
  if (flags.results.empty() || flags.shape.empty()) throw UsageError("bench: --plot needs --results and --shape");
  std::ifstream in(flags.results);
  if (!in) throw std::runtime_error("cannot read " + flags.results);
  write_text_file(flags.plot, bench_plot_svg(in, flags.shape));
  return 0;
}

int run_bench(BenchFlags& flags) {
  if (!flags.plot.empty()) return draw_results(flags);
  if (flags.model.empty() == flags.shape.empty()) throw UsageError("bench: expected either -m FILE or --shape NAME");
  std::string path = flags.model;
  if (path.empty()) {
    if (flags.cache_dir.empty()) flags.cache_dir = default_cache_dir();
    path = bench_model_file(model_shape(flags.shape), flags.type, flags.cache_dir);
  }
  Bench bench(flags, path);
  bench.run();
  if (flags.json)
    bench.print_json();
  else
    bench.print_table();
  return 0;
}

}  // namespace

void add_bench(CLI::App& program, Action& action) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* app = program.add_subcommand("bench", "Speed at chosen depths against this machine's memory bandwidth");
  std::vector<std::string> shapes;
  for (const ModelShape& shape : model_shapes()) shapes.emplace_back(shape.name);
  add_model_flag(*app, flags->model);
  app->add_option("--shape", flags->shape,
                  "A model of this shape with random weights: 8b, 1b, 1.5b-qwen, 7b-qwen, 30b-a3b, "
                  "27b-qwen35, 35b-a3b-qwen35, nemotron-30b-a3b, lfm2-1.2b, 20b-oss, tiny")
      ->check(one_of(shapes))
      ->type_name("NAME");
  app->add_option("--type", flags->type, "Weight type of --shape; default q8_0")
      ->check(one_of({"f32",    "f16",   "bf16",   "q8_0",    "q4_0",   "q4_1",  "q5_0", "q5_1",
                      "iq4_nl", "mxfp4", "nvfp4",  "iq2_xxs", "iq2_xs", "iq2_s", "q2_k", "iq3_xxs",
                      "iq3_s",  "q3_k",  "iq4_xs", "q4_k",    "q5_k",   "q6_k"}))
      ->type_name("TYPE");
  app->add_option("--cache-dir", flags->cache_dir,
                  "Where the files of --shape are kept; default weir-bench in $XDG_CACHE_HOME or ~/.cache")
      ->check(some_path())
      ->type_name("FOLDER");
  app->add_option("--depths", flags->depths, "Tokens in the KV memory before the steps; default 0")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(whole_number(0, 1u << 30))
      ->type_name("N,N,...");
  app->add_option("--n", flags->n_steps, "Decode steps per depth; default 32")
      ->transform(whole_number(1, 100000))
      ->type_name("N");
  app->add_option("--sessions", flags->n_sessions, "Sessions that decode together, each at the depth; default 1")
      ->transform(whole_number(1, 4096))
      ->type_name("N");
  app->add_option("--prefill", flags->prefill, "Tokens of the prefill measurement; 0: none; default 512")
      ->transform(whole_number(0, 1u << 30))
      ->type_name("N");
  app->add_flag(
      "--spill", flags->spill,
      "Also what a policy that recalls pages did: recalls of each stream and step, waits, what the store takes");
  app->add_option("--commit", flags->commit, "Text to put into the JSON result as it is")->type_name("TEXT");
  app->add_option("--plot", flags->plot, "Draw stored --results of --shape as SVG instead of measuring")
      ->check(some_path())
      ->type_name("FILE");
  app->add_option("--results", flags->results, "JSON lines of earlier runs, for --plot")->type_name("FILE");
  app->add_flag("--json", flags->json, "One JSON line instead of a table");
  add_session_flags(*app, flags->session);
  app->callback([flags, &action] { action = [flags] { return run_bench(*flags); }; });
}

}  // namespace weir_cli
