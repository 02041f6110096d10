// Masks of tokens, and the part of a session that uses them.
#include "runtime/token_mask.h"

#include <algorithm>
#include <bit>

#include "runtime/session_entry.h"

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

Status Session::set_token_mask(weir_mask_fn fn, void* user) {
  Lock lock(*this);
  WEIR_TRY(lock.status());
  mask_.set_function(fn, user, model_->config().vocab_size);
  return {};
}

Status Session::set_constraint(constraint::SharedConstraint* constraint) {
  Lock lock(*this);
  WEIR_TRY(lock.status());
  mask_.set_constraint(constraint, model_->config().vocab_size);
  if (answer_.state == AnswerState::kNone) answer_from_ = rules_from_ = kv_.n_tokens();
  return {};
}

// Thoughts, calls and what names them stay free.
bool Session::constraint_rules(int32_t segment) { return segment == WEIR_SEGMENT_ANSWER; }

// The next token belongs to a part that is free, or ends one: what the constraint rules begins behind it.
void Session::free_next_token() {
  rules_from_ = kv_.n_tokens() + 1;
  mask_.restart();
}

static bool opens_thought(const AnswerTag& tag) {
  constexpr auto kAnswerPlace = uint8_t{1u << static_cast<uint32_t>(AnswerPlace::kAnswer)};
  const bool opens = (tag.from & kAnswerPlace) != 0 && tag.to == static_cast<uint8_t>(AnswerPlace::kThought);
  return opens && tag.token >= 0;
}

// An answer may begin with a thought, where a token alone opens one.
void Session::allow_thought() {
  for (const AnswerTag& tag : model_->answer_format().tags()) {
    if (opens_thought(tag)) mask_.allow(tag.token);
  }
}

// Whether the latest token was ruled. What is then said is ruled to its end, also where it looks like a tag, or like a
// call without tags, as an object does that begins with "name".
bool Session::is_in_ruled_text() const {
  const uint32_t n = kv_.n_tokens();
  if (!mask_.has_constraint() || std::max(answer_from_, rules_from_) >= n) return false;
  const weir_token latest = record_.view(n).back();
  const auto tags = model_->answer_format().tags();
  return answer_from_ + 1 < n || std::none_of(tags.begin(), tags.end(), [&](const AnswerTag& tag) {
           return opens_thought(tag) && tag.token == latest;
         });
}

// The tokens of the answer, and those of them that the constraint rules.
Status Session::answer_tokens(std::span<const weir_token>& out, std::span<const weir_token>& ruled) {
  const uint32_t n = kv_.n_tokens();
  answer_from_ = std::min(answer_from_, n);
  rules_from_ = std::clamp(rules_from_, answer_from_, n);
  if (answer_from_ < record_.first())
    return fail(WEIR_ERR_UNSUPPORTED, "an answer of more tokens than the session keeps cannot have a mask");
  out = record_.view(n).subspan(answer_from_ - record_.first());
  ruled = out.subspan(rules_from_ - answer_from_);
  return {};
}

// What may be drawn. Null at `words`: everything. `is_over`: nothing may, or the answer's text is complete and may not
// go on.
Status Session::find_mask(bool in_answer, const uint32_t*& words, bool& is_over) {
  words = nullptr;
  is_over = false;
  if (!mask_.is_on()) return {};
  const bool is_ruled = !in_answer || constraint_rules(parts_.segment()) || is_in_ruled_text();
  if (!is_ruled) {
    free_next_token();
    if (mask_.function() == nullptr) return {};
  }
  std::span<const weir_token> answer, ruled;
  WEIR_TRY(answer_tokens(answer, ruled));
  if (is_ruled) {
    WEIR_TRY(mask_.follow(model_->tokenizer(), ruled));
    if (in_answer && mask_.is_over()) return is_over = true, Status();
    WEIR_TRY(mask_.fill(!in_answer || (answer_.flags & WEIR_GENERATE_IGNORE_EOS) == 0));
    if (in_answer && answer.empty() && mask_.has_constraint()) allow_thought();
  } else {
    mask_.fill_all();
  }
  if (mask_.function() != nullptr) {
    const weir_mask_info info = {
        sizeof(weir_mask_info), model_->config().vocab_size, static_cast<uint32_t>(answer.size()), 0, answer.data(),
        mask_.words()};
    const Answer agreement = call_out([&] { return mask_.function()(mask_.user(), &info); });
    if (!agreement.agreed) return fail(WEIR_ERR_CANCELLED, "the function that masks tokens refused%s", agreement.why());
  }
  words = mask_.words();
  is_over = !mask_.allows_any();
  return {};
}

}  // namespace weir
