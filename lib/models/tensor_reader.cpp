// Tensors by name, with their shapes checked.
#include "models/tensor_reader.h"

#include <charconv>
#include <cstdio>
#include <system_error>

namespace weir {

TensorReader::TensorReader(const GgufFile& file, std::pmr::memory_resource* memory) : file_(file), taken_(memory) {
  taken_.resize(file.tensors().size());
}

void TensorReader::set_layer(uint32_t layer) { std::snprintf(prefix_, sizeof(prefix_), "blk.%u.", layer); }

Status TensorReader::matrix(const char* name, uint32_t n_rows, uint32_t n_cols, Weight& out, bool required) {
  const GgufTensor* tensor = nullptr;
  WEIR_TRY(find(name, required, tensor));
  if (tensor == nullptr) return {};
  if (tensor->n_dims != 2 || tensor->dims[0] != n_rows || tensor->dims[1] != n_cols) {
    return fail(WEIR_ERR_FORMAT, "%s: expected [%u, %u], file has %s", name_, n_rows, n_cols, shape_text(*tensor));
  }
  return set_weight(*tensor, n_rows, n_cols, out);
}

Status TensorReader::stack(const char* name, uint32_t n, uint32_t n_rows, uint32_t n_cols, Weight& out) {
  const GgufTensor* tensor = nullptr;
  WEIR_TRY(find(name, true, tensor));
  if (tensor->n_dims != 3 || tensor->dims[0] != n || tensor->dims[1] != n_rows || tensor->dims[2] != n_cols) {
    return fail(WEIR_ERR_FORMAT, "%s: expected [%u, %u, %u], file has %s", name_, n, n_rows, n_cols,
                shape_text(*tensor));
  }
  return set_weight(*tensor, n * n_rows, n_cols, out);
}

Status TensorReader::set_weight(const GgufTensor& tensor, uint32_t n_rows, uint32_t n_cols, Weight& out) {
  if (!weight_type_from_gguf(tensor.type_id, out.type)) {
    return fail(WEIR_ERR_UNSUPPORTED, "%s: type %s cannot be computed with", name_, tensor.type_name);
  }
  out.data = tensor.data;
  out.n_rows = n_rows;
  out.n_cols = n_cols;
  out.row_bytes = weight_row_bytes(out.type, n_cols);
  return {};
}

Status TensorReader::vector(const char* name, uint32_t n, const float*& out, bool required) {
  const GgufTensor* tensor = nullptr;
  WEIR_TRY(find(name, required, tensor));
  if (tensor == nullptr) return {};
  if (tensor->n_dims != 1 || tensor->dims[0] != n) {
    return fail(WEIR_ERR_FORMAT, "%s: expected [%u], file has %s", name_, n, shape_text(*tensor));
  }
  return set_floats(*tensor, out);
}

bool TensorReader::has(const char* name) const {
  char text[sizeof(name_)];
  std::snprintf(text, sizeof(text), "%s%s", prefix_, name);
  return file_.find_tensor(text) != nullptr;
}

Status TensorReader::column(const char* name, uint32_t n, const float*& out) {
  const GgufTensor* tensor = nullptr;
  WEIR_TRY(find(name, true, tensor));
  return tensor->n_dims == 2 ? table(name, n, 1, out) : vector(name, n, out);
}

Status TensorReader::table(const char* name, uint32_t n_rows, uint32_t n_cols, const float*& out) {
  const GgufTensor* tensor = nullptr;
  WEIR_TRY(find(name, true, tensor));
  if (tensor->n_dims != 2 || tensor->dims[0] != n_rows || tensor->dims[1] != n_cols) {
    return fail(WEIR_ERR_FORMAT, "%s: expected [%u, %u], file has %s", name_, n_rows, n_cols, shape_text(*tensor));
  }
  return set_floats(*tensor, out);
}

Status TensorReader::set_floats(const GgufTensor& tensor, const float*& out) {
  if (tensor.type_id != weight_type_info(WeightType::kF32).gguf_id) {
    return fail(WEIR_ERR_UNSUPPORTED, "%s: expected f32, file has %s", name_, tensor.type_name);
  }
  if (reinterpret_cast<uintptr_t>(tensor.data) % alignof(float) != 0) {
    return fail(WEIR_ERR_FORMAT, "%s: offset %llu is not aligned for f32", name_,
                static_cast<unsigned long long>(tensor.file_offset));
  }
  out = reinterpret_cast<const float*>(tensor.data);
  return {};
}

bool TensorReader::has(const char* name) {
  std::snprintf(name_, sizeof(name_), "%s%s", prefix_, name);
  return file_.find_tensor(name_) != nullptr;
}

void TensorReader::skip(const char* name) {
  const GgufTensor* tensor = file_.find_tensor(name);
  if (tensor != nullptr) taken_[static_cast<size_t>(tensor - file_.tensors().data())] = true;
}

namespace {

// Which block the name is of; UINT32_MAX if of none.
uint32_t block_of(std::string_view name) {
  constexpr std::string_view kBegin = "blk.";
  uint32_t block = 0;
  const char* const end = name.data() + name.size();
  if (!name.starts_with(kBegin)) return UINT32_MAX;
  const auto [rest, error] = std::from_chars(name.data() + kBegin.size(), end, block);
  return error == std::errc() && rest != end && *rest == '.' ? block : UINT32_MAX;
}

bool sees_or_hears(std::string_view name) {
  return name.starts_with("v.") || name.starts_with("a.") || name.starts_with("mm.");
}

struct Unused {
  const char* what;
  uint32_t n = 0;
  uint64_t bytes = 0;
  void count(const GgufTensor& tensor) { ++n, bytes += tensor.bytes; }
  void note(Notes& notes) const {
    if (n != 0) notes.leave("not used: %u tensors (%.1f MB) %s", n, static_cast<double>(bytes) / 1e6, what);
  }
};

}  // namespace

Status TensorReader::check_all_taken(const char* architecture, uint32_t first_next, uint32_t end_next,
                                     Notes& notes) const {
  Unused next = {"that predict tokens after the next one"}, other = {"of images and sound"};
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i]) continue;
    const GgufTensor& tensor = file_.tensors()[i];
    const std::string_view name = tensor.name;
    if (const uint32_t block = block_of(name); block >= first_next && block < end_next) {
      next.count(tensor);
      continue;
    }
    if (sees_or_hears(name)) {
      other.count(tensor);
      continue;
    }
    return fail(WEIR_ERR_UNSUPPORTED,
                "%.*s: architecture %s has no use for this tensor, so the answers would be wrong without it",
                static_cast<int>(name.size()), name.data(), architecture);
  }
  next.note(notes);
  other.note(notes);
  return {};
}

Status TensorReader::find(const char* name, bool required, const GgufTensor*& out) {
  std::snprintf(name_, sizeof(name_), "%s%s", prefix_, name);
  out = file_.find_tensor(name_);
  if (out != nullptr) taken_[static_cast<size_t>(out - file_.tensors().data())] = true;
  if (out == nullptr && required) return fail(WEIR_ERR_FORMAT, "%s: the file has no such tensor", name_);
  return {};
}

const char* TensorReader::shape_text(const GgufTensor& tensor) {
  size_t used = 0;
  for (uint32_t i = 0; i < tensor.n_dims; ++i) {
    used += static_cast<size_t>(std::snprintf(shape_ + used, sizeof(shape_) - used, "%s%llu", i == 0 ? "[" : ", ",
                                              static_cast<unsigned long long>(tensor.dims[i])));
  }
  std::snprintf(shape_ + used, sizeof(shape_) - used, "]");
  return shape_;
}

}  // namespace weir
