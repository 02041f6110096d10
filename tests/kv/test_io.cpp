// kv: one description of bytes saves and restores. What is saved comes back, a number of the file is never a size, and
// damage is told from the section that it is in.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "kv/io.h"
#include "kv/part.h"
#include "tests/cmocka_cpp.h"

namespace {

using namespace weir;

struct File final : ByteSink, ByteSource {
  std::vector<uint8_t> bytes;
  Answer write(const void* data, uint64_t n, uint64_t at) override {
    assert_int_equal(at, bytes.size());
    const auto* from = static_cast<const uint8_t*>(data);
    bytes.insert(bytes.end(), from, from + n);
    return {};
  }
  Answer read(void* data, uint64_t n, uint64_t at, uint64_t& n_read) override {
    n_read = std::min<uint64_t>(n, bytes.size() - std::min<uint64_t>(at, bytes.size()));
    if (n_read != 0) std::memcpy(data, bytes.data() + at, n_read);
    return {};
  }
};

// What the description below is about.
struct Values {
  uint32_t n = 0;
  uint16_t list[3] = {};
  double fixed[2] = {};
};

Status describe(Io& io, Values& v) {
  WEIR_TRY(io.section("LIST"));
  WEIR_TRY(io.value(v.n));
  WEIR_TRY(io.array(std::span(v.list), v.n, "entries"));
  WEIR_TRY(io.section("MORE"));
  return io.array(std::span(v.fixed));
}

Status run(Io& io, Values& v) {
  WEIR_TRY(io.begin(kWholeVersion));
  WEIR_TRY(describe(io, v));
  return io.finish();
}

void save(File& file, Values v) {
  Io io(static_cast<ByteSink&>(file));
  assert_true(io.saves() && !io.restores());
  assert_true(run(io, v).ok());
}

Status restore(File& file, Values& v) {
  Io io(static_cast<ByteSource&>(file));
  assert_true(io.restores() && !io.saves());
  return run(io, v);
}

void io__what_is_saved_comes_back(void**) {
  File file;
  save(file, {2, {7, 8, 9}, {0.5, -1.0}});
  Values v;
  assert_true(restore(file, v).ok());
  assert_int_equal(v.n, 2);
  assert_int_equal(v.list[1], 8);
  assert_int_equal(v.list[2], 0);  // beyond n
  assert_true(v.fixed[0] == 0.5 && v.fixed[1] == -1.0);
}

void io__a_number_of_the_file_is_never_a_size(void**) {
  File file;
  save(file, {3, {7, 8, 9}, {}});
  file.bytes[24 + 4] = 4;
  Values v;
  assert_int_equal(restore(file, v).code(), WEIR_ERR_FORMAT);
  assert_non_null(std::strstr(last_error_text(), "4 entries"));
  assert_non_null(std::strstr(last_error_text(), "room for 3"));
  assert_int_equal(v.list[0], 0);
}

void io__damage_is_found_in_its_section(void**) {
  File whole;
  save(whole, {1, {7}, {0.5, 1.5}});
  // Header, LIST with its checksum, MORE with its own, END!.
  const size_t list = 24, more = list + 4 + 4 + 2 + 8, end = more + 4 + 16 + 8;
  assert_int_equal(whole.bytes.size(), end + 4 + 8);
  const struct {
    size_t at;
    const char* text;
  } rows[] = {{0, "first eight bytes"},
              {16, "its header has another checksum"},
              {list, "no section LIST at byte 24"},
              {list + 8, "section LIST"},
              {more + 5, "section MORE"},
              {end, "no section END!"},
              {end + 4, "the checksum of all"}};
  for (const auto& row : rows) {
    File file = whole;
    file.bytes[row.at] ^= 1;
    Values v;
    assert_int_equal(restore(file, v).code(), WEIR_ERR_FORMAT);
    if (std::strstr(last_error_text(), row.text) == nullptr) fail_msg("byte %zu: %s", row.at, last_error_text());
  }
  for (size_t n = 0; n < whole.bytes.size(); ++n) {
    File file = whole;
    file.bytes.resize(n);
    Values v;
    assert_int_equal(restore(file, v).code(), WEIR_ERR_FORMAT);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(io__what_is_saved_comes_back),
      cmocka_unit_test(io__a_number_of_the_file_is_never_a_size),
      cmocka_unit_test(io__damage_is_found_in_its_section),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
