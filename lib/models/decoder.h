// One pass of the decoder over a batch of tokens: a prefill chunk, one decode step, or one decode step of each of
// several sessions. All buffers belong to the sessions; nothing is allocated.
#pragma once

#include <cstdint>

#include "core/cancel.h"
#include "core/memory.h"
#include "core/status.h"
#include "models/buffers.h"
#include "models/model.h"
#include "ops/step_rules.h"
#include "ops/table.h"

namespace weir {

class KvCache;
class PageCopies;
class RecurrentState;
class Policy;
struct PageLists;
struct PolicyNeeds;

// Where the pages of a prompt's attention lie on a device, a part of every stream's at a time.
struct DeviceWindow {
  uint32_t n_rows = 0;          // pages of a stream in a part; 0: the host attends prompts
  std::byte* part = nullptr;    // on the device: tables and pages
  std::byte* gathered[2] = {};  // on the host, in turns
  // On the device: AttnCarry, and [max_tok, n_heads].
  float *high = nullptr, *sum = nullptr, *part_out = nullptr, *lse = nullptr;
  // `max_rows`: most pages of a stream.
  void lay_out(const KvView& kv, uint32_t max_rows, uint32_t n_heads, uint32_t max_tok, Arena& device, Arena& host);
};

// The rows of a pass in the memory of a device, which computes everything but attention. The host has q, k, v, o and
// the logits too, in its own StepBuffers: the first three come from the device in each layer, o goes to it. In both, k
// follows q and v follows k without a gap, for as many rows as the pass has. Attention of prompts may run on the
// device, over pages that pass through it.
class DeviceRows {
 public:
  const Backend* backend = nullptr;
  const ModelWeights* weights = nullptr;  // pointers into device memory
  OpContext cx;
  StepBuffers b;              // those of lay_out_rows
  int32_t* tokens = nullptr;  // [max_tok]
  DeviceWindow window;
  bool has_output = false;  // o of the layer is on the device already

  // Copies to the device or to the host after the ops and copies before. Host memory is in use until wait().
  virtual Status copy_in(void* device, const void* host, uint64_t bytes) = 0;
  virtual Status copy_out(void* host, const void* device, uint64_t bytes) = 0;
  virtual Status wait() = 0;
  // What an op of `backend` returned, with the device's message.
  virtual Status named(Status status) const = 0;

 protected:
  ~DeviceRows() = default;
};

// Sees what a decode step did in each layer; see weir_trace_layer. n_tokens: with the step's token.
class StepTrace {
 public:
  virtual Status layer(const KvCache& kv, uint32_t n_tokens, uint32_t layer, uint32_t n_heads, bool list_per_head,
                       const PageLists& lists, const float* page_mass) = 0;

 protected:
  ~StepTrace() = default;
};

struct Step {
  const Model* model = nullptr;
  const Backend* backend = nullptr;  // with `device` it only attends
  DeviceRows* device = nullptr;      // computes the rest; null: the same backend does
  const Policy* policy = nullptr;
  KvCache* kv = nullptr;
  PageCopies* copies = nullptr;
  const RecurrentState* recurrent = nullptr;
  AttnScope scope;  // the policy's
  OpContext cx;
  StepBuffers b;
  const int32_t* tokens = nullptr;  // [n_tok]
  uint32_t n_tok = 0;
  bool is_decode = false;  // one token whose attention the policy observes
  bool want_logits = false;
  uint32_t n_left = 0;             // prompt tokens that come after this chunk
  StepTrace* trace = nullptr;      // of decode steps
  uint64_t pages_attended = 0;     // out, of a decode step
  uint64_t attention_ns = 0;       // out, with `device`: what the host spent in attention
  const Cancel* cancel = nullptr;  // looked at between the layers; null: never
};

// The rows that matrices read and write, and the logits.
void lay_out_rows(const ModelConfig& config, uint32_t max_tok, Arena& arena, StepBuffers& b);
// Those of lay_out_rows() that the host has when a device computes the pass.
void lay_out_shared_rows(const ModelConfig& config, uint32_t max_tok, Arena& arena, StepBuffers& b);
// What attention needs besides. `max_pages`: most pages of a stream.
void lay_out_attention(const ModelConfig& config, const RopeTable& rope, const PolicyNeeds& needs, uint32_t max_tok,
                       uint32_t max_pages, uint64_t page_bytes, Arena& arena, StepBuffers& b);

// Decode steps of different sessions over one model as one pass: each weight is read once, and each session attends its
// own pages by its own policy. Row i of the activations is that of steps[i], and they lie in the buffers of steps[0],
// which has at least `n` rows.
struct StepGroup {
  Step* const* steps = nullptr;
  uint32_t n = 0;  // their tokens lie one after another, from steps[0]->tokens on
};

// The pass up to the logits, and the logits from what it left in the buffers of steps[0]. They are two functions, so
// that no session's logits change before all groups have gone through the layers. Whatever could make run_logits fail
// half-way makes run_layers fail before it.
Status run_layers(const StepGroup& group);
Status run_logits(const StepGroup& group);

}  // namespace weir
