// Token sampling.
#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>

#include "runtime/token_record.h"

namespace weir {
namespace {

constexpr float kForbids = -100.0f;  // as a bias

// So many of the best tokens are looked at where min_p alone cuts off the others.
constexpr uint32_t kBeforeTail = 256;

// So many of the best tokens are looked at first for those that hold a part of all probability: trained models rarely
// need more. So few are sorted.
constexpr uint32_t kFirstLook = 1024, kSorted = 64;

float number(float logit) { return std::isnan(logit) ? -INFINITY : logit; }

Status check_penalty(const char* name, float value) {
  if (value >= -2.0f && value <= 2.0f) return {};
  return fail(WEIR_ERR_INVALID_ARG, "%s: %g is not in -2..2", name, static_cast<double>(value));
}

Status check_bias(const weir_sampling_options& o, uint32_t vocab_size) {
  if (o.n_bias > Sampler::kMaxBias)
    return fail(WEIR_ERR_INVALID_ARG, "n_bias: %u is above %u", o.n_bias, Sampler::kMaxBias);
  if (o.n_bias != 0 && o.bias == nullptr) return fail(WEIR_ERR_INVALID_ARG, "bias is NULL, n_bias is %u", o.n_bias);
  for (uint32_t i = 0; i < o.n_bias; ++i) {
    const weir_token_bias& b = o.bias[i];
    if (b.token < 0 || static_cast<uint32_t>(b.token) >= vocab_size)
      return fail(WEIR_ERR_INVALID_ARG, "bias[%u]: token %d is not in 0..%u", i, b.token, vocab_size - 1);
    if (!(b.bias >= -100.0f && b.bias <= 100.0f)) {
      return fail(WEIR_ERR_INVALID_ARG, "bias[%u]: %g for token %d is not in -100..100", i, static_cast<double>(b.bias),
                  b.token);
    }
  }
  return {};
}

}  // namespace

Status check_sampling(weir_sampling_options& o, uint32_t vocab_size) {
  if (o.reserved != 0 || o.reserved2 != 0)
    return fail(WEIR_ERR_UNSUPPORTED, "sampling options: reserved is %u, not 0", o.reserved | o.reserved2);
  if (!(o.temperature >= 0.0f && o.temperature <= 100.0f))
    return fail(WEIR_ERR_INVALID_ARG, "temperature: %g is not in 0..100", static_cast<double>(o.temperature));
  if (!(o.top_p >= 0.0f && o.top_p <= 1.0f))
    return fail(WEIR_ERR_INVALID_ARG, "top_p: %g is not in 0..1", static_cast<double>(o.top_p));
  if (!(o.min_p >= 0.0f && o.min_p < 1.0f))
    return fail(WEIR_ERR_INVALID_ARG, "min_p: %g is not in [0, 1)", static_cast<double>(o.min_p));
  if (!(o.repeat_penalty >= 0.0f && o.repeat_penalty <= 100.0f)) {
    return fail(WEIR_ERR_INVALID_ARG, "repeat_penalty: %g is not in 0..100", static_cast<double>(o.repeat_penalty));
  }
  if (o.repeat_last_n > Sampler::kMaxRecent)
    return fail(WEIR_ERR_INVALID_ARG, "repeat_last_n: %u is above %u", o.repeat_last_n, Sampler::kMaxRecent);
  WEIR_TRY(check_penalty("presence_penalty", o.presence_penalty));
  WEIR_TRY(check_penalty("frequency_penalty", o.frequency_penalty));
  WEIR_TRY(check_bias(o, vocab_size));
  if (o.top_p == 0.0f) o.top_p = 1.0f;
  if (o.repeat_penalty == 0.0f) o.repeat_penalty = 1.0f;
  if (o.repeat_last_n == 0) o.repeat_last_n = 64;
  return {};
}

void Sampler::lay_out(Arenas& arenas) {
  candidates_ = arenas.state.take<Candidate>(vocab_size_);
  recent_ = arenas.state.take<weir_token>(kMaxRecent);
  looked_at_ = arenas.state.take<weir_token>(kMaxRecent);
}

void Sampler::set(const weir_sampling_options& options) {
  std::copy_n(options.bias, options.n_bias, bias_);
  options_ = options;
  options_.bias = nullptr;
  random_ = options.seed;
}

void Sampler::copy_from(const Part& part, uint32_t /*n_tokens*/) {
  const auto& other = static_cast<const Sampler&>(part);
  options_ = other.options_;
  std::copy_n(other.bias_, options_.n_bias, bias_);
  random_ = other.random_;
  n_recent_ = other.n_recent_;
  recent_at_ = other.recent_at_;
  std::copy_n(other.recent_, n_recent_, recent_);
}

void Sampler::reset() {
  random_ = options_.seed;
  n_recent_ = 0;
  recent_at_ = 0;
}

void Sampler::accept(weir_token token) {
  recent_[recent_at_] = token;
  recent_at_ = (recent_at_ + 1) % kMaxRecent;
  n_recent_ = std::min(n_recent_ + 1, kMaxRecent);
}

void Sampler::set_recent(const weir_token* tokens, uint32_t n_tokens) {
  n_recent_ = recent_at_ = 0;
  for (uint32_t i = n_tokens - std::min(n_tokens, kMaxRecent); i < n_tokens; ++i) accept(tokens[i]);
}

Status Sampler::io(Io& io) {
  WEIR_TRY(io.section("SAMP"));
  State s = io.saves() ? state() : State();
  weir_sampling_options& o = s.options;
  WEIR_TRY(io.value(o.top_k));
  WEIR_TRY(io.value(o.temperature));
  WEIR_TRY(io.value(o.top_p));
  WEIR_TRY(io.value(o.min_p));
  WEIR_TRY(io.value(o.repeat_penalty));
  WEIR_TRY(io.value(o.repeat_last_n));
  WEIR_TRY(io.value(o.seed));
  WEIR_TRY(io.value(s.random));
  WEIR_TRY(io.value(s.n_recent));
  if (io.restores() && !check_sampling(o, vocab_size_).ok()) return io.damaged("sampling options that no session has");
  WEIR_TRY(recent_io(io, s.n_recent));
  if (io.restores()) restore(s);
  return {};
}

weir_token Sampler::recent(uint32_t i) const { return recent_[(recent_at_ + kMaxRecent - n_recent_ + i) % kMaxRecent]; }

// The oldest first. They are read to where they count from restore() on.
Status Sampler::recent_io(Io& io, uint32_t n) {
  const std::span<weir_token> ring(recent_, kMaxRecent);
  if (io.restores()) {
    WEIR_TRY(io.array(ring, n, "recent tokens"));
    return check_tokens(io, ring.first(n), vocab_size_);
  }
  const uint32_t oldest = (recent_at_ + kMaxRecent - n) % kMaxRecent, n_to_end = std::min(n, kMaxRecent - oldest);
  WEIR_TRY(io.array(ring.subspan(oldest, n_to_end)));
  return io.array(ring.first(n - n_to_end));
}

void Sampler::restore(const State& state) {
  const weir_sampling_options own = options_;
  options_ = state.options;
  options_.presence_penalty = own.presence_penalty;
  options_.frequency_penalty = own.frequency_penalty;
  options_.bias = nullptr;
  options_.n_bias = own.n_bias;
  random_ = state.random;
  n_recent_ = state.n_recent;
  recent_at_ = n_recent_ % kMaxRecent;
}

// SplitMix64 (Steele, Lea, Flood 2014): one add and three mixes, the same numbers on every platform.
double Sampler::next_uniform() {
  uint64_t z = (random_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
}

Status Sampler::greedy(const float* logits, weir_token& token, const uint32_t* allowed) const {
  weir_token best = -1;
  for (uint32_t i = 0; i < vocab_size_; ++i) {
    if (std::isnan(logits[i]) || !is_allowed(allowed, i)) continue;
    if (best < 0 || logits[i] > logits[best]) best = static_cast<weir_token>(i);
  }
  if (best < 0)
    return fail(WEIR_ERR_FORMAT, "none of the %u logits is a number; the weights of the model are broken", vocab_size_);
  token = best;
  return {};
}

uint32_t Sampler::n_looked_at() const { return penalises() ? std::min(n_recent_, options_.repeat_last_n) : 0; }

// Applies bias and penalties, and forbids. find(token) is its index among the first n of candidates_, n when it is not
// there.
template <class Find>
void Sampler::change(uint32_t n, const Find& find) {
  for (uint32_t b = 0; b < options_.n_bias; ++b) {
    const uint32_t i = find(bias_[b].token);
    if (i != n) candidates_[i].logit = bias_[b].bias == kForbids ? -INFINITY : candidates_[i].logit + bias_[b].bias;
  }
  penalise(n, find);
  for (const weir_token token : forbidden_) {
    const uint32_t i = find(token);
    if (i != n) candidates_[i].logit = -INFINITY;
  }
}

template <class Find>
void Sampler::penalise(uint32_t n, const Find& find) {
  const uint32_t n_tokens = n_looked_at();
  weir_token* const end = looked_at_ + n_tokens;
  for (uint32_t t = 0; t < n_tokens; ++t) looked_at_[t] = recent_[(recent_at_ + kMaxRecent - 1 - t) % kMaxRecent];
  std::sort(looked_at_, end);
  for (weir_token *at = looked_at_, *next = at; at != end; at = next) {
    while (next != end && *next == *at) ++next;
    const uint32_t i = find(*at);
    if (i == n) continue;
    float& logit = candidates_[i].logit;
    logit = logit > 0.0f ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
    logit -= options_.presence_penalty + options_.frequency_penalty * static_cast<float>(next - at);
  }
}

bool Sampler::is_better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// The probability of a candidate, relative to that of the best.
float Sampler::weight(const Candidate& c) const {
  if (best_ == INFINITY) return c.logit == INFINITY ? 1.0f : 0.0f;
  return std::exp((c.logit - best_) / options_.temperature);
}

double Sampler::mass(uint32_t begin, uint32_t end) const {
  double sum = 0.0;
  for (uint32_t i = begin; i < end; ++i) sum += weight(candidates_[i]);
  return sum;
}

// Puts the top k of n candidates in front, in any order; returns how many there are.
uint32_t Sampler::keep_top_k(uint32_t n) {
  const uint32_t k = options_.top_k == 0 ? n : std::min(options_.top_k, n);
  if (k < n) std::nth_element(candidates_, candidates_ + k, candidates_ + n, is_better);
  return k;
}

// Puts in front those of the first n candidates, best first, whose weights together reach `target`; returns how
// many that takes, at least one, and at `sum` what they add up to. The last of them is the worst, the others have no
// order: a draw from a flat distribution would spend its time on sorting.
uint32_t Sampler::keep_mass(uint32_t n, double target, double& sum) {
  sum = 0.0;
  uint32_t begin = 0, end = n;  // those before `begin` do not reach it, those before `end` do, or there are no more
  for (uint32_t look_at = kFirstLook; end - begin > kSorted;) {
    const uint32_t middle = begin + std::min(look_at, (end - begin) / 2);
    std::nth_element(candidates_ + begin, candidates_ + middle, candidates_ + end, is_better);
    const double part = mass(begin, middle);
    if (sum + part >= target) {
      end = middle;
    } else {
      sum += part;
      begin = middle;
      look_at = std::min(8 * look_at, n);
    }
  }
  std::sort(candidates_ + begin, candidates_ + end, is_better);
  do sum += weight(candidates_[begin++]);
  while (begin < end && sum < target);
  return begin;
}

Status Sampler::sample(const float* logits, weir_token& token, const uint32_t* allowed) {
  if (is_greedy()) return greedy(logits, token, allowed);
  for (uint32_t i = 0; i < vocab_size_; ++i) candidates_[i] = {number(logits[i]), static_cast<weir_token>(i)};
  change(vocab_size_, [](weir_token id) { return static_cast<uint32_t>(id); });
  uint32_t n = 0;
  for (uint32_t i = 0; i < vocab_size_; ++i) {
    if (is_allowed(allowed, i)) candidates_[n++] = candidates_[i];
  }
  token = draw(n);
  return token >= 0 ? Status() : nothing_to_draw(logits);
}

// Whether no logit becomes larger.
bool Sampler::only_lowers() const {
  return options_.repeat_penalty >= 1.0f && options_.presence_penalty >= 0.0f && options_.frequency_penalty >= 0.0f &&
         std::all_of(bias_, bias_ + options_.n_bias, [](const weir_token_bias& b) { return b.bias <= 0.0f; });
}

// Whether what is drawn depends on no token but those that min_p leaves.
bool Sampler::cuts_tail() const { return options_.top_k == 0 && options_.top_p >= 1.0f && options_.min_p > 0.0f; }

// At most so many logits change.
uint32_t Sampler::n_changed() const {
  return n_looked_at() + options_.n_bias + static_cast<uint32_t>(forbidden_.size());
}

// Where logits are only lowered, and at most so many of them, a token with that many and `kept` others above it still
// has at least `kept` above it afterwards, and cannot be drawn. One that is raised may come from anywhere: its logit is
// asked for.
uint32_t Sampler::candidates_needed(uint32_t n_allowed) const {
  if (is_greedy() && n_allowed == vocab_size_) return 0;  // the device says which, and whether there is one
  const uint32_t top_k = options_.top_k != 0 ? options_.top_k : cuts_tail() ? kBeforeTail : n_allowed;
  const uint32_t kept = options_.temperature == 0.0f ? 1 : std::min(top_k, n_allowed);
  const uint32_t n = std::min(kept + n_changed(), n_allowed);
  return n < vocab_size_ && n <= kMaxCandidates && n_changed() <= kMaxCandidates ? n : 0;
}

uint32_t Sampler::asked_tokens(int32_t* out) const {
  if (only_lowers()) return 0;
  int32_t* end = out;
  for (uint32_t b = 0; b < options_.n_bias; ++b) *end++ = bias_[b].token;
  for (uint32_t t = 0; t < n_looked_at(); ++t) *end++ = recent(n_recent_ - 1 - t);
  std::sort(out, end);
  return static_cast<uint32_t>(std::unique(out, end) - out);
}

// Whether one of the other tokens may stay beside the first n of candidates_, where none of their logits is above
// `least`. The probability is that of draw(), and a margin for what it is rounded by.
bool Sampler::reaches_tail(float least, uint32_t n) const {
  float best = -INFINITY;
  for (uint32_t i = 0; i < n; ++i) best = std::max(best, candidates_[i].logit);
  return !(std::exp((least - best) / options_.temperature) < 0.999f * options_.min_p);
}

weir_token Sampler::sample_candidates(const Candidates& best, bool are_all, const Candidates& asked,
                                      const uint32_t* allowed) {
  uint32_t n = 0;
  float least = INFINITY;
  for (uint32_t i = 0; i < best.n; ++i) {
    candidates_[n++] = {number(best.logits[i]), best.ids[i]};
    least = std::min(least, number(best.logits[i]));
  }
  const int32_t* const end = best.ids + best.n;
  for (uint32_t i = 0; i < asked.n; ++i) {
    const int32_t id = asked.ids[i];
    if (is_allowed(allowed, static_cast<uint32_t>(id)) && std::find(best.ids, end, id) == end)
      candidates_[n++] = {number(asked.logits[i]), id};
  }
  change(n, [&](weir_token id) {
    const auto is_it = [id](const Candidate& c) { return c.token == id; };
    return static_cast<uint32_t>(std::find_if(candidates_, candidates_ + n, is_it) - candidates_);
  });
  if (!are_all && options_.temperature != 0.0f && cuts_tail() && reaches_tail(least, n)) return -1;
  return draw(n);
}

// Why there is no token to draw: all logits were changed to -INFINITY, or the model's were no numbers.
Status Sampler::nothing_to_draw(const float* logits) const {
  if (std::any_of(logits, logits + vocab_size_, [](float logit) { return number(logit) != -INFINITY; })) {
    return fail(WEIR_ERR_STATE, "none of the %u tokens may be drawn: bias forbids them%s", vocab_size_,
                forbidden_.empty() ? "" : ", or they end the answer before min_tokens");
  }
  return fail(WEIR_ERR_FORMAT, "none of the %u logits is a number; the weights of the model are broken", vocab_size_);
}

// Draws from the first n of candidates_, or -1.
weir_token Sampler::draw(uint32_t n) {
  const Candidate top = *std::min_element(candidates_, candidates_ + n, is_better);
  if (top.logit == -INFINITY) return -1;
  if (options_.temperature == 0.0f) return top.token;
  n = keep_top_k(n);
  best_ = top.logit;
  double sum = mass(0, n);
  if (options_.top_p < 1.0f) n = keep_mass(n, sum * options_.top_p, sum);
  if (options_.min_p > 0.0f) {
    const auto stays = [this](const Candidate& c) { return weight(c) >= options_.min_p; };
    n = static_cast<uint32_t>(std::partition(candidates_, candidates_ + n, stays) - candidates_);
    sum = mass(0, n);
  }
  // The tokens share the line from 0 to `sum`, the best first; the one whose part has the random point is drawn.
  double drawn = 0.0;
  const double point = next_uniform() * sum;
  return candidates_[keep_mass(n, std::nextafter(point, INFINITY), drawn) - 1].token;
}

}  // namespace weir
