// Shared by the vector sources of the matrix ops; included once per instruction set, after foreach_target.h.
// WEIR_BEFORE_NAMESPACE() replaces Highway's own macro: Highway selects its AVX3_DL target only on machines with
// AVX512-VNNI, but the target's attribute string does not name that extension. WEIR_ATTR is the same for lambdas.
#if defined(WEIR_CPU_MATMUL_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_CPU_MATMUL_SIMD_INL_H_
#undef WEIR_CPU_MATMUL_SIMD_INL_H_
#else
#define WEIR_CPU_MATMUL_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

#undef WEIR_BEFORE_NAMESPACE
#undef WEIR_ATTR
#if HWY_TARGET == HWY_AVX3_DL
#define WEIR_BEFORE_NAMESPACE() HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni") static_assert(true, "")
#define WEIR_ATTR __attribute__((target(HWY_TARGET_STR ",avx512vnni")))
#else
#define WEIR_BEFORE_NAMESPACE() HWY_BEFORE_NAMESPACE()
#define WEIR_ATTR HWY_ATTR
#endif

// Set where Highway has real vectors of a size known at compile time. Other targets use the plain loops of
// plain_kernels.h.
#undef WEIR_VECTOR_KERNELS
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128 && !HWY_HAVE_SCALABLE
#define WEIR_VECTOR_KERNELS 1
#else
#define WEIR_VECTOR_KERNELS 0
#endif

WEIR_BEFORE_NAMESPACE();
#if WEIR_VECTOR_KERNELS
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using Vec = hn::VFromD<D>;

// sum + a * b in pairs of neighbouring lanes, i16 times i16 to i32. On x86 lane i gets products 2i and 2i + 1 and
// `other` is not used; elsewhere the products may end up in any lane of `sum` and `other`, which the caller adds. Never
// saturates; the caller keeps the sums within 32 bits.
template <class D32, class V16>
HWY_INLINE Vec<D32> dot_pairs(D32 d32, V16 a, V16 b, Vec<D32> sum, Vec<D32>& other) {
#if HWY_TARGET == HWY_AVX3_DL
  // Whole vectors only: for shorter ones a compiler may choose the AVX-VNNI encoding, which machines with AVX512-VNNI
  // need not have.
  if constexpr (hn::MaxLanes(d32) == 16) return Vec<D32>{_mm512_dpwssd_epi32(sum.raw, a.raw, b.raw)};
#endif
  return hn::ReorderWidenMulAccumulate(d32, a, b, sum, other);
}

// Forces the compiler to store `array` in memory and to read it from there. Broadcasts from memory are free on x86.
// Otherwise compilers keep such small arrays in vector registers and spend two shuffles on each broadcast, more than on
// everything else that is done with a block of weights.
template <class T>
HWY_INLINE void keep_in_memory(T& array) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  __asm__("" : "+m"(array));
#else
  (void)array;
#endif
}

// One f16 number as f32.
HWY_INLINE float load_f16(const uint8_t* p) {
  const hn::CappedTag<float, 4> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> dh;
  const hn::Rebind<uint16_t, decltype(d)> du;
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return hn::GetLane(hn::PromoteTo(d, hn::BitCast(dh, hn::Set(du, bits))));
}

}  // namespace weir::cpu::HWY_NAMESPACE
#endif
HWY_AFTER_NAMESPACE();

#endif  // per target
