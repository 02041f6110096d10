// Prompts: read in chunks, each a pass of the decoder over pages that are reserved before it and committed after it.
// What a failed or cancelled prompt changed is taken back (docs/decisions/004-cancel-semantics.md).
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "policy/prompts.h"
#include "policy/room.h"
#include "runtime/session_entry.h"

namespace weir {
namespace {

// Whether a pass that was to compute logits and ended with this status may have changed some of them. Cancels,
// callbacks and spilled pages that cannot be read end a pass in the layers, before the logits. When a device is lost,
// the host still has the logits from before, and the device can give none.
bool may_spoil_logits(Status status) {
  return !status.ok() && status.code() != WEIR_ERR_CANCELLED && status.code() != WEIR_ERR_DEVICE_LOST &&
         status.code() != WEIR_ERR_IO && status.code() != WEIR_ERR_FORMAT;
}

}  // namespace

// A prompt that is being read. It ends with finish() or give_up(), or else its destructor gives it up.
class Session::Prompt {
 public:
  // `tokens` are recorded at the end, as far as they are appended. They may be in the record.
  Prompt(Session& session, KvCache& kv, const weir_token* tokens, EarlierPrompts& earlier, bool is_message)
      : s_(session),
        kv_(kv),
        earlier_(earlier),
        tokens_(tokens),
        is_message_(is_message),
        before_(s_.kv_.n_tokens()),
        open_flags_(s_.kv_.open_page_flags()),
        evicted_(s_.kv_.pages_evicted()),
        slid_(s_.kv_.pages_slid()),
        lost_(s_.kv_.pages_lost()),
        prompt_evicted_(s_.kv_.prompt_pages_evicted()),
        started_(now_ns()) {
    s_.is_used_ = true;
    kv_.begin_prompt();
    s_.remembered_.recurrent.begin_prompt();
  }
  Prompt(const Prompt&) = delete;
  Prompt& operator=(const Prompt&) = delete;

  ~Prompt() {
    if (!finished_) (void)take_back();
    s_.remembered_.recurrent.give_up_prompt();
    const uint32_t n = s_.kv_.n_tokens();
    if (n > before_) s_.record_.put(before_, tokens_, n - before_);
    if (n != before_) s_.restart_text();
    s_.counters_.n_prompt.add(n - std::min(n, before_));
    s_.counters_.prefill_ns.add(now_ns() - started_);
  }

  // All of it, chunk by chunk.
  Status read(uint32_t n_tokens, weir_progress_fn progress, void* user);

  void finish() {
    make_room(*s_.policy_, kv_, 0, Phase::kPromptEnd);
    s_.policy_->prompt_end(kv_, before_);
    earlier_.end();
    s_.remembered_.recurrent.end_prompt();
    s_.has_logits_ = true;
    finished_ = true;
  }

  // Because of `status`, which it returns unless the conversation before the prompt has suffered, too.
  Status give_up(Status status) {
    finished_ = true;
    char why[kErrorBytes];
    std::snprintf(why, sizeof(why), "%s", last_error_text());
    WEIR_TRY(take_back());
    return fail(status.code(), "%s", why);  // reads that failed meanwhile have texts of their own
  }

 private:
  uint32_t n_last() const;
  uint32_t max_chunk(uint32_t n_left) const;
  // Takes back all of it, unless pages had to leave that later tokens need, or that tokens in a local layer's window
  // would need again, or one that must come back cannot be read: then whole chunks stay. WEIR_ERR_IO: a page could not
  // be read any more when its place was free already.
  Status take_back() {
    KvCache& kv = kv_;
    const bool keeps = kv.pages_evicted() == evicted_ ||
                       (s_.policy_->can_take_back_prompt() && kv.prompt_pages_evicted() == prompt_evicted_);
    const bool has_them = kv.shape().recalls() ? kv.pages_lost() == lost_ || s_.copies_.is_strict() : keeps;
    const bool has_windows = kv.pages_slid() == slid_ || (kv.shape().recalls() && s_.copies_.has_windows(before_));
    bool came = true;
    if (has_them && has_windows && s_.remembered_.list.can_cut(before_, false).ok()) {
      came = s_.copies_.cut(before_, false);  // as without copies
      end_at_snapshot(s_.remembered_, s_.copies_, kv);
      s_.remembered_.list.roll_back(kv.n_tokens());
    }
    const bool lacks_page = !came && kv.n_tokens() <= before_;
    if (lacks_page) s_.has_logits_ = false;
    if (kv.n_tokens() > before_) {  // what stays is a shorter prompt
      WEIR_TRY(s_.machine_->sum_what_leaves());
      make_room(*s_.policy_, kv, 0, Phase::kPromptEnd);
      s_.policy_->prompt_end(kv, before_);
      earlier_.end();
      s_.remembered_.recurrent.end_prompt();
      s_.has_logits_ = false;  // those of a position that is no longer the last
    } else if (kv.n_tokens() == before_ && before_ % kPageTokens != 0) {
      kv.set_open_page_flags(open_flags_);
    }
    s_.machine_->end_failed_prompt();
    if (!lacks_page) return {};
    return fail(WEIR_ERR_IO,
                "the prompt was not read; when it was taken back, a page of the conversation before it could not be "
                "read; %u of %u tokens are left",
                kv.n_tokens(), before_);
  }

  Session& s_;
  KvCache& kv_;  // changed until the prompt ends
  EarlierPrompts& earlier_;
  const weir_token* tokens_;
  bool is_message_;
  uint32_t before_, open_flags_;
  uint64_t evicted_, slid_, lost_, prompt_evicted_, started_;
  bool finished_ = false;
};

// Tokens at the end that are in one chunk: for policies that look at the last ones, and for the logits.
uint32_t Session::Prompt::n_last() const {
  const uint32_t rows = s_.policy_->needs().prompt_rows;
  return rows == PolicyNeeds::kAllRows ? 1 : std::max(rows, 1u);
}

// Most tokens of the next chunk of n_left. Recurrent layers end one where a snapshot is due. A message's is where its
// last page begins: there its last tokens can be read again, for another answer to it, and when that page has left.
uint32_t Session::Prompt::max_chunk(uint32_t n_left) const {
  const uint32_t most = std::min(s_.step_.b.max_tok, s_.machine_->max_rows());
  if (!s_.remembered_.recurrent.is_on() || n_left <= n_last()) return most;
  const uint32_t n_free = n_left - n_last(), n_open = (kv_.n_tokens() + n_free) % kPageTokens;
  const uint32_t n_due = s_.remembered_.recurrent.max_chunk();
  const uint32_t n_split = is_message_ && n_open < n_free ? n_free - n_open : most;
  return std::min({most, n_split, n_due <= n_free ? n_due : most});
}

Status Session::Prompt::read(uint32_t n_tokens, weir_progress_fn progress, void* user) {
  for (uint32_t done = 0; done < n_tokens;) {
    if (progress != nullptr) {
      const weir_progress_info info = {sizeof(weir_progress_info), 0, done, n_tokens};
      const Answer answer = s_.call_outs_.call([&] { return progress(user, &info); });
      if (!answer.agreed) {
        return fail(WEIR_ERR_CANCELLED, "prefill was cancelled by its progress callback after %u of %u tokens%s", done,
                    n_tokens, answer.why());
      }
    }
    if (s_.cancel_.take())
      return fail(WEIR_ERR_CANCELLED, "prefill was cancelled after %u of %u tokens", done, n_tokens);
    uint32_t n_tok = next_chunk(*s_.policy_, s_.kv_, n_tokens - done, max_chunk(n_tokens - done));
    if (n_tok == 0)
      return fail(WEIR_ERR_BUDGET, "prefill stopped after %u of %u tokens: pinned pages leave no room", done, n_tokens);
    // A strict store may have room for a shorter chunk, and for the next one when blocks have moved to the file.
    Status room = s_.machine_->prepare_copies(n_tok);
    for (; room.code() == WEIR_ERR_BUDGET && n_tok > kPageTokens; room = s_.machine_->prepare_copies(n_tok)) n_tok /= 2;
    WEIR_TRY(room);
    const uint32_t n_left = n_tokens - done - n_tok;
    const Status status = s_.machine_->run_chunk(tokens_ + done, n_tok, n_left);
    if (status.code() == WEIR_ERR_CANCELLED) (void)s_.cancel_.take();
    if (n_left == 0 && may_spoil_logits(status)) s_.has_logits_ = false;
    WEIR_TRY(status);
    done += n_tok;
    const bool is_near_end = n_left != 0 && n_left < n_last() + kPageTokens && kv_.n_tokens() % kPageTokens == 0;
    if (is_message_ && is_near_end) s_.remembered_.recurrent.near_prompt_end();
  }
  return {};
}

Status Session::prefill(const weir_token* tokens, uint64_t n_tokens, weir_progress_fn progress, void* user) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(host_tables());
  return Reading::read(*this, {tokens, n_tokens}, false, progress, user);
}

Status Session::Reading::read(Session& s, std::span<const weir_token> all, bool is_message, weir_progress_fn progress,
                              void* user) {
  const weir_token* const tokens = all.data();
  const uint64_t n_tokens = all.size();
  const uint32_t before = s.kv_.n_tokens();
  const uint64_t room = s.policy_->needs().context_tokens - before;
  if (n_tokens > room) {
    return fail(WEIR_ERR_CONTEXT_FULL, "a prompt of %llu tokens does not fit: %llu of %u positions are free",
                static_cast<unsigned long long>(n_tokens), static_cast<unsigned long long>(room),
                s.policy_->needs().context_tokens);
  }
  for (uint64_t i = 0; i < n_tokens; ++i) WEIR_TRY(check_token(*s.model_, tokens[i]));
  const auto n = static_cast<uint32_t>(n_tokens);
  const PageTables::Change kv = s.tables_.change();  // of whatever ends last
  EarlierPrompts earlier(*s.policy_, *kv);
  WEIR_TRY(s.policy_->admit_prompt(s.kv_, n));
  if (s.kv_.pages_to_open(n) > 0 && room_pages(*s.policy_, s.kv_) == 0) {
    return fail(
        WEIR_ERR_BUDGET,
        "a prompt of %u tokens does not fit, %u would: pinned pages leave no room; weir_session_unpin lets some leave",
        n, (kPageTokens - before % kPageTokens) % kPageTokens);
  }

  Prompt prompt(s, *kv, tokens, earlier, is_message);
  Status status = prompt.read(n, progress, user);
  if (status.ok()) status = s.machine_->sum_what_leaves();
  s.mask_.begin(AnswerMask::kNext);  // behind the prompt, or what is left of it
  if (!status.ok()) return prompt.give_up(status);
  prompt.finish();
  return {};
}

}  // namespace weir
