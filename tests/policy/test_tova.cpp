// policy: TOVA in a session. When a page is opened, one leaves: by the weights of the latest query alone, or by how
// many queries gave it the least weight. Values play no part; with scope=layer the streams of a layer hold the same
// pages.
#include <map>

#include "tests/policy/session_sim.h"

namespace {

using namespace weir;
using namespace weir::test;

const SimShape kShapes[] = {
    {3, 2, 4, 64, 512, true}, {3, 1, 7, 64, 24, true}, {3, 3, 3, 64, 512, true}, {3, 1, 8, 128, 48, true}};

PolicySpec tova(const char* scope) { return {"tova", 128, 4096, 0, {{"skip_layers", "0"}, {"scope", scope}}}; }

void tova__one_page_leaves_for_each_that_opens(void**) {
  for (const SimShape& shape : kShapes) {
    const Inputs inputs(shape, 300, 31);
    const uint32_t n_streams = shape.n_layers * shape.n_kv_heads;
    for (uint32_t n_prompt : kRaggedPrompts) {
      Sim sim(cpu_backend(), inputs, tova("stream"));
      sim.prefill(n_prompt);
      for (uint32_t i = 0; i < 160; ++i) {
        const uint32_t n_before = sim.n_evicted;
        const bool opens = sim.n_tokens() % kPageTokens == 0 && sim.n_tokens() >= 128;
        sim.step();
        assert_int_equal(sim.n_evicted - n_before, opens ? n_streams : 0);
        for (uint32_t s = 0; s < n_streams; ++s) {
          assert_int_equal(sim.pages(s).size(), std::min(8u, whole_pages(sim.n_tokens())));
          assert_int_equal(sim.pages(s).back(), (sim.n_tokens() - 1) / kPageTokens * kPageTokens);
        }
      }
    }
  }
}

// Mean weight per token of a page in the latest step, over the heads [first, end) of its layer.
double mean_weight(const Sim& sim, uint32_t layer, uint32_t first, uint32_t end, const StreamView& v, uint32_t row) {
  double sum = 0.0;
  for (uint32_t head = first; head < end; ++head) sum += double{sim.mass(layer)[size_t{head} * v.capacity + row]};
  return sum / (end - first) / v.len[row];
}

void tova__the_page_with_the_least_weight_leaves(void**) {
  for (const Backend* backend : kBackends) {
    for (const SimShape& shape : kShapes) {
      if (backend == &reference_backend() && shape.head_dim > 64) continue;
      const Inputs inputs(shape, 300, 32);
      for (const char* scope : {"layer", "stream"}) {
        Sim sim(*backend, inputs, tova(scope));
        sim.on_evict = [&](uint32_t stream, const StreamView& v, uint32_t victim, const RoomArgs&) {
          const uint32_t layer = stream / shape.n_kv_heads, kv_head = stream % shape.n_kv_heads;
          const uint32_t first = scope[0] == 'l' ? 0 : kv_head * shape.group,
                         end = scope[0] == 'l' ? shape.n_heads() : first + shape.group;
          const double least = mean_weight(sim, layer, first, end, v, victim);
          for (uint32_t row = 0; row + 1 < v.n_pages; ++row)
            assert_true(least <= mean_weight(sim, layer, first, end, v, row) * (1.0 + 1e-5));
        };
        sim.prefill(100);
        sim.steps(190);
        assert_true(sim.n_evicted > 0);
      }
    }
  }
}

void tova__layer_scope_has_one_table_per_layer(void**) {
  const SimShape shape = {3, 3, 3, 64, 48, true};
  const Inputs inputs(shape, 420, 33);
  for (const char* scope : {"layer", "stream"}) {
    Sim sim(cpu_backend(), inputs, tova(scope));
    sim.prefill(200);  // longer than the budget: pages leave while it is read
    uint32_t n_differ = 0;
    for (uint32_t i = 0; i < 200; ++i) {
      for (uint32_t stream = 0; stream < 9; ++stream)
        n_differ += sim.pages(stream) != sim.pages(stream / 3 * 3) ? 1 : 0;
      sim.step();
    }
    assert_true(scope[0] == 'l' ? n_differ == 0 : n_differ > 0);
  }
}

// SnapKV before it evicts pages per KV head. Either scope=layer is refused then, or the streams of a layer hold the
// same pages in spite of that.
void tova__layer_scope_behind_a_prompt_policy(void**) {
  const SimShape shape = {3, 3, 3, 64, 512, true};
  const Inputs inputs(shape, 420, 34);
  PolicyConfig config;
  config.n_layers = 3;
  config.n_heads = 9;
  config.n_kv_heads = 3;
  config.head_dim = 64;
  config.context_tokens = config.trained_tokens = 4096;
  config.budget_tokens = 160;
  const weir_key_value options[] = {
      {"skip_layers", "0"}, {"scope", "layer"}, {"prompt", "snapkv"}, {"prompt_budget", "96"}};
  config.options = options;
  PolicyStorage storage;
  Policy* policy = nullptr;
  const Status status = make_policy("tova", config, storage, policy);
  if (!status.ok()) {  // refusing the pair is allowed
    assert_true(std::strstr(last_error_text(), "scope") != nullptr);
    return;
  }
  policy->~Policy();
  Sim sim(cpu_backend(), inputs, {"tova", 160, 4096, 0, {options[0], options[1], options[2], options[3]}});
  sim.prefill(150);
  for (uint32_t i = 0; i < 200; ++i) {
    for (uint32_t stream = 0; stream < 9; ++stream) {
      if (sim.pages(stream) != sim.pages(stream / 3 * 3)) {
        fail_msg("scope=layer behind snapkv: at %u tokens stream %u holds other pages than the first of its layer",
                 sim.n_tokens(), stream);
      }
    }
    sim.step();
  }
}

// Two conversations with the same keys whose queries agree only in the steps before a page opens.
void tova__only_the_latest_query_decides(void**) {
  const SimShape shape = {2, 2, 3, 64, 512, true};
  for (const char* scope : {"layer", "stream"}) {
    const Inputs one(shape, 300, 35), other(shape, 300, 36);
    Inputs two = one, three = one;
    for (uint32_t layer = 0; layer < 2; ++layer) {
      for (uint32_t pos = 0; pos < 300; ++pos) {
        Inputs& changed = pos % kPageTokens == kPageTokens - 1 ? three : two;
        std::copy_n(other.q(layer, pos), size_t{shape.n_heads()} * 64, changed.q(layer, pos));
      }
    }
    Sim a(cpu_backend(), one, tova(scope)), b(cpu_backend(), two, tova(scope)), c(cpu_backend(), three, tova(scope));
    for (Sim* sim : {&a, &b, &c}) sim->prefill(100);
    bool differs = false;
    for (uint32_t i = 0; i < 190; ++i) {
      for (Sim* sim : {&a, &b, &c}) sim->step();
      assert_true(a.all_pages() == b.all_pages());
      differs = differs || a.all_pages() != c.all_pages();
    }
    assert_true(differs);  // the deciding queries do decide
  }
}

// decide=token: in a full stream every step marks the page of least score. The page with most marks leaves, of equals
// the one of less score. Pages of a later prompt begin without marks, whichever chunk they came in.
void tova__every_query_marks_the_page_it_looks_at_least(void**) {
  for (const Backend* backend : kBackends) {
    for (const SimShape& shape : {SimShape{2, 2, 3, 64, 512, true}, SimShape{2, 3, 4, 64, 24, true}}) {
      const Inputs inputs(shape, 560, 39);
      for (const char* scope : {"layer", "stream"}) {
        PolicySpec spec = tova(scope);
        spec.options.push_back({"decide", "token"});
        Sim sim(*backend, inputs, spec), latest(*backend, inputs, tova(scope));
        std::map<std::pair<uint32_t, uint32_t>, uint32_t> marks;  // by stream and first position
        uint32_t n_other = 0;                                     // victims that the latest query would have kept
        uint32_t n_for_prompts = 0;
        sim.on_layer = [&](uint32_t layer) {
          for (uint32_t s = layer * shape.n_kv_heads; s < (layer + 1) * shape.n_kv_heads; ++s) {
            const StreamView v = sim.kv.stream(s);
            if (v.n_pages < v.capacity) continue;
            const auto least = std::min_element(v.last_score, v.last_score + v.n_pages - 1) - v.last_score;
            ++marks[{s, v.first_pos[least]}];
          }
        };
        sim.on_evict = [&](uint32_t s, const StreamView& v, uint32_t victim, const RoomArgs& room) {
          if (room.phase != Phase::kDecode) {  // the chunk's last query decides alone
            assert_true(v.last_score[victim] <= *std::min_element(v.last_score, v.last_score + v.n_pages - 1));
            ++n_for_prompts;
            return;
          }
          const uint32_t most = marks[{s, v.first_pos[victim]}];
          for (uint32_t row = 0; row + 1 < v.n_pages; ++row) {
            const uint32_t n = marks[{s, v.first_pos[row]}];
            assert_true(n < most || (n == most && v.last_score[victim] <= v.last_score[row]));
            n_other += v.last_score[row] < v.last_score[victim] ? 1 : 0;
          }
        };
        for (Sim* one : {&sim, &latest}) {
          one->prefill(60);
          one->steps(200);
          one->prefill(70);
          one->steps(200);
        }
        assert_true(sim.n_evicted > n_for_prompts && n_for_prompts > 0 && n_other > 0);
        assert_true(sim.all_pages() != latest.all_pages());
        if (scope[0] != 'l') continue;
        for (uint32_t s = 0; s < shape.n_layers * shape.n_kv_heads; ++s)
          assert_true(sim.pages(s) == sim.pages(s / shape.n_kv_heads * shape.n_kv_heads));
      }
    }
  }
}

void tova__values_play_no_part(void**) {
  const SimShape shape = {2, 2, 3, 64, 512, true};
  const Inputs one(shape, 300, 37);
  Inputs four = one;
  for (uint32_t layer = 0; layer < 2; ++layer) {
    for (size_t i = 0; i < size_t{300} * 2 * 64; ++i) four.v(layer, 0)[i] *= 4.0f;
  }
  Sim a(cpu_backend(), one, tova("layer")), b(cpu_backend(), four, tova("layer"));
  for (Sim* sim : {&a, &b}) sim->prefill(150);
  for (uint32_t i = 0; i < 140; ++i) {
    a.step();
    b.step();
    assert_true(a.all_pages() == b.all_pages());
  }
  for (size_t i = 0; i < a.out[1].size(); ++i) assert_true(a.out[1][i] * 4.0f == b.out[1][i]);
}

void tova__skipped_layers_keep_everything(void**) {
  const Inputs inputs({3, 2, 4, 64, 512, true}, 300, 38);
  Sim sim(cpu_backend(), inputs, {"tova", 128, 320, 0, {{"skip_layers", "1"}}});
  sim.prefill(100);
  sim.steps(150);
  for (uint32_t stream = 0; stream < 6; ++stream) assert_int_equal(sim.pages(stream).size(), stream < 2 ? 16 : 8);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(tova__one_page_leaves_for_each_that_opens),
      cmocka_unit_test(tova__the_page_with_the_least_weight_leaves),
      cmocka_unit_test(tova__layer_scope_has_one_table_per_layer),
      cmocka_unit_test(tova__layer_scope_behind_a_prompt_policy),
      cmocka_unit_test(tova__only_the_latest_query_decides),
      cmocka_unit_test(tova__every_query_marks_the_page_it_looks_at_least),
      cmocka_unit_test(tova__values_play_no_part),
      cmocka_unit_test(tova__skipped_layers_keep_everything),
  };
  return cmocka_run_group_tests_name("policy_tova", tests, nullptr, nullptr);
}
