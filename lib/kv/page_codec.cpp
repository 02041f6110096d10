// The codec's two planes, and Zstandard over memory that is given. Of Zstandard's experimental interface it uses static
// contexts, frames without magic number and Huffman codes with a fast strategy.
#include "kv/page_codec.h"

#include <bit>
#include <cstring>

#define XXH_INLINE_ALL  // no symbol of it
#include <xxhash.h>

#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

#include "core/memory.h"

// libweir.so is linked with --wrap=calloc: what a libzstd.a inside it asks for beyond the memory that it was given, it
// does not get. Nothing else in libweir.so calls calloc.
extern "C" void* __wrap_calloc(size_t, size_t) { return nullptr; }

namespace weir {
namespace {

static_assert(std::endian::native == std::endian::little, "blocks are little-endian");

// Matches are rare among exponents and cost more to find than they save: the search skips ahead in large steps
// (targetLength), and nearly everything goes through the Huffman code. The window covers the largest page's exponents.
constexpr ZSTD_compressionParameters kParameters = {.windowLog = 14,
                                                    .chainLog = 6,
                                                    .hashLog = 6,
                                                    .searchLog = 1,
                                                    .minMatch = 7,
                                                    .targetLength = 1000,
                                                    .strategy = ZSTD_fast};
static_assert(kMaxCodecPageBytes / 2 <= 1u << kParameters.windowLog);

uint64_t encoder_context_bytes() { return align_up(ZSTD_estimateCCtxSize_usingCParams(kParameters), kCacheLine); }
uint64_t decoder_context_bytes() { return align_up(ZSTD_estimateDCtxSize(), kCacheLine); }

bool set_parameters(ZSTD_CCtx* context) {
  const struct {
    ZSTD_cParameter name;
    int value;
  } settings[] = {{ZSTD_c_strategy, kParameters.strategy},
                  {ZSTD_c_windowLog, static_cast<int>(kParameters.windowLog)},
                  {ZSTD_c_hashLog, static_cast<int>(kParameters.hashLog)},
                  {ZSTD_c_minMatch, static_cast<int>(kParameters.minMatch)},
                  {ZSTD_c_targetLength, static_cast<int>(kParameters.targetLength)},
                  {ZSTD_c_literalCompressionMode, ZSTD_ps_enable},
                  {ZSTD_c_format, ZSTD_f_zstd1_magicless},
                  {ZSTD_c_contentSizeFlag, 0},
                  {ZSTD_c_checksumFlag, 0},
                  {ZSTD_c_dictIDFlag, 0}};
  for (const auto& s : settings) {
    if (ZSTD_isError(ZSTD_CCtx_setParameter(context, s.name, s.value)) != 0) return false;
  }
  return true;
}

Status refused(const char* what) {
  return fail(WEIR_ERR_INTERNAL, "Zstandard %s refuses the memory or the settings of its %s", ZSTD_versionString(),
              what);
}

}  // namespace

uint64_t page_checksum(const void* page, uint32_t page_bytes, uint32_t stream, uint32_t position) {
  return XXH3_64bits_withSeed(page, page_bytes, uint64_t{stream} << 32 | position);
}

void write_block_header(uint64_t checksum, uint32_t stored_bytes, std::byte* block) {
  std::memcpy(block, &checksum, 8);
  std::memcpy(block + 8, &stored_bytes, 4);
}

uint64_t checksum_of(const std::byte* block) {
  uint64_t checksum = 0;
  std::memcpy(&checksum, block, 8);
  return checksum;
}

uint32_t stored_bytes_of(const std::byte* block) {
  uint32_t stored_bytes = 0;
  std::memcpy(&stored_bytes, block + 8, 4);
  return stored_bytes;
}

uint64_t PageEncoder::workspace_bytes(uint32_t page_bytes) { return encoder_context_bytes() + page_bytes / 2; }

Status PageEncoder::init(uint32_t page_bytes, std::byte* workspace, bool compresses) {
  compresses_ = compresses;
  context_ = ZSTD_initStaticCCtx(workspace, encoder_context_bytes());
  exponents_ = reinterpret_cast<uint8_t*>(workspace + encoder_context_bytes());
  page_bytes_ = page_bytes;
  return context_ != nullptr && set_parameters(context_) ? Status{} : refused("encoder");
}

uint32_t PageEncoder::encode(const std::byte* page, std::byte* out) {
  if (!compresses_) {
    std::memcpy(out, page, page_bytes_);
    return page_bytes_;
  }
  const uint32_t n = page_bytes_ / 2;
  const auto* __restrict values = reinterpret_cast<const uint16_t*>(page);
  uint8_t* __restrict exponents = exponents_;
  for (uint32_t i = 0; i < n; ++i) exponents[i] = static_cast<uint8_t>(values[i] >> 7);
  const size_t frame = ZSTD_compress2(context_, out, page_bytes_, exponents, n);
  if (ZSTD_isError(frame) != 0 || frame >= n) {  // also when the frame needs more room than the page
    std::memcpy(out, page, page_bytes_);
    return page_bytes_;
  }
  auto* __restrict rest = reinterpret_cast<uint8_t*>(out) + frame;
  for (uint32_t i = 0; i < n; ++i) rest[i] = static_cast<uint8_t>((values[i] >> 8 & 0x80) | (values[i] & 0x7F));
  return static_cast<uint32_t>(frame) + n;
}

uint64_t PageDecoder::workspace_bytes(uint32_t page_bytes) { return decoder_context_bytes() + page_bytes / 2; }

Status PageDecoder::init(uint32_t page_bytes, std::byte* workspace) {
  context_ = ZSTD_initStaticDCtx(workspace, decoder_context_bytes());
  exponents_ = reinterpret_cast<uint8_t*>(workspace + decoder_context_bytes());
  page_bytes_ = page_bytes;
  if (context_ == nullptr) return refused("decoder");
  const size_t set = ZSTD_DCtx_setParameter(context_, ZSTD_d_format, ZSTD_f_zstd1_magicless);
  return ZSTD_isError(set) == 0 ? Status{} : refused("decoder");
}

bool PageDecoder::decode(const std::byte* stored, uint64_t stored_bytes, std::byte* out) {
  const uint32_t n = page_bytes_ / 2;
  if (stored_bytes == page_bytes_) {
    std::memcpy(out, stored, page_bytes_);
    return true;
  }
  if (stored_bytes <= n || stored_bytes > page_bytes_) return false;
  const uint64_t frame = stored_bytes - n;
  if (ZSTD_decompressDCtx(context_, exponents_, n, stored, frame) != n) return false;  // an error is a huge number
  const auto* __restrict rest = reinterpret_cast<const uint8_t*>(stored) + frame;
  const uint8_t* __restrict exponents = exponents_;
  auto* __restrict values = reinterpret_cast<uint16_t*>(out);
  for (uint32_t i = 0; i < n; ++i)
    values[i] = static_cast<uint16_t>((rest[i] & 0x80) << 8 | exponents[i] << 7 | (rest[i] & 0x7F));
  return true;
}

bool PageDecoder::decode_block(const std::byte* block, uint64_t block_bytes, uint32_t stream, uint32_t position,
                               std::byte* out, uint64_t salt) {
  if (block_bytes < kBlockHeaderBytes) return false;
  const uint32_t stored_bytes = stored_bytes_of(block);
  return stored_bytes == block_bytes - kBlockHeaderBytes && decode(block + kBlockHeaderBytes, stored_bytes, out) &&
         (page_checksum(out, page_bytes_, stream, position) ^ salt) == checksum_of(block);
}

}  // namespace weir
