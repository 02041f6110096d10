// Lines "name=value".
#include "core/named_values.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "core/c_format.h"

namespace weir {
namespace {

struct Line {
  std::string_view name, value;
};

// Takes the first line off `text`.
Line next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(line.size() < text.size() ? line.size() + 1 : line.size());
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos) return {line, {}};
  return {line.substr(0, equals), line.substr(equals + 1)};
}

bool has_name(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    if (next_line(text).name == name) return true;
  }
  return false;
}

constexpr int kShown = 96;  // most characters of a name or value in a message

int shown(std::string_view text) { return text.size() < kShown ? static_cast<int>(text.size()) : kShown; }

}  // namespace

void NamedValues::append(std::string_view text) {
  if (text.size() > kBytes - n_bytes_) {
    is_cut_ = true;
    return;
  }
  text.copy(text_ + n_bytes_, text.size());
  n_bytes_ += static_cast<uint32_t>(text.size());
}

void NamedValues::add(const char* name, const char* format, ...) {
  char line[256];
  const int n_name = std::snprintf(line, sizeof(line), "%s=", name);
  va_list arguments;
  va_start(arguments, format);
  const int n_value = c_vformat(line + n_name, sizeof(line) - static_cast<size_t>(n_name) - 1, format, arguments);
  va_end(arguments);
  const auto n = static_cast<size_t>(n_name) + static_cast<size_t>(n_value);
  if (n + 1 >= sizeof(line)) {
    is_cut_ = true;
    return;
  }
  line[n] = '\n';
  append({line, n + 1});
}

void NamedValues::add(const NamedValues& others) {
  append(others.text());
  is_cut_ = is_cut_ || others.is_cut_;
}

Status compare_named_values(std::string_view in_file, std::string_view here) {
  while (!in_file.empty() || !here.empty()) {
    const Line a = next_line(in_file), b = next_line(here);
    // What a session has since an option came, or has no longer.
    const bool only_here = a.name != b.name && !b.name.empty() && !has_name(in_file, b.name);
    if (only_here || (a.name != b.name && !a.name.empty() && !has_name(here, a.name))) {
      const Line& line = only_here ? b : a;
      return fail(WEIR_ERR_UNSUPPORTED, "%.*s is %.*s in %s, and %s has no such value", shown(line.name),
                  line.name.data(), shown(line.value), line.value.data(),
                  only_here ? "this session" : "the saved session", only_here ? "the saved one" : "this one");
    }
    if (a.name != b.name) {
      return fail(WEIR_ERR_UNSUPPORTED, "the saved session has \"%.*s\" where this one has \"%.*s\"", shown(a.name),
                  a.name.data(), shown(b.name), b.name.data());
    }
    if (a.value != b.value) {
      return fail(WEIR_ERR_UNSUPPORTED, "%.*s is %.*s in the saved session, %.*s in this one", shown(a.name),
                  a.name.data(), shown(a.value), a.value.data(), shown(b.value), b.value.data());
    }
  }
  return {};
}

}  // namespace weir
