// The filters, tests, global functions and methods of the language: tables of names, parameters and what they do.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory_resource>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace weir::jinja {

class Run;

// Arguments of a call. After they were matched with a function's parameters there is one place for each of these.
struct Args {
  explicit Args(Heap* memory) : list(memory), named(memory) {}

  size_t size() const { return list.size(); }
  // Whether the parameter was given, and what it was; undefined when not.
  bool has(size_t i) const { return i < list.size() && (given >> i & 1) != 0; }
  const Value& operator[](size_t i) const { return list[i]; }
  const Value* find(std::string_view name) const {
    for (const auto& [key, value] : named) {
      if (key == name) return &value;
    }
    return nullptr;
  }

  std::pmr::vector<Value> list;
  std::pmr::vector<std::pair<std::string_view, Value>> named;
  Value keywords;  // what some of the names belong to
  uint32_t given = 0;
};

struct Function {
  std::string_view name;
  const char* params;  // names with commas between them, the first n_required must be given; nullptr: anything goes
  uint32_t n_required;
  Value (*run)(Run& run, const Value& self, const Args& args);
};

inline constexpr uint32_t kNoFunction = UINT32_MAX;

std::span<const Function> filter_table();
std::span<const Function> test_table();
std::span<const Function> global_table();
std::span<const Function> method_table(Type type);  // of strings, sequences, dicts, cyclers
uint32_t find_function(std::span<const Function> table, std::string_view name);
inline uint32_t find_filter(std::string_view name) { return find_function(filter_table(), name); }
inline uint32_t find_test(std::string_view name) { return find_function(test_table(), name); }

// What several of these files need.
std::span<const Function> text_methods();
Value format_percent(Run& run, const Str& format, const Value& values);
Value format_braces(Run& run, const Str& format, const Args& args);
// json.dumps; `indent` below 0: on one line.
struct JsonStyle {
  int64_t indent = -1;
  std::string_view item_separator, key_separator;
  bool ascii_only = false, sort_keys = false;
};
Value to_json(Run& run, const Value& value, const JsonStyle& style);
void put_time(std::pmr::string& out, std::string_view format, int64_t unix_time);

enum class Trim : uint8_t { kBoth, kLeft, kRight };
// Without the characters of `which` at its ends, or without white space where that is null.
Value trimmed(Run& run, const Str& text, Trim ends, const Value* which);
enum class Case : uint8_t { kUpper, kLower, kSwap, kCapital, kTitle };
Value with_case(Run& run, const Str& text, Case form);
Value replaced(Run& run, const Str& text, const Str& from, const Str& to, int64_t n_most);
Value lines_of(Run& run, const Str& text, bool keep_ends);

}  // namespace weir::jinja
