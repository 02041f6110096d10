// Lossless compression of one page of keys and values, and the checked block in which a page is stored outside the
// device. It knows nothing of where blocks lie (kv/spill_store.h) or why pages leave.
//
// A page is n bf16 values of any bits. The exponents (bits 14..7) of neighbouring values are alike, signs and mantissas
// are noise: the n exponent bytes become one Zstandard frame without magic number, size or checksum, and the n bytes of
// sign and mantissa follow as they are. A page that does not get smaller is stored as it is; its stored size, which is
// then the page's, tells so. So no page needs more than its own bytes.
//
//   block   = checksum (8 bytes), stored bytes (4 bytes), stored page; integers little-endian
//   stored  = the page, if stored bytes == page bytes; else frame of exponents, n bytes of sign and mantissa
//
// The checksum is the 64-bit XXH3 of the page's bytes, seeded with stream and position, so that a page cannot be taken
// for another one. Decoding trusts nothing: the caller fixes all sizes, and any bytes give a whole page or a failure.
//
// An encoder or decoder works in memory that it is given once, and allocates nothing. One thread at a time may use it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace weir {

inline constexpr uint32_t kMinCodecPageBytes = 256, kMaxCodecPageBytes = 32768;
inline constexpr uint32_t kBlockHeaderBytes = 12;

// Pages have 256 to 32,768 bytes, a multiple of 64.
constexpr bool is_codec_page(uint64_t page_bytes) {
  return page_bytes >= kMinCodecPageBytes && page_bytes <= kMaxCodecPageBytes && page_bytes % 64 == 0;
}

// The largest block of a page.
constexpr uint32_t max_block_bytes(uint32_t page_bytes) { return kBlockHeaderBytes + page_bytes; }

// The checksum of a page: its bytes, its stream, and the position of its first token.
uint64_t page_checksum(const void* page, uint32_t page_bytes, uint32_t stream, uint32_t position);

// Writes a block's header; what a header says.
void write_block_header(uint64_t checksum, uint32_t stored_bytes, std::byte* block);
uint64_t checksum_of(const std::byte* block);
uint32_t stored_bytes_of(const std::byte* block);

class PageEncoder {
 public:
  // Bytes of the workspace for pages of this size.
  static uint64_t workspace_bytes(uint32_t page_bytes);
  // `workspace` has workspace_bytes and 64-byte alignment; it belongs to the encoder until both end. Fails with
  // WEIR_ERR_INTERNAL when Zstandard refuses it.
  // `compresses`: pages are of bf16. Of quantised ones hardly anything is saved: they are stored as they are.
  Status init(uint32_t page_bytes, std::byte* workspace, bool compresses = true);
  // Writes the stored form to `out`, which has room for page_bytes and does not overlap the page. Returns its size, at
  // most page_bytes.
  uint32_t encode(const std::byte* page, std::byte* out);

 private:
  ZSTD_CCtx_s* context_ = nullptr;
  uint8_t* exponents_ = nullptr;  // [page_bytes / 2]
  uint32_t page_bytes_ = 0;
  bool compresses_ = true;
};

class PageDecoder {
 public:
  static uint64_t workspace_bytes(uint32_t page_bytes);
  Status init(uint32_t page_bytes, std::byte* workspace);  // as above
  // Restores a page of page_bytes to `out`, which does not overlap `stored`. False when the bytes are no page; then
  // `out` holds anything.
  bool decode(const std::byte* stored, uint64_t stored_bytes, std::byte* out);
  // The same of a whole block; false also when header, checksum, stream or position do not fit. `salt`: what the
  // checksum in the block was combined with (SpillStore); a saved block has none.
  bool decode_block(const std::byte* block, uint64_t block_bytes, uint32_t stream, uint32_t position, std::byte* out,
                    uint64_t salt = 0);

 private:
  ZSTD_DCtx_s* context_ = nullptr;
  uint8_t* exponents_ = nullptr;  // [page_bytes / 2]
  uint32_t page_bytes_ = 0;
};

}  // namespace weir
