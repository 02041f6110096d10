// Stop strings; see stop_strings.h.
#include "text/stop_strings.h"

#include <algorithm>
#include <cstring>

#include "core/utf8.h"

namespace weir {

Status StopStrings::check(std::span<const std::string_view> stops) {
  if (stops.size() > kMax) return fail(WEIR_ERR_INVALID_ARG, "%zu stop strings; there may be %u", stops.size(), kMax);
  for (size_t i = 0; i < stops.size(); ++i) {
    const std::string_view stop = stops[i];
    if (stop.empty()) return fail(WEIR_ERR_INVALID_ARG, "stop[%zu] is empty", i);
    if (stop.size() > kMaxBytes)
      return fail(WEIR_ERR_INVALID_ARG, "stop[%zu] has %zu bytes; it may have %u", i, stop.size(), kMaxBytes);
    if (utf8_valid_prefix(stop) != stop.size()) return fail(WEIR_ERR_INVALID_ARG, "stop[%zu] is not UTF-8", i);
  }
  return {};
}

void StopStrings::begin(std::span<const std::string_view> stops) {
  n_ = static_cast<uint32_t>(stops.size());
  for (uint32_t i = 0; i < n_; ++i) {
    n_bytes_[i] = static_cast<uint32_t>(stops[i].size());
    std::memcpy(bytes_[i], stops[i].data(), stops[i].size());
  }
  held_.n_bytes = n_text_ = 0;
}

// Bytes at the end of the text that are the beginning of a stop string.
uint32_t StopStrings::may_become_one() const {
  const std::string_view text(text_, n_text_);
  for (uint32_t n = std::min(n_text_, kMaxBytes - 1); n > 0; --n) {
    const std::string_view end = text.substr(n_text_ - n);
    for (uint32_t i = 0; i < n_; ++i) {
      if (stop(i).size() > n && stop(i).starts_with(end)) return n;
    }
  }
  return 0;
}

// The first bytes of the text, with a NUL behind them; what follows has been taken care of.
std::string_view StopStrings::shown(size_t n_bytes) {
  text_[n_bytes] = '\0';
  return {text_, n_bytes};
}

StopStrings::Piece StopStrings::push(std::string_view text) {
  std::memcpy(text_, held_.bytes, held_.n_bytes);
  text.copy(text_ + held_.n_bytes, text.size());
  n_text_ = held_.n_bytes + static_cast<uint32_t>(text.size());
  held_.n_bytes = 0;
  const std::string_view all(text_, n_text_);
  size_t first = 0, end = SIZE_MAX;
  int32_t found = -1;
  for (uint32_t i = 0; i < n_; ++i) {
    const size_t at = all.find(stop(i));
    if (at == std::string_view::npos) continue;
    const size_t its_end = at + n_bytes_[i];
    if (its_end > end || (its_end == end && at >= first)) continue;
    first = at;
    end = its_end;
    found = static_cast<int32_t>(i);
  }
  if (found >= 0) return {shown(first), found};
  held_.n_bytes = may_become_one();
  const size_t n_shown = n_text_ - held_.n_bytes;
  std::memcpy(held_.bytes, text_ + n_shown, held_.n_bytes);
  return {shown(n_shown), -1};
}

void StopStrings::take_back(size_t n_shown) {
  const auto n_gone = static_cast<uint32_t>(std::min<size_t>(n_shown, marked_.n_bytes));
  held_.n_bytes = marked_.n_bytes - n_gone;
  std::memcpy(held_.bytes, marked_.bytes + n_gone, held_.n_bytes);
}

std::string_view StopStrings::finish(std::string_view rest) {
  std::memcpy(text_, held_.bytes, held_.n_bytes);
  rest.copy(text_ + held_.n_bytes, rest.size());  // which may have no address
  const size_t n = held_.n_bytes + rest.size();
  held_.n_bytes = 0;
  return shown(n);
}

}  // namespace weir
