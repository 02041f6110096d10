// Runs a fuzz target without libFuzzer: every seed as it is, then cut and changed copies of it, the same ones on every
// run. It finds what crashes, hangs or trips a sanitizer; it does not look for new paths, which is libFuzzer's work
// (WEIR_FUZZ).
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

constexpr int kCopiesPerSeed = 400;
constexpr auto kTimePerSeed =
    std::chrono::milliseconds(1500);  // large seeds get fewer copies, so that the test stays short

// xorshift64*: the copies must be the same on every machine.
uint64_t next_random(uint64_t& state) {
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545F4914F6CDD1Du;
}

// A heap block of exactly the input's size, so that AddressSanitizer sees a read one byte beyond it.
void run(const Bytes& input) {
  const Bytes exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

void change(Bytes& bytes, uint64_t& state) {
  static constexpr uint8_t kEdges[] = {0x00, 0x01, 0x7F, 0x80, 0xFF};
  if (bytes.empty()) return;
  // Headers and counts come first in most formats: half of the changes hit the first 256 bytes.
  const size_t range = next_random(state) % 2 == 0 ? std::min<size_t>(bytes.size(), 256) : bytes.size();
  const size_t at = next_random(state) % range;
  switch (next_random(state) % 4) {
    case 0:
      bytes[at] ^= static_cast<uint8_t>(1u << (next_random(state) % 8));
      break;
    case 1:
      bytes[at] = kEdges[next_random(state) % std::size(kEdges)];
      break;
    case 2:
      bytes.resize(at);
      break;
    default: {
      const size_t n = std::min<size_t>(8, bytes.size() - at);
      const uint8_t value = kEdges[next_random(state) % std::size(kEdges)];
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), n, value);
    }
  }
}

void run_copies(const Bytes& seed, uint64_t& state) {
  const auto end = std::chrono::steady_clock::now() + kTimePerSeed;
  for (int i = 0; i < kCopiesPerSeed && std::chrono::steady_clock::now() < end; ++i) {
    Bytes copy = seed;
    const uint64_t n_changes = 1 + next_random(state) % 4;
    for (uint64_t k = 0; k < n_changes; ++k) change(copy, state);
    run(copy);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER_WITH_SEEDS\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  uint64_t state = 0x9E3779B97F4A7C15u;
  run({});
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    const Bytes seed((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    run(seed);
    run_copies(seed, state);
  }
  std::printf("%zu seeds\n", files.size());
  return files.empty() ? 1 : 0;  // a target without seeds tests nothing
}
