// policy: head policies (docs/algorithms.md, "DuoAttention"). Files that are refused, with the line and what was
// expected; which heads stream; and sessions: retrieval heads are the policy's, streaming heads see sinks and a window.
#include "policy/heads.h"

#include <string>

#include "tests/policy/session_sim.h"

namespace {

using namespace weir;
using namespace weir::test;

std::string file_text(const char* sizes, const char* scores) { return std::string("weir-heads\t1\n") + sizes + scores; }

constexpr char kSizes[] = "layers\t3\nkv_heads\t2\nhead_dim\t64\nsinks\t20\nrecent\t50\n";
constexpr char kScores[] = "0.9\t0.1\n0.2\t0.8\n0.3\t0.05\n";

void expect_bad(const std::string& text, std::initializer_list<const char*> words, weir_status code = WEIR_ERR_FORMAT) {
  HeadFile file;
  const Status status = read_head_file(text, file);
  if (status.code() != code) fail_msg("status %d, not %d, for:\n%s", status.code(), code, text.c_str());
  for (const char* word : words) {
    if (std::strstr(last_error_text(), word) == nullptr) fail_msg("no \"%s\" in: %s", word, last_error_text());
  }
}

void heads__a_file(void**) {
  const std::string text = file_text(kSizes, kScores);
  HeadFile file;
  assert_true(read_head_file(text, file).ok());
  assert_true(file.n_layers == 3 && file.n_kv_heads == 2 && file.head_dim == 64 && file.sinks == 20);
  assert_int_equal(file.recent, 50);
  HeadScores scores(file, file.scores_at);
  for (float want : {0.9f, 0.1f, 0.2f, 0.8f, 0.3f, 0.05f}) assert_true(scores.next() == want);
  // Scores outside 0..1 are the nearest of the two.
  const std::string wide = file_text(kSizes, "-0.5\t1.5\n0\t1\n-0\t1e-3\n");
  assert_true(read_head_file(wide, file).ok());
  HeadScores clipped(file, file.scores_at);
  for (float want : {0.0f, 1.0f, 0.0f, 1.0f, 0.0f, 1e-3f}) {
    const float got = clipped.next();
    assert_true(got == want && !std::signbit(got));
  }
  // A file that is cut short anywhere is none.
  for (size_t n = 0; n < text.size(); ++n) expect_bad(text.substr(0, n), {"line ", "expected"});
}

void heads__bad_files(void**) {
  expect_bad("weir-head\t1\n", {"line 1", "weir-heads"});
  expect_bad("GGUF", {"line 1"});
  expect_bad(std::string("weir-heads\t3\n") + kSizes + kScores, {"line 1", "version 3", "versions 1 and 2"},
             WEIR_ERR_UNSUPPORTED);
  expect_bad(file_text("layers\t0\nkv_heads\t2\n", ""), {"line 2", "layers", "from 1"});
  expect_bad(file_text("layers\t3x\n", ""), {"line 2", "layers"});
  expect_bad(file_text("layers\t-3\n", ""), {"line 2", "layers"});
  expect_bad(file_text("layers\t99999999999\n", ""), {"line 2", "layers"});
  expect_bad(file_text("kv_heads\t3\n", ""), {"line 2", "\"layers\""});
  expect_bad(file_text("layers\t3\nkv_heads\t2\nhead_dim\t64\nsinks\t20\nrecent\t0\n", kScores), {"line 6", "recent"});
  expect_bad(file_text(kSizes, "0.9\t0.1\n0.2\tnan\n0.3\t0.05\n"), {"line 8", "score 2", "2 scores"});
  expect_bad(file_text(kSizes, "0.9\t0.1\n0.2\t0.8\ninf\t0.05\n"), {"line 9", "score 1"});
  expect_bad(file_text(kSizes, "0.9\t0.1\n0.2\t0.8x\n0.3\t0.05\n"), {"line 8", "score 2"});
  expect_bad(file_text(kSizes, "0.9\t0.1\t0.3\n0.2\t0.8\n0.3\t0.05\n"), {"line 7", "2 scores"});
  expect_bad(file_text(kSizes, "0.9\n0.2\t0.8\n0.3\t0.05\n"), {"line 7", "2 scores"});
  expect_bad(file_text(kSizes, "0.9\t\n0.2\t0.8\n0.3\t0.05\n"), {"line 7", "2 scores"});
  expect_bad(file_text(kSizes, "0.9\t0.1\n0.2\t0.8\n0.3\t0.05\n\n"), {"line 10", "the end of the file"});
}

struct MadeHeads {
  PolicyStorage storage;
  Policy* policy = nullptr;
  Status status;
  MadeHeads(const char* name, const std::string& text, std::vector<weir_key_value> options, uint32_t budget = 0,
            uint32_t n_layers = 3, uint32_t global_every = 0) {
    PolicyConfig config;
    config.n_layers = n_layers;
    config.n_heads = 4;
    config.n_kv_heads = 2;
    config.head_dim = 64;
    config.global_every = global_every;
    config.trained_tokens = 1024;
    config.budget_tokens = budget;
    config.options = options;
    config.head_file = text;
    config.head_file_path = "some/heads.tsv";
    status = make_policy(name, config, storage, policy);
  }
  ~MadeHeads() {
    if (policy != nullptr) policy->~Policy();
  }
  std::vector<uint32_t> streaming() const {
    std::vector<uint32_t> all;
    for (uint32_t s = 0; s < 4096; ++s) {
      if (storage.windows.has(s)) all.push_back(s);
    }
    return all;
  }
};

using Streams = std::vector<uint32_t>;

Streams lowest(const char* sparsity, const char* scores) {
  const MadeHeads made("dense", file_text(kSizes, scores),
                       {{"heads", "duo"}, {"heads_file", "x"}, {"heads_sparsity", sparsity}});
  assert_true(made.status.ok());
  const Streams streams = made.streaming();
  assert_int_equal(made.storage.windows.n_streams, streams.size());
  assert_int_equal(made.storage.windows.any(), !streams.empty());
  return streams;
}

void heads__the_lowest_scores_stream(void**) {
  assert_true(lowest("0", kScores) == Streams{});
  assert_true((lowest("0.1", kScores) == Streams{5}));  // 0.6 of a head is one
  assert_true((lowest("0.5", kScores) == Streams{1, 2, 5}));
  assert_true((lowest("0.66667", kScores) == Streams{1, 2, 4, 5}));
  assert_true((lowest("1", kScores) == Streams{0, 1, 2, 3, 4, 5}));
  // When scores are equal, the earlier ones.
  assert_true((lowest("0.5", "0.5\t0.5\n0.5\t0.5\n0.5\t0.5\n") == Streams{0, 1, 2}));
  assert_true((lowest("0.5", "1\t0.5\n0.5\t0\n0.5\t0.5\n") == Streams{1, 2, 3}));
  assert_true((lowest("0.5", "0\t0\n-1\t-0\n0\t1\n") == Streams{0, 1, 2}));
  assert_true((lowest("0.84", "2\t1\n3\t1.5\n1\t0.99999994\n") == Streams{0, 1, 2, 3, 5}));
}

// Layers with windows of their own are left out.
void heads__layers_with_windows_are_not_ranked(void**) {
  const char* sizes = "layers\t4\nkv_heads\t2\nhead_dim\t64\nsinks\t4\nrecent\t50\n";
  const MadeHeads made("dense", file_text(sizes, "0\t0\n0.9\t0.5\n0\t0\n0.4\t0.6\n"),
                       {{"heads", "duo"}, {"heads_file", "x"}}, 0, 4, 2);
  assert_true(made.status.ok());
  assert_true((made.streaming() == Streams{3, 6}));
}

void heads__options(void**) {
  const std::string text = file_text(kSizes, kScores);
  const auto expect = [&](const char* policy, const std::string& file, std::vector<weir_key_value> options,
                          uint32_t budget, weir_status code, std::initializer_list<const char*> words) {
    options.insert(options.begin(), {"heads_file", "x"});
    const MadeHeads made(policy, file, options, budget);
    if (made.status.code() != code)
      fail_msg("%s: status %d, not %d: %s", policy, made.status.code(), code, last_error_text());
    assert_null(made.policy);
    for (const char* word : words) {
      if (std::strstr(last_error_text(), word) == nullptr) fail_msg("no \"%s\" in: %s", word, last_error_text());
    }
  };
  const weir_status bad = WEIR_ERR_INVALID_ARG;
  const weir_key_value duo = {"heads", "duo"};
  expect("dense", text, {}, 0, bad, {"heads_file", "head policy", "heads=NAME"});
  expect("dense", text, {{"heads", "trio"}}, 0, bad, {"trio", "duo"});
  expect("dense", "", {duo}, 0, bad, {"heads=duo", "heads_file"});
  expect("lfps", text, {duo}, 0, bad, {"heads=duo", "positions"});
  for (const char* value : {"-0.1", "1.1", "nan", "most"})
    expect("dense", text, {duo, {"heads_sparsity", value}}, 0, bad, {"heads_sparsity", value});
  expect("dense", text, {duo, {"heads_recent", "0"}}, 0, bad, {"heads_recent"});
  expect("dense", text, {duo, {"heads_sinks", "-1"}}, 0, bad, {"heads_sinks"});
  expect("dense", text, {duo, {"heads_sink", "4"}}, 0, WEIR_ERR_NOT_FOUND, {"heads_sink", "heads_sinks"});
  expect("dense", text, {duo, {"heads_file", "y"}}, 0, bad, {"heads_file", "twice"});
  expect("sink", text, {duo}, 256, WEIR_ERR_UNSUPPORTED, {"heads=duo", "positions=abs"});
  expect("arkvale", text, {duo}, 256, bad, {"heads=duo", "recall"});
  expect("tova", text, {duo, {"scope", "layer"}}, 256, bad, {"heads", "scope=layer"});
  expect("dense", text.substr(0, 40), {duo}, 0, WEIR_ERR_FORMAT, {"some/heads.tsv", "line 4"});
  std::string other = text;
  other[other.find("head_dim\t64") + 9] = '8';
  expect("dense", other, {duo}, 0, bad, {"some/heads.tsv", "2 KV heads of 84", "2 KV heads of 64"});
  const char* wide = "layers\t2\nkv_heads\t3\nhead_dim\t64\nsinks\t20\nrecent\t50\n";
  expect("dense", file_text(wide, "0\t0\t0\n0\t0\t0\n"), {duo}, 0, bad, {"2 layers", "3 layers"});
  const MadeHeads made("dense", text, {duo, {"heads_file", "x"}, {"heads_sinks", "7"}, {"heads_recent", "9"}});
  assert_true(made.status.ok() && made.storage.windows.sinks == 7 && made.storage.windows.window == 9);
}

// Outputs of one KV head's query heads, at all positions.
void assert_same_head(const Sim& a, const Sim& b, uint32_t stream, bool exact, const char* what) {
  const SimShape& shape = a.shape;
  const uint32_t layer = stream / shape.n_kv_heads, kv_head = stream % shape.n_kv_heads;
  assert_int_equal(a.out[layer].size(), b.out[layer].size());
  const size_t row = size_t{shape.n_heads()} * shape.head_dim, width = size_t{shape.group} * shape.head_dim;
  for (size_t pos = 0; pos < a.out[layer].size() / row; ++pos) {
    for (size_t i = 0; i < width; ++i) {
      const float x = a.out[layer][pos * row + kv_head * width + i], y = b.out[layer][pos * row + kv_head * width + i];
      if (!(exact ? x == y : std::fabs(x - y) <= 1e-5f))
        fail_msg("%s: stream %u, position %zu: %g, not %g", what, stream, pos, double{x}, double{y});
    }
  }
}

void converse(Sim& sim) {
  sim.prefill(230);
  sim.steps(60);
  sim.prefill(70);
  sim.steps(60);
}

// With windows of 50 tokens behind 20 sinks.
PolicySpec masked_sink() {
  return {"sink", 512, 1024, 0, {{"positions", "abs"}, {"exact_mask", "true"}, {"sinks", "20"}, {"window", "50"}}};
}

void with_heads(PolicySpec& spec, const std::string& text, const char* sparsity) {
  spec.head_file = text.c_str();
  for (const weir_key_value option : {weir_key_value{"heads", "duo"}, weir_key_value{"heads_sparsity", sparsity}})
    spec.options.push_back(option);
}

// Under every policy: streams 1, 2 and 5 are those of StreamingLLM, the others those of the policy alone.
void heads__each_stream_is_one_of_two(void**) {
  const PolicySpec specs[] = {
      {"dense", 0, 1024, 0, {}},
      {"sink", 256, 1024, 0, {{"positions", "abs"}}},
      {"sink", 256, 1024, 0, {{"positions", "abs"}, {"exact_mask", "true"}, {"sinks", "3"}, {"window", "100"}}},
      {"h2o", 160, 1024, 0, {{"skip_layers", "0"}}},
      {"h2o", 160, 1024, 0, {{"skip_layers", "1"}}},
      {"tova", 160, 1024, 0, {{"scope", "stream"}, {"skip_layers", "0"}}},
      {"quest", 96, 1024, 0, {{"skip_layers", "0"}}},
      {"quest", 96, 1024, 0, {{"skip_layers", "0"}, {"agg", "qhead"}}},
      {"raas", 160, 1024, 0, {}},
      {"raas", 160, 1024, 0, {{"pin_prompt", "false"}, {"digest", "cuboid_mean"}}},
      {"raas", 160, 1024, 0, {{"prompt", "pyramid"}, {"prompt_budget", "96"}, {"prompt_beta", "3"}}},
      {"hybrid", 256, 1024, 256, {{"skip_layers", "0"}, {"prompt", "snapkv"}}},
      {"random", 160, 1024, 0, {{"pin_prompt", "false"}}},
      {"keyformer", 160, 1024, 0, {{"skip_layers", "0"}}},
      {"scissorhands", 160, 1024, 0, {{"skip_layers", "0"}}},
      {"arkvale", 1024, 1024, 0, {}},  // with recall it is refused
      {"psa", 0, 1024, 0, {{"skip_layers", "0"}, {"eps", "0.7"}, {"mb", "2"}}},
      {"psa", 0, 1024, 0, {{"skip_layers", "0"}, {"eps", "0.6"}, {"bound", "true"}}},
  };
  ASSERT_EVERY_POLICY_EXCEPT("lfps", specs, name);  // it is refused
  const std::string text = file_text(kSizes, kScores);
  for (uint32_t batch : {512u, 48u}) {
    const Inputs inputs({3, 2, 3, 64, batch, true}, 430, 91);
    Sim streaming(cpu_backend(), inputs, masked_sink());
    converse(streaming);
    for (const PolicySpec& spec : specs) {
      PolicySpec both = spec;
      with_heads(both, text, "0.5");
      Sim alone(cpu_backend(), inputs, spec), sim(cpu_backend(), inputs, both);
      for (Sim* s : {&alone, &sim}) converse(*s);
      for (uint32_t s = 0; s < 6; ++s) {
        const bool streams = s == 1 || s == 2 || s == 5;
        assert_same_head(sim, streams ? streaming : alone, s, !streams, spec.name);
        if (!streams) assert_true(sim.pages(s) == alone.pages(s));
      }
    }
  }
}

// What a prompt gives to tokens that a window hides is not known, so prompts leave the scores of such streams at 0.
void heads__windows_have_no_scores(void**) {
  const PolicySpec specs[] = {
      {"h2o", 160, 1024, 0, {{"skip_layers", "0"}}},
      {"scissorhands", 160, 1024, 0, {{"skip_layers", "0"}}},
      {"tova", 160, 1024, 0, {{"scope", "stream"}, {"skip_layers", "0"}}},
      {"raas", 160, 1024, 0, {{"prompt", "snapkv"}, {"prompt_budget", "96"}}},
      {"raas", 160, 1024, 0, {{"prompt", "ada"}, {"prompt_budget", "96"}}},
      {"random", 160, 1024, 0, {}},
  };
  const std::string text = file_text(kSizes, kScores);
  const Inputs inputs({3, 2, 3, 64, 48, true}, 430, 91);
  for (PolicySpec spec : specs) {
    with_heads(spec, text, "0.5");
    Sim sim(cpu_backend(), inputs, spec);
    sim.prefill(230);
    bool scored = false;
    for (uint32_t s = 0; s < 6; ++s) {
      const StreamView v = sim.kv.stream(s);
      for (uint32_t row = 0; row < v.n_pages; ++row) {
        const float score = v.prompt_score != nullptr ? v.prompt_score[row] : v.last_score[row];
        if (sim.kv.window(s) == 0) scored = scored || score != 0.0f;
        if (sim.kv.window(s) != 0 && (score != 0.0f || v.last_score[row] != 0.0f))
          fail_msg("%s: page %u of stream %u has the score %g", spec.name, v.first_pos[row], s, double{score});
      }
    }
    assert_true(scored);
  }
}

// On the reference, whose attention is plain code.
void heads__on_the_reference(void**) {
  const std::string text = file_text(kSizes, kScores);
  const Inputs inputs({3, 2, 2, 64, 64, true}, 150, 92);
  for (const char* name : {"dense", "psa"}) {
    PolicySpec spec = {name, 0, 1024, 0, {}};
    if (name[0] == 'p') spec.options = {{"skip_layers", "0"}, {"eps", "0.7"}};
    with_heads(spec, text, "0.5");
    Sim sim(reference_backend(), inputs, spec), cpu(cpu_backend(), inputs, spec);
    for (Sim* s : {&sim, &cpu}) {
      s->prefill(110);
      s->steps(20);
    }
    for (uint32_t s = 0; s < 6; ++s) assert_same_head(sim, cpu, s, false, name);
  }
}

// Streaming heads hold their sinks and a window at every moment, while a prompt is read, too.
void heads__windows_are_bounded(void**) {
  const std::string text = file_text(kSizes, kScores);
  for (uint32_t batch : {512u, 64u, 16u}) {
    const Inputs inputs({3, 2, 2, 64, batch, true}, 700, 93);
    PolicySpec spec = {"dense", 0, 1024, 0, {}};
    with_heads(spec, text, "0.5");
    Sim sim(cpu_backend(), inputs, spec);
    const KvShape& shape = sim.kv.shape();
    const uint32_t most = std::min(64u, 2 + pages_of_window(50, batch, 1024));
    assert_int_equal(shape.own_pages, most);
    assert_int_equal(shape.n_slots(), 3 * 64 + 3 * most);
    sim.prefill(500);
    sim.steps(150);
    for (uint32_t s = 0; s < 6; ++s) {
      const StreamView v = sim.kv.stream(s);
      const bool streams = s == 1 || s == 2 || s == 5;
      assert_int_equal(v.n_slots, streams ? most : 64);
      if (!streams) {
        assert_int_equal(v.n_pages, 41);
        continue;
      }
      // 650 tokens, the latest sees from 600 on.
      assert_true((sim.pages(s) == std::vector<uint32_t>{0, 16, 592, 608, 624, 640}));
    }
    assert_int_equal(shape.last_ruled_stream(), 4);
  }
}

void heads__none_and_all(void**) {
  const std::string text = file_text(kSizes, kScores);
  const Inputs inputs({3, 2, 3, 64, 96, true}, 430, 94);
  Sim dense(cpu_backend(), inputs, {"dense", 0, 1024, 0, {}}), streaming(cpu_backend(), inputs, masked_sink());
  PolicySpec none = {"dense", 0, 1024, 0, {}}, all = none, raas = {"raas", 160, 1024, 0, {}};
  with_heads(none, text, "0");
  with_heads(all, text, "1");
  with_heads(raas, text, "1");
  Sim no(cpu_backend(), inputs, none), yes(cpu_backend(), inputs, all), with_raas(cpu_backend(), inputs, raas);
  for (Sim* sim : {&dense, &streaming, &no, &yes, &with_raas}) converse(*sim);
  assert_same_outputs(no, dense, "no head streams");
  for (uint32_t s = 0; s < 6; ++s) {
    assert_same_head(yes, streaming, s, false, "all heads stream");
    assert_same_head(with_raas, yes, s, true, "all heads stream under raas");
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(heads__a_file),
      cmocka_unit_test(heads__bad_files),
      cmocka_unit_test(heads__the_lowest_scores_stream),
      cmocka_unit_test(heads__layers_with_windows_are_not_ranked),
      cmocka_unit_test(heads__options),
      cmocka_unit_test(heads__each_stream_is_one_of_two),
      cmocka_unit_test(heads__windows_have_no_scores),
      cmocka_unit_test(heads__on_the_reference),
      cmocka_unit_test(heads__windows_are_bounded),
      cmocka_unit_test(heads__none_and_all),
  };
  return cmocka_run_group_tests_name("policy_heads", tests, nullptr, nullptr);
}
