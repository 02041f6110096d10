// What of a session's own members is part of the conversation, and the order of all parts. The pages' bytes are in
// saved_pages.cpp.
#include "runtime/session_parts.h"

#include <algorithm>

#include "core/utf8.h"
#include "runtime/session.h"

namespace weir {

void SessionParts::set_up(const SessionSetup& setup, KvCache& kv, const Own& own, std::span<Part* const> more) {
  record.set_shape(setup.record);
  sampler.set_vocabulary(setup.record.vocab_size);
  kv.set_shape(setup.kv, &left, &history);
  events.set_shape(kv);
  recurrent.set_shape(setup.recurrent);
  list = {};
  for (Part* part : {static_cast<Part*>(&record), own.logits, static_cast<Part*>(&sampler), own.text, own.copies,
                     static_cast<Part*>(&kv), static_cast<Part*>(&left), static_cast<Part*>(&events),
                     static_cast<Part*>(&history), static_cast<Part*>(&recurrent)}) {
    if (part != nullptr) list.add(*part);
  }
  for (Part* part : more) list.add(*part);
}

void end_at_snapshot(SessionParts& parts, PageCopies& copies, KvCache& kv) {
  const RecurrentState& state = parts.recurrent;
  for (uint32_t at = state.nearest(kv.n_tokens()); at < kv.n_tokens(); at = state.nearest(kv.n_tokens())) {
    if (parts.record.goes_on_after(at)) (void)copies.cut(at, true);
    if (kv.n_tokens() > at) (void)copies.cut(0, true);
    if (kv.n_tokens() > at) kv.truncate(0);
  }
}

// --- logits --------------------------------------------------------------------------------------------------------

void LogitsPart::reset() {
  s_.has_logits_ = false;
  s_.machine_->forget_logits();
}

// Those of a position that is no longer the last.
void LogitsPart::cut(uint32_t /*n_tokens*/) { reset(); }

// The machine copies what a device has of them.
void LogitsPart::copy_from(const Part& other, uint32_t /*n_tokens*/) {
  const Session& from = static_cast<const LogitsPart&>(other).s_;
  s_.has_logits_ = from.has_logits_;
  if (s_.has_logits_) std::copy_n(from.step_.b.logits, s_.model_->config().vocab_size, s_.step_.b.logits);
}

Status LogitsPart::io(Io& io) {
  WEIR_TRY(io.section("LOGT"));
  const uint32_t vocab_size = s_.model_->config().vocab_size;
  uint32_t n = s_.has_logits_ ? vocab_size : 0;
  WEIR_TRY(io.value(n));
  if (n != 0 && n != vocab_size) return io.damaged("%u logits, not %u", n, vocab_size);
  if (n != 0 && io.n_tokens == 0) return io.damaged("logits of no token");
  s_.has_logits_ = n != 0;
  return io.array(std::span(s_.step_.b.logits, vocab_size), n, "logits");
}

// --- text ----------------------------------------------------------------------------------------------------------

void TextPart::reset() {
  s_.mask_.begin(0);
  s_.detokenizer_.reset(&s_.model_->tokenizer(), false, true);
  s_.drawn_for_ = s_.pulled_until_ = UINT32_MAX;
}

void TextPart::copy_from(const Part& other, uint32_t /*n_tokens*/) {
  const Session& from = static_cast<const TextPart&>(other).s_;
  s_.mask_.copy_from(from.mask_);
  s_.detokenizer_ = from.detokenizer_;
  s_.drawn_ = from.drawn_;
  s_.drawn_for_ = from.drawn_for_;
  s_.pulled_until_ = from.pulled_until_;
}

void TextPart::cut(uint32_t /*n_tokens*/) { s_.restart_text(); }

Status TextPart::io(Io& io) {
  WEIR_TRY(io.section("TEXT"));
  Detokenizer::Held held = s_.detokenizer_.held();
  uint32_t first = held.first ? 1 : 0;
  const auto rest = [&] { return held.bytes + std::min<size_t>(held.n_bytes, sizeof(held.bytes)); };
  std::fill(rest(), std::end(held.bytes), '\0');
  WEIR_TRY(io.value(held.n_bytes));
  WEIR_TRY(io.value(first));
  WEIR_TRY(io.array(std::span(held.bytes)));
  held.first = first == 1;
  const bool is_open = held.n_bytes == 0 || (held.n_bytes < sizeof(held.bytes) &&
                                             utf8_step({held.bytes, held.n_bytes}).kind == Utf8Kind::kIncomplete);
  const bool has_rest = std::any_of(rest(), std::end(held.bytes), [](char c) { return c != 0; });
  if (io.saves()) return {};
  if (first > 1 || !is_open || has_rest) return io.damaged("no beginning of a character");
  s_.detokenizer_.restore(held);
  return {};
}

// --- copies of pages -----------------------------------------------------------------------------------------------

// The tables are reset next. A session that is created has none yet.
void CopiesPart::reset() {
  if (s_.step_.copies != nullptr) s_.copies_.reset();
}

void CopiesPart::copy_from(const Part& other, uint32_t /*n_tokens*/) {
  s_.copies_.copy_from(static_cast<const CopiesPart&>(other).s_.copies_);
}

// What a device has computed comes through staging memory first (machine_recall.cpp).
void CopiesPart::seal(uint32_t first, uint32_t /*end*/) {
  if (s_.machine_->pool_access() == nullptr) s_.copies_.seal(first);
}

}  // namespace weir
