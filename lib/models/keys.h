// The keys of an architecture: their names, those that change what a model computes and that nothing here reads, and
// those that nobody here knows.
#pragma once

#include <cstdio>
#include <string_view>

#include "core/notes.h"
#include "core/progress.h"
#include "core/status.h"
#include "gguf/gguf.h"

namespace weir {

struct Architecture;

// A key under the architecture's prefix, formatted on the stack.
struct Key {
  char text[128];
  Key(std::string_view prefix, const char* rest) {
    std::snprintf(text, sizeof(text), "%.*s.%s", static_cast<int>(prefix.size()), prefix.data(), rest);
  }
  operator std::string_view() const { return text; }
};

// The first of the two names that the file has, for a number that writers call differently; the first if it has none.
inline Key known_as(const GgufFile& file, std::string_view prefix, const char* name, const char* other_name) {
  const Key key(prefix, name), other(prefix, other_name);
  return file.find(key) == nullptr && file.find(other) != nullptr ? other : key;
}

using Getter = Status (GgufFile::*)(std::string_view key, uint32_t& out) const;

// A number in low..high; WEIR_ERR_FORMAT naming the key.
Status get_ranged(const GgufFile& file, const Key& key, uint32_t low, uint32_t high, uint32_t& out,
                  Getter get = &GgufFile::get_u32);

// Far above every published model, low enough that sizes computed from it stay well inside 64 bits.
inline constexpr uint32_t kMaxWidth = 1u << 20;

// WEIR_ERR_UNSUPPORTED naming the first key that changes what a model computes, has a value that does so, and is not
// read for this architecture.
Status refuse_unread_keys(const GgufFile& file, const Architecture& arch);

// A warning for each key of the architecture that this version does not know.
Status note_unknown_keys(const GgufFile& file, const Architecture& arch, OpenProgress& progress, Notes& notes);

}  // namespace weir
