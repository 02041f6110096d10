// policy: LFPS in a session (docs/algorithms.md, "LFPS"). Nothing ever leaves; with room for all it is dense attention;
// what lies at a distance is found by the distance; a head that attends its sinks alone learns nothing; chunks of a
// prompt end with the rows that the tables begin with. The rules themselves are tested with the operation
// (tests/ops/test_attn_history_rules.cpp).
#include <cstdlib>

#include "tests/policy/policy_test.h"
#include "tests/policy/session_sim.h"

namespace {

using namespace weir;
using namespace weir::test;

// Squares of differences to `want`, by the squares of `want`, over what follows the first `n_skipped` positions.
double distance(const Sim& got, const Sim& want, uint32_t layer, uint32_t n_skipped) {
  const std::vector<float>&x = got.out[layer], &y = want.out[layer];
  assert_int_equal(x.size(), y.size());
  double error = 0.0, power = 0.0;
  for (size_t i = size_t{n_skipped} * got.shape.n_heads() * got.shape.head_dim; i < x.size(); ++i) {
    error += (double{x[i]} - double{y[i]}) * (double{x[i]} - double{y[i]});
    power += double{y[i]} * double{y[i]};
  }
  return std::isnan(error) ? INFINITY : error / power;
}

// All candidates, as many attended as there are, and no bypass.
void lfps__all_room_is_dense(void**) {
  for (const Backend* backend : kBackends) {
    for (const SimShape& shape : {SimShape{3, 2, 3, 64, 512, true}, SimShape{2, 1, 7, 128, 24, true}}) {
      const Inputs inputs(shape, 160, 61);
      for (uint32_t n_prompt : kRaggedPrompts) {
        Sim dense(*backend, inputs, {"dense", 0, 1024, 0, {}});
        dense.prefill(n_prompt);
        dense.steps(34);
        for (const char* mode : {"quota", "threshold"}) {
          Sim sim(*backend, inputs, {"lfps", 1024, 1024, 0, {{"eta", "1"}, {"candidates", mode}}});
          sim.prefill(n_prompt);
          sim.steps(34);
          assert_int_equal(sim.n_evicted, 0);
          // f32 sums in another order
          for (uint32_t layer = 0; layer < shape.n_layers; ++layer) assert_true(distance(sim, dense, layer, 0) < 1e-11);
        }
      }
    }
  }
}

// Budgets are of tokens, and hold for every head that is not bypassed.
void lfps__attends_the_budget(void**) {
  const Inputs inputs({2, 2, 3, 64, 48, true}, 300, 62);
  for (const char* mode : {"quota", "threshold"}) {
    Sim sim(cpu_backend(), inputs, {"lfps", 40, 1024, 0, {{"eta", "1"}, {"candidates", mode}, {"skip_layers", "1"}}});
    Sim dense(cpu_backend(), inputs, {"dense", 0, 1024, 0, {}});
    uint32_t n_seen = 0;
    sim.on_layer = [&](uint32_t layer) {
      const uint32_t n = sim.n_tokens() + 1 - 4;
      for (uint32_t head = 0; layer == 1 && head < 6; ++head) {
        ++n_seen;
        const std::vector<uint32_t> chosen = sim.chosen(head);
        assert_true(chosen.size() <= 40 && chosen.size() >= 5);
        assert_true(std::is_sorted(chosen.begin(), chosen.end()) && chosen.back() < n);
        assert_true(sim.n_read(head) <= n + 4);
        if (n <= 40) assert_int_equal(chosen.size(), n);
      }
    };
    for (Sim* s : {&sim, &dense}) {
      s->prefill(30);
      s->steps(200);
    }
    assert_int_equal(n_seen, 200 * 6);
    assert_int_equal(sim.n_evicted, 0);
    assert_true(sim.out[0] == dense.out[0]);  // a layer that is left dense
    assert_true(distance(sim, dense, 1, 100) > 1e-4);
  }
}

// Queries look for the key 37 positions before them, in every head. A token's own position teaches nothing before it is
// attended, so it is the distance that finds it.
void lfps__finds_a_slash(void**) {
  const SimShape shape = {2, 2, 3, 64, 64, false};
  Inputs inputs(shape, 400, 63);
  for (uint32_t layer = 0; layer < 2; ++layer) {
    for (uint32_t pos = 37; pos < 400; ++pos) {
      for (uint32_t i = 0; i < 6 * 64; ++i)
        inputs.q(layer, pos)[i] = 2.0f * inputs.k(layer, pos - 37)[i / (3 * 64) * 64 + i % 64];
    }
  }
  for (const Backend* backend : kBackends) {
    for (const char* mode : {"quota", "threshold"}) {
      Sim sim(*backend, inputs, {"lfps", 32, 1024, 0, {{"candidates", mode}, {"quota", "100"}, {"eta", "1"}}});
      uint32_t n_found = 0, n_read = 0;
      sim.on_layer = [&](uint32_t) {
        const uint32_t token = sim.n_tokens() - 37 - 4;
        for (uint32_t head = 0; head < 6; ++head) {
          const std::vector<uint32_t> chosen = sim.chosen(head);
          n_found += std::binary_search(chosen.begin(), chosen.end(), token) ? 1 : 0;
          n_read += sim.n_read(head);
        }
      };
      sim.prefill(300);
      sim.steps(80);
      assert_int_equal(n_found, 80 * 2 * 6);
      assert_true(n_read < 80 * 2 * 6 * 300 / 2);  // not because all were read
    }
  }
}

// Some tokens are attended by all queries; the prompt's last rows tell which.
void lfps__finds_what_always_matters(void**) {
  const SimShape shape = {1, 2, 3, 64, 64, false};
  Inputs inputs(shape, 400, 64);
  Numbers numbers(5);
  std::vector<float> along(64);
  for (float& x : along) x = numbers.normal();
  const uint32_t heavy[] = {50, 111, 197};
  for (uint32_t pos = 0; pos < 400; ++pos) {
    for (uint32_t i = 0; i < 6 * 64; ++i) inputs.q(0, pos)[i] += along[i % 64];
  }
  for (uint32_t pos : heavy) {
    for (uint32_t i = 0; i < 2 * 64; ++i) inputs.k(0, pos)[i] += along[i % 64];
  }
  Sim sim(cpu_backend(), inputs, {"lfps", 32, 1024, 0, {{"eta", "1"}, {"skip_layers", "0"}}});
  uint32_t n_found = 0;
  sim.on_layer = [&](uint32_t) {
    for (uint32_t head = 0; head < 6; ++head) {
      const std::vector<uint32_t> chosen = sim.chosen(head);
      for (uint32_t pos : heavy) n_found += std::binary_search(chosen.begin(), chosen.end(), pos - 4) ? 1 : 0;
    }
  };
  sim.prefill(300);
  sim.steps(80);
  assert_true(n_found > 80 * 6 * 3 * 95 / 100);
}

// Heads whose sinks have nearly all attention look at them alone, learn nothing, and are near dense attention.
void lfps__sinks_are_enough(void**) {
  const SimShape shape = {1, 2, 3, 64, 64, false};
  Inputs inputs(shape, 400, 65);
  Numbers numbers(6);
  std::vector<float> along(64);
  for (float& x : along) x = numbers.normal();
  for (uint32_t pos = 0; pos < 400; ++pos) {
    for (uint32_t i = 0; i < 6 * 64; ++i) inputs.q(0, pos)[i] = along[i % 64] + 0.3f * inputs.q(0, pos)[i];
  }
  for (uint32_t pos = 0; pos < 4; ++pos) {
    for (uint32_t i = 0; i < 2 * 64; ++i) inputs.k(0, pos)[i] = 1.5f * along[i % 64];
  }
  for (const Backend* backend : kBackends) {
    Sim sim(*backend, inputs, {"lfps", 32, 1024, 0, {{"skip_layers", "0"}}});
    Sim dense(*backend, inputs, {"dense", 0, 1024, 0, {}});
    sim.prefill(300);
    dense.prefill(300);
    const HistoryView view = sim.kv.history(0);
    const std::vector<HeadHistory> heads(view.heads, view.heads + 6);
    const std::vector<float> entries(view.entries, view.entries_of(6, 0));
    sim.on_layer = [&](uint32_t) {
      for (uint32_t head = 0; head < 6; ++head) {
        assert_int_equal(sim.chosen(head).size(), 0);
        assert_int_equal(sim.n_read(head), 4 + 5);
      }
    };
    sim.steps(80);
    dense.steps(80);
    assert_memory_equal(view.heads, heads.data(), 6 * sizeof(HeadHistory));
    for (uint32_t head = 0; head < 6; ++head) {
      for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
        const float* now = view.entries_of(head, kind);
        assert_memory_equal(now, &entries[static_cast<size_t>(now - view.entries)], 296 * sizeof(float));
      }
    }
    assert_true(distance(sim, dense, 0, 300) < 0.01);
  }
}

// Tables begin alike however the prompt came, and as before whatever came before it.
void lfps__begins_with_the_last_prompt(void**) {
  std::vector<HeadHistory> heads;
  std::vector<float> out;
  for (uint32_t batch : {512u, 64u, 24u, 20u}) {
    const Inputs inputs({2, 2, 3, 64, batch, true}, 400, 66);
    Sim sim(cpu_backend(), inputs, {"lfps", 32, 1024, 0, {{"skip_layers", "0"}}});
    sim.prefill(205);
    const HistoryView view = sim.kv.history(1);
    const std::vector<HeadHistory> now(view.heads, view.heads + 6);
    if (!heads.empty()) assert_memory_equal(now.data(), heads.data(), 6 * sizeof(HeadHistory));
    heads = now;
    sim.steps(20);
    const std::vector<float> tail(sim.out[1].end() - 20 * 6 * 64, sim.out[1].end());
    if (!out.empty()) assert_true(tail == out);
    out = tail;
  }
  const Inputs inputs({2, 2, 3, 64, 64, true}, 400, 66);
  for (const bool stepped : {false, true}) {
    Sim sim(cpu_backend(), inputs, {"lfps", 32, 1024, 0, {{"skip_layers", "0"}}});
    sim.prefill(100);
    stepped ? sim.steps(30) : sim.prefill(30);
    sim.prefill(75);
    const HistoryView view = sim.kv.history(1);
    assert_memory_equal(view.heads, heads.data(), 6 * sizeof(HeadHistory));
  }
}

void lfps__backends_agree(void**) {
  const Inputs inputs({2, 2, 3, 64, 48, true}, 300, 67);
  for (const char* mode : {"quota", "threshold"}) {
    std::vector<std::vector<uint32_t>> chosen[2];
    for (uint32_t i = 0; i < 2; ++i) {
      Sim sim(*kBackends[i], inputs, {"lfps", 40, 1024, 0, {{"candidates", mode}, {"skip_layers", "0"}}});
      sim.on_layer = [&](uint32_t) {
        for (uint32_t head = 0; head < 6; ++head) chosen[i].push_back(sim.chosen(head));
      };
      sim.prefill(200);
      sim.steps(60);
    }
    uint32_t n_differ = 0;
    for (size_t i = 0; i < chosen[0].size(); ++i) n_differ += chosen[0][i] != chosen[1][i] ? 1 : 0;
    assert_true(n_differ * 100 < chosen[0].size());  // near ties of random logits
  }
}

// Every chunk but the last is as large as it may be, or leaves the rows that the tables begin with for the last.
void lfps__chunks_end_with_the_rows(void**) {
  const Inputs inputs({1, 1, 1, 64, 512, true}, 8, 68);
  for (const char* rows_text : {"1", "7", "20", "32"}) {
    Sim sim(cpu_backend(), inputs, {"lfps", 0, 1024, 0, {{"rows", rows_text}}});
    const uint32_t rows = static_cast<uint32_t>(std::strtoul(rows_text, nullptr, 10));
    assert_int_equal(sim.needs().prompt_rows, rows);
    for (uint32_t batch : {1u, 8u, 20u, 24u, 32u, 64u, 512u}) {
      for (uint32_t n = 1; n < 300; ++n) {
        uint32_t chunk = 0, n_chunks = 0;
        for (uint32_t left = n; left > 0; left -= chunk, ++n_chunks) {
          chunk = sim.policy().chunk_tokens(sim.kv, left, batch);
          assert_true(chunk >= 1 && chunk <= std::min(left, batch));
        }
        if (chunk < std::min({n, rows, batch}))
          fail_msg("rows %u, batch %u: the last chunk of %u tokens has %u", rows, batch, n, chunk);
        assert_true(n_chunks <= (n + batch - 1) / batch + 1);
      }
    }
  }
}

// What is attended and read, as numbers of tokens: never less with more of them.
void lfps__sizes_rise(void**) {
  const struct {
    uint32_t budget;
    std::vector<weir_key_value> options;
  } rows[] = {{0, {}},
              {0, {{"position_share", "1"}}},
              {96, {}},
              {96, {{"quota", "200"}}},
              {0, {{"quota", "100"}}},
              {1024, {{"position_share", "0"}}}};
  const Inputs inputs({1, 1, 4, 64, 512, true}, 8, 69);
  for (const auto& row : rows) {
    Sim sim(cpu_backend(), inputs, {"lfps", row.budget, 16384, 0, row.options});
    HistorySize before;
    for (uint32_t n = 1; n <= 16384; ++n) {
      const HistorySize now = sim.policy().history_size(n);
      assert_true(now.top >= 1 && now.candidates >= std::min(now.top, n));
      assert_true(now.top >= before.top && now.candidates >= before.candidates);
      if (n <= now.top) assert_true(now.candidates >= n);
      if (row.budget != 0) assert_int_equal(now.top, row.budget);
      assert_true(list_room(sim.policy().history_rules(), now, n) <= sim.needs().history.list_room);
      before = now;
    }
    const bool has_quota = !row.options.empty() && std::strcmp(row.options[0].key, "quota") == 0;
    if (has_quota) assert_int_equal(before.candidates, std::strtoul(row.options[0].value, nullptr, 10));
  }
}

// Tokens of pinned pages are attended by every head that looks, besides the budget; far more of them than a budget has.
void lfps__attends_what_is_pinned(void**) {
  const Inputs inputs({1, 2, 3, 64, 512, true}, 700, 71);
  for (const Backend* backend : kBackends) {
    for (const char* mode : {"quota", "threshold"}) {
      Sim sim(*backend, inputs, {"lfps", 32, 1024, 0, {{"eta", "1"}, {"skip_layers", "0"}, {"candidates", mode}}});
      sim.prefill(600);
      sim.pin(3, 17);
      sim.pin(100, 500);
      sim.on_layer = [&](uint32_t) {
        for (uint32_t head = 0; head < 6; ++head) {
          const std::vector<uint32_t> chosen = sim.chosen(head);
          std::vector<uint32_t> pinned;
          for (uint32_t pos = 4; pos < 512; ++pos) {
            if (pos < 32 || pos >= 96) pinned.push_back(pos - 4);
          }
          assert_true(std::includes(chosen.begin(), chosen.end(), pinned.begin(), pinned.end()));
          assert_true(chosen.size() > pinned.size() && chosen.size() <= pinned.size() + 32);
        }
      };
      sim.steps(20);
      for (float x : sim.out[0]) assert_false(std::isnan(x));
      const HistoryView view = sim.kv.history(0);
      for (uint32_t head = 0; head < 6; ++head) {
        for (const HistoryTable& t : view.heads[head].table) assert_true(t.n_list <= view.list_capacity);
      }
    }
  }
}

void lfps__rules_and_needs(void**) {
  const Inputs inputs({3, 2, 4, 64, 512, true}, 8, 70);
  Sim sim(cpu_backend(), inputs, {"lfps", 0, 1000, 0, {}});
  const PolicyNeeds& needs = sim.needs();
  assert_int_equal(needs.pages_per_stream, 63);
  assert_int_equal(needs.prompt_rows, 20);
  assert_int_equal(needs.history.group, 4);
  assert_int_equal(needs.history.n_sink, 4);
  assert_int_equal(needs.history.tokens, 1000);
  assert_true(needs.digest == DigestKind::kNone && !needs.page_lists && !needs.page_mass && needs.recall_slots == 0);
  const HistoryRules rules = sim.policy().history_rules();
  assert_true(rules.gamma == 0.95f && rules.n_recent == 5 && !rules.by_threshold && rules.eta < 1.0f);
  assert_true(steady_sum(rules) > 9.9999 && steady_sum(rules) < 10.0001);
  assert_true(sim.policy().can_take_back_prompt());
  assert_true(sim.policy().step_rules().victim == VictimRule::kNever);
  Sim other(cpu_backend(), inputs,
            {"lfps",
             0,
             1000,
             0,
             {{"sinks", "7"},
              {"recent", "9"},
              {"rows", "11"},
              {"gamma", "0.5"},
              {"eta", "0.25"},
              {"candidates", "threshold"},
              {"lambda", "-3"},
              {"skip_layers", "2"}}});
  const HistoryRules own = other.policy().history_rules();
  assert_true(own.n_sink == 7 && own.n_recent == 9 && own.gamma == 0.5f && own.eta == 0.25f && own.lambda == -3.0f);
  assert_true(own.by_threshold && other.needs().history_from_layer == 2 && other.needs().prompt_rows == 11);
  assert_int_equal(other.needs().history.list_room, 1000 + 16);  // and what a vector stores beyond the end
  assert_int_equal(other.needs().history.n_sink, 7);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(lfps__all_room_is_dense), cmocka_unit_test(lfps__attends_the_budget),
      cmocka_unit_test(lfps__finds_a_slash),     cmocka_unit_test(lfps__finds_what_always_matters),
      cmocka_unit_test(lfps__sinks_are_enough),  cmocka_unit_test(lfps__begins_with_the_last_prompt),
      cmocka_unit_test(lfps__backends_agree),    cmocka_unit_test(lfps__chunks_end_with_the_rows),
      cmocka_unit_test(lfps__sizes_rise),        cmocka_unit_test(lfps__attends_what_is_pinned),
      cmocka_unit_test(lfps__rules_and_needs),
  };
  return cmocka_run_group_tests_name("policy_lfps", tests, nullptr, nullptr);
}
