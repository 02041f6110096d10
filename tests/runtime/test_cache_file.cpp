// runtime: files of compiled pipelines. Only a whole file of the same key, in a folder and with an owner that nobody
// else can write as, is read; whatever happens while one is written, the file is the old or the new one.
#include "runtime/cache_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/cmocka_cpp.h"

using namespace weir;

namespace {

constexpr char kName[] = "test.pipelines";
constexpr size_t kHeader = 72;

// A folder that is removed at the end.
class Folder {
 public:
  Folder() {
    char path[] = "/tmp/weir-cache-XXXXXX";
    assert_non_null(mkdtemp(path));
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }
  std::string file() const { return path_ + "/" + kName; }
  size_t n_files() const { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {})); }

 private:
  std::string path_;
};

CacheKey key() {
  CacheKey k;
  k.vendor = 0x10DE;
  k.device = 0x2330;
  k.driver = 7;
  std::memset(k.uuid, 3, sizeof(k.uuid));
  k.code = 99;
  return k;
}

using Bytes = std::vector<unsigned char>;

Bytes content(size_t n, unsigned char first = 1) {
  Bytes bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<unsigned char>(first + i * 7);
  return bytes;
}

weir_status put(const std::string& folder, const Bytes& bytes, const CacheKey& k = key()) {
  return write_cache_file(folder.c_str(), kName, k, bytes.data(), bytes.size()).code();
}

weir_status get(const std::string& folder, Bytes& out, const CacheKey& k = key()) {
  CacheBytes bytes;
  const Status status = read_cache_file(folder.c_str(), kName, k, bytes);
  if (!status.ok()) assert_int_equal(bytes.size(), 0);
  const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
  out.assign(data, data + bytes.size());
  return status.code();
}

Bytes file_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(in), {});
}

void set_file(const std::string& path, const Bytes& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

mode_t mode_of(const std::string& path) {
  struct stat s;
  assert_int_equal(lstat(path.c_str(), &s), 0);
  return s.st_mode & 07777;
}

// The file is refused with this code, the folder's name and this text, and left alone.
void expect_refused(const Folder& f, weir_status code, const char* text, const CacheKey& k = key()) {
  Bytes got;
  const weir_status status = get(f.path(), got, k);
  if (status != code) fail_msg("status %d: %s", status, last_error_text());
  if (std::strstr(last_error_text(), text) == nullptr || std::strstr(last_error_text(), kName) == nullptr)
    fail_msg("no \"%s\" in: %s", text, last_error_text());
}

void cache_file__gives_what_was_written(void**) {
  const Folder f;
  const std::string folder = f.path() + "/made/anew";
  Bytes got = content(5);
  assert_int_equal(get(folder, got), WEIR_OK);  // there is none
  assert_true(got.empty());
  const mode_t before = umask(0);
  for (const size_t n : {size_t{1}, size_t{32}, size_t{100'000}}) {
    assert_int_equal(put(folder, content(n)), WEIR_OK);
    assert_int_equal(get(folder, got), WEIR_OK);
    assert_true(got == content(n));
  }
  umask(before);
  assert_int_equal(mode_of(f.path() + "/made"), 0700);
  assert_int_equal(mode_of(folder), 0700);
  assert_int_equal(mode_of(folder + "/" + kName), 0600);
  assert_int_equal(std::distance(std::filesystem::directory_iterator(folder), {}), 1);  // nothing is left behind
}

void cache_file__of_another_driver_is_not_read(void**) {
  const Folder f;
  assert_int_equal(put(f.path(), content(64)), WEIR_OK);
  for (uint32_t i = 0; i < 5; ++i) {
    CacheKey k = key();
    if (i == 0) ++k.vendor;
    if (i == 1) ++k.device;
    if (i == 2) ++k.driver;
    if (i == 3) k.uuid[15] = 4;
    if (i == 4) ++k.code;
    expect_refused(f, WEIR_ERR_NOT_FOUND, "another driver", k);
    Bytes got;
    const Folder other;
    assert_int_equal(put(other.path(), content(64), k), WEIR_OK);
    assert_int_equal(get(other.path(), got, k), WEIR_OK);
  }
}

void cache_file__that_is_not_whole_is_not_read(void**) {
  const Folder f;
  assert_int_equal(put(f.path(), content(300)), WEIR_OK);
  const Bytes whole = file_of(f.file());
  assert_int_equal(whole.size(), kHeader + 300);
  for (size_t n = 0; n < whole.size(); n += n < kHeader + 2 ? 1 : 37) {  // cut
    set_file(f.file(), Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)));
    expect_refused(f, WEIR_ERR_FORMAT, n < kHeader ? "no such file" : "not whole");
  }
  Bytes longer = whole;
  longer.push_back(0);
  set_file(f.file(), longer);
  expect_refused(f, WEIR_ERR_FORMAT, "not whole");
  for (size_t i = 0; i < whole.size(); ++i) {  // one bit
    Bytes changed = whole;
    changed[i] ^= static_cast<unsigned char>(1u << i % 8);
    set_file(f.file(), changed);
    Bytes got;
    const weir_status status = get(f.path(), got);
    const bool is_key = i >= 24 && i < 64, is_version = i >= 8 && i < 16;
    if (status != (is_key || is_version ? WEIR_ERR_NOT_FOUND : WEIR_ERR_FORMAT))
      fail_msg("byte %zu: status %d, %s", i, status, last_error_text());
  }
  assert_int_equal(put(f.path(), content(20)), WEIR_OK);  // written anew
  Bytes got;
  assert_int_equal(get(f.path(), got), WEIR_OK);
  assert_true(got == content(20));
  // Larger than any: nothing is taken for it.
  assert_int_equal(truncate(f.file().c_str(), static_cast<off_t>(kMaxCacheBytes + kHeader + 1)), 0);
  expect_refused(f, WEIR_ERR_FORMAT, "no such file");
  Bytes nothing;
  assert_int_equal(put(f.path(), nothing), WEIR_ERR_IO);
  assert_int_equal(write_cache_file(f.path().c_str(), kName, key(), &got, kMaxCacheBytes + 1).code(), WEIR_ERR_IO);
}

void cache_file__that_others_may_write_is_not_read(void**) {
  const Folder f;
  assert_int_equal(put(f.path(), content(10)), WEIR_OK);
  for (const mode_t mode : {mode_t{0620}, mode_t{0602}, mode_t{0666}}) {
    assert_int_equal(chmod(f.file().c_str(), mode), 0);
    expect_refused(f, WEIR_ERR_IO, "others may write it");
  }
  assert_int_equal(chmod(f.file().c_str(), 0644), 0);  // they may read it
  Bytes got;
  assert_int_equal(get(f.path(), got), WEIR_OK);
  for (const mode_t mode : {mode_t{0770}, mode_t{0707}, mode_t{01777}}) {
    assert_int_equal(chmod(f.path().c_str(), mode), 0);
    expect_refused(f, WEIR_ERR_IO, "others may write to its folder");
    assert_int_equal(put(f.path(), content(11)), WEIR_ERR_IO);
  }
  assert_int_equal(chmod(f.path().c_str(), 0755), 0);
  assert_int_equal(get(f.path(), got), WEIR_OK);
  assert_true(got == content(10));
}

void cache_file__of_another_user_is_not_read(void**) {
  if (geteuid() != 0) skip();  // nobody else can give a file away
  const Folder f;
  assert_int_equal(put(f.path(), content(10)), WEIR_OK);
  assert_int_equal(chown(f.file().c_str(), 65534, 65534), 0);
  expect_refused(f, WEIR_ERR_IO, "belongs to another user");
  assert_int_equal(chown(f.file().c_str(), 0, 0), 0);
  assert_int_equal(chown(f.path().c_str(), 65534, 65534), 0);
  expect_refused(f, WEIR_ERR_IO, "folder belongs to another user");
  assert_int_equal(put(f.path(), content(10)), WEIR_ERR_IO);
}

void cache_file__is_no_link_and_waits_for_nothing(void**) {
  const Folder f, elsewhere;
  Bytes got;
  assert_int_equal(put(elsewhere.path(), content(10)), WEIR_OK);
  const Bytes before = file_of(elsewhere.file());
  assert_int_equal(symlink(elsewhere.file().c_str(), f.file().c_str()), 0);
  expect_refused(f, WEIR_ERR_IO, "is a link");
  assert_int_equal(put(f.path(), content(20)), WEIR_OK);  // takes the link's place
  assert_true(file_of(elsewhere.file()) == before);
  assert_int_equal(get(f.path(), got), WEIR_OK);
  assert_true(got == content(20));

  assert_int_equal(unlink(f.file().c_str()), 0);
  assert_int_equal(mkfifo(f.file().c_str(), 0600), 0);
  expect_refused(f, WEIR_ERR_IO, "no regular file");
  assert_int_equal(unlink(f.file().c_str()), 0);
  assert_int_equal(mkdir(f.file().c_str(), 0700), 0);
  expect_refused(f, WEIR_ERR_IO, "no regular file");
  assert_int_equal(put(f.path(), content(20)), WEIR_ERR_IO);
  assert_int_equal(f.n_files(), 1);  // no part of a new one
}

// What it leads to counts, as if it had been named itself.
void cache_file__in_a_folder_that_is_a_link(void**) {
  const Folder f, elsewhere;
  Bytes got;
  const std::string link = f.path() + "/folder", to = elsewhere.path() + "/made";
  assert_int_equal(symlink(to.c_str(), link.c_str()), 0);
  assert_int_equal(get(link, got), WEIR_OK);  // there is nothing
  assert_true(got.empty());
  assert_int_equal(put(link, content(30)), WEIR_ERR_IO);  // nor is it made elsewhere
  assert_int_equal(mkdir(to.c_str(), 0700), 0);
  assert_int_equal(put(link, content(30)), WEIR_OK);
  assert_int_equal(get(to, got), WEIR_OK);
  assert_true(got == content(30));
  assert_int_equal(get(link, got), WEIR_OK);
  assert_true(got == content(30));
  assert_int_equal(chmod(to.c_str(), 0777), 0);
  assert_int_equal(get(link, got), WEIR_ERR_IO);
  assert_non_null(std::strstr(last_error_text(), "others may write to its folder"));
  assert_int_equal(put(link, content(31)), WEIR_ERR_IO);
  assert_int_equal(chmod(to.c_str(), 0700), 0);
  if (geteuid() != 0) return;  // nobody else can give a link away
  assert_int_equal(lchown(link.c_str(), 65534, 65534), 0);
  assert_int_equal(get(link, got), WEIR_ERR_IO);
  assert_non_null(std::strstr(last_error_text(), "a link of another user"));
  assert_int_equal(put(link, content(31)), WEIR_ERR_IO);
  assert_int_equal(get(to, got), WEIR_OK);
  assert_true(got == content(30));
}

// The process's limit of file sizes stands for a full disk.
void cache_file__that_cannot_be_written_stays_as_it_was(void**) {
  const Folder f;
  assert_int_equal(put(f.path(), content(100)), WEIR_OK);
  rlimit limit, small;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  small = limit;
  small.rlim_cur = 4096;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  const weir_status status = put(f.path(), content(10'000));
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  assert_int_equal(status, WEIR_ERR_IO);
  assert_non_null(std::strstr(last_error_text(), "writing it"));
  Bytes got;
  assert_int_equal(get(f.path(), got), WEIR_OK);
  assert_true(got == content(100));
  assert_int_equal(f.n_files(), 1);
  // A file in the folder's place.
  assert_int_equal(put(f.file(), content(10)), WEIR_ERR_IO);
  assert_int_equal(put(f.file() + "/below", content(10)), WEIR_ERR_IO);
  assert_int_equal(get(f.file(), got), WEIR_ERR_IO);
  assert_int_equal(put(std::string(2000, 'x'), content(10)), WEIR_ERR_IO);
}

// Each file is one that some process wrote.
void cache_file__may_be_written_by_many_processes(void**) {
  constexpr int kProcesses = 6, kRounds = 60;
  constexpr size_t kBytes = 200'000;
  const Folder f;
  const std::string folder = f.path() + "/new";
  std::fflush(nullptr);
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child != 0) continue;
    int wrong = 0;
    for (int i = 0; i < kRounds; ++i) {
      CacheBytes bytes;
      const Bytes mine = content(kBytes + static_cast<size_t>(p), static_cast<unsigned char>(p));
      if (!write_cache_file(folder.c_str(), kName, key(), mine.data(), mine.size()).ok()) wrong |= 1;
      if (!read_cache_file(folder.c_str(), kName, key(), bytes).ok()) wrong |= 2;
      const Bytes theirs =
          bytes.size() < kBytes ? Bytes() : content(bytes.size(), static_cast<unsigned char>(bytes.size() - kBytes));
      if (theirs.empty() || std::memcmp(bytes.data(), theirs.data(), theirs.size()) != 0) wrong |= 4;
    }
    _exit(wrong);
  }
  for (int p = 0; p < kProcesses; ++p) {
    int status = 0;
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
  }
  assert_int_equal(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(cache_file__gives_what_was_written),
      cmocka_unit_test(cache_file__of_another_driver_is_not_read),
      cmocka_unit_test(cache_file__that_is_not_whole_is_not_read),
      cmocka_unit_test(cache_file__that_others_may_write_is_not_read),
      cmocka_unit_test(cache_file__of_another_user_is_not_read),
      cmocka_unit_test(cache_file__is_no_link_and_waits_for_nothing),
      cmocka_unit_test(cache_file__in_a_folder_that_is_a_link),
      cmocka_unit_test(cache_file__that_cannot_be_written_stays_as_it_was),
      cmocka_unit_test(cache_file__may_be_written_by_many_processes),
  };
  return cmocka_run_group_tests_name("runtime/cache_file", tests, nullptr, nullptr);
}
