// Expressions and sets of characters; see automaton.h.
#include <algorithm>

#include "text/constraint/automaton.h"

namespace weir::constraint {

namespace {

constexpr uint32_t kLastCode = 0x10FFFF;

// Shell sort: the lists are short, and it makes little code.
void sort_ranges(CodeRange* ranges, uint32_t n) {
  for (uint32_t gap = n / 2; gap > 0; gap /= 2) {
    for (uint32_t i = gap; i < n; ++i) {
      const CodeRange moved = ranges[i];
      uint32_t at = i;
      for (; at >= gap && ranges[at - gap].first > moved.first; at -= gap) ranges[at] = ranges[at - gap];
      ranges[at] = moved;
    }
  }
}

uint32_t encode(uint32_t code, uint8_t* out) {
  if (code < 0x80) return out[0] = static_cast<uint8_t>(code), 1;
  const uint32_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (uint32_t i = n; i-- > 1; code >>= 6) out[i] = static_cast<uint8_t>(0x80 | (code & 0x3F));
  out[0] = static_cast<uint8_t>((0xF00 >> n) | code);
  return n;
}

}  // namespace

void CodeSet::normalise() {
  sort_ranges(ranges_.data(), ranges_.size());
  uint32_t n = 0;
  for (const CodeRange& r : ranges_) {
    if (r.first > r.last) continue;
    if (n != 0 && r.first <= ranges_[n - 1].last + 1) {
      ranges_[n - 1].last = std::max(ranges_[n - 1].last, r.last);
    } else {
      ranges_[n++] = r;
    }
  }
  ranges_.resize(n);
}

void CodeSet::invert() {
  normalise();
  uint32_t from = 0, n = 0;
  const uint32_t n_before = ranges_.size();
  for (uint32_t i = 0; i < n_before; ++i) {
    const CodeRange r = ranges_[i];
    if (r.first > from) ranges_[n++] = {from, r.first - 1};
    from = r.last + 1;
  }
  ranges_.resize(n);
  if (from <= kLastCode) ranges_.push_back({from, kLastCode});
}

bool CodeSet::has(uint32_t code) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const CodeRange& r) { return r.first <= code && code <= r.last; });
}

void CodeSet::remove(uint32_t code) {
  for (uint32_t i = 0; i < ranges_.size(); ++i) {
    CodeRange& r = ranges_[i];
    if (code < r.first || code > r.last) continue;
    const uint32_t last = r.last;
    r.last = code - 1;
    if (code == r.first) r = {1, 0};
    if (code < last) ranges_.push_back({code + 1, last});
    break;
  }
  normalise();
}

ExprId Exprs::add(const Expr& e) {
  nodes_.push_back(e);
  return nodes_.size() - 1;
}

ExprId Exprs::text(std::string_view text) {
  if (text.empty()) return empty();
  const uint32_t at = texts_.size();
  texts_.append(text.data(), static_cast<uint32_t>(text.size()));
  return add({Expr::kText, 0, 0, at, static_cast<uint32_t>(text.size()), 0, 0});
}

ExprId Exprs::fold(Expr::Kind kind, std::span<const ExprId> all) {
  if (all.empty()) return kind == Expr::kCat ? empty() : never();
  if (all.size() == 1) return all[0];
  const size_t half = all.size() / 2;
  const ExprId a = fold(kind, all.first(half)), b = fold(kind, all.subspan(half));
  return add({kind, 0, 0, a, b, 0, 0});
}

// The range is cut where the length of a sequence changes, then where bytes are not free to run over their whole range.
void Exprs::add_utf8(uint32_t first, uint32_t last, PodVector<ExprId>& out) {
  static constexpr uint32_t kCuts[] = {0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF};
  if (first > last) return;
  for (const uint32_t cut : kCuts) {
    if (first <= cut && last > cut) {
      add_utf8(first, cut, out);
      add_utf8(cut + 1, last, out);
      return;
    }
  }
  if (first >= 0xD800 && last <= 0xDFFF) return;  // halves of pairs are no characters
  uint8_t a[4], b[4];
  const uint32_t n = encode(first, a);
  for (uint32_t i = 1; i < n; ++i) {
    const uint32_t low = (1u << (6 * i)) - 1;
    if ((first & ~low) == (last & ~low)) continue;
    if ((first & low) != 0) {
      add_utf8(first, first | low, out);
      add_utf8((first | low) + 1, last, out);
      return;
    }
    if ((last & low) != low) {
      add_utf8(first, (last & ~low) - 1, out);
      add_utf8(last & ~low, last, out);
      return;
    }
  }
  encode(last, b);
  ExprId sequence = bytes(a[n - 1], b[n - 1]);
  for (uint32_t i = n - 1; i-- > 0;) sequence = cat(bytes(a[i], b[i]), sequence);
  out.push_back(sequence);
}

ExprId Exprs::characters(std::span<const CodeRange> ranges) {
  PodVector<ExprId> all(memory_);
  for (const CodeRange& r : ranges) add_utf8(r.first, std::min(r.last, kLastCode), all);
  return alt({all.data(), all.size()});
}

}  // namespace weir::constraint
