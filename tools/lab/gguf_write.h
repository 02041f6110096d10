// A small GGUF version 3 writer: metadata and tensors in the order they were added, tensor bytes from a callback.
// It knows how many bytes a weight type takes and nothing of what the bytes mean; reading is the library's business.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace weir_cli {

struct WeightType {
  const char* name;        // "q8_0"
  uint32_t id;             // number in the file
  uint32_t block_weights;  // a row must be a multiple of this
  uint32_t block_bytes;
};

// Throws std::runtime_error listing the names it knows.
const WeightType& weight_type(std::string_view name);

class GgufWriter {
 public:
  void add_u32(const std::string& key, uint32_t value);
  void add_f32(const std::string& key, float value);
  void add_bool(const std::string& key, bool value);
  void add_string(const std::string& key, const std::string& value);
  void add_strings(const std::string& key, const std::vector<std::string>& values);
  void add_i32s(const std::string& key, const std::vector<int32_t>& values);

  // dims slowest axis first. Throws std::runtime_error naming the tensor when a row is no whole number of blocks.
  void add_tensor(const std::string& name, const std::vector<uint64_t>& dims, const WeightType& type);

  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;  // slowest axis first
    const WeightType* type;
    uint64_t bytes;
    uint64_t offset;  // from the start of the data section
  };
  // Gives the bytes [offset, offset + n_bytes) of a tensor.
  using Source = std::function<const uint8_t*(const Tensor& tensor, uint64_t offset, uint64_t n_bytes)>;
  using Progress = std::function<void(uint64_t done, uint64_t total)>;

  uint64_t file_bytes() const;
  using Sink = std::function<void(const void* bytes, uint64_t n_bytes)>;

  // Everything before the tensors' bytes, with padding.
  std::string header() const;
  void write(const Sink& sink, const Source& source, const Progress& progress) const;
  // The same into `path`; on failure removes it and throws std::runtime_error.
  void write(const std::string& path, const Source& source, const Progress& progress) const;

 private:
  uint64_t n_values_ = 0;
  std::string values_;  // encoded
  std::vector<Tensor> tensors_;
  uint64_t data_bytes_ = 0;
};

}  // namespace weir_cli
