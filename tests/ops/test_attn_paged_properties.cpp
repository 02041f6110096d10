// ops: attn_paged, properties that hold for any numbers. The cases against the reference are in test_attn_paged.cpp.
#include <algorithm>
#include <cstring>

#include "tests/ops/attn_case.h"

namespace weir::test {
namespace {

// f32 sums in another order, and another exp.
double max_nmse(const Backend& backend) { return backend.device == WEIR_DEVICE_CUDA ? kCudaAttnNmse : 1e-11; }

// Three units (70 pages), six heads on two streams; 1 row is decode, more are prefill.
AttnSpec spec_of(uint32_t n_tok) {
  AttnSpec s;
  s.kv = {.n_kv_heads = 2, .head_dim = 64, .n_pages = 70, .last_len = 5};
  s.n_heads = 6;
  s.n_tok = n_tok;
  s.page_mass = true;
  return s;
}

constexpr uint32_t kRowCounts[] = {1, 2, 37};

void assert_same_bits(const std::vector<float>& x, const std::vector<float>& y) {
  assert_int_equal(x.size(), y.size());
  assert_memory_equal(x.data(), y.data(), x.size() * sizeof(float));
}

// Partials (1, ln 3) and (5, ln 1) give (2, ln 4); a third of lse -inf, whose memory is NaN, changes nothing
// (docs/algorithms.md, "Merging partial attention").
void lse_merge_golden(const Backend& backend) {
  for (uint32_t n_tok : {1u, 2u}) {
    AttnSpec s;
    s.kv = {.n_kv_heads = 1, .head_dim = 8, .n_pages = 2 * kSplitPages + 6};
    s.n_tok = n_tok;
    s.page_mass = true;
    s.lse = true;
    AttnCase c(s, 1);
    for (uint32_t row = 0; row < s.kv.n_pages; ++row) {
      for (uint32_t t = 0; t < kPageTokens; ++t) {
        const bool first = row == 0 && t < 3, second = row == kSplitPages && t == 0, future = row > kSplitPages;
        std::fill_n(c.kv.key(0, row, t), 8, f32_to_bf16(future ? NAN : 0.0f));
        std::fill_n(c.kv.value(0, row, t), 8, f32_to_bf16(first ? 1.0f : second ? 5.0f : future ? NAN : 1000.0f));
        if (!first && !second && !future) c.kv.key(0, row, t)[0] = f32_to_bf16(-1e4f);  // exp(-1e4) is 0
      }
    }
    std::fill(c.q.begin(), c.q.end(), 1.0f);
    c.scale = 1.0f;
    AttnPagedArgs a = c.args();
    a.pos = (kSplitPages + 1) * kPageTokens - n_tok;
    c.run(backend, a);
    for (float o : c.out) assert_float_equal(o, 2.0f, 1e-6f);
    for (float lse : c.lse) assert_float_equal(lse, std::log(4.0f), 1e-6f);
    for (uint32_t row = 0; row < s.kv.n_pages; ++row) {
      assert_float_equal(c.mass[row], row == 0 ? 0.75f : row == kSplitPages ? 0.25f : 0.0f, 1e-6f);
    }
    const std::vector<float> with_third = c.out;
    c.kv.n_pages(0) = kSplitPages + 1;
    c.run(backend, a);
    assert_same_bits(c.out, with_third);
  }
}

void same_bits_wherever_pages_lie(const Backend& backend) {
  for (uint32_t n_tok : kRowCounts) {
    AttnCase c(spec_of(n_tok), 2);
    c.run(backend);
    const std::vector<float> out = c.out, mass = c.mass;
    c.kv.move_pages(99);
    c.run(backend);
    assert_same_bits(c.out, out);
    assert_same_bits(c.mass, mass);
  }
}

void same_bits_when_the_list_names_all_pages(const Backend& backend) {
  for (uint32_t n_tok : kRowCounts) {
    AttnSpec s = spec_of(n_tok);
    AttnCase all(s, 2);
    all.run(backend);
    s.select_every = 1;
    AttnCase listed(s, 2);
    listed.run(backend);
    assert_int_equal(listed.n_select[1], s.kv.n_pages);
    assert_same_bits(listed.out, all.out);
    assert_same_bits(listed.mass, all.mass);
  }
}

void same_bits_for_any_number_of_threads(const Backend& backend) {
  for (uint32_t n_tok : kRowCounts) {
    AttnSpec s = spec_of(n_tok);
    s.n_threads = 1;
    AttnCase one(s, 3);
    one.run(backend);
    for (uint32_t n_threads : {2u, 3u, 5u}) {
      s.n_threads = n_threads;
      AttnCase more(s, 3);
      more.run(backend);
      assert_same_bits(more.out, one.out);
      assert_same_bits(more.mass, one.mass);
    }
  }
}

void order_of_pages_does_not_matter(const Backend& backend) {
  for (uint32_t n_tok : kRowCounts) {
    AttnCase c(spec_of(n_tok), 4);
    c.run(backend);
    const std::vector<float> out = c.out;
    for (uint32_t head = 0; head < 2; ++head) {
      for (uint32_t row = 0; row < 35; ++row) {
        std::swap(c.kv.slot(head, row), c.kv.slot(head, 69 - row));
        std::swap(c.kv.first_pos(head, row), c.kv.first_pos(head, 69 - row));
        std::swap(c.kv.len(head, row), c.kv.len(head, 69 - row));
      }
    }
    AttnPagedArgs a = c.args();
    a.pos = 69 * kPageTokens + 5 - n_tok;
    c.run(backend, a);
    assert_true(close_enough("reversed table", c.out.data(), out.data(), out.size(), max_nmse(backend)));
  }
}

// The same tokens in twice as many pages, half full.
void partition_into_pages_does_not_matter(const Backend& backend) {
  for (uint32_t n_tok : kRowCounts) {
    AttnSpec s = spec_of(n_tok);
    AttnCase full(s, 5);
    full.run(backend);
    s.kv.n_pages *= 2;
    AttnCase half(s, 5);
    for (uint32_t head = 0; head < 2; ++head) {
      for (uint32_t row = 0; row < s.kv.n_pages; ++row) {
        const uint32_t from = row / 2, first = row % 2 * 8, len = full.kv.len(head, from);
        half.kv.first_pos(head, row) = full.kv.first_pos(head, from) + first;
        half.kv.len(head, row) = len < first ? 0 : std::min(8u, len - first);
        for (uint32_t t = 0; t < kPageTokens; ++t) {
          const bool there = t < half.kv.len(head, row);
          for (size_t i = 0; i < 64; ++i) {
            half.kv.key(head, row, t)[i] = there ? full.kv.key(head, from, first + t)[i] : PagedKv::kNan;
            half.kv.value(head, row, t)[i] = there ? full.kv.value(head, from, first + t)[i] : PagedKv::kNan;
          }
        }
      }
    }
    half.q = full.q;
    AttnPagedArgs a = half.args();
    a.pos = full.args().pos;
    half.run(backend, a);
    assert_true(
        close_enough("half-filled pages", half.out.data(), full.out.data(), full.out.size(), max_nmse(backend)));
  }
}

void masses_sum_to_one(const Backend& backend) {
  for (uint32_t n_tok : kRowCounts) {
    for (uint32_t window : {0u, 100u}) {
      AttnSpec s = spec_of(n_tok);
      s.window = window;
      s.select_every = 2;
      s.kv.key_scale = 3.0f;
      AttnCase c(s, 6);
      c.run(backend);
      for (uint32_t head = 0; head < s.n_heads; ++head) {
        double sum = 0.0;
        for (uint32_t p = 0; p < c.n_select[head / 3]; ++p) sum += double{c.mass[size_t{head} * c.kv.capacity() + p]};
        assert_true(std::fabs(sum - 1.0) < 1e-5);
      }
    }
  }
}

// Logits of 0 for three tokens and of ln 2 for the sink: the sink takes 2 / 5, the lse is ln 5.
void sink_golden(const Backend& backend) {
  for (uint32_t n_tok : {1u, 2u}) {
    AttnSpec s;
    s.kv = {.n_kv_heads = 1, .head_dim = 64, .n_pages = kSplitPages + 2};
    s.n_heads = 2;
    s.n_tok = n_tok;
    s.page_mass = true;
    s.lse = true;
    s.sinks = true;
    AttnCase c(s, 1);
    for (uint32_t row = 0; row < s.kv.n_pages; ++row) {
      for (uint32_t t = 0; t < kPageTokens; ++t) {
        const bool counts = (row == 0 && t < 2) || (row == kSplitPages && t == 5);
        std::fill_n(c.kv.key(0, row, t), 64, uint16_t{0});
        std::fill_n(c.kv.value(0, row, t), 64, f32_to_bf16(counts ? 5.0f : 1000.0f));
        if (!counts) c.kv.key(0, row, t)[0] = f32_to_bf16(-1e4f);  // exp(-1e4) is 0
      }
    }
    std::fill(c.q.begin(), c.q.end(), 1.0f);
    c.scale = 1.0f;
    c.sinks = {std::log(2.0f), -200.0f};
    c.run(backend);
    for (size_t i = 0; i < c.out.size(); ++i) assert_float_equal(c.out[i], (i / 64 % 2 == 0 ? 3.0f : 5.0f), 2e-6f);
    for (size_t i = 0; i < c.lse.size(); ++i) assert_float_equal(c.lse[i], std::log(i % 2 == 0 ? 5.0f : 3.0f), 2e-6f);
    const float* mass = c.mass.data();
    assert_float_equal(mass[0], 0.4f, 1e-6f);
    assert_float_equal(mass[kSplitPages], 0.2f, 1e-6f);
    assert_float_equal(mass[c.kv.capacity()], 2.0f / 3.0f, 1e-6f);
  }
}

// A sink at -inf is none, to the last bit.
void sinks_of_no_weight_change_nothing(const Backend& backend) {
  for (uint32_t n_tok : kRowCounts) {
    AttnSpec s = spec_of(n_tok);
    s.lse = true;
    AttnCase without(s, 13);
    without.run(backend);
    s.sinks = true;
    AttnCase with(s, 13);
    std::fill(with.sinks.begin(), with.sinks.end(), -INFINITY);
    with.run(backend);
    assert_same_bits(with.out, without.out);
    assert_same_bits(with.mass, without.mass);
    assert_same_bits(with.lse, without.lse);
  }
}

// The masses of the attended pages and of the sink, exp(sink - lse), are the whole softmax.
void masses_and_sink_sum_to_one(const Backend& backend) {
  for (uint32_t n_tok : kRowCounts) {
    for (float soft_cap : {0.0f, 2.0f}) {
      AttnSpec s = spec_of(n_tok);
      s.select_every = 2;
      s.lse = s.sinks = true;
      s.soft_cap = soft_cap;
      AttnCase c(s, 14);
      c.run(backend);
      double most = 0.0;  // of the sinks
      for (uint32_t head = 0; head < s.n_heads; ++head) {
        double sum = std::exp(double{c.sinks[head]} - double{c.lse[size_t{n_tok - 1} * s.n_heads + head]});
        most = std::max(most, sum);
        for (uint32_t p = 0; p < c.n_select[head / 3]; ++p) sum += double{c.mass[size_t{head} * c.kv.capacity() + p]};
        assert_true(std::fabs(sum - 1.0) < 1e-5);
      }
      assert_true(most > 0.1);
    }
  }
}

// With a sink too, a row without tokens gives 0; its lse is the sink.
void rows_of_a_sink_alone_are_zero(const Backend& backend) {
  for (uint32_t n_tok : kRowCounts) {
    AttnSpec s = spec_of(n_tok);
    s.lse = s.sinks = true;
    s.soft_cap = 5.0f;
    s.select_every = 1;
    AttnCase c(s, 15);
    c.n_select = {0, 1};
    c.run(backend);
    for (size_t i = 0; i < c.out.size(); ++i) assert_true((c.out[i] == 0.0f) == (i / 64 % s.n_heads < 3));
    for (size_t i = 0; i < c.lse.size(); ++i) {
      if (i % s.n_heads < 3) assert_float_equal(c.lse[i], c.sinks[i % s.n_heads], 1e-6f);
    }
  }
}

void window_equals_dense_computation(const Backend& backend) {
  for (uint32_t n_tok : kRowCounts) {
    for (uint32_t window : {1u, 15u, 16u, 17u, 300u, 5000u}) {
      for (uint32_t n_sink : {0u, 4u, 40u}) {
        AttnSpec s = spec_of(n_tok);
        s.window = window;
        s.n_sink = n_sink;
        s.n_sink_pages = 2;
        s.kv.gaps = n_sink == 4;
        AttnCase c(s, 7);
        c.run(backend);
        assert_true(close_enough("window", c.out.data(), c.dense().data(), c.out.size(), max_nmse(backend)));
      }
    }
  }
}

void prefill_row_equals_decode(const Backend& backend) {
  for (uint32_t window : {0u, 50u}) {
    AttnSpec s = spec_of(37);
    s.window = window;
    s.n_sink = 3;
    s.n_sink_pages = 1;
    AttnCase rows(s, 8);
    rows.run(backend);
    const size_t row_size = size_t{s.n_heads} * s.kv.head_dim;
    for (uint32_t i = 0; i < s.n_tok; ++i) {
      std::vector<float> out(row_size);
      AttnPagedArgs a = rows.args();
      a.out = out.data();
      a.q += i * row_size;
      a.q_sink += i * row_size;
      a.n_tok = 1;
      a.pos += i;
      a.page_mass = nullptr;
      rows.run(backend, a);
      assert_true(close_enough("row", rows.out.data() + i * row_size, out.data(), row_size, max_nmse(backend)));
    }
  }
}

void unseen_tokens_leave_no_trace(const Backend& backend) {
  for (uint32_t n_tok : kRowCounts) {
    AttnSpec s = spec_of(n_tok);
    s.window = 203;
    s.n_sink = 21;
    AttnCase c(s, 9);
    c.run(backend);
    const std::vector<float> out = c.out, mass = c.mass;
    // On the GPU a weight of 0 hides finite values only; a session never writes anything else to its pages.
    const uint16_t hidden = backend.device == WEIR_DEVICE_CUDA ? f32_to_bf16(1e30f) : PagedKv::kNan;
    const uint32_t first_row_pos = c.args().pos;
    for (uint32_t row = 0; row < s.kv.n_pages; ++row) {
      for (uint32_t t = 0; t < c.kv.len(0, row); ++t) {
        const uint32_t pos = c.kv.first_pos(0, row) + t;
        if (pos < s.n_sink || pos + s.window > first_row_pos) continue;
        std::fill_n(c.kv.key(0, row, t), 64, hidden);
        std::fill_n(c.kv.value(0, row, t), 64, hidden);
      }
    }
    c.run(backend);
    assert_same_bits(c.out, out);
    assert_same_bits(c.mass, mass);
    // Only the last row sees the last token.
    for (uint32_t head = 0; head < 2; ++head) {
      std::fill_n(c.kv.key(head, s.kv.n_pages - 1, s.kv.last_len - 1), 64, f32_to_bf16(3.0f));
      std::fill_n(c.kv.value(head, s.kv.n_pages - 1, s.kv.last_len - 1), 64, f32_to_bf16(-70.0f));
    }
    c.run(backend);
    const size_t row_size = size_t{s.n_heads} * 64, before = (n_tok - 1) * row_size;
    assert_memory_equal(c.out.data(), out.data(), before * sizeof(float));
    assert_memory_not_equal(c.out.data() + before, out.data() + before, row_size * sizeof(float));
  }
}

void rows_that_see_nothing_are_zero(const Backend& backend) {
  for (uint32_t n_tok : kRowCounts) {
    AttnSpec s = spec_of(n_tok);
    AttnCase future(s, 10);
    for (uint32_t row = 0; row < s.kv.n_pages; ++row) future.kv.first_pos(0, row) += 100000;
    AttnPagedArgs a = future.args();
    a.pos = 70 * kPageTokens;
    future.run(backend, a);
    s.select_every = 1;
    AttnCase nothing(s, 10);
    nothing.n_select = {0, 1};
    nothing.run(backend);
    for (size_t i = 0; i < future.out.size(); ++i) {
      const bool first_stream = i / 64 % s.n_heads < 3;
      if (first_stream) assert_true(future.out[i] == 0.0f && nothing.out[i] == 0.0f);
      if (!first_stream) assert_true(future.out[i] != 0.0f && nothing.out[i] != 0.0f);
    }
    for (size_t i = 0; i < 3 * size_t{future.kv.capacity()}; ++i) assert_true(future.mass[i] == 0.0f);
  }
}

// Rotates [d] at `pos`, pairs (i, i + d/2), base 10000, in f64.
std::vector<double> rotated(const std::vector<float>& x, double pos) {
  const size_t half = x.size() / 2;
  std::vector<double> y(x.size());
  for (size_t i = 0; i < half; ++i) {
    const double angle = pos * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
    y[i] = double{x[i]} * std::cos(angle) - double{x[half + i]} * std::sin(angle);
    y[half + i] = double{x[i]} * std::sin(angle) + double{x[half + i]} * std::cos(angle);
  }
  return y;
}

// Sink pages at 0..15 and six window pages. In-cache positions: however far the window has moved, the result is that of
// a context without the gap, because the sink query is rotated to its in-cache position.
void sink_query_makes_distance_irrelevant(const Backend& backend) {
  std::vector<float> first;
  for (uint32_t shift : {0u, 16u, 16000u}) {
    AttnSpec s;
    s.kv = {.n_kv_heads = 1, .head_dim = 64, .n_pages = 7};
    s.n_sink_pages = 1;
    AttnCase c(s, 11);
    Random random(12);
    for (uint32_t row = 0; row < 7; ++row) {
      c.kv.first_pos(0, row) = row == 0 ? 0 : row * kPageTokens + shift;
      for (uint32_t t = 0; t < kPageTokens; ++t) {
        const std::vector<double> key = rotated(random.normals(64), c.kv.first_pos(0, row) + t);
        for (size_t i = 0; i < 64; ++i) c.kv.key(0, row, t)[i] = f32_to_bf16(static_cast<float>(key[i]));
      }
    }
    const uint32_t in_cache = 7 * kPageTokens - 1;
    const std::vector<float> raw = random.normals(64, 2.0f);
    const std::vector<double> q = rotated(raw, in_cache + shift), q_sink = rotated(raw, in_cache);
    std::copy(q.begin(), q.end(), c.q.begin());
    std::copy(q_sink.begin(), q_sink.end(), c.q_sink.begin());
    c.run(backend);
    if (shift == 0) first = c.out;
    // Keys at other positions round to other bf16 values: 2^-9 of a key, about 1e-3 of a logit.
    assert_true(close_enough("shifted window", c.out.data(), first.data(), first.size(), 1e-4));
  }
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
#define WEIR_PROPERTY(name) \
  { "attn_paged__" #name, name }
  return run_group(
      "ops/attn_paged_properties", {},
      {WEIR_PROPERTY(lse_merge_golden), WEIR_PROPERTY(same_bits_wherever_pages_lie),
       WEIR_PROPERTY(same_bits_when_the_list_names_all_pages), WEIR_PROPERTY(same_bits_for_any_number_of_threads),
       WEIR_PROPERTY(order_of_pages_does_not_matter), WEIR_PROPERTY(partition_into_pages_does_not_matter),
       WEIR_PROPERTY(masses_sum_to_one), WEIR_PROPERTY(sink_golden), WEIR_PROPERTY(sinks_of_no_weight_change_nothing),
       WEIR_PROPERTY(masses_and_sink_sum_to_one), WEIR_PROPERTY(rows_of_a_sink_alone_are_zero),
       WEIR_PROPERTY(window_equals_dense_computation), WEIR_PROPERTY(prefill_row_equals_decode),
       WEIR_PROPERTY(unseen_tokens_leave_no_trace), WEIR_PROPERTY(rows_that_see_nothing_are_zero),
       WEIR_PROPERTY(sink_query_makes_distance_irrelevant)});
#undef WEIR_PROPERTY
}
