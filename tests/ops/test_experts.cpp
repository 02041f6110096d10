// ops: experts. Mirrors lib/ops/experts_ref.cpp, lib/cpu/experts.cpp, cuda/matmul/experts.cu, experts_prompt.cu and
// experts_gemm.cu.
#include <algorithm>
#include <cstring>
#include <limits>

#include "tests/ops/matmul_case.h"
#include "tests/variants.h"

namespace weir::test {
namespace {

// A mixture of experts with random weights.
struct Spec {
  const char* name;
  WeightType in, out;  // of gate and up, and of down
  uint32_t d_model, n_experts, n_used, d_ff;
  uint32_t shared_ff = 0;
  RouteRule rule = {};
  Gate activation = Gate::kSilu;
  bool biases = false;
  bool choice_bias = false;
  bool shared_gate = true;  // the shared expert has one
  bool has_gate = true;     // the networks have one

  bool is_float() const { return weight_type_info(in).block_weights == 1; }
  bool is_tested() const { return in != out || is_type_tested(in, true); }
  // Whether so many tokens are tested. The kernels do not depend on it, but the processor computes for long.
  bool takes(uint32_t n_tok) const { return is_variant_of(in, n_tok) && is_variant_of(out, n_tok); }
};

constexpr double kFloatNmse = 2e-12, kIntegerNmse = 2e-8;
constexpr char kFloatReason[] = "sums in f32, in another order";
constexpr char kIntegerReason[] = "the inputs of three matrices are rounded to 16 bits";
// The bound of glu_matmul, and the second matrix.
constexpr double kCudaNmse = 8 * kCudaGemmNmse;
constexpr char kCudaReason[] = "prompts are multiplied in f16, in three factors";

constexpr WeightType kF32 = WeightType::kF32, kQ4_0 = WeightType::kQ4_0, kQ4_K = WeightType::kQ4_K,
                     kQ6_K = WeightType::kQ6_K, kQ8_0 = WeightType::kQ8_0;
constexpr RouteRule kChosen = {}, kAll = {.normalise = false};
constexpr RouteRule sigmoids(bool normalise, float scale, uint32_t n_groups = 1, uint32_t n_groups_used = 1) {
  return {RouteRule::Score::kSigmoid, normalise, scale, n_groups, n_groups_used};
}

constexpr Spec kSpecs[] = {
// Every type of the list, in a width of its blocks that the GPU has.
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) \
  {text,                                                            \
   WeightType::k##Name,                                             \
   WeightType::k##Name,                                             \
   block_weights == 256  ? 512                                      \
   : block_weights == 64 ? 192                                      \
                         : 96,                                      \
   7,                                                               \
   3,                                                               \
   block_weights == 256 ? 256 : 64},
#include "quant/quants.inc"
#undef WEIR_QUANT
    {"biases", kQ8_0, kQ8_0, 128, 8, 4, 96, 0, kChosen, Gate::kClamped, true},
    {"biases_f32", kF32, kF32, 64, 8, 4, 96, 0, kChosen, Gate::kClamped, true},
    {"shared", kQ8_0, kQ8_0, 128, 6, 2, 64, 160, kAll},
    {"shared_f32", kF32, kF32, 128, 6, 2, 64, 160, kAll, Gate::kGelu},
    {"two_types", kQ4_K, kQ6_K, 256, 5, 2, 256, 0, kAll},
    {"all_experts", kQ8_0, kQ8_0, 64, 4, 4, 32, 0, kAll},
    {"one_expert", kQ8_0, kQ8_0, 64, 1, 1, 32, 0, kChosen, Gate::kSilu, true},
    {"many_experts", kQ8_0, kQ4_0, 64, 160, 16, 32},
    {"sigmoids", kQ8_0, kQ8_0, 64, 9, 3, 32, 0, sigmoids(false, 1.0f)},
    {"choice_bias", kQ8_0, kQ8_0, 64, 128, 6, 32, 64, sigmoids(true, 2.5f), Gate::kSilu, false, true, false},
    {"choice_bias_of_many", kF32, kF32, 64, 160, 6, 32, 0, sigmoids(true, 2.5f), Gate::kSilu, false, true},
    {"choice_bias_of_softmax", kF32, kF32, 64, 12, 3, 32, 0, kChosen, Gate::kSilu, true, true},
    {"groups", kF32, kF32, 64, 48, 5, 32, 0, sigmoids(true, 1.5f, 8, 3), Gate::kSilu, false, true},
    {"groups_of_softmax", kQ8_0, kQ8_0, 64, 24, 4, 32, 0, {RouteRule::Score::kSoftmax, false, 16.0f, 4, 2}},
    {"groups_of_one", kF32, kF32, 64, 40, 4, 32, 0, sigmoids(true, 1.0f, 40, 5)},
    {"no_gate", kQ8_0, kQ8_0, 64, 6, 2, 96, 64, sigmoids(true, 2.5f), Gate::kRelu, true, true, false, false},
    {"no_gate_f32", kF32, kF32, 64, 6, 2, 96, 64, sigmoids(true, 2.5f), Gate::kRelu, false, true, false, false},
    // Rows for several rounds of the widest GPU (on_this_device).
    {"tall", kQ8_0, kQ8_0, 2336, 4, 4, 1248, 0, kChosen, Gate::kSilu, true},
};

// A tall matrix has fewer rows where the device is the processor: it has several rounds of 128 subgroups, too, and a
// fifteenth of the products, which take it a minute.
Spec on_this_device(Spec s) {
  if (!every_variant() && s.d_model > 2000) s.d_model = 576, s.d_ff = 320;
  return s;
}

class Network {
 public:
  explicit Network(const Spec& s)
      : spec(s),
        gate(s.in, s.n_experts * s.d_ff, s.d_model, 1),
        up(s.in, s.n_experts * s.d_ff, s.d_model, 2),
        down(s.out, s.n_experts * s.d_model, s.d_ff, 3),
        shared_gate(s.in, std::max(s.shared_ff, 1u), s.d_model, 4),
        shared_up(s.in, std::max(s.shared_ff, 1u), s.d_model, 5),
        shared_down(s.out, s.d_model, s.shared_ff != 0 ? s.shared_ff : s.d_ff, 6),
        router(Random(7).normals(size_t{s.n_experts} * s.d_model, 2.0f / std::sqrt(static_cast<float>(s.d_model)))),
        router_bias(Random(8).normals(s.n_experts)),
        gate_bias(Random(9).normals(size_t{s.n_experts} * s.d_ff, 3.0f)),
        up_bias(Random(10).normals(size_t{s.n_experts} * s.d_ff, 3.0f)),
        down_bias(Random(11).normals(size_t{s.n_experts} * s.d_model)),
        shared_router(Random(12).normals(s.d_model, 1.0f / std::sqrt(static_cast<float>(s.d_model)))),
        choice_bias(Random(13).normals(s.n_experts, s.rule.score == RouteRule::Score::kSoftmax ? 0.1f : 0.3f)) {}

  ExpertsArgs args(const std::vector<float>& x, std::vector<float>& y) const {
    const auto n_tok = static_cast<uint32_t>(x.size() / spec.d_model);
    const auto bias = [&](const std::vector<float>& b) { return spec.biases ? b.data() : nullptr; };
    const Router route = {spec.n_experts, spec.n_used,       spec.rule,
                          router.data(),  bias(router_bias), spec.choice_bias ? choice_bias.data() : nullptr};
    ExpertsArgs a = {y.data(),
                     x.data(),
                     n_tok,
                     route,
                     spec.activation,
                     {gate.w(), bias(gate_bias)},
                     {up.w(), bias(up_bias)},
                     {down.w(), bias(down_bias)}};
    if (!spec.has_gate) a.up = a.gate;
    if (spec.shared_ff == 0) return a;
    if (spec.shared_gate) a.shared_router = shared_router.data();
    a.shared_gate = shared_gate.w();
    a.shared_up = spec.has_gate ? shared_up.w() : a.shared_gate;
    a.shared_down = shared_down.w();
    return a;
  }
  OpShapes shapes(uint32_t n_tok, uint32_t n_threads) const {
    OpShapes s = matmul_shapes(std::max({spec.d_model, spec.d_ff, spec.shared_ff}), n_tok, n_threads);
    s.d_model = spec.d_model;
    s.n_experts = spec.n_experts;
    s.n_experts_used = spec.n_used;
    s.expert_ff = spec.d_ff;
    s.shared_ff = spec.shared_ff;
    return s;
  }

  Spec spec;
  Matrix gate, up, down, shared_gate, shared_up, shared_down;
  std::vector<float> router, router_bias, gate_bias, up_bias, down_bias, shared_router, choice_bias;
};

bool is_near(std::vector<double> values, uint32_t n_used, double least) {
  std::sort(values.rbegin(), values.rend());
  return n_used < values.size() && values[n_used - 1] - values[n_used] < least;
}

// Whether rounding could decide which experts are chosen, or which groups.
bool is_close(const Network& n, const std::vector<double>& logits) {
  const Spec& s = n.spec;
  if (!s.choice_bias && s.rule.n_groups == 1) return is_near(logits, s.n_used, 1e-3);
  std::vector<double> scores;
  double sum = 0.0;
  const bool softmax = s.rule.score == RouteRule::Score::kSoftmax;
  for (double logit : logits) scores.push_back(softmax ? std::exp(logit) : 1.0 / (1.0 + std::exp(-logit)));
  for (double score : scores) sum += score;
  for (size_t e = 0; e < scores.size(); ++e)
    scores[e] = scores[e] / (softmax ? sum : 1.0) + (s.choice_bias ? double{n.choice_bias[e]} : 0.0);
  const size_t of_group = scores.size() / s.rule.n_groups;
  std::vector<double> groups, left;
  for (size_t g = 0; g < s.rule.n_groups; ++g) {
    std::vector<double> of(scores.begin() + static_cast<long>(g * of_group),
                           scores.begin() + static_cast<long>((g + 1) * of_group));
    std::sort(of.rbegin(), of.rend());
    groups.push_back(of_group == 1 ? of[0] : of[0] + of[1]);
  }
  if (is_near(groups, s.rule.n_groups_used, 1e-4)) return true;
  std::vector<double> sorted = groups;
  std::sort(sorted.rbegin(), sorted.rend());
  for (size_t e = 0; e < scores.size(); ++e) {
    if (groups[e / of_group] >= sorted[s.rule.n_groups_used - 1]) left.push_back(scores[e]);
  }
  return is_near(left, s.n_used, 1e-4);
}

// The rows of x for which no rounding decides which experts are chosen.
std::vector<float> decided(const Network& n, std::vector<float> x) {
  const size_t d = n.spec.d_model;
  size_t kept = 0;
  for (size_t t = 0; t < x.size() / d; ++t) {
    std::vector<double> logits;
    for (size_t e = 0; e < n.spec.n_experts; ++e) {
      double sum = n.spec.biases ? double{n.router_bias[e]} : 0.0;
      for (size_t i = 0; i < d; ++i) sum += double{n.router[e * d + i]} * double{x[t * d + i]};
      logits.push_back(sum);
    }
    if (!is_close(n, logits))
      std::copy_n(x.begin() + static_cast<long>(t * d), d, x.begin() + static_cast<long>(kept++ * d));
  }
  x.resize(kept * d);
  return x;
}

std::vector<float> run(const Backend& backend, const Network& n, const std::vector<float>& x, uint32_t n_threads = 2,
                       float before = 0.5f) {
  std::vector<float> y(x.size(), before);
  const auto n_tok = static_cast<uint32_t>(x.size() / n.spec.d_model);
  Machine machine(backend, n.shapes(n_tok, n_threads));
  machine.check(backend.ops.experts(machine.cx(), n.args(x, y)));
  return y;
}

std::vector<Output> run_spec(const Backend& backend, const Spec& whole) {
  const Spec s = on_this_device(whole);
  const Network n(s);
  std::vector<Output> outputs;
  // With 320 an expert of the first specs has more than 128 on average.
  for (uint32_t n_tok : {1u, 2u, 5u, 8u, 9u, 33u, 100u, 150u, 320u}) {
    if (!s.takes(n_tok) || (n_tok > 150 && (!every_variant() || s.d_model > 1000))) continue;
    const std::vector<float> x = decided(n, Random(n_tok).normals(size_t{n_tok} * s.d_model));
    if (!x.empty()) outputs.push_back({"y", run(backend, n, x)});
  }
  return outputs;
}

void does_not_depend_on_threads(const Backend& backend) {
  for (const Spec& whole : kSpecs) {
    const Spec s = on_this_device(whole);
    if (!s.is_tested()) continue;
    const Network n(s);
    for (uint32_t n_tok : {1u, 7u, 12u, 40u}) {
      if (!s.takes(n_tok)) continue;
      const std::vector<float> x = Random(3).normals(size_t{n_tok} * s.d_model), one = run(backend, n, x, 1);
      for (uint32_t n_threads : {2u, 3u}) {
        const std::vector<float> more = run(backend, n, x, n_threads);
        assert_memory_equal(more.data(), one.data(), one.size() * sizeof(float));
      }
    }
  }
}

// Up to eight tokens at once give the bits of single tokens: what a session decodes must not depend on the sessions
// that decode beside it.
void few_tokens_match_single_ones(const Backend& backend) {
  for (const Spec& whole : kSpecs) {
    const Spec s = on_this_device(whole);
    if (!s.is_tested()) continue;
    const Network n(s);
    const uint32_t most = 8;
    const std::vector<float> x = Random(4).normals(size_t{most} * s.d_model);
    std::vector<float> singles;
    for (size_t t = 0; t < most; ++t) {
      const auto at = x.begin() + static_cast<long>(t * s.d_model);
      const std::vector<float> y = run(backend, n, std::vector<float>(at, at + s.d_model));
      singles.insert(singles.end(), y.begin(), y.end());
    }
    for (uint32_t n_tok = 2; n_tok <= most; ++n_tok) {
      if (!s.takes(n_tok)) continue;
      const std::vector<float> y = run(backend, n, std::vector<float>(x.begin(), x.begin() + n_tok * s.d_model));
      if (std::memcmp(y.data(), singles.data(), y.size() * sizeof(float)) != 0)
        fail_msg("%s, %u tokens: not the same bits", s.name, n_tok);
    }
  }
}

// A prompt whose tokens all choose the same experts, of a few and of many: some of them have far more rows than the
// others, none. Equal tokens have equal results.
void one_choice_of_all(const Backend& backend) {
  for (const uint32_t n_experts : {8u, 40u}) {
    const Network n({"one_choice", kQ8_0, kQ4_0, 160, n_experts, 2, 96});
    const uint32_t n_tok = 230;
    std::vector<float> x = Random(5).normals(n.spec.d_model);
    const std::vector<float> want = run(reference_backend(), n, x);
    for (uint32_t t = 1; t < n_tok; ++t) x.insert(x.end(), x.begin(), x.begin() + n.spec.d_model);
    const std::vector<float> y = run(backend, n, x);
    for (uint32_t t = 1; t < n_tok; ++t)
      assert_memory_equal(y.data() + size_t{t} * n.spec.d_model, y.data(), n.spec.d_model * sizeof(float));
    assert_true(close_enough("one choice", y.data(), want.data(), want.size(),
                             backend.device == WEIR_DEVICE_CPU ? kIntegerNmse : kCudaNmse));
  }
}

// Experts that add i + 1 to every element, whatever the input, chosen by hand-made logits: the router's rows are the
// unit vectors, so that a token's logits are its first elements.
struct Counting {
  static constexpr uint32_t kWidth = 32;
  uint32_t n_experts, n_used;
  RouteRule rule;
  std::vector<float> router, zeros, ones, down_bias, choice_bias;
  Counting(uint32_t n, uint32_t used, RouteRule r) : n_experts(n), n_used(used), rule(r) {
    router.resize(size_t{n} * kWidth);
    for (uint32_t e = 0; e < n; ++e) router[e * kWidth + e] = 1.0f;
    zeros.resize(size_t{n} * kWidth * kWidth);
    down_bias.resize(size_t{n} * kWidth);
    for (uint32_t e = 0; e < n; ++e) std::fill_n(down_bias.begin() + e * kWidth, kWidth, static_cast<float>(e + 1));
  }
  // What the op adds to 0, for tokens of the given logits.
  std::vector<float> run(const Backend& backend, const std::vector<std::vector<float>>& logits) const {
    std::vector<float> x(logits.size() * kWidth), y(x.size());
    for (size_t t = 0; t < logits.size(); ++t) std::copy(logits[t].begin(), logits[t].end(), x.begin() + t * kWidth);
    const Weight w = {reinterpret_cast<const uint8_t*>(zeros.data()), WeightType::kF32, n_experts * kWidth, kWidth,
                      kWidth * sizeof(float)};
    OpShapes shapes = matmul_shapes(kWidth, static_cast<uint32_t>(logits.size()), 2);
    shapes.d_model = shapes.expert_ff = kWidth;
    shapes.n_experts = n_experts;
    shapes.n_experts_used = n_used;
    Machine machine(backend, shapes);
    const Router route = {n_experts,     n_used,  rule,
                          router.data(), nullptr, choice_bias.empty() ? nullptr : choice_bias.data()};
    const ExpertsArgs args = {y.data(),    x.data(),     shapes.max_tok, route,
                              Gate::kSilu, {w, nullptr}, {w, nullptr},   {w, down_bias.data()}};
    machine.check(backend.ops.experts(machine.cx(), args));
    std::vector<float> first;
    for (size_t t = 0; t < logits.size(); ++t) first.push_back(y[t * kWidth]);
    return first;
  }
};

std::vector<std::vector<float>> repeated(const std::vector<float>& logits, size_t n) {
  return std::vector<std::vector<float>>(n, logits);
}

// For one token, and for as many as go through the grouped path.
void expect_sum(const Backend& backend, RouteRule rule, uint32_t n_used, const std::vector<float>& logits, float want,
                const std::vector<float>& choice_bias = {}) {
  Counting experts(static_cast<uint32_t>(logits.size()), n_used, rule);
  experts.choice_bias = choice_bias;
  for (size_t n : {1u, 12u}) {
    for (float y : experts.run(backend, repeated(logits, n))) assert_float_equal(y, want, 1e-5f);
  }
}

void weights_follow_from_the_logits(const Backend& backend) {
  const float third = std::log(3.0f);
  // e^0 and e^ln 3 are 1 and 3: experts 1 and 3 (0-based) by 1/4 and 3/4.
  expect_sum(backend, kChosen, 2, {-9.0f, 0.0f, -8.0f, third}, 2 * 0.25f + 4 * 0.75f);
  expect_sum(backend, kAll, 1, {0, 0, 0, third}, 4 * 0.5f);  // 1, 1, 1, 3 of 6
  expect_sum(backend, kChosen, 1, {0, 0, 0, third}, 4.0f);
}

// Sigmoids of 0 and of ln 3 are 1/2 and 3/4.
void sigmoids_are_weights(const Backend& backend) {
  const float third = std::log(3.0f);
  expect_sum(backend, sigmoids(false, 1.0f), 2, {0, third, -1, -1}, 1 * 0.5f + 2 * 0.75f);
  expect_sum(backend, sigmoids(true, 2.5f), 2, {0, third, -1, -1}, 2.5f * (1 * 0.4f + 2 * 0.6f));
  expect_sum(backend, {RouteRule::Score::kSoftmax, true, 3.0f}, 1, {0, third, -1, -1}, 3.0f * 2);
  // Scores that are all too small for a quotient without a least sum: nothing is added, and nothing is NaN.
  expect_sum(backend, sigmoids(true, 1.0f), 2, {-87, -87, -88, -88}, 0.0f);
}

// A bias chooses, and the weights are those without it: the last expert by 0.25 + 1 before the first by 0.75 + 0.
void a_choice_bias_only_chooses(const Backend& backend) {
  const float third = std::log(3.0f);
  expect_sum(backend, sigmoids(false, 1.0f), 1, {third, 0, 0, -third}, 4 * 0.25f, {0, 0, 0, 1});
  expect_sum(backend, sigmoids(true, 1.0f), 2, {third, 0, 0, -third}, 1 * 0.75f + 4 * 0.25f, {0, 0, 0, 1});
  // Shares 1/2, 1/6, 1/6, 1/6: 1/6 + 0.4 is more than 1/2.
  expect_sum(backend, kAll, 1, {third, 0, 0, 0}, 3 * (1 / 6.0f), {0, 0, 0.4f, 0});
  expect_sum(backend, kChosen, 2, {third, 0, 0, 0}, 1 * 0.75f + 3 * 0.25f, {0, 0, 0.4f, 0});
}

// Groups count by their two best experts together. The best expert of all is in the group that does not count.
void groups_count_by_two_experts(const Backend& backend) {
  const RouteRule rule = sigmoids(false, 1.0f, 3, 1);
  const float third = std::log(3.0f), most = std::log(4.0f);  // scores 3/4 and 4/5
  expect_sum(backend, rule, 2, {most, -9, -9, -9, third, 0, -9, -9, -9}, 5 * 0.75f + 6 * 0.5f);
  // The first of equal groups; and a bias counts for groups, too.
  expect_sum(backend, rule, 1, {-9, 0, 0, 0, 0, 0, 0, 0, 0}, 2 * 0.5f);
  expect_sum(backend, rule, 1, {0, 0, 0, 0, 0, 0, third, -9, -9}, 7 * 0.75f, {0, 0, 0, 0, 0, 0, 2, 0, 0});
  const RouteRule two = sigmoids(false, 1.0f, 3, 2);
  expect_sum(backend, two, 3, {third, -9, -9, 0, 0, -9, 0, third, -9}, 4 * 0.5f + 5 * 0.5f + 8 * 0.75f);
}

void the_lower_index_wins_ties(const Backend& backend) {
  expect_sum(backend, kChosen, 2, {1, 2, 2, 2, 0}, (2 + 3) / 2.0f);
  expect_sum(backend, kChosen, 3, {7, 7, 7, 7, 7}, (1 + 2 + 3) / 3.0f);
}

// A NaN or an infinity among a token's inputs must not turn into a plausible number, and must not affect other tokens.
void not_a_number_is_seen(const Backend& backend) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (size_t n : {2u, 12u}) {
      auto logits = repeated({3, 2, 1, 0}, n);
      logits[1][2] = bad;
      for (RouteRule rule : {kChosen, kAll, sigmoids(true, 2.0f)}) {
        const std::vector<float> y = Counting(4, 2, rule).run(backend, logits);
        for (size_t t = 0; t < n; ++t) {
          if (std::isfinite(y[t]) == (t == 1)) fail_msg("token %zu of %zu: %g", t, n, double{y[t]});
        }
      }
    }
  }
}

void too_little_scratch_is_an_error(const Backend& backend) {
  const Network n(kSpecs[0]);
  const std::vector<float> x(9 * n.spec.d_model);
  std::vector<float> y(x.size());
  Machine machine(backend, n.shapes(9, 1));
  OpContext cx = machine.cx();
  cx.scratch_bytes = 64;
  assert_int_equal(backend.ops.experts(cx, n.args(x, y)).code(), WEIR_ERR_INTERNAL);
}

// The choice itself: NaN last, and what it does to the weights.
void choosing(const Backend&) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  uint32_t ids[3];
  float weights[3];
  const float some[4] = {kNaN, 1, kNaN, 1};
  const auto choose = [&](const float* logits, uint32_t n, uint32_t n_used, const RouteRule& rule) {
    choose_experts(logits, {n, n_used, rule}, ids, weights);
  };
  choose(some, 4, 2, kChosen);
  assert_true(ids[0] == 1 && ids[1] == 3 && weights[0] == 0.5f && weights[1] == 0.5f);
  choose(some, 4, 2, kAll);
  assert_true(ids[0] == 1 && ids[1] == 3 && std::isnan(weights[0]) && std::isnan(weights[1]));
  choose(some, 4, 3, kChosen);
  assert_true(ids[0] == 0 && ids[1] == 1 && ids[2] == 3 && std::isnan(weights[1]));
  const float none[3] = {-kInf, -kInf, 0};
  choose(none, 3, 2, kChosen);
  assert_true(ids[0] == 0 && ids[1] == 2 && weights[0] == 0.0f && weights[1] == 1.0f);
  // A group in which all are NaN comes last, and its experts are never chosen in the others' place.
  const float grouped[6] = {kNaN, kNaN, -kInf, 1, 0, 0};
  choose(grouped, 6, 3, sigmoids(false, 1.0f, 3, 2));
  assert_true(ids[0] == 3 && ids[1] == 4 && ids[2] == 5 && weights[1] == 0.5f);
  choose(grouped, 6, 2, sigmoids(false, 1.0f, 3, 1));
  assert_true(ids[0] == 4 && ids[1] == 5);
}

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  for (const Spec& s : kSpecs) {
    if (!s.is_tested()) continue;
    list.push_back({std::string("experts__") + s.name, [&s](const Backend& b) { return run_spec(b, s); },
                    s.is_float() ? kFloatNmse : kIntegerNmse, s.is_float() ? kFloatReason : kIntegerReason, kCudaNmse,
                    kCudaReason, -1.0, true});
  }
  return list;
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/experts", cases(),
                   {{"experts__weights_follow_from_the_logits", weights_follow_from_the_logits},
                    {"experts__sigmoids_are_weights", sigmoids_are_weights},
                    {"experts__a_choice_bias_only_chooses", a_choice_bias_only_chooses},
                    {"experts__groups_count_by_two_experts", groups_count_by_two_experts},
                    {"experts__the_lower_index_wins_ties", the_lower_index_wins_ties},
                    {"experts__not_a_number_is_seen", not_a_number_is_seen},
                    {"experts__too_little_scratch_is_an_error", too_little_scratch_is_an_error},
                    {"experts__choosing", choosing},
                    {"experts__one_choice_of_all", one_choice_of_all},
                    {"experts__does_not_depend_on_threads", does_not_depend_on_threads},
                    {"experts__few_tokens_match_single_ones", few_tokens_match_single_ones}});
}
