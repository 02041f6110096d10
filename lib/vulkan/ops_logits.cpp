// The end of a step and its logits; noise and copies for benchmarks.
#include <algorithm>

#include "device/kernels/fill.h"
#include "device/kernels/logits.h"
#include "device/kernels/step_end.h"
#include "vulkan/context.h"
#include "vulkan/ops_sizes.h"
#include "vulkan/steps.h"

namespace weir::vulkan {
namespace {

static_assert(kMaxTop == kMaxTopLogits);

// Enough to read the logits of a large vocabulary at once.
constexpr uint32_t kLogitGroups = 64;

// Parts of the vocabulary whose best logits are listed: so many that all lists are short, but some parts even then.
constexpr uint32_t kCandidates = 8192, kMinParts = 16, kMaxParts = 128;

// Words of the pool that one dispatch fills: 4 GiB.
constexpr uint64_t kNoiseWords = uint64_t{1} << 30;
constexpr uint32_t kNoiseGroups = 4096;

// Workgroups of copy_memory: so many fill the largest device that was measured more than once.
constexpr uint32_t kCopyGroups = 4096;

uint32_t groups_of(uint32_t n) { return (n + kInvocations - 1) / kInvocations; }

Status dispatch(Kernel kernel, const auto& push, const Touches& t, uint32_t n_groups, const Variant& variant = {}) {
  return context().dispatch(kernel, WeightType::kF32, variant, push, t, {n_groups});
}

}  // namespace

Status step_end(const StepEndArgs& a) {
  const uint64_t logit_bytes = float_bytes(a.vocab_size);
  const uint32_t n_groups = std::clamp(groups_of(a.vocab_size), 1u, kLogitGroups);
  Touches first;
  const BestLogitPush best = {first.writes(a.best, sizeof(*a.best)), first.reads(a.logits, logit_bytes), a.vocab_size};
  WEIR_TRY(dispatch(Kernel::kBestLogit, best, first, n_groups));
  Touches t;
  const StepEndPush push = {t.writes(a.best, sizeof(*a.best)),
                            t.writes(a.counter, sizeof(*a.counter)),
                            t.writes(a.state, sizeof(StepState)),
                            t.writes(a.mailbox, sizeof(StepState)),
                            t.reads(a.logits, logit_bytes),
                            a.vocab_size,
                            a.commit ? 1u : 0u};
  return dispatch(Kernel::kStepEnd, push, t, n_groups);
}

uint64_t top_logits_scratch_bytes() {
  return uint64_t{std::max(kMinParts * kMaxTop, kCandidates)} * 2 * sizeof(uint32_t);
}

// The parts' lists meet in the second kernel, so `counter` stays as it is.
Status top_logits(const TopLogitsArgs& a) {
  if (a.n == 0 || a.n > std::min(kMaxTop, a.vocab_size))
    return fail(WEIR_ERR_INTERNAL, "Vulkan: the best %u of %u logits", a.n, a.vocab_size);
  const uint32_t wanted = std::clamp(kCandidates / a.n, kMinParts, kMaxParts);
  const uint32_t part_rows = (a.vocab_size + wanted - 1) / wanted;
  const uint32_t n_parts = (a.vocab_size + part_rows - 1) / part_rows, each = std::min(a.n, part_rows);
  const uint32_t last_rows = a.vocab_size - (n_parts - 1) * part_rows;
  const uint32_t n_candidates = (n_parts - 1) * each + std::min(each, last_rows);
  const uint64_t bytes = uint64_t{n_candidates} * 2 * sizeof(uint32_t);
  Touches first;
  const TopPartsPush parts = {first.writes(a.scratch, bytes),
                              first.reads(a.logits, float_bytes(a.vocab_size)),
                              first.reads(a.mask, mask_words(a.vocab_size) * sizeof(uint32_t)),
                              a.vocab_size,
                              part_rows,
                              each};
  WEIR_TRY(dispatch(Kernel::kTopParts, parts, first, n_parts, top_rows_variant(part_rows)));
  Touches t;
  const TopLogitsPush push = {t.writes(a.ids, a.n * sizeof(int32_t)), t.writes(a.values, float_bytes(a.n)),
                              t.reads(a.scratch, bytes), n_candidates, a.n};
  return dispatch(Kernel::kTopLogits, push, t, 1, top_rows_variant(n_candidates));
}

Status read_logits(const ReadLogitsArgs& a) {
  Touches t;
  const bool has_tokens = a.n_tokens != 0;
  const ReadLogitsPush push = {t.writes(a.parts, kLogitParts * sizeof(LogitPart)),
                               t.reads(a.logits, float_bytes(a.vocab_size)),
                               t.reads(has_tokens ? a.tokens : nullptr, a.n_tokens * sizeof(int32_t)),
                               t.writes(has_tokens ? a.values : nullptr, float_bytes(a.n_tokens)),
                               a.vocab_size,
                               logit_part_rows(a.vocab_size),
                               a.n_tokens};
  return dispatch(Kernel::kReadLogits, push, t, a.parts != nullptr ? kLogitParts : 1);
}

Status fill_noise(const FillNoiseArgs& a) {
  const uint64_t n_words = a.n_elements / 2;  // pages have even numbers of elements
  for (uint64_t done = 0; done < n_words; done += kNoiseWords) {
    const auto n = static_cast<uint32_t>(std::min(n_words - done, kNoiseWords));
    Touches t;
    const FillNoisePush push = {t.writes(a.pool + 2 * done, uint64_t{n} * sizeof(uint32_t)), n,
                                static_cast<uint>(a.seed), static_cast<uint>(a.seed >> 32),
                                static_cast<uint>(done / kNoiseWords)};
    WEIR_TRY(dispatch(Kernel::kFillNoise, push, t, std::min(groups_of(n), kNoiseGroups)));
  }
  return {};
}

Status copy_memory(void* to, const void* from, uint64_t bytes) {
  const uint64_t n = bytes / 16;
  if (bytes % 16 != 0 || n > UINT32_MAX)
    return fail(WEIR_ERR_INTERNAL, "Vulkan: a copy of %llu bytes", static_cast<unsigned long long>(bytes));
  Touches t;
  const CopyMemoryPush push = {t.writes(to, bytes), t.reads(from, bytes), static_cast<uint>(n)};
  return dispatch(Kernel::kCopyMemory, push, t, std::min(groups_of(static_cast<uint32_t>(n)), kCopyGroups));
}

}  // namespace weir::vulkan
