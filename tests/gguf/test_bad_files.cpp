// gguf: files that must be refused, tests/golden/bad_gguf. expected.txt there has one line per file: name, status, and
// a text that the message must contain. make_bad.py in the same folder says what is wrong with each.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/memory.h"
#include "gguf/gguf.h"
#include "tests/cmocka_cpp.h"
#include "weir/base.h"

using namespace weir;

namespace {

const std::string kFolder = WEIR_SOURCE_DIR "/tests/golden/bad_gguf/";

struct Expected {
  std::string file, status, part;
};

std::vector<Expected> read_expected(const std::string& folder) {
  std::ifstream in(folder + "expected.txt");
  std::vector<Expected> out;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    Expected e;
    assert_true(static_cast<bool>(words >> e.file >> e.status) && words.get() == ' ');
    std::getline(words, e.part);
    assert_false(e.part.empty());
    out.push_back(e);
  }
  return out;
}

weir_status status_of(const std::string& name) {
  if (name == "WEIR_ERR_IO") return WEIR_ERR_IO;
  if (name == "WEIR_ERR_FORMAT") return WEIR_ERR_FORMAT;
  if (name == "WEIR_ERR_UNSUPPORTED") return WEIR_ERR_UNSUPPORTED;
  fail_msg("expected.txt has the status %s", name.c_str());
  return WEIR_OK;
}

void bad_files__list_and_folder_agree(void**) {
  for (const std::string& folder : {kFolder, kFolder + "model/"}) {
    std::set<std::string> listed, present;
    for (const Expected& e : read_expected(folder)) listed.insert(e.file);
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".gguf") present.insert(entry.path().filename().string());
    }
    assert_true(listed == present);
    assert_true(present.size() >= 40);
  }
}

void bad_files__are_refused_with_the_cause(void**) {
  for (const Expected& e : read_expected(kFolder)) {
    HostMemory memory{AllocatorHooks{}};
    GgufFile file(&memory);
    const std::string path = kFolder + e.file;
    const Status status = file.open(path.c_str());
    const std::string message = last_error_text();
    if (status.code() != status_of(e.status) || message.find(e.part) == std::string::npos) {
      fail_msg("%s: status %d, \"%s\"; expected %s, \"%s\"", e.file.c_str(), status.code(), message.c_str(),
               e.status.c_str(), e.part.c_str());
    }
    assert_true(message.find(path) == 0);
    assert_true(file.values().empty() && file.tensors().empty() && file.file_bytes() == 0);
    assert_int_equal(memory.bytes(), 0);
    // What a tiny file makes the reader allocate is tiny too.
    assert_true(memory.peak_bytes() < 64 * 1024);
  }
}

// The same bytes in a heap block of exactly their size, so that AddressSanitizer detects a read beyond the end.
void bad_files__are_refused_without_reading_beyond_them(void**) {
  for (const Expected& e : read_expected(kFolder)) {
    std::ifstream in(kFolder + e.file, std::ios::binary);
    const std::vector<char> data((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const auto bytes = std::make_unique<uint8_t[]>(data.size());
    std::copy(data.begin(), data.end(), bytes.get());
    GgufFile file(std::pmr::new_delete_resource());
    const weir_status code = file.parse({bytes.get(), data.size()}).code();
    assert_int_equal(code, data.empty() ? WEIR_ERR_FORMAT : status_of(e.status));
  }
}

// The files for weir_model_open (tests/api/test_bad_files.c) are valid containers with wrong contents.
void bad_files__of_models_are_sound_containers(void**) {
  for (const Expected& e : read_expected(kFolder + "model/")) {
    GgufFile file(std::pmr::new_delete_resource());
    if (!file.open((kFolder + "model/" + e.file).c_str()).ok()) fail_msg("%s", last_error_text());
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(bad_files__list_and_folder_agree),
      cmocka_unit_test(bad_files__are_refused_with_the_cause),
      cmocka_unit_test(bad_files__are_refused_without_reading_beyond_them),
      cmocka_unit_test(bad_files__of_models_are_sound_containers),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
