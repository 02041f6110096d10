// GGUF writer; see gguf_write.h. Little-endian machines only, as the library is.
#include "gguf_write.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <type_traits>

namespace weir_cli {
namespace {

constexpr uint64_t kAlignment = 32;
constexpr uint64_t kChunkBytes = 1 << 20;
constexpr WeightType kTypes[] = {
    {"f32", 0, 1, 4},        {"f16", 1, 1, 2},       {"bf16", 30, 1, 2},       {"q8_0", 8, 32, 34},
    {"q4_0", 2, 32, 18},     {"q4_1", 3, 32, 20},    {"q5_0", 6, 32, 22},      {"q5_1", 7, 32, 24},
    {"iq4_nl", 20, 32, 18},  {"mxfp4", 39, 32, 17},  {"nvfp4", 40, 64, 36},    {"iq2_xxs", 16, 256, 66},
    {"iq2_xs", 17, 256, 74}, {"iq2_s", 22, 256, 82}, {"iq3_xxs", 18, 256, 98}, {"iq3_s", 21, 256, 110},
    {"q2_k", 10, 256, 84},   {"q3_k", 11, 256, 110}, {"iq4_xs", 23, 256, 136}, {"q4_k", 12, 256, 144},
    {"q5_k", 13, 256, 176},  {"q6_k", 14, 256, 210}};

enum : uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9 };  // value types of the format

uint64_t padded(uint64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

template <class T>
void put(std::string& out, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_text(std::string& out, const std::string& text) {
  put<uint64_t>(out, text.size());
  out += text;
}

void put_key(std::string& out, const std::string& key, uint32_t type) {
  put_text(out, key);
  put<uint32_t>(out, type);
}

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

void write_all(std::FILE* file, const void* bytes, uint64_t n_bytes, const std::string& path) {
  if (std::fwrite(bytes, 1, n_bytes, file) != n_bytes) {
    throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
  }
}

}  // namespace

const WeightType& weight_type(std::string_view name) {
  std::string known;
  for (const WeightType& type : kTypes) {
    if (name == type.name) return type;
    known += std::string(" ") + type.name;
  }
  throw std::runtime_error("weight type " + std::string(name) + " is none of" + known);
}

void GgufWriter::add_u32(const std::string& key, uint32_t value) {
  put_key(values_, key, kU32);
  put(values_, value);
  ++n_values_;
}

void GgufWriter::add_f32(const std::string& key, float value) {
  put_key(values_, key, kF32);
  put(values_, value);
  ++n_values_;
}

void GgufWriter::add_bool(const std::string& key, bool value) {
  put_key(values_, key, kBool);
  put<uint8_t>(values_, value ? 1 : 0);
  ++n_values_;
}

void GgufWriter::add_string(const std::string& key, const std::string& value) {
  put_key(values_, key, kString);
  put_text(values_, value);
  ++n_values_;
}

void GgufWriter::add_strings(const std::string& key, const std::vector<std::string>& values) {
  put_key(values_, key, kArray);
  put<uint32_t>(values_, kString);
  put<uint64_t>(values_, values.size());
  for (const std::string& value : values) put_text(values_, value);
  ++n_values_;
}

void GgufWriter::add_i32s(const std::string& key, const std::vector<int32_t>& values) {
  put_key(values_, key, kArray);
  put<uint32_t>(values_, kI32);
  put<uint64_t>(values_, values.size());
  for (int32_t value : values) put(values_, value);
  ++n_values_;
}

void GgufWriter::add_tensor(const std::string& name, const std::vector<uint64_t>& dims, const WeightType& type) {
  if (dims.back() % type.block_weights != 0) {
    throw std::runtime_error(name + ": a row of " + std::to_string(dims.back()) + " weights is no multiple of the " +
                             std::to_string(type.block_weights) + " of a " + type.name + " block");
  }
  uint64_t n_weights = 1;
  for (uint64_t dim : dims) n_weights *= dim;
  const uint64_t bytes = n_weights / type.block_weights * type.block_bytes;
  tensors_.push_back({name, dims, &type, bytes, data_bytes_});
  data_bytes_ += padded(bytes);
}

std::string GgufWriter::header() const {
  std::string out = "GGUF";
  put<uint32_t>(out, 3);
  put<uint64_t>(out, tensors_.size());
  put<uint64_t>(out, n_values_);
  out += values_;
  for (const Tensor& tensor : tensors_) {
    put_text(out, tensor.name);
    put<uint32_t>(out, static_cast<uint32_t>(tensor.dims.size()));
    for (auto dim = tensor.dims.rbegin(); dim != tensor.dims.rend(); ++dim)
      put<uint64_t>(out, *dim);  // fastest axis first
    put<uint32_t>(out, tensor.type->id);
    put<uint64_t>(out, tensor.offset);
  }
  out.resize(padded(out.size()));
  return out;
}

uint64_t GgufWriter::file_bytes() const { return header().size() + data_bytes_; }

void GgufWriter::write(const Sink& sink, const Source& source, const Progress& progress) const {
  const std::string head = header();
  sink(head.data(), head.size());
  const uint64_t n_done = head.size();
  static const char kPadding[kAlignment] = {};
  for (const Tensor& tensor : tensors_) {
    for (uint64_t at = 0; at < tensor.bytes;) {
      const uint64_t n = std::min(kChunkBytes, tensor.bytes - at);
      sink(source(tensor, at, n), n);
      at += n;
      progress(n_done + tensor.offset + at, n_done + data_bytes_);
    }
    sink(kPadding, padded(tensor.bytes) - tensor.bytes);
  }
}

void GgufWriter::write(const std::string& path, const Source& source, const Progress& progress) const {
  std::unique_ptr<std::FILE, FileCloser> file(std::fopen(path.c_str(), "wb"));
  if (!file) throw std::runtime_error("cannot create " + path + ": " + std::strerror(errno));
  try {
    const auto sink = [&](const void* bytes, uint64_t n_bytes) { write_all(file.get(), bytes, n_bytes, path); };
    write(sink, source, progress);
    std::FILE* raw = file.release();
    if (std::fclose(raw) != 0) throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
  } catch (...) {
    file.reset();
    std::remove(path.c_str());
    throw;
  }
}

}  // namespace weir_cli
