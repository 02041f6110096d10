// The two functions of Highway's library that its headers call: which instruction sets the processor and the system
// have, and where the choice among the compiled ones is kept. Debian has no archive of that library. Sets that lib/cpu
// is not compiled for are not looked for. Only for x86-64; elsewhere a self-contained library needs a libhwy.a.
#include <cpuid.h>
#include <hwy/targets.h>

#include <cstdint>

namespace {

enum Register : uint8_t { kEax, kEbx, kEcx, kEdx };

// What the targets are made of, each with what Highway counts in; a target needs all targets above it, too.
struct Feature {
  int64_t target;
  uint32_t leaf;
  Register reg;
  uint8_t bit;
};
constexpr Feature kFeatures[] = {
    {HWY_SSSE3, 1, kEcx, 0},          // SSE3
    {HWY_SSSE3, 1, kEcx, 9},          // SSSE3
    {HWY_SSE4, 1, kEcx, 1},           // PCLMULQDQ
    {HWY_SSE4, 1, kEcx, 19},          // SSE4.1
    {HWY_SSE4, 1, kEcx, 20},          // SSE4.2
    {HWY_SSE4, 1, kEcx, 25},          // AES
    {HWY_AVX2, 1, kEcx, 12},          // FMA
    {HWY_AVX2, 1, kEcx, 28},          // AVX
    {HWY_AVX2, 1, kEcx, 29},          // F16C
    {HWY_AVX2, 0x80000001, kEcx, 5},  // LZCNT
    {HWY_AVX2, 7, kEbx, 3},           // BMI
    {HWY_AVX2, 7, kEbx, 5},           // AVX2
    {HWY_AVX2, 7, kEbx, 8},           // BMI2
    {HWY_AVX3, 7, kEbx, 16},          // AVX-512 F
    {HWY_AVX3, 7, kEbx, 17},          // DQ
    {HWY_AVX3, 7, kEbx, 28},          // CD
    {HWY_AVX3, 7, kEbx, 30},          // BW
    {HWY_AVX3, 7, kEbx, 31},          // VL
    {HWY_AVX3_DL, 7, kEcx, 1},        // VBMI
    {HWY_AVX3_DL, 7, kEcx, 6},        // VBMI2
    {HWY_AVX3_DL, 7, kEcx, 8},        // GFNI
    {HWY_AVX3_DL, 7, kEcx, 9},        // VAES
    {HWY_AVX3_DL, 7, kEcx, 10},       // VPCLMULQDQ
    {HWY_AVX3_DL, 7, kEcx, 11},       // VNNI
    {HWY_AVX3_DL, 7, kEcx, 12},       // BITALG
    {HWY_AVX3_DL, 7, kEcx, 14},       // VPOPCNTDQ
};
constexpr int64_t kTargets[] = {HWY_SSSE3, HWY_SSE4, HWY_AVX2, HWY_AVX3, HWY_AVX3_DL};

bool has(const Feature& feature) {
  uint32_t regs[4] = {};
  return __get_cpuid_count(feature.leaf, 0, &regs[kEax], &regs[kEbx], &regs[kEcx], &regs[kEdx]) != 0 &&
         (regs[feature.reg] >> feature.bit & 1) != 0;
}

// The register states that the system saves: XCR0, 0 where it uses no XSAVE.
uint32_t saved_states() {
  constexpr Feature kOsXsave = {0, 1, kEcx, 27};
  if (!has(kOsXsave)) return 0;
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

int64_t detect() {
  constexpr uint32_t kYmm = 0x06, kZmm = 0xE6;
  const uint32_t saved = saved_states();
  int64_t found = HWY_SCALAR | HWY_EMU128;
#ifdef HWY_SSE2
  found |= HWY_SSE2;
#endif
  for (const int64_t target : kTargets) {
    const uint32_t needed = target == HWY_AVX2 ? kYmm : target == HWY_AVX3 || target == HWY_AVX3_DL ? kZmm : 0;
    bool all = (saved & needed) == needed;
    for (const Feature& feature : kFeatures) all = all && (feature.target != target || has(feature));
    if (!all) break;
    found |= target;
  }
  return found;
}

}  // namespace

namespace hwy {

int64_t SupportedTargets() { return detect(); }

ChosenTarget& GetChosenTarget() {
  static constinit ChosenTarget chosen;
  return chosen;
}

}  // namespace hwy
