// A head file (docs/formats/heads.md) for tests: any scores, so that layers have streaming heads in other places.
#pragma once

#include <cstdio>
#include <cstring>

#include "weir/session.h"

namespace weir::test {

// A file of its own beside the program, for the option heads_file; removed with the object.
class TestHeadFile {
 public:
  explicit TestHeadFile(const char* path, uint32_t sinks = 20, uint32_t recent = 40)
      : path_(path), sinks_(sinks), recent_(recent) {}
  ~TestHeadFile() { (void)std::remove(path_); }
  TestHeadFile(const TestHeadFile&) = delete;
  TestHeadFile& operator=(const TestHeadFile&) = delete;
  const char* path() const { return path_; }

  // Writes it for a model. False: the file could not be written.
  bool write_for(const weir_model* model) const {
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    if (weir_model_get_info(model, &info) != WEIR_OK) return false;
    std::FILE* file = std::fopen(path_, "w");
    if (file == nullptr) return false;
    std::fprintf(file, "weir-heads\t2\nlayers\t%u\nkv_heads\t%u\nhead_dim\t%u\nsinks\t%u\nrecent\t%u\n", info.n_layers,
                 info.n_kv_heads, info.head_dim, sinks_, recent_);
    uint32_t state = 1;
    for (const char* table : {"", "echo\n", "induction\n"}) {
      std::fputs(table, file);
      for (uint32_t i = 0; i < info.n_layers * info.n_kv_heads; ++i) {
        state = state * 1664525 + 1013904223;
        std::fprintf(file, "%.6f%s", (state >> 12) % 1000 / 1e3, (i + 1) % info.n_kv_heads == 0 ? "\n" : "\t");
      }
    }
    return std::fclose(file) == 0;
  }

 private:
  const char* path_;
  uint32_t sinks_, recent_;
};

// Whether options of `n` have the option heads, which needs the file.
inline bool has_heads(const weir_key_value* options, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (std::strcmp(options[i].key, "heads") == 0) return true;
  }
  return false;
}

}  // namespace weir::test
