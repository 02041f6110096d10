// Recall on a device: the host memory that both sides see. The device asks for pages and copies those that are raw; the
// host sends the others, and loads cold pages for prompts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir {

// What a stream of a layer asks of the host in a step: copies that are not raw. The device fills it, `ticket` last; a
// ticket is a number that no other step and layer of the same launch has, never 0.
struct RecallPost {
  uint32_t ticket, layer, n;  // n rows in DeviceRecall::rows; kNoAskedRow where nothing is asked
  uint32_t reserved;
};
// The host's answer; its pages are in DeviceRecall::pages. `is_refused` is set before `ticket` if some cannot be read.
struct RecallAnswer {
  uint32_t ticket, is_refused;
};
inline constexpr uint32_t kNoAskedRow = UINT32_MAX;

// With recall: what both sides see of it, in host memory.
struct DeviceRecall {
  uint64_t late_ns = 0;                  // a step that waits longer for a page is late
  uint32_t most = 0;                     // StepRules::recall_pages
  uint32_t n_rows = 0;                   // of all tables
  uint32_t n_pages = 0;                  // of `pages`
  uint32_t* raw_index = nullptr;         // [n_rows] where a page's copy is; see SpillStore::set_raw_index
  const std::byte* raw_pages = nullptr;  // raw slots, by index
  RecallPost* posts = nullptr;           // [n_kv_heads]
  RecallAnswer* answers = nullptr;       // [n_kv_heads]
  uint32_t* rows = nullptr;              // [n_kv_heads, most] that the posts ask for
  std::byte* pages = nullptr;            // [n_pages, page_bytes] for pages on their way; see the functions that use it
  uint32_t* page_slots = nullptr;        // [n_pages] where each of them comes from or goes to
  uint32_t* unit_pos = nullptr;          // [n_kv_heads, kSplitPages] of a unit of a prompt's attention: positions
  uint32_t* unit_len = nullptr;          // the same: tokens
};

// Where the pages of a unit of a prompt's attention are: kInPool + slot, kRaw + raw slot, kStaged + number in
// DeviceRecall::pages, or kLostPage.
struct UnitPage {
  enum Where : uint32_t { kInPool = 0, kRaw = 1, kStaged = 2, kLostPage = 3 };
  static constexpr uint32_t kBits = 30;
  static constexpr uint32_t at(Where where, uint32_t index) { return static_cast<uint32_t>(where) << kBits | index; }
};

}  // namespace weir
