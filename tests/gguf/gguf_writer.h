// Builds GGUF files in memory for tests. It writes what it is told, including wrong counts and offsets, so it also
// makes broken files; nothing is checked. Not a part of the library.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"

namespace weir_test {

using Bytes = std::vector<uint8_t>;

inline void put(Bytes& out, const void* data, size_t n) {
  if (n == 0) return;
  const auto* bytes = static_cast<const uint8_t*>(data);
  out.insert(out.end(), bytes, bytes + n);
}

template <class T>
void put(Bytes& out, T number) {
  put(out, &number, sizeof(number));
}

inline void put(Bytes& out, std::string_view text) {
  put(out, uint64_t{text.size()});
  put(out, text.data(), text.size());
}

class GgufWriter {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;     // used for padding; add the key general.alignment yourself
  int64_t n_values_error = 0;  // added to the counts in the header
  int64_t n_tensors_error = 0;

  // A scalar; T must have the size of the type (uint8_t for booleans).
  template <class T>
  GgufWriter& add(std::string_view key, weir::GgufType type, T value) {
    begin_value(key, type);
    put(values_, value);
    return *this;
  }
  GgufWriter& add_u32(std::string_view key, uint32_t value) { return add(key, weir::GgufType::kU32, value); }
  GgufWriter& add_f32(std::string_view key, float value) { return add(key, weir::GgufType::kF32, value); }
  GgufWriter& add_bool(std::string_view key, bool value) { return add(key, weir::GgufType::kBool, uint8_t{value}); }
  GgufWriter& add_string(std::string_view key, std::string_view value) {
    begin_value(key, weir::GgufType::kString);
    put(values_, value);
    return *this;
  }
  GgufWriter& add_strings(std::string_view key, const std::vector<std::string>& strings) {
    begin_array(key, weir::GgufType::kString, strings.size());
    for (const std::string& text : strings) put(values_, std::string_view(text));
    return *this;
  }
  template <class T>
  GgufWriter& add_array(std::string_view key, weir::GgufType element_type, const std::vector<T>& elements) {
    begin_array(key, element_type, elements.size());
    for (T element : elements) put(values_, element);
    return *this;
  }

  // A value of a file that was read, under any key.
  GgufWriter& add_value(std::string_view key, const weir::GgufValue& value) {
    if (value.type == weir::GgufType::kString) return add_string(key, value.text);
    if (value.type == weir::GgufType::kArray) {
      begin_array(key, value.element_type, value.count);
      put(values_, value.data, value.data_bytes);
      return *this;
    }
    begin_value(key, value.type);
    put(values_, &value.raw, weir::gguf_type_bytes(value.type));
    return *this;
  }

  // `dims` slowest axis first. Offsets follow the alignment.
  GgufWriter& add_tensor(std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type_id,
                         const Bytes& data) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    return add_tensor_at(name, dims, type_id, data_.size(), data);
  }
  // The same with any offset; the data is appended wherever that is.
  GgufWriter& add_tensor_at(std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type_id,
                            uint64_t offset, const Bytes& data) {
    put(infos_, name);
    put(infos_, static_cast<uint32_t>(dims.size()));
    for (auto dim = dims.end(); dim != dims.begin();) put(infos_, *--dim);
    put(infos_, type_id);
    put(infos_, offset);
    put(data_, data.data(), data.size());
    ++n_tensors_;
    return *this;
  }

  Bytes build() const {
    Bytes out;
    put(out, "GGUF", 4);
    put(out, version);
    put(out, n_tensors_ + static_cast<uint64_t>(n_tensors_error));
    put(out, n_values_ + static_cast<uint64_t>(n_values_error));
    put(out, values_.data(), values_.size());
    put(out, infos_.data(), infos_.size());
    if (n_tensors_ == 0) return out;
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    put(out, data_.data(), data_.size());
    return out;
  }

 private:
  void begin_value(std::string_view key, weir::GgufType type) {
    put(values_, key);
    put(values_, static_cast<uint32_t>(type));
    ++n_values_;
  }
  void begin_array(std::string_view key, weir::GgufType element_type, uint64_t count) {
    begin_value(key, weir::GgufType::kArray);
    put(values_, static_cast<uint32_t>(element_type));
    put(values_, count);
  }

  Bytes values_, infos_, data_;
  uint64_t n_values_ = 0, n_tensors_ = 0;
};

// Writes `bytes` to `path`; false if that fails.
inline bool save(const char* path, const Bytes& bytes) {
  std::FILE* file = std::fopen(path, "wb");
  if (file == nullptr) return false;
  const bool written = bytes.empty() || std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  return std::fclose(file) == 0 && written;
}

}  // namespace weir_test
