// What a spill store and its copies, and copies of those, have in common: one mutex, and the list of them. Each has
// room of its own for all of its pages, but pages that were there when it was copied have their bytes in one store of
// the family only, their owner; the entries of the others name it (spill_store.h). Sharing is by number: an entry that
// names an owner means the owner's entry of the same number.
//
// Copied is when the owner would free the bytes: one of those that share them gets them and is the owner for the rest.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory_resource>
#include <mutex>

namespace weir {

class SpillStore;

struct SpillFamily {
  explicit SpillFamily(std::pmr::memory_resource* resource) : memory(resource) {}

  std::pmr::memory_resource* memory;  // of this object
  std::atomic<uint32_t> n_users{1};   // who comes last frees it
  std::mutex mutex;                   // of all of the stores
  std::mutex opening;                 // all have the same path for their files, each for a moment
  SpillStore* members = nullptr;
};

}  // namespace weir
