// A session is given the tokens that its conversation is to have: what it holds of them stays, the rest is read.
#include "runtime/session_entry.h"
#include "text/token_match.h"

namespace weir {

// What a prompt keeps and reads, before anything changes.
struct Session::PromptPlan {
  uint32_t n_tokens = 0, n_kept = 0;
  std::span<const weir_token> rest;  // that is read
  bool steps_again = false;          // the last token is, for its logits
  bool reads_all = false;            // because the session cannot go back without losses
  uint64_t pages_missing = 0;
};

namespace {

// What of a conversation of n_tokens can stay. Where the record lacks the middle, that is taken to be the same if what
// is before and after it is: no step attends it any more.
TokenMatch match_record(const TokenRecord& record, uint32_t n_tokens, const Tokenizer& tokenizer,
                        std::span<const weir_token> wanted) {
  const std::span<const weir_token> latest = record.view(n_tokens), front = record.front(n_tokens);
  const uint32_t first = record.first();
  if (first == 0) return match_tokens(tokenizer, latest, wanted);
  const TokenMatch match = match_tokens(tokenizer, front, wanted);
  const bool is_aligned = match.n_held == front.size() && match.n_wanted == front.size();
  if (!is_aligned || wanted.size() <= first) return match;
  const TokenMatch end = match_tokens(tokenizer, latest, wanted.subspan(first));
  return end.n_held == 0 ? match : TokenMatch{first + end.n_held, first + end.n_wanted};
}

weir_token held_token(const TokenRecord& record, uint32_t n_tokens, uint32_t pos) {
  return pos < record.first() ? record.front(n_tokens)[pos] : record.at(pos);
}

}  // namespace

Status Session::plan_prompt(std::span<const weir_token> wanted, const weir_prompt_options& options, PromptPlan& plan) {
  for (const weir_token token : wanted) WEIR_TRY(check_token(token));
  const TokenMatch match = match_record(record_, kv_.n_tokens(), model_->tokenizer(), wanted);
  plan.rest = wanted.subspan(match.n_wanted);
  plan.n_kept = match.n_held;
  plan.steps_again = plan.rest.empty() && (match.n_held < kv_.n_tokens() || !has_logits_);
  if (plan.steps_again) --plan.n_kept;
  if (cold_.is_on()) cold_.look_at_losses();
  if (archive_.is_on()) archive_.look_at_losses();
  uint32_t unused = 0;
  const bool goes_back = plan.n_kept < kv_.n_tokens(), exact = (options.flags & WEIR_PROMPT_EXACT) != 0;
  if (exact && goes_back && !find_lost(plan.n_kept, false, unused).ok()) {
    plan = {0, 0, wanted, false, true, 0};
  } else {
    plan.pages_missing = pages_missing(plan.n_kept);
  }
  const uint64_t n_all = plan.n_kept + (plan.steps_again ? 1 : 0) + plan.rest.size();
  const uint32_t context = policy_->needs().context_tokens;
  if (n_all + options.reserve_tokens > context) {
    return fail(WEIR_ERR_CONTEXT_FULL,
                "a conversation of %llu tokens and %u more for what follows: the context has %u positions",
                static_cast<unsigned long long>(n_all), options.reserve_tokens, context);
  }
  plan.n_tokens = static_cast<uint32_t>(n_all);
  return {};
}

// Forgets the conversation, but not what decides about the next draws.
void Session::forget_to_read_again() {
  const Sampler::State drawing = sampler_.state();
  const bool was_cancelled = cancel_.load();
  forget();
  sampler_.restore({drawing.options, drawing.random, 0});
  if (was_cancelled) cancel();
}

Status Session::prompt_tokens(std::span<const weir_token> wanted, const weir_prompt_options& options,
                              weir_prompt_report& report) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(host_tables());
  PromptPlan plan;
  WEIR_TRY(plan_prompt(wanted, options, plan));
  report.n_tokens = plan.n_tokens;
  report.n_kept = plan.n_kept;
  report.n_read = plan.n_tokens - plan.n_kept;
  report.n_forgotten = kv_.n_tokens() - plan.n_kept;
  report.pages_missing = plan.pages_missing;
  if ((options.flags & WEIR_PROMPT_MEASURE) != 0) return {};
  const weir_token last = plan.steps_again ? held_token(record_, kv_.n_tokens(), plan.n_kept) : -1;
  if (plan.reads_all) {
    forget_to_read_again();
  } else if (plan.n_kept < kv_.n_tokens()) {
    WEIR_TRY(rewind_to(plan.n_kept, WEIR_REWIND_LOSSY));
  }
  if (plan.steps_again) {
    WEIR_TRY(run_step(last));
    detokenizer_.reset(&model_->tokenizer(), false, model_->tokenizer().starts_text_after(last));
  }
  if (plan.rest.empty()) return {};
  return read_prompt(plan.rest.data(), plan.rest.size(), options.progress, options.progress_user);
}

}  // namespace weir
