// Characters as Python's str has them: which are white space, and their other case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <string_view>

namespace weir {

// The character at byte `at` of the text, which is not at its end, and its length. A byte that is no UTF-8 is one of
// its own, beyond all others.
uint32_t code_at(std::string_view text, size_t at, size_t& n_bytes);
void put_code(std::pmr::string& out, uint32_t code);
bool is_space(uint32_t code);
// ASCII, and the alphabets that have cases, but for rare letters; other characters stay what they are.
uint32_t to_lower(uint32_t code);
uint32_t to_upper(uint32_t code);

}  // namespace weir
