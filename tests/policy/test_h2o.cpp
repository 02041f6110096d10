// policy: H2O in a session (docs/algorithms.md, "H2O"). Sums of attention against sums recomputed in f64, victims
// against those sums, the recent window, and what must never happen: a page that returns, a sum that falls, a stream
// above its budget.
#include <cstdlib>
#include <map>
#include <set>

#include "tests/policy/exact_attention.h"

namespace {

using namespace weir;
using namespace weir::test;

using PageOfStream = std::pair<uint32_t, uint32_t>;  // stream, first position

const SimShape kShapes[] = {
    {3, 2, 4, 64, 512, true}, {3, 1, 7, 64, 24, true}, {3, 3, 3, 64, 512, true}, {3, 1, 8, 128, 48, true}};

// The last `recent` of n tokens are resident in every stream under the budget.
void check_window(const Sim& sim, uint32_t first_stream, uint32_t recent) {
  const uint32_t n = sim.n_tokens(), begin = n - std::min(n, recent);
  for (uint32_t stream = first_stream; stream < sim.kv.shape().n_streams(); ++stream) {
    for (uint32_t pos = begin / kPageTokens * kPageTokens; pos < n; pos += kPageTokens) {
      if (sim.row_of(stream, pos) == Policy::kNone) {
        fail_msg("stream %u of %u tokens has lost position %u, one of the last %u", stream, n, pos, recent);
      }
    }
  }
}

// What must hold after every pass.
struct Watch {
  Sim& sim;
  std::map<PageOfStream, float> score;
  std::set<PageOfStream> gone;
  explicit Watch(Sim& s) : sim(s) {
    sim.on_evict = [this](uint32_t stream, const StreamView& v, uint32_t row, const RoomArgs&) {
      gone.insert({stream, v.first_pos[row]});
    };
  }
  void check(uint32_t budget_pages) {
    for (uint32_t stream = 0; stream < sim.kv.shape().n_streams(); ++stream) {
      const StreamView v = sim.kv.stream(stream);
      assert_true(v.n_pages <= budget_pages);
      for (uint32_t row = 0; row < v.n_pages; ++row) {
        const PageOfStream page = {stream, v.first_pos[row]};
        assert_true(gone.count(page) == 0);
        assert_true(score.count(page) == 0 || v.last_score[row] >= score[page]);
        score[page] = v.last_score[row];
      }
    }
  }
};

void h2o__invariants_in_sessions(void**) {
  for (const SimShape& shape : kShapes) {
    const Inputs inputs(shape, 300, 21);
    for (uint32_t n_prompt : kRaggedPrompts) {
      for (const char* init : {"exact", "zero"}) {
        Sim sim(cpu_backend(), inputs, {"h2o", 128, 4096, 0, {{"skip_layers", "0"}, {"recent", "40"}, {"init", init}}});
        Watch watch(sim);
        sim.prefill(n_prompt);
        for (uint32_t i = 0; i < 150; ++i) {
          watch.check(8);
          check_window(sim, 0, 40);
          sim.step();
        }
        assert_true(sim.n_evicted > 0);
        assert_true(sim.kv.pages_resident_max() <= 8u * shape.n_layers * shape.n_kv_heads);
      }
    }
  }
}

// Layers that stay dense hold everything; the others keep to the budget.
void h2o__skipped_layers_keep_everything(void**) {
  const Inputs inputs({3, 2, 4, 64, 512, true}, 300, 22);
  Sim sim(cpu_backend(), inputs, {"h2o", 128, 320, 0, {{"skip_layers", "2"}}});
  sim.prefill(100);
  sim.steps(150);
  for (uint32_t stream = 0; stream < 6; ++stream) assert_int_equal(sim.pages(stream).size(), stream < 4 ? 16 : 8);
}

// A prompt longer than the budget, in chunks: the recent window stays there, too, even when it is nearly the whole
// budget.
void h2o__window_survives_long_prompts(void**) {
  const Inputs inputs({1, 2, 2, 64, 512, true}, 700, 23);
  for (const char* recent : {"16", "100", "128", "192", "224"}) {
    Sim sim(cpu_backend(), inputs, {"h2o", 256, 4096, 0, {{"skip_layers", "0"}, {"recent", recent}}});
    for (uint32_t n_tok : {300u, 16u, 65u, 47u}) {
      sim.prefill(n_tok);
      check_window(sim, 0, static_cast<uint32_t>(std::atoi(recent)));
      sim.steps(9);
      check_window(sim, 0, static_cast<uint32_t>(std::atoi(recent)));
    }
  }
}

// The sums of a stream add up to the number of observed queries times the heads: the weights of a query sum to one.
void h2o__sums_are_conserved(void**) {
  for (const Backend* backend : kBackends) {
    for (const SimShape& shape : kShapes) {
      const Inputs inputs(shape, 120, 24);
      for (const char* init : {"exact", "zero"}) {
        for (uint32_t n_prompt : {1u, 33u, 100u}) {
          Sim sim(*backend, inputs, {"h2o", 256, 4096, 0, {{"skip_layers", "0"}, {"init", init}}});
          sim.soft_cap = n_prompt == 33 ? 0.5f : 0.0f;  // prompts and steps must agree on the logits
          sim.prefill(n_prompt);
          sim.steps(10);
          const uint32_t n_seen = init[0] == 'e' ? n_prompt + 10 : 10;
          for (uint32_t stream = 0; stream < sim.kv.shape().n_streams(); ++stream) {
            const StreamView v = sim.kv.stream(stream);
            double sum = 0.0;
            for (uint32_t row = 0; row < v.n_pages; ++row) sum += double{v.last_score[row]};
            assert_true(std::fabs(sum / (1.0 * shape.group * n_seen) - 1.0) < 1e-4);
          }
        }
      }
    }
  }
}

// Column sums of the prompt's causal attention over the last `n_rows` queries (0: all), per page, of one stream.
std::vector<double> column_sums(const Inputs& inputs, uint32_t layer, uint32_t kv_head, uint32_t n_prompt,
                                uint32_t n_rows) {
  const ExactAttention exact(inputs);
  std::vector<double> sums(whole_pages(n_prompt));
  for (uint32_t t = n_rows == 0 ? 0 : n_prompt - n_rows; t < n_prompt; ++t) {
    for (uint32_t g = 0; g < inputs.shape.group; ++g) {
      const std::vector<double> w = exact.causal(layer, kv_head * inputs.shape.group + g, t);
      for (uint32_t pos = 0; pos <= t; ++pos) sums[pos / kPageTokens] += w[pos];
    }
  }
  return sums;
}

void h2o__prompt_sums_are_the_columns_of_attention(void**) {
  for (const Backend* backend : kBackends) {
    const Inputs inputs({2, 2, 3, 64, 32, true}, 80, 25);  // 71 tokens: 32, 32 and 7
    for (const char* init : {"exact", "window"}) {
      Sim sim(*backend, inputs, {"h2o", 256, 4096, 0, {{"skip_layers", "0"}, {"init", init}}});
      sim.prefill(71);
      for (uint32_t stream = 0; stream < 4; ++stream) {
        // The window counts the last 8 queries; a last chunk of 7 rows has fewer.
        const std::vector<double> want = column_sums(inputs, stream / 2, stream % 2, 71, init[0] == 'w' ? 7 : 0);
        for (uint32_t row = 0; row < want.size(); ++row) {
          assert_true(std::fabs(double{sim.kv.stream(stream).last_score[row]} - want[row]) < 1e-3 * (1.0 + want[row]));
        }
      }
    }
  }
}

// The test keeps sums and ages from the masses of every step; the page that leaves has the least sum outside the
// window.
void check_victims(const SimShape& shape, const char* score, uint32_t n_prompt) {
  const bool normalised = std::strcmp(score, "norm_sum") == 0;
  constexpr uint32_t kRecent = 40;
  const Inputs inputs(shape, 500, 26);
  Sim sim(cpu_backend(), inputs,
          {"h2o", 160, 4096, 0, {{"skip_layers", "0"}, {"init", "zero"}, {"recent", "40"}, {"score", score}}});
  std::map<PageOfStream, double> sum;
  std::map<PageOfStream, uint32_t> age;  // steps that saw the page
  sim.on_layer = [&](uint32_t layer) {
    for (uint32_t head = 0; head < shape.n_heads(); ++head) {
      const uint32_t stream = layer * shape.n_kv_heads + head / shape.group;
      const StreamView v = sim.kv.stream(stream);
      for (uint32_t row = 0; row < v.n_pages; ++row) {
        sum[{stream, v.first_pos[row]}] += double{sim.mass(layer)[size_t{head} * v.capacity + row]};
        age[{stream, v.first_pos[row]}] += head % shape.group == 0 ? 1 : 0;
      }
    }
  };
  uint32_t n_checked = 0;
  sim.on_evict = [&](uint32_t stream, const StreamView& v, uint32_t victim, const RoomArgs& room) {
    if (room.phase != Phase::kDecode) return;
    const auto weight = [&](uint32_t row) {
      const PageOfStream page = {stream, v.first_pos[row]};
      return sum[page] / (normalised ? static_cast<double>(age[page]) : 1.0);
    };
    assert_true(v.first_pos[victim] + kPageTokens + kRecent <= room.pos);
    for (uint32_t row = 0; row < v.n_pages && v.first_pos[row] + kPageTokens + kRecent <= room.pos; ++row) {
      if (weight(victim) > weight(row) * (1.0 + 1e-5)) {
        fail_msg("score=%s, prompt of %u, position %u: page %u leaves with %g, page %u has %g", score, n_prompt,
                 room.pos, v.first_pos[victim], weight(victim), v.first_pos[row], weight(row));
      }
    }
    ++n_checked;
  };
  sim.prefill(n_prompt);
  sim.steps(500 - n_prompt);
  assert_true(n_checked > 50);
}

void h2o__the_lightest_page_leaves(void**) {
  for (const SimShape& shape : kShapes) check_victims(shape, "sum", 33);
}

// With norm_sum a sum is divided by the number of steps that observed the page.
void h2o__the_lightest_page_per_step_leaves(void**) {
  for (const SimShape& shape : kShapes) {
    for (uint32_t n_prompt : {1u, 33u, 100u}) check_victims(shape, "norm_sum", n_prompt);
  }
}

// The age of a page is the number of steps that its score holds, for pages of the prompt and of the answer alike:
// scores of a known weight per step are put in, and the page with the least of it must be the victim.
void h2o__age_is_the_steps_that_the_score_holds(void**) {
  for (const char* init : {"exact", "zero", "window"}) {
    const Inputs inputs({1, 1, 2, 64, 27, true}, 200, 28);  // a prompt of two chunks; the second has 5 rows
    Sim sim(cpu_backend(), inputs, {"h2o", 160, 4096, 0, {{"init", init}, {"recent", "32"}, {"score", "norm_sum"}}});
    sim.prefill(32);
    sim.steps(128);
    const StreamView v = sim.kv.stream(0);
    assert_int_equal(v.n_pages, 10);
    const uint32_t prompt_seen = init[0] == 'z' ? 32 : 27;
    for (uint32_t lightest = 0; lightest < 8; ++lightest) {
      for (uint32_t row = 0; row < v.n_pages; ++row) {
        const uint32_t first_seen = row >= 2 || init[0] == 'e' ? row * kPageTokens : prompt_seen;
        v.last_score[row] = static_cast<float>(160 - first_seen) * (row == lightest ? 1.0f : 1.004f);
      }
      const uint32_t row = sim.policy().victim(v, {Phase::kDecode, 160, 1, true});
      if (row != lightest) fail_msg("init=%s: page %u leaves, page %u is 0.4 %% lighter per step", init, row, lightest);
    }
  }
}

// The same within a prompt that is read in chunks: the sum of a page is that of the queries since its first token.
void h2o__age_counts_in_long_prompts(void**) {
  const Inputs inputs({1, 2, 4, 64, 512, true}, 400, 29);
  Sim sim(cpu_backend(), inputs, {"h2o", 256, 4096, 0, {{"recent", "32"}, {"score", "norm_sum"}}});
  sim.on_evict = [](uint32_t, const StreamView& v, uint32_t victim, const RoomArgs& room) {
    const auto weight = [&](uint32_t row) { return double{v.last_score[row]} / (room.pos - v.first_pos[row]); };
    for (uint32_t row = 0; row < v.n_pages && v.first_pos[row] + kPageTokens + 32 <= room.pos; ++row) {
      if (weight(victim) > weight(row)) {
        fail_msg("position %u: page %u leaves with %g per step, page %u has %g", room.pos, v.first_pos[victim],
                 weight(victim), v.first_pos[row], weight(row));
      }
    }
  };
  sim.prefill(400);
  assert_true(sim.n_evicted > 0);
}

// Time and memory stay the same once the budget is full.
void h2o__memory_has_a_plateau(void**) {
  const Inputs inputs({3, 2, 4, 64, 512, true}, 400, 27);
  Sim sim(cpu_backend(), inputs, {"h2o", 128, 4096, 0, {{"skip_layers", "0"}}});
  sim.prefill(20);
  sim.steps(110);
  for (uint32_t i = 0; i < 200; ++i) {
    sim.step();
    assert_int_equal(sim.kv.pages_resident(), 8 * 6);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(h2o__invariants_in_sessions),
      cmocka_unit_test(h2o__skipped_layers_keep_everything),
      cmocka_unit_test(h2o__window_survives_long_prompts),
      cmocka_unit_test(h2o__sums_are_conserved),
      cmocka_unit_test(h2o__prompt_sums_are_the_columns_of_attention),
      cmocka_unit_test(h2o__the_lightest_page_leaves),
      cmocka_unit_test(h2o__the_lightest_page_per_step_leaves),
      cmocka_unit_test(h2o__age_is_the_steps_that_the_score_holds),
      cmocka_unit_test(h2o__age_counts_in_long_prompts),
      cmocka_unit_test(h2o__memory_has_a_plateau),
  };
  return cmocka_run_group_tests_name("policy_h2o", tests, nullptr, nullptr);
}
