// Model handles: open, close, facts.
#include "weir/model.h"

#include <charconv>
#include <cstdio>

#include "api/handles.h"
#include "quant/weight_type.h"

namespace weir::api {

void retain(weir_model* model) { model->n_refs.fetch_add(1, std::memory_order_relaxed); }

void release(weir_model* model) {
  if (model->n_refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  weir_runtime* runtime = model->runtime;
  destroy_in(runtime->memory, model);
  release(runtime);
}

namespace {

const char* file_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

// What was taken for granted, each once.
void log_notes(const Log& log, const char* path, const Notes& notes) {
  for (size_t i = 0; i < notes.size(); ++i) {
    const int32_t level = notes.kind(i) == Notes::Kind::kWarning ? WEIR_LOG_WARNING : WEIR_LOG_INFO;
    log.write(level, "%s: %s", file_name(path), notes.text(i));
  }
  if (notes.n_left_out() != 0) {
    log.write(WEIR_LOG_WARNING, "%s: %llu more lines like these are left out", file_name(path),
              static_cast<unsigned long long>(notes.n_left_out()));
  }
}

Status open(weir_runtime* runtime, const char* path, const weir_model_options& o, weir_model** out) {
  if ((o.flags & ~static_cast<uint32_t>(WEIR_MODEL_VOCAB_ONLY | WEIR_MODEL_PREFETCH | WEIR_MODEL_COPY |
                                        WEIR_MODEL_DESCRIBE_ONLY)) != 0) {
    return fail(WEIR_ERR_INVALID_ARG, "model options: flags 0x%x are not known", o.flags);
  }
  auto* handle = make_in<weir_model>(runtime->memory, runtime);
  try {
    const Status status = handle->model.open(path, o.flags, o.progress, o.progress_user);
    if (!status.ok()) {
      destroy_in(runtime->memory, handle);
      return status;
    }
    handle->device_weights.reserve(handle->model);
  } catch (...) {
    destroy_in(runtime->memory, handle);
    throw;
  }
  retain(runtime);
  const ModelConfig& c = handle->model.config();
  runtime->log.write(WEIR_LOG_INFO, "opened %s: %u layers, %u heads, %u KV heads, vocabulary %u", path, c.n_layers,
                     c.n_heads, c.n_kv_heads, c.vocab_size);
  log_notes(runtime->log, path, handle->model.notes());
  *out = handle;
  return {};
}

// A metadata value as text; returns the length it needs.
uint64_t value_text(const GgufValue& v, char* out, uint64_t capacity) {
  char number[64];
  std::string_view text;
  int n = 0;
  switch (v.type) {
    case GgufType::kString:
      text = v.text;
      break;
    case GgufType::kArray:
      n = std::snprintf(number, sizeof(number), "[%s; %llu]", gguf_type_name(v.element_type),
                        static_cast<unsigned long long>(v.count));
      break;
    case GgufType::kBool:
      n = std::snprintf(number, sizeof(number), "%s", v.raw != 0 ? "true" : "false");
      break;
    case GgufType::kF32: {
      float f = 0;
      const auto bits = static_cast<uint32_t>(v.raw);
      std::memcpy(&f, &bits, sizeof(f));
      n = static_cast<int>(std::to_chars(number, number + sizeof(number), f).ptr -
                           number);  // whatever the host's locale
      break;
    }
    case GgufType::kF64: {
      double d = 0;
      std::memcpy(&d, &v.raw, sizeof(d));
      n = static_cast<int>(std::to_chars(number, number + sizeof(number), d).ptr - number);
      break;
    }
    case GgufType::kI8:
    case GgufType::kI16:
    case GgufType::kI32:
    case GgufType::kI64:
      n = std::snprintf(number, sizeof(number), "%lld", static_cast<long long>(v.raw));
      break;
    default:
      n = std::snprintf(number, sizeof(number), "%llu", static_cast<unsigned long long>(v.raw));
  }
  if (v.type != GgufType::kString) text = std::string_view(number, static_cast<size_t>(n));
  if (text.size() < capacity) {
    std::memcpy(out, text.data(), text.size());
    out[text.size()] = '\0';
  }
  return text.size();
}

}  // namespace
}  // namespace weir::api

using namespace weir;

weir_status weir_model_options_init(weir_model_options* options, uint32_t struct_size) {
  WEIR_API_REQUIRE(options);
  if (struct_size < 8)
    return fail(WEIR_ERR_INVALID_ARG, "weir_model_options_init: struct_size is %u", struct_size).code();
  std::memset(options, 0, struct_size);
  options->struct_size = struct_size;
  return WEIR_OK;
}

weir_status weir_model_open(weir_runtime* runtime, const char* path, const weir_model_options* options,
                            weir_model** out) {
  WEIR_API_REQUIRE(out);
  *out = nullptr;
  WEIR_API_REQUIRE(runtime);
  WEIR_API_REQUIRE(path);
  return api::guard([&]() -> Status {
    weir_model_options read;
    WEIR_TRY(api::read_struct(options, "weir_model_options", read));
    return api::open(runtime, path, read, out);
  });
}

void weir_model_close(weir_model* model) {
  if (model == nullptr) return;
  const Call call;
  api::release(model);
}

weir_status weir_model_get_info(const weir_model* model, weir_model_info* info) {
  WEIR_API_REQUIRE(model);
  return api::guard([&]() -> Status {
    WEIR_TRY(api::check_out_struct(info, "weir_model_info"));
    weir_model_info value = WEIR_MODEL_INFO_INIT;
    model->model.get_info(value);
    api::write_struct(value, info);
    return {};
  });
}

const char* weir_weight_type_name(uint32_t index) {
  return index < kWeightTypeCount ? weight_type_info(static_cast<WeightType>(index)).name : nullptr;
}

weir_status weir_model_tensor_info(const weir_model* model, uint32_t index, weir_tensor_info* info) {
  WEIR_API_REQUIRE(model);
  return api::guard([&]() -> Status {
    WEIR_TRY(api::check_out_struct(info, "weir_tensor_info"));
    const auto tensors = model->model.file().tensors();
    if (index >= tensors.size())
      return fail(WEIR_ERR_INVALID_ARG, "tensor %u of %zu does not exist", index, tensors.size());
    const GgufTensor& tensor = tensors[index];
    weir_tensor_info value = WEIR_TENSOR_INFO_INIT;
    value.n_dims = tensor.n_dims;
    std::copy(std::begin(tensor.dims), std::end(tensor.dims), value.dims);
    value.bytes = tensor.bytes;
    value.file_offset = tensor.file_offset;
    value.part = tensor.part;
    value.name = model->model.names().tensor(index);
    value.type = tensor.type_name;
    api::write_struct(value, info);
    return {};
  });
}

uint32_t weir_model_metadata_count(const weir_model* model) {
  return model == nullptr ? 0 : static_cast<uint32_t>(model->model.file().values().size());
}

weir_status weir_model_metadata(const weir_model* model, uint32_t index, const char** key, char* value,
                                uint64_t capacity, uint64_t* value_bytes) {
  WEIR_API_REQUIRE(model);
  WEIR_API_REQUIRE(key);
  if (value == nullptr && capacity != 0)
    return fail(WEIR_ERR_INVALID_ARG, "weir_model_metadata: value is NULL, capacity is not 0").code();
  return api::guard([&]() -> Status {
    const auto values = model->model.file().values();
    if (index >= values.size())
      return fail(WEIR_ERR_INVALID_ARG, "metadata key %u of %zu does not exist", index, values.size());
    const uint64_t n = api::value_text(values[index], value, capacity);
    *key = model->model.names().key(index);
    if (value_bytes != nullptr) *value_bytes = n;
    if (n >= capacity) {
      return fail(WEIR_ERR_BUFFER_TOO_SMALL, "%s: the value needs %llu bytes with its NUL", *key,
                  static_cast<unsigned long long>(n) + 1);
    }
    return {};
  });
}
