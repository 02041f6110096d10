// The checked byte cursor and the checks of names.
#include "gguf/reader.h"

#include <bit>

namespace weir {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read by copying bytes into numbers");

// Bytes of the UTF-8 sequence at the front of `text`, 0 when it is not valid; `code` is its code point.
size_t utf8_sequence(std::string_view text, uint32_t& code) {
  const auto byte = [text](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t lead = byte(0);
  const size_t n = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (n == 0 || n > text.size()) return 0;
  code = n == 1 ? lead : lead & (0x7Fu >> n);
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (n == 3 && code < 0x800) || (n == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return overlong || surrogate || code > 0x10FFFF ? 0 : n;
}

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
    uint32_t code = 0;
    const size_t n = utf8_sequence(name.substr(at), code);
    if (n == 0) return fail(WEIR_ERR_FORMAT, "%s is not valid UTF-8 (byte %zu of it)", what, at);
    if (code == 0) return fail(WEIR_ERR_FORMAT, "%s contains a NUL (byte %zu of it)", what, at);
    if (code < 0x20 || (code >= 0x7F && code < 0xA0)) {
      return fail(WEIR_ERR_FORMAT, "%s contains the control character U+%04X (byte %zu of it)", what, code, at);
    }
    at += n;
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
