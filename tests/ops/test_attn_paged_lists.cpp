// ops: attn_paged with page lists per query head, and the lse of rows. The cases against the reference are in
// test_attn_paged.cpp, other properties in test_attn_paged_properties.cpp.
#include <algorithm>

#include "tests/ops/attn_case.h"

namespace weir::test {
namespace {

// f32 sums in another order, and another exp.
double max_nmse(const Backend& backend) { return backend.device == WEIR_DEVICE_CUDA ? kCudaAttnNmse : 1e-11; }

AttnSpec spec_of(uint32_t n_tok) {
  AttnSpec s;
  s.kv = {.n_kv_heads = 2, .head_dim = 64, .n_pages = 70, .last_len = 5};
  s.n_heads = 6;
  s.n_tok = n_tok;
  s.page_mass = true;
  s.lse = true;
  return s;
}

// The arguments of one head alone: its KV head's stream, its queries, its list.
struct HeadAlone {
  std::vector<float> q, q_sink, out, mass, lse;
  AttnPagedArgs args;

  HeadAlone(AttnCase& c, uint32_t head) : args(c.args()) {
    const AttnPagedArgs all = args;
    const uint32_t kv_head = head / (all.n_heads / all.kv.n_kv_heads), capacity = all.kv.capacity;
    const size_t d = all.kv.head_dim;
    for (size_t tok = 0; tok < all.n_tok; ++tok) {
      const float* from = all.q + (tok * all.n_heads + head) * d;
      q.insert(q.end(), from, from + d);
      if (all.q_sink == nullptr) continue;
      from = all.q_sink + (tok * all.n_heads + head) * d;
      q_sink.insert(q_sink.end(), from, from + d);
    }
    out.assign(q.size(), NAN);
    mass.assign(capacity, NAN);
    lse.assign(all.n_tok, NAN);
    args.out = out.data();
    args.q = q.data();
    args.q_sink = all.q_sink == nullptr ? nullptr : q_sink.data();
    args.page_mass = mass.data();
    args.lse = lse.data();
    args.n_heads = 1;
    args.list_per_head = false;
    args.select = all.select + size_t{head} * capacity;
    args.n_select = all.n_select + head;
    args.kv.n_kv_heads = 1;
    args.kv.slots += size_t{kv_head} * capacity;
    args.kv.first_pos += size_t{kv_head} * capacity;
    args.kv.len += size_t{kv_head} * capacity;
    args.kv.n_pages += kv_head;
  }
};

void assert_near(const char* what, const float* got, const std::vector<float>& want, size_t n, double max_nmse) {
  assert_true(close_enough(what, got, want.data(), n, max_nmse));
}

// One row: the same bits, because each head sums by itself. Several rows go through another implementation if heads
// share a list.
void list_per_head_equals_each_head_alone(const Backend& backend) {
  for (uint32_t n_tok : {1u, 3u}) {
    for (uint32_t d : {20u, 64u, 128u}) {
      for (uint32_t window : {0u, 300u}) {
        AttnSpec s = spec_of(n_tok);
        s.kv.head_dim = d;
        s.kv.gaps = true;
        s.select_every = 5;
        s.list_per_head = true;
        s.window = window;
        s.n_sink = window == 0 ? 0 : 21;
        s.n_sink_pages = 2;
        AttnCase c(s, d + window);
        c.n_select[1] = 33;  // one page beyond a unit
        for (uint32_t i = 0; i < 33; ++i) c.select[c.kv.capacity() + i] = 37 + i;
        c.run(backend);
        const double bound = n_tok == 1 ? 0.0 : max_nmse(backend);
        for (uint32_t head = 0; head < s.n_heads; ++head) {
          HeadAlone alone(c, head);
          c.run(backend, alone.args);
          for (size_t tok = 0; tok < n_tok; ++tok) {
            const size_t at = tok * s.n_heads + head;
            const std::vector<float> want(alone.out.begin() + static_cast<ptrdiff_t>(tok * d),
                                          alone.out.begin() + static_cast<ptrdiff_t>((tok + 1) * d));
            assert_near("head", &c.out[at * d], want, d, bound);
            assert_near("lse", &c.lse[at], {alone.lse[tok]}, 1, bound);
          }
          assert_near("page mass", &c.mass[size_t{head} * c.kv.capacity()], alone.mass, c.n_select[head], bound);
        }
      }
    }
  }
}

// When the heads of a group have equal lists, the result is that of one list for the group.
void equal_lists_of_a_group_are_one_list(const Backend& backend) {
  AttnSpec s = spec_of(1);
  s.select_every = 3;
  AttnCase shared(s, 4);
  shared.run(backend);
  s.list_per_head = true;
  AttnCase each(s, 4);
  for (uint32_t head = 0; head < s.n_heads; ++head) {
    each.n_select[head] = shared.n_select[head / 3];
    std::copy_n(&shared.select[size_t{head / 3} * shared.kv.capacity()], each.n_select[head],
                &each.select[size_t{head} * each.kv.capacity()]);
  }
  each.run(backend);
  assert_near("out", each.out.data(), shared.out, each.out.size(), max_nmse(backend));
  assert_near("page mass", each.mass.data(), shared.mass, each.mass.size(), max_nmse(backend));
  assert_near("lse", each.lse.data(), shared.lse, each.lse.size(), max_nmse(backend));
}

// A head without pages gives 0 and -inf and does not affect the others.
void empty_list_of_one_head_gives_zero(const Backend& backend) {
  AttnSpec s = spec_of(1);
  s.select_every = 2;
  s.list_per_head = true;
  AttnCase c(s, 5);
  c.run(backend);
  const std::vector<float> out = c.out, lse = c.lse;
  c.n_select[4] = 0;
  c.run(backend);
  for (size_t i = 0; i < out.size(); ++i) assert_true(c.out[i] == (i / 64 == 4 ? 0.0f : out[i]));
  for (uint32_t head = 0; head < s.n_heads; ++head) assert_true(c.lse[head] == (head == 4 ? -INFINITY : lse[head]));
}

void results_do_not_depend_on_threads(const Backend& backend) {
  AttnSpec s = spec_of(1);
  s.select_every = 2;
  s.list_per_head = true;
  s.n_threads = 1;
  AttnCase one(s, 6);
  one.run(backend);
  for (uint32_t n_threads : {2u, 5u}) {
    s.n_threads = n_threads;
    AttnCase more(s, 6);
    more.run(backend);
    assert_memory_equal(more.out.data(), one.out.data(), one.out.size() * sizeof(float));
    assert_memory_equal(more.lse.data(), one.lse.data(), one.lse.size() * sizeof(float));
    assert_memory_equal(more.mass.data(), one.mass.data(), one.mass.size() * sizeof(float));
  }
}

// Both implementations, with everything that hides tokens, against f64.
void lse_equals_f64(const Backend& backend) {
  for (uint32_t n_tok : {1u, 2u, 37u}) {
    for (uint32_t window : {0u, 17u, 300u}) {
      for (bool selected : {false, true}) {
        for (float key_scale : {1.0f, 20.0f}) {
          AttnSpec s = spec_of(n_tok);
          s.kv.n_pages = 40;  // two units
          s.window = window;
          s.n_sink = window == 0 ? 0 : 5;
          s.n_sink_pages = 1;
          s.select_every = selected ? 3 : 0;
          s.kv.key_scale = key_scale;
          AttnCase c(s, 8);
          c.run(backend);
          std::vector<float> lse;
          const std::vector<float> out = c.dense(&lse);
          assert_near("lse", c.lse.data(), lse, lse.size(), backend.device == WEIR_DEVICE_CUDA ? 1e-11 : 1e-12);
          // Logits in the hundreds have errors of 1e-5, and so have the weights; relative to its size the lse has not.
          assert_near("out", c.out.data(), out, out.size(),
                      key_scale == 1.0f ? max_nmse(backend) : kCudaLargeLogitsNmse);
        }
      }
    }
  }
}

// Two lists that together name all pages, merged by their lse, give the whole (docs/algorithms.md, "Merging partial
// attention").
void halves_merge_to_the_whole(const Backend& backend) {
  for (uint32_t n_tok : {1u, 2u}) {
    AttnSpec s = spec_of(n_tok);
    s.select_every = 1;
    AttnCase whole(s, 9), low(s, 9), high(s, 9);
    whole.run(backend);
    for (uint32_t stream = 0; stream < 2; ++stream) {
      low.n_select[stream] = 41;
      high.n_select[stream] = 29;
      for (uint32_t i = 0; i < 29; ++i) high.select[high.kv.at(stream, i)] = 41 + i;
    }
    low.run(backend);
    high.run(backend);
    std::vector<float> out(whole.out.size()), lse(whole.lse.size());
    for (size_t row = 0; row < lse.size(); ++row) {
      const double x = std::exp(double{low.lse[row]}), y = std::exp(double{high.lse[row]});
      lse[row] = static_cast<float>(std::log(x + y));
      for (size_t i = row * 64; i < (row + 1) * 64; ++i)
        out[i] = static_cast<float>((x * double{low.out[i]} + y * double{high.out[i]}) / (x + y));
    }
    assert_near("out", out.data(), whole.out, out.size(), max_nmse(backend));
    assert_near("lse", lse.data(), whole.lse, lse.size(), 1e-12);
  }
}

void rows_that_see_nothing_have_no_mass(const Backend& backend) {
  for (uint32_t n_tok : {1u, 2u, 37u}) {
    AttnCase c(spec_of(n_tok), 10);
    for (uint32_t row = 0; row < 70; ++row) c.kv.first_pos(0, row) += 100000;
    AttnPagedArgs a = c.args();
    a.pos = 70 * kPageTokens;
    c.run(backend, a);
    for (size_t i = 0; i < c.lse.size(); ++i) assert_true(i % 6 < 3 ? c.lse[i] == -INFINITY : std::isfinite(c.lse[i]));
  }
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
#define WEIR_PROPERTY(name) \
  { "attn_paged__" #name, name }
  return run_group(
      "ops/attn_paged_lists", {},
      {WEIR_PROPERTY(list_per_head_equals_each_head_alone), WEIR_PROPERTY(equal_lists_of_a_group_are_one_list),
       WEIR_PROPERTY(empty_list_of_one_head_gives_zero), WEIR_PROPERTY(results_do_not_depend_on_threads),
       WEIR_PROPERTY(lse_equals_f64), WEIR_PROPERTY(halves_merge_to_the_whole),
       WEIR_PROPERTY(rows_that_see_nothing_have_no_mass)});
#undef WEIR_PROPERTY
}
