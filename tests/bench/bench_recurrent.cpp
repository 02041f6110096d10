// Speed of the ops of recurrent layers at the shapes of models: time of a token in a layer, and bytes of state,
// weights, inputs and outputs per second. There are as many layers as a model has, so that no state is read from a
// cache. Best of several repetitions. On a device the ops are enqueued one after another, as in a prompt: where a
// kernel takes less time than to enqueue it (2 to 4 us), this measures the latter.
//
//   bench_recurrent [-d cpu|cuda|vulkan] [-o OP] [-n TOKENS]... [-j THREADS] [-r REPETITIONS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/thread_pool.h"
#include "cpu/backend.h"
#include "device/module.h"
#include "ops/delta_net.h"
#include "ops/head_gate.h"
#include "ops/mamba2.h"
#include "ops/short_conv.h"
#include "ops/table.h"
#include "runtime/device_module.h"

namespace {

using namespace weir;

void check(Status status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", last_error_text());
  std::exit(1);
}

struct Shape {
  const char *op, *model;
  uint32_t n_layers, n_key_heads, n_heads, key_dim, value_dim, n_taps;
};
// For short_conv n_heads is 1 and value_dim the channels.
constexpr Shape kShapes[] = {
    {"delta_net", "27b-qwen35", 48, 16, 48, 128, 128, 4},  {"delta_net", "35b-a3b-qwen35", 30, 16, 32, 128, 128, 4},
    {"mamba2", "nemotron-30b-a3b", 23, 8, 64, 128, 64, 4}, {"short_conv", "lfm2-1.2b", 10, 0, 1, 0, 2048, 3},
    {"head_gate", "27b-qwen35", 16, 0, 24, 0, 256, 0},
};

// Memory of the CPU, or of a device.
class Machine {
 public:
  explicit Machine(const std::string& device, uint32_t n_threads) : pool_(std::pmr::get_default_resource()) {
    check(pool_.start(n_threads));
    cx.pool = &pool_;
    if (device == "cpu") {
      backend_ = &cpu_backend();
    } else {
      check(load_device_module(folder().c_str(), ("weir_" + device).c_str(), std::getenv("WEIR_TEST_VULKAN_DEVICE"),
                               module_));
      backend_ = module_->backend;
      cx.stream = module_->stream();
    }
  }
  ~Machine() {
    for (void* memory : on_device_) (void)module_->release(memory);
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  // n numbers around 0, or of the sign of `scale` alone where it is negative.
  float* numbers(size_t n, float scale) {
    std::vector<float> values(n);
    uint32_t seed = 1;
    for (float& v : values) {
      seed = seed * 1664525u + 1013904223u;
      v = static_cast<float>(static_cast<int32_t>(seed)) * 4.65e-10f;
      v = scale < 0.0f ? scale * std::abs(v) : scale * v;
    }
    return static_cast<float*>(copy(values.data(), n * sizeof(float)));
  }
  void* copy(const void* from, size_t bytes) {
    void* out = nullptr;
    if (module_ == nullptr) {
      host_.emplace_back(bytes / sizeof(double) + 1);
      out = host_.back().data();
      std::memcpy(out, from, bytes);
    } else {
      check(module_->allocate(std::max<size_t>(bytes, 1), &out));
      on_device_.push_back(out);
      check(module_->copy_in(out, from, bytes));
    }
    return out;
  }
  void wait() const {
    if (module_ != nullptr) check(module_->wait());
  }
  bool is_host() const { return module_ == nullptr; }
  const Backend& backend() const { return *backend_; }

  OpContext cx;

 private:
  // lib/ beside one of the folders above the program.
  static std::string folder() {
    namespace fs = std::filesystem;
    fs::path at = fs::read_symlink("/proc/self/exe").parent_path();
    while (at.has_relative_path() && !fs::exists(at / "lib")) at = at.parent_path();
    return (at / "lib").string();
  }
  ThreadPool pool_;
  const DeviceModule* module_ = nullptr;
  const Backend* backend_ = nullptr;
  std::vector<std::vector<double>> host_;
  std::vector<void*> on_device_;
};

struct Layer {
  ConvArgs conv = {};
  LayerState state;
};

// The arrays of an op, whose input and output the layers share.
class Bench {
 public:
  Bench(Machine& machine, const Shape& s, uint32_t n_tok) : m_(machine), s_(s), n_tok_(n_tok) {
    inner_ = s.n_heads * s.value_dim;
    const bool is_mamba = std::strcmp(s.op, "mamba2") == 0;
    n_channels_ = inner_ + 2 * s.n_key_heads * s.key_dim;
    width_ = is_mamba                               ? inner_ + n_channels_ + s.n_heads
             : std::strcmp(s.op, "delta_net") == 0  ? n_channels_
             : std::strcmp(s.op, "short_conv") == 0 ? 3 * inner_
                                                    : 2 * inner_;
    n_x_ = size_t{n_tok} * width_;
    x_ = m_.numbers(n_x_, 1.0f);
    if (m_.is_host()) saved_.assign(x_, x_ + n_x_);
    y_ = m_.numbers(size_t{n_tok} * inner_, 1.0f);
    z_ = m_.numbers(size_t{n_tok} * inner_, 1.0f);
    gates_ = m_.numbers(size_t{n_tok} * s.n_heads, 1.0f);
    a_ = m_.numbers(s.n_heads, -1.0f);
    dt_bias_ = m_.numbers(s.n_heads, 1.0f);
    norm_ = m_.numbers(inner_, 1.0f);
    const uint32_t zero = 0;
    const auto* current = static_cast<const uint32_t*>(m_.copy(&zero, sizeof(zero)));
    const size_t n_rows = s.n_taps > 1 ? size_t{s.n_taps - 1} * n_channels_ : 0;
    const size_t n_sums = size_t{s.key_dim} * inner_;
    for (uint32_t i = 0; i < s.n_layers && s.n_taps != 0; ++i) {
      Layer l;
      l.conv = {m_.numbers(size_t{n_channels_} * s.n_taps, 0.5f), nullptr, n_channels_, s.n_taps};
      for (int copy = 0; copy < 2; ++copy) {
        l.state.rows[copy] = m_.numbers(n_rows, 1.0f);
        l.state.sums[copy] = n_sums != 0 ? m_.numbers(n_sums, 1.0f) : nullptr;
      }
      l.state.current = current;
      layers_.push_back(l);
    }
    bytes_ = sizeof(float) * (2.0 * static_cast<double>(n_rows + n_sums) + double{1} * n_channels_ * s.n_taps +
                              double{1} * n_tok * (width_ + inner_));
    if (std::strcmp(s.op, "delta_net") == 0) bytes_ += sizeof(float) * double{1} * n_tok * inner_;
    if (s.n_taps == 0) bytes_ = sizeof(float) * double{1} * n_tok * 3 * inner_;
  }

  // Seconds of all layers.
  double run() {
    if (m_.is_host()) std::copy(saved_.begin(), saved_.end(), x_);  // the ops overwrite it
    const uint64_t start = now_ns();
    for (uint32_t i = 0; i < s_.n_layers; ++i) check(run_layer(i));
    m_.wait();
    return static_cast<double>(now_ns() - start) * 1e-9;
  }
  double bytes() const { return bytes_; }  // of a layer

 private:
  Status run_layer(uint32_t i) {
    const OpTable& ops = m_.backend().ops;
    if (s_.n_taps == 0) return ops.head_gate(m_.cx, {y_, x_, n_tok_, s_.n_heads, s_.value_dim, true});
    const Layer& l = layers_[i];
    if (s_.key_dim == 0) return ops.short_conv(m_.cx, {y_, x_, n_tok_, l.conv, l.state});
    if (std::strcmp(s_.op, "mamba2") == 0) {
      return ops.mamba2(m_.cx, {y_, x_, n_tok_, s_.n_key_heads, s_.n_heads, s_.key_dim, s_.value_dim, l.conv, a_,
                                dt_bias_, dt_bias_, norm_, 1e-5f, l.state});
    }
    DeltaNetArgs a = {};
    a.y = y_;
    a.m = x_;
    a.z = z_;
    a.beta = a.alpha = gates_;
    a.gate_stride = a.gate_group = s_.n_heads;
    a.n_tok = n_tok_;
    a.n_key_heads = s_.n_key_heads;
    a.n_heads = s_.n_heads;
    a.key_dim = s_.key_dim;
    a.value_dim = s_.value_dim;
    a.conv = l.conv;
    a.a = a_;
    a.dt_bias = dt_bias_;
    a.norm = norm_;
    a.eps = 1e-6f;
    a.state = l.state;
    return ops.delta_net(m_.cx, a);
  }

  Machine& m_;
  Shape s_;
  uint32_t n_tok_, inner_, n_channels_, width_;
  size_t n_x_;
  float *x_, *y_, *z_, *gates_, *a_, *dt_bias_, *norm_;
  std::vector<float> saved_;
  std::vector<Layer> layers_;
  double bytes_;
};

}  // namespace

int main(int argc, char** argv) {
  std::string device = "cpu", op;
  std::vector<uint32_t> tokens;
  uint32_t n_threads = 2;
  int reps = 5;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i], value = argv[i + 1];
    if (option == "-d") device = value;
    if (option == "-o") op = value;
    if (option == "-n") tokens.push_back(static_cast<uint32_t>(std::stoul(value)));
    if (option == "-j") n_threads = static_cast<uint32_t>(std::stoul(value));
    if (option == "-r") reps = std::stoi(value);
  }
  if (tokens.empty()) tokens = {1, 64, 512, 2048};
  for (const Shape& s : kShapes) {
    if (!op.empty() && op != s.op) continue;
    for (const uint32_t n_tok : tokens) {
      Machine machine(device, n_threads);
      if (&s == &kShapes[0] && n_tok == tokens[0]) std::printf("%s\n", machine.backend().target());
      Bench bench(machine, s, n_tok);
      double best = bench.run();
      for (int i = 0; i < reps; ++i) best = std::min(best, bench.run());
      const double layer = best / s.n_layers;
      std::printf("%-10s %-17s %4u tokens: %9.2f us a layer %9.1f ns a token %7.1f GB/s\n", s.op, s.model, n_tok,
                  layer * 1e6, layer * 1e9 / n_tok, bench.bytes() / layer * 1e-9);
      std::fflush(stdout);
    }
  }
  return 0;
}
