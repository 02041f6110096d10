// SnapKV: of a prompt, those pages stay that its last queries (the window) attend to most, and the window's own pages.
// It is a prompt policy: it stands before another policy, decides what of a prompt stays, and leaves decoding to the
// policy behind it.
// Paper: Li et al., "SnapKV: LLM Knows What You are Looking for Before Generation", arXiv:2404.14469, sec. 4;
// docs/algorithms.md, "SnapKV".
// Differs from the paper: whole pages stay, scored by their best token; each KV head decides by the mean over its query
// heads; and a prompt that does not fit the table is read in chunks, each compressed by its own last queries, so that
// the budget holds at every moment. A prompt that fits in one chunk is compressed once, by the window at its end, as in
// the paper. Pooling takes the mean; neighbours outside the prompt, in the window or in pages that left count as 0.
#include "policy/snapkv.h"

#include <algorithm>
#include <cmath>

namespace weir {
namespace {

// Pages of a stream that must stay available for an answer: the open page, and one that can leave for the next.
constexpr uint32_t kFreePages = 2;

}  // namespace

Policy* SnapKvPolicy::copy_to(PolicyStorage& storage) const {
  return new (storage.prompt_bytes) SnapKvPolicy(*next_.copy_to(storage), needs_, o_, attn_scale_);
}

uint32_t SnapKvPolicy::pages_of(uint32_t stream) const {
  const uint32_t layer = stream / o_.n_kv_heads;
  if (!o_.by_layer.differ() || layer < o_.n_wide_layers) return o_.pages;
  const uint32_t every = std::max(1u, o_.global_every);
  return o_.by_layer.prompt_pages(layer / every - o_.n_wide_layers / every);
}

uint32_t SnapKvPolicy::prompt_pages(const StreamView& s) {
  return static_cast<uint32_t>(
      std::count_if(s.flags, s.flags + s.n_pages, [](uint32_t flags) { return (flags & kPagePrompt) != 0; }));
}

uint32_t SnapKvPolicy::max_pages(const StreamView& s) const {
  const auto kept = static_cast<uint32_t>(std::count_if(s.flags, s.flags + s.n_pages, [](uint32_t flags) {
    return (flags & kPageKept) != 0 && (flags & kPagePrompt) == 0;
  }));
  return s.capacity - std::min(s.capacity, kept + kFreePages);
}

uint32_t SnapKvPolicy::limit(const StreamView& s, uint32_t stream) const {
  return std::min(pages_of(stream), max_pages(s));
}

uint32_t SnapKvPolicy::staying(const StreamView& s, uint32_t stream) const {
  const auto n_first = static_cast<uint32_t>(
      std::count_if(s.flags, s.flags + s.n_pages, [](uint32_t flags) { return (flags & kPageFirstPrompt) != 0; }));
  const uint32_t room = limit(s, stream), beside_window = room - std::min(room, window_pages() + 1);
  return n_first <= std::min(room / 2, beside_window) ? kPageKept | kPageFirstPrompt : kPageKept;
}

uint32_t SnapKvPolicy::best_leaving(const StreamView& s, uint32_t window, uint32_t staying) const {
  uint32_t best = kNone, n_stay = 0;
  for (uint32_t row = 0; row < s.n_pages; ++row) {
    if ((s.flags[row] & kPagePrompt) == 0) continue;
    if (!std::signbit(s.prompt_score[row])) {
      ++n_stay;
    } else if (may_leave(s, row, window, staying) && (best == kNone || s.prompt_score[row] < s.prompt_score[best])) {
      best = row;
    }
  }
  const uint32_t most = next_.needs().prompt_pages != 0 ? next_.needs().prompt_pages : UINT32_MAX;
  return n_stay < std::min(most, max_pages(s)) ? best : kNone;
}

void SnapKvPolicy::share_among_heads(const KvCache& kv, uint32_t layer, uint32_t end) const {
  const uint32_t first = layer * kv.shape().n_kv_heads, last = first + kv.shape().n_kv_heads;
  const auto window_of = [&](const StreamView& s) { return window_row(s, end, o_.pages); };
  uint32_t n_left = 0;  // pages that the layer may still keep
  for (uint32_t i = first; i < last; ++i) {
    if (kv.window(i) != 0) continue;
    const StreamView s = kv.stream(i);
    const uint32_t window = window_of(s), stays = staying(s, i);
    uint32_t n_stay = 0;
    for (uint32_t row = 0; row < s.n_pages; ++row) {
      const bool leaves = may_leave(s, row, window, stays);
      s.prompt_score[row] = std::copysign(s.prompt_score[row], leaves ? -1.0f : 1.0f);
      n_stay += !leaves && (s.flags[row] & kPagePrompt) != 0 ? 1 : 0;
    }
    for (uint32_t best; n_stay < o_.min_pages && (best = best_leaving(s, window, stays)) != kNone; ++n_stay)
      s.prompt_score[best] = -s.prompt_score[best];
    n_left += o_.pages - std::min(o_.pages, n_stay);
  }
  for (; n_left > 0; --n_left) {
    float* best = nullptr;
    for (uint32_t i = first; i < last; ++i) {
      if (kv.window(i) != 0) continue;
      const StreamView s = kv.stream(i);
      const uint32_t row = best_leaving(s, window_of(s), staying(s, i));
      if (row != kNone && (best == nullptr || s.prompt_score[row] < *best)) best = &s.prompt_score[row];
    }
    if (best == nullptr) return;
    *best = -*best;
  }
}

// A prompt of any length can be made to fit, if the pages that the application pinned leave room for the window.
Status SnapKvPolicy::admit_prompt(const KvCache& kv, uint32_t) const {
  for (uint32_t i = 0; i < kv.shape().n_streams(); ++i) {
    if (kv.window(i) != 0) continue;
    const StreamView s = kv.stream(i);
    const auto kept = static_cast<uint32_t>(
        std::count_if(s.flags, s.flags + s.n_pages, [](uint32_t flags) { return (flags & kPageKept) != 0; }));
    if (kept == 0 || kept + n_front_rows() + window_pages() + 1 + kFreePages <= s.capacity) continue;
    return fail(WEIR_ERR_BUDGET, "%u of %u pages are pinned; a prompt needs %u beside them", kept, s.capacity,
                window_pages() + 1 + kFreePages);
  }
  return {};
}

// As many tokens as fit. When pages must leave, a chunk opens at most half of the pages that the window leaves free. If
// fewer tokens than the window would remain for the last chunk, this chunk is shortened, so that the last one holds the
// whole window (as far as a chunk can be that long).
uint32_t SnapKvPolicy::chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const {
  uint32_t want = std::min(n_left, batch_tokens);
  // All streams have as many pages until the first one is full.
  const StreamView least = bounded_stream(kv);
  const uint32_t capacity = least.capacity;
  if (least.n_pages + kv.pages_to_open(want) > capacity) {
    const uint32_t free = capacity > window_pages() + 1 ? capacity - window_pages() - 1 : 1;
    want = std::min(want, std::max(1u, free / 2) * kPageTokens - kv.n_tokens() % kPageTokens);
  }
  const uint32_t rest = n_left - want;
  return rest > 0 && rest < o_.window && n_left > o_.window && n_left - o_.window <= want ? n_left - o_.window : want;
}

// The prompt page outside the window with the lowest score. While the prompt has no more pages than may stay, pages of
// answers leave first, by the rule of the policy behind.
uint32_t SnapKvPolicy::victim(const StreamView& s, const RoomArgs& room) const {
  if (room.phase == Phase::kDecode) return next_.victim(s, room);
  const uint32_t stays = staying(s, room.stream);
  if (o_.shares && room.phase == Phase::kPromptEnd) {
    const uint32_t window = window_row(s, room.pos, o_.pages);
    for (uint32_t row = 0; row < s.n_pages; ++row) {
      if (may_leave(s, row, window, stays) && std::signbit(s.prompt_score[row])) return row;
    }
  }
  const bool has_share = o_.shares && room.phase == Phase::kPromptEnd;
  const bool above = prompt_pages(s) > (has_share ? max_pages(s) : limit(s, room.stream));
  if (room.phase == Phase::kPromptEnd ? !above : !room.is_full) return kNone;
  if (!above) {
    const uint32_t row = next_.victim(s, room);
    if (row != kNone && !is_filling(s, row) && (s.flags[row] & kPagePrompt) == 0) return row;
  }
  uint32_t best = kNone;
  const uint32_t window = window_row(s, room.pos, pages_of(room.stream));
  for (uint32_t row = 0; row < window; ++row) {
    // Among pages that were pinned with an earlier prompt, only those of the first one are still prompt pages here.
    if (!may_leave(s, row, window, stays)) continue;
    if (best == kNone || s.prompt_score[row] < s.prompt_score[best]) best = row;
  }
  return best != kNone || room.phase == Phase::kPromptEnd ? best : next_.victim(s, room);
}

// Scores the pages of a stream: the largest pooled weight of a page's tokens. Tokens from window_begin on do not count.
void SnapKvPolicy::score_stream(const StreamView& s, const float* mass, uint32_t window_begin, float rows) const {
  const auto reach = static_cast<int64_t>(o_.kernel / 2);
  for (uint32_t row = 0; row < s.n_pages; ++row) {
    float best = 0.0f;
    for (uint32_t j = 0; j < s.len[row]; ++j) {
      const int64_t pos = int64_t{s.first_pos[row]} + j;
      if (pos >= window_begin) break;
      float sum = 0.0f;
      for (int64_t at = pos - reach; at <= pos + reach; ++at) {
        // A neighbour lies in this page or in one beside it, which may have left; the kernel reaches no further.
        const int64_t page = at < int64_t{s.first_pos[row]}                  ? int64_t{row} - 1
                             : at >= int64_t{s.first_pos[row]} + kPageTokens ? int64_t{row} + 1
                                                                             : int64_t{row};
        if (at < 0 || at >= window_begin || page < 0 || page >= s.n_pages) continue;
        const int64_t in_page = at - s.first_pos[page];
        if (in_page >= 0 && in_page < s.len[page]) sum += mass[page * kPageTokens + in_page];
      }
      best = std::max(best, sum / static_cast<float>(o_.kernel) / rows);
    }
    s.prompt_score[row] = best;
  }
}

namespace {

// What is said of the last n rows of a chunk alone.
ObservePromptArgs last_rows(ObservePromptArgs a, uint32_t n, uint32_t head_dim) {
  const uint32_t skipped = a.n_rows - std::min(a.n_rows, n);
  a.q += size_t{skipped} * a.n_heads * head_dim;
  a.lse += size_t{skipped} * a.n_heads;
  a.n_rows -= skipped;
  a.pos += skipped;
  return a;
}

}  // namespace

Status SnapKvPolicy::observe_prompt(OpContext& cx, const OpTable& ops, KvCache& kv, const ObservePromptArgs& a) const {
  const uint32_t head_dim = kv.shape().head_dim;
  // The rows are as many as the policy that needs more of them asked for; the policy behind gets its own number.
  if (next_.needs().prompt_rows != 0)
    WEIR_TRY(next_.observe_prompt(cx, ops, kv, last_rows(a, next_.needs().prompt_rows, head_dim)));
  const uint32_t first_stream = ruled_stream(kv, a.layer);
  const StreamView any = kv.stream(first_stream);
  // The last chunk is observed even if everything fits: a later prompt may need the room.
  if (a.n_left > 0 && any.n_pages + whole_pages(a.n_left) <= pages_of(first_stream)) return {};
  const KvView view = kv.view(a.layer);
  const ObservePromptArgs last = last_rows(a, o_.window, head_dim);
  WEIR_TRY(find_token_mass(cx, ops, kv, last));
  for (uint32_t kv_head = 0; kv_head < view.n_kv_heads; ++kv_head) {
    const float* mass = a.token_mass + size_t{kv_head} * view.capacity * kPageTokens;
    score_stream(kv.stream(a.layer * view.n_kv_heads + kv_head), mass, last.pos,
                 static_cast<float>(last.n_rows * (a.n_heads / view.n_kv_heads)));
  }
  if (o_.shares && a.n_left == 0) share_among_heads(kv, a.layer, last.pos + last.n_rows);
  return {};
}

// The prompt pages that stay get the flags that the policy behind gives prompts.
void SnapKvPolicy::prompt_end(KvCache& kv, uint32_t first) const {
  for (uint32_t i = 0; i < kv.shape().n_streams(); ++i) {
    const StreamView s = kv.stream(i);
    for (uint32_t row = 0; row < s.n_pages; ++row) {
      if ((s.flags[row] & kPagePrompt) != 0) s.flags[row] |= next_.prompt_flags();
    }
  }
  next_.prompt_end(kv, first);
}

Status read_snapkv(const char* name, const PolicyConfig& config, const Policy& next, OptionReader& options,
                   SnapKvOptions& o, PolicyNeeds& needs) {
  needs = next.needs();
  uint32_t budget = 0;  // tokens
  uint32_t index = 0;
  const char* const names[] = {name};
  WEIR_TRY(options.get_word(kPromptOption, index, names));
  WEIR_TRY(options.get_u32("prompt_budget", budget, 2 * kPageTokens, 1u << 30));
  WEIR_TRY(options.get_u32("prompt_window", o.window, 1, 4096));
  WEIR_TRY(options.get_u32("prompt_kernel", o.kernel, 1, 2 * kPageTokens + 1));
  WEIR_TRY(options.finish());
  if (o.kernel % 2 == 0) return fail(WEIR_ERR_INVALID_ARG, "option prompt_kernel=%u is not odd", o.kernel);
  constexpr uint32_t kDecodePages = 4;  // the open page and three sealed ones
  const bool holds_all = uint64_t{needs.pages_per_stream} * kPageTokens >= needs.context_tokens;
  if (needs.sink_query) {
    return fail(WEIR_ERR_UNSUPPORTED,
                "prompt=%s keeps pages between sinks and window, for which positions=incache has no room; "
                "positions=abs has",
                name);
  }
  // As many as the policy behind allows. If it has no limit, all but two pages, which the answer needs.
  const uint32_t most = needs.prompt_pages != 0 ? needs.prompt_pages
                        : holds_all             ? needs.pages_per_stream
                                                : needs.pages_per_stream - kFreePages;
  if (budget != 0) {
    o.pages = budget / kPageTokens;
  } else if (needs.prompt_policy) {
    o.pages = most;
  } else if (config.budget_tokens / kPageTokens > kDecodePages) {
    o.pages = std::min(most, config.budget_tokens / kPageTokens - kDecodePages);
  } else {
    return fail(WEIR_ERR_BUDGET, "prompt=%s needs prompt_budget, or a budget of at least %u tokens", name,
                (kDecodePages + 1) * kPageTokens);
  }
  if (o.pages > most) {
    return fail(WEIR_ERR_BUDGET,
                "option prompt_budget=%u leaves no room for decoding in a budget of %u tokens; %u is the most", budget,
                config.budget_tokens, most * kPageTokens);
  }
  // The window's tokens stay, so the default window is at most half of what stays.
  if (!options.has("prompt_window")) o.window = std::min(o.window, std::max(1u, o.pages * kPageTokens / 2));
  if (o.window > o.pages * kPageTokens) {
    return fail(WEIR_ERR_INVALID_ARG, "option prompt_window=%u is more than the %u prompt tokens that stay", o.window,
                o.pages * kPageTokens);
  }
  needs.prompt_rows = std::max(needs.prompt_rows, o.window);
  needs.prompt_scores = true;
  return {};
}

Policy* put_snapkv(const PolicyConfig& config, PolicyStorage& storage, Policy& next, const PolicyNeeds& needs,
                   const SnapKvOptions& o) {
  static_assert(sizeof(SnapKvPolicy) <= sizeof(storage.prompt_bytes));
  return new (storage.prompt_bytes) SnapKvPolicy(next, needs, o, config.attn_scale);
}

Status make_snapkv(const PolicyConfig& config, PolicyStorage& storage, Policy& next, Policy*& out) {
  SnapKvOptions o;
  PolicyNeeds needs;
  OptionReader options("snapkv", config.options, OptionReader::kPromptPolicy);
  WEIR_TRY(read_snapkv("snapkv", config, next, options, o, needs));
  out = put_snapkv(config, storage, next, needs, o);
  return {};
}

}  // namespace weir
