// kv: layers with tables of another size, flags of position ranges, and digests of every kind.
#include "ops/page_digest.h"
#include "tests/kv/cache_case.h"

#include <algorithm>

namespace {

using namespace weir;
using weir::test::Cache;
using weir::test::check;

constexpr DigestKind kKinds[] = {DigestKind::kMinMax,   DigestKind::kCuboidMean, DigestKind::kSphereMean,
                                 DigestKind::kCentroid, DigestKind::kMeanStd,    DigestKind::kSketch};

// Four layers of two KV heads; tables of 3 pages, but of `wide_pages` in the first two layers.
KvShape shape_of(uint32_t wide_pages, DigestKind digest = DigestKind::kNone) {
  return {4, 2, 8, 3, digest, 2, wide_pages};
}

bool is_wide(uint32_t stream) { return stream < 4; }

// The page's first key and last value encode the stream and the position, so that shared or lost memory is detected.
uint16_t tag(uint32_t stream, uint32_t first_pos) { return static_cast<uint16_t>(1 + stream * 1000 + first_pos / 16); }

void write_tags(KvCache& kv) {
  for (uint32_t s = 0; s < kv.shape().n_streams(); ++s) {
    const StreamView v = kv.stream(s);
    uint16_t* page = kv.page_data(v.slots[v.n_pages - 1]);
    page[0] = page[kv.shape().page_bytes() / sizeof(uint16_t) - 1] = tag(s, v.first_pos[v.n_pages - 1]);
  }
}

void check_tags(KvCache& kv) {
  for (uint32_t s = 0; s < kv.shape().n_streams(); ++s) {
    const StreamView v = kv.stream(s);
    for (uint32_t row = 0; row < v.n_pages; ++row) {
      const uint16_t* page = kv.page_data(v.slots[row]);
      assert_int_equal(page[0], tag(s, v.first_pos[row]));
      assert_int_equal(page[kv.shape().page_bytes() / sizeof(uint16_t) - 1], tag(s, v.first_pos[row]));
    }
  }
}

void kv_cache_wide__capacities(void**) {
  for (uint32_t wide_pages : {6u, 1u}) {  // may also be narrower than the others
    Cache c(shape_of(wide_pages));
    for (uint32_t s = 0; s < 8; ++s) assert_int_equal(c.kv.stream(s).capacity, is_wide(s) ? wide_pages : 3);
    for (uint32_t s = 1; s < 8; ++s)  // their rows lie one after another
      assert_int_equal(c.kv.row_index(s, 0) - c.kv.row_index(s - 1, 0), is_wide(s - 1) ? wide_pages : 3);
    assert_int_equal(c.kv.shape().max_capacity(), std::max(wide_pages, 3u));
    assert_int_equal(c.kv.shape().n_slots(), 2 * 2 * wide_pages + 2 * 2 * 3);
    assert_int_equal(c.kv.shape().rows_before(1), 2 * wide_pages);
    assert_int_equal(c.kv.shape().rows_before(3), 2 * 2 * wide_pages + 2 * 3);
  }
  const KvShape plain = {4, 2, 8, 3};
  assert_int_equal(plain.n_slots(), 4 * 2 * 3);
  assert_int_equal(plain.max_capacity(), 3);
  KvShape all = shape_of(6);
  all.n_wide_layers = 4;
  assert_int_equal(all.n_slots(), 4 * 2 * 6);
}

void kv_cache_wide__bytes(void**) {
  for (DigestKind kind : kKinds) {
    const KvShape shape = {5, 2, 64, 10, kind, 2, 100};
    constexpr uint64_t kRows = 2 * (2 * 100 + 3 * 10);
    Arena m[3];
    KvCache kv;
    kv.lay_out(shape, m[0], m[1], m[2]);
    assert_int_equal(m[0].used(), kRows * 2 * 16 * 64 * 2);
    const uint64_t elements = kind == DigestKind::kCentroid     ? 64
                              : kind == DigestKind::kSphereMean ? 66
                              : kind == DigestKind::kSketch     ? 128 + 16
                                                                : 128;
    assert_int_equal(m[1].used(), align_up(kRows * elements * 2, kCacheLine));
    // Six columns and the free stack, three numbers per stream, and where the streams' rows begin; every array begins
    // at a cache line.
    assert_int_equal(m[2].used(), 7 * align_up(kRows * 4, kCacheLine) + 3 * align_up(uint64_t{5 * 2 * 4}, kCacheLine) +
                                      align_up(uint64_t{(5 * 2 + 1) * 4}, kCacheLine));
  }
}

// A long random conversation: narrow streams evict pages to make room, wide ones hold everything.
void kv_cache_wide__narrow_layers_evict_and_slots_are_never_shared(void**) {
  constexpr uint32_t kWidePages = 40;
  Cache c(shape_of(kWidePages));
  uint64_t state = 1, n_evicted = 0;
  const auto random = [&](uint32_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>((state >> 33) % n);
  };
  while (c.kv.n_tokens() + 20 <= kWidePages * kPageTokens) {
    const uint32_t n_tok = 1 + random(kPageTokens);
    for (uint32_t s = 0; s < 8; ++s) {
      while (c.kv.stream(s).n_pages + c.kv.pages_to_open(n_tok) > c.kv.stream(s).capacity) {
        assert_false(is_wide(s));
        c.kv.evict(s, random(c.kv.stream(s).n_pages - 1));  // any but the open page
        ++n_evicted;
      }
    }
    assert_true(c.kv.reserve(n_tok, 0, c.kv.n_tokens()).ok());
    check(c.kv);
    if (random(4) == 0) {
      c.kv.rollback();
    } else {
      c.kv.commit();
      write_tags(c.kv);
    }
    check(c.kv);
    check_tags(c.kv);
  }
  const uint32_t n_pages = (c.kv.n_tokens() + kPageTokens - 1) / kPageTokens;
  assert_true(n_pages > 30);
  for (uint32_t s = 0; s < 8; ++s) {
    const StreamView v = c.kv.stream(s);
    assert_int_equal(v.first_pos[v.n_pages - 1], (n_pages - 1) * kPageTokens);
    if (is_wide(s)) assert_int_equal(v.n_pages, n_pages);
  }
  assert_int_equal(c.kv.pages_evicted(), n_evicted);
  c.kv.reset();
  check(c.kv);
  c.append(3 * kPageTokens);  // every slot is free again
  check(c.kv);
}

void kv_cache_wide__a_full_narrow_layer_refuses(void**) {
  Cache c(shape_of(6));
  c.append(3 * kPageTokens);
  const uint64_t resident = c.kv.pages_resident();
  assert_int_equal(c.kv.reserve(1, 0, 49).code(), WEIR_ERR_INTERNAL);
  check(c.kv);
  assert_int_equal(c.kv.pages_resident(), resident);
  assert_int_equal(c.kv.stream(0).n_pages, 3);
  for (uint32_t s = 4; s < 8; ++s) c.kv.evict(s, 0);
  c.append(kPageTokens);
  check(c.kv);
  assert_int_equal(c.kv.stream(3).n_pages, 4);
  assert_int_equal(c.kv.stream(4).n_pages, 3);
  assert_int_equal(c.kv.append_rows(0)[0], 3);
  assert_int_equal(c.kv.append_rows(2)[0], 2);
}

void kv_cache_wide__prompt_pages_evicted_counts_prompt_pages(void**) {
  Cache c(shape_of(6));
  c.append(20, kPagePrompt);
  c.append(28);  // page 1 has prompt tokens too
  c.kv.evict(7, 2);
  assert_int_equal(c.kv.prompt_pages_evicted(), 0);
  c.kv.evict(7, 1);
  c.kv.evict(6, 0);
  assert_int_equal(c.kv.prompt_pages_evicted(), 2);
  assert_int_equal(c.kv.pages_evicted(), 3);
}

struct Range {
  uint32_t first, end;
  std::vector<uint32_t> rows;  // of a stream with every page
};

// Pages at 0, 16 and 32, the last one with 5 tokens; the narrow streams have lost the page at 16.
void kv_cache_wide__set_flags_takes_pages_of_the_range(void**) {
  const std::vector<Range> ranges = {{0, 1, {0}},   {0, 16, {0}},     {15, 17, {0, 1}},   {16, 17, {1}},
                                     {16, 32, {1}}, {31, 33, {1, 2}}, {0, 37, {0, 1, 2}}, {36, 37, {2}},
                                     {37, 48, {}},  {48, 90, {}},     {36, 90, {2}}};
  for (const Range& range : ranges) {
    Cache c(shape_of(6));
    c.append(37, kPagePrompt);
    for (uint32_t s = 4; s < 8; ++s) c.kv.evict(s, 1);
    const auto has = [&](uint32_t s, uint32_t row) {
      return std::find(range.rows.begin(), range.rows.end(), c.kv.stream(s).first_pos[row] / kPageTokens) !=
             range.rows.end();
    };
    const uint64_t n = c.kv.set_flags(range.first, range.end, kPageKept | kPagePinned, kPagePrompt);
    uint64_t want = 0;
    for (uint32_t s = 0; s < 8; ++s) {
      for (uint32_t row = 0; row < c.kv.stream(s).n_pages; ++row) {
        want += has(s, row) ? 1u : 0u;
        assert_int_equal(c.kv.stream(s).flags[row],
                         has(s, row) ? uint32_t{kPageKept | kPagePinned} : uint32_t{kPagePrompt});
      }
    }
    assert_int_equal(n, want);
    assert_int_equal(c.kv.set_flags(range.first, range.end, 0, kPageStays), want);
    for (uint32_t s = 0; s < 8; ++s) {
      for (uint32_t row = 0; row < c.kv.stream(s).n_pages; ++row)
        assert_int_equal(c.kv.stream(s).flags[row], has(s, row) ? 0u : uint32_t{kPagePrompt});
    }
  }
}

// Flags move with their pages, and pages opened later do not get them.
void kv_cache_wide__flags_follow_pages(void**) {
  Cache c(shape_of(6));
  c.append(48);
  assert_int_equal(c.kv.set_flags(32, 40, kPageKept, 0), 8);
  for (uint32_t s = 4; s < 8; ++s) c.kv.evict(s, 0);
  c.append(1);
  for (uint32_t s = 0; s < 8; ++s) {
    const StreamView v = c.kv.stream(s);
    for (uint32_t row = 0; row < v.n_pages; ++row)
      assert_int_equal(v.flags[row], v.first_pos[row] == 32 ? uint32_t{kPageKept} : 0u);
  }
}

// Writes keys that differ between pages, tokens and channels.
void write_keys(KvCache& kv, uint32_t stream) {
  const StreamView v = kv.stream(stream);
  for (uint32_t row = 0; row < v.n_pages; ++row) {
    for (uint32_t i = 0; i < kPageTokens * 8; ++i) {
      const uint32_t mixed = (i * 37 + row * 101 + stream * 59) % 113;
      kv.page_data(v.slots[row])[i] = f32_to_bf16(static_cast<float>(mixed) - 50.0f);
    }
  }
}

std::vector<uint16_t> digest_of(const KvCache& kv, uint32_t stream, uint32_t row) {
  const KvView v = kv.view(stream / 2);
  const uint16_t* digest = v.digest_of(stream % 2, row);
  return {digest, digest + digest_elements(v.digest, v.head_dim)};
}

std::vector<uint16_t> digest_of_keys(const KvCache& kv, uint32_t stream, uint32_t row, uint32_t len) {
  std::vector<uint16_t> want(digest_elements(kv.shape().digest, 8));
  digest_page(kv.shape().digest, kv.page_keys(kv.stream(stream).slots[row]), len, 8, want.data());
  return want;
}

// After truncate the page that is open again has the digest of the remaining tokens with kMinMax, and its old digest
// with the other kinds; sealed pages keep theirs.
void kv_cache_wide__truncate_leaves_digests_right(void**) {
  for (DigestKind kind : kKinds) {
    for (uint32_t n_left : {1u, 15u, 16u, 17u, 21u, 32u, 40u}) {
      Cache c(shape_of(6, kind));
      c.append(48);
      for (uint32_t s = 0; s < 8; ++s) {
        write_keys(c.kv, s);
        for (uint32_t row = 0; row < 3; ++row) c.kv.rebuild_digest(s, row);
      }
      for (uint32_t s = 0; s < 8; ++s) {  // the digests of all streams and pages differ
        for (uint32_t row = 0; row < 3; ++row)
          assert_true(digest_of(c.kv, s, row) == digest_of_keys(c.kv, s, row, kPageTokens));
      }
      c.kv.truncate(n_left);
      check(c.kv);
      for (uint32_t s = 0; s < 8; ++s) {
        assert_int_equal(c.kv.stream(s).n_pages, (n_left + kPageTokens - 1) / kPageTokens);
        for (uint32_t row = 0; row < c.kv.stream(s).n_pages; ++row) {
          const uint32_t len = std::min(kPageTokens, n_left - row * kPageTokens);
          const uint32_t digested = kind == DigestKind::kMinMax ? len : kPageTokens;
          assert_int_equal(c.kv.stream(s).len[row], len);
          assert_true(digest_of(c.kv, s, row) == digest_of_keys(c.kv, s, row, digested));
        }
      }
    }
  }
}

// A page that is not full gets a digest with kMinMax only; once full, with every kind.
void kv_cache_wide__rebuild_digest_of_open_and_full_pages(void**) {
  for (DigestKind kind : kKinds) {
    Cache c(shape_of(6, kind));
    c.append(20);
    for (uint32_t s = 0; s < 8; ++s) write_keys(c.kv, s);
    std::fill(c.digests.begin(), c.digests.end(), std::byte{0x7F});
    for (uint32_t s = 0; s < 8; ++s) c.kv.rebuild_digest(s, 1);
    for (uint32_t s = 0; s < 8; ++s) {
      const std::vector<uint16_t> untouched(digest_elements(kind, 8), 0x7F7F);
      assert_true(digest_of(c.kv, s, 0) == untouched);
      assert_true(digest_of(c.kv, s, 1) == (kind == DigestKind::kMinMax ? digest_of_keys(c.kv, s, 1, 4) : untouched));
    }
    c.append(12);
    for (uint32_t s = 0; s < 8; ++s) c.kv.rebuild_digest(s, 1);
    for (uint32_t s = 0; s < 8; ++s) assert_true(digest_of(c.kv, s, 1) == digest_of_keys(c.kv, s, 1, kPageTokens));
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(kv_cache_wide__capacities),
      cmocka_unit_test(kv_cache_wide__bytes),
      cmocka_unit_test(kv_cache_wide__narrow_layers_evict_and_slots_are_never_shared),
      cmocka_unit_test(kv_cache_wide__a_full_narrow_layer_refuses),
      cmocka_unit_test(kv_cache_wide__prompt_pages_evicted_counts_prompt_pages),
      cmocka_unit_test(kv_cache_wide__set_flags_takes_pages_of_the_range),
      cmocka_unit_test(kv_cache_wide__flags_follow_pages),
      cmocka_unit_test(kv_cache_wide__truncate_leaves_digests_right),
      cmocka_unit_test(kv_cache_wide__rebuild_digest_of_open_and_full_pages),
  };
  return cmocka_run_group_tests_name("kv_cache_wide", tests, nullptr, nullptr);
}
