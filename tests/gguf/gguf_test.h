// What the tests of the reader share: messages, and a file that contains everything.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "core/status.h"
#include "gguf/gguf.h"
#include "tests/cmocka_cpp.h"
#include "tests/gguf/gguf_writer.h"

namespace weir_test {

using weir::GgufType;

inline constexpr uint32_t kF32Id = 0, kQ8Id = 8, kQ8_1Id = 9;

inline void assert_message_has(const char* part) {
  if (std::strstr(weir::last_error_text(), part) == nullptr)
    fail_msg("\"%s\" is not in \"%s\"", part, weir::last_error_text());
}

inline void assert_fails(weir::Status status, weir_status code, const char* part) {
  assert_int_equal(status.code(), code);
  assert_message_has(part);
}

// One value of every type, and three tensors.
inline GgufWriter everything() {
  GgufWriter w;
  w.add("t.u8", GgufType::kU8, uint8_t{200}).add("t.i8", GgufType::kI8, int8_t{-7});
  w.add("t.u16", GgufType::kU16, uint16_t{60000}).add("t.i16", GgufType::kI16, int16_t{-300});
  w.add_u32("t.u32", 4000000000u).add("t.i32", GgufType::kI32, int32_t{-70000});
  w.add("t.u64", GgufType::kU64, uint64_t{1} << 40).add("t.i64", GgufType::kI64, int64_t{-1});
  w.add_f32("t.f32", 0.5f).add("t.f64", GgufType::kF64, 0.25);
  w.add_bool("t.yes", true).add_bool("t.no", false);
  w.add_string("t.text", "two w\xC3\xB6rds").add_string("t.empty", "");
  w.add_strings("t.words", {"a", "", std::string("\0z", 2)});
  w.add_array("t.floats", GgufType::kF32, std::vector<float>{1.5f, -2.5f});
  w.add_array("t.flags", GgufType::kBool, std::vector<uint8_t>{1, 0, 1});
  w.add_array("t.none", GgufType::kI32, std::vector<int32_t>{});
  w.add_tensor("m.weight", {2, 3}, kF32Id, Bytes(24, 1));
  w.add_tensor("q.weight", {4, 64}, kQ8Id, Bytes(4 * 2 * 34, 2));
  w.add_tensor("v.bias", {5}, kF32Id, Bytes(20, 3));
  return w;
}

}  // namespace weir_test
