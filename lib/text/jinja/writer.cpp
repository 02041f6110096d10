// Values as text: Python's str() and repr(), and the filter tojson, which is json.dumps().
#include <charconv>
#include <cmath>

#include "core/c_format.h"
#include "text/jinja/run.h"

namespace weir::jinja {
namespace {

using std::string_view;

// Python's repr(float): the shortest digits that give the number back.
void put_real(std::pmr::string& out, double number, bool is_json) {
  if (std::isnan(number)) return void(out += is_json ? "NaN" : "nan");
  if (std::signbit(number)) out += '-';
  if (std::isinf(number)) return void(out += is_json ? "Infinity" : "inf");
  char digits[40];
  number = std::fabs(number);
  const bool is_long = number != 0 && (number < 1e-4 || number >= 1e16);
  const auto form = is_long ? std::chars_format::scientific : std::chars_format::fixed;
  const string_view all(digits, std::to_chars(digits, std::end(digits), number, form).ptr);
  out.append(all);
  if (!is_long && all.find('.') == string_view::npos) out += ".0";
}

// Characters that Python does not show as they are: controls, spaces but the common one, formats, private ones.
bool is_hidden(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0xA0) || code == 0xAD || (code > 0xA0 && is_space(code)) ||
         (code >= 0x200B && code <= 0x200F) || (code >= 0x202A && code <= 0x202E) || code == 0xFEFF ||
         (code >= 0x2060 && code <= 0x206F) || (code >= 0xD800 && code < 0xF900) ||
         (code >= 0xE0000 && code < 0x110000);
}

struct Writer {
  void write(const Value& value, uint32_t depth) {
    if (depth > kMaxValueDepth) return void(run.refuse(WEIR_ERR_UNSUPPORTED, "values are nested too deeply"));
    if (!run.has_room(out.size(), 0)) return;
    constexpr const char* kWords[2][3] = {{"False", "True", "None"}, {"false", "true", "null"}};
    if (value.is_none()) return void(out += kWords[is_json][2]);
    if (value.is(Type::kBool)) return void(out += kWords[is_json][value.integer()]);
    if (value.is(Type::kFloat)) return put_real(out, value.real(), is_json);
    if (value.is(Type::kLargeInt)) return void(out += value.view());
    if (value.is_string()) return write_text(value.view());
    if (value.is_dict()) return write_dict(value.dict(), depth);
    if (value.is_list()) return write_list(value.sequence(), depth);
    if (value.is(Type::kInt)) {
      char digits[24];
      return void(out.append(digits, std::to_chars(digits, std::end(digits), value.integer()).ptr));
    }
    if (!is_json) return write_object(value, depth);
    run.error("Object of type %s is not JSON serializable", type_name(value));
  }

  void write_object(const Value& value, uint32_t depth) {
    const char* name = type_name(value);
    if (value.is_undefined()) return void(out += name);
    const bool is_view = value.is_sequence() && value.sequence().kind > SeqKind::kIterator;
    out.append(is_view ? "" : "<").append(name).append(is_view ? "(" : value.is(Type::kNamespace) ? " " : "");
    if (is_view) write_list(value.sequence(), depth);
    if (value.is(Type::kNamespace)) write_dict(value.dict(), depth);
    out += is_view ? ')' : '>';
  }

  void begin_line(uint32_t depth) {
    if (!has_lines) return;
    out += '\n';
    for (uint32_t i = 0; i < depth && run.has_room(out.size(), indent.size()); ++i) out += indent;
  }
  void begin_item(size_t index, uint32_t depth) {
    if (index > 0) out += item_separator;
    begin_line(depth + 1);
  }

  void write_list(const Seq& list, uint32_t depth) {
    const bool is_tuple = list.is_tuple() && !is_json;
    out += is_tuple ? '(' : '[';
    for (size_t i = 0; i < list.items.size() && !run.failed(); ++i) {
      begin_item(i, depth);
      write(list.items[i], depth + 1);
    }
    if (is_tuple && list.items.size() == 1) out += ',';
    if (!list.items.empty()) begin_line(depth);
    out += is_tuple ? ')' : ']';
  }

  void write_dict(const Dict& dict, uint32_t depth) {
    std::pmr::vector<Dict::Entry> entries(dict.entries, &run.heap);
    if (sort_keys) {
      merge_sort(entries, [&](const auto& a, const auto& b) {
        const int order = compare(a.key, b.key);
        if (order == 2) run.error("keys of different types cannot be ordered");
        return order == -1;
      });
    }
    out += '{';
    for (size_t i = 0; i < entries.size() && !run.failed(); ++i) {
      begin_item(i, depth);
      write_key(entries[i].key, depth);
      out += key_separator;
      write(entries[i].value, depth + 1);
    }
    if (!entries.empty()) begin_line(depth);
    out += '}';
  }

  void write_key(const Value& key, uint32_t depth) {
    if (!is_json || key.is_string()) return write(key, depth + 1);
    if (!key.is_none() && !key.is_number())
      return void(run.error("keys must be str, int, float, bool or None, not %s", type_name(key)));
    out += '"';
    write(key, depth + 1);
    out += '"';
  }

  void write_text(string_view text) {
    const bool has_single = text.find('\'') != string_view::npos, has_double = text.find('"') != string_view::npos;
    const char quote = is_json || (has_single && !has_double) ? '"' : '\'';
    const string_view letters = is_json ? "\\\n\r\t\b\f" : "\\\n\r\t", names = "\\nrtbf";
    if (!run.has_room(out.size(), text.size())) return;
    out += quote;
    for (size_t i = 0, n; i < text.size(); i += n) {
      const uint32_t code = code_at(text, i, n);
      const size_t letter = code < 0x80 ? letters.find(static_cast<char>(code)) : string_view::npos;
      const bool is_escaped =
          is_json ? code < 0x20 || code >= 0x110000 || (ascii_only && code > 0x7E) : is_hidden(code);
      if (code == static_cast<uint32_t>(quote)) {
        out.append("\\") += quote;
      } else if (letter != string_view::npos) {
        out.append("\\") += names[letter];
      } else if (is_escaped) {
        put_escape(code);
      } else {
        out.append(text.substr(i, n));
      }
    }
    out += quote;
  }

  // JSON has two units for large codes, and Python has a unit for a byte that is no UTF-8.
  void put_escape(uint32_t code) {
    if (is_json && code >= 0x10000 && code < 0x110000) {
      put_escape(0xD800 + ((code - 0x10000) >> 10));
      code = 0xDC00 + ((code - 0x10000) & 0x3FF);
    }
    if (code >= 0x110000) code = 0xDC00 + (code - 0x110000);
    char text[12];
    const bool is_short = code < 0x100 && !is_json;
    c_format(text, sizeof(text), is_short ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
    out += text;
  }

  Run& run;
  std::pmr::string out{&run.heap};
  bool is_json = false, ascii_only = false, sort_keys = false, has_lines = false;
  string_view indent = {}, item_separator = ", ", key_separator = ": ";
};

}  // namespace

Str* Run::repr_of(const Value& value) {
  Writer writer = {*this};
  writer.write(value, 0);
  return new_text(writer.out, is_said(value));
}

Str* Run::text_of(const Value& value) {
  if (value.is_string()) return &value.as<Str>();
  return value.is_undefined() ? new_text() : repr_of(value);
}

Value f_tojson(Run& run, const Args& args) {
  const Value &indent = args[2], &separators = args[3];
  Writer writer = {run};
  writer.is_json = true;
  writer.ascii_only = args.flag(1);
  writer.sort_keys = args.flag(4);
  writer.has_lines = args.has(2);
  if (writer.has_lines) writer.item_separator = ",";
  const Value spaces = indent.is_integer() ? run.binary(Op::kMul, run.new_text(" "), indent) : indent;
  if (spaces.is_string()) writer.indent = spaces.view();
  if (args.has(3)) {
    const auto& both = separators.items();
    if (both.size() != 2 || !both[0].is_string() || !both[1].is_string())
      return run.error("tojson: separators are two texts");
    writer.item_separator = both[0].view();
    writer.key_separator = both[1].view();
  }
  writer.write(args[0], 0);
  return run.new_text(writer.out, is_said(args[0]));
}

}  // namespace weir::jinja
