// Which instruction sets vector code is compiled for; included before any Highway header. AVX3_DL is Highway's name for
// AVX-512 with VNNI (Ice Lake and later). Left out: SSSE3, because machines without SSE4 are no longer in use, and the
// scalable SVE and RVV vectors, which do not fit the kernels' register blocking; such machines run NEON or the plain
// fallback.
#pragma once

#define HWY_WANT_AVX3_DL
// Files with WEIR_CPU_NO_DOT (CMakeLists.txt) have no use for VNNI; AVX3 is as good there.
#if defined(WEIR_CPU_NO_DOT)
#define WEIR_CPU_LEFT_OUT HWY_AVX3_DL
#else
#define WEIR_CPU_LEFT_OUT 0
#endif
#if defined(WEIR_INTERNAL_SANITIZED)
// Instrumented AVX-512 code takes a compiler several minutes and a gigabyte per file. The narrower targets check the
// same source.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | WEIR_CPU_LEFT_OUT | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
