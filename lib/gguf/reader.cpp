// The checked byte cursor and the checks of names.
#include "gguf/reader.h"

#include <bit>

#include "core/utf8.h"

namespace weir {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read by copying bytes into numbers");

}  // namespace

Status ByteReader::take(const char* what, uint64_t n, const uint8_t*& out) {
  if (n > left()) {
    return fail(WEIR_ERR_FORMAT, "the file ends inside %s: %llu bytes at byte %llu, but the file has %zu bytes", what,
                static_cast<unsigned long long>(n), static_cast<unsigned long long>(at_), bytes_.size());
  }
  out = bytes_.data() + at_;
  at_ += n;
  return {};
}

Status ByteReader::string(const char* what, std::string_view& out) {
  const uint64_t start = at_;
  uint64_t n = 0;
  const uint8_t* data = nullptr;
  WEIR_TRY(number(what, n));
  const Status status = take(what, n, data);
  if (!status.ok()) {
    at_ = start;
    return status;
  }
  out = {reinterpret_cast<const char*>(data), static_cast<size_t>(n)};
  return {};
}

Status check_name(const char* what, std::string_view name, uint64_t max_bytes) {
  if (name.empty()) return fail(WEIR_ERR_FORMAT, "%s is empty", what);
  if (name.size() > max_bytes) {
    return fail(WEIR_ERR_FORMAT, "%s has %zu bytes; the format allows %llu", what, name.size(),
                static_cast<unsigned long long>(max_bytes));
  }
  for (size_t at = 0; at < name.size();) {
    const Utf8Step step = utf8_step(name.substr(at));
    if (step.kind != Utf8Kind::kComplete)
      return fail(WEIR_ERR_FORMAT, "%s is not valid UTF-8 (byte %zu of it)", what, at);
    const uint32_t code = utf8_code_point(name.substr(at), step.n_bytes);
    if (code == 0) return fail(WEIR_ERR_FORMAT, "%s contains a NUL (byte %zu of it)", what, at);
    if (code < 0x20 || (code >= 0x7F && code < 0xA0)) {
      return fail(WEIR_ERR_FORMAT, "%s contains the control character U+%04X (byte %zu of it)", what, code, at);
    }
    at += step.n_bytes;
  }
  return {};
}

int shown_bytes(std::string_view name) {
  size_t n = name.size() < 96 ? name.size() : 96;
  while (n > 0 && n < name.size() && (static_cast<unsigned char>(name[n]) & 0xC0) == 0x80) --n;
  return static_cast<int>(n);
}

Status in_context(Status status, std::string_view name, const char* what, uint64_t at) {
  const auto place = static_cast<unsigned long long>(at);
  if (name.empty()) return fail(status.code(), "%s at byte %llu: %s", what, place, last_error_text());
  return fail(status.code(), "%.*s (%s at byte %llu): %s", shown_bytes(name), name.data(), what, place,
              last_error_text());
}

}  // namespace weir
