// kv: what leaves the windows of single streams is added up, token by token, and the sums come and go with the
// conversation.
#include "kv/left_sums.h"

#include <cstring>

#include "tests/kv/cache_case.h"

namespace {

using namespace weir;
using weir::test::Cache;

// Two layers of two KV heads; streams 1 and 2 hold a page of sinks and 20 tokens.
constexpr uint32_t kDim = 8;

KvShape shape_of(bool compensates, uint32_t sinks = 5) {
  KvShape shape = {2, 2, kDim, 32, DigestKind::kNone};
  shape.windows.sinks = sinks;
  shape.windows.window = 20;
  shape.windows.compensates = compensates;
  shape.windows.add(1);
  shape.windows.add(2);
  shape.own_pages = shape.windows.pages(16, 512);
  return shape;
}

// Small whole numbers, so that sums are exact: of keys by position and stream, of values by position and element.
float key_of(uint32_t stream, uint32_t pos) { return static_cast<float>(pos % 64 + stream); }
float value_of(uint32_t pos, uint32_t i) { return static_cast<float>(pos % 32 * (i + 1)); }

// Appends tokens one by one, as steps do.
void append(KvCache& kv, uint32_t n) {
  for (uint32_t k = 0; k < n; ++k) {
    const uint32_t pos = kv.n_tokens();
    for (uint32_t s : {1u, 2u}) kv.slide(s, pos);
    assert_true(kv.reserve(1, 0, pos + 1).ok());
    for (uint32_t s = 0; s < 4; ++s) {
      const StreamView v = kv.stream(s);
      uint16_t* key = kv.page_data(v.slots[v.n_pages - 1]) + size_t{pos % kPageTokens} * kDim;
      for (uint32_t i = 0; i < kDim; ++i) {
        key[i] = f32_to_bf16(key_of(s, pos));
        key[kPageTokens * kDim + i] = f32_to_bf16(value_of(pos, i));
      }
    }
    kv.commit();
  }
}

// The sums hold the tokens of [first, end) and no others.
void assert_sums(const KvCache& kv, uint32_t stream, uint32_t first, uint32_t end) {
  const LeftSums& left = kv.left();
  assert_true(left.has(stream));
  assert_int_equal(left.of(stream).n_tokens, end - first);
  assert_int_equal(left.of(stream).end, first == end ? 0 : end);
  const float* got = left.values(stream);
  for (uint32_t i = 0; i < kDim; ++i) {
    float key = 0.0f, value = 0.0f;
    for (uint32_t pos = first; pos < end; ++pos) {
      key += key_of(stream, pos);
      value += value_of(pos, i);
    }
    assert_true(got[i] == key && got[kDim + i] == value);
  }
}

void left_sums__number_of_a_stream(void**) {
  StreamWindows windows;
  windows.window = 1;
  const uint32_t streams[] = {0, 3, 31, 32, 40, 63, 64, 1000, 4095};
  for (uint32_t s : streams) windows.add(s);
  for (uint32_t i = 0; i < windows.n_streams; ++i) assert_int_equal(windows.rank(streams[i]), i);
}

// At 100 tokens position 99 sees from 80 on: pages 1 to 4 of the stream have left, and nothing of the sinks' page.
void left_sums__hold_what_left_and_nothing_else(void**) {
  Cache cache(shape_of(true));
  KvCache& kv = cache.kv;
  append(kv, 51);
  for (uint32_t s : {1u, 2u}) assert_sums(kv, s, 16, 16);
  append(kv, 1);  // position 51 sees from 32 on
  for (uint32_t s : {1u, 2u}) assert_sums(kv, s, 16, 32);
  append(kv, 48);
  for (uint32_t s : {1u, 2u}) assert_sums(kv, s, 16, 80);
  for (uint32_t s : {0u, 3u}) assert_false(kv.left().has(s));
  append(kv, 1);
  for (uint32_t s : {1u, 2u}) assert_sums(kv, s, 16, 80);
  // Without sinks the first page leaves, too.
  Cache none(shape_of(true, 0));
  append(none.kv, 100);
  assert_sums(none.kv, 1, 0, 80);
}

void left_sums__come_and_go_with_the_conversation(void**) {
  Cache cache(shape_of(true)), copy(shape_of(true));
  append(cache.kv, 100);
  copy.parts.copy_from(cache.parts, 100);
  append(cache.kv, 60);
  assert_sums(cache.kv, 1, 16, 128);
  for (uint32_t s : {1u, 2u}) assert_sums(copy.kv, s, 16, 80);
  append(copy.kv, 60);
  for (uint32_t s : {1u, 2u}) assert_sums(copy.kv, s, 16, 128);
  // A token that is taken back was not in them; nor are those after the last that is.
  assert_true(cache.kv.reserve(1, 0, 161).ok());
  { KvReservation reservation(cache.kv, cache.parts); }
  assert_true(cache.parts.can_cut(128, false).ok());
  cache.parts.cut(128);
  for (uint32_t s : {1u, 2u}) assert_sums(cache.kv, s, 16, 128);
  // Before that they begin anew.
  assert_int_equal(cache.parts.can_cut(127, false).code(), WEIR_ERR_NOT_FOUND);
  assert_non_null(std::strstr(last_error_text(), "layer 0, KV head 1"));
  assert_true(cache.parts.can_cut(127, true).ok());
  cache.parts.cut(127);
  for (uint32_t s : {1u, 2u}) assert_sums(cache.kv, s, 0, 0);
  copy.parts.reset();
  for (uint32_t s : {1u, 2u}) assert_sums(copy.kv, s, 0, 0);
}

// A number and a position for each of the two streams, their keys and values, and room for one more of these.
void left_sums__take_what_they_need(void**) {
  const Cache with(shape_of(true)), without(shape_of(false));
  const auto rounded = [](uint64_t bytes) { return align_up(bytes, kCacheLine); };
  const uint64_t values = uint64_t{2} * kDim * sizeof(float);
  assert_int_equal(with.tables.size() - without.tables.size(),
                   rounded(2 * 2 * sizeof(uint32_t)) + rounded(2 * values) + rounded(values));
  assert_int_equal(with.pages.size(), without.pages.size());
  assert_false(without.left.is_on());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(left_sums__number_of_a_stream),
      cmocka_unit_test(left_sums__hold_what_left_and_nothing_else),
      cmocka_unit_test(left_sums__come_and_go_with_the_conversation),
      cmocka_unit_test(left_sums__take_what_they_need),
  };
  return cmocka_run_group_tests_name("kv_left_sums", tests, nullptr, nullptr);
}
