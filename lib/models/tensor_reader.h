// Reads a model's tensors from a file by name: checks shape and type, and remembers which were taken. A tensor that
// nothing has asked for is an error, because ignoring one would silently give wrong answers.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <vector>

#include "core/notes.h"
#include "core/status.h"
#include "gguf/gguf.h"
#include "quant/weight_type.h"

namespace weir {

class TensorReader {
 public:
  TensorReader(const GgufFile& file, std::pmr::memory_resource* memory);
  // Names that follow are those of layer `layer`, "blk.<layer>.<name>".
  void set_layer(uint32_t layer);
  const char* prefix() const { return prefix_; }
  bool has(const char* name) const;
  bool has(const char* name);

  // A matrix [n_rows, n_cols] of any type that Weir computes with. Not `required` and absent: `out` stays empty.
  Status matrix(const char* name, uint32_t n_rows, uint32_t n_cols, Weight& out, bool required = true);
  // `n` matrices [n_rows, n_cols] in one tensor [n, n_rows, n_cols]; `out` is one matrix with the rows of all.
  Status stack(const char* name, uint32_t n, uint32_t n_rows, uint32_t n_cols, Weight& out);
  // A vector [n] of f32. Not `required` and absent: null.
  Status vector(const char* name, uint32_t n, const float*& out, bool required = true);
  // The same of [n] or [n, 1].
  Status column(const char* name, uint32_t n, const float*& out);
  // A matrix [n_rows, n_cols] of f32.
  Status table(const char* name, uint32_t n_rows, uint32_t n_cols, const float*& out);
  // Counts a tensor as taken that other code reads, if the file has it.
  void skip(const char* name);
  // Whether every tensor of the file was taken; the error names the first that was not. Of those that text can do
  // without, which are the blocks from `first_next` to before `end_next` and what sees and hears, there is a note.
  Status check_all_taken(const char* architecture, uint32_t first_next, uint32_t end_next, Notes& notes) const;

 private:
  Status set_weight(const GgufTensor& tensor, uint32_t n_rows, uint32_t n_cols, Weight& out);
  Status set_floats(const GgufTensor& tensor, const float*& out);
  Status find(const char* name, bool required, const GgufTensor*& out);
  const char* shape_text(const GgufTensor& tensor);

  const GgufFile& file_;
  std::pmr::vector<bool> taken_;  // [tensors of the file]
  char prefix_[32] = "";
  char name_[128] = "";  // of the tensor at hand, for messages
  char shape_[128] = "";
};

}  // namespace weir
