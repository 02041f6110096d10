// Methods and filters of texts, which keep track of where their characters came from, and of numbers.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/c_format.h"
#include "text/jinja/run.h"

namespace weir::jinja {
namespace {

using std::string_view;

constexpr size_t kNowhere = string_view::npos;

// ---- pieces of a text ----

using Pieces = std::pmr::vector<TextRange>;

// What is between the places of a separator, which are looked for from the front or from the back.
Pieces pieces_between(Run& run, string_view all, string_view separator, bool from_end) {
  Pieces pieces(&run.heap);
  size_t begin = 0, end = all.size();
  if (!run.can_search(all, separator)) {
    begin = end;
  } else if (separator.empty()) {  // which is before each character and at the end
    pieces.push_back({0, 0});
    for (size_t n; begin < end && run.spend(1); begin += n) {
      code_at(all, begin, n);
      pieces.push_back({begin, begin + n});
    }
  } else if (from_end) {
    for (size_t at; end >= separator.size() && run.spend(1); end = at) {
      at = all.rfind(separator, end - separator.size());
      if (at == kNowhere) break;
      pieces.push_back({at + separator.size(), end});
    }
  } else {
    for (size_t at; (at = all.find(separator, begin)) != kNowhere && run.spend(1); begin = at + separator.size())
      pieces.push_back({begin, at});
  }
  pieces.push_back({begin, end});
  if (from_end && !separator.empty()) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

// What is between white space.
Pieces words_of(Run& run, string_view all) {
  Pieces words(&run.heap);
  for (size_t i = 0, n; i < all.size(); i += n) {
    if (is_space(code_at(all, i, n))) continue;
    if (words.empty() || words.back().end < i) words.push_back({i, i});
    words.back().end = i + n;
  }
  run.spend(words.size() + all.size() / kStepBytes);
  return words;
}

// Cuts only so many times, from the front or from the back: what follows is one piece. Below 0: everywhere.
void limit_cuts(Pieces& pieces, int64_t most, size_t size, bool from_end) {
  const auto n = static_cast<size_t>(most);
  if (most < 0 || pieces.size() <= n) return;
  const auto last = static_cast<std::ptrdiff_t>(pieces.size() - 1 - n);
  (from_end ? pieces.end()[-1 - most].begin : pieces[n].end) = from_end ? 0 : size;
  pieces.erase(from_end ? pieces.begin() : pieces.end() - last, from_end ? pieces.begin() + last : pieces.end());
}

// At the separator or at white space.
template <bool from_end>
Value m_split(Run& run, const Args& args) {
  const string_view all = args[0].view();
  if (args.has(1) && args[1].view().empty()) return run.error("empty separator");
  Pieces pieces = args.has(1) ? pieces_between(run, all, args[1].view(), from_end) : words_of(run, all);
  limit_cuts(pieces, args.number(2, -1), all.size(), from_end);
  Seq* list = run.new_list();
  for (const auto& [begin, end] : pieces) list->items.push_back(run.part(args[0].text(), begin, end));
  return list;
}

Value f_replace(Run& run, const Args& args) {
  Pieces pieces = pieces_between(run, args[0].view(), args[1].view(), false);
  limit_cuts(pieces, args.number(3, -1), args[0].view().size(), false);
  Str* out = run.new_text();
  for (const TextRange& piece : pieces) {
    if (&piece != &pieces.front()) run.add(*out, args[2].text());
    if (!run.add(*out, args[0].text(), piece.begin, piece.end)) break;
  }
  return out;
}

template <bool from_end>
Value m_partition(Run& run, const Args& args) {
  const size_t size = args[0].view().size(), edge = from_end ? 0 : size;
  if (args[1].view().empty()) return run.error("empty separator");
  Pieces pieces = pieces_between(run, args[0].view(), args[1].view(), from_end);
  limit_cuts(pieces, 1, size, from_end);
  if (pieces.size() == 1) pieces.insert(from_end ? pieces.begin() : pieces.end(), {edge, edge});
  const auto part = [&](size_t begin, size_t end) { return Value(run.part(args[0].text(), begin, end)); };
  return run.new_list({part(0, pieces[0].end), part(pieces[0].end, pieces[1].begin), part(pieces[1].begin, size)},
                      SeqKind::kTuple);
}

Seq* lines_of(Run& run, const Str& text, bool with_ends) {
  Seq* list = run.new_list();
  const string_view all = text.text;
  size_t begin = 0;
  for (size_t i = 0, n; i < all.size() && !run.failed(); i += n) {
    const uint32_t code = code_at(all, i, n);
    if ((code < 0x0A || code > 0x0D) && (code < 0x1C || code > 0x1E) && code != 0x85 && code != 0x2028 &&
        code != 0x2029)
      continue;
    if (all.substr(i, 2) == "\r\n") n = 2;
    list->items.push_back(run.part(text, begin, with_ends ? i + n : i));
    begin = i + n;
  }
  if (begin < all.size()) list->items.push_back(run.part(text, begin));
  return list;
}

Value f_indent(Run& run, const Args& args) {
  const Value width = args.has(1) ? args[1] : Value::integer(4), lines = lines_of(run, args[0].text(), false);
  const Value space = width.is_string() ? width : run.binary(Op::kMul, run.new_text(" "), width);
  if (run.failed()) return {};
  Str* out = run.new_text();
  // Jinja puts a line end behind the text first, so an end of its own stays.
  if (args[0].view().empty() || args[0].view().ends_with('\n')) lines.items().push_back(run.new_text());
  for (const Value& line : lines.items()) {
    const bool is_first = &line == &lines.items().front();
    if (!is_first) run.add(*out, "\n", is_said(args[0]));
    if (is_first ? args.flag(2) : args.flag(3) || !line.view().empty()) run.add(*out, space.text());
    if (!run.add(*out, line.text())) break;
  }
  return out;
}

// ---- other methods ----

enum class Trim : uint8_t { kBoth, kLeft, kRight };

// Without the characters of the argument at its ends, or without white space.
template <Trim ends>
Value m_strip(Run& run, const Args& args) {
  const string_view all = args[0].view(), letters = args.has(1) ? args[1].view() : "";
  const auto goes = [&](size_t at, size_t& n) {
    const uint32_t code = code_at(all, at, n);
    if (!run.spend(1 + letters.size() / kStepItems) || !args.has(1)) return is_space(code) && !run.failed();
    bool is_one = false;
    for (size_t i = 0, bytes; i < letters.size(); i += bytes) is_one = code_at(letters, i, bytes) == code || is_one;
    return is_one;
  };
  size_t begin = 0, end = all.size();
  for (size_t n; ends != Trim::kRight && begin < end && goes(begin, n);) begin += n;
  for (bool is_gone = ends != Trim::kLeft; is_gone && end > begin;) {
    size_t at = end - 1, n;
    while (at > begin && (static_cast<uint8_t>(all[at]) & 0xC0) == 0x80) --at;  // to the character's first byte
    is_gone = goes(at, n) && at + n == end;
    if (is_gone) end = at;
  }
  return run.part(args[0].text(), begin, end);
}

template <Case form>
Value m_case(Run& run, const Args& args) {
  return with_case(run, args[0].text(), form);
}

bool is_digit(uint32_t code) { return code >= '0' && code <= '9'; }
bool is_letter(uint32_t code) { return to_lower(code) != code || to_upper(code) != code; }
bool is_letter_or_digit(uint32_t code) { return is_digit(code) || is_letter(code); }

// Whether all characters are of a kind, and there is one. Letters without case beyond ASCII are not known.
template <bool (*has)(uint32_t)>
Value m_all(Run& run, const Args& args) {
  const string_view text = args[0].view();
  bool all = !text.empty() && run.spend(text.size() / kStepBytes);
  for (size_t i = 0, n; all && i < text.size(); i += n) {
    const uint32_t code = code_at(text, i, n);
    if (code >= 0x80 && has != is_space && !is_letter(code))
      return run.error("what kind of character U+%04X is is not known", code);
    all = has(code);
  }
  return Value::boolean(all, is_said(args[0]));
}

// The stretch of the text that arguments 2 and 3 name in characters, as in a slice.
TextRange stretch(Run& run, const Args& args) {
  if (!args.has(2) && !args.has(3)) return {0, args[0].view().size()};
  const Value none = Value::none(), start = args.has(2) ? args[2] : Value::integer(0);
  const size_t begin = run.sliced(args[0], none, start, none).view().size();
  return {begin, begin + run.sliced(args[0], start, args.has(3) ? args[3] : none, none).view().size()};
}
string_view stretch_of(Run& run, const Args& args) {
  const auto [begin, end] = stretch(run, args);
  return args[0].view().substr(begin, end - begin);
}

// startswith and endswith: with one text or a tuple of them.
template <bool at_start>
Value m_begins(Run& run, const Args& args) {
  const string_view all = stretch_of(run, args);
  const auto fits = [&](const Value& wanted) {
    if (!wanted.is_string()) run.error("startswith and endswith take texts, not '%s'", type_name(wanted));
    const string_view text = wanted.is_string() ? wanted.view() : "";
    if (!run.spend(1 + text.size() / kStepBytes)) return false;
    return at_start ? all.starts_with(text) : all.ends_with(text);
  };
  if (!args[1].is_sequence() || !args[1].sequence().is_tuple()) return Value::boolean(fits(args[1]));
  return Value::boolean(std::any_of(args[1].items().begin(), args[1].items().end(), fits));
}

// Where a text is in another one, in characters.
template <bool from_end, bool must_be_there>
Value m_find(Run& run, const Args& args) {
  const string_view all = stretch_of(run, args), wanted = args[1].view();
  if (!run.can_search(all, wanted)) return {};
  const size_t at = from_end ? all.rfind(wanted) : all.find(wanted);
  if (at == kNowhere) return must_be_there ? run.error("substring not found") : Value::integer(-1);
  const size_t begin = stretch(run, args).begin;
  return Value::integer(run.length_of(run.part(args[0].text(), 0, begin + at)), is_said(args[0]));
}

Value m_count(Run& run, const Args& args) {
  const size_t n = pieces_between(run, stretch_of(run, args), args[1].view(), false).size() - 1;
  return Value::integer(static_cast<int64_t>(n), is_said(args[0]));
}

template <bool at_start>
Value m_without(Run& run, const Args& args) {
  const string_view all = args[0].view(), end = args[1].view();
  run.spend(end.size() / kStepBytes);
  if (at_start) return run.part(args[0].text(), all.starts_with(end) ? end.size() : 0);
  return run.part(args[0].text(), 0, all.ends_with(end) ? all.size() - end.size() : all.size());
}

Value m_join(Run& run, const Args& args) {
  for (const Value& item : args[1].items()) {
    if (!item.is_string()) return run.error("sequence item: expected str instance, %s found", type_name(item));
  }
  Args swapped(&run.heap);
  swapped.list = {args[1], args[0]};
  return run.call(*find_function(Table::kFilters, "join"), swapped);
}

// ---- formats ----

// Appends the value as a format such as 05d, .2f, -8s or r says, from place `at` on, which is moved behind it.
void put_formatted(Run& run, Str& out, const Value& value, string_view format, size_t& at) {
  const auto skip = [&](const char* letters) {
    const size_t begin = std::exchange(at, std::min(format.find_first_not_of(letters, at), format.size()));
    return format.substr(begin, at - begin);
  };
  const auto number = [&](int otherwise) {
    const string_view digits = skip("0123456789");
    return std::from_chars(digits.begin(), digits.end(), otherwise).ec == std::errc() || digits.empty() ? otherwise
                                                                                                        : 9999;
  };
  const string_view flags = skip("-0");
  const bool is_left = flags.find('-') != kNowhere, has_zeros = !is_left && !flags.empty();
  const int width = number(0), precision = skip(".").empty() ? -1 : number(0), to_width = is_left ? -width : width;
  const char type = at < format.size() ? format[at++] : 0;
  char digits[1500];
  if (width > 1000 || precision > 100) return void(run.error("a format's width is too large"));
  if (type == 's' || type == 'r') {
    const Value whole = type == 'r' ? run.repr_of(value) : run.text_of(value), none = Value::none();
    const Value text = run.sliced(whole, none, precision < 0 ? none : Value::integer(precision), none);
    const auto missing = static_cast<size_t>(std::max<int64_t>(0, width - run.length_of(text)));
    if (is_left) run.add(out, text.text());
    run.add(out, std::pmr::string(missing, ' ', &run.heap), false);
    return void(is_left || run.add(out, text.text()));
  }
  if (type == 'f' && value.is_number()) {
    c_format(digits, sizeof(digits), has_zeros ? "%0*.*f" : "%*.*f", to_width, precision < 0 ? 6 : precision,
             value.real());
  } else if ((type == 'd' || type == 'i') && value.is_integer() && precision < 0) {
    c_format(digits, sizeof(digits), has_zeros ? "%0*lld" : "%*lld", to_width, static_cast<long long>(value.integer()));
  } else if (type == 'x' && value.is_integer() && value.integer() >= 0 && precision < 0) {
    c_format(digits, sizeof(digits), has_zeros ? "%0*llx" : "%*llx", to_width, static_cast<long long>(value.integer()));
  } else {
    return void(run.error("the format '%c' is not supported for '%s'", type, type_name(value)));
  }
  run.add(out, digits, value.is_said());
}

// The value of a field {}, {0} or {name}.
Value field(Run& run, const Args& args, string_view name, size_t& n_auto) {
  size_t index = name.empty() ? n_auto++ : SIZE_MAX;
  const auto [end, error] = std::from_chars(name.begin(), name.end(), index);
  if (!name.empty() && (end != name.end() || error != std::errc())) index = SIZE_MAX;
  if (index < args.size() - 1) return args[index + 1];
  const std::optional<Value> value = Args(args, &run.heap).take(name);
  return value.has_value() ? *value : run.error("format: there is no argument '%s'", run.short_name(name).c_str());
}

// "...".format()
Value m_format(Run& run, const Args& args) {
  Str* out = run.new_text();
  const string_view all = args[0].view();
  size_t n_auto = 0;
  for (size_t at = 0; at < all.size() && run.spend(1);) {
    const size_t brace = std::min(all.find_first_of("{}", at), all.size());
    run.add(*out, args[0].text(), at, brace);
    if (brace == all.size()) break;
    const bool is_twice = all.substr(brace + 1).starts_with(all[brace]);
    const size_t end = is_twice ? brace + 1 : all[brace] == '{' ? all.find('}', brace) : kNowhere;
    if (end == kNowhere) return run.error("format: a single brace");
    at = end + 1;
    run.add(*out, is_twice ? *run.part(args[0].text(), brace, end)
                           : *run.text_of(field(run, args, all.substr(brace + 1, end - brace - 1), n_auto)));
  }
  return out;
}

Value f_format(Run& run, const Args& args) {
  Seq* list = run.new_list({}, SeqKind::kTuple);
  list->items.assign(args.list.begin() + 1, args.list.end());
  if (!args.named.empty() && args.size() > 1) return run.error("format takes values or names, not both");
  return format_percent(run, args[0].text(), args.named.empty() ? Value(list) : Value(run.dict_of(args)));
}

// ---- numbers ----

// As Python reads them: white space around them, a sign.
template <class Number>
bool read_text(string_view text, Number& out) {
  while (!text.empty() && is_space(static_cast<uint8_t>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && is_space(static_cast<uint8_t>(text.back()))) text.remove_suffix(1);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto result = std::from_chars(text.data(), text.data() + text.size(), out);
  return !text.empty() && result.ec == std::errc() && result.ptr == text.data() + text.size();
}

Value f_abs(Run& run, const Args& args) {
  return run.binary(Op::kMul, Value::integer(args[0].real() < 0 ? -1 : 1), args[0]);
}

// int, or float.
template <bool is_whole>
Value f_number(Run& run, const Args& args) {
  const Value& from = args[0];
  if (from.is_undefined()) return run.undefined_error(from);
  if (is_whole && from.is(Type::kLargeInt)) return from;
  const bool is_text = from.is_string() || from.is(Type::kLargeInt);
  int64_t whole = from.is_integer() ? from.integer() : 0;
  double number = from.is_number() ? from.real() : 0;
  if (is_whole && (from.is_integer() || (is_text && read_text(from.view(), whole))))
    return Value::integer(whole, is_said(from));
  const bool is_number = from.is_number() || (is_text && read_text(from.view(), number));
  if (is_number && !is_whole) return Value::real(number, is_said(from));
  if (is_number && std::fabs(number) < 9.2e18) return Value::integer(static_cast<int64_t>(number), is_said(from));
  if (is_number && std::isfinite(number)) return run.error("int: integers beyond 64 bits are not supported");
  return args.has(1) ? args[1] : is_whole ? Value::integer(0) : Value::real(0);
}

Value f_round(Run& run, const Args& args) {
  const int64_t precision = args.number(1, 0);
  const string_view how = args.has(2) ? args[2].view() : "common";
  if (precision < 0 || precision > 100) return run.error("round: digits behind the point are 0 to 100");
  if (how != "common" && how != "ceil" && how != "floor") return run.error("round knows common, ceil and floor");
  if (how == "common" && args[0].is_integer()) return Value::integer(args[0].integer(), args[0].is_said());
  char text[500];
  double number = args[0].real();
  const double unit = std::pow(10.0, static_cast<double>(precision));
  if (how != "common")
    return Value::real((how == "ceil" ? std::ceil(number * unit) : std::floor(number * unit)) / unit);
  c_format(text, sizeof(text), "%.*f", static_cast<int>(precision), number);
  read_text(text, number);
  return Value::real(number, args[0].is_said());
}

Value f_escape(Run& run, const Args& args) {
  Str* out = run.new_text();
  const Str& text = args[0].text();
  constexpr string_view kLetters = "&<>'\"", kEscapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  if (!run.has_room(0, text.text.size() * 5)) return out;
  for (size_t i = 0; i < text.text.size(); ++i) {
    const size_t letter = kLetters.find(text.text[i]);
    out->append(letter == kNowhere ? string_view(text.text).substr(i, 1) : kEscapes[letter], text.said[i] != 0);
  }
  return out;
}

constexpr Function kMethods[] = {
    {"capitalize", "self:s", m_case<Case::kCapital>},
    {"casefold lower", "self:s", m_case<Case::kLower>},
    {"count", "self:s sub:s start:i? end:i?", m_count},
    {"endswith", "self:s suffix:a start:i? end:i?", m_begins<false>},
    {"find", "self:s sub:s start:i? end:i?", m_find<false, false>},
    {"format", "self:s *", m_format},
    {"index", "self:s sub:s start:i? end:i?", m_find<false, true>},
    {"isalnum", "self:s", m_all<is_letter_or_digit>},
    {"isalpha", "self:s", m_all<is_letter>},
    {"isdigit isdecimal isnumeric", "self:s", m_all<is_digit>},
    {"isspace", "self:s", m_all<is_space>},
    {"join", "self:s iterable:l", m_join},
    {"lstrip", "self:s chars:s?", m_strip<Trim::kLeft>},
    {"partition", "self:s sep:s", m_partition<false>},
    {"removeprefix", "self:s prefix:s", m_without<true>},
    {"removesuffix", "self:s suffix:s", m_without<false>},
    {"replace", "self:s old:s new:s count:i?", f_replace},
    {"rfind", "self:s sub:s start:i? end:i?", m_find<true, false>},
    {"rindex", "self:s sub:s start:i? end:i?", m_find<true, true>},
    {"rpartition", "self:s sep:s", m_partition<true>},
    {"rsplit", "self:s sep:s? maxsplit:i?", m_split<true>},
    {"rstrip", "self:s chars:s?", m_strip<Trim::kRight>},
    {"split", "self:s sep:s? maxsplit:i?", m_split<false>},
    {"splitlines", "self:s keepends:a?",
     [](Run& run, const Args& args) -> Value { return lines_of(run, args[0].text(), args.flag(1)); }},
    {"startswith", "self:s prefix:a start:i? end:i?", m_begins<true>},
    {"strip", "self:s chars:s?", m_strip<Trim::kBoth>},
    {"swapcase", "self:s", m_case<Case::kSwapped>},
    {"title", "self:s", m_case<Case::kTitle>},
    {"upper", "self:s", m_case<Case::kUpper>},
};

constexpr Function kFilters[] = {
    {"abs", "value:n", f_abs},
    {"capitalize", "value:t", m_case<Case::kCapital>},
    {"escape e", "value:t", f_escape},
    {"float", "value:a default:a?", f_number<false>},
    {"format", "value:t *", f_format},
    {"indent", "value:s width:a? first:a? blank:a?", f_indent},
    {"int", "value:a default:a?", f_number<true>},
    {"lower", "value:t", m_case<Case::kLower>},
    {"replace", "value:t old:t new:t count:i?", f_replace},
    {"round", "value:n precision:i? method:s?", f_round},
    {"title", "value:t", m_case<Case::kTitleWords>},
    {"trim", "value:t chars:s?", m_strip<Trim::kBoth>},
    {"upper", "value:t", m_case<Case::kUpper>},
};

}  // namespace

std::span<const Function> text_functions(bool are_methods) {
  return are_methods ? std::span<const Function>(kMethods) : kFilters;
}

Value format_percent(Run& run, const Str& format, const Value& values) {
  Str* out = run.new_text();
  const string_view all = format.text;
  const bool is_tuple = values.is_sequence() && values.sequence().is_tuple();
  const size_t n_values = is_tuple ? values.items().size() : 1;
  size_t n_used = 0;
  for (size_t at = 0; at < all.size() && run.spend(1);) {
    const size_t sign = std::min(all.find('%', at), all.size());
    run.add(*out, format, at, sign);
    if (sign == all.size()) break;
    at = sign + 1;
    const char next = at < all.size() ? all[at] : 0;
    const size_t end = next == '(' ? std::min(all.find(')', at), all.size() - 1) : at;
    if (next == '%') {
      run.add(*out, format, at, at + 1);
      ++at;
    } else if (next == '(' && values.is_dict()) {
      const Value* named = values.dict().find(all.substr(at + 1, end - at - 1));
      if (named == nullptr) return run.error("the format has a name that is not given");
      put_formatted(run, *out, *named, all, at = end + 1);
    } else if (next == 0 || next == '(' || n_used == n_values) {
      return run.error("a format has no end, or not enough values");
    } else {
      put_formatted(run, *out, is_tuple ? values.items()[n_used] : values, all, at);
      ++n_used;
    }
  }
  if (n_used < n_values && (is_tuple || !(values.is_dict() || values.is_sequence())))
    return run.error("not all arguments converted during string formatting");
  return out;
}

Value with_case(Run& run, const Str& text, Case form) {
  Str* out = run.new_text();
  if (!run.has_room(0, text.text.size()) || !run.spend(text.text.size() / 8)) return out;
  std::pmr::string letter(&run.heap);
  bool in_word = false;
  for (size_t i = 0, n; i < text.text.size(); i += n) {
    const uint32_t code = code_at(text.text, i, n), low = to_lower(code);
    const bool to_up =
        form == Case::kUpper || (form == Case::kSwapped ? low == code : form != Case::kLower && !in_word);
    // Words are of letters, or, for the filter, what stands behind white space and -({[<.
    in_word = form == Case::kCapital ||
              (form == Case::kTitle ? is_letter(code) || code == 0xDF
                                    : !is_space(code) && string_view("-({[<").find(text.text[i]) == kNowhere);
    letter.clear();
    if (to_up && code == 0xDF) {
      letter = form == Case::kTitle || form == Case::kCapital ? "Ss" : "SS";
    } else {
      put_code(letter, to_up ? to_upper(code) : low);
    }
    out->append(letter, text.said[i] != 0);
  }
  return out;
}

}  // namespace weir::jinja
