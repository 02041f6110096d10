// gguf: the container reader. Mirrors lib/gguf. Files on disk are in test_gguf_file.cpp, files that must be refused in
// test_bad_files.cpp.
#include <cfloat>
#include <cmath>
#include <limits>

#include "tests/gguf/gguf_test.h"

using namespace weir;
using namespace weir_test;

namespace {

void gguf__every_value_type_is_read(void**) {
  const Bytes bytes = everything().build();
  GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.parse(bytes).ok());
  assert_int_equal(file.version(), 3);
  assert_int_equal(file.file_bytes(), bytes.size());
  assert_int_equal(file.values().size(), 18);
  const auto raw = [&](const char* key) { return file.find(key)->raw; };
  assert_true(raw("t.u8") == 200 && raw("t.u16") == 60000 && raw("t.u32") == 4000000000u &&
              raw("t.u64") == uint64_t{1} << 40);
  assert_true(raw("t.i8") == static_cast<uint64_t>(-7) && raw("t.i16") == static_cast<uint64_t>(-300));
  assert_true(raw("t.i32") == static_cast<uint64_t>(-70000) && raw("t.i64") == ~uint64_t{0});
  assert_true(raw("t.f32") == 0x3F000000u && raw("t.f64") == 0x3FD0000000000000u);
  assert_true(raw("t.yes") == 1 && raw("t.no") == 0);
  assert_true(file.find("t.text")->text == "two w\xC3\xB6rds" && file.find("t.empty")->text.empty());
  assert_int_equal(file.find("t.text")->type, GgufType::kString);
  assert_true(file.values()[0].key == "t.u8" && file.values()[17].key == "t.none");  // file order
}

void gguf__arrays_are_views(void**) {
  const Bytes bytes = everything().build();
  GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.parse(bytes).ok());
  const GgufValue* words = file.find("t.words");
  assert_true(words->type == GgufType::kArray && words->element_type == GgufType::kString && words->count == 3);
  assert_int_equal(words->data_bytes, 3 * 8 + 3);
  GgufStrings strings(*words);
  assert_true(strings.next() == "a" && strings.next().empty() && strings.next() == std::string_view("\0z", 2));
  assert_int_equal(strings.left(), 0);
  const GgufValue* floats = file.find("t.floats");
  assert_int_equal(floats->data_bytes, 8);
  assert_true(gguf_number(*floats, 0) == 1.5 && gguf_number(*floats, 1) == -2.5);
  assert_int_equal(file.find("t.flags")->count, 3);
  assert_true(file.find("t.none")->count == 0 && file.find("t.none")->data_bytes == 0);
}

void gguf__tensors_lie_where_the_file_says(void**) {
  const Bytes bytes = everything().build();
  GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.parse(bytes).ok());
  assert_int_equal(file.tensors().size(), 3);
  const GgufTensor* q = file.find_tensor("q.weight");
  assert_true(q->n_dims == 2 && q->dims[0] == 4 && q->dims[1] == 64 && q->dims[2] == 1 && q->dims[3] == 1);
  assert_true(q->n_weights == 256 && q->bytes == 272 && q->type_id == kQ8Id);
  assert_string_equal(q->type_name, "q8_0");
  assert_ptr_equal(q->data, bytes.data() + q->file_offset);
  assert_true(q->file_offset % 32 == 0 && q->data[0] == 2 && q->data[271] == 2);
  assert_int_equal(file.find_tensor("m.weight")->data[23], 1);
  const GgufTensor* v = file.find_tensor("v.bias");
  assert_true(v->file_offset + v->bytes == bytes.size() && v->data[19] == 3);  // up to the very last byte
}

void gguf__find_distinguishes_prefixes(void**) {
  GgufWriter w;
  for (const char* key : {"b.c", "a", "b", "b.", "b.cc", "ab"}) w.add_string(key, key);
  const Bytes bytes = w.build();
  GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.parse(bytes).ok());
  for (const char* key : {"b.c", "a", "b", "b.", "b.cc", "ab"}) assert_true(file.find(key)->text == key);
  for (const char* key : {"", "aa", "b.ccc", "B", "c", "b.c.", "A"}) assert_null(file.find(key));
  assert_null(file.find_tensor("a"));
}

void gguf__version_2_is_read(void**) {
  GgufWriter w = everything();
  w.version = 2;
  const Bytes bytes = w.build();
  GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.parse(bytes).ok());
  assert_int_equal(file.version(), 2);
  assert_int_equal(file.tensors().size(), 3);
}

void gguf__a_file_may_hold_nothing(void**) {
  const Bytes bytes = GgufWriter().build();
  GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.parse(bytes).ok());
  assert_true(file.values().empty() && file.tensors().empty() && file.find("x") == nullptr);
}

void gguf__alignment_key_moves_the_data(void**) {
  for (uint32_t alignment : {8u, 64u, 1u << 20}) {
    GgufWriter w;
    w.alignment = alignment;
    w.add_u32("general.alignment", alignment);
    w.add_tensor("a", {1}, kF32Id, Bytes(4, 1)).add_tensor("b", {1}, kF32Id, Bytes(4, 2));
    const Bytes bytes = w.build();
    GgufFile file(std::pmr::new_delete_resource());
    assert_true(file.parse(bytes).ok());
    assert_int_equal(file.find_tensor("a")->file_offset % alignment, 0);
    assert_int_equal(file.find_tensor("b")->file_offset - file.find_tensor("a")->file_offset, alignment);
    assert_int_equal(file.find_tensor("b")->data[0], 2);
  }
}

void gguf__types_without_kernels_are_listed(void**) {
  GgufWriter w;
  w.add_tensor("old", {2, 64}, kQ8_1Id, Bytes(144, 0));
  const Bytes bytes = w.build();
  GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.parse(bytes).ok());
  assert_string_equal(file.tensors()[0].type_name, "q8_1");
  assert_int_equal(file.tensors()[0].bytes, 144);
}

void gguf__limits_of_names_are_inclusive(void**) {
  const std::string key(65535, 'k'), name(64, 'n');
  GgufWriter w;
  w.add_u32(key, 1).add_tensor(name, {1}, kF32Id, Bytes(4, 0));
  const Bytes good = w.build();
  GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.parse(good).ok());
  assert_non_null(file.find(key));
  assert_non_null(file.find_tensor(name));
  const Bytes long_key = GgufWriter().add_u32(key + "k", 1).build();
  assert_fails(file.parse(long_key), WEIR_ERR_FORMAT, "65536 bytes; the format allows 65535");
  const Bytes long_name = GgufWriter().add_tensor(name + "n", {1}, kF32Id, Bytes(4, 0)).build();
  assert_fails(file.parse(long_name), WEIR_ERR_FORMAT, "65 bytes; the format allows 64");
}

void gguf__names_may_be_any_printable_utf8(void**) {
  GgufFile file(std::pmr::new_delete_resource());
  for (const char* key : {"\x7E", "\xC2\xA0", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                          "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    const Bytes bytes = GgufWriter().add_u32(key, 1).build();
    assert_true(file.parse(bytes).ok());
  }
  for (const char* key : {"\x80", "\xC0\x80", "\xC1\xBF", "\xC3", "\xC3(", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xE2\x82",
                          "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    const Bytes bytes = GgufWriter().add_u32(key, 1).build();
    assert_fails(file.parse(bytes), WEIR_ERR_FORMAT, "not valid UTF-8");
  }
  for (const char* key : {"a\n", "\x1B[31m", "\x7F", "\xC2\x85"}) {
    const Bytes bytes = GgufWriter().add_u32(key, 1).build();
    assert_fails(file.parse(bytes), WEIR_ERR_FORMAT, "control character");
  }
}

void gguf__every_cut_of_a_file_is_an_error(void**) {
  const Bytes bytes = everything().build();
  for (size_t n = 0; n < bytes.size(); ++n) {
    const Bytes cut(bytes.begin(),
                    bytes.begin() + static_cast<ptrdiff_t>(n));  // its own block: sanitizers see over-reads
    GgufFile file(std::pmr::new_delete_resource());
    assert_int_equal(file.parse(cut).code(), WEIR_ERR_FORMAT);
    assert_true(file.values().empty() && file.tensors().empty() && file.file_bytes() == 0);
  }
}

void gguf__get_u32_takes_any_integer_that_fits(void**) {
  const Bytes bytes = everything().build();
  GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.parse(bytes).ok());
  uint32_t out = 0;
  assert_true(file.get_u32("t.u8", out).ok() && out == 200);
  assert_true(file.get_u32("t.u16", out, 5).ok() && out == 60000);
  assert_true(file.get_u32("t.u32", out).ok() && out == 4000000000u);
  assert_true(file.get_u32("absent", out, 7).ok() && out == 7);
  assert_fails(file.get_u32("absent", out), WEIR_ERR_FORMAT, "absent: the file has no such key");
  assert_fails(file.get_u32("t.u64", out), WEIR_ERR_FORMAT, "t.u64: 1099511627776 exceeds 32 bits");
  assert_fails(file.get_u32("t.i8", out, 1), WEIR_ERR_FORMAT, "t.i8: -7 is negative");
  assert_fails(file.get_u32("t.i64", out), WEIR_ERR_FORMAT, "t.i64: -1 is negative");
  assert_fails(file.get_u32("t.f32", out, 1), WEIR_ERR_FORMAT, "t.f32: expected an integer, file has f32");
  assert_fails(file.get_u32("t.yes", out), WEIR_ERR_FORMAT, "t.yes");
  assert_int_equal(out, 7);  // failures do not change it
}

void gguf__get_f32_takes_both_float_types(void**) {
  GgufWriter w = everything();
  w.add("t.huge", GgufType::kF64, 1e39).add("t.inf", GgufType::kF64, std::numeric_limits<double>::infinity());
  w.add("t.max", GgufType::kF64, static_cast<double>(FLT_MAX)).add_f32("t.nan", NAN);
  const Bytes bytes = w.build();
  GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.parse(bytes).ok());
  float out = 0;
  assert_true(file.get_f32("t.f32", out).ok() && out == 0.5f);
  assert_true(file.get_f32("t.f64", out, 9.0f).ok() && out == 0.25f);
  assert_true(file.get_f32("t.inf", out).ok() && std::isinf(out));
  assert_true(file.get_f32("t.max", out).ok() && out == FLT_MAX);
  assert_true(file.get_f32("t.nan", out).ok() && std::isnan(out));
  assert_true(file.get_f32("absent", out, 3.0f).ok() && out == 3.0f);
  assert_fails(file.get_f32("t.huge", out), WEIR_ERR_FORMAT, "t.huge");
  assert_fails(file.get_f32("t.text", out, 1.0f), WEIR_ERR_FORMAT, "expected a number, file has string");
  assert_fails(file.get_f32("absent", out), WEIR_ERR_FORMAT, "absent");
  assert_true(out == 3.0f);
  assert_true(file.get_f32("t.u16", out).ok() && out == 60000.0f);  // some writers have whole numbers so
  assert_true(file.get_f32("t.i8", out).ok() && out == -7.0f);
}

void gguf__get_bool_and_string_check_the_type(void**) {
  const Bytes bytes = everything().build();
  GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.parse(bytes).ok());
  bool flag = false;
  assert_true(file.get_bool("t.yes", flag, false).ok() && flag);
  assert_true(file.get_bool("t.no", flag, true).ok() && !flag);
  assert_true(file.get_bool("absent", flag, true).ok() && flag);
  assert_fails(file.get_bool("t.u8", flag, false), WEIR_ERR_FORMAT, "t.u8: expected a bool, file has u8");
  std::string_view text;
  assert_true(file.get_string("t.text", text).ok() && text == "two w\xC3\xB6rds");
  assert_true(file.get_string("t.empty", text, "x").ok() && text.empty());
  assert_true(file.get_string("absent", text, "x").ok() && text == "x");
  assert_fails(file.get_string("absent", text), WEIR_ERR_FORMAT, "absent");
  assert_fails(file.get_string("t.words", text, ""), WEIR_ERR_FORMAT, "t.words: expected a string, file has array");
}

void gguf__get_array_checks_the_element_type(void**) {
  const Bytes bytes = everything().build();
  GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.parse(bytes).ok());
  const GgufValue* array = nullptr;
  assert_true(file.get_array("t.words", GgufArray::kStrings, true, array).ok() && array == file.find("t.words"));
  assert_true(file.get_array("absent", GgufArray::kStrings, false, array).ok() && array == nullptr);
  assert_true(file.get_array("t.floats", GgufArray::kFloats, true, array).ok() && array == file.find("t.floats"));
  assert_fails(file.get_array("absent", GgufArray::kStrings, true, array), WEIR_ERR_FORMAT, "absent");
  assert_fails(file.get_array("t.floats", GgufArray::kIntegers, true, array), WEIR_ERR_FORMAT,
               "expected an array of integers, file has one of f32");
  assert_fails(file.get_array("t.text", GgufArray::kStrings, false, array), WEIR_ERR_FORMAT,
               "expected an array, file has string");
}

// The same numbers in every type that writers use for them.
template <class T>
void assert_dialect(GgufType type) {
  const std::vector<T> numbers = {3, 1, 3};
  GgufWriter w;
  w.add_array("t.array", type, numbers).add_array("t.equal", type, std::vector<T>{4, 4, 4});
  w.add("t.yes", type, T{1}).add("t.no", type, T{0}).add("t.two", type, T{2});
  w.add_array("t.none", type, std::vector<T>{});
  const Bytes bytes = w.build();
  GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.parse(bytes).ok());
  const bool is_integer = type != GgufType::kF32 && type != GgufType::kF64, is_byte = sizeof(T) == 1;
  const GgufValue* array = nullptr;
  float real = 0;
  assert_true(file.get_f32("t.two", real).ok() && real == 2.0f);
  assert_true(file.get_array("t.array", GgufArray::kFloats, true, array).ok() != is_integer);
  assert_true(file.get_array("t.array", GgufArray::kIntegers, true, array).ok() == is_integer);
  assert_true(file.get_array("t.array", GgufArray::kFlags, true, array).ok() == is_integer);
  for (size_t i = 0; i < 3; ++i) assert_true(gguf_number(*file.find("t.array"), i) == static_cast<double>(numbers[i]));
  bool flag = false;
  uint32_t number = 0;
  assert_true(file.get_bool("t.yes", flag, false).ok() == is_byte && flag == is_byte);
  assert_true(file.get_of_layers("t.equal", number).ok() == is_integer);
  assert_fails(file.get_bool("t.two", flag, true), WEIR_ERR_FORMAT, "t.two: expected a bool");
  if (!is_integer) return;
  assert_int_equal(number, 4);
  assert_true(file.get_of_layers("t.two", number).ok() && number == 2);
  assert_true(file.get_u32("t.two", number).ok() && number == 2);
  assert_fails(file.get_u32("t.equal", number), WEIR_ERR_FORMAT, "t.equal: expected an integer, file has array");
  for (size_t i = 0; i < 3; ++i) assert_int_equal(gguf_integer(*file.find("t.array"), i), numbers[i]);
  assert_fails(file.get_of_layers("t.array", number), WEIR_ERR_UNSUPPORTED, "t.array: 3 and 1");
  assert_fails(file.get_of_layers("t.none", number), WEIR_ERR_FORMAT, "t.none: an array of 0 elements");
}

void gguf__numbers_of_every_type(void**) {
  assert_dialect<uint8_t>(GgufType::kU8);
  assert_dialect<int8_t>(GgufType::kI8);
  assert_dialect<uint16_t>(GgufType::kU16);
  assert_dialect<int16_t>(GgufType::kI16);
  assert_dialect<uint32_t>(GgufType::kU32);
  assert_dialect<int32_t>(GgufType::kI32);
  assert_dialect<uint64_t>(GgufType::kU64);
  assert_dialect<int64_t>(GgufType::kI64);
  assert_dialect<float>(GgufType::kF32);
  assert_dialect<double>(GgufType::kF64);
}

void gguf__names_and_sizes_of_value_types(void**) {
  for (uint32_t i = 0; i <= 12; ++i) {
    const auto type = static_cast<GgufType>(i);
    assert_string_not_equal(gguf_type_name(type), "unknown");
    const bool sized = type != GgufType::kString && type != GgufType::kArray;
    assert_int_equal(gguf_type_bytes(type) > 0, sized);
  }
  assert_string_equal(gguf_type_name(static_cast<GgufType>(13)), "unknown");
  assert_string_equal(gguf_type_name(GgufType::kI64), "i64");
  assert_int_equal(gguf_type_bytes(static_cast<GgufType>(13)), 0);
  assert_int_equal(gguf_type_bytes(GgufType::kF64), 8);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(gguf__every_value_type_is_read),
      cmocka_unit_test(gguf__arrays_are_views),
      cmocka_unit_test(gguf__tensors_lie_where_the_file_says),
      cmocka_unit_test(gguf__find_distinguishes_prefixes),
      cmocka_unit_test(gguf__version_2_is_read),
      cmocka_unit_test(gguf__a_file_may_hold_nothing),
      cmocka_unit_test(gguf__alignment_key_moves_the_data),
      cmocka_unit_test(gguf__types_without_kernels_are_listed),
      cmocka_unit_test(gguf__limits_of_names_are_inclusive),
      cmocka_unit_test(gguf__names_may_be_any_printable_utf8),
      cmocka_unit_test(gguf__every_cut_of_a_file_is_an_error),
      cmocka_unit_test(gguf__get_u32_takes_any_integer_that_fits),
      cmocka_unit_test(gguf__get_f32_takes_both_float_types),
      cmocka_unit_test(gguf__get_bool_and_string_check_the_type),
      cmocka_unit_test(gguf__get_array_checks_the_element_type),
      cmocka_unit_test(gguf__numbers_of_every_type),
      cmocka_unit_test(gguf__names_and_sizes_of_value_types),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
