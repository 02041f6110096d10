// Options whose plan takes at most so many bytes. More context, budget or store take more, so each is found by halving.
#include <algorithm>

#include "kv/spill_store.h"
#include "runtime/session_setup.h"

namespace weir {
namespace {

constexpr uint32_t kMinContext = 512;               // that is chosen for anybody
constexpr uint32_t kGoodPages = 256 / kPageTokens;  // a context is made shorter before the budget has fewer
constexpr int kMaxCreeps = 64;                      // pages that are tried one by one behind what halving found
enum class Fit { kTooFew, kFits, kTooMany };

// What is chosen.
struct Sizes {
  uint32_t context;  // tokens
  uint32_t pages;    // of the budget
  uint64_t store;    // bytes
};

class Search {
 public:
  Search(const Model& model, uint32_t n_threads, const DeviceHost& devices, const DeviceWeights& weights,
         uint64_t bytes, const weir_session_options& given)
      : model_(model), n_threads_(n_threads), devices_(devices), weights_(weights), bytes_(bytes), given_(given) {}

  Status run(weir_session_options& chosen) {
    WEIR_TRY(plan(given_, plan_));
    if (plan_.total_bytes <= bytes_) return {};
    whole_ = plan_.context_tokens;
    has_budget_ = given_.budget_tokens == 0 && given_.budget_bytes == 0;
    has_store_ = given_.spill_budget_bytes == 0 && plan_.spill_bytes != 0;
    Sizes sizes = {whole_, 0,
                   has_store_ ? spill_worst_bytes(static_cast<uint32_t>(plan_.page_bytes), plan_.n_streams) : 0};
    Fit fit = Fit::kTooMany;
    WEIR_TRY(take_good_budget(sizes, fit));
    if (fit != Fit::kFits && given_.context_tokens == 0) WEIR_TRY(shorten(sizes, fit));
    if (fit == Fit::kTooFew) return plan(options(sizes), plan_);  // which says what the policy needs
    if (fit != Fit::kFits) {
      return fail(WEIR_ERR_BUDGET,
                  "%llu bytes are too few: with a context of %u tokens, and else the least, these options take %llu",
                  static_cast<unsigned long long>(bytes_), sizes.context,
                  static_cast<unsigned long long>(plan_.total_bytes));
    }
    WEIR_TRY(enlarge_store(sizes));
    chosen = options(sizes);
    return {};
  }

 private:
  Status plan(const weir_session_options& o, weir_plan_info& out) const {
    out = WEIR_PLAN_INFO_INIT;
    return plan_session(model_, o, n_threads_, devices_, weights_, out);
  }

  weir_session_options options(const Sizes& sizes) const {
    weir_session_options o = given_;
    if (sizes.context != whole_) o.context_tokens = sizes.context;
    if (has_budget_ && sizes.pages < whole_pages(sizes.context)) o.budget_tokens = sizes.pages * kPageTokens;
    if (has_store_) o.spill_budget_bytes = sizes.store;
    return o;
  }

  // `plan_` is that of these sizes, unless they are too few for the policy.
  Status probe(const Sizes& sizes, uint64_t limit, Fit& fit) {
    const Status status = plan(options(sizes), plan_);
    fit = Fit::kTooFew;
    if (status.code() == WEIR_ERR_BUDGET) return {};
    WEIR_TRY(status);
    if (plan_.context_tokens < sizes.context) return {};  // of dense the budget is the context
    fit = plan_.total_bytes <= limit ? Fit::kFits : Fit::kTooMany;
    return {};
  }

  // The budget with which the plan takes the least, and whether that fits: the least that the policy takes, or all of
  // the context where choosing pages needs memory of its own.
  Status take_least_budget(Sizes& sizes, Fit& fit) {
    const uint32_t all = whole_pages(sizes.context);
    sizes.pages = all;
    WEIR_TRY(probe(sizes, bytes_, fit));
    if (!has_budget_ || fit == Fit::kTooFew) return {};
    const weir_plan_info with_all = plan_;
    for (uint32_t too_few = 1; too_few + 1 < sizes.pages;) {
      Sizes middle = sizes;
      middle.pages = too_few + (sizes.pages - too_few) / 2;
      WEIR_TRY(probe(middle, bytes_, fit));
      (fit == Fit::kTooFew ? too_few : sizes.pages) = middle.pages;
    }
    WEIR_TRY(probe(sizes, bytes_, fit));
    if (plan_.total_bytes <= with_all.total_bytes) return {};
    sizes.pages = all;
    plan_ = with_all;
    fit = plan_.total_bytes <= bytes_ ? Fit::kFits : Fit::kTooMany;
    return {};
  }

  // The largest budget that fits, or a smaller one where the store should have half of the bytes, but not below this.
  Status enlarge_budget(Sizes& sizes) {
    const uint64_t limit = has_store_ ? bytes_ / 2 : bytes_;
    uint32_t too_many = whole_pages(sizes.context) + 1;
    while (has_budget_ && sizes.pages + 1 < too_many) {
      Sizes middle = sizes;
      Fit fit = Fit::kTooFew;
      middle.pages = sizes.pages + (too_many - sizes.pages) / 2;
      WEIR_TRY(probe(middle, limit, fit));
      (fit == Fit::kTooMany ? too_many : sizes.pages) = middle.pages;
    }
    // Scratch memory is rounded, so that a little more can take a little less.
    for (int i = 0; has_budget_ && i < kMaxCreeps && sizes.pages < whole_pages(sizes.context); ++i) {
      Sizes more = sizes;
      Fit fit = Fit::kTooMany;
      ++more.pages;
      WEIR_TRY(probe(more, limit, fit));
      if (fit != Fit::kFits) break;
      sizes = more;
    }
    return {};
  }

  // For the whole context. Where only a small budget fits, a shorter context is better, unless it was given.
  Status take_good_budget(Sizes& sizes, Fit& fit) {
    WEIR_TRY(take_least_budget(sizes, fit));
    if (fit != Fit::kFits) return {};
    Sizes good = sizes;
    good.pages = std::max(sizes.pages, std::min(kGoodPages, whole_pages(sizes.context)));
    WEIR_TRY(probe(good, bytes_, fit));
    if (fit == Fit::kFits) sizes = good;
    if (given_.context_tokens != 0) fit = Fit::kFits;
    return fit == Fit::kFits ? enlarge_budget(sizes) : Status();
  }

  // The longest context that fits with the least budget. Where none does, the shortest, with the plan that is too much.
  Status shorten(Sizes& sizes, Fit& fit) {
    const uint32_t least = std::min(kMinContext, whole_);
    uint32_t fits = 0, too_many = whole_pages(whole_);
    sizes.context = least;
    WEIR_TRY(take_least_budget(sizes, fit));
    if (fit != Fit::kFits) return {};
    for (fits = whole_pages(least); fits + 1 < too_many;) {
      const uint32_t middle = fits + (too_many - fits) / 2;
      Sizes longer = sizes;
      longer.context = middle * kPageTokens;
      WEIR_TRY(take_least_budget(longer, fit));
      if (fit == Fit::kFits) sizes = longer;
      (fit == Fit::kFits ? fits : too_many) = middle;
    }
    for (int i = 0; i < kMaxCreeps && sizes.context + kPageTokens <= whole_; ++i) {
      Sizes longer = sizes;
      longer.context += kPageTokens;
      WEIR_TRY(take_least_budget(longer, fit));
      if (fit != Fit::kFits) break;
      sizes = longer;
    }
    fit = Fit::kFits;
    return enlarge_budget(sizes);
  }

  // Gives the store what is left. What it takes besides its pages depends little on how many these are.
  Status enlarge_store(Sizes& sizes) {
    Fit fit = Fit::kFits;
    WEIR_TRY(probe(sizes, bytes_, fit));
    if (!has_store_) return {};
    const uint64_t least = sizes.store;
    sizes.store += bytes_ - plan_.total_bytes;
    for (;;) {
      WEIR_TRY(probe(sizes, bytes_, fit));
      if (fit == Fit::kFits) return {};
      sizes.store -= std::min(sizes.store - least, std::max<uint64_t>(plan_.total_bytes - bytes_, 1));
    }
  }

  const Model& model_;
  uint32_t n_threads_;
  const DeviceHost& devices_;
  const DeviceWeights& weights_;
  uint64_t bytes_;
  const weir_session_options& given_;
  weir_plan_info plan_ = WEIR_PLAN_INFO_INIT;
  uint32_t whole_ = 0;                           // the context where nobody shortens it
  bool has_budget_ = false, has_store_ = false;  // what may be chosen
};

}  // namespace

Status fit_options(const Model& model, uint32_t n_threads, const DeviceHost& devices, const DeviceWeights& weights,
                   uint64_t bytes, weir_session_options& options) {
  weir_session_options chosen = options;
  WEIR_TRY(Search(model, n_threads, devices, weights, bytes, options).run(chosen));
  options = chosen;
  return {};
}

}  // namespace weir
