// A constraint with the number of those that hold it.
#pragma once

#include <atomic>

#include "text/constraint/constraint.h"

namespace weir::constraint {

class SharedConstraint : public Constraint {
 public:
  // `destroy` is called by the last release().
  using Destroy = void (*)(SharedConstraint*);
  SharedConstraint(const TokenTrie& trie, std::pmr::memory_resource* memory, Destroy destroy)
      : Constraint(trie, memory), destroy_(destroy) {}

  void retain() { n_refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (n_refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy_(this);
  }

 private:
  std::atomic<uint32_t> n_refs_{1};
  Destroy destroy_;
};

}  // namespace weir::constraint
