#include "policy/prompts.h"

namespace weir {
namespace {

constexpr uint32_t kPinnedPrompt = kPagePinned | kPagePrompt, kWas = kPageWasPinned | kPageWasPrompt;

// Not where prompts have a part of the pages of their own (hybrid with recall), or share a layer's (ada).
bool pins_prompts(const Policy& policy) {
  if (policy.needs().heads_differ || policy.step_rules().prompt_slots != 0) return false;
  // A prompt policy pins what stays of a prompt at its end.
  return (policy.prompt_flags() & kPagePinned) != 0 || policy.needs().prompt_policy;
}

template <class F>
void for_each_table(const KvCache& kv, const F& f) {
  for (uint32_t i = 0; i < kv.shape().n_streams(); ++i) f(kv.stream(i));
}

}  // namespace

EarlierPrompts::EarlierPrompts(const Policy& policy, KvCache& kv) : kv_(kv), pins_(pins_prompts(policy)) {
  if (!pins_) return;
  for_each_table(kv_, [](const StreamView& s) {
    for (uint32_t row = 0; row < s.n_pages; ++row) {
      uint32_t& flags = s.flags[row];
      if ((flags & kPageFirstPrompt) == 0 && (flags & kPagePrompt) != 0)
        flags = (flags & ~kPinnedPrompt) | ((flags & kPinnedPrompt) << 4);
    }
  });
}

EarlierPrompts::~EarlierPrompts() {
  if (!pins_) return;
  for_each_table(kv_, [](const StreamView& s) {
    for (uint32_t row = 0; row < s.n_pages; ++row) s.flags[row] = (s.flags[row] & ~kWas) | ((s.flags[row] & kWas) >> 4);
  });
}

void EarlierPrompts::end() {
  if (!pins_) return;
  for_each_table(kv_, [this](const StreamView& s) {
    bool is_first = true;
    for (uint32_t row = 0; row < s.n_pages; ++row) is_first &= (s.flags[row] & (kPageFirstPrompt | kWas)) == 0;
    for (uint32_t row = 0; row < s.n_pages; ++row) {
      uint32_t& flags = s.flags[row];
      if ((flags & kPageWasPrompt) != 0 && (flags & kPagePrompt) == 0)
        kv_.rings().set_flag(s.first_pos[row] / kPageTokens, 0);  // what a page is when it comes back
      flags &= ~kWas;
      if (is_first && (flags & kPagePrompt) != 0) flags |= kPageFirstPrompt;
    }
  });
}

}  // namespace weir
