// Tables of copies that are named by position, one ring for each stream that has one: the handles of its latest pages,
// each at position / 16 modulo the entries. All rings have the same pages: those from first() on, before end(). What is
// older or newer has no copy. With `flags` a ring of its own says what a page is when it comes back.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/memory.h"
#include "kv/tables.h"

namespace weir {

class CopyRings {
 public:
  void lay_out(uint64_t n_rings, uint32_t n_entries, bool flags, Arena& arena) {
    n_entries_ = n_entries;
    n_ = n_rings * n_entries;
    entries_ = n_ != 0 ? arena.take<uint32_t>(n_) : nullptr;
    flags_ = n_ != 0 && flags ? arena.take<uint8_t>(n_entries) : nullptr;
  }
  void reset() {
    std::fill_n(entries_, n_, kNoCopy);
    if (flags_ != nullptr) std::fill_n(flags_, n_entries_, uint8_t{0});
    first_ = end_ = 0;
  }
  void copy_from(const CopyRings& other) {
    std::copy_n(other.entries_, n_, entries_);
    if (flags_ != nullptr) std::copy_n(other.flags_, n_entries_, flags_);
    first_ = other.first_;
    end_ = other.end_;
  }

  bool any() const { return n_ != 0; }
  uint32_t first() const { return first_; }
  uint32_t end() const { return end_; }
  // The first page that has an entry once `page` has one.
  uint32_t first_beside(uint32_t page) const { return page + 1 - std::min(page + 1, n_entries_); }
  // Null: the page cannot have a copy.
  uint32_t* entry(uint32_t ring, uint32_t page) const {
    return page < first_ || page >= end_ ? nullptr : entries_ + size_t{ring} * n_entries_ + page % n_entries_;
  }
  // Pages before this one have no copies any more; a page may have one, and those beside it.
  void set_first(uint32_t page) { first_ = page; }
  void add(uint32_t page) {
    first_ = std::max(std::min(first_, page), first_beside(page));
    end_ = std::max(end_, page + 1);
  }
  // The pages from this one on are gone, and have no copies any more.
  void cut(uint32_t page) {
    for (uint32_t p = page; p < end_; ++p) set_flag(p, 0);
    end_ = std::min(end_, page);
    first_ = std::min(first_, end_);
  }

  // What a page is when it comes back; 0 of one that is too old to.
  uint8_t flag(uint32_t page) const { return has_flag(page, end_) ? flags_[page % n_entries_] : uint8_t{0}; }
  void set_flag(uint32_t page, uint8_t flag) { set_flag(page, flag, end_); }
  // The same before the pages of a conversation that has n_pages of them are added.
  void set_flag(uint32_t page, uint8_t flag, uint32_t n_pages) {
    if (has_flag(page, n_pages)) flags_[page % n_entries_] = flag;
  }

 private:
  bool has_flag(uint32_t page, uint32_t end) const {
    return flags_ != nullptr && page < end && page + n_entries_ >= end;
  }

  uint32_t* entries_ = nullptr;  // [n_rings, n_entries]; null without rings
  uint8_t* flags_ = nullptr;     // [n_entries], or null
  uint64_t n_ = 0;
  uint32_t n_entries_ = 0, first_ = 0, end_ = 0;
};

}  // namespace weir
