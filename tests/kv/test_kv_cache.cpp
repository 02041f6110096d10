// kv: reserve, commit, rollback, eviction and truncation of the page tables, with every slot accounted for.
#include "tests/kv/cache_case.h"

namespace {

using namespace weir;
using weir::test::Cache;
using weir::test::check;

void kv_cache__append_fills_pages(void**) {
  Cache c({2, 3, 8, 4, DigestKind::kNone});
  assert_true(c.kv.reserve(20, kPagePrompt, 20).ok());
  assert_int_equal(c.kv.n_tokens(), 0);
  assert_int_equal(c.kv.append_rows(1)[2], 0);
  c.kv.commit();
  check(c.kv);
  assert_int_equal(c.kv.n_tokens(), 20);
  assert_int_equal(c.kv.stream(5).n_pages, 2);
  assert_int_equal(c.kv.stream(5).len[1], 4);
  assert_int_equal(c.kv.pages_to_open(12), 0);
  assert_int_equal(c.kv.pages_to_open(13), 1);
  assert_true(c.kv.reserve(12, 0, 32).ok());
  assert_int_equal(c.kv.append_rows(0)[0], 1);
  c.kv.commit();
  assert_true(c.kv.reserve(1, 0, 33).ok());
  assert_int_equal(c.kv.append_rows(0)[0], 2);
  c.kv.commit();
  check(c.kv);
  assert_int_equal(c.kv.stream(0).flags[0], kPagePrompt);
  assert_int_equal(c.kv.stream(0).flags[2], 0);
}

// A prompt that goes on in a page of the answer makes it a prompt page; an answer that goes on in a page of the prompt
// leaves it one.
void kv_cache__an_open_page_takes_the_flags_of_a_prompt(void**) {
  Cache c({1, 2, 8, 4, DigestKind::kNone});
  c.append(5);
  assert_int_equal(c.kv.stream(1).flags[0], 0);
  c.append(20, kPagePrompt | kPagePinned);
  for (uint32_t row : {0u, 1u}) assert_int_equal(c.kv.stream(1).flags[row], kPagePrompt | kPagePinned);
  c.append(20);
  assert_int_equal(c.kv.stream(1).flags[1], kPagePrompt | kPagePinned);
  assert_int_equal(c.kv.stream(1).flags[2], 0);
}

void kv_cache__append_when_full_changes_nothing(void**) {
  Cache c({1, 2, 8, 2, DigestKind::kNone});
  assert_true(c.kv.reserve(32, 0, 32).ok());
  c.kv.commit();
  assert_int_equal(c.kv.reserve(1, 0, 33).code(), WEIR_ERR_INTERNAL);
  check(c.kv);
  assert_int_equal(c.kv.n_tokens(), 32);
  assert_int_equal(c.kv.stream(1).n_pages, 2);
}

void kv_cache__rollback_restores_tables(void**) {
  for (uint32_t before : {0u, 1u, 15u, 16u, 17u, 31u, 32u}) {
    for (uint32_t more : {1u, 2u, 15u, 16u, 17u, 33u}) {
      Cache c({2, 1, 8, 8, DigestKind::kMinMax});
      if (before != 0) {
        assert_true(c.kv.reserve(before, 0, before).ok());
        c.kv.commit();
      }
      const uint64_t resident = c.kv.pages_resident();
      assert_true(c.kv.reserve(more, kPagePrompt, before + more).ok());
      c.kv.rollback();
      check(c.kv);
      assert_int_equal(c.kv.n_tokens(), before);
      assert_int_equal(c.kv.pages_resident(), resident);
      assert_true(c.kv.reserve(more, 0, before + more).ok());
      c.kv.commit();
      check(c.kv);
    }
  }
}

void kv_cache__evict_frees_the_slot(void**) {
  Cache c({1, 2, 8, 4, DigestKind::kNone});
  assert_true(c.kv.reserve(64, 0, 64).ok());
  c.kv.commit();
  for (uint32_t s = 0; s < 2; ++s) c.kv.evict(s, 1 + s);
  check(c.kv);
  assert_int_equal(c.kv.stream(0).first_pos[1], 32);
  assert_int_equal(c.kv.stream(1).first_pos[1], 16);
  assert_int_equal(c.kv.stream(1).first_pos[2], 48);
  assert_int_equal(c.kv.pages_evicted(), 2);
  assert_true(c.kv.reserve(16, 0, 80).ok());
  c.kv.commit();
  check(c.kv);
  assert_int_equal(c.kv.pages_resident_max(), 8);
  assert_int_equal(c.kv.stream(0).first_pos[3], 64);
}

void kv_cache__truncate_rebuilds_the_open_digest(void**) {
  Cache c({1, 1, 8, 4, DigestKind::kMinMax});
  assert_true(c.kv.reserve(16, 0, 16).ok());
  c.kv.commit();
  uint16_t* keys = c.kv.page_data(c.kv.stream(0).slots[0]);
  for (uint32_t t = 0; t < 16; ++t) {
    for (uint32_t i = 0; i < 8; ++i) keys[t * 8 + i] = f32_to_bf16(static_cast<float>(t) * (i % 2 == 0 ? 1.0f : -1.0f));
  }
  c.kv.truncate(5);
  assert_int_equal(c.kv.n_tokens(), 5);
  const KvView v = c.kv.view(0);
  const uint16_t* digest = v.digests + size_t{v.slots[0]} * 16;
  assert_true(bf16_to_f32(digest[0]) == 4.0f && bf16_to_f32(digest[8]) == 0.0f);
  assert_true(bf16_to_f32(digest[1]) == 0.0f && bf16_to_f32(digest[9]) == -4.0f);
}

void kv_cache__arena_measures_what_it_takes(void**) {
  const KvShape shape = {4, 2, 64, 100, DigestKind::kMinMax};
  Arena m[3];
  KvCache kv;
  kv.lay_out(shape, m[0], m[1], m[2]);
  assert_int_equal(m[0].used(), 4 * 2 * 100 * 2 * 16 * 64 * 2);
  assert_int_equal(m[1].used(), 4 * 2 * 100 * 2 * 64 * 2);
}

// However many slots streams have: after n pages each, the pool is in use from its beginning on, without large gaps, so
// that a short conversation touches little of it. On a device each stream keeps to its own part.
void kv_cache__a_pool_fills_from_its_beginning(void**) {
  KvShape shape = {4, 2, 8, 128};
  for (const bool is_wide : {false, true}) {
    shape.n_wide_layers = is_wide ? 1 : 0;
    shape.wide_pages = is_wide ? 200 : 0;
    Cache c(shape);
    for (uint32_t n_pages = 1; n_pages <= 128; ++n_pages) {
      c.append(kPageTokens);
      uint32_t highest = 0;
      for (uint32_t s = 0; s < shape.n_streams(); ++s) {
        const StreamView v = c.kv.stream(s);
        assert_int_equal(v.n_pages, n_pages);
        for (uint32_t row = 0; row < n_pages; ++row) highest = std::max(highest, v.slots[row]);
      }
      assert_true(highest < shape.n_streams() * ((n_pages + 15) / 16 * 16));
    }
    check(c.kv);
    c.kv.set_pages_elsewhere();
    c.kv.reset();
    for (uint32_t n_pages = 1; n_pages <= 3; ++n_pages) c.append(kPageTokens);
    for (uint32_t s = 0; s < shape.n_streams(); ++s) {
      const StreamView v = c.kv.stream(s);
      for (uint32_t row = 1; row < 3; ++row) assert_int_equal(v.slots[row], v.slots[0] + row);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(kv_cache__append_fills_pages),
      cmocka_unit_test(kv_cache__an_open_page_takes_the_flags_of_a_prompt),
      cmocka_unit_test(kv_cache__append_when_full_changes_nothing),
      cmocka_unit_test(kv_cache__rollback_restores_tables),
      cmocka_unit_test(kv_cache__evict_frees_the_slot),
      cmocka_unit_test(kv_cache__truncate_rebuilds_the_open_digest),
      cmocka_unit_test(kv_cache__arena_measures_what_it_takes),
      cmocka_unit_test(kv_cache__a_pool_fills_from_its_beginning),
  };
  return cmocka_run_group_tests_name("kv_cache", tests, nullptr, nullptr);
}
