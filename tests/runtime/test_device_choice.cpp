// runtime: the list of devices, and which one WEIR_DEVICE_AUTO takes, without a device: both backends are
// host_module.cpp, which shows what a test wants.
#include "runtime/device_choice.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "host_models.h"
#include "policy/policy.h"
#include "tests/policy/head_file.h"

using namespace weir;

namespace {

constexpr char kModel[] = WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf";
constexpr uint64_t kGiB = uint64_t{1} << 30;

// The folders with modules: of CUDA, of Vulkan, with both, with none.
std::filesystem::path g_folder;
std::string cuda() { return host_models::module_folder(); }
std::string vulkan() { return WEIR_HOST_VULKAN; }
std::string both() { return g_folder / "both"; }
std::string none() { return g_folder / "none"; }

int make_folders(void**) {
  g_folder = std::filesystem::temp_directory_path() / ("weir-choice-" + std::to_string(getpid()));
  std::filesystem::create_directories(both());
  std::filesystem::create_directories(none());
  for (const auto& [folder, name] : {std::pair{cuda(), "libweir_cuda.so"}, {vulkan(), "libweir_vulkan.so"}})
    std::filesystem::create_symlink(std::filesystem::absolute(folder) / name, std::filesystem::path(both()) / name);
  return 0;
}

int remove_folders(void**) {
  std::filesystem::remove_all(g_folder);
  return 0;
}

template <class Function>
Function function_of(const std::string& folder, const char* module, const char* name) {
  void* const handle = dlopen((folder + "/" + module).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) fail_msg("%s", dlerror());
  return reinterpret_cast<Function>(dlsym(handle, name));
}

ListedDevice device(const char* name, DeviceKind kind, uint64_t bytes, const char* why_not = "") {
  ListedDevice d = {};
  std::snprintf(d.name, sizeof(d.name), "%s", name);
  std::snprintf(d.driver, sizeof(d.driver), "none");
  std::snprintf(d.why_not, sizeof(d.why_not), "%s", why_not);
  d.total_bytes = bytes;
  d.kind = kind;
  return d;
}

void show(const std::vector<ListedDevice>& devices) {
  const auto set =
      function_of<void (*)(const ListedDevice*, uint32_t)>(vulkan(), "libweir_vulkan.so", "weir_host_module_show");
  set(devices.data(), static_cast<uint32_t>(devices.size()));
}

const std::vector<ListedDevice> kOneCard = {device("card", DeviceKind::kDiscrete, 8 * kGiB)};

// Every session is refused by a module, for as long as this lives.
struct Refusing {
  explicit Refusing(const char* module)
      : refuse_(function_of<void (*)(bool)>(both(), module, "weir_host_module_refuse")) {
    refuse_(true);
  }
  ~Refusing() { refuse_(false); }
  Refusing(const Refusing&) = delete;
  Refusing& operator=(const Refusing&) = delete;

 private:
  void (*refuse_)(bool);
};

struct Models : host_models::Models {
  explicit Models(const std::string& folder, const char* vulkan_device = nullptr, weir_alloc_fn alloc = nullptr,
                  weir_free_fn free = nullptr)
      : host_models::Models(kModel, options_of(folder.c_str(), vulkan_device, alloc, free)) {}

 private:
  static weir_runtime_options options_of(const char* folder, const char* vulkan_device, weir_alloc_fn alloc,
                                         weir_free_fn free) {
    weir_runtime_options options = host_models::runtime_options(folder);
    options.vulkan_device = vulkan_device;
    options.device_alloc = alloc;
    options.device_free = free;
    return options;
  }
};

weir_session_options options_on(int32_t device, uint32_t flags = 0) {
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.device = device;
  options.flags = flags;
  options.context_tokens = 256;
  return options;
}

// WEIR_DEVICE_* that WEIR_DEVICE_AUTO takes.
int32_t taken(const Models& m, uint32_t flags = 0, const char* policy = nullptr) {
  weir_session_options options = options_on(WEIR_DEVICE_AUTO, flags);
  options.policy = policy;
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  assert_ok(weir_plan(m.model, &options, &plan));
  return plan.device;
}

// A format that a device does not attend is refused by its name, with those that it does, or is for the processor.
void device_choice__formats_of_pages(void**) {
  show(kOneCard);
  const Models m(both());
  for (int32_t format = 0; format < kKvFormats; ++format) {
    weir_session_options options = options_on(WEIR_DEVICE_CUDA);
    options.kv_format = format;
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    const weir_status status = weir_plan(m.model, &options, &plan);
    if (format != WEIR_KV_K4V4) {
      assert_ok(status);
      continue;
    }
    assert_int_equal(status, WEIR_ERR_UNSUPPORTED);
    assert_non_null(std::strstr(weir_last_error(), "attends pages of bf16, q8, k8v4, not of k4v4; WEIR_SESSION_HOST"));
    options.flags = WEIR_SESSION_HOST_ATTENTION;
    assert_ok(weir_plan(m.model, &options, &plan));
    options = options_on(WEIR_DEVICE_AUTO);
    options.kv_format = format;
    assert_ok(weir_plan(m.model, &options, &plan));
    assert_int_equal(plan.device, WEIR_DEVICE_CPU);
  }
}

std::vector<uint32_t> order(const std::vector<ListedDevice>& devices, uint32_t wanted = DeviceHost::kWanted) {
  uint32_t out[kMaxListed];
  const uint32_t n = auto_order(devices.data(), static_cast<uint32_t>(devices.size()), wanted, kGiB, out);
  return {out, out + n};
}

void device_choice__orders_vulkan_devices(void**) {
  std::vector<ListedDevice> devices = {device("llvmpipe", DeviceKind::kCpu, 64 * kGiB),
                                       device("guest", DeviceKind::kVirtual, 64 * kGiB),
                                       device("chip", DeviceKind::kIntegrated, 32 * kGiB),
                                       device("small", DeviceKind::kDiscrete, 4 * kGiB),
                                       device("large", DeviceKind::kDiscrete, 8 * kGiB),
                                       device("twin", DeviceKind::kDiscrete, 8 * kGiB),
                                       device("tiny", DeviceKind::kDiscrete, kGiB),
                                       device("old", DeviceKind::kDiscrete, 9 * kGiB, "Vulkan 1.2"),
                                       device("better chip", DeviceKind::kIntegrated, 48 * kGiB)};
  assert_true(order(devices) == std::vector<uint32_t>({4, 5, 3, 8, 2}));
  // Only the one that is named, a virtual one too; a driver on the processor and what cannot be used never.
  assert_true(order(devices, 2) == std::vector<uint32_t>({2}));
  assert_true(order(devices, 1) == std::vector<uint32_t>({1}));
  for (const uint32_t never : {0u, 6u, 7u}) assert_true(order(devices, never).empty());
  devices[6].total_bytes += 1;  // now the model fits
  assert_true(order(devices, 6) == std::vector<uint32_t>({6}));
  assert_true(order({}).empty());
}

void device_choice__auto_prefers_cuda(void**) {
  show(kOneCard);
  assert_int_equal(taken(Models(both())), WEIR_DEVICE_CUDA);
  assert_int_equal(taken(Models(cuda())), WEIR_DEVICE_CUDA);
  assert_int_equal(taken(Models(vulkan())), WEIR_DEVICE_VULKAN);
  assert_int_equal(taken(Models(none())), WEIR_DEVICE_CPU);
  for (const uint32_t flags : {0u, uint32_t{WEIR_SESSION_HOST_ATTENTION}}) {
    assert_int_equal(taken(Models(both()), flags), WEIR_DEVICE_CUDA);
    assert_int_equal(taken(Models(vulkan()), flags), WEIR_DEVICE_VULKAN);
  }
}

void device_choice__auto_by_kind(void**) {
  const struct {
    DeviceKind kind;
    int32_t plain, named;
  } rows[] = {{DeviceKind::kDiscrete, WEIR_DEVICE_VULKAN, WEIR_DEVICE_VULKAN},
              {DeviceKind::kIntegrated, WEIR_DEVICE_VULKAN, WEIR_DEVICE_VULKAN},
              {DeviceKind::kVirtual, WEIR_DEVICE_CPU, WEIR_DEVICE_VULKAN},
              {DeviceKind::kCpu, WEIR_DEVICE_CPU, WEIR_DEVICE_CPU}};
  for (const auto& row : rows) {
    show({device("it", row.kind, 8 * kGiB)});
    assert_int_equal(taken(Models(vulkan())), row.plain);
    assert_int_equal(taken(Models(vulkan(), "it")), row.named);
    assert_int_equal(taken(Models(vulkan(), "another")), WEIR_DEVICE_CPU);
    // A session that asks for Vulkan takes all of them.
    const Models m(vulkan());
    const weir_session_options options = options_on(WEIR_DEVICE_VULKAN);
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    assert_ok(weir_plan(m.model, &options, &plan));
    assert_int_equal(plan.device, WEIR_DEVICE_VULKAN);
  }
  show({});
  assert_int_equal(taken(Models(vulkan())), WEIR_DEVICE_CPU);
}

weir_status no_memory(void*, const weir_alloc_info*, void**) { return WEIR_ERR_OUT_OF_MEMORY; }
weir_status no_free(void*, const weir_alloc_info*) { return WEIR_OK; }

void device_choice__auto_goes_on_where_a_module_refuses(void**) {
  show(kOneCard);
  {
    const Refusing refusing("libweir_cuda.so");
    assert_int_equal(taken(Models(both())), WEIR_DEVICE_VULKAN);
    assert_int_equal(taken(Models(both(), nullptr, no_memory, no_free)), WEIR_DEVICE_CPU);  // not for Vulkan
    const Refusing both_refuse("libweir_vulkan.so");
    assert_int_equal(taken(Models(both())), WEIR_DEVICE_CPU);
  }
  assert_int_equal(taken(Models(both())), WEIR_DEVICE_CUDA);
  // The next device of the same module: the first has no room for the model.
  show({device("full", DeviceKind::kDiscrete, 1000), device("chip", DeviceKind::kIntegrated, 8 * kGiB)});
  assert_int_equal(taken(Models(vulkan())), WEIR_DEVICE_VULKAN);
  show({device("full", DeviceKind::kDiscrete, 1000)});
  assert_int_equal(taken(Models(vulkan())), WEIR_DEVICE_CPU);
  show(kOneCard);
  assert_int_equal(taken(Models(vulkan()), WEIR_SESSION_TRACE), WEIR_DEVICE_VULKAN);
  assert_int_equal(taken(Models(vulkan()), WEIR_SESSION_TRACE, "psa"), WEIR_DEVICE_VULKAN);
}

// A module is asked about all that a session needs of attention, not about its policy alone: a kernel for all of a
// layer may do without.
void device_choice__asks_for_all_that_is_needed(void**) {
  show(kOneCard);
  const Models m(vulkan());
  const auto asked = function_of<const PolicyNeeds* (*)()>(vulkan(), "libweir_vulkan.so", "weir_host_module_asked");
  (void)taken(m, 0, "psa");
  assert_true(!asked()->page_mass && !asked()->head_windows);
  (void)taken(m, WEIR_SESSION_TRACE, "psa");
  assert_true(asked()->page_mass && !asked()->head_windows);
  const weir::test::TestHeadFile heads("device_choice_heads.tsv");
  assert_true(heads.write_for(m.model));
  const weir_key_value list[] = {{"heads", "duo"}, {"heads_file", heads.path()}};
  weir_session_options options = options_on(WEIR_DEVICE_VULKAN);
  options.policy = "psa";
  options.policy_options = list;
  options.n_policy_options = 2;
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  assert_ok(weir_plan(m.model, &options, &plan));
  assert_true(!asked()->page_mass && asked()->head_windows);
}

// A model's weights are on one device; sessions that this cannot run are on the processor, not on a second one.
void device_choice__auto_stays_where_the_weights_are(void**) {
  show(kOneCard);
  const Models m(both());
  weir_session *first = nullptr, *second = nullptr;
  weir_session_options options = options_on(WEIR_DEVICE_VULKAN);
  assert_ok(weir_session_create(m.model, &options, &first));
  assert_int_equal(taken(m), WEIR_DEVICE_VULKAN);
  options.device = WEIR_DEVICE_AUTO;
  assert_ok(weir_session_create(m.model, &options, &second));
  weir_session_destroy(second);
  const Refusing refusing("libweir_vulkan.so");
  assert_int_equal(taken(m), WEIR_DEVICE_CPU);
  assert_ok(weir_session_create(m.model, &options, &second));
  weir_session_destroy(second);
  weir_session_destroy(first);
}

std::vector<weir_device_info> listed(const weir_runtime* runtime) {
  uint32_t n = 0;
  assert_int_equal(weir_runtime_devices(runtime, nullptr, 0, &n), WEIR_ERR_BUFFER_TOO_SMALL);
  std::vector<weir_device_info> devices(n);
  devices[0].struct_size = sizeof(weir_device_info);
  uint32_t again = 0;
  assert_ok(weir_runtime_devices(runtime, devices.data(), n, &again));
  assert_int_equal(again, n);
  return devices;
}

void expect(const weir_device_info& d, int32_t backend, uint32_t index, int32_t kind, const char* name, uint64_t bytes,
            const char* why_not) {
  assert_int_equal(d.struct_size, sizeof(d));
  assert_int_equal(d.backend, backend);
  assert_int_equal(d.index, index);
  assert_int_equal(d.kind, kind);
  assert_string_equal(d.name, name);
  assert_string_equal(d.driver, "none");
  assert_int_equal(d.memory_bytes, bytes);
  assert_string_equal(d.why_not, why_not);
  assert_int_equal(d.is_usable, why_not[0] == '\0' ? 1 : 0);
  assert_int_equal(d.reserved, 0);
}

void device_choice__lists_all_devices(void**) {
  show({device("card\n\x1b[31m", DeviceKind::kDiscrete, 8 * kGiB),
        device("old", DeviceKind::kVirtual, kGiB, "Vulkan 1.2"), device("chip", DeviceKind::kIntegrated, 2 * kGiB)});
  const Models m(both());
  const auto devices = listed(m.runtime);
  assert_int_equal(devices.size(), 5);
  assert_int_equal(devices[0].backend, WEIR_DEVICE_CPU);
  assert_int_equal(devices[0].kind, WEIR_DEVICE_KIND_CPU);
  assert_int_equal(devices[0].is_usable, 1);
  assert_string_equal(devices[0].name, "CPU");
  assert_string_equal(devices[0].driver, weir_runtime_cpu_target(m.runtime));
  assert_true(devices[0].memory_bytes > kGiB / 8);
  expect(devices[1], WEIR_DEVICE_CUDA, 0, WEIR_DEVICE_KIND_CPU, "processor", 8 * kGiB, "");
  expect(devices[2], WEIR_DEVICE_VULKAN, 0, WEIR_DEVICE_KIND_DISCRETE, "card\\x0a\\x1b[31m", 8 * kGiB, "");
  expect(devices[3], WEIR_DEVICE_VULKAN, 1, WEIR_DEVICE_KIND_VIRTUAL, "old", kGiB, "Vulkan 1.2");
  expect(devices[4], WEIR_DEVICE_VULKAN, 2, WEIR_DEVICE_KIND_INTEGRATED, "chip", 2 * kGiB, "");
  assert_int_equal(listed(Models(cuda()).runtime).size(), 2);
  assert_int_equal(listed(Models(vulkan()).runtime).size(), 4);
  assert_int_equal(listed(Models(none()).runtime).size(), 1);
  show({});
  assert_int_equal(listed(Models(vulkan()).runtime).size(), 1);
}

void device_choice__hooks_rule_vulkan_out(void**) {
  show(kOneCard);
  const auto devices = listed(Models(both(), nullptr, no_memory, no_free).runtime);
  assert_int_equal(devices.size(), 3);
  assert_int_equal(devices[1].is_usable, 1);
  assert_int_equal(devices[2].is_usable, 0);
  assert_non_null(std::strstr(devices[2].why_not, "device_alloc"));
}

std::string g_log;
weir_status keep_line(void*, const weir_log_info* info) {
  g_log += std::string(info->message) + "\n";
  return WEIR_OK;
}

void device_choice__the_log_says_why_a_backend_has_none(void**) {
  const std::string folder = cuda();
  weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
  options.n_threads = 1;
  options.backend_dir = folder.c_str();
  options.log = keep_line;
  options.log_level = WEIR_LOG_INFO;
  weir_runtime* runtime = nullptr;
  assert_ok(weir_runtime_create(&options, &runtime));
  g_log.clear();
  assert_int_equal(listed(runtime).size(), 2);
  weir_runtime_destroy(runtime);
  assert_non_null(std::strstr(g_log.c_str(), "device vulkan: no backend module: "));
  assert_null(std::strstr(g_log.c_str(), "device cuda"));
}

// Entries of other sizes: of an older and of a newer version of the struct.
void device_choice__keeps_to_the_callers_size(void**) {
  show(kOneCard);
  const Models m(vulkan());
  constexpr uint32_t kFields = 32;  // up to memory_bytes
  for (const uint32_t size : {8u, kFields, uint32_t{sizeof(weir_device_info)} + 16u}) {
    std::vector<unsigned char> bytes(size * 2 + 8, 0xEE);
    const auto field = [&](uint32_t entry, uint32_t offset) {
      uint32_t value = 0;
      std::memcpy(&value, bytes.data() + entry * size + offset, sizeof(value));
      return value;
    };
    std::memcpy(bytes.data(), &size, sizeof(size));
    uint32_t n = 0;
    assert_ok(weir_runtime_devices(m.runtime, reinterpret_cast<weir_device_info*>(bytes.data()), 2, &n));
    assert_int_equal(n, 2);
    for (const uint32_t entry : {0u, 1u}) assert_int_equal(field(entry, 0), size);
    if (size >= kFields) assert_int_equal(field(1, 8), WEIR_DEVICE_VULKAN);
    if (size > sizeof(weir_device_info)) assert_int_equal(field(1, sizeof(weir_device_info)), 0);
    for (size_t i = size_t{size} * 2; i < bytes.size(); ++i) assert_int_equal(bytes[i], 0xEE);
  }
}

void device_choice__refuses_bad_arguments(void**) {
  show(kOneCard);
  const Models m(vulkan());
  weir_device_info devices[3] = {WEIR_DEVICE_INFO_INIT};
  const weir_device_info untouched = devices[1];
  uint32_t n = 77;
  assert_int_equal(weir_runtime_devices(nullptr, devices, 3, &n), WEIR_ERR_INVALID_ARG);
  assert_int_equal(weir_runtime_devices(m.runtime, nullptr, 3, &n), WEIR_ERR_INVALID_ARG);
  assert_int_equal(weir_runtime_devices(m.runtime, devices, 3, nullptr), WEIR_ERR_INVALID_ARG);
  for (const uint32_t size : {0u, 4u, 36u, 5000u}) {
    devices[0].struct_size = size;
    assert_int_equal(weir_runtime_devices(m.runtime, devices, 3, &n), WEIR_ERR_INVALID_ARG);
    assert_non_null(std::strstr(weir_last_error(), "struct_size"));
  }
  assert_int_equal(n, 77);
  devices[0].struct_size = sizeof(devices[0]);
  assert_int_equal(weir_runtime_devices(m.runtime, devices, 1, &n), WEIR_ERR_BUFFER_TOO_SMALL);
  assert_int_equal(n, 2);
  assert_string_equal(devices[0].name, "");
  assert_ok(weir_runtime_devices(m.runtime, devices, 3, &n));
  assert_int_equal(n, 2);
  assert_string_equal(devices[1].name, "card");
  assert_memory_equal(&devices[2], &untouched, sizeof(untouched));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(device_choice__formats_of_pages),
      cmocka_unit_test(device_choice__orders_vulkan_devices),
      cmocka_unit_test(device_choice__auto_prefers_cuda),
      cmocka_unit_test(device_choice__auto_by_kind),
      cmocka_unit_test(device_choice__auto_goes_on_where_a_module_refuses),
      cmocka_unit_test(device_choice__asks_for_all_that_is_needed),
      cmocka_unit_test(device_choice__auto_stays_where_the_weights_are),
      cmocka_unit_test(device_choice__lists_all_devices),
      cmocka_unit_test(device_choice__hooks_rule_vulkan_out),
      cmocka_unit_test(device_choice__the_log_says_why_a_backend_has_none),
      cmocka_unit_test(device_choice__keeps_to_the_callers_size),
      cmocka_unit_test(device_choice__refuses_bad_arguments),
  };
  return cmocka_run_group_tests_name("runtime_device_choice", tests, make_folders, remove_folders);
}
