// RaaS: every page carries the last step at which it mattered; when a stream is full the stalest page leaves. Prompt pages are pinned. All resident
// pages are attended, so a step has no selection. Time and memory O(budget).
// Paper: Hu et al., "RaaS: Reasoning-Aware Attention Sparsity for Efficient LLM Reasoning", arXiv:2502.11147 (v1), sec. 3; algorithms 2.6.
// Differs from the paper: recent pages are protected, ties go by the last weight, stamps come from exact page masses and a high threshold by default
// (docs/papers.md has the measurements), and every (layer, kv head) stream decides for itself.
#include "policy/raas.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "policy/selection.h"

namespace weir {

uint32_t RaasPolicy::pinned_after(const KvCache& kv, uint32_t n_tok) {
  // Prompts are pinned alike in all streams, but what the application pins may have left some of them.
  uint32_t most = 0;
  for (uint32_t i = 0; i < kv.shape().n_streams(); ++i) {
    const StreamView s = kv.stream(i);
    uint32_t pinned = 0;
    for (uint32_t row = 0; row < s.n_pages; ++row) pinned += (s.flags[row] & kPageStays) != 0 ? 1u : 0u;
    // An open page that takes the first tokens becomes a prompt page too.
    const bool open_joins = kv.n_tokens() % kPageTokens != 0 && (s.flags[s.n_pages - 1] & kPageStays) == 0;
    most = std::max(most, pinned + (open_joins ? 1u : 0u));
  }
  return most + kv.pages_to_open(n_tok);
}

// A pinned prompt may take all pages but min_decode_pages.
Status RaasPolicy::admit_prompt(const KvCache& kv, uint32_t n_tok) const {
  if (!o_.pin_prompt || holds_all()) return {};
  const uint32_t after = pinned_after(kv, n_tok);
  const uint32_t most = needs_.pages_per_stream - std::min(needs_.pages_per_stream, o_.min_decode_pages);
  if (after <= most) return {};
  const uint32_t base = after - kv.pages_to_open(n_tok), in_page = kv.n_tokens() % kPageTokens;
  const uint64_t fits =
      base > most ? 0 : uint64_t{most - base} * kPageTokens + (in_page != 0 ? kPageTokens - in_page : 0u);
  const uint64_t needed = (uint64_t{after} + o_.min_decode_pages) * kPageTokens;
  if (o_.overflow == RaasOverflow::kExtend) {
    return fail(WEIR_ERR_BUDGET,
                "policy raas: a prompt of %u tokens does not fit, %llu would; overflow=extend reserves what "
                "max_prompt_tokens says",
                n_tok, static_cast<unsigned long long>(fits));
  }
  return fail(WEIR_ERR_BUDGET,
              "policy raas: a prompt of %u tokens does not fit beside %u pages for decoding, %llu would; a budget of "
              "%llu tokens holds it, or "
              "overflow=compress, hybrid or extend",
              n_tok, o_.min_decode_pages, static_cast<unsigned long long>(fits),
              static_cast<unsigned long long>(needed));
}

// A prompt that is not pinned must not push its own first pages out within one chunk.
uint32_t RaasPolicy::chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const {
  return o_.pin_prompt ? std::min(n_left, batch_tokens) : chunk_that_fits(kv, n_left, batch_tokens);
}

// The stalest unpinned page by (stamp, last score, age). The newest pages are protected: a page that was just sealed has not been used yet, while old
// ones are re-stamped by every stray look (algorithms 2.6, "Fresh pages"). At most three quarters of the pages that could leave are protected; the page
// that was sealed last always is, unless it is alone.
uint32_t RaasPolicy::victim(const StreamView& s, const RoomArgs& room) const {
  if (!is_full(s, room)) return kNone;
  const uint32_t stays = staying_flags(room);
  uint32_t n_free = 0;
  for (uint32_t row = 0; row < s.n_pages; ++row) n_free += (s.flags[row] & stays) == 0 ? 1u : 0u;
  if (n_free == 0) return kNone;
  const uint32_t most = n_free - std::max(1u, n_free / 4);
  const uint32_t n_candidates = n_free - std::max(std::min(o_.protect_recent, most), n_free > 1 ? 1u : 0u);
  uint32_t best = kNone;
  uint32_t seen = 0;
  for (uint32_t row = 0; row < s.n_pages && seen < n_candidates; ++row) {
    if ((s.flags[row] & stays) != 0) continue;
    ++seen;
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
  if (holds_all()) return {};  // nothing will ever leave, so nobody will ask
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
  rules.protect_recent = o_.protect_recent;
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
  // r and alpha each choose their rule.
  if (options.has("r") && !options.has("alpha")) o.rule = 0;
  WEIR_TRY(options.get_word("stamp_rule", o.rule, kRules));
  WEIR_TRY(options.get_f32("r", o.r, 0.0f, 1.0f));
  WEIR_TRY(options.get_f32("alpha", o.alpha, 0.0f, 1.0f));
  WEIR_TRY(o.rule == 0 ? options.contradicts("alpha", "stamp_rule=top_r")
                       : options.contradicts("r", "stamp_rule=alpha"));
  if (options.has("digest")) o.exact_mass = 0;  // nothing else would read one
  WEIR_TRY(options.get_word("stamp_source", o.exact_mass, kSources));
  WEIR_TRY(options.get_word("rank_scope", o.rank_all, kScopes));
  WEIR_TRY(options.get_u32("protect_recent", o.protect_recent, 0, 1u << 20));
  return options.get_u32("min_decode_pages", o.min_decode_pages, 2, 1u << 20);
}

namespace {

Status read_options(OptionReader& options, RaasOptions& o) {
  static constexpr const char* kOverflowWords[] = {"auto", "error", "extend", "hybrid", "compress"};
  WEIR_TRY(read_raas_options(options, o));
  WEIR_TRY(read_digest(options, o.digest, o.spread));
  if (o.exact_mass != 0) WEIR_TRY(options.contradicts("digest", "stamp_source=exact_mass"));
  auto overflow = static_cast<uint32_t>(o.overflow);
  WEIR_TRY(options.get_word("overflow", overflow, kOverflowWords));
  o.overflow = static_cast<RaasOverflow>(overflow);
  WEIR_TRY(options.get_bool("pin_prompt", o.pin_prompt));
  return o.pin_prompt ? Status() : options.contradicts("overflow", "pin_prompt=false");
}

}  // namespace

Status make_raas(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  RaasOptions o;
  o.protect_recent = default_protect_recent(config.budget_tokens / kPageTokens);
  OptionReader options("raas", config.options);
  WEIR_TRY(read_options(options, o));
  if (o.overflow == RaasOverflow::kHybrid) return make_raas_with_selection(config, options, o, storage, out);
  WEIR_TRY(options.finish());
  PolicyNeeds needs;
  needs.context_tokens = config.context_tokens != 0 ? config.context_tokens : config.trained_tokens;
  const uint32_t budget = budget_pages(config, needs.context_tokens);
  needs.pages_per_stream = budget;
  if (o.overflow == RaasOverflow::kExtend && config.max_prompt_tokens != 0) {
    const uint64_t extended = uint64_t{whole_pages(config.max_prompt_tokens)} + o.min_decode_pages;
    needs.pages_per_stream = static_cast<uint32_t>(
        std::min<uint64_t>(whole_pages(needs.context_tokens), std::max<uint64_t>(budget, extended)));
  }
  const bool holds_all = uint64_t{needs.pages_per_stream} * kPageTokens >= needs.context_tokens;
  const uint32_t least =
      o.pin_prompt ? o.min_decode_pages + 1 : o.min_decode_pages;  // pages; a pinned prompt takes one at least
  if (!holds_all && needs.pages_per_stream < least) {
    return fail(WEIR_ERR_BUDGET, "policy raas with min_decode_pages=%u needs a budget of at least %u tokens, not %u",
                o.min_decode_pages, least * kPageTokens, config.budget_tokens);
  }
  needs.page_mass = o.exact_mass != 0 && !holds_all;
  needs.digest = o.exact_mass == 0 && !holds_all ? o.digest : DigestKind::kNone;
  // Without a store for spilled pages, auto means compress (algorithms 2.6).
  const bool compress = o.overflow == RaasOverflow::kAuto || o.overflow == RaasOverflow::kCompress;
  needs.prompt_policy = compress && o.pin_prompt && !holds_all;
  needs.prompt_pages = o.pin_prompt && !holds_all ? needs.pages_per_stream - o.min_decode_pages : 0;
  static_assert(sizeof(RaasPolicy) <= sizeof(storage.bytes));
  out = new (storage.bytes) RaasPolicy(needs, o, config.attn_scale);
  return {};
}

}  // namespace weir
