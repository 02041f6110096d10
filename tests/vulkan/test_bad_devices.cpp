// vulkan: devices that do not exist, cannot be used, or are not the one that was meant: what applications are told.
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>

#include "tests/vulkan/shim/shim_test.h"

namespace {

using namespace weir::test;

constexpr auto kDiscrete = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, kIntegrated = VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU,
               kVirtual = VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU;
constexpr uint64_t kGiB = uint64_t{1} << 30;

void expect_auto_takes_the_cpu() {
  const Opened o;
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  assert_ok(weir_plan(o.model, &options, &plan));
  assert_int_equal(plan.device, WEIR_DEVICE_CPU);
  weir_session* session = nullptr;
  assert_ok(o.create(&session, WEIR_DEVICE_AUTO));
  std::vector<float> logits;
  use(session, logits);
  weir_session_destroy(session);
}

ShownDevice shown(const char* name, VkPhysicalDeviceType type = VK_PHYSICAL_DEVICE_TYPE_OTHER, uint64_t bytes = 0) {
  ShownDevice d;
  d.name = name;
  d.type = type;
  d.memory_bytes = bytes;
  return d;
}

// ----------------------------------------------------------------------------------------------------------- absence

void absence_of_driver_and_devices(Shim& shim, uint32_t) {
  shim.has_driver = false;
  expect_refused(nullptr, WEIR_ERR_UNSUPPORTED, "there is no driver");
  expect_auto_takes_the_cpu();
  shim.has_driver = true;
  shim.loader_version = VK_API_VERSION_1_2;
  expect_refused(nullptr, WEIR_ERR_UNSUPPORTED, "the loader knows Vulkan 1.2, 1.3 is needed");
  shim.loader_version = 0;
  shim.n_devices = 0;
  for (const char* wanted : {static_cast<const char*>(nullptr), "0", "card"})
    expect_refused(wanted, WEIR_ERR_UNSUPPORTED, "there is no device");
  expect_auto_takes_the_cpu();
  shim.n_devices = 1;
  expect_works(nullptr);
}

// ------------------------------------------------------------------------------------------------------- requirements

struct {
  Lack lack;
  const char* text;
} const kLacks[] = {
    {Lack::kVersion, "Card A has Vulkan 1.2, 1.3 is needed"},
    {Lack::kSubgroupSize, "Card A has subgroups of 4 lanes, at least 8 are needed"},
    {Lack::kComputeStage, "Card A has no subgroup operations in compute shaders"},
    {Lack::kShuffle, "Card A has no subgroup shuffles"},
    {Lack::kArithmetic, "Card A has no subgroup arithmetic"},
    {Lack::kInvocations, "Card A has workgroups of 128 invocations, 256 are needed"},
    {Lack::kSharedBytes, "Card A has 16384 bytes of shared memory, 32768 are needed"},
    {Lack::kPushBytes, "Card A has 64 bytes of push constants, 128 are needed"},
    {Lack::kAddresses, "Card A has no bufferDeviceAddress"},
    {Lack::kFullSubgroups, "Card A has no computeFullSubgroups"},
    {Lack::kComputeQueue, "Card A has no queue that computes"},
    {Lack::kMappedMemory, "Card A has no memory that the host sees"},
    {Lack::kRightShuffle, "Card A failed the self-test: wrong shuffles"},
};

void lacks(Shim& shim, uint32_t) {
  shim.n_devices = 2;
  shim.devices[0] = shown("Card A", kDiscrete);
  shim.devices[1] = shown("Card B", kVirtual);
  for (const auto& lack : kLacks) {
    shim.devices[0].lack = lack.lack;
    for (const char* wanted : {"0", "card a"}) expect_refused(wanted, WEIR_ERR_UNSUPPORTED, lack.text);
    expect_closed(shim);
  }
  expect_auto_takes_the_cpu();
  // What was tried in vain is not in the way.
  expect_works("card b");
}

// A device that cannot be used is no choice, a better kind or not.
void lacks_of_the_better_one(Shim& shim, uint32_t n) {
  shim.n_devices = 2;
  shim.devices[0] = shown("Card A", kDiscrete);
  shim.devices[1] = shown("Card B", kVirtual);
  shim.devices[0].lack = kLacks[n].lack;
  expect_works(nullptr);
  expect_refused("0", WEIR_ERR_UNSUPPORTED, "Card A", "this process uses 1 (Card B)");
}

// ------------------------------------------------------------------------------------------------------------- choice

void choice(Shim& shim, uint32_t) {
  shim.n_devices = 4;
  shim.devices[0] = shown("Chip", kIntegrated, 64 * kGiB);
  shim.devices[1] = shown("Card 9", kDiscrete, 8 * kGiB);
  shim.devices[2] = shown("Card 10", kDiscrete, 16 * kGiB);
  shim.devices[3] = shown("Guest", kVirtual, 128 * kGiB);
  const char* const list = "there are 0: Chip, 1: Card 9, 2: Card 10, 3: Guest";
  expect_refused("4", WEIR_ERR_NOT_FOUND, "there is no device 4", list);
  expect_refused("tuba", WEIR_ERR_NOT_FOUND, "no device has \"tuba\" in its name", list);
  expect_refused("card", WEIR_ERR_INVALID_ARG, "more than one device has \"card\" in its name", list);
  expect_works(nullptr);
  for (const char* wanted : {"1", "card 9"})
    expect_refused(wanted, WEIR_ERR_UNSUPPORTED, "device 1 (Card 9); this process uses 2 (Card 10) already");
  for (const char* same : {static_cast<const char*>(nullptr), "2", "CARD 10"}) {
    const Opened o(same);
    weir_session* session = nullptr;
    assert_ok(o.create(&session));
    weir_session_destroy(session);
  }
  expect_refused("tuba", WEIR_ERR_NOT_FOUND, list);
  // Devices that come and go.
  shim.n_devices = 17;  // more than are seen
  expect_refused("chip", WEIR_ERR_UNSUPPORTED, "device 0 (Chip)");
  shim.n_devices = 3;
  expect_refused("3", WEIR_ERR_NOT_FOUND, "there is no device 3");
}

weir_status no_memory(void*, const weir_alloc_info*, void**) { return WEIR_ERR_OUT_OF_MEMORY; }
weir_status no_free(void*, const weir_alloc_info*) { return WEIR_OK; }

void hooks(Shim& shim, uint32_t) {
  weir_runtime_options runtime_options = gpu_runtime_options();
  runtime_options.vulkan_device = nullptr;
  runtime_options.device_alloc = no_memory;
  runtime_options.device_free = no_free;
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  weir_session* session = nullptr;
  assert_ok(weir_runtime_create(&runtime_options, &runtime));
  assert_ok(weir_model_open(runtime, kSmallModel, nullptr, &model));
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.device = WEIR_DEVICE_VULKAN;
  assert_error(weir_session_create(model, &options, &session), WEIR_ERR_UNSUPPORTED, "device_alloc");
  weir_model_close(model);
  weir_runtime_destroy(runtime);
  assert_int_equal(shim.n_instances, 0);
}

// ------------------------------------------------------------------------------------------------------------- memory

// Too small for a session of a long context, and large enough for everything else.
void limits(Shim& shim, uint32_t n) {
  constexpr uint64_t kLimit = 20u << 20;
  (n == 0 ? shim.devices[0].max_allocation : shim.devices[0].max_buffer) = kLimit;
  shim.devices[0].name = "Card";
  const Opened o;
  weir_session* session = nullptr;
  assert_int_equal(o.create(&session, WEIR_DEVICE_VULKAN, 1u << 20), WEIR_ERR_UNSUPPORTED);
  assert_null(session);
  expect_text("bytes in one allocation; Card gives at most 20971520");
  const Taken before(shim);
  assert_int_equal(o.create(&session, WEIR_DEVICE_VULKAN, 1u << 20), WEIR_ERR_UNSUPPORTED);
  expect_same(Taken(shim), before);
  expect_works(nullptr);
}

// Too small for the memory through which copies go: the device cannot be opened at all.
void limits_of_staging(Shim& shim, uint32_t) {
  shim.devices[0].max_allocation = 1u << 20;
  expect_refused(nullptr, WEIR_ERR_UNSUPPORTED, "16777216 bytes in one allocation", "at most 1048576");
  expect_closed(shim);
  shim.devices[0].max_allocation = 0;
  expect_works(nullptr);
}

void memory_types(Shim& shim, uint32_t) {
  shim.devices[0].has_odd_memory = true;
  expect_works(nullptr);
}

// ----------------------------------------------------------------------------------------------------------- programs

void bad_devices__no_loader(void**) {
  // A file that is no library stands before the real one.
  char folder[] = "/tmp/weir_no_loader_XXXXXX";
  assert_non_null(mkdtemp(folder));
  const std::string file = std::string(folder) + "/libvulkan.so.1";
  std::FILE* f = std::fopen(file.c_str(), "w");
  assert_non_null(f);
  std::fclose(f);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const char* const before = getenv("LD_LIBRARY_PATH");
    const std::string folders = std::string(folder) + (before == nullptr ? "" : std::string(":") + before);
    setenv("LD_LIBRARY_PATH", folders.c_str(), 1);
    char program[] = "/proc/self/exe", option[] = "--no-loader";
    char* const arguments[] = {program, option, nullptr};
    execv(program, arguments);
    _exit(1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  std::remove(file.c_str());
  rmdir(folder);
  assert_int_equal(status, 0);
}

void no_loader(void**) {
  expect_refused(nullptr, WEIR_ERR_UNSUPPORTED, "device vulkan: ", "there is no loader");
  expect_refused("0", WEIR_ERR_UNSUPPORTED, "there is no loader");
  expect_auto_takes_the_cpu();
}

void bad_devices__no_driver_and_no_device(void**) {
  NEED_SHIM();
  IN_CHILD(absence_of_driver_and_devices);
}

void bad_devices__say_what_they_lack(void**) {
  NEED_SHIM();
  IN_CHILD(lacks);
}

void bad_devices__are_not_chosen(void**) {
  NEED_SHIM();
  IN_CHILD(lacks_of_the_better_one, 0u);
  IN_CHILD(lacks_of_the_better_one, 8u);
}

void bad_devices__which_one_is_meant(void**) {
  NEED_SHIM();
  IN_CHILD(choice);
}

void bad_devices__no_memory_from_hooks(void**) {
  NEED_SHIM();
  IN_CHILD(hooks);
}

void bad_devices__limits_of_allocations(void**) {
  NEED_SHIM();
  IN_CHILD(limits, 0u);
  IN_CHILD(limits, 1u);
  IN_CHILD(limits_of_staging);
}

void bad_devices__memory_that_no_buffer_may_use(void**) {
  NEED_SHIM();
  IN_CHILD(memory_types);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--no-loader") == 0) {
    cmocka_set_test_filter(nullptr);
    const CMUnitTest alone[] = {cmocka_unit_test(no_loader)};
    return cmocka_run_group_tests_name("vulkan_no_loader", alone, nullptr, nullptr);
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(bad_devices__no_loader),
      cmocka_unit_test(bad_devices__no_driver_and_no_device),
      cmocka_unit_test(bad_devices__say_what_they_lack),
      cmocka_unit_test(bad_devices__are_not_chosen),
      cmocka_unit_test(bad_devices__which_one_is_meant),
      cmocka_unit_test(bad_devices__no_memory_from_hooks),
      cmocka_unit_test(bad_devices__limits_of_allocations),
      cmocka_unit_test(bad_devices__memory_that_no_buffer_may_use),
  };
  return cmocka_run_group_tests_name("vulkan_bad_devices", tests, nullptr, nullptr);
}
