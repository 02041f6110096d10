// The filter tojson.
#include <cmath>

#include "core/c_format.h"
#include "text/jinja/run.h"

namespace weir::jinja {
namespace {

using std::string_view;

// Python's json.dumps.
struct Writer {
  void write(const Value& value, uint32_t depth) {
    if (depth > kMaxValueDepth) return void(run.refuse(WEIR_ERR_UNSUPPORTED, "values are nested too deeply"));
    if (!run.spend(1) || !run.has_room(out.size())) return;
    if (value.is_list()) return write_list(value, depth);
    if (value.is_dict()) return write_dict(value.dict(), depth);
    if (!put_plain(value)) run.error("Object of type %s is not JSON serializable", type_name(value));
  }

  bool put_plain(const Value& value) {
    if (value.is_string()) return write_text(value.view()), true;
    if (value.is_none()) return out += "null", true;
    if (value.is(Type::kBool)) return out += value.integer() != 0 ? "true" : "false", true;
    if (!value.is_number() && !value.is(Type::kLargeInt)) return false;
    const bool is_odd = value.is(Type::kFloat) && !std::isfinite(value.real());
    if (is_odd) return out += std::isnan(value.real()) ? "NaN" : value.real() < 0 ? "-Infinity" : "Infinity", true;
    return put_repr(out, value), true;
  }

  void line(uint32_t depth) {
    if (indent < 0) return;
    out += '\n';
    const uint64_t n = static_cast<uint64_t>(indent) * depth;
    if (run.has_room(out.size() + n)) out.append(n, ' ');
  }

  void write_list(const Value& list, uint32_t depth) {
    out += '[';
    for (size_t i = 0; i < list.items().size() && !run.failed(); ++i) {
      if (i > 0) out += item_separator;
      line(depth + 1);
      write(list.items()[i], depth + 1);
    }
    if (!list.items().empty()) line(depth);
    out += ']';
  }

  void write_dict(const Dict& dict, uint32_t depth) {
    std::pmr::vector<const Dict::Entry*> entries(&run.heap);
    for (const Dict::Entry& entry : dict.entries) entries.push_back(&entry);
    if (sort_keys) {
      merge_sort(entries, [&](const auto* a, const auto* b) {
        const int order = compare(a->key, b->key);
        if (order == 2) run.error("keys of different types cannot be ordered");
        return order == -1;
      });
    }
    out += '{';
    for (size_t i = 0; i < entries.size() && !run.failed(); ++i) {
      const Value& key = entries[i]->key;
      if (i > 0) out += item_separator;
      line(depth + 1);
      if (!key.is_string()) out += '"';
      if (!put_plain(key)) run.error("keys must be str, int, float, bool or None, not %s", type_name(key));
      if (!key.is_string()) out += '"';
      out += key_separator;
      write(entries[i]->value, depth + 1);
    }
    if (!entries.empty()) line(depth);
    out += '}';
  }

  void write_text(string_view text) {
    constexpr string_view kLetters = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
    if (!run.has_room(out.size() + text.size())) return;
    out += '"';
    for (size_t i = 0, n; i < text.size(); i += n) {
      const uint32_t code = code_at(text, i, n);
      const size_t letter = code < 0x80 ? kLetters.find(static_cast<char>(code)) : string_view::npos;
      char escape[16] = "";
      if (letter != string_view::npos) {
        out.append("\\").push_back(kNames[letter]);
      } else if (code >= 0x20 && code < 0x110000 && (code < 0x80 || !ascii_only)) {
        out.append(text.substr(i, n));
      } else if (code < 0x10000 || code >= 0x110000) {  // a byte that is no UTF-8 as Python has it from such data
        c_format(escape, sizeof(escape), "\\u%04x", code < 0x10000 ? code : 0xDC00 + (code - 0x110000));
      } else {
        c_format(escape, sizeof(escape), "\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10),
                 0xDC00 + ((code - 0x10000) & 0x3FF));
      }
      out += escape;
    }
    out += '"';
  }

  Run& run;
  bool ascii_only, sort_keys;
  int64_t indent;  // below 0: on one line
  string_view item_separator, key_separator;
  std::pmr::string out;
};

}  // namespace

Value f_tojson(Run& run, const Value& self, const Args& args) {
  const bool has_text = args.has(1) && args[1].is_string();
  const int64_t indent = has_text ? static_cast<int64_t>(args[1].view().size()) : run.number(args, 1, -1);
  if (has_text && args[1].view().find_first_not_of(' ') != string_view::npos)
    return run.error("tojson: indent is a number or spaces");
  Value item = run.new_text(indent >= 0 ? "," : ", "), key = run.new_text(": ");
  if (args.has_some(2)) {
    const Value separators = run.items_of(args[2]);
    const auto& items = separators.items();
    if (items.size() != 2 || !items[0].is_string() || !items[1].is_string())
      return run.error("tojson: separators are two texts");
    item = items[0];
    key = items[1];
  }
  Writer writer = {run, args.flag(0), args.flag(3), indent, item.view(), key.view(), std::pmr::string(&run.heap)};
  writer.write(self, 0);
  return run.new_text(writer.out, is_said(self));
}

}  // namespace weir::jinja
