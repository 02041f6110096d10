// Fuzz target: any bytes as a stored page, as a whole block, and as a page to store. What decodes must be a page that
// its checksum confirms and that survives another round trip; nothing may be read or written outside the buffers.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "kv/page_codec.h"

namespace {

using namespace weir;

void require(bool promise) {
  if (!promise) __builtin_trap();
}

struct Aligned {
  explicit Aligned(uint64_t n) : bytes(static_cast<std::byte*>(std::aligned_alloc(64, (n + 63) / 64 * 64))) {}
  ~Aligned() { std::free(bytes); }
  std::byte* bytes;
};

struct Codec {
  explicit Codec(uint32_t page_bytes)
      : n(page_bytes), one(PageEncoder::workspace_bytes(n)), two(PageDecoder::workspace_bytes(n)) {
    require(encoder.init(n, one.bytes).ok() && decoder.init(n, two.bytes).ok());
  }
  uint32_t n;
  Aligned one, two;
  PageEncoder encoder;
  PageDecoder decoder;
};

void round_trip(Codec& codec, const std::byte* page) {
  const std::unique_ptr<std::byte[]> stored(new std::byte[codec.n]), back(new std::byte[codec.n]);
  const uint32_t stored_bytes = codec.encoder.encode(page, stored.get());
  require(stored_bytes <= codec.n);
  const std::unique_ptr<std::byte[]> exact(new std::byte[stored_bytes]);
  std::memcpy(exact.get(), stored.get(), stored_bytes);
  require(codec.decoder.decode(exact.get(), stored_bytes, back.get()));
  require(std::memcmp(back.get(), page, codec.n) == 0);
}

void try_all(Codec& codec, const std::byte* data, size_t size) {
  const std::unique_ptr<std::byte[]> page(new std::byte[codec.n]());
  if (codec.decoder.decode(data, size, page.get())) round_trip(codec, page.get());
  if (codec.decoder.decode_block(data, size, 3, 48, page.get())) {
    uint64_t checksum = 0;
    std::memcpy(&checksum, data, 8);
    require(page_checksum(page.get(), codec.n, 3, 48) == checksum);
  }
  std::memset(page.get(), 0, codec.n);
  std::memcpy(page.get(), data, size < codec.n ? size : codec.n);
  round_trip(codec, page.get());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Codec small(256), page(1024), large(4096);
  if (data == nullptr) return 0;
  for (Codec* codec : {&small, &page, &large}) {
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    try_all(*codec, bytes, size);
    // The stored part alone of what is a block.
    if (size > kBlockHeaderBytes) try_all(*codec, bytes + kBlockHeaderBytes, size - kBlockHeaderBytes);
  }
  return 0;
}
