// policy: SnapKV before another policy (docs/algorithms.md, "SnapKV"). The pages that stay against a plain computation
// in f64; the window stays; the number of pages is exact; prompts in chunks; and what the policy behind it sees.
#include <cstdlib>

#include "tests/policy/exact_attention.h"

namespace {

using namespace weir;
using namespace weir::test;

const SimShape kShapes[] = {
    {2, 2, 4, 64, 512, true}, {2, 1, 7, 64, 512, true}, {2, 3, 3, 64, 512, true}, {2, 1, 8, 128, 512, true}};

PolicySpec snapkv(const char* budget, const char* window, const char* kernel) {
  return {"dense",
          0,
          1024,
          0,
          {{"prompt", "snapkv"}, {"prompt_budget", budget}, {"prompt_window", window}, {"prompt_kernel", kernel}}};
}

uint32_t number(const char* text) { return static_cast<uint32_t>(std::atoi(text)); }

// Weight of every prompt token before the window: mean over the window's queries and the group's heads, then averaged
// over `kernel` neighbours, with 0 for what lies outside.
std::vector<double> pooled_weights(const Inputs& inputs, uint32_t layer, uint32_t kv_head, uint32_t n_prompt,
                                   uint32_t window, uint32_t kernel) {
  const ExactAttention exact(inputs);
  const uint32_t group = inputs.shape.group, n = n_prompt - window;
  std::vector<double> mean(n), pooled(n);
  for (uint32_t t = n; t < n_prompt; ++t) {
    for (uint32_t g = 0; g < group; ++g) {
      const std::vector<double> w = exact.causal(layer, kv_head * group + g, t);
      for (uint32_t j = 0; j < n; ++j) mean[j] += w[j] / window / group;
    }
  }
  const auto reach = static_cast<int64_t>(kernel / 2);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t at = std::max<int64_t>(0, j - reach); at <= j + reach && at < n; ++at)
      pooled[static_cast<size_t>(j)] += mean[static_cast<size_t>(at)] / kernel;
  }
  return pooled;
}

// First positions of the pages that stay: those that hold tokens of the window, and the best of the others by their
// best token.
std::vector<uint32_t> kept_pages(const Inputs& inputs, uint32_t layer, uint32_t kv_head, uint32_t n_prompt,
                                 uint32_t n_keep, uint32_t window, uint32_t kernel) {
  const std::vector<double> weight = pooled_weights(inputs, layer, kv_head, n_prompt, window, kernel);
  const uint32_t first_of_window = (n_prompt - window) / kPageTokens;
  std::vector<std::pair<double, uint32_t>> others;  // negated score, page
  for (uint32_t page = 0; page < first_of_window; ++page) {
    const auto first = weight.begin() + page * kPageTokens;
    others.push_back({-*std::max_element(first, first + kPageTokens), page});
  }
  std::sort(others.begin(), others.end());
  std::vector<uint32_t> kept;
  const uint32_t n_window = whole_pages(n_prompt) - first_of_window;
  for (uint32_t i = 0; i + n_window < n_keep; ++i) kept.push_back(others[i].second * kPageTokens);
  for (uint32_t i = 0; i < n_window; ++i) kept.push_back((first_of_window + i) * kPageTokens);
  std::sort(kept.begin(), kept.end());
  return kept;
}

void check_kept(const Backend& backend, const SimShape& shape, uint32_t n_prompt, const char* window,
                const char* kernel) {
  const Inputs inputs(shape, 240, 71);
  Sim sim(backend, inputs, snapkv("112", window, kernel));
  sim.prefill(n_prompt);
  for (uint32_t stream = 0; stream < shape.n_layers * shape.n_kv_heads; ++stream) {
    const auto want = kept_pages(inputs, stream / shape.n_kv_heads, stream % shape.n_kv_heads, n_prompt, 7,
                                 number(window), number(kernel));
    const auto got = sim.pages(stream);
    if (got == want) continue;
    for (uint32_t pos : want) {
      if (std::find(got.begin(), got.end(), pos) == got.end()) {
        fail_msg("prompt of %u, window %s, kernel %s, stream %u: page %u should stay", n_prompt, window, kernel, stream,
                 pos);
      }
    }
    fail_msg("prompt of %u, window %s, kernel %s, stream %u: %zu pages stay, not 7", n_prompt, window, kernel, stream,
             got.size());
  }
}

void snapkv__keeps_what_the_window_looks_at(void**) {
  for (const SimShape& shape : kShapes) {
    for (const char* kernel : {"1", "5", "7", "31"}) {
      check_kept(cpu_backend(), shape, 208, "32", kernel);
      check_kept(cpu_backend(), shape, 224, "64", kernel);
      check_kept(cpu_backend(), shape, 129, "1", kernel);
    }
  }
  check_kept(reference_backend(), kShapes[0], 160, "16", "5");
}

// A window that begins or ends inside a page: all pages that hold one of its tokens stay.
void snapkv__keeps_a_window_across_page_borders(void**) {
  for (const SimShape& shape : kShapes) {
    for (uint32_t n_prompt : {150u, 151u, 159u, 161u, 175u}) {
      for (const char* window : {"16", "32", "20", "47", "64"}) check_kept(cpu_backend(), shape, n_prompt, window, "5");
    }
  }
}

void snapkv__a_window_of_the_whole_budget_keeps_only_the_window(void**) {
  for (const SimShape& shape : kShapes) {
    const Inputs inputs(shape, 200, 72);
    for (uint32_t n_prompt : {192u, 185u}) {  // one that begins inside a page gives that page up: the count is exact
      Sim sim(cpu_backend(), inputs, snapkv("64", "64", "5"));
      sim.prefill(n_prompt);
      for (const auto& pages : sim.all_pages()) assert_true((pages == std::vector<uint32_t>{128, 144, 160, 176}));
    }
  }
}

// Any prompt length, in one chunk or several: the pages ascend, hold the last tokens, and are exactly as many as there
// is room for.
void snapkv__counts_are_exact(void**) {
  for (uint32_t batch : {512u, 64u, 48u}) {
    SimShape shape = {2, 2, 3, 64, batch, true};
    const Inputs inputs(shape, 420, 73);
    for (uint32_t n_prompt : {1u, 15u, 16u, 17u, 95u, 96u, 97u, 112u, 113u, 200u, 319u, 400u}) {
      Sim sim(cpu_backend(), inputs, snapkv("96", "32", "5"));
      sim.prefill(n_prompt);
      for (const auto& pages : sim.all_pages()) {
        assert_int_equal(pages.size(), std::min(6u, whole_pages(n_prompt)));
        assert_true(std::is_sorted(pages.begin(), pages.end()));
        const uint32_t last = whole_pages(n_prompt) - 1;
        for (uint32_t i = 0; i < std::min(last + 1, 2u); ++i)
          assert_int_equal(pages[pages.size() - 1 - i], (last - i) * kPageTokens);
      }
    }
  }
}

// A kernel of 1 is no pooling: a token's neighbours do not raise its score; with a wider kernel they do.
void snapkv__pooling_spreads_weight(void**) {
  const SimShape shape = {1, 1, 1, 64, 512, false};
  Inputs inputs(shape, 200, 74);
  // Channel 0 carries the logits; page 2 has one strong token, page 5 five that are a little weaker.
  for (uint32_t pos = 0; pos < 160; ++pos) {
    std::fill_n(inputs.q(0, pos), 64, 0.0f);
    std::fill_n(inputs.k(0, pos), 64, 0.0f);
    inputs.q(0, pos)[0] = 8.0f;
  }
  inputs.k(0, 40)[0] = 3.0f;
  for (uint32_t pos = 86; pos < 91; ++pos) inputs.k(0, pos)[0] = 2.5f;
  for (const char* kernel : {"1", "5"}) {
    Sim sim(cpu_backend(), inputs, snapkv("48", "32", kernel));
    sim.prefill(160);
    assert_true((sim.pages(0) == std::vector<uint32_t>{kernel[0] == '1' ? 32u : 80u, 128, 144}));
  }
}

// After the prompt the pages that stay never change, and the policy behind treats them as its prompt.
void snapkv__the_policy_behind_pins_what_stays(void**) {
  const Inputs inputs({2, 2, 4, 64, 512, true}, 700, 75);
  for (const char* overflow : {"auto", "compress"}) {
    Sim sim(cpu_backend(), inputs, {"raas", 192, 4096, 0, {{"overflow", overflow}}});
    sim.prefill(300);  // 19 pages, 8 of 12 are the prompt's
    const auto kept = sim.all_pages();
    for (const auto& pages : kept) assert_int_equal(pages.size(), 8);
    sim.steps(300);
    for (uint32_t s = 0; s < 4; ++s) {
      assert_int_equal(sim.pages(s).size(), 12);
      for (uint32_t i = 0; i < 8; ++i) assert_int_equal(sim.pages(s)[i], kept[s][i]);
    }
    assert_true(sim.kv.pages_resident_max() <= 12 * 4);
  }
}

// The soft caps that the op token_mass was told.
std::vector<float>& told_caps() {
  static std::vector<float> caps;
  return caps;
}
Status listening_token_mass(OpContext& cx, const TokenMassArgs& a) {
  told_caps().push_back(a.soft_cap);
  return ref::token_mass(cx, a);
}

// The weights of prompt tokens come from logits with the layer's soft cap, for SnapKV and for the policies behind it.
void snapkv__every_weight_knows_the_soft_cap(void**) {
  const Inputs inputs({2, 2, 4, 64, 64, true}, 200, 77);
  Backend listening = reference_backend();
  listening.ops.token_mass = listening_token_mass;
  for (const char* behind : {"h2o", "tova"}) {
    told_caps().clear();
    Sim sim(listening, inputs,
            {behind, 192, 1024, 0, {{"skip_layers", "0"}, {"prompt", "snapkv"}, {"prompt_budget", "96"}}});
    sim.soft_cap = 3.0f;
    sim.prefill(190);
    assert_true(told_caps().size() >= 2 * 3 + 2);  // the policy's for three chunks, SnapKV's at least for the last
    for (float cap : told_caps()) assert_true(cap == 3.0f);
  }
}

void snapkv__stands_before_every_policy(void**) {
  const Inputs inputs({3, 2, 4, 64, 96, true}, 600, 76);
  const PolicySpec specs[] = {
      {"dense", 0, 1024, 0, {{"prompt", "snapkv"}, {"prompt_budget", "96"}}},
      {"sink", 256, 1024, 0, {{"positions", "abs"}, {"prompt", "snapkv"}, {"prompt_budget", "96"}}},
      {"h2o", 256, 1024, 0, {{"prompt", "snapkv"}, {"prompt_budget", "96"}}},
      {"tova", 256, 1024, 0, {{"scope", "stream"}, {"prompt", "snapkv"}, {"prompt_budget", "96"}}},
      {"quest", 96, 1024, 0, {{"prompt", "snapkv"}, {"prompt_budget", "192"}}},
      {"raas", 256, 1024, 0, {{"prompt", "snapkv"}, {"prompt_budget", "96"}}},
      {"hybrid", 256, 1024, 256, {{"prompt", "snapkv"}, {"prompt_budget", "192"}}},
      {"random", 256, 1024, 0, {{"prompt", "snapkv"}, {"prompt_budget", "96"}}},
      {"keyformer", 256, 1024, 0, {{"prompt", "snapkv"}, {"prompt_budget", "96"}}},
      {"scissorhands", 256, 1024, 0, {{"prompt", "snapkv"}, {"prompt_budget", "96"}}},
      // With recall a prompt policy is refused (policy/test_policy_options); a budget for the context recalls nothing.
      {"arkvale", 1024, 1024, 0, {{"prompt", "snapkv"}, {"prompt_budget", "192"}}},
      {"arkvale",
       1024,
       1024,
       0,
       {{"attend", "top"}, {"recall_from", "5"}, {"prompt", "snapkv"}, {"prompt_budget", "96"}}},
      {"psa", 0, 1024, 0, {{"eps", "0.7"}, {"mb", "2"}, {"prompt", "snapkv"}, {"prompt_budget", "192"}}},
  };
  ASSERT_EVERY_POLICY_EXCEPT("lfps", specs, name);  // which keeps every token and refuses prompt policies
  for (const PolicySpec& spec : specs) {
    Sim sim(cpu_backend(), inputs, spec);
    const uint32_t n_keep = number(spec.options.back().value) / kPageTokens;
    sim.prefill(250);
    for (const auto& pages : sim.all_pages()) assert_int_equal(pages.size(), n_keep);
    sim.steps(100);
    sim.prefill(120);
    for (uint32_t s = 0; s < 6; ++s) {
      const StreamView v = sim.kv.stream(s);
      uint32_t n_prompt = 0;
      for (uint32_t row = 0; row < v.n_pages; ++row) n_prompt += (v.flags[row] & kPagePrompt) != 0 ? 1 : 0;
      assert_true(n_prompt <= n_keep);
      assert_true(v.n_pages <= v.capacity);
    }
    sim.steps(100);
    for (const auto& layer : sim.out) {
      for (float x : layer) assert_false(std::isnan(x));
    }
  }
}

// When no page had to leave, the sums of H2O behind it continue those of the prompt.
void snapkv__leaves_the_sums_of_h2o_alone_when_all_fits(void**) {
  const Inputs inputs({2, 2, 4, 64, 512, true}, 200, 77);
  Sim plain(cpu_backend(), inputs, {"h2o", 256, 1024, 0, {{"skip_layers", "0"}}});
  Sim behind(cpu_backend(), inputs,
             {"h2o", 256, 1024, 0, {{"skip_layers", "0"}, {"prompt", "snapkv"}, {"prompt_budget", "128"}}});
  for (Sim* sim : {&plain, &behind}) {
    sim->prefill(120);
    sim->steps(5);
  }
  for (uint32_t s = 0; s < 4; ++s) {
    for (uint32_t row = 0; row < 8; ++row)
      assert_true(plain.kv.stream(s).last_score[row] == behind.kv.stream(s).last_score[row]);
  }
}

// When pages have to leave, the sums of the other pages are still the attention that those received.
void snapkv__leaves_the_sums_of_h2o_alone_when_pages_leave(void**) {
  const Inputs inputs({2, 2, 4, 64, 512, true}, 300, 78);
  Sim plain(cpu_backend(), inputs, {"h2o", 384, 1024, 0, {{"skip_layers", "0"}}});
  Sim behind(cpu_backend(), inputs,
             {"h2o", 384, 1024, 0, {{"skip_layers", "0"}, {"prompt", "snapkv"}, {"prompt_budget", "128"}}});
  for (Sim* sim : {&plain, &behind}) sim->prefill(200);
  for (uint32_t s = 0; s < 4; ++s) {
    const StreamView all = plain.kv.stream(s), kept = behind.kv.stream(s);
    assert_int_equal(kept.n_pages, 8);
    for (uint32_t row = 0; row < kept.n_pages; ++row) {
      const float want = all.last_score[kept.first_pos[row] / kPageTokens];
      if (kept.last_score[row] != want) {
        fail_msg("stream %u: page %u starts the answer with %g, it drew %g", s, kept.first_pos[row],
                 double{kept.last_score[row]}, double{want});
      }
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(snapkv__keeps_what_the_window_looks_at),
      cmocka_unit_test(snapkv__keeps_a_window_across_page_borders),
      cmocka_unit_test(snapkv__a_window_of_the_whole_budget_keeps_only_the_window),
      cmocka_unit_test(snapkv__counts_are_exact),
      cmocka_unit_test(snapkv__pooling_spreads_weight),
      cmocka_unit_test(snapkv__the_policy_behind_pins_what_stays),
      cmocka_unit_test(snapkv__every_weight_knows_the_soft_cap),
      cmocka_unit_test(snapkv__stands_before_every_policy),
      cmocka_unit_test(snapkv__leaves_the_sums_of_h2o_alone_when_all_fits),
      cmocka_unit_test(snapkv__leaves_the_sums_of_h2o_alone_when_pages_leave),
  };
  return cmocka_run_group_tests_name("policy_snapkv", tests, nullptr, nullptr);
}
