// The kernels of a decode step on a device, in order; a module records them. Their order is that of the walk through
// the layers (lib/models/walk.h).
//
// When several sessions step together, a GEMV runs once, in the leader's queue. Everything else each session runs for
// itself, in its own queue. Where the queues fork or join, a kernel waits for all kernels before it: `overlap` needs a
// single predecessor in the same queue.
#include "device/base_session.h"
#include "device/kernels/attn_decode.h"
#include "device/kernels/attn_stop.h"
#include "device/kernels/experts_step.h"
#include "device/kernels/gemv.h"
#include "device/kernels/list_windows.h"
#include "device/kernels/page_recall.h"
#include "device/kernels/page_score_step.h"
#include "device/kernels/page_softmax.h"
#include "device/kernels/page_stamp_at.h"
#include "device/kernels/rope_append_at.h"
#include "device/kernels/rotate_heads.h"
#include "device/kernels/sparse_layer.h"
#include "device/kernels/step_begin.h"
#include "device/kernels/step_end.h"
#include "kv/kv_cache.h"
#include "kv/recurrent_state.h"
#include "models/walk.h"
#include "ops/attn_stop.h"
#include "ops/embed.h"
#include "ops/matmul.h"
#include "ops/page_accumulate.h"
#include "ops/page_digest.h"
#include "ops/page_score.h"
#include "ops/page_select.h"
#include "ops/page_stamp.h"
#include "ops/rms_norm.h"
#include "ops/rope_append.h"
#include "ops/soft_cap.h"
#include "policy/policy.h"

namespace weir::device {

PageStampArgs BaseSession::stamp_args(uint32_t layer, const PageLists& lists) const {
  const KvView kv = a_.kv->view(layer);
  PageStampArgs stamp = {};
  stamp.weight = page_mass(layer);
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
  stamp.gap = a_.kv->last_gaps(layer);
  return stamp;
}

Status BaseSession::enqueue_observation(uint32_t layer, const PageLists& lists) {
  const StepRules& rules = a_.rules;
  if (!observes(layer)) return {};
  const KvView kv = a_.kv->view(layer);
  const uint32_t n_heads = a_.config->n_heads;
  PageStampArgs stamp = stamp_args(layer, lists);
  switch (rules.observe) {
    case StepRules::Observe::kNone:
      return {};
    case StepRules::Observe::kAccumulate:
      return ops_.page_accumulate(a_.cx, {.weight = page_mass(layer),
                                          .score = a_.kv->last_scores(layer),
                                          .len = kv.len,
                                          .n_pages = kv.n_pages,
                                          .capacity = kv.capacity,
                                          .n_heads = n_heads,
                                          .n_kv_heads = kv.n_kv_heads,
                                          .rule = rules.accumulate,
                                          .flags = a_.kv->flags(layer),
                                          .mark = rules.marks ? a_.kv->stamps(layer) : nullptr,
                                          .n_tokens = n_tokens(),
                                          .first_pos = kv.first_pos,
                                          .first_stream = layer * kv.n_kv_heads,
                                          .options = rules.accumulate_options});
    case StepRules::Observe::kStampMass:
      return queue_.page_stamp_at({stamp, a_.device.state});
    case StepRules::Observe::kStampDigest:
      WEIR_TRY(
          ops_.page_score(a_.cx, {a_.b.page_score, a_.b.q, kv, n_heads, rules.stamp_spread, a_.config->attn_scale}));
      WEIR_TRY(queue_.page_softmax(
          {a_.b.page_score, kv.n_pages, kv.capacity, n_heads, kv.n_kv_heads, a_.config->attn_scale}));
      stamp.weight = a_.b.page_score;
      stamp.select = stamp.n_select = nullptr;
      return queue_.page_stamp_at({stamp, a_.device.state});
  }
  return {};
}

PageSelectArgs BaseSession::select_args(uint32_t layer) const {
  const KvView kv = a_.kv->view(layer);
  PageSelectArgs select = {};
  select.score = a_.b.page_score;
  select.group_score = a_.kv->last_scores(layer);
  select.select = this->select(layer);
  select.n_select = n_select(layer);
  select.flags = a_.kv->flags(layer);
  select.n_pages = kv.n_pages;
  select.capacity = kv.capacity;
  select.n_heads = a_.config->n_heads;
  select.n_kv_heads = kv.n_kv_heads;
  select.scale = a_.config->attn_scale;
  select.agg = a_.rules.agg;
  select.budget = a_.rules.select_budget;
  select.candidate_flags = a_.rules.candidate_flags;
  select.n_sink_pages = a_.rules.sink_pages;
  return select;
}

// Arguments of a decode step's attention over all pages of each stream.
AttnDecodeArgs BaseSession::decode_args(uint32_t layer, bool append, bool overlap) const {
  const Attention& attention = a_.weights->attention(layer);
  AttnDecodeArgs d;
  d.attn = attn_paged_args(pass_of(1, 0), attention, layer);
  d.attn.page_mass = observes(layer) || traces() ? page_mass(layer) : nullptr;
  d.append = append;
  d.rope = rope_append_args(pass_of(1, 0), attention, layer);
  if (d.append) d.attn.q_sink = nullptr;
  d.attn.lse = compensates(layer) ? a_.b.lse : nullptr;
  d.rotates_back = rotates_values(d.attn.kv.format) && !compensates(layer);  // what is added is rotated, too
  d.n_tokens = n_tokens();
  d.scratch = a_.device.module;
  d.counters = a_.device.counters;
  d.pages_attended = reinterpret_cast<unsigned long long*>(&a_.device.state->pages_attended);
  d.overlap = overlap;
  return d;
}

static AttnStop stop_of(const StepRules& rules) {
  AttnStop stop;
  stop.n_sink_pages = rules.sink_pages;
  stop.microbatch = rules.stop_microbatch;
  stop.eps = rules.stop_eps;
  stop.quiet_pages = rules.stop_quiet_pages;
  stop.quiet_share = rules.stop_quiet_share;
  return stop;
}

// With what the kernels of a layer that selects have left of it.
AttnStop BaseSession::stop_args(uint32_t layer) const {
  AttnStop stop = stop_of(a_.rules);
  stop.rank = a_.kv->last_scores(layer);
  stop.flags = a_.kv->flags(layer);
  if (a_.rules.stop_by_bounds) stop.bound = a_.b.page_score;
  return stop;
}

// `overlap` applies to the first kernel.
Status BaseSession::enqueue_attention(uint32_t layer, bool selects, uint32_t parts, bool overlap) {
  const StepRules& rules = a_.rules;
  const KvView kv = a_.kv->view(layer);
  if ((parts & part_bit(kPartOther)) != 0) WEIR_TRY(temper_queries(a_.cx, ops_, pass_of(1, 0), a_.b.q, n_tokens()));
  const bool selected = is_selected(layer, selects);
  const bool stops = selected && rules.stop_microbatch != 0;
  // The attention and score kernels rotate the query themselves. Other readers of the rotated query, and digests that
  // must be made before these read them, need rope_append before. So do bounds, of which the open page has one with its
  // new key.
  const bool others_read = rules.observe == StepRules::Observe::kStampDigest || (stops && rules.stop_by_bounds);
  if (selected && !others_read && !traces()) {
    SparseLayerArgs all = {decode_args(layer, true, overlap), select_args(layer)};
    all.attn.attn.list_per_head = a_.needs->list_per_head;
    all.stop = stop_of(rules);
    all.attn.rotates_back = false;  // rotate_output does it
    if (recalls()) {
      all.recall = recall_args(layer);
      all.recall.only_lists = parts != kAllParts;
    }
    if (queue_.has_sparse_layer(all)) {
      if ((parts & part_bit(kPartAttention)) == 0) return {};
      WEIR_TRY(queue_.sparse_layer(all));
      return rotate_output(1);
    }
  }
  const bool scores_alone = queue_.has_page_score_step(kv.digest, kv.head_dim, a_.config->n_heads / kv.n_kv_heads);
  // Compensation reads the rotated query, too.
  const bool appends_alone = !stops || queue_.attn_stop_appends(decode_args(layer, false, false).attn);
  const bool apart = others_read || (selected && !scores_alone) || !appends_alone || compensates(layer) ||
                     (!queue_.append_keeps_digest(kv.digest) && !digests_behind_steps());
  const RopeAppendArgs rope = rope_append_args(pass_of(1, 0), a_.weights->attention(layer), layer);
  if (apart && (parts & part_bit(kPartOther)) != 0) {
    WEIR_TRY(rotate_new_values(1, overlap));
    WEIR_TRY(queue_.rope_append_at({rope, n_tokens(), overlap || rotates_values(kv.format)}));
    if (kv.digest != DigestKind::kNone && kv.digest != DigestKind::kMinMax && !digests_behind_steps())
      WEIR_TRY(ops_.page_digest(a_.cx, {kv, a_.kv->append_rows(layer), 1}));
  }
  PageLists lists;
  if (selected) {
    const PageScoreArgs score = {a_.b.page_score, a_.b.q, kv, a_.config->n_heads, rules.spread, a_.config->attn_scale};
    if ((parts & part_bit(kPartScore)) != 0)
      WEIR_TRY(apart ? ops_.page_score(a_.cx, score) : queue_.page_score_step({score, rope, overlap}));
    if ((parts & part_bit(kPartSelect)) != 0) WEIR_TRY(ops_.page_select(a_.cx, select_args(layer)));
    lists = {select(layer), n_select(layer)};
    const uint32_t* windows = a_.kv->head_windows(layer);
    if (windows != nullptr && !stops && (parts & part_bit(kPartSelect)) != 0) {
      const uint32_t n_lists = a_.needs->list_per_head ? a_.config->n_heads : kv.n_kv_heads;
      WEIR_TRY(queue_.list_windows(
          {select(layer), n_select(layer), windows, kv.n_pages, kv.capacity, n_lists, kv.n_kv_heads}));
    }
    if (recalls()) {
      PageRecallArgs recall = recall_args(layer);
      recall.only_lists = parts != kAllParts;
      WEIR_TRY(queue_.page_recall(recall));
    }
  }
  if (stops) {
    if ((parts & part_bit(kPartAttention)) == 0) return {};
    const AttnDecodeArgs d = decode_args(layer, !apart, true);
    WEIR_TRY(queue_.attn_stop({d, stop_args(layer), rules.select_budget, select(layer), n_select(layer)}));
    return compensates(layer) ? enqueue_compensation(layer, d.attn, d.n_tokens) : Status();
  }
  bool stamped = false;  // by the attention kernel
  if ((parts & part_bit(kPartAttention)) != 0) {
    AttnDecodeArgs d = decode_args(layer, !apart, overlap || apart || selected);
    d.attn.select = lists.select;
    d.attn.n_select = lists.n_select;
    d.attn.list_per_head = lists.select != nullptr && a_.needs->list_per_head;
    const bool observed = observes(layer);
    d.stamp = stamp_args(layer, lists);
    stamped = parts == kAllParts && observed && !compensates(layer) &&
              rules.observe == StepRules::Observe::kStampMass && queue_.attn_decode_can_stamp(d.attn, d.stamp);
    d.stamps = stamped;
    WEIR_TRY(queue_.attn_decode(d));
    if (compensates(layer)) WEIR_TRY(enqueue_compensation(layer, d.attn, d.n_tokens));
  }
  return (parts & part_bit(kPartOther)) != 0 && !stamped ? enqueue_observation(layer, lists) : Status();
}

// Lets every session enqueue its own kernels, as branches after the leader's queue that join it again.
template <class F>
Status BaseSession::enqueue_each(const SessionGroup& group, const F& enqueue) {
  if (group.n > 1) WEIR_TRY(queue_.begin_branches());
  for (uint32_t i = 0; i < group.n; ++i) {
    BaseSession& session = *group.session[i];
    if (i > 0) WEIR_TRY(queue_.begin_branch(session.queue_));
    WEIR_TRY(enqueue(session, group.selects[i]));
    if (i > 0) WEIR_TRY(queue_.end_branch(session.queue_));
  }
  return {};
}

// Whether a stage's last kernels run session by session, in branches of the recording.
static bool ends_in_branches(const Stage& stage) {
  switch (stage.kind) {
    case Stage::Kind::kAttend:
    case Stage::Kind::kNorm:
    case Stage::Kind::kHeadGate:
    case Stage::Kind::kMix:
    case Stage::Kind::kExperts:
      return true;
    case Stage::Kind::kProject:
    case Stage::Kind::kGlu:
      break;
  }
  return stage.post_norm != nullptr;
}

// One GEMV for all sessions. column(buffers) returns a session's input and its parts' outputs; the rest is the same for
// all.
template <class Column>
Status BaseSession::enqueue_gemv(const SessionGroup& group, GemvArgs g, const Column& column) {
  static_assert(kMaxTogether <= kMaxColumns);
  GemvColumn more[kMaxTogether - 1];
  for (uint32_t i = 1; i < group.n; ++i) more[i - 1] = column(group.session[i]->a_.b);
  const GemvColumn first = column(a_.b);
  g.x = first.x;
  for (uint32_t i = 0; i < g.n_parts; ++i) g.part[i].y = first.y[i];
  g.more = more;
  g.n_more = group.n - 1;
  return queue_.gemv(g);
}

// The norm after a stage, of every session's `r`. By kernels that start when the one before has ended.
Status BaseSession::enqueue_post_norm(const SessionGroup& group, const Stage& stage) {
  if ((group.parts & part_bit(kPartOther)) == 0) return {};
  return enqueue_each(group, [&](BaseSession& session, bool) {
    const StepBuffers& b = session.a_.b;
    MatmulPart part = {stage.part[0].w, nullptr, row_of(b, stage.part[0].y), stage.part[0].accumulate};
    return session.ops_.rms_norm(session.a_.cx, take_to_norm(b, *a_.config, stage, part, 1));
  });
}

// The stages of a step of a group, recorded by its leader.
class BaseSession::StepWalk final : public LayerWalk {
 public:
  StepWalk(BaseSession& leader, const SessionGroup& group) : s_(leader), group_(group) {}

 private:
  Status attend(uint32_t layer) override {
    return s_.enqueue_each(group_, [&](BaseSession& session, bool selects) {
      return session.enqueue_attention(layer, selects, group_.parts, group_.n == 1);
    });
  }

  Status mix(const Layer& layer) override {
    if (!records(kPartOther)) return {};
    return s_.enqueue_each(group_,
                           [&](BaseSession& session, bool) { return session.enqueue_mix(layer, 1, group_.n > 1); });
  }

  Status compute(const StageAt& at) override {
    const Stage& stage = at.stage;
    switch (stage.kind) {
      case Stage::Kind::kExperts:
        if (!records(kPartGemv)) return {};
        return s_.enqueue_each(group_, [&](BaseSession& session, bool) {
          return session.enqueue_experts(at.number, stage, group_.n == 1);
        });
      case Stage::Kind::kNorm:
      case Stage::Kind::kHeadGate:
        if (!records(kPartOther)) return {};
        return s_.enqueue_each(group_, [&](BaseSession& session, bool) {
          return compute_rows({session.ops_, session.a_.cx, session.a_.b, *session.a_.config, 1, group_.n > 1}, at);
        });
      case Stage::Kind::kProject:
      case Stage::Kind::kGlu:
      case Stage::Kind::kAttend:
      case Stage::Kind::kMix:
        break;
    }
    // The sessions' branches come right before at the beginning of the recording, after attention, and after a norm of
    // a stage's result.
    const bool after_branches = at.before == nullptr || ends_in_branches(*at.before);
    if (records(kPartGemv)) WEIR_TRY(s_.enqueue_products(group_, stage, after_branches));
    return stage.post_norm == nullptr ? Status() : s_.enqueue_post_norm(group_, stage);
  }

  bool records(uint32_t part) const { return (group_.parts & part_bit(part)) != 0; }

  BaseSession& s_;
  const SessionGroup& group_;
};

Status BaseSession::enqueue_mix(const Layer& layer, uint32_t n_tok, bool forked) {
  LayerState state = a_.recurrent->layer(layer.kind.number, &a_.device.state->recurrent);
  state.forked = forked;
  return mix_rows({ops_, a_.cx, a_.b, *a_.config, n_tok}, layer, 0, n_tok, state);
}

// Sessions that step together each read the experts that they chose.
Status BaseSession::enqueue_experts(uint32_t layer, const Stage& stage, bool overlap) {
  ExpertsStepArgs step;
  step.op = experts_args(layers()[layer], stage, a_.b.x, 1, a_.b.x);
  step.norm = stage.norm;
  step.eps = a_.config->norm_eps;
  step.counter = a_.device.counters + kRouteCounter;
  step.overlap = overlap;
  return queue_.experts_step(step);
}

Status BaseSession::enqueue_products(const SessionGroup& group, const Stage& stage, bool after_branches) {
  GemvArgs g;
  g.n_parts = stage.n_parts;
  for (uint32_t i = 0; i < stage.n_parts; ++i) {
    const StagePart& part = stage.part[i];
    g.part[i] = {part.w, part.bias, nullptr, part.accumulate && stage.post_norm == nullptr};
  }
  g.norm = stage.norm;
  g.eps = a_.config->norm_eps;
  g.glu = stage.kind == Stage::Kind::kGlu;
  g.activation = stage.gate;
  g.overlap = group.n == 1 || !after_branches;
  return enqueue_gemv(group, g, [&](const StepBuffers& b) {
    GemvColumn column = {row_of(b, stage.x), {}};
    for (uint32_t i = 0; i < stage.n_parts; ++i)
      column.y[i] = stage.post_norm != nullptr ? b.r : row_of(b, stage.part[i].y);
    return column;
  });
}

Status BaseSession::enqueue_begin() {
  StepBeginArgs begin = {};
  begin.tables = a_.kv->tables();
  begin.rules = a_.rules;
  begin.state = a_.device.state;
  begin.angles = a_.device.angles;
  begin.rope_dim = a_.rope->rope_dim();
  begin.n_rotations = a_.rope->n_rotations();
  for (uint32_t i = 0; i < begin.n_rotations; ++i) begin.magnitude[i] = a_.rope->magnitude(i);
  begin.stride = static_cast<uint32_t>(a_.b.rotation(1, begin.rope_dim));
  begin.cos_sin = a_.b.cos_sin;
  begin.cos_sin_sink = a_.b.cos_sin_sink;
  begin.counter = a_.device.counters + kBeginCounter;
  begin.events = {events_, a_.host.events.capacity};
  begin.left = left_at();
  if (recalls()) {
    const KvView kv = a_.kv->view(0);
    begin.raw_index = a_.device.raw_index;
    begin.resident = a_.device.resident;
    begin.max_capacity = a_.kv->shape().max_capacity();
    begin.digests = kv.digests;
    begin.digest_elements = static_cast<uint32_t>(digest_elements(kv.digest, kv.head_dim));
  }
  WEIR_TRY(queue_.step_begin(begin));
  return ops_.embed(a_.cx, {a_.b.x, a_.weights->token_embd, token_, 1, a_.config->embedding_scale});
}

Status BaseSession::enqueue_step(const SessionGroup& group) {
  const bool whole = group.parts == kAllParts;
  if (whole) WEIR_TRY(enqueue_each(group, [](BaseSession& session, bool) { return session.enqueue_begin(); }));
  WEIR_TRY(StepWalk(*this, group).run(layers()));
  if ((group.parts & part_bit(kPartGemv)) != 0) {
    GemvArgs g;
    g.part[0] = {a_.weights->output, nullptr, nullptr, false};
    g.n_parts = 1;
    g.norm = a_.weights->output_norm;
    g.eps = a_.config->norm_eps;
    g.overlap = group.n == 1 || !ends_in_branches(layers().back().stages().back());
    WEIR_TRY(enqueue_gemv(group, g, [](const StepBuffers& b) { return GemvColumn{b.x, {b.logits}}; }));
  }
  if (!whole) return {};
  return enqueue_each(group, [&](BaseSession& session, bool) {
    const ModelConfig& c = *session.a_.config;
    if (c.logit_soft_cap != 0.0f)
      WEIR_TRY(session.ops_.soft_cap(session.a_.cx, {session.a_.b.logits, c.vocab_size, c.logit_soft_cap}));
    StepEndArgs end = session.end_args(true);
    end.overlap = group.n == 1;
    return session.queue_.step_end(end);
  });
}

}  // namespace weir::device
