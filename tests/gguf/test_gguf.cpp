// gguf: the container reader. Mirrors lib/gguf. Files that must be refused are in test_bad_files.cpp.
#include <sys/stat.h>
#include <unistd.h>

#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>

#include "core/memory.h"
#include "gguf/gguf.h"
#include "quant/weight_type.h"
#include "tests/gguf/gguf_writer.h"

// After the library's headers: cmocka makes a macro of the name "fail".
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

using namespace weir;
using weir_test::Bytes;
using weir_test::GgufWriter;

namespace {

constexpr uint32_t kF32Id = 0, kQ8Id = 8, kQ4_1Id = 3;

void assert_message_has(const char* part) {
  if (std::strstr(last_error_text(), part) == nullptr) fail_msg("\"%s\" is not in \"%s\"", part, last_error_text());
}

void assert_fails(Status status, weir_status code, const char* part) {
  assert_int_equal(status.code(), code);
  assert_message_has(part);
}

// One value of every type, and three tensors.
GgufWriter everything() {
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
  assert_true(gguf_element<float>(*floats, 0) == 1.5f && gguf_element<float>(*floats, 1) == -2.5f);
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
  w.add_tensor("old", {2, 64}, kQ4_1Id, Bytes(80, 0));
  const Bytes bytes = w.build();
  GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.parse(bytes).ok());
  assert_string_equal(file.tensors()[0].type_name, "q4_1");
  assert_int_equal(file.tensors()[0].bytes, 80);
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
  assert_int_equal(out, 7);  // failures leave it alone
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
  assert_fails(file.get_f32("t.u32", out, 1.0f), WEIR_ERR_FORMAT, "expected a float, file has u32");
  assert_fails(file.get_f32("absent", out), WEIR_ERR_FORMAT, "absent");
  assert_true(out == 3.0f);
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
  assert_true(file.get_array("t.words", GgufType::kString, true, array).ok() && array == file.find("t.words"));
  assert_true(file.get_array("absent", GgufType::kString, false, array).ok() && array == nullptr);
  assert_fails(file.get_array("absent", GgufType::kString, true, array), WEIR_ERR_FORMAT, "absent");
  assert_fails(file.get_array("t.floats", GgufType::kI32, true, array), WEIR_ERR_FORMAT,
               "expected an array of i32, file has one of f32");
  assert_fails(file.get_array("t.text", GgufType::kString, false, array), WEIR_ERR_FORMAT,
               "expected an array, file has string");
}

// ---- files ----

struct TemporaryFile {
  char path[64] = "weir-test-XXXXXX";
  explicit TemporaryFile(const Bytes& bytes) {
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    assert_true(weir_test::save(path, bytes));
  }
  ~TemporaryFile() { unlink(path); }
};

void gguf_open__maps_a_file_and_frees_everything(void**) {
  HostMemory memory{AllocatorHooks{}};
  {
    const TemporaryFile temporary(everything().build());
    GgufFile file(&memory);
    assert_true(file.open(temporary.path).ok());
    assert_int_equal(file.find_tensor("q.weight")->data[0], 2);
    assert_true(memory.bytes() > 0);
    assert_true(file.open(temporary.path).ok());  // again: the first mapping is replaced
    assert_int_equal(file.tensors().size(), 3);
    assert_int_equal(file.open("no-such-file").code(), WEIR_ERR_IO);
    assert_true(file.tensors().empty() && file.file_bytes() == 0 && memory.bytes() == 0);
  }
  assert_int_equal(memory.n_allocs(), memory.n_frees());
}

void gguf_open__names_path_and_reason(void**) {
  GgufFile file(std::pmr::new_delete_resource());
  assert_fails(file.open("no/such/file.gguf"), WEIR_ERR_IO,
               "no/such/file.gguf: cannot be opened: No such file or directory");
  assert_fails(file.open("."), WEIR_ERR_IO, ".: cannot be mapped: Is a directory");
  const TemporaryFile empty{Bytes()};
  assert_fails(file.open(empty.path), WEIR_ERR_IO, "the file is empty");
  assert_message_has(empty.path);
  const TemporaryFile text{Bytes(100, 'x')};
  assert_fails(file.open(text.path), WEIR_ERR_FORMAT, "not a GGUF file: it starts with the bytes 78 78 78 78");
  assert_message_has(text.path);
}

void gguf_open__does_not_wait_for_a_pipe(void**) {
  const char* path = "weir-test-pipe";
  unlink(path);
  assert_int_equal(mkfifo(path, 0600), 0);
  GgufFile file(std::pmr::new_delete_resource());
  assert_fails(file.open(path), WEIR_ERR_IO, "not a regular file");
  unlink(path);
}

void gguf_open__long_path_keeps_the_reason(void**) {
  GgufFile file(std::pmr::new_delete_resource());
  const std::string path = std::string(3000, 'd') + "/end.gguf";
  assert_fails(file.open(path.c_str()), WEIR_ERR_IO, "/end.gguf: cannot be opened: ");
  assert_true(std::strlen(last_error_text()) < 600);
}

// Refuses the allocation with number `refuse_at` (from 0).
struct Refusal {
  int64_t refuse_at = 0, n = 0;
};

weir_status refusing_alloc(void* user, const weir_alloc_info* info, void** out) {
  auto& refusal = *static_cast<Refusal*>(user);
  if (refusal.n++ == refusal.refuse_at) return WEIR_ERR_OUT_OF_MEMORY;
  *out = std::malloc(info->bytes);
  return *out != nullptr ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

weir_status matching_free(void*, const weir_alloc_info* info) {
  std::free(info->ptr);
  return WEIR_OK;
}

void gguf_open__survives_each_refused_allocation(void**) {
  const TemporaryFile temporary(everything().build());
  int n_refused = 0;
  for (bool done = false; !done; ++n_refused) {
    Refusal refusal{n_refused, 0};
    HostMemory memory({refusing_alloc, matching_free, &refusal});
    GgufFile file(&memory);
    try {
      assert_true(file.open(temporary.path).ok());
      done = true;
    } catch (const std::bad_alloc&) {
      assert_true(file.values().empty() && file.tensors().empty() && file.file_bytes() == 0);
      assert_int_equal(memory.bytes(), 0);
    }
  }
  assert_in_range(n_refused - 1, 4, 64);  // values, tensors and two indices at least
}

struct Progress {
  std::vector<uint64_t> done;
  uint64_t total = 0;
  size_t stop_after = SIZE_MAX;
};

weir_status note_progress(void* user, const weir_progress_info* info) {
  auto& progress = *static_cast<Progress*>(user);
  assert_int_equal(info->struct_size, sizeof(weir_progress_info));
  progress.done.push_back(info->done);
  progress.total = info->total;
  return progress.done.size() > progress.stop_after ? WEIR_ERR_STATE : WEIR_OK;
}

void gguf_prefetch__reports_and_can_be_cancelled(void**) {
  constexpr uint64_t kStep = uint64_t{16} << 20;
  GgufWriter w;
  w.add_tensor("big", {kStep * 2 / 4 + 10}, kF32Id, Bytes(kStep * 2 + 40, 0));
  const TemporaryFile temporary(w.build());
  GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.open(temporary.path).ok());
  assert_true(file.prefetch(nullptr, nullptr).ok());
  Progress all;
  assert_true(file.prefetch(note_progress, &all).ok());
  assert_true(all.total == file.file_bytes());
  assert_true((all.done == std::vector<uint64_t>{0, kStep, 2 * kStep, file.file_bytes()}));
  Progress stopped;
  stopped.stop_after = 1;
  assert_fails(file.prefetch(note_progress, &stopped), WEIR_ERR_CANCELLED, "cancelled");
  assert_int_equal(stopped.done.size(), 2);
}

// ---- the embedded model ----

void gguf_open__reads_the_tiny_reasoner(void**) {
  GgufFile file(std::pmr::new_delete_resource());
  const Status status = file.open(WEIR_SOURCE_DIR "/samples/models/weir-tiny-reasoner-q8_0.gguf");
  if (!status.ok()) fail_msg("%s", last_error_text());
  assert_int_equal(file.version(), 3);
  assert_int_equal(file.file_bytes(), 14122368);
  std::string_view text;
  assert_true(file.get_string("general.architecture", text).ok() && text == "llama");
  uint32_t number = 0;
  assert_true(file.get_u32("llama.block_count", number).ok() && number == 8);
  assert_true(file.get_u32("llama.attention.head_count_kv", number).ok() && number == 2);
  const GgufValue* tokens = nullptr;
  assert_true(file.get_array("tokenizer.ggml.tokens", GgufType::kString, true, tokens).ok() && tokens->count == 1664);
  assert_int_equal(file.tensors().size(), 2 + 8 * 9);
  const GgufTensor* down = file.find_tensor("blk.7.ffn_down.weight");
  assert_true(down != nullptr && down->dims[0] == 384 && down->dims[1] == 1024);
  assert_string_equal(down->type_name, "q8_0");
  assert_int_equal(down->bytes, 384 * 1024 / 32 * 34);
}

// ---- tables ----

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
      cmocka_unit_test(gguf_open__maps_a_file_and_frees_everything),
      cmocka_unit_test(gguf_open__names_path_and_reason),
      cmocka_unit_test(gguf_open__does_not_wait_for_a_pipe),
      cmocka_unit_test(gguf_open__long_path_keeps_the_reason),
      cmocka_unit_test(gguf_open__survives_each_refused_allocation),
      cmocka_unit_test(gguf_prefetch__reports_and_can_be_cancelled),
      cmocka_unit_test(gguf_open__reads_the_tiny_reasoner),
      cmocka_unit_test(gguf__names_and_sizes_of_value_types),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
