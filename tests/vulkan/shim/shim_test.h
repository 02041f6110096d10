// Tests of devices that the shim shows and of calls that it lets fail. Each scenario runs in a child process, because a
// process has one Vulkan device, and none after it was lost.
#pragma once

#include <dlfcn.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/device/device_test.h"
#include "tests/vulkan/shim/shim.h"

namespace weir::test {

inline constexpr char kSmallModel[] = WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf";

// A scenario that ends with this says that its fault came after everything that it does.
inline constexpr int kNoMore = 99;

// The folder of this program.
inline std::string program_folder() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (n <= 0) return ".";
  path[n] = '\0';
  return std::string(path).substr(0, std::string(path).rfind('/'));
}

// Where the real loader is, "" if there is none. It is asked for in a process of its own: once it is loaded, the shim
// does not get its name any more.
inline const std::string& real_loader() {
  static std::string found;
  if (!found.empty()) return found;
  int ends[2];
  if (pipe(ends) != 0) return found;
  const pid_t child = fork();
  if (child == 0) {
    void* const library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    link_map* map = nullptr;
    if (library != nullptr && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0)
      (void)!write(ends[1], map->l_name, std::strlen(map->l_name));
    _exit(0);
  }
  close(ends[1]);
  char path[4096];
  for (ssize_t n = 0; child > 0 && (n = read(ends[0], path, sizeof(path))) > 0;)
    found.append(path, static_cast<size_t>(n));
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return found;
}

// For programs of tests/vulkan and of the folders beside it.
inline std::string shim_path() { return program_folder() + "/../vulkan/shim/libvulkan.so.1"; }

// Loads the shim, which the module then gets as libvulkan.so.1. Null: dlerror() says why.
inline Shim* open_shim() {
  void* const library = dlopen(shim_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto get = library == nullptr ? nullptr : reinterpret_cast<shim_fn>(dlsym(library, kShimSymbol));
  if (get == nullptr) return nullptr;
  Shim* const shim = get();
  shim->loader = real_loader().c_str();
  shim->base = getenv("WEIR_TEST_VULKAN_DEVICE");
  return shim;
}

#define NEED_SHIM()                                                            \
  do {                                                                         \
    if (real_loader().empty() || access(shim_path().c_str(), R_OK) != 0) {     \
      print_message("skipped: there is no Vulkan loader, or no shim of it\n"); \
      skip();                                                                  \
    }                                                                          \
  } while (0)

using Scenario = void (*)(Shim& shim, uint32_t n);

struct ScenarioCall {
  Scenario scenario;
  uint32_t n;
};

inline void run_scenario(void** state) {
  const auto& call = *static_cast<const ScenarioCall*>(*state);
  Shim* const shim = open_shim();
  if (shim == nullptr) fail_msg("%s", dlerror());
  call.scenario(*shim, call.n);
}

// Ends the scenario.
[[noreturn]] inline void no_more() { _exit(kNoMore); }

// Runs a scenario in a child: 0, or kNoMore. Anything else fails the test.
inline int in_child(const char* name, Scenario scenario, uint32_t n = 0) {
  (void)real_loader();
  std::fflush(nullptr);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    alarm(100);
    cmocka_set_test_filter(nullptr);
    if (std::freopen("/dev/null", "w", stdout) == nullptr) _exit(1);  // failures go to stderr
    ScenarioCall call = {scenario, n};
    const CMUnitTest tests[] = {{name, run_scenario, nullptr, nullptr, &call}};
    const int failed = cmocka_run_group_tests_name(name, tests, nullptr, nullptr);
    std::fflush(nullptr);
    _exit(failed);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (WIFSIGNALED(status)) fail_msg("%s with %u: signal %d", name, n, WTERMSIG(status));
  if (code != 0 && code != kNoMore) fail_msg("%s with %u failed", name, n);
  return code;
}

#define IN_CHILD(scenario, ...) in_child(#scenario, scenario __VA_OPT__(, ) __VA_ARGS__)

// A runtime with a model, as an application has it.
struct Opened {
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;

  explicit Opened(const char* device = nullptr, const char* path = kSmallModel) {
    weir_runtime_options options = gpu_runtime_options();
    options.vulkan_device = device;
    assert_ok(weir_runtime_create(&options, &runtime));
    assert_ok(weir_model_open(runtime, path, nullptr, &model));
  }
  ~Opened() {
    weir_model_close(model);
    weir_runtime_destroy(runtime);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  weir_status create(weir_session** out, int32_t device = WEIR_DEVICE_VULKAN, uint32_t context = 256) const {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.device = device;
    options.context_tokens = context;
    *out = nullptr;
    return weir_session_create(model, &options, out);
  }
};

inline void expect_text(const char* text) {
  if (std::strstr(weir_last_error(), text) == nullptr) fail_msg("no \"%s\" in: %s", text, weir_last_error());
}

// A session on the device `wanted` fails so.
inline void expect_refused(const char* wanted, weir_status code, const char* text, const char* text2 = "") {
  const Opened o(wanted);
  weir_session* session = nullptr;
  const weir_status status = o.create(&session);
  if (status != code) fail_msg("got %s: %s", weir_status_name(status), status == WEIR_OK ? "" : weir_last_error());
  assert_null(session);
  expect_text(text);
  expect_text(text2);
}

inline constexpr weir_token kPrompt[20] = {5, 17, 29, 41, 53, 65, 77, 89, 101, 113,
                                           7, 19, 31, 43, 55, 67, 79, 91, 103, 115};

// A prompt and a step, the logits of which are `out`.
inline void use(weir_session* session, std::vector<float>& out) {
  const float* logits = nullptr;
  uint32_t n = 0;
  assert_ok(weir_session_prefill(session, kPrompt, std::size(kPrompt), nullptr, nullptr));
  assert_ok(weir_session_step(session, 9));
  assert_ok(weir_session_logits(session, &logits, &n));
  out.assign(logits, logits + n);
}

// A session there computes what one on the CPU computes.
inline void expect_works(const char* wanted) {
  const Opened o(wanted);
  std::vector<float> got, want;
  for (const int32_t device : {WEIR_DEVICE_VULKAN, WEIR_DEVICE_CPU}) {
    weir_session* session = nullptr;
    assert_ok(o.create(&session, device));
    use(session, device == WEIR_DEVICE_CPU ? want : got);
    weir_session_destroy(session);
  }
  assert_int_equal(got.size(), want.size());
  const double apart = logits_apart(got.data(), want.data(), static_cast<uint32_t>(got.size()));
  if (!(apart < 0.05)) fail_msg("the logits are %g apart", apart);
}

// Nothing of Vulkan is left but the instance.
inline void expect_closed(const Shim& shim) {
  assert_int_equal(shim.n_open_devices, 0);
  assert_int_equal(shim.n_buffers, 0);
  assert_int_equal(shim.n_memories, 0);
  assert_int_equal(shim.n_shaders, 0);
  assert_int_equal(shim.n_layouts, 0);
  assert_int_equal(shim.n_pipelines, 0);
  assert_int_equal(shim.n_caches, 0);
  assert_int_equal(shim.n_pools, 0);
  assert_int_equal(shim.n_command_buffers, 0);
  assert_int_equal(shim.n_fences, 0);
  assert_int_equal(shim.n_released_busy, 0);
}

// What sessions and models take.
struct Taken {
  int64_t buffers, memories, bytes, shaders, command_buffers;
  explicit Taken(const Shim& s)
      : buffers(s.n_buffers),
        memories(s.n_memories),
        bytes(s.memory_bytes),
        shaders(s.n_shaders),
        command_buffers(s.n_command_buffers) {}
};

inline void expect_same(const Taken& now, const Taken& before) {
  assert_int_equal(now.buffers, before.buffers);
  assert_int_equal(now.memories, before.memories);
  assert_int_equal(now.bytes, before.bytes);
  assert_int_equal(now.shaders, before.shaders);
  assert_int_equal(now.command_buffers, before.command_buffers);
}

}  // namespace weir::test
