// policy: AdaKV before another policy (docs/algorithms.md, "AdaKV"). A worked example of how heads share a layer's
// pages; the pages that stay against a plain computation in f64; the sum; and a share of 1, which is SnapKV.
#include "policy/snapkv.h"

#include <cstdio>

#include "tests/kv/cache_case.h"
#include "tests/policy/exact_attention.h"

namespace {

using namespace weir;
using namespace weir::test;

PolicySpec prompt_spec(const char* behind, const char* name, std::vector<weir_key_value> options, uint32_t budget) {
  PolicySpec spec = {behind, budget, 1024, 0, {{"prompt", name}, {"prompt_budget", "112"}, {"prompt_window", "32"}}};
  spec.options.insert(spec.options.end(), options.begin(), options.end());
  return spec;
}

// Heads with four pages each, before a window of one page; two of the four may stay in the mean, and the window. Before
// them, in tables of 8 pages, lie `n_pinned` pages of an answer, which the application pinned.
void check_shares(std::vector<std::vector<float>> scores, float alpha, std::vector<std::vector<uint32_t>> want,
                  uint32_t n_pinned = 0) {
  const auto n_heads = static_cast<uint32_t>(scores.size());
  KvShape shape = {1, n_heads, 8, 8};
  shape.prompt_scores = true;
  Cache cache(shape);
  const uint32_t end = (n_pinned + 5) * kPageTokens;
  if (n_pinned > 0) {
    cache.append(n_pinned * kPageTokens);
    assert_int_equal(cache.kv.set_flags(0, n_pinned * kPageTokens, kPageKept, 0), n_heads * n_pinned);
  }
  cache.append(5 * kPageTokens, kPagePrompt);
  for (uint32_t head = 0; head < n_heads; ++head) {
    float* score = cache.kv.stream(head).prompt_score;
    for (uint32_t row = 0; row < n_pinned + 5; ++row)
      score[row] = row >= n_pinned && row < n_pinned + 4 ? scores[head][row - n_pinned] : 0.0f;
  }
  PolicyConfig config;
  config.n_layers = 1;
  config.n_heads = config.n_kv_heads = n_heads;
  config.head_dim = 8;
  config.context_tokens = 8 * kPageTokens;
  char text[32];
  std::snprintf(text, sizeof(text), "%g", double{alpha});
  const weir_key_value options[] = {
      {"prompt", "ada"}, {"prompt_budget", "48"}, {"prompt_window", "16"}, {"prompt_alpha", text}};
  config.options = options;
  PolicyStorage storage;
  Policy* policy = nullptr;
  assert_true(make_policy("dense", config, storage, policy).ok());
  static_cast<const SnapKvPolicy*>(policy)->share_among_heads(cache.kv, 0, end);
  make_room(*policy, cache.kv, 0, Phase::kPromptEnd);
  for (uint32_t head = 0; head < n_heads; ++head) {
    const StreamView s = cache.kv.stream(head);
    want[head].push_back(4);
    for (uint32_t& page : want[head]) page += n_pinned;
    for (uint32_t page = 0; page < n_pinned; ++page) want[head].insert(want[head].begin() + page, page);
    if (s.n_pages != want[head].size()) fail_msg("head %u keeps %u pages, not %zu", head, s.n_pages, want[head].size());
    for (uint32_t row = 0; row < s.n_pages; ++row) assert_int_equal(s.first_pos[row], want[head][row] * kPageTokens);
  }
  policy->~Policy();
}

void ada__a_worked_example(void**) {
  check_shares({{.7f, .1f, .1f, .1f}, {.3f, .3f, .2f, .2f}}, 0.7f, {{0}, {0, 1, 2}});
  // No head has pages of its own but the window, and all have.
  check_shares({{.7f, .1f, .1f, .1f}, {.05f, .06f, .07f, .08f}}, 0.0f, {{0, 1, 2, 3}, {}});
  check_shares({{.7f, .1f, .1f, .1f}, {.05f, .06f, .07f, .08f}}, 0.7f, {{0, 1, 2}, {3}});
  check_shares({{.7f, .1f, .1f, .1f}, {.05f, .06f, .07f, .08f}}, 1.0f, {{0, 1}, {2, 3}});
  // Equal scores: the lower head, then the earlier page; and pages that nothing looks at.
  check_shares({{.5f, .5f, .5f, .5f}, {.5f, .5f, .5f, .5f}}, 0.0f, {{0, 1, 2, 3}, {}});
  check_shares({{0, 0, 0, 0}, {0, .1f, 0, 0}, {0, 0, 0, 0}}, 0.7f, {{0, 1, 2, 3}, {1}, {0}});
  // Pinned pages leave a table room for four pages and for the two that an answer needs. What one head cannot take
  // another one has: the sum is the same.
  check_shares({{.7f, .6f, .5f, .4f}, {.05f, .06f, .07f, .08f}}, 0.0f, {{0, 1, 2}, {3}}, 2);
  check_shares({{.7f, .6f, .5f, .4f}, {.05f, .06f, .07f, .08f}}, 0.0f, {{0, 1, 2, 3}, {}}, 1);
}

// Weight of every prompt token before the window, as in test_snapkv.cpp; the best of each page.
std::vector<double> page_scores(const Inputs& inputs, uint32_t layer, uint32_t kv_head, uint32_t n_prompt) {
  const uint32_t window = 32, group = inputs.shape.group, n = n_prompt - window;
  const ExactAttention exact(inputs);
  std::vector<double> mean(n), best(n / kPageTokens);
  for (uint32_t t = n; t < n_prompt; ++t) {
    for (uint32_t g = 0; g < group; ++g) {
      const std::vector<double> w = exact.causal(layer, kv_head * group + g, t);
      for (uint32_t j = 0; j < n; ++j) mean[j] += w[j] / window / group;
    }
  }
  for (int64_t j = 0; j < n; ++j) {
    double pooled = 0;
    for (int64_t at = std::max<int64_t>(0, j - 2); at <= j + 2 && at < n; ++at)
      pooled += mean[static_cast<size_t>(at)] / 5;
    double& page = best[static_cast<size_t>(j) / kPageTokens];
    page = std::max(page, pooled);
  }
  return best;
}

// A prompt of 13 pages; 7 pages in the mean, 2 of them the window's, `least` of any head.
void check_kept(const SimShape& shape, const char* alpha, uint32_t least) {
  const Inputs inputs(shape, 220, 71);
  Sim sim(cpu_backend(), inputs, prompt_spec("dense", "ada", {{"prompt_alpha", alpha}}, 0));
  sim.prefill(208);
  bool differ = false;
  for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    std::vector<std::pair<double, uint32_t>> all;  // negated score, head * 100 + page
    std::vector<std::vector<uint32_t>> want(shape.n_kv_heads);
    for (uint32_t head = 0; head < shape.n_kv_heads; ++head) {
      const std::vector<double> scores = page_scores(inputs, layer, head, 208);
      std::vector<std::pair<double, uint32_t>> own;
      for (uint32_t page = 0; page < 11; ++page) own.push_back({-scores[page], head * 100 + page});
      std::sort(own.begin(), own.end());
      for (uint32_t i = 0; i < 11; ++i) {
        if (i + 2 < least)
          want[head].push_back(own[i].second % 100 * kPageTokens);
        else
          all.push_back(own[i]);
      }
    }
    std::sort(all.begin(), all.end());
    uint32_t n_left = 7 * shape.n_kv_heads;
    for (const auto& pages : want) n_left -= static_cast<uint32_t>(pages.size()) + 2;
    for (uint32_t i = 0; i < n_left; ++i) want[all[i].second / 100].push_back(all[i].second % 100 * kPageTokens);
    for (uint32_t head = 0; head < shape.n_kv_heads; ++head) {
      for (uint32_t page : {11u, 12u}) want[head].push_back(page * kPageTokens);
      std::sort(want[head].begin(), want[head].end());
      differ = differ || want[head].size() != 7;
      assert_true(sim.pages(layer * shape.n_kv_heads + head) == want[head]);
    }
  }
  assert_true(differ || least >= 7 || shape.n_kv_heads == 1);
}

void ada__keeps_the_best_of_a_layer(void**) {
  for (const SimShape& shape :
       {SimShape{2, 2, 4, 64, 512, true}, SimShape{3, 3, 1, 64, 512, true}, SimShape{1, 1, 7, 64, 512, true}}) {
    check_kept(shape, "0", 0);
    check_kept(shape, "0.2", 1);
    check_kept(shape, "0.75", 5);
    check_kept(shape, "1", 7);
  }
}

void ada__a_share_of_one_is_snapkv(void**) {
  const Inputs inputs({3, 2, 4, 64, 96, true}, 600, 83);
  for (const char* behind : {"dense", "raas", "h2o", "quest", "random"}) {
    const uint32_t budget = std::strcmp(behind, "dense") == 0 ? 0 : 256;
    Sim even(cpu_backend(), inputs, prompt_spec(behind, "snapkv", {}, budget));
    Sim sim(cpu_backend(), inputs, prompt_spec(behind, "ada", {{"prompt_alpha", "1"}}, budget));
    assert_int_equal(sim.kv.shape().n_slots(), even.kv.shape().n_slots());
    for (Sim* s : {&even, &sim}) {
      s->prefill(250);
      s->steps(60);
    }
    assert_true(sim.all_pages() == even.all_pages());
    assert_same_outputs(sim, even, behind);
  }
}

// Behind it answers find room: the sum of a layer is that of SnapKV, no table has more than it holds, and what a policy
// must have for the answer is there.
void ada__sums_are_exact(void**) {
  for (uint32_t batch : {512u, 64u}) {
    const Inputs inputs({3, 3, 2, 64, batch, true}, 900, 84);
    for (const char* behind : {"raas", "random", "h2o", "dense"}) {
      const uint32_t budget = std::strcmp(behind, "dense") == 0 ? 0 : 256;
      Sim sim(cpu_backend(), inputs, prompt_spec(behind, "ada", {}, budget));
      for (uint32_t n_prompt : {300u, 130u, 40u}) {
        sim.prefill(n_prompt);
        for (uint32_t layer = 0; layer < 3; ++layer) {
          uint32_t n_prompt_pages = 0;
          for (uint32_t s = layer * 3; s < layer * 3 + 3; ++s) {
            const StreamView v = sim.kv.stream(s);
            uint32_t own = 0;
            for (uint32_t row = 0; row < v.n_pages; ++row) own += (v.flags[row] & kPagePrompt) != 0 ? 1 : 0;
            if (sim.needs().prompt_pages != 0) assert_true(own <= sim.needs().prompt_pages);
            assert_true(own >= 1 && v.n_pages <= v.capacity);
            n_prompt_pages += own;
          }
          assert_true(n_prompt_pages <= 21);
          if (n_prompt == 300) assert_int_equal(n_prompt_pages, 21);
        }
        sim.steps(100);
      }
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(ada__a_worked_example),
      cmocka_unit_test(ada__keeps_the_best_of_a_layer),
      cmocka_unit_test(ada__a_share_of_one_is_snapkv),
      cmocka_unit_test(ada__sums_are_exact),
  };
  return cmocka_run_group_tests_name("policy_ada", tests, nullptr, nullptr);
}
