// Regular expressions of pre-tokenizers, compiled by PCRE2, and the walk over a text with them.
#include "text/pre_tokenizer.h"

#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <string>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/utf8.h"

namespace weir {
namespace {

using std::string_view;

#define WEIR_PRE_PATTERNS(List, ...) constexpr const char* k##List[] = {__VA_ARGS__};
#define WEIR_PRE_TOKENIZER(name, List, flags)
#include "text/pre_tokenizers.inc"
#undef WEIR_PRE_PATTERNS
#undef WEIR_PRE_TOKENIZER

struct Entry {
  const char* name;
  const char* const* patterns;
  size_t n_patterns;
  uint32_t flags;
};

#define WEIR_PRE_PATTERNS(List, ...)
#define WEIR_PRE_TOKENIZER(name, List, flags) {name, k##List, std::size(k##List), flags},
constexpr Entry kEntries[] = {
#include "text/pre_tokenizers.inc"
};
#undef WEIR_PRE_PATTERNS
#undef WEIR_PRE_TOKENIZER

constexpr bool lists_fit() {
  for (const Entry& entry : kEntries) {
    if (entry.n_patterns > kMaxPrePatterns) return false;
  }
  return true;
}
static_assert(lists_fit());

// The property White_Space. PCRE2's \s would count U+180E too, which has not been a space since Unicode 6.3.
constexpr string_view kWhiteSpace =
    R"(\t-\r\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr char kStandIn =
    '\x01';  // for a byte that is not UTF-8: no letter, number, mark, punctuation, symbol or space
constexpr uint32_t kCompileOptions =
    PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C;

// PCRE2 frees without telling the size, so that is kept in front of each block.
constexpr size_t kBlockHeader = alignof(std::max_align_t);
static_assert(kBlockHeader >= sizeof(size_t));

void* pcre_allocate(size_t n_bytes, void* resource) noexcept {
  if (n_bytes > std::numeric_limits<size_t>::max() - kBlockHeader) return nullptr;
  try {
    void* block = static_cast<std::pmr::memory_resource*>(resource)->allocate(n_bytes + kBlockHeader);
    *static_cast<size_t*>(block) = n_bytes;
    return static_cast<char*>(block) + kBlockHeader;
  } catch (...) {
    return nullptr;  // PCRE2 reports it as an error of its own
  }
}

void pcre_free(void* data, void* resource) noexcept {
  if (data == nullptr) return;
  void* block = static_cast<char*>(data) - kBlockHeader;
  static_cast<std::pmr::memory_resource*>(resource)->deallocate(block, *static_cast<size_t*>(block) + kBlockHeader);
}

// `pattern` with \s and \S written out.
std::pmr::string spell_out(string_view pattern, std::pmr::memory_resource* memory) {
  std::pmr::string out(memory);
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\') {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      out.push_back(c);
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped != 's' && escaped != 'S') {
      out.append({c, escaped});
    } else if (in_class) {
      out.append(kWhiteSpace);  // the list has no \S inside of a class
    } else {
      out.append(escaped == 's' ? "[" : "[^").append(kWhiteSpace).append("]");
    }
  }
  return out;
}

const Entry* find_entry(string_view name) {
  for (const Entry& entry : kEntries) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

pcre2_code* code_of(void* pattern) { return static_cast<pcre2_code*>(pattern); }

// PCRE2's objects, freed on every way out.
struct Free {
  void operator()(pcre2_general_context* p) const { pcre2_general_context_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

template <class T>
T* or_throw(T* object) {
  if (object == nullptr) throw std::bad_alloc();
  return object;
}

}  // namespace

PreTokenizer::~PreTokenizer() {
  for (void* pattern : patterns_) pcre2_code_free(code_of(pattern));  // null is allowed
  // PCRE2 keeps executable pages for the next expression, even when the library is unloaded; this frees them. There is
  // no context because they do not come from an allocator.
  pcre2_jit_free_unused_memory(nullptr);
}

Status PreTokenizer::build(string_view name, std::pmr::memory_resource* memory) {
  const Entry* entry = find_entry(name.empty() ? "default" : name);
  if (entry == nullptr) {
    const int shown = static_cast<int>(name.size() < 64 ? name.size() : 64);
    return fail(WEIR_ERR_UNSUPPORTED, "tokenizer.ggml.pre: this version does not know the pre-tokenizer \"%.*s\"",
                shown, name.data());
  }
  name_ = entry->name;
  flags_ = entry->flags;
  const Owned<pcre2_general_context> general(or_throw(pcre2_general_context_create(pcre_allocate, pcre_free, memory)));
  const Owned<pcre2_compile_context> context(or_throw(pcre2_compile_context_create(general.get())));
  for (; n_patterns_ < entry->n_patterns; ++n_patterns_) {
    const std::pmr::string pattern = spell_out(entry->patterns[n_patterns_], memory);
    int error = 0;
    PCRE2_SIZE at = 0;
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), kCompileOptions,
                                     &error, &at, context.get());
    if (code == nullptr && error == PCRE2_ERROR_HEAP_FAILED) throw std::bad_alloc();
    if (code == nullptr) {
      return fail(WEIR_ERR_INTERNAL, "pre-tokenizer %s: PCRE2 refuses expression %zu at byte %zu with error %d", name_,
                  n_patterns_, at, error);
    }
    patterns_[n_patterns_] = code;
    jit_[n_patterns_] = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  }
  return {};
}

PreSplitter::PreSplitter(const PreTokenizer& pre, std::pmr::memory_resource* memory) : pre_(pre), stand_in_(memory) {
  Owned<pcre2_general_context> general(or_throw(pcre2_general_context_create(pcre_allocate, pcre_free, memory)));
  Owned<pcre2_match_context> limits(or_throw(pcre2_match_context_create(general.get())));
  pcre2_set_match_limit(
      limits.get(),
      std::numeric_limits<uint32_t>::max());  // the expressions are linear: a long run of spaces is no attack
  match_data_ = or_throw(pcre2_match_data_create(1, general.get()));
  limits_ = limits.release();
  general_ = general.release();
}

PreSplitter::~PreSplitter() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(match_data_));
  pcre2_match_context_free(static_cast<pcre2_match_context*>(limits_));
  pcre2_general_context_free(static_cast<pcre2_general_context*>(general_));
}

Status PreSplitter::split(string_view text, PieceFn fn, void* context) {
  text_ = subject_ = text;
  fn_ = fn;
  context_ = context;
  if (size_t at = utf8_valid_prefix(text); at < text.size()) {
    stand_in_.assign(text);
    while (at < text.size()) {
      stand_in_[at++] = kStandIn;
      at += utf8_valid_prefix(text.substr(at));
    }
    subject_ = stand_in_;
  }
  return split_from(0, 0, text.size());
}

// Splits [begin, end) by the expressions from `pattern` on. As deep as the list is long.
Status PreSplitter::split_from(size_t pattern, size_t begin, size_t end) {
  if (begin == end) return {};
  if (pattern == pre_.n_patterns_) return fn_(context_, text_.substr(begin, end - begin));
  const string_view subject = subject_.substr(begin, end - begin);
  for (size_t at = 0; at < subject.size();) {
    bool found = false;
    size_t from = 0, to = 0;
    WEIR_TRY(match(pattern, subject, at, found, from, to));
    if (!found || to == from) return split_from(pattern + 1, begin + at, end);
    WEIR_TRY(split_from(pattern + 1, begin + at, begin + from));
    WEIR_TRY(split_from(pattern + 1, begin + from, begin + to));
    at = to;
  }
  return {};
}

Status PreSplitter::match(size_t pattern, string_view subject, size_t from, bool& found, size_t& begin, size_t& end) {
  auto* code = code_of(pre_.patterns_[pattern]);
  auto* data = static_cast<pcre2_match_data*>(match_data_);
  auto* limits = static_cast<pcre2_match_context*>(limits_);
  const auto* text = reinterpret_cast<PCRE2_SPTR>(subject.data());
  int rc = PCRE2_ERROR_JIT_STACKLIMIT;
  if (pre_.jit_[pattern]) rc = pcre2_jit_match(code, text, subject.size(), from, 0, data, limits);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
    rc = pcre2_match(code, text, subject.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, limits);
  }
  found = rc >= 0;
  if (found) {
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data);
    begin = range[0];
    end = range[1];
    return {};
  }
  if (rc == PCRE2_ERROR_NOMATCH) return {};
  if (rc == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
  return fail(WEIR_ERR_INTERNAL, "pre-tokenizer %s: PCRE2 error %d in expression %zu", pre_.name_, rc, pattern);
}

}  // namespace weir
