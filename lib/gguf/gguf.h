// GGUF container reader, versions 2 and 3, little endian. Input is not trusted: every count, size, offset, type and
// string length is checked before use, and nothing larger than the file justifies is allocated. It knows the container
// only; what keys mean is up to models and text (one exception: general.alignment).
// The file stays mapped, or is copied; strings, arrays and tensors are views into its bytes.
//
// What a successful open promises: keys and tensor names are unique, not empty, valid UTF-8 without control characters;
// booleans are 0 or 1; every string of a string array lies inside the file; a tensor has 1..4 dimensions of at least 1,
// rows of whole blocks, and all of its bytes lie inside the file at a multiple of the alignment (8 or more). What it
// does not promise: string values and the strings of arrays may hold any bytes, NUL and invalid UTF-8 included; floats
// may be NaN; tensors may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <string_view>
#include <vector>

#include "core/progress.h"
#include "core/status.h"
#include "gguf/file_bytes.h"
#include "weir/model.h"

namespace weir {

// Limits of the format.
inline constexpr uint64_t kGgufMaxKeyBytes = 65535;
inline constexpr uint64_t kGgufMaxTensorNameBytes = 64;

// Metadata value types, numbers as in the file.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

const char* gguf_type_name(GgufType type);  // "u32", "string"
uint32_t gguf_type_bytes(GgufType type);    // of one scalar; 0 for strings and arrays

struct GgufValue {
  std::string_view key;
  GgufType type = GgufType::kU8;
  GgufType element_type = GgufType::kU8;  // of an array
  uint64_t count = 1;                     // elements of an array
  uint64_t raw = 0;                       // a scalar, zero or sign extended; f32 and f64 as their bit patterns
  std::string_view text;                  // a string's bytes
  const uint8_t* data = nullptr;          // an array's first element, unaligned
  uint64_t data_bytes = 0;                // bytes of the array's elements
};

// What an array may hold. Writers use every width of number for the same key.
enum class GgufArray : uint8_t {
  kStrings,
  kIntegers,  // of any type
  kFlags,     // booleans, or integers that are 0 or not
  kFloats,    // of both types
};

struct GgufTensor {
  std::string_view name;
  uint32_t type_id = 0;        // as in the file; may be a type that Weir cannot compute with
  const char* type_name = "";  // "q8_0", or the name of a type that Weir cannot compute with; static
  uint32_t n_dims = 0;
  uint64_t dims[4] = {1, 1, 1, 1};  // slowest axis first (the file stores the reverse)
  uint64_t n_weights = 0;
  uint64_t file_offset = 0;  // from the start of its file
  uint32_t part = 0;         // which of the model's files that is
  uint64_t bytes = 0;
  const uint8_t* data = nullptr;
};

// Iterates the strings of a string array without copying. Lengths were checked when the file was opened.
class GgufStrings {
 public:
  explicit GgufStrings(const GgufValue& array) : at_(array.data), left_(array.count) {}
  uint64_t left() const { return left_; }
  std::string_view next();  // precondition: left() > 0

 private:
  const uint8_t* at_;
  uint64_t left_;
};

class PartName;

class GgufFile {
 public:
  explicit GgufFile(std::pmr::memory_resource* memory)
      : parts_(memory), values_(memory), tensors_(memory), by_key_(memory), by_name_(memory) {}
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  // Maps and checks `path`, and if it is a part of a model in several files, the others beside it: values are those of
  // the first, tensors those of all. Messages begin with the path of the file meant. WEIR_ERR_IO, WEIR_ERR_FORMAT, or
  // WEIR_ERR_UNSUPPORTED (version, byte order, tensor type, nested array). On failure, or when an allocation throws,
  // the object is as freshly constructed.
  Status open(const char* path);
  struct How {
    bool copy = false;      // into memory of this object's resource: what happens to the file later is of no concern
    bool alone = false;     // other parts are not needed
    bool any_type = false;  // tensors of types that are not known have 0 bytes
  };
  // The same, telling `progress` now and then. Also WEIR_ERR_CANCELLED when it wants no more, WEIR_ERR_OUT_OF_MEMORY.
  Status open(const char* path, OpenProgress& progress) { return open(path, progress, How()); }
  Status open(const char* path, OpenProgress& progress, const How& how);
  // Checks bytes that the caller keeps alive (tests and fuzzing). Tensor data is aligned as `bytes` is.
  Status parse(std::span<const uint8_t> bytes);
  // Reads every page of a mapping once. `progress` hears of 0, then of each 16 MiB, then of all bytes;
  // WEIR_ERR_CANCELLED when it says so.
  Status prefetch(OpenProgress& progress) const;

  uint32_t version() const { return version_; }
  uint32_t n_parts() const { return 1 + static_cast<uint32_t>(parts_.size()); }
  uint64_t file_bytes() const;    // of all parts
  uint64_t copied_bytes() const;  // likewise
  std::span<const GgufValue> values() const { return values_; }
  std::span<const GgufTensor> tensors() const { return tensors_; }

  const GgufValue* find(std::string_view key) const;           // null when absent
  const GgufTensor* find_tensor(std::string_view name) const;  // null when absent

  // Typed look-ups. Writers differ in the types of the same key: any integer type is accepted when the value fits;
  // any float or integer type for floats; a byte that is 0 or 1 for booleans. The first form fails with WEIR_ERR_FORMAT
  // naming the key when it is absent, of the wrong type or out of range; the second sets `out` to `fallback` when it is
  // absent (only).
  Status get_u32(std::string_view key, uint32_t& out) const;
  Status get_u32(std::string_view key, uint32_t& out, uint32_t fallback) const;
  // Also of an array with one number per layer in which all are equal. WEIR_ERR_UNSUPPORTED: they are not.
  Status get_of_layers(std::string_view key, uint32_t& out) const;
  // Where layers may have 0 because they have none of it: what the others have.
  Status get_of_some_layers(std::string_view key, uint32_t& out) const;
  Status get_i64(std::string_view key, int64_t& out) const;
  Status get_f32(std::string_view key, float& out) const;
  Status get_f32(std::string_view key, float& out, float fallback) const;
  Status get_bool(std::string_view key, bool& out, bool fallback) const;
  Status get_string(std::string_view key, std::string_view& out) const;
  Status get_string(std::string_view key, std::string_view& out, std::string_view fallback) const;
  // `out` points at the array value, or is null when absent and not `required`.
  Status get_array(std::string_view key, GgufArray kind, bool required, const GgufValue*& out) const;

 private:
  Status one_of_layers(std::string_view key, bool zeros_aside, uint32_t& out) const;
  Status read_all(std::span<const uint8_t> bytes, OpenProgress& progress, bool any_type);
  Status open_one(const char* path, OpenProgress& progress, const How& how);
  // parts.cpp
  Status add_parts(PartName& name, OpenProgress& progress, const How& how);
  Status add_part(uint32_t expected, uint32_t expected_count, GgufFile& part);
  Status index_tensors(OpenProgress& progress);
  void swap(GgufFile& other) noexcept;

  FileBytes file_;                     // empty after parse()
  std::pmr::vector<FileBytes> parts_;  // those behind it
  std::span<const uint8_t> bytes_;
  uint32_t version_ = 0;
  std::pmr::vector<GgufValue> values_;
  std::pmr::vector<GgufTensor> tensors_;
  std::pmr::vector<uint32_t> by_key_;   // indices of values_, sorted by key
  std::pmr::vector<uint32_t> by_name_;  // indices of tensors_, sorted by name
};

// Element `i` of an array of integers or booleans, or of one of floats (kind and bounds are the caller's business).
// What exceeds 63 bits becomes INT64_MAX.
int64_t gguf_integer(const GgufValue& array, uint64_t i);
double gguf_number(const GgufValue& array, uint64_t i);

}  // namespace weir
