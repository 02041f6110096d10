// Ratio and speed of the page codec on pages of a real conversation: a model reads a text, or without one lines of sums
// as the embedded model writes them, and its sealed pages are compressed and restored on one core. Times are the
// thread's own, best of five, so that other programs disturb little. Neighbouring pages taken together stand for larger
// ones.
//
//   bench_page_codec MODEL.gguf [TEXT [TOKENS]]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "kv/page_codec.h"
#include "tests/kv/model_pages.h"

namespace {

using namespace weir;

double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

void measure(const std::vector<std::byte>& pages, uint32_t page_bytes) {
  const size_t n = pages.size() / page_bytes;
  std::vector<std::byte> work[2] = {std::vector<std::byte>(PageEncoder::workspace_bytes(page_bytes) + 64),
                                    std::vector<std::byte>(PageDecoder::workspace_bytes(page_bytes) + 64)};
  const auto aligned = [](std::vector<std::byte>& v) {
    return reinterpret_cast<std::byte*>(align_up(reinterpret_cast<uint64_t>(v.data()), 64));
  };
  PageEncoder encoder;
  PageDecoder decoder;
  if (!encoder.init(page_bytes, aligned(work[0])).ok() || !decoder.init(page_bytes, aligned(work[1])).ok())
    std::abort();
  const uint32_t room = max_block_bytes(page_bytes);
  std::vector<std::byte> blocks(n * room), page(page_bytes);
  std::vector<uint32_t> size(n);
  double seconds[3] = {1e9, 1e9, 1e9};
  uint64_t stored = 0, cells = 0;
  for (int repetition = 0; repetition < 5; ++repetition) {
    double start = thread_seconds();
    stored = cells = 0;
    for (size_t i = 0; i < n; ++i) {
      size[i] = encoder.encode(&pages[i * page_bytes], &blocks[i * room + kBlockHeaderBytes]);
      stored += size[i];
      cells += (kBlockHeaderBytes + size[i] + 251) / 252;  // 256 bytes with the link to the next
    }
    seconds[0] = std::min(seconds[0], thread_seconds() - start);
    start = thread_seconds();
    for (size_t i = 0; i < n; ++i) {
      write_block_header(page_checksum(&pages[i * page_bytes], page_bytes, 0, static_cast<uint32_t>(i)), size[i],
                         &blocks[i * room]);
    }
    seconds[1] = std::min(seconds[1], thread_seconds() - start);
    start = thread_seconds();
    for (size_t i = 0; i < n; ++i) {
      if (!decoder.decode_block(&blocks[i * room], kBlockHeaderBytes + size[i], 0, static_cast<uint32_t>(i),
                                page.data()))
        std::abort();
    }
    seconds[2] = std::min(seconds[2], thread_seconds() - start);
  }
  const double bytes = static_cast<double>(n) * page_bytes;
  std::printf(
      "%6u B a page, %6zu pages: ratio %.4f, in cells %.4f; compress %.2f GB/s, checksum %.1f GB/s, restore and "
      "check %.2f GB/s\n",
      page_bytes, n, bytes / static_cast<double>(stored), bytes / static_cast<double>(cells * 256),
      bytes / seconds[0] * 1e-9, bytes / seconds[1] * 1e-9, bytes / seconds[2] * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL.gguf [TEXT [TOKENS]]\n", argv[0]);
    return 2;
  }
  std::string text = model_pages::sums();
  if (argc > 2) {
    std::ifstream in(argv[2], std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(in), {});
    text.resize(std::min<size_t>(text.size(), 100000));
  }
  uint32_t page_bytes = 0;
  const uint64_t n_tokens = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 2704;
  const auto pages = model_pages::read(argv[1], text, n_tokens, page_bytes);
  for (uint32_t bytes = page_bytes; bytes <= std::min(4 * page_bytes, kMaxCodecPageBytes); bytes *= 2)
    measure(pages, bytes);
  return 0;
}
