// policy: PyramidKV before another policy (docs/algorithms.md, "PyramidKV"). The line of budgets against values worked
// out by hand; the sum over the layers is that of SnapKV to the page; the pages that stay; and equal layers are SnapKV.
#include "tests/policy/session_sim.h"

namespace {

using namespace weir;
using namespace weir::test;

PolicySpec prompt_spec(const char* behind, const char* name, std::vector<weir_key_value> options, uint32_t budget) {
  PolicySpec spec = {behind, budget, 1024, 0, {{"prompt", name}, {"prompt_budget", "128"}, {"prompt_window", "16"}}};
  spec.options.insert(spec.options.end(), options.begin(), options.end());
  return spec;
}

// 4 layers, a prompt of 1,000 tokens, 100 tokens in the mean, a window of 8.
void pyramid__the_line_in_tokens(void**) {
  const LayerPages line = pyramid_line(4, 100, 1000, 10.0f, 8);
  const uint32_t want[] = {190, 130, 70, 10};
  for (uint32_t layer = 0; layer < 4; ++layer) assert_int_equal(line.tokens(layer), want[layer]);
  // A 20th of 100 is less than the window: all layers alike.
  const LayerPages even = pyramid_line(4, 100, 1000, 20.0f, 8);
  for (uint32_t layer = 0; layer < 4; ++layer) assert_int_equal(even.tokens(layer), 100);
  // The first layer has no more than the prompt before the window: 150 - 8, and the last one the rest of 200.
  const LayerPages low = pyramid_line(4, 100, 150, 10.0f, 8);
  assert_int_equal(low.tokens(0), 142);
  assert_int_equal(low.tokens(3), 58);
  assert_int_equal(pyramid_line(4, 100, 105, 10.0f, 8).tokens(3), 100);  // less than the mean is not a line
  assert_int_equal(pyramid_line(1, 100, 1000, 10.0f, 8).tokens(0), 100);
  assert_int_equal(pyramid_line(3, 100, 1000, 1.0f, 8).tokens(0), 100);
}

// Whole pages: the sum is exact, no layer has more than the one before it, and the last one holds the window.
void pyramid__pages_add_up(void**) {
  for (uint32_t n_layers : {1u, 2u, 3u, 7u, 30u, 126u}) {
    for (uint32_t mean : {1u, 2u, 5u, 8u, 61u, 1000u}) {
      for (float beta : {1.0f, 1.5f, 2.0f, 10.0f, 20.0f}) {
        for (uint32_t prompt : {100u, 1500u, 1u << 20}) {
          const uint32_t window = std::min(64u, mean * 8);
          const LayerPages line = pyramid_pages(n_layers, mean, prompt, beta, window);
          uint64_t sum = 0;
          for (uint32_t layer = 0; layer < n_layers; ++layer) {
            sum += line.prompt_pages(layer);
            assert_true(layer == 0 || line.prompt_pages(layer) <= line.prompt_pages(layer - 1));
          }
          assert_int_equal(sum, uint64_t{n_layers} * mean);
          assert_true(line.prompt_pages(n_layers - 1) * kPageTokens >= window);
        }
      }
    }
  }
  // 8 pages in the mean of three layers, beta 4: 224, 128 and 32 tokens.
  const LayerPages line = pyramid_pages(3, 8, 1024, 4.0f, 16);
  assert_int_equal(line.prompt_pages(0), 14);
  assert_int_equal(line.prompt_pages(1), 8);
  assert_int_equal(line.prompt_pages(2), 2);
  // 5 pages in the mean of four, beta 4: 140, 100, 60, 20 tokens are 8, 6, 3 and 1 pages, and 2 pages are left over.
  const LayerPages odd = pyramid_pages(4, 5, 1024, 4.0f, 16);
  assert_int_equal(odd.prompt_pages(0), 9);
  assert_int_equal(odd.prompt_pages(1), 7);
  assert_int_equal(odd.prompt_pages(2), 3);
  assert_int_equal(odd.prompt_pages(3), 1);
}

// What stays of a prompt in each layer, and what the tables hold, before policies whose tables hold a budget or all.
void pyramid__layers_keep_what_the_line_says(void**) {
  const SimShape shape = {3, 2, 4, 64, 512, true};
  const Inputs inputs(shape, 700, 81);
  const uint32_t want[] = {14, 8, 2};
  const struct {
    const char* name;
    uint32_t budget;
  } rows[] = {{"raas", 256}, {"random", 256}, {"dense", 0}};
  for (const auto& row : rows) {
    Sim even(cpu_backend(), inputs, prompt_spec(row.name, "snapkv", {}, row.budget));
    Sim sim(cpu_backend(), inputs, prompt_spec(row.name, "pyramid", {{"prompt_beta", "4"}}, row.budget));
    assert_int_equal(sim.kv.shape().n_slots(), even.kv.shape().n_slots());
    sim.prefill(350);
    for (uint32_t s = 0; s < 6; ++s) {
      const std::vector<uint32_t> pages = sim.pages(s);
      assert_int_equal(pages.size(), want[s / 2]);
      assert_int_equal(pages.back(), 336);  // the window
      if (row.budget != 0) assert_int_equal(sim.kv.stream(s).capacity, want[s / 2] + 8);
    }
    const auto kept = sim.all_pages();
    sim.steps(300);
    for (uint32_t s = 0; s < 6; ++s) {
      const std::vector<uint32_t> pages = sim.pages(s);
      assert_int_equal(pages.size(), row.budget != 0 ? want[s / 2] + 8 : want[s / 2] + 19);
      for (uint32_t i = 0; i < want[s / 2]; ++i) assert_int_equal(pages[i], kept[s][i]);
    }
    if (row.budget == 0) continue;
    assert_int_equal(sim.kv.pages_resident(), sim.kv.shape().n_slots());
    assert_true(sim.kv.pages_resident_max() <= sim.kv.shape().n_slots());
  }
}

// Where a prompt fits in one chunk, a layer keeps the pages that SnapKV keeps with the layer's budget.
void pyramid__a_layer_is_snapkv_with_its_budget(void**) {
  const SimShape shape = {3, 2, 4, 64, 512, true};
  const Inputs inputs(shape, 400, 82);
  Sim sim(cpu_backend(), inputs, prompt_spec("dense", "pyramid", {{"prompt_beta", "4"}}, 0));
  sim.prefill(350);
  const char* budgets[] = {"224", "128", "32"};
  for (uint32_t layer = 0; layer < 3; ++layer) {
    Sim even(cpu_backend(), inputs,
             {"dense", 0, 1024, 0, {{"prompt", "snapkv"}, {"prompt_budget", budgets[layer]}, {"prompt_window", "16"}}});
    even.prefill(350);
    for (uint32_t head = 0; head < 2; ++head) assert_true(sim.pages(layer * 2 + head) == even.pages(layer * 2 + head));
  }
}

void pyramid__equal_layers_are_snapkv(void**) {
  const Inputs inputs({3, 2, 4, 64, 96, true}, 600, 83);
  for (const char* behind : {"dense", "raas", "h2o", "quest", "random"}) {
    const uint32_t budget = std::strcmp(behind, "dense") == 0 ? 0 : 256;
    Sim even(cpu_backend(), inputs, prompt_spec(behind, "snapkv", {}, budget));
    Sim sim(cpu_backend(), inputs, prompt_spec(behind, "pyramid", {{"prompt_beta", "1"}}, budget));
    for (Sim* s : {&even, &sim}) {
      s->prefill(250);
      s->steps(60);
      s->prefill(90);
      s->steps(60);
    }
    assert_true(sim.all_pages() == even.all_pages());
    assert_same_outputs(sim, even, behind);
  }
}

// Prompts in chunks, one after another: no table has more than it can hold, and the last tokens stay.
void pyramid__holds_at_every_moment(void**) {
  for (uint32_t batch : {512u, 64u, 48u}) {
    const SimShape shape = {5, 2, 3, 64, batch, true};
    const Inputs inputs(shape, 1000, 84);
    for (const char* behind : {"raas", "h2o", "random"}) {
      Sim sim(cpu_backend(), inputs, prompt_spec(behind, "pyramid", {{"prompt_beta", "5"}}, 224));
      const uint32_t wide = sim.needs().n_wide_layers;
      for (uint32_t n_prompt : {130u, 500u, 17u}) {
        sim.prefill(n_prompt);
        for (uint32_t s = wide * 2; s < 10; ++s) {
          const StreamView v = sim.kv.stream(s);
          assert_true(v.n_pages <= v.capacity && v.n_pages >= 1);
          assert_true(uint64_t{v.first_pos[v.n_pages - 1]} + v.len[v.n_pages - 1] == sim.n_tokens());
        }
        sim.steps(20);
      }
      assert_true(sim.kv.shape().capacity(wide) > sim.kv.shape().capacity(4));
    }
  }
}

// In a model with windows of its own, only the other layers share the budget.
void pyramid__shapes_with_windows(void**) {
  KvShape shape = {7, 2, 8, 10};
  shape.window = 20;
  shape.global_every = 3;
  shape.window_pages = 4;
  shape.by_layer = pyramid_pages(2, 5, 1000, 5.0f, 16);  // 9 and 1 pages
  shape.by_layer.rest = 5;
  const uint32_t want[] = {4, 4, 14, 4, 4, 6, 4};
  uint64_t rows = 0;
  for (uint32_t layer = 0; layer < 7; ++layer) {
    assert_int_equal(shape.rows_before(layer), rows);
    assert_int_equal(shape.capacity(layer), want[layer]);
    rows += 2 * want[layer];
  }
  assert_int_equal(shape.n_slots(), rows);
  assert_int_equal(shape.max_capacity(), 14);
  KvShape even = shape;
  even.by_layer = {};
  assert_int_equal(even.n_slots(), shape.n_slots());
  // Nor do layers that a policy leaves dense.
  KvShape wide = {5, 1, 8, 10, DigestKind::kNone, 2, 30};
  wide.by_layer = pyramid_pages(3, 5, 1000, 5.0f, 16);
  wide.by_layer.rest = 5;
  assert_int_equal(wide.capacity(1), 30);
  assert_int_equal(wide.capacity(2), 14);
  assert_int_equal(wide.capacity(4), 6);
  assert_int_equal(wide.rows_before(5), 60 + 30);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(pyramid__the_line_in_tokens),
      cmocka_unit_test(pyramid__pages_add_up),
      cmocka_unit_test(pyramid__layers_keep_what_the_line_says),
      cmocka_unit_test(pyramid__a_layer_is_snapkv_with_its_budget),
      cmocka_unit_test(pyramid__equal_layers_are_snapkv),
      cmocka_unit_test(pyramid__holds_at_every_moment),
      cmocka_unit_test(pyramid__shapes_with_windows),
  };
  return cmocka_run_group_tests_name("policy_pyramid", tests, nullptr, nullptr);
}
