// policy: heads=razor (docs/algorithms.md, "RazorAttention"). Which heads stream by the two tests, options, an example
// by hand, and sessions: streaming heads see sinks, a window, and the mean of the rest as often as there are tokens in
// it; the other heads are the policy's, bit by bit.
#include <string>

#include "policy/heads.h"
#include "tests/kv/cache_case.h"
#include "tests/policy/exact_attention.h"

namespace {

using namespace weir;
using namespace weir::test;

constexpr char kSizes[] = "layers\t3\nkv_heads\t2\nhead_dim\t64\nsinks\t20\nrecent\t50\n";
constexpr char kScores[] = "0.9\t0.1\n0.2\t0.8\n0.3\t0.05\n";
constexpr char kEcho[] = "echo\n0.1\t0.2\n0.3\t0.4\n0.9\t0.5\n";
constexpr char kInduction[] = "induction\n0.6\t0.1\n0.2\t0.7\n0.3\t0.4\n";

std::string file_text(const char* echo = kEcho, const char* induction = kInduction) {
  return std::string("weir-heads\t2\n") + kSizes + kScores + echo + induction;
}

void expect_bad(const std::string& text, std::initializer_list<const char*> words) {
  HeadFile file;
  assert_int_equal(read_head_file(text, file).code(), WEIR_ERR_FORMAT);
  for (const char* word : words) {
    if (std::strstr(last_error_text(), word) == nullptr) fail_msg("no \"%s\" in: %s", word, last_error_text());
  }
}

void razor__a_file_with_both_tests(void**) {
  const std::string text = file_text();
  HeadFile file;
  assert_true(read_head_file(text, file).ok());
  HeadScores scores(file, file.scores_at), echo(file, file.echo_at), induction(file, file.induction_at);
  for (float want : {0.9f, 0.1f, 0.2f, 0.8f, 0.3f, 0.05f}) assert_true(scores.next() == want);
  for (float want : {0.1f, 0.2f, 0.3f, 0.4f, 0.9f, 0.5f}) assert_true(echo.next() == want);
  for (float want : {0.6f, 0.1f, 0.2f, 0.7f, 0.3f, 0.4f}) assert_true(induction.next() == want);
  for (size_t n = 0; n < text.size(); ++n) expect_bad(text.substr(0, n), {"line ", "expected"});
  expect_bad(file_text(kInduction, kEcho), {"line 10", "\"echo\""});
  expect_bad(file_text(kEcho, kEcho), {"line 14", "\"induction\""});
  expect_bad(file_text("echo\n0.1\t0.2\n0.3\n0.9\t0.5\n"), {"line 12", "2 scores"});
  expect_bad(file_text(kEcho, "induction\n0.6\tx\n0.2\t0.7\n0.3\t0.4\n"), {"line 15", "score 2"});
  expect_bad(text + "1\n", {"line 18", "the end of the file"});
  expect_bad("weir-heads\t1\n" + text.substr(13), {"line 10", "the end of the file"});
}

struct Made {
  PolicyStorage storage;
  Policy* policy = nullptr;
  Status status;
  Made(const char* name, const std::string& text, std::vector<weir_key_value> options, uint32_t budget = 0,
       uint32_t context = 1024) {
    options.insert(options.begin(), {{"heads_file", "x"}, {"heads", "razor"}});
    PolicyConfig config;
    config.n_layers = 3;
    config.n_heads = 4;
    config.n_kv_heads = 2;
    config.head_dim = 64;
    config.context_tokens = context;
    config.trained_tokens = 1024;
    config.budget_tokens = budget;
    config.options = options;
    config.head_file = text;
    config.head_file_path = "some/heads.tsv";
    status = make_policy(name, config, storage, policy);
  }
  ~Made() {
    if (policy != nullptr) policy->~Policy();
  }
};

using Streams = std::vector<uint32_t>;

Streams streaming(const char* echo, const char* induction, const std::string& text = file_text()) {
  const Made made("dense", text, {{"heads_echo", echo}, {"heads_induction", induction}});
  assert_true(made.status.ok());
  Streams streams;
  for (uint32_t s = 0; s < 6; ++s) {
    if (made.storage.windows.has(s)) streams.push_back(s);
  }
  assert_int_equal(made.storage.windows.n_streams, streams.size());
  assert_int_equal(made.storage.windows.compensates, !streams.empty());
  return streams;
}

// With 6 heads: best by echo are 4, 5, 3, ..., by induction 3, 0, 5, ...
void razor__the_best_of_each_test_retrieve(void**) {
  assert_true((streaming("0", "0") == Streams{0, 1, 2, 3, 4, 5}));
  assert_true((streaming("0.1667", "0") == Streams{0, 1, 2, 3, 5}));
  assert_true((streaming("0", "0.1667") == Streams{0, 1, 2, 4, 5}));
  assert_true((streaming("0.1667", "0.3333") == Streams{1, 2, 5}));
  assert_true((streaming("0.3333", "0.5") == Streams{1, 2}));       // 5 is among both
  assert_true((streaming("0.01", "0.01") == Streams{0, 1, 2, 5}));  // one at least
  assert_true(streaming("1", "0").empty());
  assert_true(streaming("0", "1").empty());
  // When scores are equal, the earlier stream.
  const std::string equal = file_text("echo\n0.5\t0.5\n0.5\t0.5\n0.5\t0.5\n", "induction\n0\t0\n0\t0\n0\t0\n");
  assert_true((streaming("0.3333", "0", equal) == Streams{0, 1, 2, 3}));
}

void razor__windows(void**) {
  const auto windows = [](std::vector<weir_key_value> options, uint32_t context) {
    const Made made("dense", file_text(), std::move(options), 0, context);
    assert_true(made.status.ok());
    return made.storage.windows;
  };
  assert_int_equal(windows({}, 1024).window, 204);  // a fifth of the context
  assert_int_equal(windows({}, 255).window, 51);
  assert_int_equal(windows({}, 200).window, 50);  // the file's
  assert_int_equal(windows({{"heads_context_part", "2"}}, 1024).window, 512);
  assert_int_equal(windows({{"heads_context_part", "0"}}, 1024).window, 50);
  assert_int_equal(windows({{"heads_recent", "300"}}, 1024).window, 300);
  assert_int_equal(windows({{"heads_sinks", "4"}}, 1024).sinks, 4);
  assert_int_equal(windows({}, 1024).sinks, 20);
  assert_true(windows({}, 1024).compensates);
  assert_false(windows({{"heads_compensate", "off"}}, 1024).compensates);
}

void razor__options(void**) {
  const auto expect = [](const char* policy, const std::string& text, std::vector<weir_key_value> options,
                         uint32_t budget, weir_status code, std::initializer_list<const char*> words) {
    const Made made(policy, text, std::move(options), budget);
    if (made.status.code() != code) fail_msg("status %d, not %d: %s", made.status.code(), code, last_error_text());
    for (const char* word : words) {
      if (std::strstr(last_error_text(), word) == nullptr) fail_msg("no \"%s\" in: %s", word, last_error_text());
    }
  };
  const weir_status bad = WEIR_ERR_INVALID_ARG;
  for (const char* name : {"heads_echo", "heads_induction"}) {
    for (const char* value : {"-0.1", "1.1", "nan", "few"})
      expect("dense", file_text(), {{name, value}}, 0, bad, {name});
  }
  expect("dense", file_text(), {{"heads_compensate", "2"}}, 0, bad, {"heads_compensate"});
  expect("dense", file_text(), {{"heads_context_part", "-1"}}, 0, bad, {"heads_context_part"});
  expect("dense", file_text(), {{"heads_sparsity", "0.5"}}, 0, WEIR_ERR_NOT_FOUND, {"heads_sparsity", "heads_echo"});
  expect("dense", file_text(), {{"heads", "duo"}}, 0, bad, {"heads", "twice"});
  expect("dense", "", {}, 0, bad, {"heads=razor", "heads_file"});
  const std::string old = std::string("weir-heads\t1\n") + kSizes + kScores;
  expect("dense", old, {}, 0, bad, {"some/heads.tsv", "heads=razor", "version 2", "weir calibrate"});
  expect("dense", file_text().substr(0, 120), {}, 0, WEIR_ERR_FORMAT, {"some/heads.tsv", "line "});
  std::string other = file_text();
  other[other.find("head_dim\t64") + 9] = '8';
  expect("dense", other, {}, 0, bad, {"some/heads.tsv", "2 KV heads of 84"});
  expect("sink", file_text(), {}, 256, WEIR_ERR_UNSUPPORTED, {"heads=razor", "positions=abs"});
  expect("arkvale", file_text(), {}, 256, bad, {"heads=razor", "recall"});
  expect("lfps", file_text(), {}, 256, bad, {"heads=razor", "positions"});
}

// Six tokens, one sink and a window of two; all logits are 0 but those of tokens 1 and 3, which are 1 and -1. The last
// row sees 0, 4 and 5, and the mean of 1, 2, 3, whose key is 0: its weight is 3 in 6.
void razor__an_example_by_hand(void**) {
  KvShape shape = {1, 1, 8, 4, DigestKind::kNone};
  shape.windows.sinks = 1;
  shape.windows.window = 2;
  shape.windows.compensates = true;
  shape.windows.add(0);
  shape.own_pages = 4;
  Cache cache(shape);
  cache.append(6);
  uint16_t* page = cache.kv.page_data(cache.kv.stream(0).slots[0]);
  std::fill_n(page, 2 * kPageTokens * 8, uint16_t{0});
  const float key[] = {0, 1, 0, -1, 0, 0};
  for (uint32_t pos = 0; pos < 6; ++pos) {
    page[pos * 8] = f32_to_bf16(key[pos]);
    page[(kPageTokens + pos) * 8 + 1] = f32_to_bf16(static_cast<float>(pos));
  }
  const float q[2][8] = {{1}, {1}};
  float out[2][8] = {}, lse[2] = {}, mass[4] = {};
  AttnPagedArgs a = {};
  a.out = out[0];
  a.q = q[0];
  a.kv = cache.kv.view(0);
  a.n_tok = 2;  // positions 4 and 5
  a.n_heads = 1;
  a.pos = 4;
  a.scale = 1.0f;
  a.page_mass = mass;
  a.lse = lse;
  set_head_windows(cache.kv, 0, a);
  OpContext cx;
  assert_true(reference_backend().ops.attn_paged(cx, a).ok());
  assert_float_equal(lse[1], std::log(3.0f), 1e-6f);
  assert_float_equal(out[1][1], 3.0f, 1e-6f);
  compensate(cache.kv, 0, a);
  assert_float_equal(lse[1], std::log(6.0f), 1e-6f);
  assert_float_equal(out[1][1], (0 + 4 + 5 + 3 * 2) / 6.0f, 1e-6f);
  assert_float_equal(mass[0], 0.5f, 1e-6f);
  // Position 4 sees 0, 3 and 4; the mean of 1 and 2 has key 0.5 and value 1.5.
  const float e = std::exp(-1.0f), m = 2 * std::exp(0.5f);
  assert_float_equal(out[0][1], (3 * e + 4 + 1.5f * m) / (1 + e + 1 + m), 1e-5f);
  assert_float_equal(lse[0], std::log(2 + e + m), 1e-5f);
}

PolicySpec with_razor(PolicySpec spec, const std::string& text, std::vector<weir_key_value> options = {}) {
  spec.head_file = text.c_str();
  // Streams 1, 2 and 5 stream, with windows of 50 tokens behind 20 sinks.
  for (const weir_key_value option : {weir_key_value{"heads", "razor"},
                                      {"heads_echo", "0.1667"},
                                      {"heads_induction", "0.3333"},
                                      {"heads_context_part", "0"}})
    spec.options.push_back(option);
  spec.options.insert(spec.options.end(), options.begin(), options.end());
  return spec;
}

bool streams(uint32_t stream) { return stream == 1 || stream == 2 || stream == 5; }

// What a query head at position t gives, token by token from the inputs.
struct Expected {
  std::vector<double> out;
  double mean_share = 0.0;  // of the compensation token
};

Expected expected(const ExactAttention& exact, const Inputs& in, uint32_t layer, uint32_t head, uint32_t t, float cap) {
  const SimShape& shape = in.shape;
  const uint32_t kv_head = head / shape.group, d = shape.head_dim;
  const std::vector<double> q = exact.query(layer, head, t);
  const auto capped = [&](double x) { return cap == 0.0f ? x : double{cap} * std::tanh(x / double{cap}); };
  std::vector<double> mean_key(d), mean_value(d), out(d);
  double n = 0, sum = 0;
  const auto add = [&](const double* key, const double* value, double times) {
    double dot = 0;
    for (uint32_t i = 0; i < d; ++i) dot += q[i] * key[i];
    const double weight = times * std::exp(capped(dot * double{shape.scale()}));
    sum += weight;
    for (uint32_t i = 0; i < d; ++i) out[i] += weight * value[i];
    return weight;
  };
  for (uint32_t pos = 0; pos <= t; ++pos) {
    const double* key = exact.key(layer, kv_head, pos);
    std::vector<double> value(d);
    for (uint32_t i = 0; i < d; ++i) value[i] = double{bf16_to_f32(f32_to_bf16(in.v(layer, pos)[kv_head * d + i]))};
    if (pos < 20 || pos + 50 > t) {
      add(key, value.data(), 1);
      continue;
    }
    ++n;
    for (uint32_t i = 0; i < d; ++i) mean_key[i] += key[i], mean_value[i] += value[i];
  }
  double mean_weight = 0;
  if (n != 0) {
    for (uint32_t i = 0; i < d; ++i) mean_key[i] /= n, mean_value[i] /= n;
    mean_weight = add(mean_key.data(), mean_value.data(), n);
  }
  for (double& x : out) x /= sum;
  return {out, mean_weight / sum};
}

// Outputs of a stream's heads at all positions, or at every third.
void assert_expected(const Sim& sim, const ExactAttention& exact, uint32_t stream, const char* what) {
  const SimShape& shape = sim.shape;
  const uint32_t layer = stream / shape.n_kv_heads, first = stream % shape.n_kv_heads * shape.group;
  for (uint32_t t = 0; t < sim.n_tokens(); t += 3) {
    for (uint32_t head = first; head < first + shape.group; ++head) {
      const std::vector<double> want = expected(exact, sim.inputs, layer, head, t, sim.soft_cap).out;
      const float* got = &sim.out[layer][(size_t{t} * shape.n_heads() + head) * shape.head_dim];
      for (uint32_t i = 0; i < shape.head_dim; ++i) {
        if (!(std::fabs(double{got[i]} - want[i]) <= 2e-5))
          fail_msg("%s: stream %u, head %u, position %u: %g, not %g", what, stream, head, t, double{got[i]}, want[i]);
      }
    }
  }
}

void assert_same_stream(const Sim& a, const Sim& b, uint32_t stream, const char* what) {
  const SimShape& shape = a.shape;
  const uint32_t layer = stream / shape.n_kv_heads, kv_head = stream % shape.n_kv_heads;
  const size_t row = size_t{shape.n_heads()} * shape.head_dim, width = size_t{shape.group} * shape.head_dim;
  for (uint32_t pos = 0; pos < a.n_tokens(); ++pos) {
    const size_t at = pos * row + kv_head * width;
    if (std::memcmp(&a.out[layer][at], &b.out[layer][at], width * sizeof(float)) != 0)
      fail_msg("%s: stream %u differs at position %u", what, stream, pos);
  }
}

void converse(Sim& sim) {
  sim.prefill(150);
  sim.steps(30);
  sim.prefill(45);
  sim.steps(20);
}

// Under policies that attend in every way, with chunks of two lengths.
void razor__each_stream_is_one_of_two(void**) {
  const PolicySpec specs[] = {
      {"dense", 0, 512, 0, {}},
      {"h2o", 96, 512, 0, {{"skip_layers", "0"}}},
      {"quest", 64, 512, 0, {{"skip_layers", "0"}}},
      {"quest", 64, 512, 0, {{"skip_layers", "0"}, {"agg", "qhead"}}},
      {"raas", 112, 512, 0, {{"prompt", "snapkv"}, {"prompt_budget", "48"}}},
      {"psa", 0, 512, 0, {{"skip_layers", "0"}, {"eps", "0.6"}, {"mb", "2"}}},
  };
  const std::string text = file_text();
  for (uint32_t batch : {512u, 37u}) {
    const Inputs inputs({3, 2, 3, 64, batch, true}, 245, 131);
    const ExactAttention exact(inputs);
    for (const PolicySpec& spec : specs) {
      Sim alone(cpu_backend(), inputs, spec), sim(cpu_backend(), inputs, with_razor(spec, text));
      for (Sim* s : {&alone, &sim}) converse(*s);
      for (uint32_t s = 0; s < 6; ++s)
        streams(s) ? assert_expected(sim, exact, s, spec.name) : assert_same_stream(sim, alone, s, spec.name);
    }
  }
}

void razor__on_the_reference_and_with_a_soft_cap(void**) {
  const std::string text = file_text();
  const Inputs inputs({3, 2, 2, 64, 40, true}, 130, 132);
  const ExactAttention exact(inputs);
  for (const Backend* backend : kBackends) {
    Sim sim(*backend, inputs, with_razor({"dense", 0, 512, 0, {}}, text));
    sim.soft_cap = 1.5f;
    sim.prefill(110);
    sim.steps(20);
    for (uint32_t s : {1u, 2u, 5u}) assert_expected(sim, exact, s, backend->name);
  }
}

// Masses of pages are shares of the whole softmax, the compensation token's included.
void razor__masses_leave_room_for_the_mean(void**) {
  const std::string text = file_text();
  const Inputs inputs({3, 2, 2, 64, 64, true}, 170, 133);
  const ExactAttention exact(inputs);
  Sim sim(cpu_backend(), inputs, with_razor({"h2o", 96, 512, 0, {{"skip_layers", "0"}}}, text));
  sim.prefill(140);
  sim.steps(30);
  for (uint32_t head = 0; head < 12; ++head) {
    const uint32_t layer = head / 4, stream = head / 2, capacity = sim.kv.shape().capacity(layer);
    double sum = 0;
    for (uint32_t row = 0; row < sim.kv.stream(stream).n_pages; ++row)
      sum += double{sim.mass(layer)[size_t{head % 4} * capacity + row]};
    const double mean = streams(stream) ? expected(exact, inputs, layer, head % 4, 169, 0.0f).mean_share : 0.0;
    assert_true(!streams(stream) || mean > 0.2);  // 100 of 170 tokens
    assert_float_equal(sum, 1.0 - mean, 1e-4);
  }
}

// Without the token it is DuoAttention, and with windows that hold all it is the policy, bit by bit.
void razor__equals_duo_and_dense(void**) {
  const std::string text = file_text();
  const Inputs inputs({3, 2, 3, 64, 64, true}, 245, 134);
  const PolicySpec dense = {"dense", 0, 512, 0, {}};
  PolicySpec duo = dense;
  duo.head_file = text.c_str();  // the lowest half of the first table are streams 1, 2 and 5, too
  duo.options = {{"heads", "duo"}, {"heads_sparsity", "0.5"}};
  Sim a(cpu_backend(), inputs, with_razor(dense, text, {{"heads_compensate", "false"}})), b(cpu_backend(), inputs, duo);
  Sim c(cpu_backend(), inputs, with_razor(dense, text, {{"heads_recent", "245"}})), d(cpu_backend(), inputs, dense);
  for (Sim* sim : {&a, &b, &c, &d}) converse(*sim);
  assert_same_outputs(a, b, "no compensation token");
  assert_same_outputs(c, d, "nothing is out of the windows");
  Sim e(cpu_backend(), inputs, with_razor(dense, text));
  converse(e);
  assert_true(std::memcmp(&e.out[0][200 * 6 * 64], &a.out[0][200 * 6 * 64], 6 * 64 * sizeof(float)) != 0);
}

// The mean of equal keys and values says all about them.
void razor__is_exact_where_what_left_is_equal(void**) {
  const std::string text = file_text();
  Inputs inputs({3, 2, 3, 64, 64, false}, 245, 135);
  for (uint32_t layer = 0; layer < 3; ++layer) {
    for (uint32_t pos = 20; pos < 195; ++pos) {
      std::copy_n(inputs.k(layer, 20), 128, inputs.k(layer, pos));
      std::copy_n(inputs.v(layer, 20), 128, inputs.v(layer, pos));
    }
  }
  const PolicySpec dense = {"dense", 0, 512, 0, {}};
  Sim sim(cpu_backend(), inputs, with_razor(dense, text)), whole(cpu_backend(), inputs, dense);
  for (Sim* s : {&sim, &whole}) converse(*s);
  for (uint32_t layer = 0; layer < 3; ++layer) {
    for (size_t i = 0; i < sim.out[layer].size(); ++i)
      assert_float_equal(sim.out[layer][i], whole.out[layer][i], 2e-5f);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(razor__a_file_with_both_tests),
      cmocka_unit_test(razor__the_best_of_each_test_retrieve),
      cmocka_unit_test(razor__windows),
      cmocka_unit_test(razor__options),
      cmocka_unit_test(razor__an_example_by_hand),
      cmocka_unit_test(razor__each_stream_is_one_of_two),
      cmocka_unit_test(razor__on_the_reference_and_with_a_soft_cap),
      cmocka_unit_test(razor__masses_leave_room_for_the_mean),
      cmocka_unit_test(razor__equals_duo_and_dense),
      cmocka_unit_test(razor__is_exact_where_what_left_is_equal),
  };
  return cmocka_run_group_tests_name("policy_razor", tests, nullptr, nullptr);
}
