// Replaces cuda/common/base.cuh where device code is compiled for the host: what cuda/common/top_k.cuh,
// top_k_shared.cuh, cuda/attn/stop_rounds.cuh, cuda/pages/victim.cuh, cuda/step/top_logits_parts.cuh, cuda/recurrent
// and cuda/quant need of CUDA, and one thread block to run them in.
//
// The block's threads take turns, warps in random order, and some run far ahead of others. A block fails when lanes of
// a warp meet in different collectives, or when no thread can continue. So code that would hang a GPU is found without
// a GPU, and so are some of the races.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "quant/half.h"

#define __CUDACC__ 1
#define __CUDA_ARCH__ 900
#define __device__
#define __host__

struct alignas(8) float2 {
  float x, y;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

namespace weir::cuda {

using std::isnan;
using std::max;
using std::min;

inline constexpr uint32_t kWarp = 32;
inline constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

class HostBlock {
 public:
  explicit HostBlock(uint32_t n_threads)
      : lanes_(n_threads), warps_(n_threads / kWarp), order_(n_threads / kWarp), stacks_(n_threads * kStack) {
    std::iota(order_.begin(), order_.end(), 0u);
  }

  // Runs `body` in all threads of a block. Returns the error, "" if there was none.
  std::string run(const std::function<void()>& body) {
    body_ = &body;
    current_block() = this;
    error_.clear();
    for (size_t i = 0; i < lanes_.size(); ++i) begin(lanes_[i], stacks_.data() + i * kStack);
    for (Warp& warp : warps_) warp.n = 0;
    while (error_.empty() && !all(State::kDone)) {
      bool moved = false;
      std::shuffle(order_.begin(), order_.end(), random_);
      for (const uint32_t warp : order_) {
        const bool far = random_() % 2 == 0;
        while (advance(warp)) {
          moved = true;
          if (!far) break;
        }
      }
      if (moved || !error_.empty()) continue;
      if (all(State::kAtBarrier)) {
        for (Lane& lane : lanes_) lane.state = State::kReady;
      } else if (!all(State::kDone)) {
        error_ = "nobody can go on: not all threads come to a barrier or a collective";
      }
    }
    current_block() = nullptr;
    return error_;
  }

  static HostBlock*& current_block() {
    static HostBlock* block = nullptr;
    return block;
  }
  uint32_t thread() const { return at_; }
  uint32_t n_threads() const { return static_cast<uint32_t>(lanes_.size()); }

  void barrier() { leave(State::kAtBarrier); }

  // Contributes `value` and returns the values of all lanes of the warp.
  const uint32_t* collective(const char* name, uint32_t value) {
    Warp& warp = warps_[at_ / kWarp];
    if (warp.n == 0) warp.name = name;
    if (warp.name != name) {
      error_ = std::string("lanes of a warp are in ") + warp.name + " and " + name;
      leave(State::kDone);
    }
    // No lane may reach the second collective after this one before all lanes have read the values of this one.
    const uint32_t turn = warp.turn;
    warp.values[turn][at_ % kWarp] = value;
    if (++warp.n < kWarp) {
      leave(State::kInCollective);
    } else {
      warp.n = 0;
      warp.turn ^= 1;
      for (uint32_t i = at_ - at_ % kWarp, n = 0; n < kWarp; ++n) lanes_[i + n].state = State::kReady;
    }
    return warp.values[turn];
  }

 private:
  static constexpr size_t kStack = 1 << 16;
  enum class State { kReady, kInCollective, kAtBarrier, kDone };
  struct Lane {
    ucontext_t context;
    State state;
  };
  struct Warp {
    const char* name = nullptr;
    uint32_t n = 0, turn = 0;
    uint32_t values[2][kWarp];
  };

  static void begin(Lane& lane, char* stack) {
    lane.state = State::kReady;
    getcontext(&lane.context);
    lane.context.uc_stack.ss_sp = stack;
    lane.context.uc_stack.ss_size = kStack;
    lane.context.uc_link = nullptr;
    makecontext(&lane.context, &HostBlock::enter, 0);
  }
  static void enter() {
    HostBlock& block = *current_block();
    (*block.body_)();
    block.leave(State::kDone);
  }
  // Runs every lane of the warp that can run, up to where it waits. False if none could run.
  bool advance(uint32_t warp) {
    bool moved = false;
    for (uint32_t i = warp * kWarp; i < (warp + 1) * kWarp && error_.empty(); ++i) {
      if (lanes_[i].state != State::kReady) continue;
      moved = true;
      at_ = i;
      swapcontext(&scheduler_, &lanes_[i].context);
    }
    return moved && error_.empty();
  }
  void leave(State state) {
    const uint32_t me = at_;
    lanes_[me].state = state;
    swapcontext(&lanes_[me].context, &scheduler_);
  }
  bool all(State state) const {
    return std::all_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) { return lane.state == state; });
  }

  std::vector<Lane> lanes_;
  std::vector<Warp> warps_;
  std::vector<uint32_t> order_;  // of the warps
  std::vector<char> stacks_;
  ucontext_t scheduler_ = {};
  const std::function<void()>* body_ = nullptr;
  std::string error_;
  uint32_t at_ = 0;
  std::minstd_rand random_;
};

inline HostBlock& host_block() { return *HostBlock::current_block(); }

struct ThreadIndex {
  struct X {
    operator uint32_t() const { return host_block().thread(); }
  } x;
};
struct BlockSize {
  struct X {
    operator uint32_t() const { return host_block().n_threads(); }
  } x;
};
inline const ThreadIndex threadIdx;
inline const BlockSize blockDim;

inline void wait_for_previous() {}
inline void __syncthreads() { host_block().barrier(); }
inline void __syncwarp() { host_block().collective("syncwarp", 0); }
inline uint32_t __shfl_sync(uint32_t, uint32_t x, uint32_t lane) {
  return host_block().collective("shfl", x)[lane % kWarp];
}
inline uint32_t __shfl_xor_sync(uint32_t, uint32_t x, uint32_t bits) {
  const uint32_t lane = threadIdx.x % kWarp;
  return host_block().collective("shfl_xor", x)[lane ^ bits];
}
inline uint64_t __shfl_xor_sync(uint32_t mask, uint64_t x, uint32_t bits) {
  const uint32_t high = __shfl_xor_sync(mask, static_cast<uint32_t>(x >> 32), bits);
  return uint64_t{high} << 32 | __shfl_xor_sync(mask, static_cast<uint32_t>(x), bits);
}
inline uint32_t __shfl_up_sync(uint32_t, uint32_t x, uint32_t n) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t* all = host_block().collective("shfl_up", x);
  return lane >= n ? all[lane - n] : x;
}
inline float __uint_as_float(uint32_t x) {
  float f;
  std::memcpy(&f, &x, sizeof(f));
  return f;
}
inline uint32_t __float_as_uint(float f) {
  uint32_t x;
  std::memcpy(&x, &f, sizeof(x));
  return x;
}
inline float __shfl_up_sync(uint32_t mask, float x, uint32_t n) {
  return __uint_as_float(__shfl_up_sync(mask, __float_as_uint(x), n));
}
// For floats alone: integers of other types convert to those above.
template <std::same_as<float> Float>
Float __shfl_xor_sync(uint32_t mask, Float x, uint32_t bits) {
  return __uint_as_float(__shfl_xor_sync(mask, __float_as_uint(x), bits));
}
template <std::same_as<float> Float>
Float __shfl_sync(uint32_t mask, Float x, uint32_t lane) {
  return __uint_as_float(__shfl_sync(mask, __float_as_uint(x), lane));
}
inline uint32_t __ballot_sync(uint32_t, bool x) {
  const uint32_t* all = host_block().collective("ballot", x ? 1 : 0);
  uint32_t bits = 0;
  for (uint32_t i = 0; i < kWarp; ++i) bits |= all[i] << i;
  return bits;
}
inline bool __all_sync(uint32_t, bool x) {
  const uint32_t* all = host_block().collective("all", x ? 1 : 0);
  return std::all_of(all, all + kWarp, [](uint32_t v) { return v != 0; });
}
inline uint32_t __reduce_add_sync(uint32_t, uint32_t x) {
  const uint32_t* all = host_block().collective("reduce_add", x);
  uint32_t sum = 0;
  for (uint32_t i = 0; i < kWarp; ++i) sum += all[i];
  return sum;
}
inline uint32_t warp_sum(uint32_t x) { return __reduce_add_sync(kAllLanes, x); }
template <std::same_as<float> Float>
Float warp_sum(Float x) {
  for (uint32_t i = kWarp / 2; i > 0; i /= 2) x += __shfl_xor_sync(kAllLanes, x, i);
  return x;
}
inline float warp_max(float x) {
  for (uint32_t i = kWarp / 2; i > 0; i /= 2) x = std::fmax(x, __shfl_xor_sync(kAllLanes, x, i));
  return x;
}
inline uint32_t __reduce_max_sync(uint32_t, uint32_t x) {
  const uint32_t* all = host_block().collective("reduce_max", x);
  return *std::max_element(all, all + kWarp);
}
inline uint32_t atomicAdd(uint32_t* at, uint32_t x) {
  const uint32_t before = *at;
  *at += x;
  return before;
}
// Dot product of four signed bytes each.
inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 32; i += 8) sum += static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i);
  return sum;
}
struct __half {
  uint16_t bits;
};
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline float __half2float(__half h) { return f16_to_f32(h.bits); }
struct alignas(4) __half2 {
  __half x, y;
};
inline __half2 __floats2half2_rn(float x, float y) { return {{f32_to_f16(x)}, {f32_to_f16(y)}}; }
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<uint32_t>(x)); }
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline float __int_as_float(int x) { return __uint_as_float(static_cast<uint32_t>(x)); }
inline float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
inline float bf16_high(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000u); }

}  // namespace weir::cuda
