// Filters of single values: texts and numbers.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/c_format.h"
#include "text/jinja/filters.h"
#include "text/jinja/unicode.h"

namespace weir::jinja {

using std::string_view;

namespace {

// As Python reads numbers: white space around them, underscores between digits.
bool read_real(string_view text, double& out) {
  while (!text.empty() && is_space(static_cast<uint8_t>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && is_space(static_cast<uint8_t>(text.back()))) text.remove_suffix(1);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto result = std::from_chars(text.data(), text.data() + text.size(), out);
  return !text.empty() && result.ec == std::errc() && result.ptr == text.data() + text.size();
}

}  // namespace

int64_t whole(Run& run, const Args& args, size_t i, int64_t otherwise) {
  if (!args.has(i) || args[i].is_none()) return otherwise;
  if (!args[i].is_integer()) run.error("an integer was expected, not '%s'", type_name(args[i]));
  return args[i].is_integer() ? args[i].integer() : otherwise;
}

Value f_abs(Run& run, const Value& self, const Args&) {
  if (!self.is_number()) return run.error("bad operand type for abs(): '%s'", type_name(self));
  if (self.is(Type::kFloat)) return Value::real(std::fabs(self.real()), self.is_said());
  return self.integer() >= 0 ? Value::integer(self.integer(), self.is_said())
                             : run.binary(Op::kSub, Value::integer(0), self);
}

Value f_capitalize(Run& run, const Value& self, const Args&) {
  return with_case(run, run.text_of(self).text(), Case::kCapital);
}

Value f_center(Run& run, const Value& self, const Args& args) {
  const Value text = run.text_of(self), width = Value::integer(whole(run, args, 0, 80));
  Args more(&run.heap);
  more.list.push_back(width);
  const auto methods = text_methods();
  return run.failed() ? Value() : run.call(methods[find_function(methods, "center")], text, more);
}

Value f_default(Run& run, const Value& self, const Args& args) {
  const bool is_missing = self.is_undefined() || (flag(args, 1, false) && !is_true(self));
  return !is_missing ? self : args.has(0) ? args[0] : Value(run.make_text());
}

Value f_escape(Run& run, const Value& self, const Args&) {
  const Value text = run.text_of(self);
  if (run.failed() || !run.has_room(text.view().size() * 5)) return {};
  Str* out = run.make_text();
  const Value kept = out;
  constexpr string_view kLetters = "&<>'\"";
  constexpr string_view kEscapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  for (size_t i = 0; i < text.view().size();) {
    const size_t at = std::min(text.view().find_first_of(kLetters, i), text.view().size());
    out->append(text.text(), i, at);
    if (at < text.view().size()) out->append(kEscapes[kLetters.find(text.view()[at])], text.text().is_said_at(at));
    i = at + 1;
  }
  return kept;
}

Value f_float(Run& run, const Value& self, const Args& args) {
  if (self.is_undefined()) return run.binary(Op::kAdd, self, self);  // the error of whatever needs a value
  if (self.is_number()) return Value::real(self.real(), self.is_said());
  double number = 0;
  if (self.is_string() && read_real(self.view(), number)) return Value::real(number, is_said(self));
  return args.has(0) ? args[0] : Value::real(0);
}

Value f_format(Run& run, const Value& self, const Args& args) {
  const Value text = run.text_of(self);
  if (run.failed()) return {};
  if (!args.named.empty()) {
    Dict* named = run.heap.make<Dict>(&run.heap);
    const Value kept = named;
    for (const auto& [name, value] : args.named) named->set(run.make_text(name), value);
    return format_percent(run, text.text(), kept);
  }
  Seq* list = run.make_list(SeqKind::kTuple);
  const Value kept = list;
  list->items.assign(args.list.begin(), args.list.end());
  return format_percent(run, text.text(), kept);
}

Value f_indent(Run& run, const Value& self, const Args& args) {
  Str* out = run.make_text();
  const Value kept = out, text = self;
  if (!self.is_string()) return run.error("indent takes a text, not '%s'", type_name(self));
  const bool is_text = args.has(0) && args[0].is_string();
  const Value space =
      is_text ? args[0] : run.binary(Op::kMul, run.make_text(" "), Value::integer(whole(run, args, 0, 4)));
  const bool at_first = flag(args, 1, false), at_blank = flag(args, 2, false);
  if (run.failed()) return kept;
  const Value lines = lines_of(run, text.text(), false);
  if (at_first) out->append(space.text());
  auto& items = lines.sequence().items;
  // Jinja puts a line end behind the text first, so an end of its own stays.
  if (text.view().empty() || text.view().ends_with('\n')) items.push_back(run.make_text());
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->append("\n", text.text().said.empty() ? false : true);
    if (i > 0 && (at_blank || !items[i].view().empty())) out->append(space.text());
    out->append(items[i].text());
    if (!run.has_room(out->text.size())) break;
  }
  return kept;
}

Value f_int(Run& run, const Value& self, const Args& args) {
  const Value otherwise = args.has(0) ? args[0] : Value::integer(0);
  const int64_t base = whole(run, args, 1, 10);
  if (self.is_undefined()) return run.binary(Op::kAdd, self, self);
  if (self.is_integer()) return Value::integer(self.integer(), self.is_said());
  double number = 0;
  if (self.is_string()) {
    string_view text = trimmed(run, self.text(), Trim::kBoth, nullptr).view();
    const bool is_minus = text.starts_with('-');
    if (is_minus || text.starts_with('+')) text.remove_prefix(1);
    const char letter = text.size() > 2 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '0';
    if ((base == 16 && letter == 'x') || (base == 8 && letter == 'o') || (base == 2 && letter == 'b'))
      text.remove_prefix(2);
    int64_t whole_number = 0;
    if (base < 2 || base > 36) return otherwise;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), whole_number, static_cast<int>(base));
    if (!text.empty() && text[0] != '-' && result.ec == std::errc() && result.ptr == text.data() + text.size())
      return Value::integer(is_minus ? -whole_number : whole_number, is_said(self));
    if (!read_real(self.view(), number)) return otherwise;
  } else if (self.is(Type::kFloat)) {
    number = self.real();
  } else {
    return otherwise;
  }
  if (!(std::fabs(number) < 9.2e18)) return otherwise;
  return Value::integer(static_cast<int64_t>(number), is_said(self));
}

Value f_lower(Run& run, const Value& self, const Args&) {
  return with_case(run, run.text_of(self).text(), Case::kLower);
}

Value f_replace(Run& run, const Value& self, const Args& args) {
  const Value text = run.text_of(self), from = run.text_of(args[0]), to = run.text_of(args[1]);
  const int64_t n_most = whole(run, args, 2, -1);
  return run.failed() ? Value() : replaced(run, text.text(), from.text(), to.text(), n_most);
}

Value f_round(Run& run, const Value& self, const Args& args) {
  const int64_t precision = whole(run, args, 0, 0);
  const string_view how = args.has(1) && args[1].is_string() ? args[1].view() : "common";
  if (!self.is_number()) return run.error("round needs a number, not '%s'", type_name(self));
  if (how == "common") {
    if (self.is_integer() && precision >= 0) return Value::integer(self.integer(), self.is_said());
    double number = self.real();
    if (precision >= 0 && precision < 300 && std::isfinite(number)) {
      char text[800];
      c_format(text, sizeof(text), "%.*f", static_cast<int>(precision), number);
      read_real(text, number);
    } else if (precision < 0) {
      const double unit = std::pow(10.0, static_cast<double>(-precision));
      number = std::nearbyint(number / unit) * unit;
    }
    return self.is_integer() ? Value::integer(static_cast<int64_t>(number), self.is_said())
                             : Value::real(number, self.is_said());
  }
  if (how != "ceil" && how != "floor") return run.error("round knows common, ceil and floor");
  const double unit = std::pow(10.0, static_cast<double>(precision)), scaled = self.real() * unit;
  return Value::real((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit, self.is_said());
}

Value f_safe(Run& run, const Value& self, const Args&) { return run.text_of(self); }

Value f_string(Run& run, const Value& self, const Args&) { return run.text_of(self); }

Value f_title(Run& run, const Value& self, const Args&) {
  const Value text = run.text_of(self);
  Str* out = run.make_text();
  const Value kept = out;
  if (run.failed()) return kept;
  // Words begin behind white space and -({[<; what follows is in lower case.
  for (size_t i = 0, end; i < text.view().size(); i = end) {
    const auto begins = [&](size_t at, size_t& n) {
      const uint32_t code = code_at(text.view(), at, n);
      return is_space(code) || (code < 0x80 && string_view("-({[<").find(static_cast<char>(code)) != string_view::npos);
    };
    size_t n;
    const bool is_between = begins(i, n);
    for (end = i + n; end < text.view().size() && begins(end, n) == is_between; end += n) {
    }
    Str* word = run.make_text();
    const Value kept_word = word;
    word->append(text.text(), i, end);
    out->append(is_between ? *word : with_case(run, *word, Case::kCapital).text());
  }
  return kept;
}

Value f_tojson(Run& run, const Value& self, const Args& args) {
  JsonStyle style;
  style.ascii_only = flag(args, 0, false);
  style.indent =
      args.has(1) && args[1].is_string() ? static_cast<int64_t>(args[1].view().size()) : whole(run, args, 1, -1);
  style.item_separator = style.indent >= 0 ? "," : ", ";
  style.key_separator = ": ";
  style.sort_keys = flag(args, 3, false);
  Value separators;
  if (args.has(2) && !args[2].is_none()) {
    separators = run.items_of(args[2]);
    if (run.failed()) return {};
    const auto& items = separators.sequence().items;
    if (items.size() != 2 || !items[0].is_string() || !items[1].is_string())
      return run.error("tojson: separators are two texts");
    style.item_separator = items[0].view();
    style.key_separator = items[1].view();
  }
  return run.failed() ? Value() : to_json(run, self, style);
}

Value f_trim(Run& run, const Value& self, const Args& args) {
  const Value text = run.text_of(self);
  return run.failed() ? Value() : trimmed(run, text.text(), Trim::kBoth, args.has(0) ? &args[0] : nullptr);
}

Value f_truncate(Run& run, const Value& self, const Args& args) {
  const Value text = self, end = args.has(2) ? run.text_of(args[2]) : Value(run.make_text("..."));
  const int64_t n = whole(run, args, 0, 255), leeway = whole(run, args, 3, 5);
  const int64_t n_end = run.length_of(end);
  if (run.failed() || run.length_of(text) <= n + leeway) return text;
  if (!text.is_string()) return run.error("truncate takes a text, not '%s'", type_name(text));
  if (n < n_end) return run.error("truncate: the length is less than that of the end");
  Value cut = run.sliced(text, Value::none(), Value::integer(n - n_end), Value::none());
  if (!flag(args, 1, false)) {
    const size_t space = cut.view().rfind(' ');
    if (space != string_view::npos) {
      Str* word = run.make_text();
      word->append(cut.text(), 0, space);
      cut = word;
    }
  }
  return run.binary(Op::kAdd, cut, end);
}

Value f_upper(Run& run, const Value& self, const Args&) {
  return with_case(run, run.text_of(self).text(), Case::kUpper);
}

Value f_urlencode(Run& run, const Value& self, const Args&) {
  if (self.is_dict() || self.is_sequence()) return run.error("urlencode takes a text here");
  const Value text = run.text_of(self);
  Str* out = run.make_text();
  const Value kept = out;
  for (size_t i = 0; !run.failed() && i < text.view().size(); ++i) {
    const char c = text.view()[i];
    const bool is_plain = (c >= '0' && c <= '9') || (c > 0 && is_letter(static_cast<uint8_t>(c))) ||
                          (c > 0 && string_view("_.-~/").find(c) != string_view::npos);
    char escape[4] = {c};
    if (!is_plain) c_format(escape, sizeof(escape), "%%%02X", static_cast<uint8_t>(c));
    out->append(escape, text.text().is_said_at(i));
  }
  return kept;
}

Value f_wordcount(Run& run, const Value& self, const Args&) {
  const Value text = run.text_of(self);
  int64_t n = 0;
  bool in_word = false;
  for (size_t i = 0, bytes; !run.failed() && i < text.view().size(); i += bytes) {
    const uint32_t code = code_at(text.view(), i, bytes);
    const bool is_word = is_letter(code) || code == '_' || (code >= '0' && code <= '9');
    if (is_word && !in_word) ++n;
    in_word = is_word;
  }
  return Value::integer(n, is_said(text));
}

}  // namespace weir::jinja
