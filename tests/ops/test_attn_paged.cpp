// ops: attn_paged. Mirrors lib/ops/attn_paged_ref.cpp, lib/cpu/attn_paged*.cpp. Properties are in
// test_attn_paged_properties.cpp.
#include "tests/ops/attn_case.h"

namespace weir::test {
namespace {

std::vector<Output> run_spec(const Backend& backend, const AttnSpec& spec) {
  AttnCase c(spec, 7);
  c.run(backend);
  std::vector<Output> outputs = {{"out", c.out}, {"page_mass", c.mass}};
  if (spec.lse) outputs.push_back({"lse", c.lse});
  return outputs;
}

constexpr double kMaxNmse = 1e-11;
constexpr const char* kReason = "f32 sums in another order and another exp: about 1e-6 of an element";
// Logits in the hundreds have errors of 1e-5, and so have the weights: the reference itself is 7e-12 from f64.
constexpr double kVulkanLargeLogitsNmse = 2e-11;

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  const auto add = [&](const std::string& name, const AttnSpec& spec) {
    const bool is_large = spec.kv.key_scale > 1.0f;
    list.push_back({"attn_paged__" + name, [spec](const Backend& b) { return run_spec(b, spec); }, kMaxNmse, kReason,
                    is_large ? kCudaLargeLogitsNmse : kCudaAttnNmse, kCudaAttnReason,
                    is_large ? kVulkanLargeLogitsNmse : -1.0, false,
                    spec.n_tok > 8 && !spec.page_mass ? kF16AttnNmse : -1.0});
  };
  // Every head dimension and group in both implementations: 1 row is decode, 20 rows are prefill.
  for (uint32_t d : kHeadDims) {
    for (uint32_t group : kGroups) {
      for (uint32_t n_tok : {1u, 20u}) {
        if (!is_tested_together(d, group)) continue;
        AttnSpec s;
        s.kv = {.n_kv_heads = 2, .head_dim = d, .n_pages = 5, .last_len = 11};
        s.n_heads = 2 * group;
        s.n_tok = n_tok;
        s.page_mass = true;
        s.lse = true;
        add((n_tok == 1 ? "decode_d" : "prefill_d") + std::to_string(d) + "_g" + std::to_string(group), s);
      }
    }
  }
  for (uint32_t n_tok : {1u, 2u, 37u}) {
    const std::string path = n_tok == 1 ? "decode_" : n_tok == 2 ? "two_rows_" : "prefill_";
    AttnSpec s;
    s.kv = {.n_kv_heads = 2, .head_dim = 64, .n_pages = 70, .last_len = 5};
    s.n_heads = 6;
    s.n_tok = n_tok;
    s.page_mass = true;
    s.lse = true;
    add(path + "three_units", s);
    AttnSpec gaps = s;
    gaps.kv.gaps = true;
    add(path + "evicted_pages", gaps);
    AttnSpec selected = s;
    selected.select_every = 3;
    add(path + "selected_pages", selected);
    AttnSpec per_head = selected;
    per_head.list_per_head = true;
    add(path + "pages_per_head", per_head);
    AttnSpec sink = s;
    sink.n_sink_pages = 3;
    add(path + "sink_query", sink);
    AttnSpec window = sink;
    window.window = 300;
    window.n_sink = 21;
    add(path + "window_and_sink_query", window);
    AttnSpec narrow = s;
    narrow.window = 3;
    add(path + "window_of_three", narrow);
    AttnSpec of_heads = s;
    of_heads.head_window = 200;
    of_heads.head_sinks = 21;
    add(path + "windows_of_heads", of_heads);
    of_heads.kv.gaps = true;
    of_heads.select_every = 3;
    of_heads.window = 500;
    of_heads.sinks = true;
    add(path + "windows_of_heads_in_a_window", of_heads);
    AttnSpec large = s;
    large.kv.key_scale = 60.0f;  // logits in the hundreds: weights of 0 and 1
    add(path + "large_logits", large);
    AttnSpec with_sinks = s;
    with_sinks.sinks = true;
    add(path + "sinks", with_sinks);
    with_sinks.n_sink_pages = 3;
    with_sinks.window = 300;
    with_sinks.n_sink = 21;
    add(path + "sinks_window_and_sink_query", with_sinks);
    AttnSpec capped = selected;
    capped.soft_cap = 1.5f;  // of logits of about 1: most are bent
    add(path + "soft_cap", capped);
    AttnSpec saturated = large;
    saturated.soft_cap = 50.0f;  // of logits in the hundreds: most become the cap
    add(path + "soft_cap_of_large_logits", saturated);
    AttnSpec both = per_head;
    both.sinks = true;
    both.soft_cap = 3.0f;
    add(path + "sinks_soft_cap_pages_per_head", both);
    AttnSpec wide = s;
    wide.kv = {.n_kv_heads = 1, .head_dim = 32, .n_pages = 6, .last_len = 16};
    wide.n_heads = 64;
    add(path + "group_of_64", wide);
    AttnSpec odd = s;
    odd.kv = {.n_kv_heads = 2, .head_dim = 20, .n_pages = 6, .last_len = 1};
    add(path + "head_dim_20", odd);
  }
  // Sinks, soft caps and queries for sink pages of every head size.
  for (uint32_t d : kHeadDims) {
    for (uint32_t n_tok : {1u, 20u}) {
      AttnSpec s;
      s.kv = {.n_kv_heads = 2, .head_dim = d, .n_pages = 38, .last_len = 11, .gaps = true};
      s.n_heads = 10;
      s.n_tok = n_tok;
      s.page_mass = true;
      s.lse = true;
      s.n_sink_pages = 2;
      const std::string name = (n_tok == 1 ? "decode_d" : "prefill_d") + std::to_string(d);
      add(name + "_sink_query", s);
      s.sinks = true;
      add(name + "_sinks", s);
      s.soft_cap = 2.0f;
      s.window = 200;
      s.n_sink = 20;
      add(name + "_sinks_soft_cap_window", s);
      s.n_sink_pages = 0;
      s.window = 0;
      s.head_window = 50;
      s.head_sinks = 20;
      add(name + "_sinks_soft_cap_windows_of_heads", s);
    }
  }
  AttnSpec first;
  first.kv = {.n_kv_heads = 1, .head_dim = 64, .n_pages = 1, .last_len = 1};
  first.lse = true;
  add("first_token", first);
  for (uint32_t d : {8u, 20u, 64u, 80u, 96u, 128u, 160u, 256u}) {
    for (uint32_t group : {1u, 2u, 3u, 4u, 7u, 8u, 16u}) {
      AttnSpec s;
      s.kv = {.n_kv_heads = 2, .head_dim = d, .n_pages = 37, .last_len = 11, .gaps = true};
      s.n_heads = 2 * group;
      s.select_every = 4;
      s.list_per_head = true;
      s.page_mass = true;
      s.lse = true;
      add("pages_per_head_d" + std::to_string(d) + "_g" + std::to_string(group), s);
    }
  }
  AttnSpec prompt;
  prompt.kv = {.n_kv_heads = 2, .head_dim = 64, .n_pages = 13, .last_len = 8};
  prompt.n_heads = 6;
  prompt.n_tok = 200;
  add("whole_prompt_of_200", prompt);
  prompt.n_threads = 1;
  add("whole_prompt_one_thread", prompt);
  return list;
}

void reference_equals_dense_computation(void**) {
  for (uint32_t n_tok : {1u, 19u}) {
    AttnSpec s;
    s.kv = {.n_kv_heads = 2, .head_dim = 64, .n_pages = 40, .last_len = 9};
    s.n_heads = 6;
    s.n_tok = n_tok;
    s.n_sink_pages = 1;
    s.window = 200;
    s.n_sink = 7;
    s.lse = true;
    for (const bool bent : {false, true}) {
      s.sinks = bent;
      s.soft_cap = bent ? 2.0f : 0.0f;
      s.select_every = 0;
      s.list_per_head = false;
      AttnCase c(s, 4);
      c.run(reference_backend());
      std::vector<float> lse;
      const std::vector<float> out = c.dense(&lse);
      assert_true(close_enough("reference", c.out.data(), out.data(), out.size(), 1e-11));
      assert_true(close_enough("lse of the reference", c.lse.data(), lse.data(), lse.size(), 1e-12));
    }
    for (bool list_per_head : {false, true}) {
      s.select_every = list_per_head ? 2 : 0;
      s.list_per_head = list_per_head;
      AttnCase c(s, 3);
      c.run(reference_backend());
      std::vector<float> lse;
      const std::vector<float> out = c.dense(&lse);
      assert_true(close_enough("reference", c.out.data(), out.data(), out.size(), 1e-11));
      assert_true(close_enough("lse of the reference", c.lse.data(), lse.data(), lse.size(), 1e-12));
    }
  }
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/attn_paged", cases(), {},
                   {{"attn_paged__reference_equals_dense_computation", reference_equals_dense_computation, nullptr,
                     nullptr, nullptr}});
}
