// The size of the store of pages outside the pool, and how it is divided: from the options, the context and what memory
// the machine has. The same for a plan and for the session, since a machine's memory and a container's limit do not
// change between the two; what is free now would.
#include <algorithm>

#include "core/machine_limits.h"
#include "runtime/device_choice.h"
#include "runtime/session_pools.h"

namespace weir {
namespace {

using Number = unsigned long long;  // for messages

constexpr uint64_t kMinQueue = 64, kMaxQueue = 1024;  // pages that wait to be compressed

// A store whose size nobody has chosen takes at most one part in this many of the machine's memory.
constexpr uint64_t kMachineShare = 2;
// Below this many bytes nobody asks the machine.
constexpr uint64_t kSmallStore = 64 << 20;

// Compressed pages are taken to need this part of their bytes (docs/decisions/006-spill-store.md has what they need).
constexpr uint64_t kBlockParts = 4, kPageParts = 5;
// In a store that cannot have all pages raw, raw ones have at least one part in this many of its memory.
constexpr uint64_t kRawShare = 4;

Status check_spill(const weir_session_options& o) {
  const uint32_t known = uint32_t{WEIR_SPILL_STRICT} | uint32_t{WEIR_SPILL_NO_RAW} | uint32_t{WEIR_SPILL_HALF};
  if ((o.spill_flags & ~known) != 0)
    return fail(WEIR_ERR_UNSUPPORTED, "spill_flags: 0x%x are not known", o.spill_flags & ~known);
  if (o.reserved_spill != 0)
    return fail(WEIR_ERR_UNSUPPORTED, "session options: reserved_spill is %u, not 0", o.reserved_spill);
  if ((o.spill_flags & WEIR_SPILL_NO_RAW) != 0 && o.spill_raw_bytes != 0) {
    return fail(WEIR_ERR_INVALID_ARG, "spill_raw_bytes is %llu, but spill_flags has WEIR_SPILL_NO_RAW",
                Number{o.spill_raw_bytes});
  }
  const bool has_path = o.spill_path != nullptr && o.spill_path[0] != '\0';
  if (has_path && o.spill_file_bytes == 0)
    return fail(WEIR_ERR_INVALID_ARG, "spill_path is set, but spill_file_bytes is 0");
  if (!has_path && o.spill_file_bytes != 0) {
    return fail(WEIR_ERR_INVALID_ARG, "spill_file_bytes is %llu, but spill_path is %s", Number{o.spill_file_bytes},
                o.spill_path == nullptr ? "NULL" : "empty");
  }
  return {};
}

// The first option for the store that is set, or null.
const char* spill_option(const weir_session_options& o) {
  return o.spill_budget_bytes != 0                            ? "spill_budget_bytes"
         : o.spill_raw_bytes != 0                             ? "spill_raw_bytes"
         : o.spill_path != nullptr && o.spill_path[0] != '\0' ? "spill_path"
         : o.spill_flags != 0                                 ? "spill_flags"
                                                              : nullptr;
}

// Refuses the store's options for a session without a store, unless they may be there all the same.
Status refuse_options(const weir_session_options& o, const PolicyNeeds& needs, const StepRules& rules) {
  const char* option = spill_option(o);
  if (option == nullptr || needs.may_recall) return {};  // nothing leaves a pool that holds all
  const char* policy = o.policy == nullptr ? "dense" : o.policy;
  if (!lets_pages_go(rules))
    return fail(WEIR_ERR_INVALID_ARG, "%s is set, but policy %s lets no pages go", option, policy);
  if (o.spill_budget_bytes != 0) return {};
  return fail(WEIR_ERR_INVALID_ARG, "%s is set, but policy %s stores pages only with spill_budget_bytes", option,
              policy);
}

// Whether nobody has said how much of the store is raw.
bool raw_is_open(const weir_session_options& o) {
  return o.spill_raw_bytes == 0 && (o.spill_flags & WEIR_SPILL_NO_RAW) == 0;
}

// Bytes of raw pages that the device can map: they are one allocation, with those of the queue.
uint64_t max_raw(const SessionSetup& setup, uint32_t page_bytes) {
  DeviceInfo info = {};
  if (setup.module == nullptr || !setup.module->info(info).ok()) return UINT64_MAX;
  return info.max_staging_bytes - std::min(info.max_staging_bytes, (kMaxQueue + 2) * page_bytes);
}

// What holds the whole context, whatever is in its pages, unless that is more than the machine can give.
uint64_t default_budget(const weir_session_options& o, uint32_t page_bytes, uint64_t n_pages, uint64_t max_raw) {
  const uint64_t n_raw = raw_is_open(o) ? std::min(n_pages, max_raw / page_bytes) : 0;
  const uint64_t whole = n_raw * page_bytes + spill_worst_bytes(page_bytes, n_pages - n_raw);
  return whole <= kSmallStore ? whole : std::min(whole, machine_memory_bytes() / kMachineShare);
}

// As many bytes for raw pages as leave room for all others compressed, and at least a quarter.
uint64_t default_raw(uint64_t budget, uint64_t all_raw, uint64_t max_raw) {
  if (budget >= all_raw) return std::min(all_raw, max_raw);
  // raw + (all_raw - raw) * kBlockParts / kPageParts = budget
  const uint64_t with_blocks = all_raw / kPageParts * kBlockParts;
  const uint64_t raw = budget > with_blocks ? (budget - with_blocks) * (kPageParts / (kPageParts - kBlockParts)) : 0;
  return std::min(std::max(raw, budget / kRawShare), max_raw);
}

// Without recall: pages of a stream that may have copies at one time. The oldest and the newest may be copies of
// one stream only.
Status plan_copies(const SpillOptions& spill, SessionSetup& setup) {
  WEIR_TRY(plan_spill(spill, setup.spill_plan));
  if (setup.kv.archive_pages != 0)
    setup.kv.archive_ring = static_cast<uint32_t>(setup.spill_plan.n_entries / setup.kv.n_archived_streams()) + 2;
  return {};
}

}  // namespace

// The store for the sealed pages of the streams that the budget rules: with recall of all of them, else, if a budget
// for it is given, of those that let pages go.
Status plan_store(const weir_session_options& o, const PolicyNeeds& needs, SessionSetup& setup) {
  WEIR_TRY(check_spill(o));
  if (!setup.has_store()) return refuse_options(o, needs, setup.rules);
  const bool recalls = setup.kv.recalls();
  if (!recalls && (o.spill_flags & WEIR_SPILL_STRICT) != 0)
    return fail(WEIR_ERR_INVALID_ARG, "spill_flags: WEIR_SPILL_STRICT is for policies that recall pages, not %s",
                o.policy);
  const uint64_t n_ruled = recalls ? setup.kv.n_streams() - setup.kv.n_local_streams() : setup.kv.n_archived_streams();
  // With recall also of windows, for rewinding.
  const uint64_t n_pages =
      recalls ? uint64_t{setup.kv.n_streams()} * setup.kv.pages_per_stream : n_ruled * setup.kv.archive_pages;
  SpillOptions& spill = setup.spill;
  spill.page_bytes = static_cast<uint32_t>(setup.kv.page_bytes());
  spill.compresses = setup.kv.format == KvFormat::kBf16;
  spill.max_pages = static_cast<uint32_t>(std::min<uint64_t>(n_pages, 1u << 30));  // the store has its own bound
  const uint64_t mapped = max_raw(setup, spill.page_bytes);
  spill.budget_bytes =
      o.spill_budget_bytes != 0 ? o.spill_budget_bytes : default_budget(o, spill.page_bytes, n_pages, mapped);
  spill.file_path = o.spill_path;
  spill.file_bytes = o.spill_file_bytes;
  setup.spill_strict = (o.spill_flags & WEIR_SPILL_STRICT) != 0;
  const uint64_t least = spill_worst_bytes(spill.page_bytes, n_ruled);
  if (spill.budget_bytes < least) {
    return fail(WEIR_ERR_BUDGET, "spill_budget_bytes %llu are too few for one page of each of %llu streams, %llu bytes",
                Number{spill.budget_bytes}, Number{n_ruled}, Number{least});
  }
  const uint64_t all_raw = n_pages * spill.page_bytes;
  spill.raw_bytes = !raw_is_open(o)                              ? o.spill_raw_bytes
                    : !spill.compresses && spill.file_bytes == 0 ? std::min({spill.budget_bytes, all_raw, mapped})
                                                                 : default_raw(spill.budget_bytes, all_raw, mapped);
  if (spill.raw_bytes >= all_raw && spill.raw_bytes <= spill.budget_bytes) {
    spill.raw_bytes = spill.budget_bytes = all_raw;  // nothing is ever compressed
    return plan_copies(spill, setup);
  }
  spill.n_workers = 1;
  // All streams fill a page in the same step; a queue for all of these makes no step wait.
  spill.queue_pages = static_cast<uint32_t>(std::clamp(n_ruled, kMinQueue, kMaxQueue));
  return plan_copies(spill, setup);
}

// The largest store of at most `room` bytes in all.
Status plan_store_within(weir_session_options o, uint64_t room, const PolicyNeeds& needs, SessionSetup& setup) {
  o.spill_budget_bytes = room;
  for (;;) {
    WEIR_TRY(plan_store(o, needs, setup));
    const uint64_t total = setup.spill_plan.total_bytes();
    if (total <= room) return {};
    // What it takes besides its pages depends little on how many these are.
    o.spill_budget_bytes -= std::min(o.spill_budget_bytes - 1, total - room);
  }
}

uint32_t stored_tokens(const SessionSetup& setup) {
  if (!setup.has_store() || setup.spill_plan.worst_cells == 0) return 0;
  const SpillPlan& plan = setup.spill_plan;
  const KvShape& kv = setup.kv;
  const uint64_t n_streams = kv.recalls() ? kv.n_streams() : kv.n_archived_streams();
  const uint64_t context_pages = kv.recalls() ? kv.pages_per_stream : kv.archive_pages;
  const uint64_t n_pages = uint64_t{plan.n_raw} + plan.n_cells / plan.worst_cells +
                           plan.n_file_cells / SpillFile::cells_for(max_block_bytes(setup.spill.page_bytes));
  return static_cast<uint32_t>(std::min(n_pages / n_streams, context_pages)) * kPageTokens;
}

}  // namespace weir
