// What each session does with its own pages in a layer: it rotates the query and key, appends, makes digests, lets the
// policy select pages, attends, and lets the policy observe.
#include "models/attend.h"

#include <algorithm>
#include <numeric>

#include "kv/page_copies.h"
#include "models/compensate.h"
#include "ops/attn_history.h"
#include "ops/attn_paged.h"
#include "ops/attn_progressive.h"
#include "ops/hadamard.h"
#include "ops/page_digest.h"
#include "ops/rope_append.h"
#include "ops/temper.h"
#include "policy/policy.h"

namespace weir {

AttnScope scope_in(const AttnScope& policy, const Attention& attention) {
  if (attention.window == 0) return policy;
  AttnScope scope;
  scope.window = attention.window;
  return scope;
}

RopeAppendArgs rope_append_args(const AttendPass& pass, const Attention& attention, uint32_t layer) {
  RopeAppendArgs a = {};
  a.q = pass.b.q;
  a.q_sink = pass.b.q_sink;
  a.k = pass.b.k;
  a.v = pass.b.v;
  a.q_norm = attention.q_norm;
  a.k_norm = attention.k_norm;
  a.norm_eps = pass.config.norm_eps;
  const size_t rotation = pass.b.rotation(pass.b.first_rotation + attention.rotation, pass.rope.rope_dim());
  a.cos_sin = pass.b.cos_sin + rotation;
  a.cos_sin_sink = pass.b.cos_sin_sink == nullptr ? nullptr : pass.b.cos_sin_sink + rotation;
  a.rope_dim = pass.rope.rope_dim();
  a.layout = pass.config.arch->rope_layout;
  a.n_tok = pass.n_tok;
  a.n_heads = pass.config.n_heads;
  a.pos = pass.pos;
  a.kv = pass.kv.view(layer);
  a.append_row = pass.kv.append_rows(layer);
  return a;
}

Status temper_queries(OpContext& cx, const OpTable& ops, const AttendPass& pass, float* q, const uint32_t* pos_at) {
  const ModelConfig& c = pass.config;
  if (c.temperature.beta == 0.0f) return {};
  return ops.temper(cx, {q, pass.n_tok, c.n_heads * c.head_dim, c.temperature, pass.pos, pos_at});
}

AttnPagedArgs attn_paged_args(const AttendPass& pass, const Attention& attention, uint32_t layer) {
  const AttnScope scope = scope_in(pass.scope, attention);
  AttnPagedArgs a = {};
  a.out = pass.b.o;
  a.q = pass.b.q;
  a.q_sink = pass.b.q_sink;
  a.kv = pass.kv.view(layer);
  a.n_tok = pass.n_tok;
  a.n_heads = pass.config.n_heads;
  a.pos = pass.pos;
  a.scale = pass.config.attn_scale;
  a.n_sink_pages = scope.n_sink_pages;
  a.n_sink = scope.n_sink;
  a.window = scope.window;
  a.sinks = attention.sinks;
  a.soft_cap = attention.soft_cap;
  set_head_windows(pass.kv, layer, a);
  return a;
}

void set_head_windows(const KvCache& kv, uint32_t layer, AttnPagedArgs& args) {
  args.head_windows = kv.head_windows(layer);
  args.head_sinks = kv.shape().windows.sinks;
}

void list_whole_windows(const KvCache& kv, uint32_t layer, uint32_t n_heads, bool list_per_head, uint32_t* select,
                        uint32_t* n_select) {
  const uint32_t* windows = kv.head_windows(layer);
  const KvView view = kv.view(layer);
  const uint32_t n_lists = list_per_head ? n_heads : view.n_kv_heads;
  for (uint32_t list = 0; windows != nullptr && list < n_lists; ++list) {
    const uint32_t kv_head = list / (n_lists / view.n_kv_heads);
    if (windows[kv_head] == 0) continue;
    n_select[list] = view.n_pages[kv_head];
    std::iota(select + size_t{list} * view.capacity, select + size_t{list} * view.capacity + n_select[list], 0u);
  }
}

namespace {

// Attends the streams with windows of their own again, whole: attention that stops by itself knows no windows.
Status attend_windows(OpContext& cx, const OpTable& ops, const AttnPagedArgs& attn, uint32_t* select,
                      uint32_t* n_select) {
  const uint32_t group = attn.n_heads / attn.kv.n_kv_heads;
  for (uint32_t kv_head = 0; attn.head_windows != nullptr && kv_head < attn.kv.n_kv_heads; ++kv_head) {
    if (!has_own_window(attn, kv_head)) continue;
    AttnPagedArgs a = args_of_head(attn, kv_head);
    const size_t head = size_t{kv_head} * group, table = size_t{kv_head} * a.kv.capacity;
    a.out += head * a.kv.head_dim;
    a.q += head * a.kv.head_dim;
    a.n_heads = group;
    a.kv.n_kv_heads = 1;
    a.kv.slots += table;
    a.kv.first_pos += table;
    a.kv.len += table;
    a.kv.n_pages += kv_head;
    if (a.kv.open != nullptr) a.kv.open += kv_head * (kv_page_bytes(KvFormat::kBf16, a.kv.head_dim) / sizeof(uint16_t));
    a.head_windows = nullptr;
    if (a.page_mass != nullptr) a.page_mass += head * a.kv.capacity;
    if (a.lse != nullptr) a.lse += head;
    if (a.sinks != nullptr) a.sinks += head;
    WEIR_TRY(ops.attn_paged(cx, a));
    n_select[kv_head] = *a.kv.n_pages;
    std::iota(select + table, select + table + *a.kv.n_pages, 0u);
  }
  return {};
}

}  // namespace

Status attend_until_enough(OpContext& cx, const OpTable& ops, const AttnPagedArgs& attn, const PageLists& lists,
                           uint32_t* select, uint32_t* n_select) {
  WEIR_TRY(ops.attn_progressive(
      cx, {.attn = attn, .select = select, .n_select = n_select, .stop = lists.stop, .source = lists.source}));
  return attend_windows(cx, ops, attn, select, n_select);
}

bool digests_are_due(DigestKind digest, uint32_t pos, uint32_t n_tok) {
  return digest != DigestKind::kNone && digest != DigestKind::kMinMax &&
         pos / kPageTokens != (pos + n_tok) / kPageTokens;
}

namespace {

bool has_history(const Step& s, const Attention& attention, uint32_t layer) {
  const PolicyNeeds& needs = s.policy->needs();
  return needs.history.group != 0 && is_ruled(attention) && layer >= needs.history_from_layer;
}

AttnHistoryArgs history_args(const Step& s, const AttnPagedArgs& attn, uint32_t layer) {
  AttnHistoryArgs a = {attn, s.kv->history(layer), s.policy->history_rules(), {}, s.kv->flags(layer), s.b.n_select};
  a.size = s.policy->history_size(attn.pos + 1 - std::min(attn.pos + 1, a.rules.n_sink));
  a.ahead = s.b.ahead;
  return a;
}

// Where the queries are kept that the layer learns from.
float* learn_rows(const Step& s, uint32_t layer) {
  const KvShape& shape = s.kv->shape();
  const size_t number = shape.n_global(layer) - shape.n_global(shape.history_from_layer);
  const ModelConfig& c = s.model->config();
  return s.b.learn_q + number * s.policy->needs().prompt_rows * c.n_heads * c.head_dim;
}

// Attention over the tokens that mattered to earlier steps.
Status attend_history(Step& s, const AttnPagedArgs& attn, uint32_t layer) {
  WEIR_TRY(s.backend->ops.attn_history(s.cx, history_args(s, attn, layer)));
  for (uint32_t i = 0; i < attn.kv.n_kv_heads; ++i) s.pages_attended += whole_pages(s.b.n_select[i]);
  return {};
}

}  // namespace

Status check_cancel(const Step& s, uint32_t layer) {
  if (s.cancel == nullptr || !s.cancel->is_set()) return {};
  return fail(WEIR_ERR_CANCELLED, "cancelled in layer %u", layer);
}

Status learn(Step& s) {
  if (s.is_decode || s.n_left != 0 || s.b.learn_q == nullptr) return {};
  const ModelConfig& c = s.model->config();
  const uint32_t n_rows = std::min(s.n_tok, s.policy->needs().prompt_rows);
  // What only this prompt has taught goes with its tokens.
  const bool can_forget = !s.kv->has_learned();
  bool has_begun = false;
  for (uint32_t layer = 0; layer < c.n_kv_layers; ++layer) {
    const Attention& attention = s.model->weights().attention(layer);
    if (!has_history(s, attention, layer)) continue;
    if (can_forget || !has_begun) WEIR_TRY(check_cancel(s, layer));
    has_begun = true;
    WEIR_TRY(s.policy->observe_prompt(s.cx, s.backend->ops, *s.kv,
                                      {.layer = layer,
                                       .n_heads = c.n_heads,
                                       .q = learn_rows(s, layer),
                                       .lse = s.b.lse,
                                       .n_rows = n_rows,
                                       .pos = s.kv->n_tokens() + s.n_tok - n_rows,
                                       .n_left = 0,
                                       .token_mass = s.b.token_mass,
                                       .window = attention.window,
                                       .soft_cap = attention.soft_cap}));
  }
  return {};
}

Status look_ahead(Step& s, uint32_t layer) {
  const Attention& attention = s.model->weights().attention(layer);
  if (!s.is_decode || s.b.ahead.tokens == nullptr || !has_history(s, attention, layer)) return {};
  const AttendPass pass = {s.model->config(), s.model->rope(), *s.kv, s.b, s.scope, 1, s.kv->n_tokens()};
  AttnHistoryArgs a = history_args(s, attn_paged_args(pass, attention, layer), layer);
  a.only_looks_ahead = true;
  return s.backend->ops.attn_history(s.cx, a);
}

Status append_rows(Step& s, const StepBuffers& b, uint32_t row, uint32_t layer, AttnPagedArgs& attn) {
  const ModelConfig& c = s.model->config();
  const Attention& attention = s.model->weights().attention(layer);
  const size_t q_at = size_t{row} * c.n_heads * c.head_dim, kv_at = size_t{row} * c.n_kv_heads * c.head_dim;
  const AttendPass pass = {c, s.model->rope(), *s.kv, s.b, s.scope, s.n_tok, s.kv->n_tokens()};
  RopeAppendArgs append = rope_append_args(pass, attention, layer);
  append.q = b.q + q_at;
  append.k = b.k + kv_at;
  append.v = b.v + kv_at;
  WEIR_TRY(temper_queries(s.cx, s.backend->ops, pass, append.q));
  if (rotates_values(append.kv.format))
    rotate_rows(*s.cx.pool, b.v + kv_at, size_t{s.n_tok} * c.n_kv_heads, c.head_dim);
  WEIR_TRY(s.backend->ops.rope_append(s.cx, append));
  if (digests_are_due(append.kv.digest, pass.pos, pass.n_tok)) {
    const uint32_t n_rows = whole_pages(pass.pos + pass.n_tok) - pass.pos / kPageTokens;
    WEIR_TRY(s.backend->ops.page_digest(s.cx, {append.kv, append.append_row, n_rows}));
  }
  attn = attn_paged_args(pass, attention, layer);
  attn.q = append.q;
  attn.out = b.o + q_at;
  if (append.kv.format != KvFormat::kBf16 && s.n_tok > 1) {
    attn.k_rows = append.k;
    attn.v_rows = append.v;
  }
  return {};
}

namespace {

Status attend_step(Step& s, AttnPagedArgs attn, uint32_t layer) {
  const Attention& attention = s.model->weights().attention(layer);
  const OpTable& ops = s.backend->ops;
  const uint32_t n_heads = attn.n_heads;
  PageLists lists;
  const bool ruled = is_ruled(attention);
  if (has_history(s, attention, layer)) return attend_history(s, attn, layer);
  if (s.b.select != nullptr && ruled)
    WEIR_TRY(s.policy->select(s.cx, ops, *s.kv,
                              {layer, n_heads, attn.q, s.b.page_score, s.b.select, s.b.n_select, s.copies, s.b.fetcher},
                              lists));
  if (lists.select != nullptr)
    list_whole_windows(*s.kv, layer, n_heads, s.policy->needs().list_per_head, s.b.select, s.b.n_select);
  WEIR_TRY(s.copies->failure());
  attn.list_per_head = lists.select != nullptr && s.policy->needs().list_per_head;
  attn.page_mass = ruled || s.trace != nullptr ? s.b.page_mass : nullptr;
  attn.lse = has_compensation(*s.kv, attn) ? s.b.lse : nullptr;
  if (lists.stop.microbatch != 0) {
    WEIR_TRY(attend_until_enough(s.cx, ops, attn, lists, s.b.select, s.b.n_select));
  } else {
    attn.select = lists.select;
    attn.n_select = lists.n_select;
    if (lists.n_tokens != 0) attn.tokens = {lists.n_tokens, s.policy->step_rules().sink_pages, s.kv->flags(layer)};
    WEIR_TRY(ops.attn_paged(s.cx, attn));
  }
  compensate(*s.kv, layer, attn);
  if (lists.source != nullptr) WEIR_TRY(s.copies->failure());
  // Single tokens count as the pages that they would fill.
  const uint32_t n_most = lists.n_tokens != 0 ? whole_pages(lists.n_tokens) : UINT32_MAX;
  const uint32_t* n_listed = lists.select != nullptr ? lists.n_select : attn.kv.n_pages;
  for (uint32_t i = 0; i < (attn.list_per_head ? n_heads : attn.kv.n_kv_heads); ++i)
    s.pages_attended += std::min(n_listed[i], n_most);
  if (ruled)
    WEIR_TRY(s.policy->observe(s.cx, ops, *s.kv,
                               {layer, n_heads, attn.q, s.b.page_mass, s.b.page_score, lists, attn.pos + 1}));
  if (s.trace == nullptr) return {};
  return s.trace->layer(*s.kv, attn.pos + 1, layer, n_heads, s.policy->needs().list_per_head, lists, s.b.page_mass);
}

Status attend_chunk(Step& s, AttnPagedArgs attn, uint32_t layer) {
  const Attention& attention = s.model->weights().attention(layer);
  attn.lse = is_ruled(attention) ? s.b.lse : nullptr;
  const bool on_device = attends_on_device(s, attn);
  if (!on_device && is_ruled(attention) && has_cold_pages(s, layer)) return attend_chunk_cold(s, attn, layer);
  if (on_device) {
    WEIR_TRY(attend_chunk_on_device(s, attn, layer));
  } else {
    WEIR_TRY(s.backend->ops.attn_paged(s.cx, attn));
    compensate(*s.kv, layer, attn);
  }
  if (attn.lse == nullptr || s.policy->needs().prompt_rows == 0) return {};
  const uint32_t n_rows = std::min(s.n_tok, s.policy->needs().prompt_rows), first = s.n_tok - n_rows;
  if (s.policy->needs().history.group != 0) {
    if (s.n_left == 0 && has_history(s, attention, layer)) {
      const size_t row = size_t{attn.n_heads} * attn.kv.head_dim;
      std::copy_n(attn.q + first * row, n_rows * row, learn_rows(s, layer));
    }
    return {};
  }
  return s.policy->observe_prompt(s.cx, s.backend->ops, *s.kv,
                                  {.layer = layer,
                                   .n_heads = attn.n_heads,
                                   .q = attn.q + size_t{first} * attn.n_heads * attn.kv.head_dim,
                                   .lse = s.b.lse + size_t{first} * attn.n_heads,
                                   .n_rows = n_rows,
                                   .pos = attn.pos + first,
                                   .n_left = s.n_left,
                                   .token_mass = s.b.token_mass,
                                   .window = attention.window,
                                   .soft_cap = attention.soft_cap});
}

}  // namespace

Status attend_rows(Step& s, const AttnPagedArgs& attn, uint32_t layer) {
  WEIR_TRY(s.is_decode ? attend_step(s, attn, layer) : attend_chunk(s, attn, layer));
  if (rotates_values(attn.kv.format))
    rotate_rows(*s.cx.pool, attn.out, size_t{attn.n_tok} * attn.n_heads, attn.kv.head_dim);
  return {};
}

}  // namespace weir
