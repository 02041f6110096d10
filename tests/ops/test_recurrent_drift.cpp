// ops: what recurrent layers hold after up to 10,000 tokens, against float64 (tests/golden/models/*.drift, whose README
// has the format). Mirrors lib/ops/{delta_net,mamba2}_ref.cpp, lib/cpu/{delta_net,mamba2}.cpp.
#include <fstream>

#include "tests/ops/recurrent_case.h"

namespace weir::test {
namespace {

// Plain float32 is at most 8e-7 of a head's largest state from float64 in the delta net, and 1.6e-5 in Mamba-2, whose
// slowest head adds up 3,300 tokens; vector code adds in another order. It may not grow with the conversation beyond
// that.
constexpr double kStateBound = 5e-5;
constexpr double kOutputBound = 2e-4;  // of the largest output; norms divide by outputs that are near 0

struct Drift {
  enum Kind : uint32_t { kDeltaNet, kMamba2 };
  uint32_t kind = 0, n_tok = 0, n_taps = 0, groups = 0, heads = 0, key_dim = 0, inner = 0, seed = 0, n_marks = 0;
  float eps = 0.0f;
  std::vector<float> conv = {}, conv_bias = {}, a = {}, dt_bias = {}, skip = {}, norm = {};
  std::vector<uint32_t> marks = {};
  struct At {
    std::vector<float> rows;
    std::vector<double> state, output;
  };
  std::vector<At> at = {};  // [marks]

  uint32_t value_dim() const { return inner / heads; }
  uint32_t channels() const { return inner + 2 * groups * key_dim; }
};

template <class T>
void read(std::ifstream& in, std::vector<T>& out, size_t n) {
  out.resize(n);
  in.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(n * sizeof(T)));
  assert_true(in.good());
}

Drift read_drift(const char* name) {
  std::ifstream in(std::string(WEIR_SOURCE_DIR "/tests/golden/models/") + name + ".drift", std::ios::binary);
  std::vector<char> magic;
  std::vector<uint32_t> head;
  std::vector<float> eps;
  read(in, magic, 4);
  read(in, head, 10);
  read(in, eps, 1);
  assert_memory_equal(magic.data(), "WGDR", 4);
  assert_int_equal(head[0], 1);
  Drift d = {.kind = head[1],
             .n_tok = head[2],
             .n_taps = head[3],
             .groups = head[4],
             .heads = head[5],
             .key_dim = head[6],
             .inner = head[7],
             .seed = head[8],
             .n_marks = head[9],
             .eps = eps[0]};
  const bool is_mamba = d.kind == Drift::kMamba2;
  read(in, d.conv, size_t{d.channels()} * d.n_taps);
  if (is_mamba) read(in, d.conv_bias, d.channels());
  read(in, d.a, d.heads);
  read(in, d.dt_bias, d.heads);
  if (is_mamba) read(in, d.skip, d.heads);
  read(in, d.norm, is_mamba ? d.inner : d.value_dim());
  read(in, d.marks, d.n_marks);
  d.at.resize(d.n_marks);
  for (Drift::At& at : d.at) {
    read(in, at.rows, size_t{d.n_taps - 1} * d.channels());
    read(in, at.state, size_t{d.inner} * d.key_dim);
    read(in, at.output, d.inner);
  }
  return d;
}

// A layer that runs, and where its tokens' numbers come from.
class Layer {
 public:
  Layer(const Backend& backend, const Drift& drift)
      : d_(drift), backend_(backend), random_(drift.seed), machine_(backend, shapes(drift)) {
    state_.current = &current_;
    for (uint32_t i = 0; i < 2; ++i) {
      rows_[i].assign(size_t{d_.n_taps - 1} * d_.channels(), 0.0f);
      sums_[i].assign(size_t{d_.inner} * d_.key_dim, 0.0f);
      state_.rows[i] = rows_[i].data();
      state_.sums[i] = sums_[i].data();
    }
  }

  // The next n tokens; afterwards output() is the last one's.
  void run(uint32_t n) {
    d_.kind == Drift::kDeltaNet ? run_delta_net(n) : run_mamba2(n);
    current_ ^= 1;
  }
  const float* output() const { return y_.data() + y_.size() - d_.inner; }
  const std::vector<float>& rows() const { return rows_[current_]; }
  // As the file has it: the sums of Mamba-2 lie the other way round here.
  float state(size_t index) const {
    const size_t head = index / (size_t{d_.key_dim} * d_.value_dim()),
                 in = index % (size_t{d_.key_dim} * d_.value_dim());
    if (d_.kind == Drift::kDeltaNet) return sums_[current_][index];
    const size_t value = in / d_.key_dim, key = in % d_.key_dim;
    return sums_[current_][(head * d_.key_dim + key) * d_.value_dim() + value];
  }

 private:
  static OpShapes shapes(const Drift& d) {
    OpShapes s;
    s.n_threads = 2;
    s.conv_channels = d.channels();
    s.recurrent_width = d.inner;
    return s;
  }
  float next() {
    random_ = random_ * 1664525u + 1013904223u;
    return 2.0f * (2.0f * static_cast<float>(random_ >> 8) * 0x1p-24f - 1.0f);
  }
  void take(std::vector<float>& rows, size_t at, size_t n) {
    for (size_t i = 0; i < n; ++i) rows[at + i] = next();
  }

  void run_delta_net(uint32_t n) {
    std::vector<float> m(size_t{n} * d_.channels()), z(size_t{n} * d_.inner), beta(size_t{n} * d_.heads),
        alpha(beta.size());
    for (size_t t = 0; t < n; ++t) {
      take(m, t * d_.channels(), d_.channels());
      take(z, t * d_.inner, d_.inner);
      take(beta, t * d_.heads, d_.heads);
      take(alpha, t * d_.heads, d_.heads);
    }
    y_.assign(z.size(), NAN);
    machine_.check(backend_.ops.delta_net(machine_.cx(), {.y = y_.data(),
                                                          .m = m.data(),
                                                          .z = z.data(),
                                                          .beta = beta.data(),
                                                          .alpha = alpha.data(),
                                                          .gate_stride = d_.heads,
                                                          .gate_group = d_.heads,
                                                          .group_stride = 0,
                                                          .n_tok = n,
                                                          .n_key_heads = d_.groups,
                                                          .n_heads = d_.heads,
                                                          .key_dim = d_.key_dim,
                                                          .value_dim = d_.value_dim(),
                                                          .grouped = false,
                                                          .conv = {d_.conv.data(), nullptr, d_.channels(), d_.n_taps},
                                                          .a = d_.a.data(),
                                                          .dt_bias = d_.dt_bias.data(),
                                                          .norm = d_.norm.data(),
                                                          .eps = d_.eps,
                                                          .state = state_}));
  }

  void run_mamba2(uint32_t n) {
    const size_t width = d_.inner + d_.channels() + d_.heads;
    std::vector<float> x(n * width);
    take(x, 0, x.size());
    y_.assign(size_t{n} * d_.inner, NAN);
    machine_.check(
        backend_.ops.mamba2(machine_.cx(), {.y = y_.data(),
                                            .x = x.data(),
                                            .n_tok = n,
                                            .n_groups = d_.groups,
                                            .n_heads = d_.heads,
                                            .key_dim = d_.key_dim,
                                            .value_dim = d_.value_dim(),
                                            .conv = {d_.conv.data(), d_.conv_bias.data(), d_.channels(), d_.n_taps},
                                            .a = d_.a.data(),
                                            .dt_bias = d_.dt_bias.data(),
                                            .skip = d_.skip.data(),
                                            .norm = d_.norm.data(),
                                            .eps = d_.eps,
                                            .state = state_}));
  }

  const Drift& d_;
  const Backend& backend_;
  uint32_t random_, current_ = 0;
  Machine machine_;
  LayerState state_;
  std::vector<float> rows_[2], sums_[2], y_;
};

void compare(const Drift& d, const Drift::At& want, const Layer& layer, uint32_t n_tok) {
  assert_memory_equal(layer.rows().data(), want.rows.data(), want.rows.size() * sizeof(float));
  const size_t head = size_t{d.key_dim} * d.value_dim();
  for (size_t first = 0; first < want.state.size(); first += head) {
    double top = 0.0, apart = 0.0;
    for (size_t i = first; i < first + head; ++i) {
      top = std::max(top, std::fabs(want.state[i]));
      apart = std::max(apart, std::fabs(double{layer.state(i)} - want.state[i]));
    }
    if (!(apart <= kStateBound * top))
      fail_msg("after %u tokens head %zu is %.2g of its largest number apart", n_tok, first / head, apart / top);
  }
  double top = 0.0, apart = 0.0;
  for (size_t i = 0; i < want.output.size(); ++i) {
    top = std::max(top, std::fabs(want.output[i]));
    apart = std::max(apart, std::fabs(double{layer.output()[i]} - want.output[i]));
  }
  if (!(apart <= kOutputBound * top)) fail_msg("after %u tokens the output is %.2g apart", n_tok, apart / top);
}

// In passes of one token and of many.
void drift(const Backend& backend, const char* name) {
  const Drift d = read_drift(name);
  for (uint32_t at_once : {1u, 64u, 500u}) {
    Layer layer(backend, d);
    for (uint32_t mark = 0, done = 0; mark < d.n_marks; ++mark) {
      while (done < d.marks[mark]) {
        const uint32_t n = std::min(at_once, d.marks[mark] - done);
        layer.run(n);
        done += n;
      }
      compare(d, d.at[mark], layer, done);
    }
  }
}

void delta_net(const Backend& backend) { drift(backend, "delta_net"); }
void mamba2(const Backend& backend) { drift(backend, "mamba2"); }

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/recurrent_drift", {},
                   {{"recurrent_drift__delta_net_over_10000_tokens", delta_net},
                    {"recurrent_drift__mamba2_over_10000_tokens", mamba2}});
}
