// vulkan: attention of a decode step against the processor's ops, over all head sizes, groups and restrictions, with
// the token appended by the kernel and without.
#include "vulkan/attn_decode.h"

#include <cstring>
#include <vector>

#include "device/kernels/attn_decode.h"
#include "tests/cmocka_cpp.h"
#include "tests/ops/attn_case.h"
#include "tests/ops/metrics.h"
#include "tests/variants.h"
#include "tests/vulkan/device_arrays.h"

namespace weir::vulkan {
namespace {

using test::AttnCase;
using test::AttnSpec;
using test::DeviceArrays;
using test::PagedKv;

constexpr double kMaxNmse = 1e-10;

struct Extra {
  bool append = false, norms = false, adjacent = false, sink_query = false;
  uint32_t rope_dim = 0;
  bool stamps = false;
  bool short_pages = false;  // of every other page but the last the later tokens were taken back
};

float bf16(uint16_t bits) { return bf16_to_f32(bits); }

// Rotations round differently, so a stored element may be the next bf16 number.
void assert_stored(const std::vector<uint16_t>& got, const std::vector<uint16_t>& want, const char* what) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (got[i] == want[i]) continue;
    if (!(std::fabs(bf16(got[i]) - bf16(want[i])) <= std::fabs(bf16(want[i])) * 0x1p-7f + 1e-6f))
      fail_msg("%s: element %zu is %g, not %g", what, i, static_cast<double>(bf16(got[i])),
               static_cast<double>(bf16(want[i])));
  }
}

class Case {
 public:
  Case(const AttnSpec& spec, const Extra& extra, uint64_t seed)
      : c_(spec, seed), extra_(extra), random_(seed + 7), n_(c_.n_lists()) {
    const size_t d = spec.kv.head_dim, heads = spec.n_heads, kv_heads = spec.kv.n_kv_heads;
    const size_t rows = kv_heads * c_.kv.capacity();
    raw_q_ = random_.normals(heads * d), raw_k_ = random_.normals(kv_heads * d), v_ = random_.normals(kv_heads * d);
    q_norm_ = random_.normals(d), k_norm_ = random_.normals(d);
    for (uint32_t i = 0; i < extra.rope_dim / 2; ++i) {
      for (auto* turns : {&cos_sin_, &cos_sin_sink_}) {
        const float angle = random_.normal();
        turns->push_back(std::cos(angle));
        turns->push_back(std::sin(angle));
      }
    }
    append_row_.assign(kv_heads, spec.kv.n_pages - 1);
    stamp_.assign(rows, 3);
    last_score_.assign(rows, -1.0f);
    for (uint32_t row = 0; row + 1 < spec.kv.n_pages && extra.short_pages; row += 2) {
      for (uint32_t head = 0; head < kv_heads; ++head) take_back(head, row, 1 + row % 15);
    }
    if (!extra.append) return;
    for (uint32_t head = 0; head < kv_heads; ++head) ++c_.kv.len(head, spec.kv.n_pages - 1);
    for (size_t i = 0; i < c_.kv.digests().size(); ++i) c_.kv.digests()[i] = f32_to_bf16(i / d % 2 == 0 ? 0.5f : -0.5f);
  }

  void check() {
    AttnCase got = c_, want = c_;
    run_host(want);
    const uint64_t attended = run_device(got);
    uint64_t listed = 0;
    for (uint32_t list = 0; list < n_; ++list) listed += n_listed(list);
    assert_int_equal(attended, 0xFFFFFFF0u + listed);
    assert_true(test::close_enough("out", got.out.data(), want.out.data(), want.out.size(), kMaxNmse));
    if (c_.spec.lse) assert_true(test::close_enough("lse", got.lse.data(), want.lse.data(), want.lse.size(), kMaxNmse));
    for (uint32_t head = 0; head < c_.spec.n_heads && c_.spec.page_mass; ++head) {
      const size_t at = size_t{head} * c_.kv.capacity();
      const uint32_t list = c_.spec.list_per_head ? head : head / (c_.spec.n_heads / c_.spec.kv.n_kv_heads);
      assert_true(test::close_enough("mass", got.mass.data() + at, want.mass.data() + at, n_listed(list), kMaxNmse));
    }
    if (!extra_.append) return;
    assert_stored(got.kv.pool(), want.kv.pool(), "page");
    assert_stored(got.kv.digests(), want.kv.digests(), "digest");
    if (extra_.stamps) assert_stamps(want);
  }

 private:
  uint32_t n_listed(uint32_t list) { return c_.spec.select_every > 0 ? c_.n_select[list] : c_.kv.n_pages(0); }
  uint32_t pos() { return c_.kv.end_pos() - (extra_.append ? 0 : 1); }

  // The page's tokens from `n` on.
  void take_back(uint32_t head, uint32_t row, uint32_t n) {
    c_.kv.len(head, row) = n;
    for (uint32_t t = n; t < kPageTokens; ++t) {
      std::fill_n(c_.kv.key(head, row, t), c_.spec.kv.head_dim, PagedKv::kNan);
      std::fill_n(c_.kv.value(head, row, t), c_.spec.kv.head_dim, PagedKv::kNan);
    }
  }

  RopeAppendArgs rope(AttnCase& c, std::vector<float>& q, std::vector<float>& q_sink, std::vector<float>& k) {
    RopeAppendArgs r = {};
    r.q = q.data(), r.k = k.data(), r.v = v_.data();
    r.q_sink = extra_.sink_query ? q_sink.data() : nullptr;
    r.q_norm = extra_.norms ? q_norm_.data() : nullptr;
    r.k_norm = extra_.norms ? k_norm_.data() : nullptr;
    r.norm_eps = 1e-5f;
    r.cos_sin = cos_sin_.data();
    r.cos_sin_sink = extra_.sink_query ? cos_sin_sink_.data() : nullptr;
    r.rope_dim = extra_.rope_dim;
    r.layout = extra_.adjacent ? RopeLayout::kAdjacent : RopeLayout::kHalfSplit;
    r.n_tok = 1, r.n_heads = c.spec.n_heads, r.pos = pos();
    r.kv = c.kv.view();
    r.append_row = append_row_.data();
    return r;
  }

  void run_host(AttnCase& c) {
    test::Machine machine(cpu_backend(), c.shapes());
    AttnPagedArgs a = c.args();
    a.pos = pos();
    std::vector<float> q = raw_q_, q_sink = raw_q_, k = raw_k_;
    if (extra_.append) {
      machine.check(cpu_backend().ops.rope_append(machine.cx(), rope(c, q, q_sink, k)));
      a.q = q.data();
      a.q_sink = extra_.sink_query ? q_sink.data() : nullptr;
    }
    machine.check(cpu_backend().ops.attn_paged(machine.cx(), a));
  }

  // Returns the count of attended pages, which begins just below 2^32.
  uint64_t run_device(AttnCase& c) {
    DeviceArrays m;
    const size_t n_lists = c.spec.n_heads;
    AttnDecodeArgs d = {};
    d.attn = c.args();
    d.attn.pos = 12345;  // not read: the position comes from memory
    KvView& kv = d.attn.kv;
    const size_t rows = size_t{kv.n_kv_heads} * kv.capacity;
    kv.pool = m.both(c.kv.pool());
    kv.digests = m.both(c.kv.digests());
    kv.slots = m.in(kv.slots, rows), kv.first_pos = m.in(kv.first_pos, rows), kv.len = m.in(kv.len, rows);
    kv.n_pages = m.in(kv.n_pages, kv.n_kv_heads);
    if (d.attn.select != nullptr) d.attn.select = m.in(c.select), d.attn.n_select = m.in(c.n_select);
    d.attn.out = m.both(c.out);
    if (d.attn.lse != nullptr) d.attn.lse = m.both(c.lse);
    if (d.attn.page_mass != nullptr) d.attn.page_mass = m.both(c.mass);
    if (d.attn.sinks != nullptr) d.attn.sinks = m.in(c.sinks);
    std::vector<float> q = raw_q_, q_sink = raw_q_, k = raw_k_;
    d.append = extra_.append;
    if (extra_.append) {
      d.rope = rope(c, q, q_sink, k);
      d.rope.kv = kv;
      d.rope.q = const_cast<float*>(m.in(q)), d.rope.k = const_cast<float*>(m.in(k)), d.rope.v = m.in(v_);
      if (extra_.norms) d.rope.q_norm = m.in(q_norm_), d.rope.k_norm = m.in(k_norm_);
      d.rope.cos_sin = m.in(cos_sin_);
      if (extra_.sink_query) d.rope.cos_sin_sink = m.in(cos_sin_sink_);
      d.rope.append_row = m.in(append_row_);
      d.attn.q = nullptr, d.attn.q_sink = nullptr;
    } else {
      d.attn.q = m.in(c.q);
      if (d.attn.q_sink != nullptr) d.attn.q_sink = m.in(c.q_sink);
    }
    const std::vector<uint32_t> position = {pos()};
    d.n_tokens = m.in(position);
    d.scratch = reinterpret_cast<std::byte*>(m.room(attn_decode_scratch_bytes(c.shapes())));
    std::vector<uint32_t> counters(n_lists, 0), attended = {0xFFFFFFF0u, 0};
    d.counters = m.both(counters);
    d.pages_attended = reinterpret_cast<unsigned long long*>(m.both(attended));
    d.stamps = extra_.stamps;
    if (extra_.stamps) {
      assert_true(attn_decode_can_stamp(c.args(), stamp_args()));
      d.stamp = stamp_args();
      d.stamp.stamp = m.both(stamp_), d.stamp.last_score = m.both(last_score_);
    }
    assert_true(attn_decode(d).ok());
    m.finish();
    for (const uint32_t counter : counters) assert_int_equal(counter, 0);
    return attended[0] + (uint64_t{attended[1]} << 32);
  }

  PageStampArgs stamp_args() {
    PageStampArgs s = {};
    s.rule = StampRule::kAlpha;
    s.alpha = 0.02f;
    return s;
  }

  void assert_stamps(AttnCase& want) {
    const uint32_t group = c_.spec.n_heads / c_.spec.kv.n_kv_heads, n = c_.kv.n_pages(0);
    for (uint32_t head = 0; head < c_.spec.kv.n_kv_heads; ++head) {
      for (uint32_t row = 0; row < n; ++row) {
        float most = 0.0f;
        for (uint32_t g = 0; g < group; ++g)
          most = std::fmax(most, want.mass[(size_t{head} * group + g) * c_.kv.capacity() + row]);
        const size_t at = c_.kv.at(head, row);
        assert_true(std::fabs(last_score_[at] - most) <= 1e-5f);
        if (std::fabs(most - 0.02f) < 1e-5f) continue;
        assert_int_equal(stamp_[at], most > 0.02f || row + 1 == n ? pos() + 1 : 3);
      }
    }
  }

  AttnCase c_;
  Extra extra_;
  test::Random random_;
  uint32_t n_;
  std::vector<float> raw_q_, raw_k_, v_, q_norm_, k_norm_, cos_sin_, cos_sin_sink_, last_score_;
  std::vector<uint32_t> append_row_, stamp_;
};

AttnSpec spec_of(uint32_t head_dim, uint32_t group, uint32_t n_pages, uint32_t last_len) {
  AttnSpec s;
  s.kv.n_kv_heads = 2;
  s.kv.head_dim = head_dim;
  s.kv.n_pages = n_pages;
  s.kv.last_len = last_len;
  s.n_heads = 2 * group;
  s.lse = s.page_mass = true;
  return s;
}

void attn_decode__head_sizes_and_groups(void**) {
  uint64_t seed = 1;
  for (const uint32_t d : test::kHeadDims) {
    for (const uint32_t group : test::kGroups) {
      if (!test::is_tested_together(d, group) || !test::is_variant_of_heads(d, group)) continue;
      if (test::every_variant() || d <= 64) Case(spec_of(d, group, 5, 1 + seed % 15), {}, seed).check();
      Case(spec_of(d, group, 6, seed % 16), {.append = true, .rope_dim = d}, seed + 1).check();
      seed += 2;
    }
  }
}

// While this lives, pages are split among as many workgroups as on a GPU.
class ManySplits {
 public:
  ManySplits() { test::open_context().device.max_groups = UINT32_MAX; }
  ~ManySplits() { context().device.max_groups = before_; }
  ManySplits(const ManySplits&) = delete;
  ManySplits& operator=(const ManySplits&) = delete;

 private:
  const uint32_t before_ = test::open_context().device.max_groups;
};

void attn_decode__restrictions(void**) {
  const ManySplits many;
  uint64_t seed = 1000;
  for (const bool append : {false, true}) {
    for (uint32_t mask = 0; mask < 64; ++mask) {
      // One, two, three and four heads, or three with norms and two without.
      const uint32_t group = test::every_variant() ? 1 + mask % 4 : 3 - mask % 2;
      AttnSpec s = spec_of(mask % 3 == 0 ? 64 : 40, group, 70 + mask % 7, 3 + mask % 9);
      s.kv.gaps = mask % 2 != 0;
      if ((mask & 1) != 0) s.window = 300, s.n_sink = mask % 5 * 7;
      if ((mask & 2) != 0) s.sinks = true;
      if ((mask & 4) != 0) s.soft_cap = 2.5f;
      if ((mask & 8) != 0) s.select_every = 3;
      if ((mask & 16) != 0) s.list_per_head = s.select_every > 0;
      if ((mask & 32) != 0) s.n_sink_pages = 2;
      Extra e = {.append = append, .norms = mask % 2 == 0, .adjacent = mask % 3 == 0};
      e.rope_dim = mask % 5 == 0 ? s.kv.head_dim / 2 : s.kv.head_dim;
      e.sink_query = append && s.n_sink_pages > 0;
      e.short_pages = mask % 4 == 2;
      Case(s, e, ++seed).check();
    }
  }
}

void attn_decode__stamps_and_many_pages(void**) {
  const ManySplits many;
  for (const uint32_t n_pages : {1u, 4u, 63u, 64u, 65u, 300u}) {
    Case(spec_of(64, 8, n_pages, 15), {.append = true, .rope_dim = 64, .stamps = true}, n_pages).check();
    Case(spec_of(128, 4, n_pages, 0), {.append = true, .rope_dim = 128, .stamps = true}, n_pages + 1).check();
  }
}

}  // namespace
}  // namespace weir::vulkan

int main() {
  using namespace weir::vulkan;
  const CMUnitTest tests[] = {
      cmocka_unit_test(attn_decode__head_sizes_and_groups),
      cmocka_unit_test(attn_decode__restrictions),
      cmocka_unit_test(attn_decode__stamps_and_many_pages),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
