// Attention of one layer in one session, which is what Stage::Kind::kAttend does. The arguments of its two ops are made
// here for every backend.
#pragma once

#include "core/status.h"
#include "models/decoder.h"
#include "models/layer.h"
#include "ops/step_rules.h"
#include "ops/table.h"

namespace weir {

struct AttnPagedArgs;
struct RopeAppendArgs;

// What attention needs in a pass over some tokens of one session. Positions are those at the beginning of the pass.
struct AttendPass {
  const ModelConfig& config;
  const RopeTable& rope;
  const KvCache& kv;
  const StepBuffers& b;
  const AttnScope& scope;  // the policy's
  uint32_t n_tok = 0;
  uint32_t pos = 0;  // of the first token
};

// Whether the policy rules the layer: it decides which pages stay and which are attended, and observes. A layer with a
// window of its own holds and attends the pages of that window.
inline bool is_ruled(const Attention& attention) { return attention.window == 0; }
// What a layer's attention sees: its own window, or what the policy shows.
AttnScope scope_in(const AttnScope& policy, const Attention& attention);

// Rotates q and k, and writes k and v to their pages. Rows of activations are those of `b`.
RopeAppendArgs rope_append_args(const AttendPass& pass, const Attention& attention, uint32_t layer);
// Attention over all resident pages, without page masses or log-sum-exps. Rows of activations are those of `b`.
// Makes the queries of a pass grow with their positions, where the model's do: from pass.pos on, or from what `pos_at`
// points to in the memory of q. The rotation may come before or after.
Status temper_queries(OpContext& cx, const OpTable& ops, const AttendPass& pass, float* q,
                      const uint32_t* pos_at = nullptr);

AttnPagedArgs attn_paged_args(const AttendPass& pass, const Attention& attention, uint32_t layer);

// Streams with windows of their own see these, and a step attends all their pages whatever the policy selected.
void set_head_windows(const KvCache& kv, uint32_t layer, AttnPagedArgs& args);
void list_whole_windows(const KvCache& kv, uint32_t layer, uint32_t n_heads, bool list_per_head, uint32_t* select,
                        uint32_t* n_select);

// Attention of a decode step that takes what the policy listed until it has seen enough (PageLists::stop); `select` and
// `n_select` are where the lists are, which become what was attended.
Status attend_until_enough(OpContext& cx, const OpTable& ops, const AttnPagedArgs& attn, const PageLists& lists,
                           uint32_t* select, uint32_t* n_select);

// Whether `n_tok` tokens from position `pos` on fill a page, and digests of this kind are made when a page is full.
bool digests_are_due(DigestKind digest, uint32_t pos, uint32_t n_tok);

// Whether some of a layer's pages are cold, and a chunk's attention over all of them (attend_cold.cpp).
bool has_cold_pages(const Step& step, uint32_t layer);
Status attend_chunk_cold(Step& step, AttnPagedArgs attn, uint32_t layer);

// Whether the device attends a chunk over pages that stay on the host, and that attention: the output stays there, and
// attn.lse becomes the host's (attend_device.cpp).
bool attends_on_device(const Step& step, const AttnPagedArgs& attn);
Status attend_chunk_on_device(Step& step, AttnPagedArgs attn, uint32_t layer);

// Does what attention can do before it has a decode step's queries, while a device computes them.
Status look_ahead(Step& step, uint32_t layer);

// WEIR_ERR_CANCELLED: a cancel waits.
Status check_cancel(const Step& step, uint32_t layer);

// After all layers of a prompt's last chunk: attention learns from its last rows. Until then the prompt has changed
// nothing that could not be taken back. A cancel ends this in the middle only where nothing was learned before; then
// nothing is again.
Status learn(Step& step);

// Attention of a layer, in the session of `step`, is these two, one after the other. First q and k are rotated and keys
// and values appended; the session's rows of q, k, v and o begin at row `row` of the buffers `b`, and `attn` becomes
// its arguments. A decode step then selects pages, attends them and observes that; a chunk attends all pages, resident
// or cold, and the policy observes its last rows, unless it recalls pages.
Status append_rows(Step& step, const StepBuffers& b, uint32_t row, uint32_t layer, AttnPagedArgs& attn);
Status attend_rows(Step& step, const AttnPagedArgs& attn, uint32_t layer);

}  // namespace weir
