// runtime: a record of tokens has the latest and the first of them, at the right places, whatever came how, and which
// ones depends on their number alone.
#include "runtime/token_record.h"

#include <random>
#include <vector>

#include "tests/cmocka_cpp.h"

namespace {

using namespace weir;

struct Record {
  explicit Record(const TokenRecord::Shape& shape) : block(1 << 16) {
    Arena arena(block.data(), block.size());
    record.set_shape(shape);
    Arenas arenas = Arenas::all_in(arena);
    record.lay_out(arenas);
  }
  void append(const std::vector<weir_token>& tokens) {
    record.put(static_cast<uint32_t>(all.size()), tokens.data(), static_cast<uint32_t>(tokens.size()));
    all.insert(all.end(), tokens.begin(), tokens.end());
    check();
  }
  bool cut(uint32_t n) {
    if (!record.goes_on_after(n)) return false;
    record.cut(n);
    all.resize(n);
    check();
    return true;
  }
  void check() const {
    const auto n = static_cast<uint32_t>(all.size());
    const std::span<const weir_token> view = record.view(n), front = record.front(n);
    assert_int_equal(view.size(), n - record.first());
    for (uint32_t i = 0; i < view.size(); ++i) assert_int_equal(view[i], all[record.first() + i]);
    for (uint32_t i = 0; i < front.size(); ++i) assert_int_equal(front[i], all[i]);
    assert_int_equal(front.size(), std::min(n, record.shape().front));
  }

  alignas(kCacheLine) std::vector<std::byte> block;
  TokenRecord record;
  std::vector<weir_token> all;
};

std::vector<weir_token> numbered(uint32_t first, uint32_t n) {
  std::vector<weir_token> tokens;
  for (uint32_t i = 0; i < n; ++i) tokens.push_back(static_cast<weir_token>(first + i) * 7 + 1);
  return tokens;
}

void token_record__has_the_latest_and_the_first(void**) {
  constexpr uint32_t kLatest = 40, kFront = 24;
  std::mt19937 random(3);
  Record pieces({100000, kFront, kLatest});
  for (int i = 0; i < 400; ++i) {
    const uint32_t n = random() % 8 == 0 ? static_cast<uint32_t>(random() % 300) : static_cast<uint32_t>(random() % 12);
    pieces.append(numbered(static_cast<uint32_t>(pieces.all.size()), n));
    const auto size = static_cast<uint32_t>(pieces.all.size());
    assert_true(pieces.record.view(size).size() < 2 * kLatest);
    assert_true(pieces.record.view(size).size() >= std::min(size, kLatest));
    Record whole({100000, kFront, kLatest});
    whole.append(pieces.all);
    assert_int_equal(whole.record.first(), pieces.record.first());
  }
}

void token_record__goes_back(void**) {
  Record r({100000, 24, 40});
  r.append(numbered(0, 1000));
  assert_int_equal(r.record.first(), 960);
  assert_false(r.record.goes_on_after(959));
  assert_false(r.record.goes_on_after(25));
  assert_true(r.cut(970));
  r.append(numbered(5000, 3));
  assert_true(r.cut(960));
  assert_true(r.cut(24));
  assert_int_equal(r.record.first(), 0);
  r.append(numbered(2000, 30));
  assert_true(r.cut(30));
  assert_true(r.cut(0));
  r.append(numbered(3000, 100));
  assert_int_equal(r.record.first(), 40);
}

// What is appended may be part of the record.
void token_record__takes_its_own_tokens(void**) {
  for (uint32_t n_before : {10u, 70u, 79u, 700u}) {
    for (uint32_t from : {0u, 5u, 30u}) {
      Record r({100000, 24, 40});
      r.append(numbered(0, n_before));
      const std::span<const weir_token> view = r.record.view(n_before);
      if (from >= view.size()) continue;
      const std::span<const weir_token> part = view.subspan(from);
      const std::vector<weir_token> copy(part.begin(), part.end());
      r.record.put(n_before, part.data(), static_cast<uint32_t>(part.size()));
      r.all.insert(r.all.end(), copy.begin(), copy.end());
      r.check();
    }
  }
}

void token_record__whole(void**) {
  Record r({500});
  r.append(numbered(0, 500));
  assert_int_equal(r.record.first(), 0);
  assert_true(r.cut(3));
  r.append(numbered(100, 497));
  assert_int_equal(r.record.view(500).size(), 500);
  assert_false(r.record.begin(500, 40));
}

void token_record__begins_where_one_of_its_shape_can(void**) {
  Record r({100000, 24, 40});
  for (uint32_t first : {1u, 39u, 1040u, 920u, 880u}) assert_false(r.record.begin(1000, first));
  assert_true(r.record.begin(1000, 960));
  assert_int_equal(r.record.room(1000).size(), 40);
  assert_int_equal(r.record.front_room(1000).size(), 24);
  assert_int_equal(r.record.front_room(10).size(), 10);
  assert_true(r.record.begin(970, 960));  // as after a rewind
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(token_record__has_the_latest_and_the_first),
      cmocka_unit_test(token_record__goes_back),
      cmocka_unit_test(token_record__takes_its_own_tokens),
      cmocka_unit_test(token_record__whole),
      cmocka_unit_test(token_record__begins_where_one_of_its_shape_can),
  };
  return cmocka_run_group_tests_name("runtime/test_token_record", tests, nullptr, nullptr);
}
