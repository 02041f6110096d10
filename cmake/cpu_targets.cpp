// What WeirCpuTargets.cmake runs: the mask of the instruction sets that this machine has, the best one, and its name.
#define HWY_WANT_AVX3_DL
#include <cstdio>

#include "hwy/targets.h"

int main() {
  const long long supported = static_cast<long long>(hwy::SupportedTargets()) & static_cast<long long>(HWY_TARGETS);
  const long long best = supported & -supported;  // Highway gives better ones lower bits
  std::printf("%lld %lld %s\n", supported, best, hwy::TargetName(best));
}
