// What a constraint is compiled to: a grammar, the tree of the model's tokens, and the masks that are known so far.
// Immutable but for the masks, which are behind a lock; any number of matchers use it.
#pragma once

#include <memory_resource>
#include <string_view>

#include "core/status.h"
#include "text/constraint/grammar.h"
#include "text/constraint/mask_cache.h"
#include "text/constraint/matcher.h"
#include "text/constraint/token_trie.h"
#include "weir/constraint.h"

namespace weir::constraint {

class Constraint {
 public:
  Constraint(const TokenTrie& trie, std::pmr::memory_resource* memory)
      : trie_(trie), grammar_(memory), cache_(memory) {}

  // `kind`: enum weir_constraint_kind.
  Status compile(int32_t kind, std::string_view text);

  const Grammar& grammar() const { return grammar_; }
  const TokenTrie& trie() const { return trie_; }
  const MaskCache& cache() const { return cache_; }
  void mask(Matcher& matcher, uint32_t* words);

 private:
  const TokenTrie& trie_;
  Grammar grammar_;
  MaskCache cache_;
};

// A front end each. They write rules, the root first, and finish the grammar.
Status compile_schema(std::string_view text, GrammarBuilder& builder, std::pmr::memory_resource* memory);
Status compile_tools(std::string_view text, GrammarBuilder& builder, std::pmr::memory_resource* memory);
Status compile_gbnf(std::string_view text, GrammarBuilder& builder, std::pmr::memory_resource* memory);

}  // namespace weir::constraint
