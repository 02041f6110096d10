// RaaS: every page has a stamp, the last step in which it mattered; when a stream is full, the page with the oldest
// stamp leaves. Prompt pages are pinned. Steps attend all resident pages and select nothing. Time per step and memory
// O(budget).
// Paper: Hu et al., "RaaS: Reasoning-Aware Attention Sparsity for Efficient LLM Reasoning", arXiv:2502.11147 (v1),
// sec. 3; docs/algorithms.md, "RaaS".
// Differs from the paper: by default stamps come from exact page masses and a high threshold, not from digests and a
// low one (docs/papers.md has the measurements); the newest pages are protected; of equal stamps the lower last weight
// leaves; top_r ranks only the pages that can leave; every (layer, KV head) stream decides for itself; and there are
// rules for prompts that are too long to be pinned (pinned_prompt.h).
#include "policy/raas.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "policy/recall.h"

namespace weir {

// Among pages that can leave and are not protected, the one with the oldest stamp; of equal stamps the one with the
// lowest last score, then the oldest. The newest pages are protected: nothing has had a reason yet to read a page that
// was just sealed, while any query that happens to read an old page renews its stamp.
uint32_t RaasPolicy::victim(const StreamView& s, const RoomArgs& room) const {
  if (!is_full(s, room)) return kNone;
  const uint32_t stays = staying_flags(room);
  uint32_t n_free = 0;
  for (uint32_t row = 0; row < s.n_pages; ++row) n_free += (s.flags[row] & stays) == 0 ? 1u : 0u;
  if (n_free == 0) return kNone;
  const uint32_t n_candidates = n_free - protected_pages(o_.protect, n_free);
  uint32_t best = kNone;
  uint32_t seen = 0;
  for (uint32_t row = 0; row < s.n_pages; ++row) {
    if ((s.flags[row] & stays) != 0) continue;
    if (++seen > n_candidates) break;
    if (is_filling(s, row)) continue;
    if (best == kNone || s.stamp[row] < s.stamp[best] ||
        (s.stamp[row] == s.stamp[best] && score_of(s, row) < score_of(s, best)))
      best = row;
  }
  return best;
}

// Turns raw page scores into softmax(scale * score) over the stream's pages, head by head.
void RaasPolicy::digest_weights(const KvCache& kv, uint32_t layer, uint32_t n_heads, float* score) const {
  const KvView view = kv.view(layer);
  const uint32_t group = n_heads / view.n_kv_heads;
  for (uint32_t head = 0; head < n_heads; ++head) {
    float* w = score + size_t{head} * view.capacity;
    const uint32_t n = view.n_pages[head / group];
    float high = -INFINITY;
    for (uint32_t p = 0; p < n; ++p) high = std::max(high, attn_scale_ * w[p]);
    float sum = 0.0f;
    for (uint32_t p = 0; p < n; ++p) sum += w[p] = std::exp(attn_scale_ * w[p] - high);
    for (uint32_t p = 0; p < n; ++p) w[p] /= sum;
  }
}

Status RaasPolicy::observe(OpContext& cx, const OpTable& ops, KvCache& kv, const ObserveArgs& a) const {
  if (holds_all()) return {};  // nothing will ever leave, so stamps are not needed
  const KvView view = kv.view(a.layer);
  PageStampArgs stamp = {};
  stamp.capacity = view.capacity;
  stamp.n_kv_heads = view.n_kv_heads;
  stamp.n_heads = a.n_heads;
  stamp.weight = a.page_mass;
  stamp.select = a.lists.select;
  stamp.n_select = a.lists.n_select;
  if (o_.exact_mass == 0) {
    WEIR_TRY(ops.page_score(cx, {a.page_score, a.q, view, a.n_heads, o_.spread}));
    stamp.select = stamp.n_select = nullptr;
    digest_weights(kv, a.layer, a.n_heads, a.page_score);
    stamp.weight = a.page_score;
  }
  stamp.stamp = kv.stamps(a.layer);
  stamp.last_score = kv.last_scores(a.layer);
  stamp.flags = kv.flags(a.layer);
  stamp.n_pages = view.n_pages;
  stamp.now = a.now;
  stamp.rule = static_cast<StampRule>(o_.rule);
  stamp.rank_all = o_.rank_all != 0;
  stamp.r = o_.r;
  stamp.alpha = o_.alpha;
  return ops.page_stamp(cx, stamp);
}

StepRules RaasPolicy::step_rules() const {
  StepRules rules;
  rules.victim = VictimRule::kStalest;
  rules.protect = o_.protect;
  rules.observe = holds_all()          ? StepRules::Observe::kNone
                  : o_.exact_mass != 0 ? StepRules::Observe::kStampMass
                                       : StepRules::Observe::kStampDigest;
  rules.stamp_rule = static_cast<StampRule>(o_.rule);
  rules.rank_all = o_.rank_all != 0;
  rules.r = o_.r;
  rules.alpha = o_.alpha;
  rules.stamp_spread = o_.spread;
  return rules;
}

Policy* RaasPolicy::copy_to(PolicyStorage& storage) const { return new (storage.bytes) RaasPolicy(*this); }

void RaasPolicy::prompt_end(KvCache& kv, uint32_t first) const {
  for (uint32_t i = 0; i < kv.shape().n_streams(); ++i) {
    const StreamView s = kv.stream(i);
    for (uint32_t row = 0; row < s.n_pages; ++row) {
      if (s.first_pos[row] + s.len[row] > first) s.stamp[row] = kv.n_tokens();
    }
  }
}

Status read_raas_options(OptionReader& options, RaasOptions& o) {
  static constexpr const char* kRules[] = {"top_r", "alpha"};
  static constexpr const char* kSources[] = {"digest", "exact_mass"};
  static constexpr const char* kScopes[] = {"evictable", "all"};
  // Giving r without alpha selects top_r, unless stamp_rule says otherwise.
  if (options.has("r") && !options.has("alpha")) o.rule = 0;
  WEIR_TRY(options.get_word("stamp_rule", o.rule, kRules));
  WEIR_TRY(options.get_f32("r", o.r, 0.0f, 1.0f));
  WEIR_TRY(options.get_f32("alpha", o.alpha, 0.0f, 1.0f));
  WEIR_TRY(o.rule == 0 ? options.contradicts("alpha", "stamp_rule=top_r")
                       : options.contradicts("r", "stamp_rule=alpha"));
  if (options.has("digest")) o.exact_mass = 0;  // digests have no other use here
  WEIR_TRY(options.get_word("stamp_source", o.exact_mass, kSources));
  WEIR_TRY(options.get_word("rank_scope", o.rank_all, kScopes));
  WEIR_TRY(options.get_f32("protect_share", o.protect.share, 0.0f, 0.75f));
  if (options.has("protect_recent")) {
    WEIR_TRY(options.contradicts("protect_share", "protect_recent"));
    o.protect.share = 0.0f;
  }
  WEIR_TRY(options.get_u32("protect_recent", o.protect.pages, 0, 1u << 20));
  return options.get_u32("min_decode_pages", o.pinned.min_decode_pages, 2, 1u << 20);
}

Status make_raas(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  RaasOptions o;
  OptionReader options("raas", config.options);
  WEIR_TRY(read_raas_options(options, o));
  bool recall = false;
  WEIR_TRY(options.get_bool("recall", recall));
  if (recall) return make_raas_with_recall("raas", config, options, o, nullptr, storage, out);
  WEIR_TRY(refuse_recall_options(options));
  WEIR_TRY(read_digest(options, o.digest, o.spread));
  if (o.exact_mass != 0) WEIR_TRY(options.contradicts("digest", "stamp_source=exact_mass"));
  WEIR_TRY(read_pinned_prompt(options, true, o.pinned));
  if (o.pinned.overflow == PromptOverflow::kHybrid) return make_raas_with_selection(config, options, o, storage, out);
  WEIR_TRY(options.finish());
  PolicyNeeds needs;
  WEIR_TRY(plan_pinned_prompt("raas", config, o.pinned, needs));
  const bool holds_all = uint64_t{needs.pages_per_stream} * kPageTokens >= needs.context_tokens;
  needs.page_mass = o.exact_mass != 0 && !holds_all;
  needs.digest = o.exact_mass == 0 && !holds_all ? o.digest : DigestKind::kNone;
  static_assert(sizeof(RaasPolicy) <= sizeof(storage.bytes));
  out = new (storage.bytes) RaasPolicy("raas", needs, o, config.attn_scale);
  return {};
}

}  // namespace weir
