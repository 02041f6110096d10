// The methods of texts, which keep track of where their characters came from.
#include <algorithm>

#include "text/jinja/run.h"
#include "text/jinja/unicode.h"

namespace weir::jinja {
namespace {

using std::string_view;

constexpr size_t kNowhere = string_view::npos;

Value part(Run& run, const Str& text, size_t begin, size_t end = kNowhere) {
  Str* cut = run.make_text();
  const Value kept = cut;
  cut->append(text, begin, end);
  return kept;
}

// The argument as a text; none after an error.
const Str* text_arg(Run& run, const Args& args, size_t i) {
  if (args[i].is_string()) return &args[i].text();
  run.error("a text was expected, not '%s'", type_name(args[i]));
  return nullptr;
}

int64_t number_arg(Run& run, const Args& args, size_t i, int64_t otherwise) {
  if (!args.has(i) || args[i].is_none()) return otherwise;
  if (!args[i].is_integer()) run.error("an integer was expected, not '%s'", type_name(args[i]));
  return args[i].is_integer() ? args[i].integer() : otherwise;
}

bool has_letter(string_view letters, string_view letter) {
  for (size_t i = 0, n; i < letters.size(); i += n) {
    code_at(letters, i, n);
    if (letters.substr(i, n) == letter) return true;
  }
  return false;
}

// Bytes of the character that ends at `end`.
size_t bytes_before(string_view text, size_t end) {
  for (size_t n = std::min<size_t>(4, end); n > 1; --n) {
    size_t bytes;
    code_at(text, end - n, bytes);
    if (bytes == n) return n;
  }
  return 1;
}

template <Trim ends>
Value m_strip(Run& run, const Value& self, const Args& args) {
  return trimmed(run, self.text(), ends, args.has(0) ? &args[0] : nullptr);
}

template <Case form>
Value m_case(Run& run, const Value& self, const Args&) {
  return with_case(run, self.text(), form);
}

// Whether all characters are of a kind, and there is one.
template <bool (*has)(uint32_t)>
Value m_all(Run& run, const Value& self, const Args&) {
  const string_view text = self.view();
  bool all = !text.empty() && run.spend(text.size() / kStepBytes);
  for (size_t i = 0, n; all && i < text.size(); i += n) all = has(code_at(text, i, n));
  return Value::boolean(all, is_said(self));
}

bool is_digit(uint32_t code) { return code >= '0' && code <= '9'; }
bool is_letter_or_digit(uint32_t code) { return is_digit(code) || is_letter(code); }
bool is_ascii(uint32_t code) { return code < 0x80; }

template <Case form>
Value m_is_case(Run& run, const Value& self, const Args& args) {
  const auto tests = test_table();
  return tests[find_function(tests, form == Case::kUpper ? "upper" : "lower")].run(run, self, args);
}

// startswith and endswith: with one text or a tuple of them, in a stretch of the text.
template <bool at_start>
Value m_begins(Run& run, const Value& self, const Args& args) {
  Value in = self;
  if (args.has(1)) in = run.sliced(self, args[1], args.has(2) ? args[2] : Value::none(), Value::none());
  if (run.failed()) return {};
  const auto fits = [&](const Value& wanted) {
    return wanted.is_string() && (at_start ? in.view().starts_with(wanted.view()) : in.view().ends_with(wanted.view()));
  };
  if (args[0].is_string()) return Value::boolean(fits(args[0]));
  if (!args[0].is_sequence() || !args[0].sequence().is_tuple())
    return run.error("startswith and endswith take a text or a tuple of texts, not '%s'", type_name(args[0]));
  const auto& wanted = args[0].sequence().items;
  return Value::boolean(std::any_of(wanted.begin(), wanted.end(), fits));
}

// Where a text is in another one, in characters.
template <bool from_end, bool must_be_there>
Value m_find(Run& run, const Value& self, const Args& args) {
  const Str* wanted = text_arg(run, args, 0);
  if (wanted == nullptr || !run.spend(self.view().size() / kStepBytes)) return {};
  Value in = self;
  int64_t before = 0;
  if (args.has(1)) {
    in = run.sliced(self, args[1], args.has(2) ? args[2] : Value::none(), Value::none());
    before = run.failed() || args[1].is_none() ? 0 : args[1].integer();
    if (before < 0) before = std::max<int64_t>(0, before + run.length_of(self));
    if (run.failed()) return {};
  }
  const size_t at = from_end ? in.view().rfind(wanted->text) : in.view().find(wanted->text);
  if (at == kNowhere) return must_be_there ? run.error("substring not found") : Value::integer(-1);
  return Value::integer(before + run.length_of(part(run, in.text(), 0, at)), is_said(self));
}

Value m_count(Run& run, const Value& self, const Args& args) {
  const Str* wanted = text_arg(run, args, 0);
  if (wanted == nullptr || !run.spend(self.view().size() / kStepBytes)) return {};
  if (wanted->text.empty()) return Value::integer(run.length_of(self) + 1);
  int64_t n = 0;
  for (size_t at = 0; (at = self.view().find(wanted->text, at)) != kNowhere; at += wanted->text.size()) ++n;
  return Value::integer(n, is_said(self));
}

Value m_replace(Run& run, const Value& self, const Args& args) {
  const Str *from = text_arg(run, args, 0), *to = text_arg(run, args, 1);
  const int64_t n_most = number_arg(run, args, 2, -1);
  return run.failed() ? Value() : replaced(run, self.text(), *from, *to, n_most);
}

// ---- split ----

// At white space, from the front or from the back, into at most n + 1 pieces.
Value split_spaces(Run& run, const Str& text, int64_t n, bool from_end) {
  std::pmr::vector<TextRange> words(&run.heap);
  const string_view all = text.text;
  size_t begin = kNowhere;
  for (size_t i = 0, bytes; i < all.size(); i += bytes) {
    const bool space = is_space(code_at(all, i, bytes));
    if (space && begin != kNowhere) words.push_back({begin, i});
    begin = space ? kNowhere : begin == kNowhere ? i : begin;
  }
  if (begin != kNowhere) words.push_back({begin, all.size()});
  if (n >= 0 && words.size() > static_cast<size_t>(n) + 1) {
    const size_t n_kept = static_cast<size_t>(n);
    if (from_end) {
      words[words.size() - n_kept - 1].begin = words.front().begin;
      words.erase(words.begin(), words.end() - static_cast<std::ptrdiff_t>(n_kept) - 1);
    } else {
      words[n_kept].end = all.size();  // what stands behind the last word stays
      words.resize(n_kept + 1);
    }
    if (from_end) words.front().begin = 0;
  }
  Seq* list = run.make_list();
  const Value kept = list;
  for (const TextRange& word : words) {
    if (run.spend(1)) list->items.push_back(part(run, text, word.begin, word.end));
  }
  return kept;
}

template <bool from_end>
Value m_split(Run& run, const Value& self, const Args& args) {
  const int64_t n = number_arg(run, args, 1, -1);
  if (run.failed() || !run.spend(self.view().size() / kStepBytes)) return {};
  const Str& text = self.text();
  if (!args.has(0) || args[0].is_none()) return split_spaces(run, text, n, from_end);
  const Str* between = text_arg(run, args, 0);
  if (between == nullptr) return {};
  if (between->text.empty()) return run.error("empty separator");
  Seq* list = run.make_list();
  const Value kept = list;
  const string_view all = text.text;
  size_t begin = 0, end = all.size();
  for (int64_t i = 0; (n < 0 || i < n) && run.spend(1); ++i) {
    if (from_end) {
      const size_t at = end < between->text.size() ? kNowhere : all.rfind(between->text, end - between->text.size());
      if (at == kNowhere) break;
      list->items.push_back(part(run, text, at + between->text.size(), end));
      end = at;
    } else {
      const size_t at = all.find(between->text, begin);
      if (at == kNowhere) break;
      list->items.push_back(part(run, text, begin, at));
      begin = at + between->text.size();
    }
  }
  list->items.push_back(part(run, text, begin, end));
  if (from_end) std::reverse(list->items.begin(), list->items.end());
  return kept;
}

Value m_splitlines(Run& run, const Value& self, const Args& args) {
  return lines_of(run, self.text(), args.has(0) && is_true(args[0]));
}

template <bool from_end>
Value m_partition(Run& run, const Value& self, const Args& args) {
  const Str* between = text_arg(run, args, 0);
  if (between == nullptr) return {};
  if (between->text.empty()) return run.error("empty separator");
  const Str& text = self.text();
  const size_t at = from_end ? text.text.rfind(between->text) : text.text.find(between->text);
  Seq* parts = run.make_list(SeqKind::kTuple);
  const Value kept = parts;
  if (at == kNowhere) {
    parts->items = {run.make_text(), run.make_text(), run.make_text()};
    parts->items[from_end ? 2 : 0] = self;
  } else {
    const size_t behind = at + between->text.size();
    parts->items = {part(run, text, 0, at), part(run, text, at, behind), part(run, text, behind)};
  }
  return kept;
}

template <bool at_start>
Value m_without(Run& run, const Value& self, const Args& args) {
  const Str* end = text_arg(run, args, 0);
  if (end == nullptr) return {};
  const size_t n = end->text.size(), size = self.view().size();
  if (at_start) return self.view().starts_with(end->text) ? part(run, self.text(), n) : self;
  return self.view().ends_with(end->text) ? part(run, self.text(), 0, size - n) : self;
}

// ---- padding ----

enum class Side : uint8_t { kLeft, kRight, kCenter, kZeros };

template <Side text_side>
Value m_pad(Run& run, const Value& self, const Args& args) {
  const int64_t width = number_arg(run, args, 0, 0), n = run.length_of(self);
  if (run.failed() || width <= n) return self;
  const Value with = args.has(1) ? args[1] : Value(run.make_text(text_side == Side::kZeros ? "0" : " "));
  if (run.length_of(with) != 1 || !with.is_string()) return run.error("the fill character is not one character");
  const int64_t missing = width - n;
  int64_t before = text_side == Side::kLeft ? 0 : missing;
  if (text_side == Side::kCenter) before = missing / 2 + (missing & width & 1);
  const bool has_sign =
      text_side == Side::kZeros && !self.view().empty() && (self.view()[0] == '-' || self.view()[0] == '+');
  const Value left = run.binary(Op::kMul, with, Value::integer(before));
  const Value right = run.binary(Op::kMul, with, Value::integer(missing - before));
  if (run.failed()) return {};
  Str* out = run.make_text();
  const Value kept = out;
  out->append(self.text(), 0, has_sign ? 1 : 0);
  out->append(left.text());
  out->append(self.text(), has_sign ? 1 : 0);
  out->append(right.text());
  return kept;
}

Value m_format(Run& run, const Value& self, const Args& args) { return format_braces(run, self.text(), args); }

Value m_join(Run& run, const Value& self, const Args& args) {
  const Value list = run.items_of(args[0]);
  if (run.failed()) return {};
  Args more(&run.heap);
  more.list.push_back(self);
  for (const Value& item : list.sequence().items) {
    if (!item.is_string()) return run.error("sequence item: expected str instance, %s found", type_name(item));
  }
  return run.filter(find_filter("join"), "join", list, more);
}

constexpr Function kMethods[] = {
    {"capitalize", "", 0, m_case<Case::kCapital>},
    {"casefold", "", 0, m_case<Case::kLower>},
    {"center", "width,fillchar", 1, m_pad<Side::kCenter>},
    {"count", "sub", 1, m_count},
    {"endswith", "suffix,start,end", 1, m_begins<false>},
    {"find", "sub,start,end", 1, m_find<false, false>},
    {"format", nullptr, 0, m_format},
    {"index", "sub,start,end", 1, m_find<false, true>},
    {"isalnum", "", 0, m_all<is_letter_or_digit>},
    {"isalpha", "", 0, m_all<is_letter>},
    {"isascii", "", 0, m_all<is_ascii>},
    {"isdecimal", "", 0, m_all<is_digit>},
    {"isdigit", "", 0, m_all<is_digit>},
    {"islower", "", 0, m_is_case<Case::kLower>},
    {"isnumeric", "", 0, m_all<is_digit>},
    {"isspace", "", 0, m_all<is_space>},
    {"isupper", "", 0, m_is_case<Case::kUpper>},
    {"join", "iterable", 1, m_join},
    {"ljust", "width,fillchar", 1, m_pad<Side::kLeft>},
    {"lower", "", 0, m_case<Case::kLower>},
    {"lstrip", "chars", 0, m_strip<Trim::kLeft>},
    {"partition", "sep", 1, m_partition<false>},
    {"removeprefix", "prefix", 1, m_without<true>},
    {"removesuffix", "suffix", 1, m_without<false>},
    {"replace", "old,new,count", 2, m_replace},
    {"rfind", "sub,start,end", 1, m_find<true, false>},
    {"rindex", "sub,start,end", 1, m_find<true, true>},
    {"rjust", "width,fillchar", 1, m_pad<Side::kRight>},
    {"rpartition", "sep", 1, m_partition<true>},
    {"rsplit", "sep,maxsplit", 0, m_split<true>},
    {"rstrip", "chars", 0, m_strip<Trim::kRight>},
    {"split", "sep,maxsplit", 0, m_split<false>},
    {"splitlines", "keepends", 0, m_splitlines},
    {"startswith", "prefix,start,end", 1, m_begins<true>},
    {"strip", "chars", 0, m_strip<Trim::kBoth>},
    {"swapcase", "", 0, m_case<Case::kSwap>},
    {"title", "", 0, m_case<Case::kTitle>},
    {"upper", "", 0, m_case<Case::kUpper>},
    {"zfill", "width", 1, m_pad<Side::kZeros>},
};

}  // namespace

std::span<const Function> text_methods() { return kMethods; }

Value trimmed(Run& run, const Str& text, Trim ends, const Value* which) {
  if (which != nullptr && !which->is_string() && !which->is_none())
    return run.error("strip takes a text, not '%s'", type_name(*which));
  const bool has_letters = which != nullptr && which->is_string();
  const string_view all = text.text;
  const auto goes = [&](size_t at, size_t n) {
    return has_letters ? has_letter(which->view(), all.substr(at, n)) : is_space(code_at(all, at, n));
  };
  size_t begin = 0, end = all.size();
  for (size_t n; ends != Trim::kRight && begin < end; begin += n) {
    code_at(all, begin, n);
    if (!goes(begin, n)) break;
  }
  while (ends != Trim::kLeft && end > begin) {
    const size_t n = bytes_before(all, end);
    if (!goes(end - n, n)) break;
    end -= n;
  }
  run.has_room(all.size());
  return part(run, text, begin, end);
}

Value with_case(Run& run, const Str& text, Case form) {
  Str* out = run.make_text();
  const Value kept = out;
  if (!run.has_room(text.text.size())) return kept;
  std::pmr::string letter(&run.heap);
  bool in_word = false;
  out->text.reserve(text.text.size());
  for (size_t i = 0, n; i < text.text.size(); i += n) {
    const uint32_t code = code_at(text.text, i, n), low = to_lower(code);
    const bool has_case = low != code || to_upper(code) != code;
    const bool to_up = form == Case::kUpper || (form == Case::kSwap && low == code) ||
                       (form == Case::kCapital && i == 0) || (form == Case::kTitle && !in_word);
    in_word = has_case || (code == 0xDF && in_word);
    letter.clear();
    if (to_up && !long_upper(code).empty()) {
      letter = long_upper(code);
      for (size_t k = 1; k < letter.size() && (form == Case::kTitle || form == Case::kCapital); ++k) letter[k] |= 0x20;
    } else {
      put_code(letter, to_up ? to_upper(code) : low);
    }
    out->append(letter, text.is_said_at(i));
  }
  return kept;
}

Value replaced(Run& run, const Str& text, const Str& from, const Str& to, int64_t n_most) {
  Str* out = run.make_text();
  const Value kept = out;
  const string_view all = text.text;
  size_t at = 0;
  for (int64_t i = 0; n_most < 0 || i < n_most; ++i) {
    if (!run.has_room(out->text.size()) || !run.spend(1)) return kept;
    size_t found = all.find(from.text, at);
    if (from.text.empty()) {  // before each character and at the end
      size_t n = 0;
      if (i > 0 && at < all.size()) code_at(all, at, n);
      found = i > 0 && at == all.size() ? kNowhere : at + n;
    }
    if (found == kNowhere) break;
    out->append(text, at, found);
    out->append(to);
    at = found + from.text.size();
  }
  out->append(text, at);
  run.has_room(out->text.size());
  return kept;
}

Value lines_of(Run& run, const Str& text, bool keep_ends) {
  Seq* list = run.make_list();
  const Value kept = list;
  const string_view all = text.text;
  size_t begin = 0;
  for (size_t i = 0, n; i < all.size() && run.spend(1); i += n) {
    const uint32_t code = code_at(all, i, n);
    const bool is_end = (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
                        code == 0x2028 || code == 0x2029;
    if (!is_end) continue;
    const size_t end = i + (all.substr(i, 2) == "\r\n" ? 2 : n);
    list->items.push_back(part(run, text, begin, keep_ends ? end : i));
    n = end - i;
    begin = end;
  }
  if (begin < all.size()) list->items.push_back(part(run, text, begin));
  return kept;
}

}  // namespace weir::jinja
