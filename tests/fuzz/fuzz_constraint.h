// What the fuzzers of constraints share: compile a text, follow another one, byte by byte.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/memory.h"
#include "text/constraint/constraint.h"

namespace weir_fuzz {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

using Compile = weir::Status (*)(std::string_view, weir::constraint::GrammarBuilder&, std::pmr::memory_resource*);

// A compiled text either can go on or is complete, wherever it is alive; the same text is followed the same way again.
inline void follow(const weir::constraint::Grammar& grammar, std::string_view text, weir::HostMemory& memory) {
  weir::constraint::Matcher matcher(grammar, &memory), again(grammar, &memory);
  require(matcher.goes_on() || matcher.is_complete(), "a grammar has a text");
  const uint64_t bytes = memory.bytes();
  for (size_t i = 0; i < text.size() && !matcher.is_dead(); ++i) {
    matcher.advance(text.substr(i, 1));
    if (matcher.is_full()) break;
    require(matcher.is_dead() || matcher.goes_on() || matcher.is_complete(), "what is alive leads to an end");
  }
  again.advance(text);
  if (!matcher.is_full() && !again.is_full())
    require(again.is_dead() == matcher.is_dead(), "the same text is followed the same way");
  require(memory.bytes() == bytes, "following takes no memory");
}

inline void run(Compile compile, std::string_view all) {
  const size_t end = std::min(all.find('\0'), all.size());
  weir::HostMemory memory({});
  {
    weir::constraint::Grammar grammar(&memory);
    weir::constraint::GrammarBuilder builder(grammar, &memory);
    const weir::Status status = compile(all.substr(0, end), builder, &memory);
    const bool is_refusal = status.code() == WEIR_ERR_INVALID_ARG || status.code() == WEIR_ERR_UNSUPPORTED;
    require(status.ok() || is_refusal, "a text is compiled or refused");
    if (status.ok()) follow(grammar, all.substr(std::min(end + 1, all.size())), memory);
  }
  require(memory.bytes() == 0, "all memory went back");
}

}  // namespace weir_fuzz
