// A session that goes on where another one is. It is built like the other, from the setup and a copy of the policy, and
// then gets its pages, tables, store and state. Only what is in the store is shared (kv/spill_family.h), in a way that
// neither can tell that the other exists.
#include <algorithm>

#include "runtime/session_entry.h"

namespace weir {

Status Session::create_fork(Session& parent) {
  const Lock lock(parent);
  WEIR_TRY(lock.status());
  WEIR_TRY(parent.host_tables());
  setup_ = parent.setup_;
  policy_ = parent.policy_->copy_to(policy_storage_);
  policy_storage_.windows = parent.policy_storage_.windows;
  policy_storage_.effective = parent.policy_storage_.effective;
  WEIR_TRY(build(&parent.store_));
  is_used_ = true;
  {
    const PageTables::Change copying = tables_.change();
    remembered_.list.copy_from(parent.remembered_.list, parent.kv_.n_tokens());
  }
  step_.pages_attended = parent.step_.pages_attended;
  counters_.copy_from(parent.counters_);
  return machine_->copy_from(*parent.machine_);
}

}  // namespace weir
