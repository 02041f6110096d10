// Fuzz target: any bytes as a GGUF file. What parses is read completely, so that a wrong length or offset has an
// effect, and the promises of lib/gguf/gguf.h are checked; a broken one traps.
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <string_view>

#include "gguf/gguf.h"

namespace {

using namespace weir;

volatile uint64_t g_sink;  // keeps the reads

void require(bool promise) {
  if (!promise) __builtin_trap();
}

uint64_t sum(const uint8_t* data, uint64_t n) {
  uint64_t total = 0;
  for (uint64_t i = 0; i < n; ++i) total += data[i];
  return total;
}

uint64_t sum(std::string_view text) { return sum(reinterpret_cast<const uint8_t*>(text.data()), text.size()); }

void walk_array(const GgufValue& value) {
  require(value.element_type != GgufType::kArray);
  if (value.element_type != GgufType::kString) {
    require(value.data_bytes == value.count * gguf_type_bytes(value.element_type));
    g_sink = sum(value.data, value.data_bytes);
    return;
  }
  uint64_t bytes = 0;
  for (GgufStrings strings(value); strings.left() > 0;) {
    const std::string_view text = strings.next();
    g_sink = sum(text);
    bytes += 8 + text.size();
  }
  require(bytes == value.data_bytes);
}

void use_getters(const GgufFile& file, std::string_view key) {
  uint32_t number = 0;
  float real = 0;
  bool flag = false;
  std::string_view text;
  const GgufValue* array = nullptr;
  const bool present = file.find(key) != nullptr;
  const bool is_number = file.get_u32(key, number).ok(), is_real = file.get_f32(key, real).ok();
  const bool is_bool = present && file.get_bool(key, flag, false).ok(), is_text = file.get_string(key, text).ok();
  require(present || !(is_number || is_real || is_bool || is_text));
  require(!is_number || is_real);  // a whole number is a number
  require(!is_text || !(is_real || is_bool));
  // A fallback helps when the key is absent, and only then.
  require(file.get_u32(key, number, 1).ok() == (is_number || !present));
  require(!is_number || file.get_of_layers(key, number).ok());
  require(file.get_f32(key, real, 1.0f).ok() == (is_real || !present));
  require(file.get_string(key, text, "").ok() == (is_text || !present));
  for (const GgufArray kind : {GgufArray::kStrings, GgufArray::kIntegers, GgufArray::kFlags, GgufArray::kFloats}) {
    const bool found = file.get_array(key, kind, true, array).ok();
    require(!found || (array != nullptr && array == file.find(key)));
    if (found && kind != GgufArray::kStrings) {
      for (uint64_t i = 0; i < array->count && i < 64; ++i)
        g_sink = static_cast<uint64_t>(gguf_integer(*array, i)) + (gguf_number(*array, i) > 0 ? 1 : 0);
    }
  }
}

void walk(const GgufFile& file, const uint8_t* data, size_t size) {
  require(file.file_bytes() == size && (file.version() == 2 || file.version() == 3));
  for (const GgufValue& value : file.values()) {
    require(!value.key.empty() && value.key.size() <= kGgufMaxKeyBytes && file.find(value.key) == &value);
    if (value.type == GgufType::kArray) walk_array(value);
    if (value.type == GgufType::kBool) require(value.raw <= 1);
    g_sink = sum(value.text);
    use_getters(file, value.key);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    require(!tensor.name.empty() && tensor.name.size() <= kGgufMaxTensorNameBytes &&
            file.find_tensor(tensor.name) == &tensor);
    require(tensor.n_dims >= 1 && tensor.n_dims <= 4 && tensor.type_name[0] != '\0');
    require(tensor.dims[0] * tensor.dims[1] * tensor.dims[2] * tensor.dims[3] == tensor.n_weights &&
            tensor.n_weights > 0);
    require(tensor.data == data + tensor.file_offset && tensor.file_offset % 8 == 0 && tensor.bytes > 0);
    g_sink = sum(tensor.data, tensor.bytes);
  }
  use_getters(file, "no such key");
  OpenProgress nobody;
  require(file.prefetch(nobody).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  GgufFile file(std::pmr::new_delete_resource());
  if (file.parse({data, size}).ok()) {
    walk(file, data, size);
  } else {
    require(file.values().empty() && file.tensors().empty() && file.file_bytes() == 0);
  }
  return 0;
}
