// Benchmarks of sessions. Noise comes as decoded tokens would: the policy evicts page by page, and values are of the
// size of normalised keys.
#include "runtime/bench.h"

#include <algorithm>

#include "policy/room.h"
#include "runtime/session_entry.h"

namespace weir {
namespace {

weir_token noise_token(uint32_t position, uint32_t vocab_size) {
  return static_cast<weir_token>(uint64_t{position} * 2654435761u % vocab_size);
}

}  // namespace

struct Session::Benchmark {
  static Status fill(Session& s, uint32_t n_tokens) {
    const Lock lock(s);
    WEIR_TRY(lock.status());
    WEIR_TRY(s.host_tables());
    const uint32_t room = s.policy_->needs().context_tokens - s.kv_.n_tokens();
    if (n_tokens > room)
      return fail(WEIR_ERR_CONTEXT_FULL, "%u tokens do not fit, %u positions are free", n_tokens, room);
    WEIR_TRY(s.machine_->begin_noise());
    WEIR_TRY(append(s, n_tokens));
    WEIR_TRY(s.machine_->end_noise());
    s.has_logits_ = true;
    return {};
  }

  static Status append(Session& s, uint32_t n_tokens) {
    const PageTables::Change kv = s.tables_.change();
    uint64_t random = 1;
    for (uint32_t done = 0; done < n_tokens;) {
      const uint32_t n = std::min(n_tokens - done, kPageTokens - kv->n_tokens() % kPageTokens);
      make_room(*s.policy_, *kv, n, Phase::kDecode);
      WEIR_TRY(kv->reserve(n, 0, kv->n_tokens() + n));
      WEIR_TRY(s.machine_->add_noise(n, random));
      kv->commit();
      s.machine_->seal_noise(n);
      for (uint32_t t = kv->n_tokens() - n; t < kv->n_tokens(); ++t) {
        const weir_token token = noise_token(t, s.model_->config().vocab_size);
        s.record_.put(t, &token, 1);
      }
      done += n;
    }
    return {};
  }

  static Status profile(Session& s, weir_token token, double* seconds) {
    const Lock lock(s);
    WEIR_TRY(lock.status());
    WEIR_TRY(check_token(*s.model_, token));
    Stepping stepping(s);
    const uint32_t before = s.kv_.n_tokens();
    WEIR_TRY(s.machine_->profile(token, seconds));
    for (uint32_t pos = before; pos < s.kv_.n_tokens(); ++pos) s.record_.put(pos, &token, 1);
    if (s.machine_->kind() == Machine::Kind::kSplit) stepping.count(token);  // a step like any other
    return {};
  }
};

Status fill_with_noise(Session& session, uint32_t n_tokens) { return Session::Benchmark::fill(session, n_tokens); }

Status profile_step(Session& session, weir_token token, double* seconds) {
  return Session::Benchmark::profile(session, token, seconds);
}

}  // namespace weir
