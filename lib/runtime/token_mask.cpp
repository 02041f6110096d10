// Masks of tokens, and what of an answer they are asked for.
#include "runtime/token_mask.h"

#include <algorithm>
#include <bit>

#include "runtime/answering.h"

namespace weir {

void TokenMask::drop_constraint() {
  destroy_in(memory_, matcher_);
  matcher_ = nullptr;
  if (constraint_ != nullptr) constraint_->release();
  constraint_ = nullptr;
}

void TokenMask::set_function(weir_mask_fn fn, void* user, uint32_t vocab_size) {
  if (fn != nullptr) words_.resize((vocab_size + 31) / 32);
  vocab_size_ = vocab_size;
  fn_ = fn;
  user_ = user;
}

void TokenMask::set_constraint(constraint::SharedConstraint* constraint, uint32_t vocab_size) {
  constraint::Matcher* matcher = nullptr;
  if (constraint != nullptr) {
    words_.resize((vocab_size + 31) / 32);
    matcher = make_in<constraint::Matcher>(memory_, constraint->grammar(), &memory_);
    constraint->retain();
  }
  drop_constraint();
  vocab_size_ = vocab_size;
  constraint_ = constraint;
  matcher_ = matcher;
  n_seen_ = 0;
}

void TokenMask::copy_from(const TokenMask& other) {
  set_function(other.fn_, other.user_, other.vocab_size_);
  set_constraint(other.constraint_, other.vocab_size_);
  if (matcher_ != nullptr) matcher_->copy_from(*other.matcher_);
  n_seen_ = other.n_seen_;
}

void TokenMask::restart() {
  n_seen_ = 0;
  if (matcher_ != nullptr) matcher_->reset();
}

Status TokenMask::follow(const Tokenizer& tokenizer, std::span<const weir_token> answer) {
  if (matcher_ == nullptr) return {};
  if (n_seen_ > answer.size()) restart();
  for (; n_seen_ < answer.size(); ++n_seen_) matcher_->advance(tokenizer.decode(answer[n_seen_], false, false));
  if (!matcher_->is_full()) return {};
  return fail(WEIR_ERR_UNSUPPORTED, "the constraint needs more states than there is room for after %u tokens", n_seen_);
}

Status TokenMask::fill(bool with_ends) {
  if (constraint_ == nullptr) {
    fill_all();
  } else {
    constraint_->mask(*matcher_, words_.data());
    if (matcher_->is_full()) {
      return fail(WEIR_ERR_UNSUPPORTED, "the constraint needs more states than there is room for after %u tokens",
                  n_seen_);
    }
    for (const weir_token token : constraint_->trie().ends_of_generation()) {
      if (!with_ends) words_[static_cast<uint32_t>(token) / 32] &= ~(1u << (static_cast<uint32_t>(token) % 32));
    }
  }
  return {};
}

void TokenMask::fill_all() { std::fill(words_.begin(), words_.end(), UINT32_MAX); }

uint32_t TokenMask::last_word() const {
  const uint32_t n_last = vocab_size_ - 32 * (words_.size() - 1);
  return words_[words_.size() - 1] & (n_last == 32 ? UINT32_MAX : (1u << n_last) - 1);
}

bool TokenMask::allows_any() const {
  uint32_t any = 0;
  for (uint32_t i = 0; i + 1 < words_.size(); ++i) any |= words_[i];
  return (any | last_word()) != 0;
}

uint32_t TokenMask::n_allowed() const {
  int n = std::popcount(last_word());
  for (uint32_t i = 0; i + 1 < words_.size(); ++i) n += std::popcount(words_[i]);
  return static_cast<uint32_t>(n);
}

// Thoughts, calls and what names them stay free.
static bool constraint_rules(int32_t segment) { return segment == WEIR_SEGMENT_ANSWER; }

static bool opens_thought(const AnswerTag& tag) {
  constexpr auto kAnswerPlace = uint8_t{1u << static_cast<uint32_t>(AnswerPlace::kAnswer)};
  const bool opens = (tag.from & kAnswerPlace) != 0 && tag.to == static_cast<uint8_t>(AnswerPlace::kThought);
  return opens && tag.token >= 0;
}

void AnswerMask::begin(uint32_t n_tokens) {
  mask_.restart();
  from_ = rules_from_ = n_tokens;
}

void AnswerMask::copy_from(const AnswerMask& other) {
  mask_.copy_from(other.mask_);
  from_ = other.from_;
  rules_from_ = other.rules_from_;
}

void AnswerMask::free_next(uint32_t n_tokens) {
  rules_from_ = n_tokens + 1;
  mask_.restart();
}

// An answer may begin with a thought, where a token alone opens one.
void AnswerMask::allow_thought(const Model& model) {
  for (const AnswerTag& tag : model.answer_format().tags()) {
    if (opens_thought(tag)) mask_.allow(tag.token);
  }
}

// Whether the latest token was ruled. What is then said is ruled to its end, also where it looks like a tag, or like a
// call without tags, as an object does that begins with "name".
bool AnswerMask::is_in_ruled_text(const MaskRequest& r) const {
  const uint32_t n = r.n_tokens;
  if (!mask_.has_constraint() || std::max(from_, rules_from_) >= n) return false;
  const weir_token latest = r.record.view(n).back();
  const auto tags = r.model.answer_format().tags();
  return from_ + 1 < n || std::none_of(tags.begin(), tags.end(),
                                       [&](const AnswerTag& tag) { return opens_thought(tag) && tag.token == latest; });
}

// The tokens of the answer, and those of them that the constraint rules.
Status AnswerMask::find_tokens(const MaskRequest& r, Tokens& out, Tokens& ruled) {
  const uint32_t n = r.n_tokens;
  from_ = std::min(from_, n);
  rules_from_ = std::clamp(rules_from_, from_, n);
  if (from_ < r.record.first())
    return fail(WEIR_ERR_UNSUPPORTED, "an answer of more tokens than the session keeps cannot have a mask");
  out = r.record.view(n).subspan(from_ - r.record.first());
  ruled = out.subspan(rules_from_ - from_);
  return {};
}

Status AnswerMask::ask_function(const MaskRequest& r, Tokens answer) {
  const weir_mask_info info = {
      sizeof(weir_mask_info), r.model.config().vocab_size, static_cast<uint32_t>(answer.size()), 0, answer.data(),
      mask_.words()};
  const Answer agreement = r.calls.call([&] { return mask_.function()(mask_.user(), &info); });
  if (agreement.agreed) return {};
  return fail(WEIR_ERR_CANCELLED, "the function that masks tokens refused%s", agreement.why());
}

Status AnswerMask::find(const MaskRequest& r, TokenMask*& mask, bool& is_over) {
  mask = nullptr;
  is_over = false;
  if (!mask_.is_on()) return {};
  const bool in_answer = r.answering != nullptr;
  const bool is_ruled = !in_answer || constraint_rules(r.answering->parts().segment()) || is_in_ruled_text(r);
  if (!is_ruled) {
    free_next(r.n_tokens);
    if (mask_.function() == nullptr) return {};
  }
  Tokens answer, ruled;
  WEIR_TRY(find_tokens(r, answer, ruled));
  if (is_ruled) {
    WEIR_TRY(mask_.follow(r.model.tokenizer(), ruled));
    if (in_answer && mask_.is_over()) return is_over = true, Status();
    WEIR_TRY(mask_.fill(!in_answer || !r.answering->state().has(WEIR_GENERATE_IGNORE_EOS)));
    if (in_answer && answer.empty() && mask_.has_constraint()) allow_thought(r.model);
  } else {
    mask_.fill_all();
  }
  if (mask_.function() != nullptr) WEIR_TRY(ask_function(r, answer));
  mask = &mask_;
  is_over = !mask_.allows_any();
  return {};
}

}  // namespace weir
