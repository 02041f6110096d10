// Lists of numbers, each kept once and known by its index: states of automata that stand for sets of others.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "core/pod_vector.h"

namespace weir::constraint {

class WordSets {
 public:
  explicit WordSets(std::pmr::memory_resource* memory) : words_(memory), firsts_(memory), table_(memory) {
    firsts_.push_back(0);
    table_.resize(64, 0);
  }

  uint32_t size() const { return firsts_.size() - 1; }
  std::span<const uint32_t> operator[](uint32_t i) const {
    return words_.part(firsts_[i], firsts_[i + 1] - firsts_[i]);
  }
  uint32_t find_or_add(const uint32_t* words, uint32_t n);  // the words are not of this object

  // With these it needs no more memory: room for so many lists and words is taken at once, and the caller asks whether
  // what may come still fits.
  void reserve(uint32_t n_lists, uint32_t n_words);
  bool has_room(uint32_t n_lists, uint32_t n_words) const {
    return size() + n_lists < firsts_.capacity() - 1 && words_.size() + n_words <= words_.capacity();
  }
  void clear();
  void copy_from(const WordSets& other);  // which has as much room
  // Keeps the marked lists, of pairs whose second word is the index of an earlier list that is marked, too. Marks
  // become the new indices.
  void keep_marked(uint32_t* marks);

 private:
  uint32_t slot(const uint32_t* words, uint32_t n) const;
  void fill_table();

  PodVector<uint32_t> words_, firsts_;
  PodVector<uint32_t> table_;  // indices + 1
};

}  // namespace weir::constraint
