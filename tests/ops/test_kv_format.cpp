// ops: formats of KV pages, their rows and the ops that read them. Mirrors lib/ops/kv_format.cpp, lib/ops/hadamard.cpp,
// lib/cpu/kv_rows-inl.h. Ops are compared with the reference, which reads rows by load_element alone.
#include <limits>

#include "ops/hadamard.h"
#include "ops/page_digest.h"
#include "ops/rope_append.h"
#include "ops/token_mass.h"
#include "tests/ops/attn_case.h"
#include "tests/ops/history_case.h"
#include "tests/ops/progressive_case.h"

namespace weir::test {
namespace {

constexpr KvFormat kQuantised[] = {KvFormat::kQ8, KvFormat::kK8V4, KvFormat::kK4V4};
constexpr RowFormat kRows[] = {RowFormat::kQ8, RowFormat::kQ4};
constexpr float kInf = std::numeric_limits<float>::infinity();

// A part of a page, and a row that went through it.
struct Part {
  Part(RowFormat format, size_t head_dim) : d(head_dim), units(part_bytes(format, d) / sizeof(uint16_t), 0xABAB) {
    part = {units.data(), format, d};
  }
  std::vector<float> through(const std::vector<float>& row, uint32_t token = 3) {
    store_row(part, token, row.data());
    std::vector<float> got(d);
    load_row({units.data(), part.format, d}, token, got.data());
    return got;
  }
  size_t d;
  std::vector<uint16_t> units;
  PagePart<uint16_t> part;
};

void sizes(void**) {
  assert_int_equal(kv_page_bytes(KvFormat::kBf16, 64), 4096);
  assert_int_equal(kv_page_bytes(KvFormat::kQ8, 64), 2176);
  assert_int_equal(kv_page_bytes(KvFormat::kK8V4, 64), 1664);
  assert_int_equal(kv_page_bytes(KvFormat::kK8V4, 128), 3328);
  assert_int_equal(kv_page_bytes(KvFormat::kK4V4, 128), 2688);
  assert_int_equal(kv_page_bytes(KvFormat::kK4V4, 96), 2048);  // 2016 and the rest of a line
  for (uint32_t i = 0; i < kKvFormats; ++i) {
    for (size_t d = 32; d <= 512; d += 32) assert_int_equal(kv_page_bytes(static_cast<KvFormat>(i), d) % 64, 0);
  }
}

// An error of at most half a step, and of 4-bit codes a whole one at the far end.
void rows_are_near(void**) {
  Random random(5);
  for (RowFormat format : kRows) {
    for (size_t d : {32, 64, 96, 256}) {
      Part part(format, d);
      for (uint32_t token = 0; token < kPageTokens; ++token) {
        const std::vector<float> row = random.normals(d, token == 7 ? 1e-30f : token == 8 ? 1e30f : 1.0f);
        const std::vector<float> got = part.through(row, token);
        for (size_t i = 0; i < d; ++i) {
          float most = 0.0f;
          for (size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) most = std::max(most, std::fabs(row[j]));
          const float step = most / (format == RowFormat::kQ8 ? 127.0f : 8.0f);
          const bool far = format == RowFormat::kQ4 && std::fabs(row[i]) > 7.4f * step;
          assert_true(std::fabs(got[i] - row[i]) <= step * (far ? 1.05f : 0.51f));
        }
      }
    }
  }
}

// Known rows: codes, scales and what they decode to, exactly.
void known_rows(void**) {
  std::vector<float> row(32, 0.0f);
  for (size_t i = 0; i < 32; ++i) row[i] = static_cast<float>(i) - 16.0f;  // -16 .. 15
  Part q4(RowFormat::kQ4, 32);
  const std::vector<float> four = q4.through(row);
  assert_float_equal(bf16_to_f32(q4.part.scales(3)[0]), 2.0f, 0.0f);  // -16 / -8
  const auto* codes = reinterpret_cast<const uint8_t*>(q4.part.codes(3));
  assert_int_equal(codes[0], 0x00 | 0x00 << 4);  // -16 and -15, which is -7.5 steps: to even
  assert_int_equal(codes[8], 8 | 8 << 4);        // 0, and 1: half a step, to even
  assert_int_equal(codes[15], 15 | 15 << 4);     // 14, and 15, which no code reaches
  assert_float_equal(four[0], -16.0f, 0.0f);
  assert_float_equal(four[31], 14.0f, 0.0f);
  row[0] = -127.0f;
  Part q8(RowFormat::kQ8, 32);
  const std::vector<float> eight = q8.through(row);
  for (size_t i = 0; i < 32; ++i) assert_float_equal(eight[i], row[i], 0.0f);
  // No number is lost in silence, and only its block is.
  Part wide(RowFormat::kQ8, 64);
  std::vector<float> bad(64, 1.0f);
  for (float x : {NAN, kInf, -kInf}) {
    for (RowFormat format : kRows) {
      Part part(format, 64);
      bad[40] = x;
      const std::vector<float> got = part.through(bad);
      for (size_t i = 0; i < 64; ++i) assert_true(i < 32 ? std::fabs(got[i] - 1.0f) < 0.2f : std::isnan(got[i]));
    }
  }
  // Nothing, and next to nothing, is 0.
  for (RowFormat format : kRows) {
    for (float x : {0.0f, 1e-40f, -1e-39f}) {
      Part part(format, 32);
      for (float got : part.through(std::vector<float>(32, x))) assert_float_equal(got, 0.0f, 0.0f);
    }
  }
}

void tokens_do_not_touch_each_other(void**) {
  Random random(9);
  for (RowFormat format : kRows) {
    Part part(format, 96);
    std::vector<std::vector<float>> rows;
    for (uint32_t token = 0; token < kPageTokens; ++token) rows.push_back(part.through(random.normals(96), token));
    for (uint32_t token = 0; token < kPageTokens; ++token) {
      for (size_t i = 0; i < 96; ++i)
        assert_float_equal(load_element({part.units.data(), format, 96}, token, i), rows[token][i], 0.0f);
    }
  }
}

// A part with keys that are rounded by channels, and what is stored of them.
std::vector<float> through_channels(const std::vector<float>& rows, size_t d) {
  std::vector<uint16_t> units(part_bytes(RowFormat::kQ4ByChannel, d) / sizeof(uint16_t), 0xABAB), bits(rows.size());
  std::transform(rows.begin(), rows.end(), bits.begin(), f32_to_bf16);
  const auto n = static_cast<uint32_t>(rows.size() / d);
  store_by_channel({units.data(), RowFormat::kQ4ByChannel, d}, bits.data(), n);
  std::vector<float> got(rows.size());
  for (uint32_t t = 0; t < n; ++t) load_row({units.data(), RowFormat::kQ4ByChannel, d}, t, &got[t * d]);
  return got;
}

// Half a step of the channel's own range, however large its neighbours are, and with the ends as they are.
void channels_are_near(void**) {
  Random random(5);
  for (size_t d : {32, 96, 256}) {
    for (uint32_t n : {1u, 2u, 9u, 16u}) {
      std::vector<float> rows = random.normals(n * d);
      for (uint32_t t = 0; t < n; ++t) {
        rows[t * d + 3] += 1000.0f;  // a bias
        rows[t * d + 4] *= 1e20f;
        rows[t * d + 5] *= 1e-30f;
        rows[t * d + 6] = -7.25f;
        rows[t * d + 7] = 0.0f;
      }
      for (float& x : rows) x = bf16_to_f32(f32_to_bf16(x));
      const std::vector<float> got = through_channels(rows, d);
      for (size_t i = 0; i < d; ++i) {
        float low = rows[i], high = rows[i];
        for (uint32_t t = 0; t < n; ++t) low = std::min(low, rows[t * d + i]), high = std::max(high, rows[t * d + i]);
        for (uint32_t t = 0; t < n; ++t) {
          const float x = rows[t * d + i], y = got[t * d + i];
          // A step is rounded to bf16, so the 15th is up to 15 * 2^-9 of one away.
          assert_true(std::fabs(x - y) <= (high - low) / 15.0f * 0.54f);
          assert_true(x != low || y == low);
        }
      }
    }
  }
}

// Known channels, of 16 rows: 0 to 15, twice that with a bias, and one number.
void known_channels(void**) {
  std::vector<float> rows(16 * 32, 3.0f);
  for (size_t t = 0; t < 16; ++t) {
    rows[t * 32] = static_cast<float>(t);
    rows[t * 32 + 1] = 64.0f - 2.0f * static_cast<float>(t);
  }
  std::vector<float> got = through_channels(rows, 32);
  assert_true(got == rows);
  // A channel with what is no finite number, or with a range that is none, is NaN, and no other is.
  for (float x : {NAN, kInf, -kInf, 3e38f}) {
    rows[5 * 32 + 9] = x;
    rows[6 * 32 + 9] = -3e38f;
    got = through_channels(rows, 32);
    for (size_t i = 0; i < got.size(); ++i) assert_true(i % 32 == 9 ? std::isnan(got[i]) : got[i] == rows[i]);
  }
  // A range next to nothing is none.
  for (size_t t = 0; t < 16; ++t) rows[t * 32 + 9] = t == 3 ? 2e-38f : 1e-38f;
  got = through_channels(rows, 32);
  for (size_t t = 0; t < 16; ++t) assert_float_equal(got[t * 32 + 9], bf16_to_f32(f32_to_bf16(1e-38f)), 0.0f);
}

// A rotation: its own inverse, and lengths stay. Heads of 96 in three blocks of 32.
void rotations(void**) {
  ThreadPool pool(std::pmr::new_delete_resource());
  assert_true(pool.start(2).ok());
  Random random(3);
  for (uint32_t d : {32u, 64u, 96u, 128u, 160u}) {
    const size_t n = d == 64 ? 1500 : 5;  // by threads, too
    const std::vector<float> was = random.normals(n * d);
    std::vector<float> x = was;
    rotate_rows(pool, x.data(), n, d);
    double before = 0.0, after = 0.0;
    for (size_t i = 0; i < x.size(); ++i) before += double{was[i]} * was[i], after += double{x[i]} * x[i];
    assert_true(std::fabs(after / before - 1.0) < 1e-6);
    rotate_rows(pool, x.data(), n, d);
    for (size_t i = 0; i < x.size(); ++i) assert_true(std::fabs(x[i] - was[i]) < 1e-5f);
    std::vector<float> one(d, 0.0f);
    one[0] = 1.0f;
    rotate_rows(pool, one.data(), 1, d);
    const uint32_t block = d & (~d + 1);
    for (uint32_t i = 0; i < d; ++i)
      assert_true(std::fabs(one[i] - (i < block ? 1.0f / std::sqrt(static_cast<float>(block)) : 0.0f)) < 1e-6f);
  }
}

// --- ops -------------------------------------------------------------------------------------------------------------

// Runs f(backend) with the reference and, with every instruction set, on the CPU; both give outputs.
template <class F>
void compare(double max_nmse, const F& f) {
  const std::vector<float> want = f(reference_backend());
  for (int64_t target : targets()) {
    const TargetScope scope(target);
    const std::vector<float> got = f(cpu_backend());
    assert_int_equal(got.size(), want.size());
    assert_true(difference(got.data(), want.data(), got.size()).nmse <= max_nmse);
  }
}

void attention(void**) {
  for (KvFormat format : kQuantised) {
    for (uint32_t d : {32u, 64u, 96u, 128u, 256u}) {
      for (uint32_t group : {1u, 2u, 3u, 7u}) {
        for (uint32_t n_tok : {1u, 20u}) {
          AttnSpec s;
          s.kv = {.n_kv_heads = 2, .head_dim = d, .n_pages = 37, .last_len = 11, .gaps = true, .format = format};
          s.n_heads = 2 * group;
          s.n_tok = n_tok;
          s.page_mass = s.lse = true;
          s.n_sink_pages = 2;
          s.sinks = true;
          s.select_every = n_tok == 1 ? 2 : 0;
          compare(1e-11, [&](const Backend& b) {
            AttnCase c(s, 7);
            c.run(b);
            std::vector<float> all = c.out;
            all.insert(all.end(), c.mass.begin(), c.mass.end());
            all.insert(all.end(), c.lse.begin(), c.lse.end());
            return all;
          });
        }
      }
    }
  }
}

// What nobody may read: NaN, or other codes where scales are those of other rows, too.
void spoil_row(const PagePart<uint16_t>& part, uint32_t token) {
  const std::vector<float> nan(part.head_dim, NAN);
  if (!is_by_channel(part.format)) return store_row(part, token, nan.data());
  for (size_t i = 0; i < row_code_bytes(part.format, part.head_dim) / sizeof(uint16_t); ++i)
    part.codes(token)[i] ^= 0xFFFF;
}

// A prompt's own tokens are attended as they are: pages that hold something else there change nothing.
void own_tokens(void**) {
  for (KvFormat format : kQuantised) {
    AttnSpec s;
    s.kv = {.n_kv_heads = 2, .head_dim = 64, .n_pages = 37, .last_len = 11, .format = format};
    s.n_heads = 6;
    s.n_tok = 40;
    s.window = 300;
    s.n_sink = 20;
    const size_t n = size_t{s.n_tok} * s.kv.n_kv_heads * s.kv.head_dim;
    Random random(4);
    const std::vector<float> k = random.normals(n), v = random.normals(n);
    const auto attend = [&](const Backend& b, bool spoilt) {
      AttnCase c(s, 7);
      AttnPagedArgs a = c.args();
      a.k_rows = k.data();
      a.v_rows = v.data();
      for (uint32_t head = 0; spoilt && head < 2; ++head) {
        for (uint32_t pos = a.pos; pos < a.pos + s.n_tok; ++pos) {
          uint16_t* page = a.kv.pool + c.kv.slot(head, pos / 16) * a.kv.page_elements();
          spoil_row(keys_in(format, page, 64), pos % 16);
          spoil_row(values_in(format, page, 64), pos % 16);
        }
      }
      c.run(b, a);
      return c.out;
    };
    compare(1e-11, [&](const Backend& b) { return attend(b, false); });
    for (const Backend* b : {&reference_backend(), &cpu_backend()}) assert_true(attend(*b, true) == attend(*b, false));
  }
}

// The open page is read where it is, and not from the pool.
void open_pages(void**) {
  for (KvFormat format : kQuantised) {
    for (uint32_t n_tok : {1u, 2u}) {
      AttnSpec s;
      s.kv = {.n_kv_heads = 2, .head_dim = 64, .n_pages = 5, .last_len = 9, .format = format};
      s.n_heads = 4;
      s.n_tok = n_tok;
      const auto attend = [&](const Backend& b, bool spoilt) {
        AttnCase c(s, 7);
        for (uint32_t head = 0; spoilt && head < 2; ++head) {
          uint16_t* page = c.args().kv.pool + c.kv.slot(head, 4) * c.args().kv.page_elements();
          for (uint32_t t = 0; t < 9; ++t) spoil_row(keys_in(format, page, 64), t);
        }
        c.run(b);
        return c.out;
      };
      for (const Backend* b : {&reference_backend(), &cpu_backend()}) {
        const std::vector<float> out = attend(*b, true);
        assert_true(out == attend(*b, false));
        for (float x : out) assert_true(std::isfinite(x));
      }
    }
  }
}

void progressive(void**) {
  for (KvFormat format : kQuantised) {
    ProgressiveSpec s;
    s.attn.kv = {.n_kv_heads = 2, .head_dim = 64, .n_pages = 45, .last_len = 6, .format = format};
    s.attn.n_heads = 6;
    s.attn.page_mass = true;
    s.eps = 0.9f;
    s.microbatch = 3;
    compare(1e-10, [&](const Backend& b) {
      ProgressiveCase c(s, 3);
      c.run(b);
      std::vector<float> all = c.attn.out;
      for (uint32_t n : c.n_select) all.push_back(static_cast<float>(n));
      return all;
    });
  }
}

void masses_of_tokens(void**) {
  for (KvFormat format : kQuantised) {
    PagedKv kv({.n_kv_heads = 2, .head_dim = 96, .n_pages = 6, .last_len = 5, .format = format}, 3);
    Random random(8);
    const std::vector<float> q = random.normals(size_t{4} * 4 * 96), lse(16, 3.0f);
    compare(1e-11, [&](const Backend& b) {
      std::vector<float> mass(size_t{2} * kv.capacity() * kPageTokens, 0.0f);
      TokenMassArgs a = {};
      a.mass = mass.data();
      a.q = q.data();
      a.lse = lse.data();
      a.kv = kv.view();
      a.n_rows = 4;
      a.n_heads = 4;
      a.pos = kv.end_pos() - 4;
      a.scale = 0.1f;
      OpShapes shapes;
      shapes.n_heads = 4;
      shapes.n_kv_heads = 2;
      shapes.head_dim = 96;
      shapes.max_pages = kv.capacity();
      Machine machine(b, shapes);
      machine.check(b.ops.token_mass(machine.cx(), a));
      return mass;
    });
  }
}

// What is appended: the same bits as by the reference, in the pool, in the open page and in the digests, which are
// those of the stored keys.
void appended_rows(void**) {
  for (KvFormat format : kQuantised) {
    for (uint32_t n_tok : {1u, 3u, 40u, 100u, 150u}) {
      const uint32_t in_page = 6, n_new = (in_page + n_tok + kPageTokens - 1) / kPageTokens;
      const auto append = [&](const Backend& b) {
        PagedKv kv({.n_kv_heads = 2, .head_dim = 64, .n_pages = 2, .spare_rows = n_new + 1, .format = format}, 5);
        for (uint32_t head = 0; head < 2; ++head) {
          kv.n_pages(head) = 2 + n_new;
          for (uint32_t i = 0; i < n_new; ++i) {
            kv.first_pos(head, 2 + i) = 32 + i * kPageTokens;
            kv.len(head, 2 + i) = std::min(kPageTokens, in_page + n_tok - i * kPageTokens);
          }
        }
        std::fill(kv.digests().begin(), kv.digests().end(), uint16_t{0});
        for (uint32_t head = 0; head < 2; ++head) {  // what came before is in the open page
          for (size_t i = 0; i < in_page * size_t{64}; ++i)
            kv.view().open_page(head, 2)[i] = f32_to_bf16(static_cast<float>(head + i % 19));
        }
        Random random(6);
        std::vector<float> q = random.normals(size_t{n_tok} * 4 * 64), k = random.normals(size_t{n_tok} * 2 * 64),
                           v = random.normals(size_t{n_tok} * 2 * 64), cos_sin(size_t{n_tok} * 64, 0.6f);
        const std::vector<uint32_t> append_row(2, 2);
        RopeAppendArgs a = {};
        a.q = q.data();
        a.k = k.data();
        a.v = v.data();
        a.cos_sin = cos_sin.data();
        a.rope_dim = 64;
        a.n_tok = n_tok;
        a.n_heads = 4;
        a.pos = 32 + in_page;
        a.kv = kv.view();
        a.append_row = append_row.data();
        OpShapes shapes;
        shapes.max_tok = n_tok;
        shapes.n_heads = 4;
        shapes.n_kv_heads = 2;
        shapes.head_dim = 64;
        Machine machine(b, shapes);
        machine.check(b.ops.rope_append(machine.cx(), a));
        for (uint32_t row = 3; row < 2 + n_new; ++row) {
          std::vector<uint16_t> want(128);
          digest_page(DigestKind::kMinMax, a.kv.stored_keys_of(1, row), kv.len(1, row), want.data());
          assert_true(std::equal(want.begin(), want.end(), a.kv.digest_of(1, row)));
        }
        for (uint32_t row = 2; is_by_channel(key_format(format)) && row < 2 + n_new; ++row) {
          std::vector<uint16_t> keys;
          for (uint32_t i = 0; i < kv.len(1, row) * 64; ++i) {
            const uint32_t pos = row * kPageTokens + i / 64;
            keys.push_back(f32_to_bf16(pos < a.pos ? static_cast<float>(1 + i % 19)
                                                   : k[(size_t{pos - a.pos} * 2 + 1) * 64 + i % 64]));
          }
          std::vector<uint16_t> want(part_bytes(key_format(format), 64) / sizeof(uint16_t));
          const PagePart<uint16_t> part = {want.data(), key_format(format), 64};
          store_by_channel(part, keys.data(), kv.len(1, row));
          for (uint32_t i = 0; i < keys.size(); ++i) {
            assert_float_equal(load_element(a.kv.stored_keys_of(1, row), i / 64, i % 64),
                               load_element({want.data(), part.format, 64}, i / 64, i % 64), 0.0f);
          }
        }
        std::vector<uint16_t> all = kv.pool();
        all.insert(all.end(), kv.open().begin(), kv.open().end());
        all.insert(all.end(), kv.digests().begin(), kv.digests().end());
        return all;
      };
      const auto want = append(reference_backend());
      for (int64_t target : targets()) {
        const TargetScope scope(target);
        assert_true(append(cpu_backend()) == want);
      }
    }
  }
}

const CMUnitTest tests[] = {
    {"kv_format__sizes", sizes, nullptr, nullptr, nullptr},
    {"kv_format__rows_are_near", rows_are_near, nullptr, nullptr, nullptr},
    {"kv_format__known_rows", known_rows, nullptr, nullptr, nullptr},
    {"kv_format__tokens_do_not_touch_each_other", tokens_do_not_touch_each_other, nullptr, nullptr, nullptr},
    {"kv_format__channels_are_near", channels_are_near, nullptr, nullptr, nullptr},
    {"kv_format__known_channels", known_channels, nullptr, nullptr, nullptr},
    {"kv_format__rotations", rotations, nullptr, nullptr, nullptr},
    {"kv_format__attention", attention, nullptr, nullptr, nullptr},
    {"kv_format__own_tokens", own_tokens, nullptr, nullptr, nullptr},
    {"kv_format__open_pages", open_pages, nullptr, nullptr, nullptr},
    {"kv_format__progressive", progressive, nullptr, nullptr, nullptr},
    {"kv_format__masses_of_tokens", masses_of_tokens, nullptr, nullptr, nullptr},
    {"kv_format__appended_rows", appended_rows, nullptr, nullptr, nullptr},
};

}  // namespace
}  // namespace weir::test

int main() { return cmocka_run_group_tests_name("ops/kv_format", weir::test::tests, nullptr, nullptr); }
