// vulkan: pipelines that stay between processes, in weir_runtime_options.cache_dir. Each scenario is a process of its
// own. The shim stands for a driver whose cache grows with each pipeline; Mesa's for the processor keeps none.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <thread>

#include "tests/vulkan/shim/shim_test.h"

namespace {
std::function<void(const char* name)> on_file;  // what happens while the file of a cache is opened or gets its name
}  // namespace

// The module's calls of the system come here: the program's functions stand before those of libc.
extern "C" {
int openat(int folder, const char* name, int flags, ...) {
  static const auto real = reinterpret_cast<int (*)(int, const char*, int, ...)>(dlsym(RTLD_NEXT, "openat"));
  va_list args;
  va_start(args, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : mode_t{0};
  va_end(args);
  if (on_file && strstr(name, ".pipelines") != nullptr && (flags & O_CREAT) == 0) on_file(name);
  return real(folder, name, flags, mode);
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  static const auto real = reinterpret_cast<int (*)(int, const char*, int, const char*)>(dlsym(RTLD_NEXT, "renameat"));
  if (on_file) on_file(to);
  return real(from_folder, from, to_folder, to);
}
}

namespace {

using namespace weir::test;

constexpr uint64_t kEach = 5000;

std::string folder;  // of the test that runs
std::vector<std::string> lines;

// The file, "" if there is none.
std::string cache_file() {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) return entry.path();
  return "";
}

uint64_t file_bytes() { return cache_file().empty() ? 0 : std::filesystem::file_size(cache_file()); }

weir_status log_line(void*, const weir_log_info* info) {
  if (std::strstr(info->message, "cache") != nullptr) lines.push_back(info->message);
  return WEIR_OK;
}

struct Runtime {
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  explicit Runtime(const char* cache_dir) {
    weir_runtime_options options = gpu_runtime_options();
    options.cache_dir = cache_dir;
    options.log = log_line;
    options.log_level = WEIR_LOG_INFO;
    assert_ok(weir_runtime_create(&options, &runtime));
    assert_ok(weir_model_open(runtime, kSmallModel, nullptr, &model));
  }
  ~Runtime() {
    weir_model_close(model);
    weir_runtime_destroy(runtime);
  }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  weir_session* session() const {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.device = WEIR_DEVICE_VULKAN;
    options.context_tokens = 256;
    weir_session* session = nullptr;
    assert_ok(weir_session_create(model, &options, &session));
    return session;
  }
  // A conversation, as a user has it.
  void talk() const {
    weir_session* const s = session();
    std::vector<float> logits;
    use(s, logits);
    weir_session_destroy(s);
  }
};

void expect_lines(size_t n, const char* text) {
  if (lines.size() != n) fail_msg("%zu lines: %s", lines.size(), lines.empty() ? "" : lines[0].c_str());
  for (const std::string& line : lines)
    if (line.find(text) == std::string::npos) fail_msg("no \"%s\" in: %s", text, line.c_str());
}

void without(Shim& shim, uint32_t) {
  shim.cache_bytes_per_pipeline = kEach;
  const Runtime r(nullptr);
  r.talk();
  expect_lines(0, "");
  assert_int_equal(shim.n_caches, 0);
  assert_int_equal(file_bytes(), 0);
}

// The file grows with what sessions and prompts need, and holds what the driver gave.
void first(Shim& shim, uint32_t) {
  shim.cache_bytes_per_pipeline = kEach;
  const Runtime r(folder.c_str());
  weir_session* const s = r.session();
  const uint64_t of_session = shim.n_pipelines_made;
  assert_int_equal(file_bytes(), 72 + 32 + kEach * of_session);
  std::vector<float> logits;
  use(s, logits);
  assert_true(shim.n_pipelines_made > of_session);
  assert_int_equal(file_bytes(), 72 + 32 + kEach * shim.n_pipelines_made);
  const auto written = std::filesystem::last_write_time(cache_file());
  use(s, logits);  // makes none
  weir_session_destroy(s);
  r.talk();
  assert_true(std::filesystem::last_write_time(cache_file()) == written);
  assert_int_equal(shim.n_uncached_pipelines, 0);
  assert_int_equal(shim.read_bytes, 0);
  expect_lines(0, "");
}

// The next process gives it to the driver, and writes nothing as long as nothing is new.
void second(Shim& shim, uint32_t) {
  const uint64_t bytes = file_bytes();
  assert_true(bytes > 72);
  shim.cache_bytes_per_pipeline = kEach;
  const Runtime r(folder.c_str());
  const auto written = std::filesystem::last_write_time(cache_file());
  r.talk();
  assert_int_equal(shim.read_bytes, bytes - 72);
  assert_int_equal(shim.read_sum, (bytes - 72) * 0xA5);
  assert_int_equal(shim.n_uncached_pipelines, 0);
  assert_int_equal(file_bytes(), bytes);
  assert_true(std::filesystem::last_write_time(cache_file()) == written);
  expect_lines(0, "");
}

// A file that is not the driver's: one line, and the file is written anew.
void spoilt(Shim& shim, uint32_t) {
  shim.cache_bytes_per_pipeline = kEach;
  const Runtime r(folder.c_str());
  r.talk();
  expect_lines(1, "cache of pipelines");
  assert_int_equal(shim.read_bytes, 0);
  assert_int_equal(shim.n_uncached_pipelines, 0);
  assert_int_equal(file_bytes(), 72 + 32 + kEach * shim.n_pipelines_made);
}

// A folder that cannot be used: one line, however long the process talks.
void refused(Shim& shim, uint32_t) {
  shim.cache_bytes_per_pipeline = kEach;
  const Runtime r(folder.c_str());
  r.talk();
  r.talk();
  expect_lines(1, "cache of pipelines");
}

// Calls of the driver that fail.
void failing(Shim& shim, uint32_t number) {
  constexpr struct {
    Call call;
    uint64_t n_lines;
  } kCalls[] = {{Call::vkCreatePipelineCache, 1}, {Call::vkGetPipelineCacheData, 1}};
  if (number == std::size(kCalls)) no_more();
  shim.cache_bytes_per_pipeline = kEach;
  shim.fail_at(kCalls[number].call, 1, VK_ERROR_OUT_OF_HOST_MEMORY);
  const Runtime r(folder.c_str());
  r.talk();
  assert_int_equal(shim.n_failed, 1);
  expect_lines(kCalls[number].n_lines, "VK_ERROR_OUT_OF_HOST_MEMORY");
  assert_int_equal(file_bytes(), 0);
}

// Two runtimes with folders of their own: what the first one's had is in the second one's, too.
void two_folders(Shim& shim, uint32_t) {
  shim.cache_bytes_per_pipeline = kEach;
  const std::string one = folder + "/one", two = folder + "/two";
  {
    const Runtime r(one.c_str());
    r.talk();
  }
  const Runtime r(two.c_str());
  r.talk();
  expect_lines(0, "");
  for (const std::string& each : {one, two}) {
    folder = each;
    assert_int_equal(file_bytes(), 72 + 32 + kEach * shim.n_pipelines_made);
  }
}

// While a file is written, or one of another folder read, other threads use the device.
void others_go_on(Shim& shim, uint32_t) {
  shim.cache_bytes_per_pipeline = kEach;
  const std::string one = folder + "/one", two = folder + "/two";
  const Runtime a(one.c_str());
  weir_session *const s = a.session(), *const other = a.session();
  uint32_t n_times = 0, n_waited = 0;
  on_file = [&](const char*) {
    std::packaged_task<void()> steps([&] {
      std::vector<float> logits;
      use(other, logits);
    });
    std::future<void> done = steps.get_future();
    std::thread(std::move(steps)).detach();
    ++n_times;
    if (done.wait_for(std::chrono::seconds(20)) != std::future_status::ready) ++n_waited;
  };
  std::vector<float> logits;
  use(s, logits);  // makes pipelines, and writes
  assert_true(n_times == 1 && n_waited == 0);
  assert_int_equal(mkdir(two.c_str(), 0700), 0);
  const Runtime b(two.c_str());
  weir_session* const t = b.session();  // reads and writes
  on_file = nullptr;
  assert_true(n_times == 3 && n_waited == 0);
  expect_lines(0, "");
  for (const std::string& each : {one, two}) {
    folder = each;
    assert_int_equal(file_bytes(), 72 + 32 + kEach * shim.n_pipelines_made);
  }
  for (weir_session* session : {s, other, t}) weir_session_destroy(session);
}

// What the real driver gives.
void real(Shim& shim, uint32_t) {
  const Runtime r(folder.c_str());
  r.talk();
  assert_int_equal(shim.n_uncached_pipelines, 0);
  expect_lines(0, "");
}

class TestFolder {
 public:
  TestFolder() {
    char path[] = "/tmp/weir-pipelines-XXXXXX";
    assert_non_null(mkdtemp(path));
    top_ = path;
    folder = top_ + "/cache/weir";
  }
  ~TestFolder() { std::filesystem::remove_all(top_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

 private:
  std::string top_;
};

void pipeline_cache__is_written_and_read_by_the_next_process(void**) {
  NEED_SHIM();
  const TestFolder f;
  IN_CHILD(without);
  IN_CHILD(first);
  IN_CHILD(second);
  struct stat s;
  assert_int_equal(stat(cache_file().c_str(), &s), 0);
  assert_int_equal(s.st_mode & 07777, 0600);
  assert_int_equal(stat(folder.c_str(), &s), 0);
  assert_int_equal(s.st_mode & 07777, 0700);
}

void pipeline_cache__that_is_spoilt_is_written_anew(void**) {
  NEED_SHIM();
  const TestFolder f;
  IN_CHILD(first);
  const std::string path = cache_file();
  std::filesystem::resize_file(path, 1000);
  IN_CHILD(spoilt);
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(32).put('\x7F');  // the driver's version
  IN_CHILD(spoilt);
  IN_CHILD(second);
}

void pipeline_cache__that_cannot_be_kept_costs_a_line(void**) {
  NEED_SHIM();
  const TestFolder f;
  std::filesystem::create_directories(folder);
  assert_int_equal(chmod(folder.c_str(), 0777), 0);
  IN_CHILD(refused);
  std::filesystem::remove_all(folder);
  std::ofstream(folder) << "no folder";
  IN_CHILD(refused);
}

void pipeline_cache__calls_that_fail(void**) {
  NEED_SHIM();
  const TestFolder f;
  for (uint32_t i = 0; IN_CHILD(failing, i) != kNoMore; ++i) {
  }
}

void pipeline_cache__in_two_folders(void**) {
  NEED_SHIM();
  const TestFolder f;
  IN_CHILD(two_folders);
}

void pipeline_cache__others_go_on_meanwhile(void**) {
  NEED_SHIM();
  const TestFolder f;
  IN_CHILD(others_go_on);
}

void pipeline_cache__of_the_real_driver(void**) {
  NEED_SHIM();
  const TestFolder f;
  IN_CHILD(real);
  IN_CHILD(real);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(pipeline_cache__is_written_and_read_by_the_next_process),
      cmocka_unit_test(pipeline_cache__that_is_spoilt_is_written_anew),
      cmocka_unit_test(pipeline_cache__that_cannot_be_kept_costs_a_line),
      cmocka_unit_test(pipeline_cache__calls_that_fail),
      cmocka_unit_test(pipeline_cache__in_two_folders),
      cmocka_unit_test(pipeline_cache__others_go_on_meanwhile),
      cmocka_unit_test(pipeline_cache__of_the_real_driver),
  };
  return cmocka_run_group_tests_name("vulkan/pipeline_cache", tests, nullptr, nullptr);
}
