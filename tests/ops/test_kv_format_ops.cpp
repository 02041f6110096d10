// ops: pages in every format (lib/ops/kv_format.h) on every backend that has them. Mirrors lib/ops/kv_format.cpp,
// cuda/attn/kv_decode.cuh, cuda/attn/kv_operands.cuh, cuda/pages/kv_rows.cuh. test_kv_format.cpp has the formats
// themselves, and what only the processor computes.
#include <algorithm>

#include "ops/page_digest.h"
#include "ops/rope_append.h"
#include "ops/token_mass.h"
#include "tests/ops/attn_case.h"

namespace weir::test {
namespace {

constexpr KvFormat kQuantised[] = {KvFormat::kQ8, KvFormat::kK8V4, KvFormat::kK4V4};
constexpr uint32_t kDims[] = {32, 64, 96, 128, 160, 256};

// A relative error of 2^-9 at most in each key and value: a variance of 2^-18 / 3 or so of the outputs for values, and
// more for keys where a few tokens have nearly all weight. Up to 8.5e-6 were seen.
constexpr double kCudaRoundedNmse = 1.2e-5;
constexpr char kCudaRoundedReason[] = "decoded keys and values are rounded to bf16";
constexpr char kReason[] = "f32 sums in another order and another exp";

std::string name_of(const char* op, KvFormat format, const std::string& what) {
  return std::string("kv_format__") + op + "_" + kv_format_name(format) + "_" + what;
}

std::vector<Output> attend(const Backend& backend, const AttnSpec& spec, bool own_rows) {
  AttnCase c(spec, 7);
  Random random(4);
  const size_t n = size_t{spec.n_tok} * spec.kv.n_kv_heads * spec.kv.head_dim;
  const std::vector<float> k = random.normals(n), v = random.normals(n);
  AttnPagedArgs a = c.args();
  if (own_rows) a.k_rows = k.data(), a.v_rows = v.data();
  c.run(backend, a);
  std::vector<Output> outputs = {{"out", c.out}};
  if (spec.page_mass) outputs.push_back({"page_mass", c.mass});
  if (spec.lse) outputs.push_back({"lse", c.lse});
  return outputs;
}

void add_attention(KvFormat format, std::vector<OpCase>& list) {
  const auto add = [&](const std::string& what, const AttnSpec& spec, bool own_rows = false) {
    list.push_back({name_of("attn_paged", format, what), [=](const Backend& b) { return attend(b, spec, own_rows); },
                    1e-11, kReason, kCudaRoundedNmse, kCudaRoundedReason});
  };
  for (const uint32_t d : kDims) {
    for (const uint32_t group : {1u, 3u, 8u, 12u}) {
      for (const uint32_t n_tok : {1u, 20u}) {
        AttnSpec s;
        s.kv = {.n_kv_heads = 2,
                .head_dim = d,
                .n_pages = n_tok == 1 ? 37u : 9u,
                .last_len = 11,
                .gaps = true,
                .format = format};
        s.n_heads = 2 * group;
        s.n_tok = n_tok;
        s.page_mass = s.lse = true;
        const std::string what =
            (n_tok == 1 ? "decode_d" : "prefill_d") + std::to_string(d) + "_g" + std::to_string(group);
        add(what, s);
        if (n_tok > 1) add(what + "_own_rows", s, true);
        if (group != 3) continue;
        s.n_sink_pages = 2;
        add(what + "_sink_query", s);
        s.sinks = true;
        s.soft_cap = 2.0f;
        s.window = 90;
        s.n_sink = 20;
        add(what + "_sinks_soft_cap_window", s);
        s.n_sink_pages = 0;
        s.window = 0;
        s.head_window = 50;
        s.head_sinks = 20;
        add(what + "_windows_of_heads", s);
      }
    }
    // Lists, with and without the page that takes tokens, and lengths at which it is full or has one token.
    for (const uint32_t last_len : {1u, 9u, 16u}) {
      AttnSpec s;
      s.kv = {.n_kv_heads = 2, .head_dim = d, .n_pages = 40, .last_len = last_len, .format = format};
      s.n_heads = 6;
      s.select_every = 3;
      s.page_mass = s.lse = true;
      const std::string what = "d" + std::to_string(d) + "_last_" + std::to_string(last_len);
      add(what + "_lists", s);
      s.list_per_head = true;
      add(what + "_lists_per_head", s);
      s.select_every = 0;
      s.list_per_head = false;
      s.kv.n_pages = 1;
      add(what + "_one_page", s);
    }
  }
}

// Rows that are not rotated, so that every backend stores the same numbers: bit for bit.
std::vector<Output> append(const Backend& backend, KvFormat format, uint32_t d, uint32_t n_tok, float scale) {
  const uint32_t in_page = 6, n_new = (in_page + n_tok + kPageTokens - 1) / kPageTokens;
  PagedKv kv({.n_kv_heads = 2, .head_dim = d, .n_pages = 2, .spare_rows = n_new + 1, .format = format}, 5);
  for (uint32_t head = 0; head < 2; ++head) {
    kv.n_pages(head) = 2 + n_new;
    for (uint32_t i = 0; i < n_new; ++i) {
      kv.first_pos(head, 2 + i) = 32 + i * kPageTokens;
      kv.len(head, 2 + i) = std::min(kPageTokens, in_page + n_tok - i * kPageTokens);
    }
  }
  std::fill(kv.digests().begin(), kv.digests().end(), uint16_t{0});
  for (uint32_t head = 0; head < 2; ++head) {  // what came before is in the open page, zeros of both signs among it
    for (uint32_t i = 0; i < in_page * d; ++i) {
      const float x = static_cast<float>((head * 7 + i * 13) % 31) - 15.0f;
      kv.view().open_page(head, 2)[i] = i % d == 1 ? (i / d % 2 == 0 ? 0x8000 : 0) : f32_to_bf16(scale * x);
    }
  }
  Random random(6);
  const size_t n = size_t{n_tok} * 2 * d;
  std::vector<float> q = random.normals(size_t{n_tok} * 4 * d), k = random.normals(n, scale),
                     v = random.normals(n, scale), cos_sin(size_t{n_tok} * d);
  for (size_t i = 0; i < cos_sin.size(); i += 2) cos_sin[i] = 1.0f;
  // Blocks of zeros, with the largest of either sign, with an equal pair of them, and with what is no finite number.
  for (std::vector<float>* rows : {&k, &v}) {
    std::fill_n(rows->begin(), 32, 0.0f);
    (*rows)[d] = 9.0f * scale, (*rows)[d + 1] = -9.0f * scale;
    if (n_tok > 1) (*rows)[2 * size_t{d} + 3] = INFINITY;
    if (n_tok > 2) (*rows)[4 * size_t{d} + 5] = NAN, (*rows)[5 * size_t{d} + 6] = -12.0f * scale;
  }
  const std::vector<uint32_t> append_row(2, 2);
  RopeAppendArgs a = {};
  a.q = q.data();
  a.k = k.data();
  a.v = v.data();
  a.cos_sin = cos_sin.data();
  a.rope_dim = d;
  a.n_tok = n_tok;
  a.n_heads = 4;
  a.pos = 32 + in_page;
  a.kv = kv.view();
  a.append_row = append_row.data();
  OpShapes shapes;
  shapes.max_tok = n_tok;
  shapes.n_heads = 4;
  shapes.n_kv_heads = 2;
  shapes.head_dim = d;
  Machine machine(backend, shapes);
  machine.check(backend.ops.rope_append(machine.cx(), a));
  const auto bits = [](const std::vector<uint16_t>& units) { return std::vector<float>(units.begin(), units.end()); };
  for (uint16_t& x : kv.open()) x = std::isnan(bf16_to_f32(x)) ? PagedKv::kNan : x;  // which one, nobody asks
  return {{"pages", bits(kv.pool())}, {"open pages", bits(kv.open())}, {"digests", bits(kv.digests())}};
}

std::vector<Output> digests(const Backend& backend, KvFormat format, DigestKind kind, uint32_t d) {
  PagedKv kv({.n_kv_heads = 2, .head_dim = d, .n_pages = 6, .last_len = 7, .digest = kind, .format = format}, 11);
  std::fill(kv.digests().begin(), kv.digests().end(), uint16_t{0});
  const std::vector<uint32_t> first_row(2, 0);
  OpShapes shapes;
  shapes.n_heads = shapes.n_kv_heads = 2;
  shapes.head_dim = d;
  shapes.max_pages = kv.capacity();
  Machine machine(backend, shapes);
  machine.check(backend.ops.page_digest(machine.cx(), {kv.view(), first_row.data(), 6}));
  std::vector<float> values;
  for (uint16_t x : kv.digests()) values.push_back(bf16_to_f32(x));
  return {{"digests", values}};
}

std::vector<Output> masses(const Backend& backend, KvFormat format, uint32_t d) {
  PagedKv kv({.n_kv_heads = 2, .head_dim = d, .n_pages = 6, .last_len = 5, .format = format}, 3);
  Random random(8);
  const std::vector<float> q = random.normals(size_t{4} * 4 * d), lse(16, 3.0f);
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
  shapes.head_dim = d;
  shapes.max_pages = kv.capacity();
  Machine machine(backend, shapes);
  machine.check(backend.ops.token_mass(machine.cx(), a));
  return {{"mass", mass}};
}

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  for (const KvFormat format : kQuantised) {
    add_attention(format, list);
    for (const uint32_t d : kDims) {
      const std::string dim = "d" + std::to_string(d);
      for (const uint32_t n_tok : {1u, 3u, 10u, 40u}) {
        list.push_back({name_of("rope_append", format, dim + "_n" + std::to_string(n_tok)),
                        [=](const Backend& b) { return append(b, format, d, n_tok, 1.0f); }, 0.0, "the same bits"});
      }
      for (const float scale : {1e-38f, 1e-30f, 1e30f}) {
        list.push_back({name_of("rope_append", format, dim + "_scale_" + std::to_string(std::ilogb(scale))),
                        [=](const Backend& b) { return append(b, format, d, 20, scale); }, 0.0, "the same bits"});
      }
      for (const DigestKind kind : {DigestKind::kMinMax, DigestKind::kCuboidMean, DigestKind::kSphereMean,
                                    DigestKind::kCentroid, DigestKind::kMeanStd}) {
        list.push_back({name_of("page_digest", format, dim + "_" + std::to_string(static_cast<uint32_t>(kind))),
                        [=](const Backend& b) { return digests(b, format, kind, d); }, 0.0, "the same bits"});
      }
      list.push_back({name_of("token_mass", format, dim), [=](const Backend& b) { return masses(b, format, d); }, 1e-11,
                      kReason, kCudaAttnNmse, "another exp"});
    }
  }
  return list;
}

}  // namespace
}  // namespace weir::test

int main() { return weir::test::run_group("ops/kv_format_ops", weir::test::cases(), {}); }
