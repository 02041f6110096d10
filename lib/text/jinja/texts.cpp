// Methods and filters of texts, which keep track of where their characters came from, and of numbers.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

#include "core/c_format.h"
#include "text/jinja/run.h"

namespace weir::jinja {
namespace {

using std::string_view;

constexpr size_t kNowhere = string_view::npos;

Value part(Run& run, const Str& text, size_t begin, size_t end = kNowhere) {
  Str* cut = run.new_text();
  cut->append(text, begin, end);
  return cut;
}

// The argument as a text; "" after an error.
string_view text_arg(Run& run, const Args& args, size_t i) {
  if (args[i].is_string()) return args[i].view();
  run.error("a text was expected, not '%s'", type_name(args[i]));
  return "";
}

enum class Trim : uint8_t { kBoth, kLeft, kRight };

// Without the characters of the argument at its ends, or without white space.
template <Trim ends>
Value m_strip(Run& run, const Value& self, const Args& args) {
  const bool has_letters = args.has_some(0);
  const string_view all = self.view(), letters = has_letters ? text_arg(run, args, 0) : "";
  const auto goes = [&](size_t at, size_t& n) {
    const uint32_t code = code_at(all, at, n);
    if (!has_letters) return is_space(code);
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
  run.has_room(all.size());
  return part(run, self.text(), begin, end);
}

template <Case form>
Value m_case(Run& run, const Value& self, const Args&) {
  return with_case(run, self.text(), form);
}

bool is_digit(uint32_t code) { return code >= '0' && code <= '9'; }
bool is_letter(uint32_t code) { return (code | 0x20) >= 'a' && (code | 0x20) <= 'z'; }
bool is_letter_or_digit(uint32_t code) { return is_digit(code) || is_letter(code); }

// Whether all characters are of a kind, and there is one. Beyond ASCII only white space is known.
template <bool (*has)(uint32_t)>
Value m_all(Run& run, const Value& self, const Args&) {
  const string_view text = self.view();
  bool all = !text.empty() && run.spend(text.size() / kStepBytes);
  for (size_t i = 0, n; all && i < text.size(); i += n) {
    const uint32_t code = code_at(text, i, n);
    if (code >= 0x80 && has != is_space) return run.error("what kind of character U+%04X is is not known", code);
    all = has(code);
  }
  return Value::boolean(all, is_said(self));
}

// startswith and endswith: with one text or a tuple of them.
template <bool at_start>
Value m_begins(Run& run, const Value& self, const Args& args) {
  const auto fits = [&](const Value& wanted) {
    if (!wanted.is_string()) run.error("startswith and endswith take texts, not '%s'", type_name(wanted));
    const string_view text = wanted.is_string() ? wanted.view() : "";
    return at_start ? self.view().starts_with(text) : self.view().ends_with(text);
  };
  if (!args[0].is_sequence() || !args[0].sequence().is_tuple()) return Value::boolean(fits(args[0]));
  return Value::boolean(std::any_of(args[0].items().begin(), args[0].items().end(), fits));
}

// Where a text is in another one, in characters.
template <bool from_end, bool must_be_there>
Value m_find(Run& run, const Value& self, const Args& args) {
  const string_view wanted = text_arg(run, args, 0);
  if (!run.spend(self.view().size() / kStepBytes)) return {};
  const size_t at = from_end ? self.view().rfind(wanted) : self.view().find(wanted);
  if (at == kNowhere) return must_be_there ? run.error("substring not found") : Value::integer(-1);
  return Value::integer(run.length_of(part(run, self.text(), 0, at)), is_said(self));
}

Value m_count(Run& run, const Value& self, const Args& args) {
  const string_view wanted = text_arg(run, args, 0);
  if (!run.spend(self.view().size() / kStepBytes)) return {};
  int64_t n = wanted.empty() ? run.length_of(self) + 1 : 0;
  for (size_t at = 0; !wanted.empty() && (at = self.view().find(wanted, at)) != kNowhere; at += wanted.size()) ++n;
  return Value::integer(n, is_said(self));
}

Value m_replace(Run& run, const Value& self, const Args& args) {
  const string_view all = self.view(), from = text_arg(run, args, 0);
  text_arg(run, args, 1);
  const int64_t n_most = run.number(args, 2, -1);
  Str* out = run.new_text();
  if (run.failed()) return {};
  size_t at = 0;
  for (int64_t i = 0; (n_most < 0 || i < n_most) && run.has_room(out->text.size()) && run.spend(1); ++i) {
    size_t n = 0;  // an empty text is found before each character and at the end
    if (from.empty() && i > 0 && at < all.size()) code_at(all, at, n);
    const size_t found = from.empty() && i > 0 && n == 0 ? kNowhere : all.find(from, at + n);
    if (found == kNowhere) break;
    out->append(self.text(), at, found);
    out->append(args[1].text());
    at = found + from.size();
  }
  out->append(self.text(), at);
  run.has_room(out->text.size());
  return out;
}

// At the argument or at white space, from the front or from the back, into at most n + 1 pieces.
template <bool from_end>
Value m_split(Run& run, const Value& self, const Args& args) {
  const string_view all = self.view();
  const int64_t most = run.number(args, 1, -1);
  const bool at_spaces = !args.has_some(0);
  const string_view between = at_spaces ? " " : text_arg(run, args, 0);
  if (between.empty()) return run.error("empty separator");
  std::pmr::vector<TextRange> gaps(&run.heap);
  for (size_t at = 0, n; at_spaces && at < all.size(); at += n) {
    if (!is_space(code_at(all, at, n))) continue;
    const bool goes_on = !gaps.empty() && gaps.back().end == at;
    goes_on ? void(gaps.back().end = at + n) : gaps.push_back({at, at + n});
  }
  for (size_t at = from_end ? all.size() : 0; !at_spaces && run.spend(1);) {
    if (from_end && at < between.size()) break;
    at = from_end ? all.rfind(between, at - between.size()) : all.find(between, at);
    if (at == kNowhere) break;
    gaps.push_back({at, at + between.size()});
    if (!from_end) at += between.size();
  }
  if (from_end && !at_spaces) std::reverse(gaps.begin(), gaps.end());
  size_t begin = 0, end = all.size();
  if (at_spaces && !gaps.empty() && gaps.front().begin == 0) {
    begin = gaps.front().end;
    gaps.erase(gaps.begin());
  }
  if (at_spaces && !gaps.empty() && gaps.back().end == end) {
    end = gaps.back().begin;
    gaps.pop_back();
  }
  const size_t n_most = most < 0 ? gaps.size() : std::min(gaps.size(), static_cast<size_t>(most));
  if (at_spaces && most >= 0 && static_cast<size_t>(most) <= gaps.size() && begin < end)
    (from_end ? begin : end) = from_end ? 0 : all.size();  // a rest is whole
  gaps.erase(from_end ? gaps.begin() : gaps.begin() + static_cast<std::ptrdiff_t>(n_most),
             from_end ? gaps.end() - static_cast<std::ptrdiff_t>(n_most) : gaps.end());
  Seq* list = run.new_list();
  for (const TextRange& gap : gaps) {
    if (run.spend(1)) list->items.push_back(part(run, self.text(), std::exchange(begin, gap.end), gap.begin));
  }
  if (!at_spaces || begin < end) list->items.push_back(part(run, self.text(), begin, end));
  return list;
}

Value m_splitlines(Run& run, const Value& self, const Args& args) {
  Seq* list = run.new_list();
  const string_view all = self.view();
  size_t begin = 0;
  for (size_t i = 0, n; i < all.size() && run.spend(1); i += n) {
    const uint32_t code = code_at(all, i, n);
    if ((code < 0x0A || code > 0x0D) && (code < 0x1C || code > 0x1E) && code != 0x85 && code != 0x2028 &&
        code != 0x2029)
      continue;
    if (all.substr(i, 2) == "\r\n") n = 2;
    list->items.push_back(part(run, self.text(), begin, args.flag(0) ? i + n : i));
    begin = i + n;
  }
  if (begin < all.size()) list->items.push_back(part(run, self.text(), begin));
  return list;
}

template <bool from_end>
Value m_partition(Run& run, const Value& self, const Args& args) {
  const string_view between = text_arg(run, args, 0);
  if (between.empty()) return run.error("empty separator");
  const size_t found = from_end ? self.view().rfind(between) : self.view().find(between);
  const size_t at = found != kNowhere ? found : from_end ? 0 : self.view().size();
  const size_t behind = found != kNowhere ? at + between.size() : at;
  Seq* parts = run.new_list(SeqKind::kTuple);
  parts->items = {part(run, self.text(), 0, at), part(run, self.text(), at, behind), part(run, self.text(), behind)};
  return parts;
}

template <bool at_start>
Value m_without(Run& run, const Value& self, const Args& args) {
  const string_view end = text_arg(run, args, 0), all = self.view();
  if (at_start) return part(run, self.text(), all.starts_with(end) ? end.size() : 0);
  return part(run, self.text(), 0, all.ends_with(end) ? all.size() - end.size() : all.size());
}

Value m_join(Run& run, const Value& self, const Args& args) {
  Args more(&run.heap);
  more.list = {self};
  const Value list = run.items_of(args[0]);
  for (const Value& item : list.items()) {
    if (!item.is_string()) return run.error("sequence item: expected str instance, %s found", type_name(item));
  }
  return run.call(Table::kFilters, find_function(functions(Table::kFilters), "join"), "join", list, more);
}

// ---- formats ----

// Appends the value as a format such as 05d, .2f, 8s or r says, from place `at` on, which is moved behind it.
void put_formatted(Run& run, Str& out, const Value& value, string_view format, size_t& at) {
  int64_t numbers[2] = {0, -1};  // width, precision
  const bool has_zeros = format.substr(at).starts_with('0');
  for (size_t i = 0; i < 2 && (i == 0 || format.substr(at).starts_with('.')); ++i) {
    at += i;
    const auto end = std::min(format.find_first_not_of("0123456789", at), format.size());
    std::from_chars(format.data() + at, format.data() + end, numbers[i]);
    at = end;
  }
  const auto [width, precision] = numbers;
  const char type = at < format.size() ? format[at++] : 0;
  if (width > 1000 || precision > 100) return void(run.error("a format's width is too large"));
  std::pmr::string shown(&run.heap);
  Value text;
  char digits[500];
  if (type == 'f' && value.is_number()) {
    c_format(digits, sizeof(digits), "%.*f", precision < 0 ? 6 : static_cast<int>(precision), value.real());
    text = run.new_text(digits, value.is_said());
  } else if ((type == 'd' || type == 'x') && value.is_integer() && precision < 0) {
    c_format(digits, sizeof(digits), type == 'd' ? "%lld" : "%llx", static_cast<long long>(value.integer()));
    text = run.new_text(digits, value.is_said());
  } else if ((type == 's' || type == 'r') && precision < 0 && !has_zeros) {
    if (type == 'r') put_repr(shown, value);
    text = type == 'r' ? Value(run.new_text(shown, is_said(value))) : run.text_of(value);
  } else {
    return void(run.error("the format '%c' is not supported for '%s'", type, type_name(value)));
  }
  const size_t missing = static_cast<size_t>(std::max<int64_t>(0, width - run.length_of(text)));
  const size_t n_sign = has_zeros && text.view().starts_with('-') ? 1 : 0;
  if (!run.has_room(out.text.size() + text.view().size() + missing)) return;
  out.append(text.text(), 0, n_sign);
  out.append(std::pmr::string(missing, has_zeros ? '0' : ' ', &run.heap), false);
  out.append(text.text(), n_sign);
}

// "...".format(): fields {}, {0} and {name}.
Value m_format(Run& run, const Value& self, const Args& args) {
  Str* out = run.new_text();
  const string_view all = self.view();
  size_t n_auto = 0;
  for (size_t at = 0; at < all.size() && run.spend(1);) {
    const size_t brace = std::min(all.find_first_of("{}", at), all.size());
    out->append(self.text(), at, brace);
    if (brace == all.size()) break;
    const bool is_twice = all.substr(brace + 1).starts_with(all[brace]);
    const size_t end = is_twice ? brace + 1 : all[brace] == '{' ? all.find('}', brace) : kNowhere;
    if (end == kNowhere) return run.error("format: a single brace");
    at = end + 1;
    if (is_twice) {
      out->append(self.text(), brace, end);
      continue;
    }
    const string_view name = all.substr(brace + 1, end - brace - 1);
    size_t index = n_auto;
    const bool is_index =
        std::from_chars(name.data(), name.data() + name.size(), index).ptr == name.data() + name.size();
    if (name.empty()) ++n_auto;
    const Value* value = !is_index ? args.find(name) : index < args.size() ? &args[index] : nullptr;
    if (value == nullptr)
      return run.error("format: there is no argument '%s'", std::pmr::string(name.substr(0, 60), &run.heap).c_str());
    const Value text = run.text_of(*value);
    if (run.has_room(out->text.size() + text.view().size())) out->append(text.text());
  }
  return out;
}

constexpr Function kMethods[] = {
    {"capitalize", "", 0, m_case<Case::kCapital>},
    {"count", "sub", 1, m_count},
    {"endswith", "suffix", 1, m_begins<false>},
    {"find", "sub", 1, m_find<false, false>},
    {"format", nullptr, 0, m_format},
    {"index", "sub", 1, m_find<false, true>},
    {"isalnum", "", 0, m_all<is_letter_or_digit>},
    {"isalpha", "", 0, m_all<is_letter>},
    {"isdigit,isdecimal,isnumeric", "", 0, m_all<is_digit>},
    {"isspace", "", 0, m_all<is_space>},
    {"join", "iterable", 1, m_join},
    {"lower", "", 0, m_case<Case::kLower>},
    {"lstrip", "chars", 0, m_strip<Trim::kLeft>},
    {"partition", "sep", 1, m_partition<false>},
    {"removeprefix", "prefix", 1, m_without<true>},
    {"removesuffix", "suffix", 1, m_without<false>},
    {"replace", "old,new,count", 2, m_replace},
    {"rfind", "sub", 1, m_find<true, false>},
    {"rindex", "sub", 1, m_find<true, true>},
    {"rpartition", "sep", 1, m_partition<true>},
    {"rsplit", "sep,maxsplit", 0, m_split<true>},
    {"rstrip", "chars", 0, m_strip<Trim::kRight>},
    {"split", "sep,maxsplit", 0, m_split<false>},
    {"splitlines", "keepends", 0, m_splitlines},
    {"startswith", "prefix", 1, m_begins<true>},
    {"strip", "chars", 0, m_strip<Trim::kBoth>},
    {"title", "", 0, m_case<Case::kTitle>},
    {"upper", "", 0, m_case<Case::kUpper>},
};

// As Python reads numbers: white space around them, a sign.
template <class Number>
bool read_text(string_view text, Number& out) {
  while (!text.empty() && is_space(static_cast<uint8_t>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && is_space(static_cast<uint8_t>(text.back()))) text.remove_suffix(1);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto result = std::from_chars(text.data(), text.data() + text.size(), out);
  return !text.empty() && result.ec == std::errc() && result.ptr == text.data() + text.size();
}

}  // namespace

std::span<const Function> text_methods() { return kMethods; }

Value format_percent(Run& run, const Str& format, const Value& values) {
  Str* out = run.new_text();
  const string_view all = format.text;
  const bool is_tuple = values.is_sequence() && values.sequence().is_tuple();
  const size_t n_values = is_tuple ? values.items().size() : 1;
  size_t n_used = 0;
  for (size_t at = 0; at < all.size() && run.spend(1);) {
    const size_t sign = std::min(all.find('%', at), all.size());
    out->append(format, at, sign);
    if (sign == all.size()) break;
    at = sign + 1;
    const char next = at < all.size() ? all[at] : 0;
    const size_t end = next == '(' ? std::min(all.find(')', at), all.size() - 1) : at;
    if (next == '%') {
      out->append(format, at, at + 1);
      ++at;
    } else if (next == '(' && values.is_dict()) {
      const Value* named = values.dict().find(all.substr(at + 1, end - at - 1));
      put_formatted(run, *out, named != nullptr ? *named : Value(), all, at = end + 1);
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
  if (!run.has_room(text.text.size())) return out;
  std::pmr::string letter(&run.heap);
  bool in_word = false;
  for (size_t i = 0, n; i < text.text.size(); i += n) {
    const uint32_t code = code_at(text.text, i, n), low = to_lower(code);
    const bool to_up = form == Case::kUpper || (form != Case::kLower && !in_word);
    // Words are of letters, or, for the filter, what stands behind white space and -({[<.
    in_word = form == Case::kCapital ||
              (form == Case::kTitle ? low != code || to_upper(code) != code || code == 0xDF
                                    : !is_space(code) && string_view("-({[<").find(text.text[i]) == kNowhere);
    letter.clear();
    if (to_up && code == 0xDF) {
      letter = form == Case::kUpper ? "SS" : "Ss";
    } else {
      put_code(letter, to_up ? to_upper(code) : low);
    }
    out->append(letter, text.is_said_at(i));
  }
  return out;
}

// ---- filters ----

Value f_abs(Run& run, const Value& self, const Args&) {
  if (!self.is_number()) return run.error("bad operand type for abs(): '%s'", type_name(self));
  return self.real() < 0 ? run.binary(Op::kMul, Value::integer(-1), self) : self;
}

Value f_escape(Run& run, const Value& self, const Args&) {
  const Value text = run.text_of(self);
  Str* out = run.new_text();
  if (!run.has_room(text.view().size() * 5)) return out;
  constexpr string_view kLetters = "&<>'\"", kEscapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  for (size_t i = 0; i < text.view().size(); ++i) {
    const size_t letter = kLetters.find(text.view()[i]);
    out->append(letter == kNowhere ? text.view().substr(i, 1) : kEscapes[letter], text.text().is_said_at(i));
  }
  return out;
}

// int, or float.
template <bool is_whole>
Value f_number(Run& run, const Value& self, const Args& args) {
  if (self.is_undefined()) return run.undefined_error(self);
  int64_t whole = 0;
  double number = self.is_number() ? self.real() : HUGE_VAL;
  bool is_number = self.is_number() || (self.is_string() && read_text(self.view(), number));
  if (!is_whole) return is_number ? Value::real(number, is_said(self)) : args.has(0) ? args[0] : Value::real(0);
  if (self.is_integer()) return Value::integer(self.integer(), self.is_said());
  if (self.is_string() && read_text(self.view(), whole)) return Value::integer(whole, is_said(self));
  is_number = is_number && std::fabs(number) < 9.2e18;
  return is_number     ? Value::integer(static_cast<int64_t>(number), is_said(self))
         : args.has(0) ? args[0]
                       : Value::integer(0);
}
Value f_float(Run& run, const Value& self, const Args& args) { return f_number<false>(run, self, args); }
Value f_int(Run& run, const Value& self, const Args& args) { return f_number<true>(run, self, args); }

Value f_round(Run& run, const Value& self, const Args& args) {
  const int64_t precision = run.number(args, 0, 0);
  const string_view how = args.has(1) ? text_arg(run, args, 1) : "common";
  if (!self.is_number()) return run.error("round needs a number, not '%s'", type_name(self));
  if (precision < 0 || precision > 100) return run.error("round: digits behind the point are 0 to 100");
  if (how != "common" && how != "ceil" && how != "floor") return run.error("round knows common, ceil and floor");
  if (how == "common" && self.is_integer()) return self;
  char text[500];
  double number = self.real();
  const double unit = std::pow(10.0, static_cast<double>(precision));
  if (how != "common")
    return Value::real((how == "ceil" ? std::ceil(number * unit) : std::floor(number * unit)) / unit, self.is_said());
  c_format(text, sizeof(text), "%.*f", static_cast<int>(precision), number);
  read_text(text, number);
  return Value::real(number, self.is_said());
}

Value f_format(Run& run, const Value& self, const Args& args) {
  Seq* list = run.new_list(SeqKind::kTuple);
  list->items.assign(args.list.begin(), args.list.end());
  if (!args.named.empty()) return run.error("format with names is not supported");
  return format_percent(run, run.text_of(self).text(), list);
}

Value f_indent(Run& run, const Value& self, const Args& args) {
  if (!self.is_string()) return run.error("indent takes a text, not '%s'", type_name(self));
  const bool is_text = args.has(0) && args[0].is_string();
  const Value space =
      is_text ? args[0] : run.binary(Op::kMul, run.new_text(" "), Value::integer(run.number(args, 0, 4)));
  Str* out = run.new_text();
  if (run.failed()) return out;
  const Value lines = m_splitlines(run, self, Args(&run.heap));
  // Jinja puts a line end behind the text first, so an end of its own stays.
  if (self.view().empty() || self.view().ends_with('\n')) lines.items().push_back(run.new_text());
  for (size_t i = 0; i < lines.items().size() && run.has_room(out->text.size()); ++i) {
    const Value& line = lines.items()[i];
    if (i > 0) out->append("\n", is_said(self));
    if (i == 0 ? args.flag(1) : args.flag(2) || !line.view().empty()) out->append(space.text());
    out->append(line.text());
  }
  return out;
}

Value f_replace(Run& run, const Value& self, const Args& args) { return m_replace(run, run.text_of(self), args); }
Value f_trim(Run& run, const Value& self, const Args& args) {
  return m_strip<Trim::kBoth>(run, run.text_of(self), args);
}

Value g_strftime_now(Run& run, const Value&, const Args& args) {
  const string_view format = text_arg(run, args, 0);
  using namespace std::chrono;
  constexpr string_view kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
  constexpr string_view kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};
  // From the year 1 to the year 9999, as Python has them.
  const sys_seconds now{seconds{std::clamp<int64_t>(run.unix_time, -62135596800, 253402300799)}};
  const sys_days date = floor<days>(now);
  const year_month_day ymd(date);
  const hh_mm_ss time(now - date);
  const auto hour = time.hours().count(), month = static_cast<long>(unsigned{ymd.month()});
  const string_view day = kDays[weekday(date).c_encoding()], name = kMonths[month - 1];
  const struct {
    char letter;
    int n_digits;
    long value;
  } numbers[] = {{'Y', 1, int{ymd.year()}},
                 {'y', 2, int{ymd.year()} % 100},
                 {'m', 2, month},
                 {'d', 2, unsigned{ymd.day()}},
                 {'e', 2, unsigned{ymd.day()}},
                 {'H', 2, hour},
                 {'I', 2, hour % 12 == 0 ? 12 : hour % 12},
                 {'M', 2, time.minutes().count()},
                 {'S', 2, time.seconds().count()},
                 {'j', 3, (date - sys_days{ymd.year() / January / 1}).count() + 1}};
  std::pmr::string out(&run.heap), all(format, &run.heap);
  constexpr std::pair<string_view, string_view> kShort[] = {
      {"%F", "%Y-%m-%d"}, {"%T", "%H:%M:%S"}, {"%R", "%H:%M"}, {"%D", "%m/%d/%y"}};
  for (const auto& [from, to] : kShort) {
    for (size_t at = 0; (at = all.find(from, at)) != kNowhere;) all.replace(at, 2, to);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] != '%' || i + 1 == all.size()) {
      out += all[i];
      continue;
    }
    const bool is_short = all[++i] == '-' && i + 1 < all.size();
    const char letter = is_short ? all[++i] : all[i];
    const auto* found =
        std::find_if(std::begin(numbers), std::end(numbers), [&](const auto& n) { return n.letter == letter; });
    char text[24];
    if (found != std::end(numbers)) {
      c_format(text, sizeof(text), letter == 'e' ? "%*ld" : "%0*ld", is_short ? 1 : found->n_digits, found->value);
      out += text;
    } else if (letter == 'A' || letter == 'a') {
      out += letter == 'A' ? day : day.substr(0, 3);
    } else if (letter == 'B' || letter == 'b') {
      out += letter == 'B' ? name : name.substr(0, 3);
    } else if (letter == 'p' || letter == '%') {
      out += letter == '%' ? "%" : hour < 12 ? "AM" : "PM";
    } else {
      return run.error("strftime_now: the format %%%c is not supported", letter);
    }
  }
  run.has_room(out.size());
  return run.new_text(out, is_said(args[0]));
}

}  // namespace weir::jinja
