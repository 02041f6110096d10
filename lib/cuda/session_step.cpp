// What a decode step of a session on the GPU consists of, kernel after kernel; session.cpp records it.
#include "cuda/attn_decode.cuh"
#include "cuda/cuda_ops.h"
#include "cuda/cuda_session.h"
#include "cuda/gemv.cuh"
#include "cuda/page_score.cuh"

namespace weir::cuda {

PageStampArgs CudaSession::stamp_args(uint32_t layer, const PageLists& lists) const {
  const KvView kv = a_.kv->view(layer);
  PageStampArgs stamp = {};
  stamp.weight = a_.b.page_mass;
  stamp.select = lists.select;
  stamp.n_select = lists.n_select;
  stamp.stamp = a_.kv->stamps(layer);
  stamp.last_score = a_.kv->last_scores(layer);
  stamp.flags = a_.kv->flags(layer);
  stamp.n_pages = kv.n_pages;
  stamp.capacity = kv.capacity;
  stamp.n_heads = a_.config->n_heads;
  stamp.n_kv_heads = kv.n_kv_heads;
  stamp.rule = a_.rules.stamp_rule;
  stamp.rank_all = a_.rules.rank_all;
  stamp.r = a_.rules.r;
  stamp.alpha = a_.rules.alpha;
  return stamp;
}

Status CudaSession::enqueue_observation(uint32_t layer, const PageLists& lists) {
  const StepRules& rules = a_.rules;
  if (rules.observe == StepRules::Observe::kNone || layer < rules.observe_from_layer) return {};
  const KvView kv = a_.kv->view(layer);
  const uint32_t n_heads = a_.config->n_heads;
  if (rules.observe == StepRules::Observe::kAccumulate) {
    return page_accumulate(a_.cx, {a_.b.page_mass, a_.kv->last_scores(layer), kv.len, kv.n_pages, kv.capacity, n_heads,
                                   kv.n_kv_heads, rules.accumulate});
  }
  PageStampArgs stamp = stamp_args(layer, lists);
  if (rules.observe == StepRules::Observe::kStampDigest) {
    WEIR_TRY(page_score(a_.cx, {a_.b.page_score, a_.b.q, kv, n_heads, rules.stamp_spread}));
    WEIR_TRY(
        page_softmax(a_.cx, {a_.b.page_score, kv.n_pages, kv.capacity, n_heads, kv.n_kv_heads, a_.config->attn_scale}));
    stamp.weight = a_.b.page_score;
    stamp.select = stamp.n_select = nullptr;
  }
  return page_stamp_at(a_.cx, stamp, n_tokens());
}

Status CudaSession::enqueue_attention(uint32_t layer, bool selects, uint32_t parts) {
  const StepRules& rules = a_.rules;
  const KvView kv = a_.kv->view(layer);
  const bool selected = is_selected(layer, selects);
  // Attention and scoring rotate for themselves; other readers of the rotated query, and digests of other kinds, need rope_append before.
  const bool scores_alone = has_page_score_step(kv.digest, kv.head_dim, a_.config->n_heads / kv.n_kv_heads);
  const bool apart = (kv.digest != DigestKind::kNone && kv.digest != DigestKind::kMinMax) ||
                     rules.observe == StepRules::Observe::kStampDigest || (selected && !scores_alone);
  const RopeAppendArgs rope = rope_args(layer, 1, 0);
  if (apart && (parts & part_bit(kPartOther)) != 0) {
    WEIR_TRY(rope_append_at(a_.cx, rope, n_tokens()));
    if (kv.digest != DigestKind::kNone && kv.digest != DigestKind::kMinMax)
      WEIR_TRY(page_digest(a_.cx, {kv, a_.kv->append_rows(layer), 1}));
  }
  PageLists lists;
  if (selected) {
    const PageScoreArgs score = {a_.b.page_score, a_.b.q, kv, a_.config->n_heads, rules.spread};
    if ((parts & part_bit(kPartScore)) != 0)
      WEIR_TRY(apart ? page_score(a_.cx, score) : page_score_step(a_.cx, {score, rope}));
    PageSelectArgs select = {};
    select.score = a_.b.page_score;
    select.group_score = a_.kv->last_scores(layer);
    select.select = a_.b.select;
    select.n_select = a_.b.n_select;
    select.flags = a_.kv->flags(layer);
    select.n_pages = kv.n_pages;
    select.capacity = kv.capacity;
    select.n_heads = a_.config->n_heads;
    select.n_kv_heads = kv.n_kv_heads;
    select.scale = a_.config->attn_scale;
    select.agg = rules.agg;
    select.budget = rules.select_budget;
    select.candidate_flags = rules.candidate_flags;
    select.n_sink_pages = rules.sink_pages;
    if ((parts & part_bit(kPartSelect)) != 0) WEIR_TRY(page_select(a_.cx, select));
    lists = {a_.b.select, a_.b.n_select};
  }
  bool stamped = false;  // by the attention kernel
  if ((parts & part_bit(kPartAttention)) != 0) {
    AttnDecodeArgs d;
    d.attn = attn_args(layer, 1, 0);
    d.attn.select = lists.select;
    d.attn.n_select = lists.n_select;
    d.attn.list_per_head = lists.select != nullptr && a_.needs->list_per_head;
    const bool observed = rules.observe != StepRules::Observe::kNone && layer >= rules.observe_from_layer;
    d.attn.page_mass = observed ? a_.b.page_mass : nullptr;
    d.append = !apart;
    d.rope = rope;
    if (d.append) d.attn.q_sink = nullptr;
    d.n_tokens = n_tokens();
    d.scratch = a_.device.module;
    d.counters = a_.device.counters;
    d.pages_attended = reinterpret_cast<unsigned long long*>(&a_.device.state->pages_attended);
    d.overlap = true;
    stamped = parts == kAllParts && observed && rules.observe == StepRules::Observe::kStampMass &&
              rules.stamp_rule == StampRule::kAlpha && attn_decode_can_stamp(d.attn);
    d.stamps = stamped;
    if (stamped) d.stamp = stamp_args(layer, lists);
    WEIR_TRY(attn_decode(a_.cx, d));
  }
  return (parts & part_bit(kPartOther)) != 0 && !stamped ? enqueue_observation(layer, lists) : Status();
}

Status CudaSession::enqueue_layer(uint32_t layer, bool selects, uint32_t parts) {
  const ModelConfig& c = *a_.config;
  const LayerWeights& w = weights(layer);
  const StepBuffers& b = a_.b;
  const bool products = (parts & part_bit(kPartGemv)) != 0;
  GemvArgs g;
  g.overlap = true;
  g.eps = c.norm_eps;
  if (products) {
    g.part[0] = {w.wq, w.bq, b.q, false};
    g.part[1] = {w.wk, w.bk, b.k, false};
    g.part[2] = {w.wv, w.bv, b.v, false};
    g.n_parts = 3;
    g.x = b.x;
    g.norm = w.attn_norm;
    WEIR_TRY(gemv(a_.cx, g));
  }
  WEIR_TRY(enqueue_attention(layer, selects, parts));
  if (!products) return {};
  g.part[0] = {w.wo, nullptr, b.x, true};
  g.n_parts = 1;
  g.x = b.o;
  g.norm = nullptr;
  WEIR_TRY(gemv(a_.cx, g));
  g.part[0] = {w.gate, nullptr, b.g, false};
  g.part[1] = {w.up, nullptr, nullptr, false};
  g.n_parts = 2;
  g.x = b.x;
  g.norm = w.ffn_norm;
  g.glu = true;
  WEIR_TRY(gemv(a_.cx, g));
  g.part[0] = {w.down, nullptr, b.x, true};
  g.n_parts = 1;
  g.x = b.g;
  g.norm = nullptr;
  g.glu = false;
  return gemv(a_.cx, g);
}

Status CudaSession::enqueue_step(bool selects, uint32_t parts) {
  const ModelConfig& c = *a_.config;
  const bool other = (parts & part_bit(kPartOther)) != 0;
  if (other && parts == kAllParts) {
    StepBeginArgs begin = {};
    begin.tables = a_.kv->tables();
    begin.rules = a_.rules;
    begin.state = a_.device.state;
    begin.angles = a_.device.angles;
    begin.magnitude = a_.rope->magnitude();
    begin.rope_dim = a_.rope->rope_dim();
    begin.cos_sin = a_.b.cos_sin;
    begin.cos_sin_sink = a_.b.cos_sin_sink;
    begin.counter = a_.device.counters + kBeginCounter;
    WEIR_TRY(step_begin(a_.cx, begin));
    WEIR_TRY(embed(a_.cx, {a_.b.x, a_.weights->token_embd, token_, 1}));
  }
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) WEIR_TRY(enqueue_layer(layer, selects, parts));
  if ((parts & part_bit(kPartGemv)) != 0) {
    GemvArgs g;
    g.part[0] = {a_.weights->output, nullptr, a_.b.logits, false};
    g.n_parts = 1;
    g.x = a_.b.x;
    g.norm = a_.weights->output_norm;
    g.eps = c.norm_eps;
    g.overlap = true;
    WEIR_TRY(gemv(a_.cx, g));
  }
  return other && parts == kAllParts ? step_end(a_.cx, end_args(true)) : Status();
}

}  // namespace weir::cuda
