// vulkan: what the tests of ops do not ask of the kernels that append to pages and attend them: positions in device
// memory, attention in parts, windows of single heads, digests by row, digests of last pages, and what is refused.
#include <cstring>
#include <vector>

#include "device/kernels/rope_append_at.h"
#include "tests/cmocka_cpp.h"
#include "tests/ops/metrics.h"
#include "tests/vulkan/attn_arrays.h"
#include "vulkan/ops.h"
#include "vulkan/steps.h"

namespace weir::vulkan {
namespace {

using test::AttnCase;
using test::AttnSpec;
using test::close_enough;
using test::DeviceArrays;
using test::on_device;
using test::PagedKv;

constexpr double kMaxNmse = 1e-11;

void assert_ok(Status status) {
  if (!status.ok()) fail_msg("%s", last_error_text());
}

OpContext scratch_for(DeviceArrays& m, AttnCase& c) {
  OpContext cx;
  cx.scratch_bytes = attn_scratch_bytes(c.shapes());
  cx.scratch = static_cast<std::byte*>(m.room(cx.scratch_bytes));
  return cx;
}

AttnSpec spec_of(uint32_t n_tok, uint32_t head_dim) {
  AttnSpec s;
  s.kv = {.n_kv_heads = 2, .head_dim = head_dim, .n_pages = 70, .last_len = 5};
  s.n_heads = 6;
  s.n_tok = n_tok;
  s.lse = true;
  return s;
}

// Pages in parts of 32 rows, whose tables stand by themselves as in a prompt that is attended unit by unit.
void attend_parts(AttnCase& c) {
  DeviceArrays m;
  const AttnPagedArgs whole = on_device(m, c);
  const KvView kv = c.kv.view();
  const size_t n = size_t{whole.n_tok} * whole.n_heads;
  std::vector<float> nothing(n, NAN);
  AttnCarry carry = {m.in(nothing), m.in(nothing), true, false, nullptr};
  std::vector<std::vector<uint32_t>> tables;  // until the work has ended
  OpContext cx = scratch_for(m, c);
  for (uint32_t first = 0; first < c.spec.kv.n_pages; first += kSplitPages) {
    const uint32_t n_rows = std::min(kSplitPages, c.spec.kv.n_pages - first);
    std::vector<uint32_t> slots, first_pos, len, n_pages(kv.n_kv_heads, n_rows);
    for (uint32_t head = 0; head < kv.n_kv_heads; ++head) {
      for (uint32_t row = 0; row < kSplitPages; ++row) {
        const size_t at = c.kv.at(head, first + std::min(row, n_rows - 1));
        slots.push_back(kv.slots[at]);
        first_pos.push_back(kv.first_pos[at]);
        len.push_back(kv.len[at]);
      }
    }
    AttnPagedArgs a = whole;
    a.kv.slots = m.in(slots);
    a.kv.first_pos = m.in(first_pos);
    a.kv.len = m.in(len);
    a.kv.n_pages = m.in(n_pages);
    a.kv.capacity = kSplitPages;
    carry.first = first == 0;
    carry.last = first + n_rows == c.spec.kv.n_pages;
    a.carry = &carry;
    assert_ok(attn_paged(cx, a));
  }
  m.finish();
}

void attn_paged__parts_are_the_whole(void**) {
  for (uint32_t d : {64u, 72u, 256u}) {
    for (uint32_t n_tok : {1u, 37u}) {
      for (const bool bent : {false, true}) {
        AttnSpec s = spec_of(n_tok, d);
        s.sinks = bent;
        s.soft_cap = bent ? 2.0f : 0.0f;
        s.window = bent ? 200 : 0;  // no row sees anything of the first part but sinks
        s.n_sink = bent ? 3 : 0;
        AttnCase got(s, 3), want(s, 3);
        want.run(reference_backend());
        attend_parts(got);
        assert_true(close_enough("out", got.out.data(), want.out.data(), want.out.size(), kMaxNmse));
        assert_true(close_enough("lse", got.lse.data(), want.lse.data(), want.lse.size(), kMaxNmse));
      }
    }
  }
}

// As many dispatches as slow devices need; 1: a tile of rows each.
void attn_paged__dispatches(void**) {
  Context& context = test::open_context();
  const uint64_t max_flops = context.device.max_flops;
  context.recorder.set_always_barrier(true);  // which counts commands
  for (const bool in_parts : {false, true}) {
    for (uint64_t most : {uint64_t{1}, uint64_t{4} * 128 * 1000 * 64}) {
      AttnSpec s = spec_of(75, 64);
      s.window = in_parts ? 0 : 300;
      AttnCase whole(s, 8), got(s, 8);
      uint64_t n_commands[2] = {};
      for (AttnCase* c : {&whole, &got}) {
        DeviceArrays m;
        context.device.max_flops = c == &got ? most : UINT64_MAX;
        const uint64_t before = context.recorder.n_barriers();
        if (in_parts) {
          attend_parts(*c);
        } else {
          OpContext cx = scratch_for(m, *c);
          assert_ok(attn_paged(cx, on_device(m, *c)));
          m.finish();
        }
        n_commands[c == &got ? 1 : 0] = context.recorder.n_barriers() - before;
      }
      assert_true(n_commands[1] > n_commands[0]);
      assert_memory_equal(got.out.data(), whole.out.data(), got.out.size() * sizeof(float));
      assert_memory_equal(got.lse.data(), whole.lse.data(), got.lse.size() * sizeof(float));
    }
  }
  context.recorder.set_always_barrier(false);
  context.device.max_flops = max_flops;
}

// The step of a prompt has the bits of the op.
void attn_prefill__is_attn_paged(void**) {
  AttnCase op(spec_of(37, 64), 4), step(spec_of(37, 64), 4), one(spec_of(1, 64), 4), want(spec_of(1, 64), 4);
  DeviceArrays m;
  OpContext cx = scratch_for(m, op);
  assert_ok(attn_paged(cx, on_device(m, op)));
  assert_ok(attn_prefill(on_device(m, step)));
  assert_ok(attn_prefill(on_device(m, one)));
  m.finish();
  assert_memory_equal(step.out.data(), op.out.data(), op.out.size() * sizeof(float));
  assert_memory_equal(step.lse.data(), op.lse.data(), op.lse.size() * sizeof(float));
  want.run(reference_backend());
  assert_true(close_enough("one row", one.out.data(), want.out.data(), want.out.size(), kMaxNmse));
}

void attn_paged__windows_of_single_heads(void**) {
  for (uint32_t n_tok : {1u, 37u}) {
    AttnSpec s = spec_of(n_tok, 64);
    s.page_mass = true;
    s.window = 500;
    s.n_sink = 2;
    const std::vector<uint32_t> windows = {0, 90};
    AttnCase got(s, 5), want(s, 5);
    AttnPagedArgs w = want.args();
    w.head_windows = windows.data();
    w.head_sinks = 20;
    want.run(reference_backend(), w);
    DeviceArrays m;
    AttnPagedArgs a = on_device(m, got);
    a.head_windows = m.in(windows);
    a.head_sinks = 20;
    OpContext cx = scratch_for(m, got);
    assert_ok(attn_paged(cx, a));
    m.finish();
    assert_true(close_enough("out", got.out.data(), want.out.data(), want.out.size(), kMaxNmse));
    assert_true(close_enough("lse", got.lse.data(), want.lse.data(), want.lse.size(), kMaxNmse));
    assert_true(close_enough("mass", got.mass.data(), want.mass.data(), want.mass.size(), kMaxNmse));
  }
}

void attn_paged__refuses_what_it_cannot(void**) {
  AttnSpec s = spec_of(2, 64);
  s.page_mass = true;
  AttnCase c(s, 6);
  DeviceArrays m;
  OpContext cx = scratch_for(m, c);
  const AttnPagedArgs a = on_device(m, c);
  OpContext little = cx;
  --little.scratch_bytes;
  assert_int_equal(attn_paged(little, a).code(), WEIR_ERR_INTERNAL);
  assert_int_equal(attn_prefill(a).code(), WEIR_ERR_INTERNAL);
  AttnCarry carry = {c.lse.data(), c.lse.data(), true, true, nullptr};
  AttnPagedArgs part = a;
  part.carry = &carry;
  assert_int_equal(attn_paged(cx, part).code(), WEIR_ERR_INTERNAL);
  for (uint32_t d : {0u, 20u, 264u}) {
    AttnPagedArgs odd = a;
    odd.kv.head_dim = d;
    assert_int_equal(attn_paged(cx, odd).code(), WEIR_ERR_UNSUPPORTED);
    assert_int_equal(rebuild_last_minmax(odd.kv).code(), WEIR_ERR_UNSUPPORTED);
  }
  m.finish();
}

// --- appending -------------------------------------------------------------------------------------------------------

// One token at position 16 * (n_pages - 1) + in_page of a stream.
struct Append {
  PagedKv kv;
  std::vector<uint32_t> append_row;
  std::vector<float> q, k, v;
  std::vector<uint16_t> digests;  // by row
  RopeAppendArgs args = {};
  std::vector<float> cos_sin = {0.6f, 0.8f, 0.8f, -0.6f};

  explicit Append(uint32_t in_page) : kv({.n_kv_heads = 2, .head_dim = 64, .n_pages = 3, .last_len = in_page + 1}, 7) {
    test::Random random(8);
    append_row = {2, 2};
    q = random.normals(4 * 64), k = random.normals(2 * 64), v = random.normals(2 * 64);
    const KvView view = kv.view();
    digests.assign(size_t{2} * view.capacity * 128, PagedKv::kNan);
    for (uint32_t head = 0; head < 2; ++head)
      digest_page(DigestKind::kMinMax, kv.key(head, 2, 0), in_page + 1, 64, &digests[kv.at(head, 2) * 128]);
    args.q = q.data(), args.k = k.data(), args.v = v.data();
    args.cos_sin = cos_sin.data();
    args.rope_dim = 4;
    args.layout = RopeLayout::kAdjacent;
    args.n_tok = 1, args.n_heads = 4;
    args.pos = 32 + in_page;
    args.kv = view;
    args.kv.digests = digests.data();
    args.kv.digest_by_row = true;
    args.append_row = append_row.data();
  }
};

void rope_append_at__position_in_device_memory(void**) {
  for (uint32_t in_page : {0u, 7u, 15u}) {
    Append got(in_page), want(in_page);
    OpContext none;
    assert_ok(reference_backend().ops.rope_append(none, want.args));
    DeviceArrays m;
    const size_t rows = size_t{2} * got.args.kv.capacity;
    RopeAppendAtArgs a = {got.args, nullptr, false};
    a.op.pos = 77777;  // not read
    a.op.q = m.both(got.q), a.op.k = m.both(got.k), a.op.v = m.in(got.v);
    a.op.cos_sin = m.in(got.cos_sin);
    a.op.append_row = m.in(got.append_row);
    a.op.kv.pool = m.both(got.kv.pool());
    a.op.kv.digests = m.both(got.digests);
    a.op.kv.slots = m.in(got.args.kv.slots, rows);
    a.op.kv.first_pos = m.in(got.args.kv.first_pos, rows);
    const std::vector<uint32_t> n_tokens = {32 + in_page};
    a.n_tokens = m.in(n_tokens);
    assert_ok(rope_append_at(a));
    a.op.n_tok = 2;
    assert_int_equal(rope_append_at(a).code(), WEIR_ERR_INTERNAL);
    m.finish();
    assert_true(close_enough("q", got.q.data(), want.q.data(), want.q.size(), 0.0));
    assert_true(close_enough("k", got.k.data(), want.k.data(), want.k.size(), 0.0));
    assert_memory_equal(got.kv.pool().data(), want.kv.pool().data(), want.kv.pool().size() * sizeof(uint16_t));
    assert_memory_equal(got.digests.data(), want.digests.data(), want.digests.size() * sizeof(uint16_t));
  }
}

// Streams with a last page of every length, one without pages and one whose last page is not in the pool.
void rebuild_last_minmax__of_every_length(void**) {
  for (uint32_t len = 1; len <= kPageTokens; ++len) {
    for (const bool by_row : {false, true}) {
      PagedKv kv({.n_kv_heads = 4, .head_dim = 72, .n_pages = 3, .last_len = len}, 9 + len);
      kv.n_pages(1) = 0;
      KvView view = kv.view();
      view.digest_by_row = by_row;
      std::vector<uint16_t> want(kv.digests()), got(want);
      for (uint32_t head : {0u, 3u}) {
        uint16_t* const to = &want[view.digest_index(head, 2) * 144];
        digest_page(DigestKind::kMinMax, kv.key(head, 2, 0), len, 72, to);
      }
      kv.slot(2, 2) = kNoSlot;
      DeviceArrays m;
      const size_t rows = size_t{4} * view.capacity;
      view.pool = m.in(kv.pool());
      view.digests = m.both(got);
      view.slots = m.in(view.slots, rows);
      view.len = m.in(view.len, rows);
      view.n_pages = m.in(view.n_pages, 4);
      assert_ok(rebuild_last_minmax(view));
      m.finish();
      assert_memory_equal(got.data(), want.data(), want.size() * sizeof(uint16_t));
    }
  }
}

}  // namespace
}  // namespace weir::vulkan

int main() {
  using namespace weir::vulkan;
  const CMUnitTest tests[] = {
      cmocka_unit_test(attn_paged__parts_are_the_whole),
      cmocka_unit_test(attn_prefill__is_attn_paged),
      cmocka_unit_test(attn_paged__dispatches),
      cmocka_unit_test(attn_paged__windows_of_single_heads),
      cmocka_unit_test(attn_paged__refuses_what_it_cannot),
      cmocka_unit_test(rope_append_at__position_in_device_memory),
      cmocka_unit_test(rebuild_last_minmax__of_every_length),
  };
  return cmocka_run_group_tests_name("vulkan/attn_pages", tests, nullptr, nullptr);
}
