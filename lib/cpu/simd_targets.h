// Which instruction sets vector code is compiled for; included before any Highway header. AVX3_DL is Highway's name for
// AVX-512 with VNNI (Ice Lake and later). Left out: SSSE3, because machines without SSE4 are no longer in use, and the
// scalable SVE and RVV vectors, which do not fit the kernels' register blocking; such machines run NEON or the plain
// fallback.
#pragma once

#define HWY_WANT_AVX3_DL
#include "cpu_targets.h"  // WEIR_CPU_TARGETS of this build (cmake/WeirCpuTargets.cmake)

// Files with WEIR_CPU_NO_DOT (CMakeLists.txt) have no use for VNNI; AVX3 is as good there.
#if defined(WEIR_CPU_NO_DOT)
#define WEIR_CPU_WANTED ((WEIR_CPU_TARGETS & ~HWY_AVX3_DL) | ((WEIR_CPU_TARGETS & HWY_AVX3_DL) != 0 ? HWY_AVX3 : 0))
#else
#define WEIR_CPU_WANTED WEIR_CPU_TARGETS
#endif
#if defined(WEIR_INTERNAL_SANITIZED)
// Instrumented AVX-512 code takes a compiler several minutes and a gigabyte per file. The narrower targets check the
// same source.
#define WEIR_CPU_LEFT_OUT (HWY_AVX3 | HWY_AVX3_DL)
#else
#define WEIR_CPU_LEFT_OUT 0
#endif
#define HWY_DISABLED_TARGETS                                                                                          \
  ((~(WEIR_CPU_WANTED) & (HWY_SSE4 | HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL | HWY_NEON)) | WEIR_CPU_LEFT_OUT | HWY_SSSE3 | \
   HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
