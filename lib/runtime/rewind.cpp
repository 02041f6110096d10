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

void Session::look_at_losses() {
  const PageTables::Change losing = tables_.change();
  copies_.look_at_losses();
}

// Checks that going back is possible. n_kept: how many of the n_tokens can stay as they are; if a lossy rewind cuts a
// page that is lost, all before that page.
Status Session::find_lost(uint32_t n_tokens, bool lossy, uint32_t& n_kept) const {
  n_kept = n_tokens;
  const uint32_t n_pages = whole_pages(n_tokens);
  for (uint32_t s = 0; s < kv_.shape().n_streams(); ++s) {
    if (lossy) {
      if (n_tokens % kPageTokens != 0 && !copies_.has(s, n_pages - 1)) n_kept = (n_pages - 1) * kPageTokens;
      continue;
    }
    const uint32_t page = first_lost(kv_, copies_, s, n_tokens);
    if (page == n_pages) continue;
    const uint32_t layer = s / kv_.shape().n_kv_heads, kv_head = s % kv_.shape().n_kv_heads;
    return fail(WEIR_ERR_NOT_FOUND,
                "a rewind to %u tokens: the page of positions %u to %u is lost in layer %u, KV head %u%s", n_tokens,
                page * kPageTokens, page * kPageTokens + kPageTokens - 1, layer, kv_head,
                kv_.window(s) != 0 ? ", whose window has moved on" : "");
  }
  return {};
}

// Removes the tokens from n_tokens on, whose page has not been lost yet.
Status Session::cut_to(uint32_t n_tokens) {
  const PageTables::Change cutting = tables_.change();
  const uint32_t before = kv_.n_tokens();
  if (copies_.cut(n_tokens, true)) return {};
  if (kv_.n_tokens() == before)
    return fail(WEIR_ERR_NOT_FOUND, "a rewind to %u tokens: a page that they need is damaged", n_tokens);
  return fail(WEIR_ERR_IO, "a rewind to %u tokens: a page that they need could not be read; %u are left", n_tokens,
              kv_.n_tokens());
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
Status Session::forget_after_cut() {
  {
    const PageTables::Change kv = tables_.change();
    if (!policy_->step_rules().marks) kv->limit_stamps(kv_.n_tokens());
    remembered_.list.cut(kv_.n_tokens());
  }
  return machine_->end_cut();
}

// Pages of the first n_tokens that are lost, summed over the streams, without those that a window hides.
uint64_t Session::pages_missing(uint32_t n_tokens) const {
  uint64_t n_missing = 0;
  for (uint32_t s = 0; s < kv_.shape().n_streams(); ++s) {
    for (uint32_t page = kv_.first_page_seen(s, n_tokens), end = whole_pages(n_tokens); page < end; ++page)
      n_missing += copies_.has(s, page) ? 0 : 1;
  }
  return n_missing;
}

Status Session::rewind(uint32_t n_tokens, uint32_t flags) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(host_tables());
  return rewind_to(n_tokens, flags);
}

Status Session::rewind_to(uint32_t n_tokens, uint32_t flags) {
  if (n_tokens > kv_.n_tokens())
    return fail(WEIR_ERR_INVALID_ARG, "a rewind to %u tokens: there are only %u", n_tokens, kv_.n_tokens());
  is_used_ = true;
  if (n_tokens == kv_.n_tokens()) {
    has_logits_ = false;
    return {};
  }
  const bool lossy = (flags & WEIR_REWIND_LOSSY) != 0;
  look_at_losses();
  uint32_t n_kept = 0;
  WEIR_TRY(find_lost(n_tokens, lossy, n_kept));
  WEIR_TRY(remembered_.list.can_cut(n_tokens, lossy));
  Status cut = cut_to(n_kept);
  // A copy that proved to be damaged is lost now. Without the page that was cut, others may prove to be.
  while (!cut.ok() && lossy && kv_.n_tokens() > n_kept) cut = cut_to(n_kept - n_kept % kPageTokens);
  if (!cut.ok() && kv_.n_tokens() > n_kept) return cut;  // nothing has changed
  record_.cut(n_tokens);
  const bool reads_again = kv_.n_tokens() < n_tokens;
  const Status forgotten = forget_after_cut();
  WEIR_TRY(lossy || cut.ok() ? forgotten : cut);
  return reads_again ? read_again(n_tokens) : Status();
}

// Appends the tokens that a lossy rewind could not keep, from the record.
Status Session::read_again(uint32_t n_tokens) {
  while (kv_.n_tokens() < n_tokens) {
    const weir_token token = record_.at(kv_.n_tokens());
    Stepping stepping(*this);
    const Status status = machine_->step(token);
    if (status.ok()) stepping.count(token);
    has_logits_ = false;
    WEIR_TRY(status);
  }
  restart_text();
  return {};
}

}  // namespace weir
