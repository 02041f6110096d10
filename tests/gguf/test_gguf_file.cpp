// gguf: files on disk: mapping, I/O errors, refused allocations, reading ahead, and the embedded model. Mirrors
// lib/gguf.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

#include "core/memory.h"
#include "gguf/file_bytes.h"
#include "tests/gguf/gguf_test.h"

using namespace weir;
using namespace weir_test;

namespace {

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
  OpenProgress nobody;
  assert_true(file.prefetch(nobody).ok());
  Progress all;
  OpenProgress told(note_progress, &all);
  assert_true(file.prefetch(told).ok());
  assert_true(all.total == file.file_bytes());
  assert_true((all.done == std::vector<uint64_t>{0, kStep, 2 * kStep, file.file_bytes()}));
  Progress stopped;
  stopped.stop_after = 1;
  OpenProgress refused(note_progress, &stopped);
  assert_fails(file.prefetch(refused), WEIR_ERR_CANCELLED, "cancelled");
  assert_int_equal(stopped.done.size(), 2);
}

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
  assert_true(file.get_array("tokenizer.ggml.tokens", GgufArray::kStrings, true, tokens).ok() && tokens->count == 1664);
  assert_int_equal(file.tensors().size(), 2 + 8 * 9);
  const GgufTensor* down = file.find_tensor("blk.7.ffn_down.weight");
  assert_true(down != nullptr && down->dims[0] == 384 && down->dims[1] == 1024);
  assert_string_equal(down->type_name, "q8_0");
  assert_int_equal(down->bytes, 384 * 1024 / 32 * 34);
}

// What was copied is nobody else's: the file may be cut afterwards, which would fault in a mapping.
void gguf_file__copies_outlive_the_file(void**) {
  Bytes bytes(3 * 4096 + 5);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7);
  const TemporaryFile temporary(bytes);
  FileBytes copy;
  assert_true(copy.copy(temporary.path, bytes.size()).ok());
  assert_int_equal(truncate(temporary.path, 0), 0);
  assert_int_equal(copy.bytes().size(), bytes.size());
  assert_memory_equal(copy.bytes().data(), bytes.data(), bytes.size());
  assert_fails(copy.copy(temporary.path, 100), WEIR_ERR_IO, "the file is empty");
  assert_true(copy.bytes().empty());
  const TemporaryFile again(bytes);
  assert_fails(copy.copy(again.path, bytes.size() - 1), WEIR_ERR_IO, "12293 bytes, at most 12292");
  assert_fails(copy.copy(".", 100), WEIR_ERR_IO, ".: cannot be read: Is a directory");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(gguf_open__maps_a_file_and_frees_everything),
      cmocka_unit_test(gguf_open__names_path_and_reason),
      cmocka_unit_test(gguf_open__does_not_wait_for_a_pipe),
      cmocka_unit_test(gguf_open__long_path_keeps_the_reason),
      cmocka_unit_test(gguf_open__survives_each_refused_allocation),
      cmocka_unit_test(gguf_prefetch__reports_and_can_be_cancelled),
      cmocka_unit_test(gguf_open__reads_the_tiny_reasoner),
      cmocka_unit_test(gguf_file__copies_outlive_the_file),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
