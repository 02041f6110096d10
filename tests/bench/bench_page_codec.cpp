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

#include "api/handles.h"
#include "kv/page_codec.h"

namespace {

using namespace weir;

void check(weir_status status, const char* what) {
  if (status == WEIR_OK) return;
  std::fprintf(stderr, "%s: %s\n", what, weir_last_error());
  std::exit(1);
}

double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// "x14 = x9 + x2 = 23 + 61 = 84."
std::string sums() {
  int value[400];
  std::string text;
  for (int i = 0; i < 400; ++i) {
    value[i] = i < 12 ? (i * 37 + 11) % 100 : (value[i - 5] + value[i - 12]) % 100;
    if (i < 12) continue;
    const auto number = [](int n) { return std::to_string(n); };
    text += "x" + number(i) + " = x" + number(i - 5) + " + x" + number(i - 12) + " = " + number(value[i - 5]) + " + " +
            number(value[i - 12]) + " = " + number(value[i]) + ".\n";
  }
  return text;
}

// The sealed pages of a session that has read the text, stream after stream.
std::vector<std::byte> read_pages(const char* model_path, const std::string& text, uint64_t most_tokens,
                                  uint32_t& page_bytes) {
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  weir_session* session = nullptr;
  check(weir_runtime_create(nullptr, &runtime), "runtime");
  check(weir_model_open(runtime, model_path, nullptr, &model), "model");
  std::vector<weir_token> tokens(text.size() + 8);
  uint64_t n = 0;
  check(weir_tokenize(model, text.data(), text.size(), 0, tokens.data(), tokens.size(), &n), "tokenize");
  n = std::min(n, most_tokens);
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.context_tokens = static_cast<uint32_t>(n + 1);
  check(weir_session_create(model, &options, &session), "session");
  check(weir_session_prefill(session, tokens.data(), n, nullptr, nullptr), "prefill");
  const KvCache& kv = session->kv();
  page_bytes = static_cast<uint32_t>(kv.shape().page_bytes());
  std::vector<std::byte> pages;
  for (uint32_t s = 0; s < kv.shape().n_streams(); ++s) {
    const StreamView stream = kv.stream(s);
    for (uint32_t row = 0; row + 1 < stream.n_pages; ++row) {
      const auto* page = reinterpret_cast<const std::byte*>(kv.page_keys(stream.slots[row]));
      pages.insert(pages.end(), page, page + page_bytes);
    }
  }
  std::printf("%llu tokens, %u streams\n", static_cast<unsigned long long>(n), kv.shape().n_streams());
  weir_session_destroy(session);
  weir_model_close(model);
  weir_runtime_destroy(runtime);
  return pages;
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
  check(encoder.init(page_bytes, aligned(work[0])).code(), "encoder");
  check(decoder.init(page_bytes, aligned(work[1])).code(), "decoder");
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
  std::string text = sums();
  if (argc > 2) {
    std::ifstream in(argv[2], std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(in), {});
    text.resize(std::min<size_t>(text.size(), 100000));
  }
  uint32_t page_bytes = 0;
  const auto pages = read_pages(argv[1], text, argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 2704, page_bytes);
  for (uint32_t bytes = page_bytes; bytes <= std::min(4 * page_bytes, kMaxCodecPageBytes); bytes *= 2)
    measure(pages, bytes);
  return 0;
}
