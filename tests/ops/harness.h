// The op harness: a case is declared once and runs on every backend, there with every instruction set of this machine.
// Each result is compared with the reference's. A case's row contains its bound and the reason for the bound.
//
// Scratch memory has exactly the size that the backend stated and is filled with NaN before each run, so that an op
// that reads what it did not write, or writes beyond its share, is detected. A new backend is one line in backends().
// Environment: WEIR_TEST_BACKEND=<name> runs only that backend, which must exist, and Vulkan only so;
// WEIR_TEST_VULKAN_DEVICE=<index or part of a name> is its device; WEIR_TEST_FILTER=<pattern with *> runs the tests
// with matching names.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory_resource>
#include <string>
#include <vector>

#include "cpu/simd_targets.h"

#include "core/thread_pool.h"
#include "cpu/backend.h"
#include "hwy/targets.h"
#include "ops/ops.h"
#include "tests/ops/metrics.h"
#include "tests/ops/staged_backend.h"
#include "weir/runtime.h"

// After the library's headers: cmocka defines a macro `fail`.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace weir::test {

// Seeded random numbers (splitmix64), the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(bits() % n); }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  float normal() {
    const double radius = std::sqrt(-2.0 * std::log(uniform() + 1e-300));
    return static_cast<float>(radius * std::cos(6.283185307179586 * uniform()));
  }
  std::vector<float> normals(size_t n, float scale = 1.0f) {
    std::vector<float> v(n);
    for (float& x : v) x = scale * normal();
    return v;
  }

 private:
  uint64_t state_;
};

// The environment of an op: threads, and scratch memory of exactly the size that the backend asks for.
class Machine {
 public:
  Machine(const Backend& backend, const OpShapes& shapes)
      : pool_(std::pmr::new_delete_resource()), bytes_(backend.scratch_bytes(shapes)) {
    assert_true(pool_.start(shapes.n_threads).ok());
    block_.resize((bytes_ + kGuardBytes) / sizeof(Line) + 1);
    std::memset(block_.data(), 0xFF, block_.size() * sizeof(Line));  // NaN as f32
    cx_.pool = &pool_;
    cx_.scratch = block_[0].bytes;
    cx_.scratch_bytes = bytes_;
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  OpContext& cx() { return cx_; }

  // Checks that the op succeeded and did not write beyond its scratch memory.
  void check(Status status) const {
    assert_int_equal(status.code(), WEIR_OK);
    for (size_t i = bytes_; i < bytes_ + kGuardBytes; ++i) {
      if (cx_.scratch[i] != std::byte{0xFF})
        fail_msg("scratch was written %zu bytes beyond its end", static_cast<size_t>(i - bytes_));
    }
  }

 private:
  static constexpr size_t kGuardBytes = 4096;
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  ThreadPool pool_;
  uint64_t bytes_;
  std::vector<Line> block_;
  OpContext cx_;
};

// Instruction sets that this machine has and that vector code is compiled for, including the plain fallback.
inline std::vector<int64_t> targets() {
  std::vector<int64_t> list;
  for (uint64_t left = static_cast<uint64_t>((hwy::SupportedTargets() | HWY_BASELINE_SCALAR) & HWY_TARGETS); left != 0;
       left &= left - 1) {
    list.push_back(static_cast<int64_t>(left & (~left + 1)));
  }
  return list;
}

class TargetScope {
 public:
  // What has no kernel for AVX3_DL runs that for AVX3, as on such a machine.
  explicit TargetScope(int64_t target) {
    hwy::SetSupportedTargetsForTest(target | (target == HWY_AVX3_DL ? int64_t{HWY_AVX3} : 0));
  }
  ~TargetScope() { hwy::SetSupportedTargetsForTest(0); }
  TargetScope(const TargetScope&) = delete;
  TargetScope& operator=(const TargetScope&) = delete;
};

inline std::vector<const Backend*> backends() {
  std::vector<const Backend*> list = {&cpu_backend()};
  const char* const only = std::getenv("WEIR_TEST_BACKEND");
  for (const char* module : kStagedModules) {
    // Vulkan's driver may compute on the processor, and it has tests of its own (tests/vulkan/CMakeLists.txt).
    const bool asked = only != nullptr && std::strcmp(only, module) == 0;
    if (!asked && (only != nullptr || std::strcmp(module, "vulkan") == 0)) continue;
    if (const Backend* device = staged_backend(module); device != nullptr) list.push_back(device);
  }
  if (only != nullptr) {
    std::erase_if(list, [&](const Backend* b) { return std::strcmp(b->name, only) != 0; });
    if (list.empty()) {
      std::fprintf(stderr, "WEIR_TEST_BACKEND=%s: there is no such backend here\n", only);
      std::exit(1);
    }
  }
  return list;
}

// Instruction sets that a backend runs with. A device has none of its own: one entry that changes nothing.
inline std::vector<int64_t> targets_of(const Backend& backend) {
  return backend.device == WEIR_DEVICE_CPU ? targets() : std::vector<int64_t>{0};
}

// An array that an op wrote.
struct Output {
  const char* name;
  std::vector<float> values;
};

struct OpCase {
  std::string name;                                        // <op>__<variant>
  std::function<std::vector<Output>(const Backend&)> run;  // the same inputs for every backend
  double max_nmse;                                         // for each output
  const char* reason;                                      // why this much is allowed
  double cuda_nmse = -1.0;                                 // on the GPU; negative: as everywhere
  const char* cuda_reason = nullptr;                       // why more is allowed there
  double vulkan_nmse = -1.0;                               // on Vulkan; negative: as everywhere
  bool is_product = false;                                 // of matrices with as many rows as prompts have
  double f16_nmse = -1.0;  // on Vulkan where prompts are attended in f16; negative: as above
};

// Bounds of cases that are exact or nearly exact on the CPU: a GPU uses fma, and its exp differs.
inline constexpr double kContracted = 1e-13;
inline constexpr char kContractedReason[] = "an fma rounds multiplication and addition once";
// GEMV: inputs are rounded to 16 bits with one scale per 32 of them; the error is at most 1 / 65534 of the block's
// largest.
inline constexpr double kCudaGemvNmse = 4e-9;
// GEMM: weights and inputs are rounded to f16, by at most 2^-12 each, so each has a relative variance of at most 2^-24
// / 3.
inline constexpr double kCudaGemmNmse = 3e-7;
// Prefill attention: queries and weights are sums of two bf16, with 16 bits together. Logits in the hundreds lose
// precision accordingly.
inline constexpr double kCudaAttnNmse = 1e-10, kCudaLargeLogitsNmse = 1e-9;
inline constexpr char kCudaAttnReason[] = "queries and weights in two bf16 each";
inline constexpr char kCudaGemmReason[] = "prompts are multiplied in f16";

// Queries, weights, keys and values in f16 (tests/vulkan/test_attn_prompt.cpp).
inline constexpr double kF16AttnNmse = 3e-7;

// Whether more than eight rows are multiplied in f16: on CUDA, and on Vulkan where a device has cooperative matrices.
inline bool has_f16_prompts(const Backend& backend) {
  return backend.device == WEIR_DEVICE_CUDA ||
         (backend.device == WEIR_DEVICE_VULKAN && std::strstr(backend.target(), "cooperative matrices") != nullptr);
}

// A test that runs on every backend and instruction set.
struct BackendTest {
  std::string name;
  std::function<void(const Backend&)> run;
};

namespace internal {

struct Job {
  std::string name;
  const Backend* backend;
  int64_t target;
  std::function<void(const Backend&)> run;
};

inline void run_job(void** state) {
  const Job& job = *static_cast<const Job*>(*state);
  const StagedCalls before = staged_calls();
  {
    const TargetScope scope(job.target);
    job.run(*job.backend);
  }
  const StagedCalls after = staged_calls();
  const uint64_t n_unsupported = after.unsupported - before.unsupported;
  if (n_unsupported == 0) return;
  const uint64_t n_run = after.on_device - before.on_device;
  std::printf("%s: %llu of %llu calls are not supported by %s\n", job.name.c_str(),
              static_cast<unsigned long long>(n_unsupported), static_cast<unsigned long long>(n_unsupported + n_run),
              job.backend->name);
  if (n_run == 0) skip();  // only the reference ran, compared with itself
}

inline void compare_with_reference(const OpCase& c, const std::vector<Output>& want, const Backend& backend) {
  const std::vector<Output> got = c.run(backend);
  // Without cooperative matrices Vulkan computes in f32 and rounds no inputs; only what is exact on the CPU is not
  // there.
  const bool own_bound =
      c.cuda_nmse >= 0.0 &&
      (backend.device == WEIR_DEVICE_CUDA ||
       (backend.device == WEIR_DEVICE_VULKAN && (c.max_nmse == 0.0 || (c.is_product && has_f16_prompts(backend)))));
  const bool on_vulkan = backend.device == WEIR_DEVICE_VULKAN && c.vulkan_nmse >= 0.0;
  const bool in_f16 = backend.device == WEIR_DEVICE_VULKAN && c.f16_nmse >= 0.0 && has_f16_prompts(backend);
  const double max_nmse = in_f16 ? c.f16_nmse : on_vulkan ? c.vulkan_nmse : own_bound ? c.cuda_nmse : c.max_nmse;
  assert_int_equal(got.size(), want.size());
  bool ok = true;
  for (size_t i = 0; i < got.size(); ++i) {
    assert_int_equal(got[i].values.size(), want[i].values.size());
    const std::string what = c.name + " (" + (own_bound ? c.cuda_reason : c.reason) + "), " + got[i].name;
    ok = close_enough(what.c_str(), got[i].values.data(), want[i].values.data(), got[i].values.size(), max_nmse) && ok;
  }
  assert_true(ok);
}

}  // namespace internal

// Runs cases and tests on every backend and instruction set, and `plain` tests once, as one cmocka group.
inline int run_group(const char* group, const std::vector<OpCase>& cases, const std::vector<BackendTest>& tests,
                     const std::vector<CMUnitTest>& plain = {}) {
  std::vector<internal::Job> jobs;
  std::vector<std::vector<Output>> want(cases.size());  // filled on first use
  const auto compare = [&](size_t i, const Backend& backend) {
    if (want[i].empty()) want[i] = cases[i].run(reference_backend());
    internal::compare_with_reference(cases[i], want[i], backend);
  };
  for (const Backend* backend : backends()) {
    for (int64_t target : targets_of(*backend)) {
      const std::string set = target == 0 ? std::string() : std::string("_") + hwy::TargetName(target);
      const std::string where = std::string("__") + backend->name + set;
      for (size_t i = 0; i < cases.size(); ++i) {
        jobs.push_back({cases[i].name + where, backend, target, [&compare, i](const Backend& b) { compare(i, b); }});
      }
      for (const BackendTest& t : tests) jobs.push_back({t.name + where, backend, target, t.run});
    }
  }
  std::vector<CMUnitTest> list = plain;
  for (internal::Job& job : jobs) list.push_back({job.name.c_str(), internal::run_job, nullptr, nullptr, &job});
  const char* filter = std::getenv("WEIR_TEST_FILTER");
  if (filter != nullptr) cmocka_set_test_filter(filter);
  const int n_failed = _cmocka_run_group_tests(group, list.data(), list.size(), nullptr, nullptr);
  return report_staged_calls(group) || filter != nullptr ? n_failed : n_failed + 1;
}

}  // namespace weir::test
