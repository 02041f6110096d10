// What a template may use. Real ones need a hundredth of each for a conversation of thousands of messages.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir::jinja {

// Of a template's text; the longest known ones have 30 KB.
inline constexpr size_t kMaxTemplateBytes = size_t{256} << 10;
// Tags and brackets inside each other. Python's parser gives up at about as many.
inline constexpr uint32_t kMaxNesting = 100;
// Expressions, blocks and macros under way inside each other: half a megabyte of stack, the least that threads have on
// common systems. A chain such as a + b + c takes one for each operator.
inline constexpr uint32_t kMaxDepth = 500;
// Values inside each other, where they are read, compared or written.
inline constexpr uint32_t kMaxValueDepth = 200;
// Nodes run, items walked over, and every 64 bytes of text made: some seconds.
inline constexpr uint64_t kMaxSteps = 50'000'000;
inline constexpr uint64_t kStepBytes = 64;
// Of any text, the rendered one too: a context of a million tokens has a tenth of it.
inline constexpr size_t kMaxTextBytes = size_t{64} << 20;
// Of all values alive, those given included.
inline constexpr uint64_t kMaxHeapBytes = uint64_t{1} << 30;
// What range() makes, as in Jinja's sandbox.
inline constexpr int64_t kMaxRange = 100'000;

}  // namespace weir::jinja
