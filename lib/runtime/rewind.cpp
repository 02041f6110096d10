// Going back in a conversation. The tables lose the tokens after the new end, a page that is cut comes back into the
// pool if it was cold, and what else the session knows of its last tokens is made anew from the record of its tokens.
// What is missing is found before anything changes.
#include <algorithm>

#include "policy/room.h"
#include "runtime/session_entry.h"

namespace weir {
namespace {

// The first page that a stream must have to go on after n_tokens and has not; one past the last if it has all.
uint32_t first_lost(const KvCache& kv, const PageCopies& copies, uint32_t stream, uint32_t n_tokens) {
  const uint32_t end = whole_pages(n_tokens);
  uint32_t page = kv.first_page_seen(stream, n_tokens);
  while (page < end && copies.has(stream, page)) ++page;
  return page;
}

}  // namespace

void Session::Rewinding::look_at_losses(Session& s) {
  const PageTables::Change losing = s.tables_.change();
  s.copies_.look_at_losses();
}

// Checks that going back is possible. n_kept: how many of the n_tokens can stay as they are; if a lossy rewind cuts a
// page that is lost, all before that page.
Status Session::Rewinding::find_lost(const Session& s, uint32_t n_tokens, bool lossy, uint32_t& n_kept) {
  n_kept = n_tokens;
  const uint32_t n_pages = whole_pages(n_tokens);
  for (uint32_t stream = 0; stream < s.kv_.shape().n_streams(); ++stream) {
    if (lossy) {
      if (n_tokens % kPageTokens != 0 && !s.copies_.has(stream, n_pages - 1)) n_kept = (n_pages - 1) * kPageTokens;
      continue;
    }
    const uint32_t page = first_lost(s.kv_, s.copies_, stream, n_tokens);
    if (page == n_pages) continue;
    const uint32_t layer = stream / s.kv_.shape().n_kv_heads, kv_head = stream % s.kv_.shape().n_kv_heads;
    return fail(WEIR_ERR_NOT_FOUND,
                "a rewind to %u tokens: the page of positions %u to %u is lost in layer %u, KV head %u%s", n_tokens,
                page * kPageTokens, page * kPageTokens + kPageTokens - 1, layer, kv_head,
                s.kv_.window(stream) != 0 ? ", whose window has moved on" : "");
  }
  return {};
}

// Removes the tokens from n_tokens on, whose page has not been lost yet.
Status Session::Rewinding::cut_to(Session& s, uint32_t n_tokens) {
  const PageTables::Change cutting = s.tables_.change();
  const uint32_t before = s.kv_.n_tokens();
  if (s.copies_.cut(n_tokens, true)) return {};
  if (s.kv_.n_tokens() != before) end_at_snapshot(s.remembered_, s.copies_, *cutting);
  if (s.kv_.n_tokens() == before)
    return fail(WEIR_ERR_NOT_FOUND, "a rewind to %u tokens: a page that they need is damaged", n_tokens);
  return fail_to_read(s, n_tokens);
}

Status Session::Rewinding::fail_to_read(const Session& s, uint32_t n_tokens) {
  return fail(WEIR_ERR_IO, "a rewind to %u tokens: a page that they need could not be read; %u are left", n_tokens,
              s.kv_.n_tokens());
}

void Session::restart_text() {
  answering_.leave();
  mask_.restart();
  const uint32_t n = kv_.n_tokens();
  const Tokenizer& tokenizer = model_->tokenizer();
  const std::span<const weir_token> held = record_.view(n);
  sampler_.set_recent(held.data(), static_cast<uint32_t>(held.size()));
  detokenizer_.reset(&tokenizer, false, held.empty() || tokenizer.starts_text_after(held.back()));
}

// What belonged to the tokens that are gone.
Status Session::Rewinding::forget_after_cut(Session& s) {
  {
    const PageTables::Change kv = s.tables_.change();
    if (!s.policy_->step_rules().marks) kv->limit_stamps(s.kv_.n_tokens());
    s.remembered_.list.cut(s.kv_.n_tokens());
  }
  return s.machine_->end_cut();
}

// Pages of the first n_tokens that are lost, summed over the streams, without those that a window hides.
uint64_t Session::Rewinding::pages_missing(const Session& s, uint32_t n_tokens) {
  uint64_t n_missing = 0;
  for (uint32_t stream = 0; stream < s.kv_.shape().n_streams(); ++stream) {
    for (uint32_t page = s.kv_.first_page_seen(stream, n_tokens), end = whole_pages(n_tokens); page < end; ++page)
      n_missing += s.copies_.has(stream, page) ? 0 : 1;
  }
  return n_missing;
}

Status Session::rewind(uint32_t n_tokens, uint32_t flags) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(host_tables());
  return Rewinding::rewind_to(*this, n_tokens, flags);
}

Status Session::Rewinding::rewind_to(Session& s, uint32_t n_tokens, uint32_t flags) {
  if (n_tokens > s.kv_.n_tokens())
    return fail(WEIR_ERR_INVALID_ARG, "a rewind to %u tokens: there are only %u", n_tokens, s.kv_.n_tokens());
  s.is_used_ = true;
  if (n_tokens == s.kv_.n_tokens()) {
    s.has_logits_ = false;
    return {};
  }
  const bool lossy = (flags & WEIR_REWIND_LOSSY) != 0;
  look_at_losses(s);
  // Recurrent layers go back to a snapshot, and what is behind it is read again.
  const RecurrentState& state = s.remembered_.recurrent;
  uint32_t n_kept = 0;
  WEIR_TRY(find_lost(s, state.nearest(n_tokens), lossy, n_kept));
  for (uint32_t at = state.nearest(n_kept); at < n_kept; at = state.nearest(n_kept)) {
    WEIR_TRY(find_lost(s, at, lossy, n_kept));
  }
  if (state.is_on() && n_kept < n_tokens && !s.record_.holds(n_kept, n_tokens)) {
    return fail(WEIR_ERR_NOT_FOUND,
                "a rewind to %u tokens: those from %u on would be read again and are not held any more; "
                "weir_session_prompt_tokens reads them, or a larger snapshot_budget_bytes keeps more places to go to",
                n_tokens, n_kept);
  }
  WEIR_TRY(s.remembered_.list.can_cut(state.is_on() ? n_kept : n_tokens, lossy));
  Status cut = cut_to(s, n_kept);
  // A copy that proved to be damaged is lost now. Without the page that was cut, others may prove to be.
  while (!cut.ok() && lossy && s.kv_.n_tokens() > n_kept) cut = cut_to(s, n_kept - n_kept % kPageTokens);
  if (!cut.ok() && s.kv_.n_tokens() > n_kept) return cut;  // nothing has changed
  end_at_snapshot(s.remembered_, s.copies_, *s.tables_.change());
  const bool can_read = s.record_.holds(s.kv_.n_tokens(), n_tokens);
  s.record_.cut(can_read ? n_tokens : s.kv_.n_tokens());
  const bool reads_again = s.kv_.n_tokens() < n_tokens;
  const Status forgotten = forget_after_cut(s);
  WEIR_TRY(lossy || cut.ok() ? forgotten : cut);
  if (!can_read) return fail_to_read(s, n_tokens);
  return reads_again ? read_again(s, n_tokens) : Status();
}

// Appends the tokens that a lossy rewind could not keep, from the record.
Status Session::Rewinding::read_again(Session& s, uint32_t n_tokens) {
  if (s.remembered_.recurrent.is_on()) {
    const uint32_t n = s.kv_.n_tokens();
    const Status status =
        Reading::read(s, s.record_.view(n_tokens).subspan(n - s.record_.first()), false, nullptr, nullptr);
    s.has_logits_ = false;
    WEIR_TRY(status);
  }
  while (s.kv_.n_tokens() < n_tokens) {
    const weir_token token = s.record_.at(s.kv_.n_tokens());
    Stepping stepping(s);
    const Status status = s.machine_->step(token);
    if (status.ok()) stepping.count(token);
    s.has_logits_ = false;
    WEIR_TRY(status);
  }
  s.restart_text();
  return {};
}

}  // namespace weir
