// ops: the rules of attn_history by hand and by brute force, on the reference and on the CPU: which tokens are
// candidates, what a head attends, what its tables learn, when it looks at its sinks alone, and what all that is equal
// to in the extremes (docs/algorithms.md, "LFPS").
#include <iterator>

#include "tests/ops/history_case.h"

namespace weir::test {
namespace {

constexpr double kMaxNmse = 1e-11;  // f32 sums in another order and another exp

const Backend* const kBackends[] = {&reference_backend(), &cpu_backend()};

std::vector<uint32_t> first_numbers(uint32_t n) {
  std::vector<uint32_t> all(n);
  for (uint32_t i = 0; i < n; ++i) all[i] = i;
  return all;
}
// Positions of sinks and of these tokens.
std::vector<uint32_t> positions_of(const HistoryCase& c, const std::vector<uint32_t>& tokens) {
  std::vector<uint32_t> positions = first_numbers(c.n_sink());
  for (uint32_t token : tokens) positions.push_back(token + c.n_sink());
  return positions;
}

// One head whose tables are written by hand. More tokens are attended than are candidates, so that the choice is the
// candidates.
struct ByHand {
  static constexpr uint32_t kTokens = 50;
  static HistorySpec spec(uint32_t group = 1) {
    HistorySpec s;
    s.n_kv_heads = 1;
    s.group = group;
    s.head_dim = 8;
    s.n_start = kTokens + s.rules.n_sink;
    s.n_steps = 0;
    s.rules.eta = 1.0f;
    s.rules.n_recent = 2;
    s.size = {40, 30};
    return s;
  }
  explicit ByHand(const HistorySpec& s) : c(s, 1), t(c.tables()) {
    c.begin(reference_backend(), t);
    for (uint32_t head = 0; head < s.group; ++head) {
      t.heads[head] = {};
      for (auto& table : tables[head]) table.assign(kTokens, 0.0f);
    }
  }
  std::vector<uint32_t> candidates(const Backend& backend, uint32_t head = 0) {
    HistoryTables copy = t;
    for (uint32_t h = 0; h < c.spec.group; ++h) {
      for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) copy.set(h, kind, tables[h][kind], floor);
    }
    return c.step(backend, copy).chosen[head];
  }
  HistoryCase c;
  HistoryTables t;
  float floor = 0.5f;
  std::vector<float> tables[4][kHistoryKinds];
};

using Tokens = std::vector<uint32_t>;

void candidates_by_hand(void**) {
  for (const Backend* backend : kBackends) {
    ByHand h(ByHand::spec());
    assert_true(h.candidates(*backend) == Tokens({48, 49}));
    auto &position = h.tables[0][kByPosition], &distance = h.tables[0][kByDistance];
    position[10] = 1.0f;
    assert_true(h.candidates(*backend) == Tokens({10, 48, 49}));
    distance[7] = 1.0f;  // token 49 - 7
    assert_true(h.candidates(*backend) == Tokens({10, 42, 48, 49}));
    position[30] = 0.5f;  // not above the floor
    assert_true(h.candidates(*backend) == Tokens({10, 42, 48, 49}));
    // Neighbours at -1, 1 and 2 that are above the mean of a table. The means are near 0.03 and 0.02.
    position[9] = position[11] = position[12] = position[8] = position[13] = 0.04f;
    assert_true(h.candidates(*backend) == Tokens({9, 10, 11, 12, 42, 48, 49}));
    position[11] = 0.03f;
    assert_true(h.candidates(*backend) == Tokens({9, 10, 12, 42, 48, 49}));
    distance[49 - 11] = 0.03f;
    assert_true(h.candidates(*backend) == Tokens({9, 10, 11, 12, 42, 48, 49}));
    position[43] = 0.1f;  // a neighbour of what the distances found, by the positions
    assert_true(h.candidates(*backend) == Tokens({9, 10, 11, 12, 42, 43, 48, 49}));
  }
}

// Nothing wraps at either end: neither the first token's neighbour before it, nor the last one's behind it.
void neighbours_out_of_range_are_dropped(void**) {
  for (const Backend* backend : kBackends) {
    HistorySpec s = ByHand::spec();
    s.rules.n_recent = 1;
    ByHand first(s);
    std::fill(first.tables[0][kByPosition].begin(), first.tables[0][kByPosition].end(), 0.4f);
    std::fill(first.tables[0][kByDistance].begin(), first.tables[0][kByDistance].end(), 0.4f);
    first.tables[0][kByPosition][20] = 0.0f;  // so that the mean is below 0.4
    first.tables[0][kByDistance][20] = 0.0f;
    ByHand last = first, both = first;
    first.tables[0][kByPosition][0] = 0.45f;
    first.floor = 0.42f;
    assert_true(first.candidates(*backend) == Tokens({0, 1, 2, 49}));
    last.tables[0][kByDistance][1] = 0.45f;  // token 48: 47 before, 49 and no more behind
    last.floor = 0.42f;
    assert_true(last.candidates(*backend) == Tokens({47, 48, 49}));
    both.tables[0][kByDistance][49] = 0.45f;  // token 0 again
    both.floor = 0.42f;
    assert_true(both.candidates(*backend) == Tokens({0, 1, 2, 49}));
  }
}

// Room for candidates is for what is listed; neighbours share what is left, heads in turn. The heads of a group attend
// each other's candidates.
void candidates_of_a_group(void**) {
  for (const Backend* backend : kBackends) {
    HistorySpec s = ByHand::spec(2);
    ByHand h(s);
    h.tables[0][kByPosition][10] = 1.0f;
    h.tables[1][kByPosition][20] = 1.0f;
    h.tables[0][kByPosition][9] = h.tables[0][kByPosition][11] = 0.3f;
    h.tables[1][kByPosition][19] = h.tables[1][kByPosition][22] = 0.3f;
    h.tables[1][kByPosition][12] = 0.3f;  // a neighbour of the other head's token
    const Tokens all = {9, 10, 11, 19, 20, 22, 48, 49};
    for (uint32_t head = 0; head < 2; ++head) assert_true(h.candidates(*backend, head) == all);
    const Tokens by_room[] = {
        {10, 20, 48, 49}, {9, 10, 20, 48, 49}, {9, 10, 11, 20, 48, 49}, {9, 10, 11, 19, 20, 48, 49}};
    for (uint32_t room = 2; room < 6; ++room) {
      h.c.spec.size.candidates = room;
      assert_true(h.candidates(*backend, 1) == by_room[room - 2]);
    }
    h.c.spec.size.candidates = 1;  // what is listed is never left out
    assert_true(h.candidates(*backend) == by_room[0]);
    h.c.spec.size.candidates = ByHand::kTokens;
    assert_int_equal(h.candidates(*backend).size(), s.size.top);
  }
}

// Pinned pages are attended besides the others, the tokens behind the sinks of the first one too.
void pinned_tokens_are_attended_besides(void**) {
  for (const Backend* backend : kBackends) {
    ByHand h(ByHand::spec());
    h.tables[0][kByPosition][40] = h.tables[0][kByPosition][20] = 1.0f;
    h.c.flags[0] |= kPageKept;  // positions 0 to 15, of which 4 are sinks
    h.c.flags[2] |= kPageKept;  // tokens 28 to 43
    h.c.spec.size.top = 1;
    Tokens want = first_numbers(12);
    for (uint32_t i = 28; i < 44; ++i) want.push_back(i);
    const Tokens got = h.candidates(*backend);
    Tokens besides;
    std::set_difference(got.begin(), got.end(), want.begin(), want.end(), std::back_inserter(besides));
    assert_int_equal(got.size(), want.size() + 1);
    assert_int_equal(besides.size(), 1);
    assert_true(besides[0] == 20 || besides[0] == 48 || besides[0] == 49);
  }
}

// With thresholds: entries above mean + lambda * deviation / (2 * share). Both tables are alike but for where their
// peaks are, so that both shares are a half.
void thresholds_by_hand(void**) {
  for (const Backend* backend : kBackends) {
    HistorySpec s = ByHand::spec();
    s.rules.by_threshold = true;
    s.rules.position_share = 0.0f;  // by what stands out
    s.rules.n_recent = 1;
    ByHand h(s);
    h.floor = 0.0f;
    for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
      for (uint32_t i = 0; i < 50; ++i) h.tables[0][kind][i] = i % 2 == 0 ? 0.1f : 0.3f;
    }
    // The mean is 0.2 and the deviation 0.1: odd entries are above 0.2 + lambda * 0.1 for lambda below 1.
    h.c.spec.rules.lambda = 0.9f;
    assert_int_equal(h.candidates(*backend).size(), s.size.top);
    h.c.spec.rules.lambda = 1.1f;
    assert_true(h.candidates(*backend) == Tokens({49}));
    h.tables[0][kByPosition][21] = 0.31f;
    h.tables[0][kByDistance][20] = 0.11f;  // the same moments, nearly
    h.c.spec.rules.lambda = 1.05f;
    // 21 and its neighbours that are above a mean.
    assert_true(h.candidates(*backend) == Tokens({20, 21, 22, 23, 49}));
    // The table by distance has no part: its peak counts for nothing, whatever the height.
    h.c.spec.rules.position_share = 1.0f;
    h.c.spec.rules.lambda = 0.0f;
    for (uint32_t i = 0; i < 50; ++i) h.tables[0][kByPosition][i] = 0.0f;
    h.tables[0][kByDistance][20] = 5.0f;
    assert_true(h.candidates(*backend) == Tokens({49}));
  }
}

// All keys are candidates: those that are attended are exactly the highest ones, by brute force.
void all_candidates_are_exact_top_k(void**) {
  for (const Backend* backend : kBackends) {
    HistorySpec s;
    s.size = {1u << 20, 17};
    s.rules.eta = 1.0f;
    HistoryCase c(s, 5);
    HistoryTables t = c.tables();
    c.begin(*backend, t);
    while (c.n_tokens < c.n_all) {
      c.append();
      const HistoryStep got = c.step(*backend, t);
      for (uint32_t head = 0; head < s.n_heads(); ++head) {
        Tokens order = first_numbers(c.n());
        std::vector<double> logit;
        for (uint32_t token = 0; token < c.n(); ++token) logit.push_back(c.logit(head, token + c.n_sink()));
        std::sort(order.begin(), order.end(), [&](uint32_t x, uint32_t y) { return logit[x] > logit[y]; });
        assert_true(logit[order[16]] - logit[order[17]] > 1e-5);  // no near tie among these inputs
        order.resize(17);
        std::sort(order.begin(), order.end());
        assert_true(got.chosen[head] == order);
        assert_int_equal(got.n_read[head / s.group], c.n_tokens);
        const std::vector<float> want = c.attention(head, positions_of(c, order));
        assert_true(close_enough("top-k", &got.out[size_t{head} * s.head_dim], want.data(), s.head_dim, kMaxNmse));
      }
    }
  }
}

// When logits are equal, the earlier one is attended.
void the_earlier_of_equals(void**) {
  for (const Backend* backend : kBackends) {
    HistorySpec s = ByHand::spec();
    s.size = {ByHand::kTokens, 5};
    ByHand h(s);
    std::fill(h.c.q.begin(), h.c.q.end(), 0.0f);
    assert_true(h.candidates(*backend) == Tokens({0, 1, 2, 3, 4}));
  }
}

// Room for all tokens and no bypass: dense attention.
void all_room_is_dense(void**) {
  for (const Backend* backend : kBackends) {
    for (bool by_threshold : {false, true}) {
      for (bool bent : {false, true}) {
        for (uint32_t n_start : {1u, 3u, 5u, 15u, 100u}) {
          HistorySpec s;
          s.rules.by_threshold = by_threshold;
          s.rules.eta = 1.0f;
          s.sinks = bent;
          s.soft_cap = bent ? 5.0f : 0.0f;
          s.n_start = n_start;
          s.n_steps = 10;
          s.size = {1u << 20, 1u << 20};
          HistoryCase c(s, 6);
          HistoryTables t = c.tables();
          c.begin(*backend, t);
          while (c.n_tokens < c.n_all) {
            c.append();
            const HistoryStep got = c.step(*backend, t);
            std::vector<float> paged(got.out.size(), NAN);
            Machine machine(*backend, c.shapes());
            machine.check(backend->ops.attn_paged(machine.cx(), c.attn_args(paged.data())));
            assert_true(close_enough("dense", got.out.data(), paged.data(), paged.size(), kMaxNmse));
          }
        }
      }
    }
  }
}

// The recent tokens are always candidates: with nothing in the tables a head attends them and the sinks.
void nothing_known_is_a_window(void**) {
  for (const Backend* backend : kBackends) {
    HistorySpec s;
    s.n_start = 200;
    s.rules.eta = 1.0f;
    s.rules.n_recent = 7;
    HistoryCase c(s, 8);
    HistoryTables t = c.tables();
    const HistoryStep got = c.step(*backend, t);
    const Tokens want = {189, 190, 191, 192, 193, 194, 195};
    for (uint32_t head = 0; head < s.n_heads(); ++head) {
      assert_true(got.chosen[head] == want);
      const std::vector<float> o = c.attention(head, positions_of(c, want));
      assert_true(close_enough("window", &got.out[size_t{head} * s.head_dim], o.data(), s.head_dim, kMaxNmse));
    }
    assert_int_equal(got.n_read[0], 4 + 7);
  }
}

// What a step teaches: gamma times what there was, and half of the weights over the chosen tokens, without the sinks'.
void learns_by_the_rule(void**) {
  for (const Backend* backend : kBackends) {
    HistorySpec s;
    s.rules.eta = 1.0f;
    s.rules.gamma = 0.7f;
    s.n_start = 120;
    HistoryCase c(s, 9);
    HistoryTables t = c.tables();
    c.begin(*backend, t);
    while (c.n_tokens < c.n_all) {
      c.append();
      HistoryTables before = t;
      const HistoryStep got = c.step(*backend, t);
      for (uint32_t head = 0; head < s.n_heads(); ++head) {
        Tokens positions;
        for (uint32_t token : got.chosen[head]) positions.push_back(token + c.n_sink());
        std::vector<double> share;
        (void)c.attention(head, positions, &share);
        for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
          std::vector<float> want = before.weights(head, kind, c.n() - 1);
          want.push_back(0.0f);  // the new token, or the new distance
          for (float& x : want) x *= 0.7f;
          for (size_t i = 0; i < share.size(); ++i) {
            const uint32_t token = got.chosen[head][i];
            want[kind == kByPosition ? token : c.n() - 1 - token] += static_cast<float>(0.5 * share[i]);
          }
          const std::vector<float> now = t.weights(head, kind, c.n());
          assert_true(close_enough("learned", now.data(), want.data(), c.n(), 1e-10));  // logits near 20 in f32
        }
      }
    }
  }
}

// With the decay of 0.95 a table adds up to 10 for ever, and with another to 1 / (2 * (1 - gamma)); a bypassed step
// changes no bit of it.
void tables_add_up_to_the_same(void**) {
  for (const Backend* backend : kBackends) {
    for (const float gamma : {0.95f, 0.5f}) {
      HistorySpec s;
      s.n_steps = 60;
      s.rules.gamma = gamma;
      const double steady = gamma == 0.95f ? 10.0 : 1.0;
      HistoryCase c(s, 10);
      HistoryTables t = c.tables();
      c.begin(*backend, t);
      while (c.n_tokens < c.n_all) {
        c.append();
        const bool bypass = c.n_tokens % 3 == 0;
        c.spec.rules.eta = bypass ? 0.0f : 1.0f;
        HistoryTables before = t;
        const HistoryStep got = c.step(*backend, t);
        for (uint32_t head = 0; head < s.n_heads(); ++head) {
          assert_int_equal(got.chosen[head].empty(), bypass);
          for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
            assert_true(std::fabs(t.sum(head, kind, c.n()) - steady) < 1e-4 * steady);
            if (!bypass) continue;
            assert_memory_equal(t.view().entries_of(head, kind), before.view().entries_of(head, kind),
                                (c.n() - 1) * sizeof(float));
            assert_true(t.entry(head, kind, c.n() - 1) == 0.0f);
          }
        }
        if (bypass) {
          assert_memory_equal(t.heads.data(), before.heads.data(), t.heads.size() * sizeof(HeadHistory));
          assert_true(t.lists == before.lists);
        }
      }
    }
  }
}

// The share of the sinks is estimated from the exact sum over them, from the mean of all other keys and the spread of
// their logits, and from the recent tokens; above eta the output is that blend.
void bypass_by_the_formula(void**) {
  for (const Backend* backend : kBackends) {
    for (bool bent : {false, true}) {
      HistorySpec s;
      s.key_scale = 1.0f;
      s.sink_pull = 5.0f;
      s.sinks = bent;
      s.soft_cap = bent ? 10.0f : 0.0f;
      HistoryCase c(s, 13);
      HistoryTables t = c.tables();
      c.begin(*backend, t);
      c.append();
      const uint32_t d = s.head_dim, n = c.n();
      for (uint32_t head = 0; head < s.n_heads(); ++head) {
        double sinks = bent ? std::exp(double{c.sinks[head]}) : 0.0, recent = 0.0, dot = 0.0, square = 0.0;
        std::vector<double> blend(d, 0.0), mean(d, 0.0);
        for (uint32_t pos = 0; pos < 4; ++pos) {
          const double weight = std::exp(c.logit(head, pos));
          sinks += weight;
          for (uint32_t e = 0; e < d; ++e) blend[e] += weight * double{bf16_to_f32(c.value(head / s.group, pos)[e])};
        }
        for (uint32_t i = 0; i < 5; ++i) recent += std::exp(c.logit(head, c.n_tokens - 1 - i));
        for (uint32_t e = 0; e < d; ++e) {
          double key = 0.0;
          for (uint32_t pos = 4; pos < c.n_tokens; ++pos) {
            key += double{bf16_to_f32(c.key(head / s.group, pos)[e])} / n;
            mean[e] += double{bf16_to_f32(c.value(head / s.group, pos)[e])} / n;
          }
          const double x = c.query(head, c.n_tokens - 1)[e];
          dot += x * key * double{c.scale};
          square += x * x;
        }
        if (bent) dot = 10.0 * std::tanh(dot / 10.0);
        const double others = n * std::exp(dot + 0.5 * double{t.heads[head].spread} * square);
        const double share = sinks / (sinks + std::max(others, recent));
        assert_true(share > 0.0 && share < 1.0);
        std::vector<float> want(d);
        for (uint32_t e = 0; e < d; ++e)
          want[e] = static_cast<float>(share * blend[e] / sinks + (1.0 - share) * mean[e]);
        for (const double off : {-1e-4, 1e-4}) {
          c.spec.rules.eta = static_cast<float>(share + off);
          HistoryTables copy = t;
          const HistoryStep got = c.step(*backend, copy);
          assert_int_equal(got.chosen[head].empty(), off < 0.0);
          const double nmse = difference(&got.out[size_t{head} * d], want.data(), d).nmse;
          assert_true(off < 0.0 ? nmse < 1e-10 : nmse > 1e-6);
        }
      }
    }
  }
}

// A head that could attend everything is never bypassed.
void room_for_all_is_never_bypassed(void**) {
  for (const Backend* backend : kBackends) {
    HistorySpec s;
    s.rules.eta = 0.0f;
    s.n_start = 28;
    s.size = {60, 30};
    HistoryCase c(s, 14);
    HistoryTables t = c.tables();
    c.begin(*backend, t);
    while (c.n_tokens < c.n_all) {
      c.append();
      for (const std::vector<uint32_t>& chosen : c.step(*backend, t).chosen)
        assert_int_equal(chosen.size(), c.n() <= 30 ? c.n() : 0);
    }
  }
}

// What is attended at a distance of 37 is found by the table of distances alone: the one of positions is wiped before
// every step.
void a_slash_is_found_by_distance(void**) {
  for (const Backend* backend : kBackends) {
    HistorySpec s;
    s.n_kv_heads = 1;
    s.group = 2;
    s.key_scale = 1.0f;
    s.n_steps = 40;
    s.rules.eta = 1.0f;
    HistoryCase c(s, 15);
    for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
      c.rewind_to(c.n_all);
      for (uint32_t pos = 37; pos < c.n_all; ++pos) {
        for (uint32_t e = 0; e < s.group * s.head_dim; ++e)
          c.q[size_t{pos} * s.group * s.head_dim + e] = 2.0f * bf16_to_f32(c.key(0, pos - 37)[e % s.head_dim]);
      }
      c.rewind_to(s.n_start);
      HistoryTables t = c.tables();
      c.begin(*backend, t);
      uint32_t n_found = 0;
      while (c.n_tokens < c.n_all) {
        c.append();
        for (uint32_t head = 0; head < s.group; ++head) t.set(head, kind, std::vector<float>(c.n(), 0.0f), 0.0f);
        const HistoryStep got = c.step(*backend, t);
        const uint32_t token = c.n() - 1 - 37;
        for (uint32_t head = 0; head < s.group; ++head)
          n_found += std::binary_search(got.chosen[head].begin(), got.chosen[head].end(), token) ? 1 : 0;
      }
      // The other table knows nothing of a token before it is attended.
      if (kind == kByPosition) assert_int_equal(n_found, s.group * s.n_steps);
      if (kind == kByDistance) assert_true(n_found < s.n_steps / 2);
    }
  }
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  const CMUnitTest tests[] = {
      {"attn_history__candidates_by_hand", candidates_by_hand, nullptr, nullptr, nullptr},
      {"attn_history__neighbours_out_of_range_are_dropped", neighbours_out_of_range_are_dropped, nullptr, nullptr,
       nullptr},
      {"attn_history__candidates_of_a_group", candidates_of_a_group, nullptr, nullptr, nullptr},
      {"attn_history__pinned_tokens_are_attended_besides", pinned_tokens_are_attended_besides, nullptr, nullptr,
       nullptr},
      {"attn_history__thresholds_by_hand", thresholds_by_hand, nullptr, nullptr, nullptr},
      {"attn_history__all_candidates_are_exact_top_k", all_candidates_are_exact_top_k, nullptr, nullptr, nullptr},
      {"attn_history__the_earlier_of_equals", the_earlier_of_equals, nullptr, nullptr, nullptr},
      {"attn_history__all_room_is_dense", all_room_is_dense, nullptr, nullptr, nullptr},
      {"attn_history__nothing_known_is_a_window", nothing_known_is_a_window, nullptr, nullptr, nullptr},
      {"attn_history__learns_by_the_rule", learns_by_the_rule, nullptr, nullptr, nullptr},
      {"attn_history__tables_add_up_to_the_same", tables_add_up_to_the_same, nullptr, nullptr, nullptr},
      {"attn_history__bypass_by_the_formula", bypass_by_the_formula, nullptr, nullptr, nullptr},
      {"attn_history__room_for_all_is_never_bypassed", room_for_all_is_never_bypassed, nullptr, nullptr, nullptr},
      {"attn_history__a_slash_is_found_by_distance", a_slash_is_found_by_distance, nullptr, nullptr, nullptr},
  };
  const char* filter = std::getenv("WEIR_TEST_FILTER");
  if (filter != nullptr) cmocka_set_test_filter(filter);
  return cmocka_run_group_tests_name("ops_attn_history_rules", tests, nullptr, nullptr);
}
