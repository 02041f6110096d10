// What the tests of golden models share: reading their files, and comparing logits. The formats are in
// tests/golden/models/README.md. What it does not do: say how far apart logits may be; every test has its own bounds.
#pragma once

#include <dirent.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "tests/cmocka_cpp.h"

namespace weir::test {

#define WEIR_GOLDEN_MODELS WEIR_SOURCE_DIR "/tests/golden/models/"

inline constexpr const char* kArchitectures[] = {
#define WEIR_ARCH(name) #name,
#include "models/models.inc"
#undef WEIR_ARCH
};

// <model>.<what>.golden: "llama_f32" and "raas"; `what` of <model>.golden is empty.
struct GoldenName {
  std::string model, what;
};

inline GoldenName golden_name(const std::string& file) {
  const size_t dot = file.find('.'), end = file.size() - std::string(".golden").size();
  return {file.substr(0, dot), dot == end ? "" : file.substr(dot + 1, end - dot - 1)};
}

// All golden files of the folder, in ascending order.
inline std::vector<std::string> golden_files() {
  std::vector<std::string> files;
  DIR* dir = opendir(WEIR_GOLDEN_MODELS);
  assert_non_null(dir);
  while (const dirent* entry = readdir(dir)) {
    if (std::string(entry->d_name).ends_with(".golden")) files.emplace_back(entry->d_name);
  }
  closedir(dir);
  std::sort(files.begin(), files.end());
  return files;
}

// Fills an array, vector or string.
template <class Container>
void read_into(std::ifstream& in, Container& to) {
  in.read(reinterpret_cast<char*>(std::data(to)), static_cast<std::streamsize>(std::size(to) * sizeof(*std::data(to))));
}

struct Comparison {
  double apart = 0;  // largest difference, relative to the largest expected logit; infinite if one is not a number
  size_t top_got = 0, top_want = 0;  // the most probable tokens
};

inline Comparison compare_logits(std::span<const float> want, const float* got) {
  Comparison c;
  double worst = 0, scale = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double apart = std::fabs(static_cast<double>(want[i]) - static_cast<double>(got[i]));
    scale = std::max(scale, std::fabs(static_cast<double>(want[i])));
    worst = std::isnan(apart) ? INFINITY : std::max(worst, apart);
    if (want[i] > want[c.top_want]) c.top_want = i;
    if (got[i] > got[c.top_got]) c.top_got = i;
  }
  c.apart = worst / scale;
  return c;
}

}  // namespace weir::test
