// Python's two ways to format texts, "..." % values and "...".format(values), and strftime.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

#include "core/c_format.h"
#include "text/jinja/run.h"
#include "text/jinja/unicode.h"

namespace weir::jinja {
namespace {

using std::string_view;

constexpr int64_t kMaxWidth = 100'000;  // of one value; more is a mistake

struct Spec {
  string_view fill = " ";
  char align = 0;  // one of < > ^ =, 0: as the type has it
  char sign = 0;
  bool alternate = false, with_commas = false;
  int64_t width = 0, precision = -1;
  char type = 0;
};

int64_t read_number(string_view text, size_t& at) {
  int64_t n = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
    n = std::min(kMaxWidth + 1, n * 10 + text[at] - '0');
  return n;
}

void put_padded(Run& run, Str& out, const Str& body, const Spec& spec, char align, size_t n_sign) {
  const int64_t missing = std::max<int64_t>(0, spec.width - run.length_of(Value(const_cast<Str*>(&body))));
  const int64_t before = align == '>' || align == '=' ? missing : align == '^' ? missing / 2 : 0;
  if (!run.has_room(out.text.size() + body.text.size() + static_cast<size_t>(missing) * spec.fill.size())) return;
  if (align == '=') out.append(body, 0, n_sign);
  for (int64_t i = 0; i < before; ++i) out.append(spec.fill, false);
  out.append(body, align == '=' ? n_sign : 0);
  for (int64_t i = before; i < missing; ++i) out.append(spec.fill, false);
}

// Commas between groups of three digits of the whole part.
void add_commas(std::pmr::string& digits) {
  const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t at = end; at > 3;) digits.insert(at -= 3, ",");
}

// A number's digits without its sign; false when the type does not fit.
bool put_digits(std::pmr::string& out, const Value& value, const Spec& spec) {
  char text[700];
  char type = spec.type;
  if (type == 'i' || type == 'u') type = 'd';
  const bool as_real = value.is(Type::kFloat) || (type != 0 && string_view("eEfFgG%").find(type) != string_view::npos);
  if (!as_real) {
    const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    if (base == 10 && type != 0 && type != 'd' && type != 'n') return false;
    const uint64_t magnitude =
        value.integer() < 0 ? 0 - static_cast<uint64_t>(value.integer()) : static_cast<uint64_t>(value.integer());
    if (spec.alternate && base != 10) out.append("0").push_back(type);
    const size_t prefix = out.size();
    out.append(text, std::to_chars(text, text + sizeof(text), magnitude, base).ptr);
    if (type == 'X')
      std::transform(out.begin(), out.end(), out.begin(),
                     [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    const size_t n_digits = out.size() - prefix;
    if (spec.precision > static_cast<int64_t>(n_digits))
      out.insert(prefix, static_cast<size_t>(spec.precision) - n_digits, '0');
    return true;
  }
  const double number = std::fabs(value.real());
  const int precision = static_cast<int>(std::clamp<int64_t>(spec.precision, 0, 300));
  if (type == 0 && spec.precision < 0) return put_real(out, number), true;
  if (type == 'd' || type == 'x' || type == 'X' || type == 'o' || type == 'b' || type == 'c') return false;
  if (type == 0 || type == 'n') type = 'g';
  const char format[] = {'%', '.', '*', type == '%' ? 'f' : type, 0};
  const double shown = type == '%' ? number * 100 : number;
  const int used = spec.precision < 0 ? 6 : precision;
  // The formats are of the one type; the compiler cannot see that.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  c_format(text, sizeof(text), format, used, shown);
#pragma GCC diagnostic pop
  out += text;
  if (type == '%') out += '%';
  return true;
}

void put_value(Run& run, Str& out, const Value& value, const Spec& spec) {
  if (spec.width > kMaxWidth || spec.precision > kMaxWidth) return void(run.error("a format's width is too large"));
  const bool as_text = !value.is_number() || spec.type == 's' || (value.is(Type::kBool) && spec.type == 0);
  if (as_text) {
    if (spec.type != 0 && spec.type != 's')
      return void(run.error("the format %%%c needs a number, not '%s'", spec.type, type_name(value)));
    Value text = run.text_of(value);
    if (spec.precision >= 0) text = run.sliced(text, Value::none(), Value::integer(spec.precision), Value::none());
    if (!run.failed()) put_padded(run, out, text.text(), spec, spec.align == 0 ? '<' : spec.align, 0);
    return;
  }
  std::pmr::string digits(&run.heap);
  if (!put_digits(digits, value, spec)) return void(run.error("the format '%c' does not fit the value", spec.type));
  if (spec.with_commas) add_commas(digits);
  const bool is_minus = value.is(Type::kFloat) ? std::signbit(value.real()) : value.integer() < 0;
  Str* body = run.make_text();
  const Value kept = body;
  const char sign = is_minus ? '-' : spec.sign == '+' || spec.sign == ' ' ? spec.sign : 0;
  if (sign != 0) body->append({&sign, 1}, value.is_said());
  body->append(digits, value.is_said());
  put_padded(run, out, *body, spec, spec.align == 0 ? '>' : spec.align, sign != 0 ? 1 : 0);
}

// The part of a format behind the colon; false when it cannot be read.
bool read_spec(string_view text, Spec& spec) {
  size_t at = 0, n = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) code_at(text, 0, n);
  if (n < text.size() && is_align(text[n])) {
    spec.fill = text.substr(0, n);
    spec.align = text[n];
    at = n + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[at++];
  }
  const auto next_is = [&](char c) { return at < text.size() && text[at] == c; };
  if (next_is('+') || next_is('-') || next_is(' ')) spec.sign = text[at++];
  if (next_is('#')) spec.alternate = true, ++at;
  if (next_is('0')) {
    if (spec.align == 0) spec.align = '=', spec.fill = "0";
    ++at;
  }
  spec.width = read_number(text, at);
  if (next_is(',')) spec.with_commas = true, ++at;
  if (next_is('.')) spec.precision = read_number(text, ++at);
  if (at < text.size()) spec.type = text[at++];
  return at == text.size();
}

// The value that a field such as 0, name, name.attribute or 0[key] names; `n_auto` counts fields without a name.
Value field_value(Run& run, string_view field, const Args& args, size_t& n_auto) {
  const size_t end = std::min(field.find_first_of(".["), field.size());
  const string_view name = field.substr(0, end);
  size_t index = n_auto, at = 0;
  const bool is_number = !name.empty() && name.find_first_not_of("0123456789") == string_view::npos;
  if (is_number) index = static_cast<size_t>(read_number(name, at));
  if (name.empty()) ++n_auto;
  Value value;
  if (is_number || name.empty()) {
    if (index >= args.size()) return run.error("format: there is no argument %zu", index);
    value = args[index];
  } else {
    const Value* named = args.find(name);
    if (named == nullptr) return run.error("format: there is no argument of a name that it uses");
    value = *named;
  }
  for (string_view rest = field.substr(end); !rest.empty() && !run.failed();) {
    const bool is_item = rest[0] == '[';
    const size_t stop = is_item ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
    if (stop == string_view::npos) return run.error("format: a bracket has no end");
    const string_view key = rest.substr(1, stop - 1);
    size_t digits = 0;
    const bool is_index = is_item && !key.empty() && key.find_first_not_of("0123456789") == string_view::npos;
    value = is_index  ? run.item(value, Value::integer(read_number(key, digits)), nullptr)
            : is_item ? run.item(value, run.make_text(key), nullptr)
                      : run.attribute(value, key, nullptr);
    if (value.is_undefined() && !run.failed()) return run.error("format: a field does not exist");
    rest.remove_prefix(is_item ? stop + 1 : stop);
  }
  return value;
}

Value represented(Run& run, const Value& value) {
  std::pmr::string text(&run.heap);
  put_repr(text, value);
  run.has_room(text.size());
  return run.make_text(text, is_said(value));
}

}  // namespace

Value format_braces(Run& run, const Str& format, const Args& args) {
  Str* out = run.make_text();
  const Value kept = out;
  const string_view all = format.text;
  size_t n_auto = 0;
  for (size_t at = 0; at < all.size() && run.spend(1);) {
    const size_t brace = std::min(all.find_first_of("{}", at), all.size());
    out->append(format, at, brace);
    if (brace == all.size()) break;
    if (brace + 1 < all.size() && all[brace + 1] == all[brace]) {
      out->append(format, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    const size_t end = all[brace] == '{' ? all.find('}', brace) : string_view::npos;
    if (end == string_view::npos) return run.error("format: a single brace");
    string_view field = all.substr(brace + 1, end - brace - 1);
    at = end + 1;
    Spec spec;
    const size_t colon = std::min(field.find(':'), field.size());
    if (colon < field.size() && !read_spec(field.substr(colon + 1), spec)) return run.error("format: a bad format");
    field = field.substr(0, colon);
    const size_t bang = std::min(field.find('!'), field.size());
    const string_view conversion = field.substr(std::min(field.size(), bang + 1));
    Value value = field_value(run, field.substr(0, bang), args, n_auto);
    if (run.failed()) return {};
    if (bang < field.size() && conversion != "s" && conversion != "r") return run.error("format: a bad conversion");
    if (bang < field.size()) value = conversion == "s" ? run.text_of(value) : represented(run, value);
    put_value(run, *out, value, spec);
  }
  return kept;
}

Value format_percent(Run& run, const Str& format, const Value& values) {
  Str* out = run.make_text();
  const Value kept = out;
  const string_view all = format.text;
  const bool is_tuple = values.is_sequence() && values.sequence().is_tuple();
  const size_t n_values = is_tuple ? values.sequence().items.size() : 1;
  size_t n_used = 0;
  for (size_t at = 0; at < all.size() && run.spend(1);) {
    const size_t sign = std::min(all.find('%', at), all.size());
    out->append(format, at, sign);
    if (sign == all.size()) break;
    at = sign + 1;
    Value value;
    bool is_named = false;
    if (at < all.size() && all[at] == '(') {
      const size_t end = all.find(')', at);
      if (end == string_view::npos || !values.is_dict()) return run.error("format requires a mapping");
      const Value* found = values.dict().find(all.substr(at + 1, end - at - 1));
      if (found == nullptr) return run.error("format: a key is missing");
      value = *found;
      is_named = true;
      at = end + 1;
    }
    Spec spec;
    for (; at < all.size() && string_view("-+ #0").find(all[at]) != string_view::npos; ++at) {
      if (all[at] == '-') spec.align = '<';
      if (all[at] == '+' || (all[at] == ' ' && spec.sign == 0)) spec.sign = all[at];
      if (all[at] == '#') spec.alternate = true;
      if (all[at] == '0' && spec.align == 0) spec.align = '=', spec.fill = "0";
    }
    if (spec.align == '<') spec.fill = " ";
    spec.width = read_number(all, at);
    if (at < all.size() && all[at] == '.') spec.precision = read_number(all, ++at);
    if (at >= all.size()) return run.error("incomplete format");
    spec.type = all[at++];
    if (spec.type == '%') {
      out->append(format, at - 1, at);
      continue;
    }
    if (string_view("diouxXeEfFgGsr").find(spec.type) == string_view::npos)
      return run.error("unsupported format character '%c'", spec.type);
    if (!is_named) {
      if (n_used >= n_values) return run.error("not enough arguments for format string");
      value = is_tuple ? values.sequence().items[n_used] : values;
      ++n_used;
    }
    const bool is_text = spec.type == 's' || spec.type == 'r';
    if (spec.type == 'r') value = represented(run, value);
    if (is_text) {
      value = run.text_of(value);
      spec.type = 's';
      if (spec.align == '=') spec.align = '>', spec.fill = " ";
      if (spec.align == 0) spec.align = '>';
    } else if (value.is(Type::kFloat) && string_view("diu").find(spec.type) != string_view::npos) {
      value =
          Value::integer(static_cast<int64_t>(std::clamp(std::trunc(value.real()), -9.2e18, 9.2e18)), value.is_said());
    }
    if (!run.failed()) put_value(run, *out, value, spec);
  }
  if (n_used < n_values && (is_tuple || !(values.is_dict() || values.is_sequence())))
    return run.error("not all arguments converted during string formatting");
  return kept;
}

void put_time(std::pmr::string& out, string_view format, int64_t unix_time) {
  using namespace std::chrono;
  constexpr const char* kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
  constexpr const char* kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};
  constexpr int64_t kDay = 86400, kMaxTime = 253402300799;  // the year 9999, Python's last
  unix_time = std::clamp<int64_t>(unix_time, -62135596800, kMaxTime);
  const int64_t day_number = unix_time >= 0 ? unix_time / kDay : -((-unix_time + kDay - 1) / kDay);
  const int second_of_day = static_cast<int>(unix_time - day_number * kDay);
  const sys_days date{days{day_number}};
  const year_month_day ymd(date);
  const int year = int{ymd.year()}, month = static_cast<int>(unsigned{ymd.month()});
  const int day = static_cast<int>(unsigned{ymd.day()}), week_day = static_cast<int>(weekday(date).c_encoding());
  const int hour = second_of_day / 3600, minute = second_of_day / 60 % 60, second = second_of_day % 60;
  const int hour12 = hour % 12 == 0 ? 12 : hour % 12;
  const int year_day = static_cast<int>((date - sys_days{ymd.year() / January / 1}).count());
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    size_t n = i + 1;
    const char pad = format[n] == '-' || format[n] == '_' || format[n] == '0' ? format[n++] : 0;
    const char kind = n < format.size() ? format[n] : 0;
    const auto number = [&](int value, int width, char fill = '0') {
      char text[24];
      fill = pad == '_' ? ' ' : pad == '0' ? '0' : fill;
      c_format(text, sizeof(text), pad == '-' ? "%d" : fill == ' ' ? "%*d" : "%0*d", pad == '-' ? value : width, value);
      out += text;
    };
    const auto all = [&](string_view more) { put_time(out, more, unix_time); };
    i = n;
    switch (kind) {
      case 'Y':
        number(year, pad == 0 ? 1 : 4);
        break;
      case 'C':
        number(year / 100, 2);
        break;
      case 'y':
        number(year % 100, 2);
        break;
      case 'm':
        number(month, 2);
        break;
      case 'd':
        number(day, 2);
        break;
      case 'e':
        number(day, 2, ' ');
        break;
      case 'H':
        number(hour, 2);
        break;
      case 'k':
        number(hour, 2, ' ');
        break;
      case 'I':
        number(hour12, 2);
        break;
      case 'l':
        number(hour12, 2, ' ');
        break;
      case 'M':
        number(minute, 2);
        break;
      case 'S':
        number(second, 2);
        break;
      case 'f':
        out += "000000";
        break;
      case 'j':
        number(year_day + 1, 3);
        break;
      case 'u':
        number(week_day == 0 ? 7 : week_day, 1);
        break;
      case 'w':
        number(week_day, 1);
        break;
      case 'U':
        number((year_day + 7 - week_day) / 7, 2);
        break;
      case 'W':
        number((year_day + 7 - (week_day + 6) % 7) / 7, 2);
        break;
      case 'A':
        out += kDays[week_day];
        break;
      case 'a':
        out.append(kDays[week_day], 3);
        break;
      case 'B':
        out += kMonths[month - 1];
        break;
      case 'b':
      case 'h':
        out.append(kMonths[month - 1], 3);
        break;
      case 'p':
        out += hour < 12 ? "AM" : "PM";
        break;
      case 'P':
        out += hour < 12 ? "am" : "pm";
        break;
      case 's': {
        char text[24];
        out.append(text, std::to_chars(text, text + sizeof(text), unix_time).ptr);
        break;
      }
      case 'c':
        all("%a %b %e %H:%M:%S %Y");
        break;
      case 'D':
      case 'x':
        all("%m/%d/%y");
        break;
      case 'F':
        all("%Y-%m-%d");
        break;
      case 'R':
        all("%H:%M");
        break;
      case 'r':
        all("%I:%M:%S %p");
        break;
      case 'T':
      case 'X':
        all("%H:%M:%S");
        break;
      case 'z':
      case 'Z':
        break;
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      case '%':
        out += '%';
        break;
      default:
        out.append(format.substr(i - 1, 2));
        break;
    }
  }
}

}  // namespace weir::jinja
