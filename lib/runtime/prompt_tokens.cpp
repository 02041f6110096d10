// A session is given the tokens that its conversation is to have: what it holds of them stays, the rest is read.
#include <algorithm>

#include "runtime/session_entry.h"
#include "text/token_match.h"

namespace weir {

// What a prompt keeps and reads, before anything changes.
struct Session::PromptPlan {
  Status make(Session& s, std::span<const weir_token> wanted, const weir_prompt_options& options);
  static TokenMatch match_record(const Session& s, std::span<const weir_token> wanted, bool exact);
  static void forget_to_read_again(Session& s);
  void go_to_snapshot(const Session& s, std::span<const weir_token> wanted, bool is_aligned, bool exact);
  void read_all(std::span<const weir_token> wanted) {
    *this = {};
    n_tokens = static_cast<uint32_t>(wanted.size());
    rest = wanted;
    reads_all = true;
  }

  uint32_t n_tokens = 0, n_kept = 0;
  uint32_t n_again = 0;              // of the n_kept, those that are read again
  uint32_t n_same = 0;               // tokens that were there and will be there
  std::span<const weir_token> rest;  // that is read
  bool steps_again = false;          // the last token is, for its logits
  bool reads_all = false;            // because the session cannot go back without losses
  uint64_t pages_missing = 0;
};

namespace {

weir_token held_token(const TokenRecord& record, uint32_t n_tokens, uint32_t pos) {
  return pos < record.first() ? record.front(n_tokens)[pos] : record.at(pos);
}

// Whether a stream has a page between the first n_front tokens and those from `first` on.
bool has_page_between(const KvCache& kv, uint32_t n_front, uint32_t first) {
  for (uint32_t s = 0; s < kv.shape().n_streams(); ++s) {
    const StreamView v = kv.stream(s);
    for (uint32_t row = 0; row < v.n_pages; ++row) {
      if (v.first_pos[row] + v.len[row] > n_front && v.first_pos[row] < first) return true;
    }
  }
  return false;
}

}  // namespace

// What of the conversation can stay. Where the record lacks the middle, that counts as the same if no step can attend
// it any more, and if all that is recorded, before and after it, is the same. Otherwise only the beginning is certain.
TokenMatch Session::PromptPlan::match_record(const Session& s, std::span<const weir_token> wanted, bool exact) {
  const uint32_t n = s.kv_.n_tokens(), first = s.record_.first();
  const std::span<const weir_token> latest = s.record_.view(n), front = s.record_.front(n);
  const Tokenizer& tokenizer = s.model_->tokenizer();
  if (first == 0) return match_tokens(tokenizer, latest, wanted);
  const TokenMatch match = match_tokens(tokenizer, front, wanted);
  const bool is_whole = match.n_held == front.size() && match.n_wanted == front.size() && wanted.size() > first;
  const auto n_front = static_cast<uint32_t>(front.size());
  if (exact || !is_whole || s.setup_.has_store() || has_page_between(s.kv_, n_front, first)) return match;
  const TokenMatch end = match_tokens(tokenizer, latest, wanted.subspan(first));
  // A pool of tokens at least: one that is equal by chance says nothing of those before it.
  return end.n_held < front.size() ? match : TokenMatch{first + end.n_held, first + end.n_wanted};
}

Status Session::PromptPlan::make(Session& s, std::span<const weir_token> wanted, const weir_prompt_options& options) {
  PromptPlan& plan = *this;
  for (const weir_token token : wanted) WEIR_TRY(check_token(*s.model_, token));
  const bool exact = (options.flags & WEIR_PROMPT_EXACT) != 0;
  const TokenMatch match = match_record(s, wanted, exact);
  plan.rest = wanted.subspan(match.n_wanted);
  plan.n_kept = match.n_held;
  plan.steps_again = plan.rest.empty() && (match.n_held < s.kv_.n_tokens() || !s.has_logits_);
  if (plan.steps_again) --plan.n_kept;
  Rewinding::look_at_losses(s);
  uint32_t unused = 0;
  plan.n_same = plan.n_kept;
  if (s.remembered_.recurrent.is_on() && plan.n_kept < s.kv_.n_tokens())
    plan.go_to_snapshot(s, wanted, match.n_held == match.n_wanted, exact);
  const uint32_t at = plan.n_kept - plan.n_again;
  const bool goes_back = at < s.kv_.n_tokens() && !plan.reads_all;
  if (goes_back) WEIR_TRY(s.remembered_.list.can_cut(at, true));
  if (exact && goes_back && !Rewinding::find_lost(s, at, false, unused).ok()) plan.read_all(wanted);
  if (!plan.reads_all) plan.pages_missing = Rewinding::pages_missing(s, plan.n_kept);
  const uint64_t n_all = plan.n_kept + (plan.steps_again ? 1 : 0) + plan.rest.size();
  const uint32_t context = s.policy_->needs().context_tokens;
  if (n_all + options.reserve_tokens > context) {
    return fail(WEIR_ERR_CONTEXT_FULL,
                "a conversation of %llu tokens and %u more for what follows: the context has %u positions",
                static_cast<unsigned long long>(n_all), options.reserve_tokens, context);
  }
  plan.n_tokens = static_cast<uint32_t>(n_all);
  return {};
}

// Recurrent layers go back to a snapshot, and what was behind it is read again: as it is wanted, or where its text is
// cut into other tokens than those that are held, as it was. If neither can be, everything is read.
void Session::PromptPlan::go_to_snapshot(const Session& s, std::span<const weir_token> wanted, bool is_aligned,
                                         bool exact) {
  const RecurrentState& state = s.remembered_.recurrent;
  const TokenRecord& record = s.record_;
  const auto n_front = static_cast<uint32_t>(record.front(s.kv_.n_tokens()).size());
  const auto can_go_on = [&](uint32_t n) {
    return record.goes_on_after(n) && record.goes_on_after(n - n % kPageTokens);
  };
  uint32_t at = n_kept;
  for (uint32_t before = UINT32_MAX; at != before;) {
    before = at;
    at = state.nearest(at);
    if (!can_go_on(at)) at = state.nearest(std::min(at, n_front));
    if (!exact) (void)Rewinding::find_lost(s, at, true, at);  // lossy: always possible
  }
  if (at == n_kept) return;
  const auto differs = [&](uint32_t i) {
    const bool is_held = i >= record.first() || i < n_front;
    return is_held && held_token(record, s.kv_.n_tokens(), i) != wanted[i];
  };
  for (uint32_t i = at; i < n_kept && is_aligned; ++i) is_aligned = !differs(i);
  if (is_aligned) {
    n_kept = at;
    rest = wanted.subspan(at);
    steps_again = false;
  } else if (record.holds(at, n_kept)) {
    n_again = n_kept - at;
  } else {
    read_all(wanted);
  }
}

// Forgets the conversation, but not what decides about the next draws.
void Session::PromptPlan::forget_to_read_again(Session& s) {
  const Sampler::State drawing = s.sampler_.state();
  s.forget();
  s.sampler_.restore({drawing.options, drawing.random, 0});
}

Status Session::prompt_tokens(std::span<const weir_token> wanted, const weir_prompt_options& options,
                              weir_prompt_report& report) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(host_tables());
  PromptPlan plan;
  WEIR_TRY(plan.make(*this, wanted, options));
  const uint32_t before = kv_.n_tokens();
  const auto tell = [&] {
    report.n_tokens = plan.n_tokens;
    report.n_kept = plan.n_kept - plan.n_again;
    report.n_read = plan.n_tokens - report.n_kept;
    report.n_forgotten = before - plan.n_same;
    report.pages_missing = plan.pages_missing;
  };
  tell();
  if ((options.flags & WEIR_PROMPT_MEASURE) != 0) return {};
  const weir_token last = plan.steps_again ? held_token(record_, before, plan.n_kept) : -1;
  if (!plan.reads_all && plan.n_kept < before) {
    const bool exact = (options.flags & WEIR_PROMPT_EXACT) != 0;
    const Status status = Rewinding::rewind_to(*this, plan.n_kept, exact ? 0 : WEIR_REWIND_LOSSY);
    // A copy that was to come back proved to be damaged, which nobody knew before.
    const bool lacks_page = status.code() == WEIR_ERR_NOT_FOUND || status.code() == WEIR_ERR_IO;
    if (exact && lacks_page) {
      plan.read_all(wanted);
    } else {
      WEIR_TRY(status);
      plan.pages_missing = Rewinding::pages_missing(*this, plan.n_kept);
    }
    tell();
  }
  if (plan.reads_all) PromptPlan::forget_to_read_again(*this);
  if (plan.steps_again) {
    Stepping stepping(*this);
    WEIR_TRY(machine_->step(last));
    stepping.count(last);
    detokenizer_.reset(&model_->tokenizer(), false, model_->tokenizer().starts_text_after(last));
  }
  if (plan.rest.empty()) return {};
  return Reading::read(*this, plan.rest, true, options.progress, options.progress_user);
}

}  // namespace weir
