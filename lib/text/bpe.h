// Byte-level BPE: the merges of a file as a table from a pair of tokens to the token that they become, and their
// application to one piece of text. The pieces come from a pre-tokenizer.
#pragma once

#include <memory_resource>
#include <string_view>
#include <vector>

#include "core/progress.h"
#include "core/status.h"
#include "gguf/gguf.h"
#include "text/added_tokens.h"
#include "text/keyed_hash.h"
#include "text/merge_list.h"
#include "text/vocab.h"

namespace weir {

class BpeMerges {
 public:
  explicit BpeMerges(std::pmr::memory_resource* memory) : slots_(memory) {}

  // Reads tokenizer.ggml.merges. Every merge is "left right"; both halves and their concatenation must be tokens of the
  // vocabulary (files of real models keep to that), anything else is WEIR_ERR_FORMAT naming the index. A pair that
  // comes twice keeps its first rank. `key` is the hash key of the table.
  Status read(const GgufFile& file, const Vocab& vocab, const AddedTokens& added, const HashKey& key,
              OpenProgress& progress);

  // Leaves the tokens of `piece` in `list`; a byte that the vocabulary lacks stays a symbol with token -1.
  void apply(std::string_view piece, const Vocab& vocab, MergeList& list) const;

  // Occupied slots that were passed by while the table was filled: what collisions cost.
  uint64_t n_collisions() const { return n_collisions_; }

 private:
  struct Slot {
    uint64_t pair;  // left << 32 | right
    uint32_t rank;
    weir_token merged;  // -1: free
  };

  void insert(weir_token left, weir_token right, uint32_t rank, weir_token merged);
  weir_token find(weir_token left, weir_token right, uint32_t& rank) const;
  size_t first_slot(uint64_t pair) const { return keyed_hash(pair, key_) >> hash_shift_; }

  std::pmr::vector<Slot> slots_;  // open addressing, a power of two, at least 2
  uint32_t hash_shift_ = 0;       // shifts a hash down to the index of a slot
  HashKey key_;
  uint64_t n_collisions_ = 0;
};

}  // namespace weir
