// Lists of numbers; see word_sets.h.
#include "text/constraint/word_sets.h"

namespace weir::constraint {

// Where the list is in the table, or the free place for it.
uint32_t WordSets::slot(const uint32_t* words, uint32_t n) const {
  uint64_t hash = n;
  for (uint32_t i = 0; i < n; ++i) hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
  const uint32_t mask = table_.size() - 1;
  for (auto at = static_cast<uint32_t>(hash >> 32) & mask;; at = (at + 1) & mask) {
    if (table_[at] == 0) return at;
    const std::span<const uint32_t> other = (*this)[table_[at] - 1];
    if (other.size() == n && (n == 0 || std::memcmp(other.data(), words, n * sizeof(uint32_t)) == 0)) return at;
  }
}

uint32_t WordSets::find_or_add(const uint32_t* words, uint32_t n) {
  const uint32_t at = slot(words, n);
  if (table_[at] != 0) return table_[at] - 1;
  words_.append(words, n);
  firsts_.push_back(words_.size());
  table_[at] = size();
  if (size() * 2 > table_.size()) {
    table_.resize(table_.size() * 2);
    fill_table();
  }
  return size() - 1;
}

void WordSets::fill_table() {
  std::memset(table_.data(), 0, table_.size() * sizeof(uint32_t));
  for (uint32_t i = 0; i < size(); ++i) {
    const std::span<const uint32_t> list = (*this)[i];
    table_[slot(list.data(), static_cast<uint32_t>(list.size()))] = i + 1;
  }
}

void WordSets::reserve(uint32_t n_lists, uint32_t n_words) {
  firsts_.reserve(n_lists + 1);
  words_.reserve(n_words);
  uint32_t n = 64;
  while (n < 2 * n_lists + 2) n *= 2;
  table_.resize(n, 0);
  fill_table();
}

void WordSets::clear() {
  words_.clear();
  firsts_.resize(1);
  fill_table();
}

void WordSets::copy_from(const WordSets& other) {
  words_.clear();
  words_.append(other.words_.data(), other.words_.size());
  firsts_.clear();
  firsts_.append(other.firsts_.data(), other.firsts_.size());
  fill_table();
}

void WordSets::keep_marked(uint32_t* marks) {
  uint32_t n = 0, n_words = 0;
  for (uint32_t i = 0, first = 0; i < size(); ++i) {
    const uint32_t end = firsts_[i + 1];
    if (marks[i] != 0) {
      for (uint32_t w = first; w < end; w += 2) {
        words_[n_words] = words_[w];
        words_[n_words + 1] = marks[words_[w + 1]];
        n_words += 2;
      }
      marks[i] = n;
      firsts_[++n] = n_words;
    }
    first = end;
  }
  words_.resize(n_words);
  firsts_.resize(n + 1);
  fill_table();
}

}  // namespace weir::constraint
