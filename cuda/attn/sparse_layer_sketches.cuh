// Estimates in sparse_layer.cu from sketches (lib/ops/sketch.h): the logarithm of the sum of exp(logit) over a page's
// tokens, each of which has 2 bits a channel.
// Products of codes are whole numbers, so exact, and come from tensor cores: a page's tokens are the rows of the MMA,
// query heads its columns. With n = lane / 4 and c = lane % 4 a lane gets the products of tokens 4 (n % 4) + n / 4 * 2
// and the next one with heads 2 c and 2 c + 1, and swaps some with lane ^ 16, so that it has four tokens, 4 (n % 4) and
// behind, of one head, 2 c + n / 4. A group of up to four heads has its columns twice, and every lane the tokens of one
// of two pages.
// Numerics: as page_sketch.cu, with powers and logarithms to base 2 by the hardware's approximations.
#pragma once

#include "cuda/attn/sparse_layer_work.cuh"
#include "cuda/common/mma_int8.cuh"

namespace weir::cuda::sparse {

template <uint32_t kDim>
struct Sketches;  // the host names kernels by it

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// A power of 2; 0 below 2^-126.
__device__ inline float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The sketches of a warp's rows, four of which are on their way while the four before are estimated. Code for more of
// them at once was slower: it runs a few times, and fetching its instructions takes time, too.
template <uint32_t kDim>
struct Sketches {
  static constexpr uint32_t kRows = 4;
  static constexpr uint32_t kEach = kDim / 64;  // words of a lane for each of its two tokens
  static constexpr uint32_t kUnits = sketch_words(kDim) * 2 * kPageTokens + kPageTokens;  // of 16 bits
  uint32_t own = threadIdx.x / kWarp * kRows;                                             // the block's own row
  uint32_t index;             // of the digest of row own + lane % kRows
  uint2 words[kRows][kEach];  // words 4 i + lane % 4 of the lane's tokens before the swap
  uint2 scales[kRows];        // of its tokens after that; of two pages that share columns, one

  // Loading takes two steps, so that other reads can be in flight with each.
  __device__ explicit Sketches(const Work<kDim>& w) : index(find(w, own)) {}
  __device__ void load(const Work<kDim>& w) {
    if (has_pairs(w)) {
      load_rows<true>(w, index);
    } else {
      load_rows<false>(w, index);
    }
  }

  __device__ static void store_query(Shared<kDim>& s, uint32_t head, uint32_t channel, float x) {
    s.estimates.sketches.rows[head][channel] = x;
  }

  // Rotates the queries and rounds them to codes, as sketch_query does; a warp takes a head. Synchronises the block
  // before. Columns of heads that the group does not have are multiplied as they are, and nothing comes of it.
  __device__ static void prepare_queries(const Work<kDim>& w) {
    __syncthreads();
    SketchQueries<kDim>& s = w.s.estimates.sketches;
    const uint32_t head = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    if (head >= w.group) return;
    constexpr uint32_t kOfLane = kDim / kWarp;
    float x[kOfLane], most = 0.0f;
    bool finite = true;
#pragma unroll
    for (uint32_t j = 0; j < kOfLane; ++j) x[j] = s.rows[head][j * kWarp + lane];
    add_row_by_hadamard(x, kDim);
#pragma unroll
    for (uint32_t j = 0; j < kOfLane; ++j) {
      most = fmaxf(most, fabsf(x[j]));
      finite = finite && isfinite(x[j]);
    }
    most = warp_max(most);
    finite = __all_sync(kAllLanes, finite) != 0;
    const float inverse = __fdiv_rn(127.0f, most);
    const bool has_codes = finite && isfinite(inverse);
    int sum = 0;
#pragma unroll
    for (uint32_t j = 0; j < kOfLane; ++j) {
      const int code = has_codes ? __float2int_rn(__fmul_rn(x[j], inverse)) : 0;
      reinterpret_cast<int8_t*>(s.codes[head])[j * kWarp + lane] = static_cast<int8_t>(code);
      sum += code;
    }
    sum = __reduce_add_sync(kAllLanes, sum);
    const float factor = finite ? __fdiv_rn(most, 127.0f) * w.k.attn.scale * kLog2E : NAN;
    if (lane == 0) s.factor[head] = 2.0f * factor, s.offset[head] = -3.0f * static_cast<float>(sum) * factor;
  }

  // Estimates of all rows of the warp.
  __device__ void score_rows(const Work<kDim>& w) {
    if (has_pairs(w)) {
      score_rows<true>(w);
    } else {
      score_rows<false>(w);
    }
  }

 private:
  static constexpr uint32_t kStep = kWarps * kRows;

  // What a lane needs of the queries.
  struct Query {
    uint4 codes[kEach];    // of head lane / 4 of the columns, for this lane's words
    float factor, offset;  // of the head whose tokens the lane has after the swap
  };

  static __device__ bool has_pairs(const Work<kDim>& w) { return w.group <= kHeads / 2; }

  static __device__ uint32_t find(const Work<kDim>& w, uint32_t own) {
    return w.digest_index(min(w.row(own) + threadIdx.x % kRows, w.n - 1));
  }
  static __device__ const uint16_t* sketch_at(const Work<kDim>& w, uint32_t index) {
    return w.k.attn.kv.digests + size_t{index} * kUnits;
  }

  // The sketch of the last row, which rows behind it repeat, is that of another page until this one is full. Nothing
  // comes of its estimate: the last page is attended whatever it is, and no sum has it.
  template <bool kPairs>
  __device__ void load_rows(const Work<kDim>& w, uint32_t index) {
    const uint32_t lane = threadIdx.x % kWarp, n = lane / 4, c = lane % 4;
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint32_t row = __shfl_sync(kAllLanes, index, r);
      const auto* from = reinterpret_cast<const uint2*>(sketch_at(w, row)) + c * (kPageTokens / 2) + n % 4 * 2 + n / 4;
#pragma unroll
      for (uint32_t i = 0; i < kEach; ++i) words[r][i] = from[4 * i * (kPageTokens / 2)];
      if constexpr (!kPairs) scales[r] = reinterpret_cast<const uint2*>(sketch_at(w, row))[kDim / 2 + n % 4];
    }
#pragma unroll
    for (uint32_t r = 0; kPairs && r < kRows; r += 2) {
      const uint32_t row = __shfl_sync(kAllLanes, index, r + c / 2);
      scales[r] = reinterpret_cast<const uint2*>(sketch_at(w, row))[kDim / 2 + n % 4];
    }
  }

  template <bool kPairs>
  __device__ void score_rows(const Work<kDim>& w) {
    constexpr uint32_t kColumns = kPairs ? kHeads / 2 : kHeads, kParts = kPairs ? kRows / 2 : kRows;
    const SketchQueries<kDim>& s = w.s.estimates.sketches;
    const uint32_t lane = threadIdx.x % kWarp, n = lane / 4, c = lane % 4;
    const uint32_t head = (2 * c + n / 4) % kColumns;  // after the swap
    Query q;
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) q.codes[i] = s.codes[n % kColumns][4 * i + c];
    q.factor = s.factor[head], q.offset = s.offset[head];
    const float unit = kLn2 / w.k.attn.scale;
    const bool stores = head < w.group && (!kPairs || n % 2 == c / 2);
    float* to = w.score + head * w.own_stride + n % 4;
    uint32_t unusual = 0;
#pragma unroll 1
    while (own < w.n_own) {
      const uint32_t next = own + kStep;
      index = find(w, next);
      int product[kParts][4];
      uint2 scale[kParts];
#pragma unroll
      for (uint32_t part = 0; part < kParts; ++part) {
        if constexpr (kPairs) {
          int of_first[4], of_second[4];
          multiply_codes(q, 2 * part, of_first);
          multiply_codes(q, 2 * part + 1, of_second);
#pragma unroll
          for (uint32_t i = 0; i < 4; ++i) product[part][i] = c < 2 ? +of_first[i] : +of_second[i];
          scale[part] = scales[2 * part];
        } else {
          multiply_codes(q, part, product[part]);
          scale[part] = scales[part];
        }
        unusual |= above_finite(scale[part].x) | above_finite(scale[part].y);
      }
      load_rows<kPairs>(w, index);
      float high[kParts], total[kParts];
      add_tokens<kParts>(q, product, scale, high, total);
      // The lane keeps the sum of row n % 4. Values are chosen, not elements of arrays, which would be in memory.
      const uint32_t kept = kPairs ? n % 4 / 2 : n % 4;
      float kept_high = high[0], kept_total = total[0];
#pragma unroll
      for (uint32_t part = 1; part < kParts; ++part) {
        const float part_high = high[part], part_total = total[part];
        kept_high = kept == part ? +part_high : +kept_high;
        kept_total = kept == part ? +part_total : +kept_total;
      }
      const float score = (kept_high + __log2f(kept_total)) * unit;
      if (stores) to[own] = score > kSketchMost ? kSketchMost : score;
      own = next;
    }
    if (__any_sync(kAllLanes, unusual != 0) != 0) mark_unusual(w);
  }

  // The highest bits of both halves that are infinite or no numbers; also of negative ones, which no scale is.
  static __device__ uint32_t above_finite(uint32_t two) { return (two + 0x00800080u) & 0x80008000u; }

  // The products of row r. Which channels stand in which column of an operand does not matter as long as both operands
  // agree: column 4 c + i of a half has channel 4 j + i of a word of lane c, for one j.
  __device__ void multiply_codes(const Query& q, uint32_t r, int (&product)[4]) const {
    const auto code = [](uint32_t word, uint32_t j) { return word >> 2 * j & kSketchMask; };
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) {
      const uint2 two = words[r][i];
      const uint32_t low[4] = {code(two.x, 0), code(two.y, 0), code(two.x, 1), code(two.y, 1)},
                     high[4] = {code(two.x, 2), code(two.y, 2), code(two.x, 3), code(two.y, 3)};
      if (i == 0) {
        mma_int8<true>(product, low, q.codes[i].x, q.codes[i].y);
      } else {
        mma_int8<false>(product, low, q.codes[i].x, q.codes[i].y);
      }
      mma_int8<false>(product, high, q.codes[i].z, q.codes[i].w);
    }
  }

  // Sums of powers of 2 over the tokens of pages, 2^high * total. `product`: of two tokens with two heads, whole
  // numbers below 2^23. All pages go through each step together, because shuffles keep their order.
  template <uint32_t kParts>
  static __device__ void add_tokens(const Query& q, int (&product)[kParts][4], const uint2 (&scale)[kParts],
                                    float (&high)[kParts], float (&total)[kParts]) {
    const bool is_second = threadIdx.x % kWarp >= 16;
    float logit[kParts][4];
#pragma unroll
    for (uint32_t part = 0; part < kParts; ++part) {
      int(&x)[4] = product[part];
      const int own[2] = {is_second ? x[1] : x[0], is_second ? x[3] : x[2]};
      const int other[2] = {__shfl_xor_sync(kAllLanes, is_second ? x[0] : x[1], 16),
                            __shfl_xor_sync(kAllLanes, is_second ? x[2] : x[3], 16)};
      const uint32_t of_own = is_second ? scale[part].y : scale[part].x,
                     of_other = is_second ? scale[part].x : scale[part].y;
      const auto logit_of = [&](int of, float by) { return fmaf(static_cast<float>(of), q.factor, q.offset) * by; };
      logit[part][0] = logit_of(own[0], bf16_low(of_own)), logit[part][1] = logit_of(own[1], bf16_high(of_own));
      logit[part][2] = logit_of(other[0], bf16_low(of_other)), logit[part][3] = logit_of(other[1], bf16_high(of_other));
      high[part] = fmaxf(fmaxf(logit[part][0], logit[part][1]), fmaxf(logit[part][2], logit[part][3]));
    }
    // Lanes with the same head are 4 and 8 apart.
#pragma unroll
    for (uint32_t apart = 4; apart <= 8; apart *= 2) {
#pragma unroll
      for (uint32_t part = 0; part < kParts; ++part)
        high[part] = fmaxf(high[part], __shfl_xor_sync(kAllLanes, high[part], apart));
    }
#pragma unroll
    for (uint32_t part = 0; part < kParts; ++part) {
      const auto power = [&](uint32_t i) { return power_of_2(logit[part][i] - high[part]); };
      total[part] = (power(0) + power(1)) + (power(2) + power(3));
    }
#pragma unroll
    for (uint32_t apart = 4; apart <= 8; apart *= 2) {
#pragma unroll
      for (uint32_t part = 0; part < kParts; ++part) total[part] += __shfl_xor_sync(kAllLanes, total[part], apart);
    }
  }

  // Estimates of pages with scales that are not finite: one with a key that is not finite is attended, one that is lost
  // is not.
  static __device__ void mark_unusual(const Work<kDim>& w) {
    __syncwarp();  // the estimates are there
    const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll 1
    for (uint32_t i = threadIdx.x / kWarp * kRows; i < w.n_own; i += (i + 1) % kRows != 0 ? 1 : kStep - kRows + 1) {
      if (w.row(i) + 1 >= w.n) break;
      const uint16_t scale = sketch_at(w, w.digest_index(w.row(i)))[2 * kDim + lane % kPageTokens];
      const bool is_infinite = __any_sync(kAllLanes, scale == kSketchInfinite) != 0,
                 is_lost = __any_sync(kAllLanes, (scale & 0x7FFFu) > kSketchInfinite) != 0;
      if (lane < w.group && (is_infinite || is_lost)) w.score[lane * w.own_stride + i] = is_lost ? NAN : kSketchMost;
    }
  }
};

#endif

}  // namespace weir::cuda::sparse
