// A session on the GPU. A decode step is one CUDA graph, recorded when the session is created: it begins with the page tables (victims leave, pages
// open), runs the layers in five kernels each (more where a policy scores and selects), and ends with the greedy token. The host writes the step's
// token into memory that the device sees, launches the graph and waits; positions, page counts and budgets are read on the device.
#include "cuda/session.h"

#include <cstring>
#include <new>

#include "cuda/attn_decode.cuh"
#include "cuda/attn_prefill.h"
#include "cuda/common.cuh"
#include "cuda/cuda_ops.h"
#include "cuda/gemv.cuh"
#include "cuda/page_score.cuh"
#include "cuda/step.cuh"

namespace weir::cuda {
namespace {

// Where the shared counters lie.
constexpr uint32_t kBeginCounter = DeviceBuffers::kCounters - 6, kEndCounter = DeviceBuffers::kCounters - 4,
                   kBestKey = DeviceBuffers::kCounters - 2;

// Parts of a step to record, for measurements.
constexpr uint32_t part_bit(uint32_t part) { return 1u << part; }
constexpr uint32_t kAllParts = (1u << kParts) - 1;

class CudaSession final : public DeviceSession {
 public:
  explicit CudaSession(const DeviceSessionArgs& args) : a_(args) {}
  ~CudaSession() override;
  Status create();

  Status put_tables() override;
  Status get_tables() override;
  Status run_chunk(const DeviceChunk& chunk) override;
  Status token_mass(uint32_t layer, const TokenMassArgs& a) override;
  Status step(int32_t token) override;
  Status get_logits() override;
  Status fill_noise(uint64_t seed) override;
  Status rebuild_last_digests() override;
  Status profile_step(int32_t token, double* seconds) override;

 private:
  // Remembers a lost device: all later calls fail alike.
  Status note(Status status);
  Status wait(const char* what);
  Status copy_chunk_in(const DeviceChunk& chunk);
  Status enqueue_chunk(const DeviceChunk& chunk);
  Status chunk_layer(const DeviceChunk& chunk, uint32_t layer);
  Status copy_tables(bool in);

  Status record(bool selects, uint32_t parts, cudaGraphExec_t& out);
  Status enqueue_step(bool selects, uint32_t parts);
  Status enqueue_layer(uint32_t layer, bool selects, uint32_t parts);
  Status enqueue_attention(uint32_t layer, bool selects, uint32_t parts);
  Status enqueue_observation(uint32_t layer, const PageLists& lists);
  PageStampArgs stamp_args(uint32_t layer, const PageLists& lists) const;
  // Whether selection can change anything: pages that compete are at most those that the tokens fill, or those of the prompt.
  bool selects_now() const {
    const uint32_t pages =
        a_.rules.candidate_flags != 0 ? n_prompt_pages_ : (a_.host.state->n_tokens + kPageTokens) / kPageTokens;
    return selected_ != nullptr && pages > a_.rules.select_above_pages;
  }
  bool is_selected(uint32_t layer, bool selects) const {
    return selects && a_.rules.selects && layer >= a_.rules.select_from_layer;
  }

  RopeAppendArgs rope_args(uint32_t layer, uint32_t n_tok, uint32_t pos) const;
  AttnPagedArgs attn_args(uint32_t layer, uint32_t n_tok, uint32_t pos) const;
  StepEndArgs end_args(bool commit) const;
  uint32_t* n_tokens() const { return &a_.device.state->n_tokens; }
  const LayerWeights& weights(uint32_t layer) const { return a_.weights->layers[layer]; }

  DeviceSessionArgs a_;
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t all_pages_ = nullptr;  // without selection
  cudaGraphExec_t selected_ = nullptr;   // null when the policy selects nothing
  StepState* mailbox_ = nullptr;         // the device's address of host.state
  int32_t* token_ = nullptr;             // the device's address of host.tokens
  uint32_t n_prompt_pages_ = 0;          // most of a stream
  bool lost_ = false;
};
static_assert(sizeof(CudaSession) <= session_bytes());

CudaSession::~CudaSession() {
  const OnDevice on_device;
  if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
  if (all_pages_ != nullptr) (void)cudaGraphExecDestroy(all_pages_);
  if (selected_ != nullptr) (void)cudaGraphExecDestroy(selected_);
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  (void)cudaGetLastError();
}

Status CudaSession::create() {
  const OnDevice on_device;
  WEIR_CUDA_TRY(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating the session's stream");
  a_.cx.stream = stream_;
  void* address = nullptr;
  WEIR_CUDA_TRY(cudaHostGetDevicePointer(&address, a_.host.state, 0), "mapping staging memory");
  mailbox_ = static_cast<StepState*>(address);
  WEIR_CUDA_TRY(cudaHostGetDevicePointer(&address, a_.host.tokens, 0), "mapping staging memory");
  token_ = static_cast<int32_t*>(address);

  const RopeTable& rope = *a_.rope;
  std::memcpy(a_.host.angles, rope.angles().data(), rope.angles().size() * sizeof(double));
  WEIR_CUDA_TRY(cudaMemcpyAsync(a_.device.angles, a_.host.angles, rope.angles().size() * sizeof(double),
                                cudaMemcpyHostToDevice, stream_),
                "copying rotations");
  WEIR_CUDA_TRY(cudaMemsetAsync(a_.device.counters, 0, DeviceBuffers::kCounters * sizeof(uint32_t), stream_),
                "clearing counters");
  WEIR_TRY(wait("preparing the session"));
  WEIR_TRY(record(false, kAllParts, all_pages_));
  if (a_.rules.selects) WEIR_TRY(record(true, kAllParts, selected_));
  return {};
}

Status CudaSession::note(Status status) {
  if (status.code() == WEIR_ERR_DEVICE_LOST) lost_ = true;
  return status;
}

// Whatever the error is, nobody knows how much of the work was done.
Status CudaSession::wait(const char* what) {
  const cudaError_t error = cudaStreamSynchronize(stream_);
  if (error == cudaSuccess) return {};
  lost_ = true;
  const Status status = cuda_status(error, what);
  if (status.code() == WEIR_ERR_DEVICE_LOST) return status;
  return fail(WEIR_ERR_DEVICE_LOST, "CUDA, %s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

#define WEIR_REQUIRE_DEVICE() \
  const OnDevice on_device;   \
  if (lost_) return fail(WEIR_ERR_DEVICE_LOST, "the device failed earlier in this session; destroy it")

// ------------------------------------------------------------------------------------------------------------------ tables

Status CudaSession::copy_tables(bool in) {
  std::byte* host = a_.host.tables;
  std::byte* device = a_.device.tables;
  const uint64_t bytes = a_.device.table_bytes;
  if (in) {
    WEIR_CUDA_TRY(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_),
                  "copying page tables to the device");
    WEIR_CUDA_TRY(cudaMemcpyAsync(a_.device.state, a_.host.state, sizeof(StepState), cudaMemcpyHostToDevice, stream_),
                  "copying the state");
  } else {
    WEIR_CUDA_TRY(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_),
                  "copying page tables from the device");
    WEIR_CUDA_TRY(cudaMemcpyAsync(a_.host.state, a_.device.state, sizeof(StepState), cudaMemcpyDeviceToHost, stream_),
                  "copying the state");
  }
  return wait("copying page tables");
}

Status CudaSession::put_tables() {
  WEIR_REQUIRE_DEVICE();
  // The host's tables lie as the device's do.
  const KvTables tables = a_.kv->tables();
  const auto host = [&](const uint32_t* device) {
    return reinterpret_cast<const uint32_t*>(a_.host.tables +
                                             (reinterpret_cast<const std::byte*>(device) - a_.device.tables));
  };
  n_prompt_pages_ = 0;
  for (uint32_t layer = 0; layer < tables.n_layers; ++layer) {
    // Of a layer's first stream, which stands for the layer.
    const uint32_t* flags = host(a_.kv->flags(layer));
    const uint32_t n = host(tables.n_pages)[layer * tables.n_kv_heads];
    uint32_t n_prompt = 0;
    for (uint32_t row = 0; row < n; ++row) n_prompt += (flags[row] & kPagePrompt) != 0 ? 1u : 0u;
    n_prompt_pages_ = n_prompt > n_prompt_pages_ ? n_prompt : n_prompt_pages_;
  }
  return note(copy_tables(true));
}

Status CudaSession::get_tables() {
  WEIR_REQUIRE_DEVICE();
  return note(copy_tables(false));
}

// ------------------------------------------------------------------------------------------------------------ prompt chunks

RopeAppendArgs CudaSession::rope_args(uint32_t layer, uint32_t n_tok, uint32_t pos) const {
  const ModelConfig& c = *a_.config;
  const LayerWeights& w = weights(layer);
  RopeAppendArgs r = {};
  r.q = a_.b.q;
  r.q_sink = a_.b.q_sink;
  r.k = a_.b.k;
  r.v = a_.b.v;
  r.q_norm = w.q_norm;
  r.k_norm = w.k_norm;
  r.norm_eps = c.norm_eps;
  r.cos_sin = a_.b.cos_sin;
  r.cos_sin_sink = a_.b.cos_sin_sink;
  r.rope_dim = a_.rope->rope_dim();
  r.layout = c.arch->rope_layout;
  r.n_tok = n_tok;
  r.n_heads = c.n_heads;
  r.pos = pos;
  r.kv = a_.kv->view(layer);
  r.append_row = a_.kv->append_rows(layer);
  return r;
}

AttnPagedArgs CudaSession::attn_args(uint32_t layer, uint32_t n_tok, uint32_t pos) const {
  const ModelConfig& c = *a_.config;
  AttnPagedArgs t = {};
  t.out = a_.b.o;
  t.q = a_.b.q;
  t.q_sink = a_.b.q_sink;
  t.kv = a_.kv->view(layer);
  t.n_tok = n_tok;
  t.n_heads = c.n_heads;
  t.pos = pos;
  t.scale = c.attn_scale;
  t.n_sink_pages = a_.rules.n_sink_pages;
  t.n_sink = a_.rules.n_sink;
  t.window = a_.rules.window;
  return t;
}

Status CudaSession::copy_chunk_in(const DeviceChunk& chunk) {
  const auto copy = [&](void* to, const void* from, size_t bytes) {
    WEIR_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "copying a prompt chunk");
    return Status();
  };
  const size_t rotations = size_t{chunk.n_tok} * a_.rope->rope_dim() * sizeof(float);
  WEIR_TRY(copy(a_.device.tokens, a_.host.tokens, chunk.n_tok * sizeof(int32_t)));
  WEIR_TRY(copy(a_.b.cos_sin, a_.host.cos_sin, rotations));
  return a_.b.cos_sin_sink == nullptr ? Status() : copy(a_.b.cos_sin_sink, a_.host.cos_sin_sink, rotations);
}

Status CudaSession::token_mass(uint32_t layer, const TokenMassArgs& host) {
  TokenMassArgs a = host;
  a.kv = a_.kv->view(layer);
  a.mass = a_.b.token_mass;
  WEIR_TRY(cuda::token_mass(a_.cx, a));
  const size_t bytes = size_t{a.kv.n_kv_heads} * a.kv.capacity * kPageTokens * sizeof(float);
  WEIR_CUDA_TRY(cudaMemcpyAsync(host.mass, a.mass, bytes, cudaMemcpyDeviceToHost, stream_), "copying token masses");
  return wait("a prompt chunk");
}

Status CudaSession::chunk_layer(const DeviceChunk& chunk, uint32_t layer) {
  const ModelConfig& c = *a_.config;
  const LayerWeights& w = weights(layer);
  const StepBuffers& b = a_.b;
  const uint32_t n = chunk.n_tok;
  WEIR_TRY(rms_norm(a_.cx, {b.h, b.x, w.attn_norm, n, c.d_model, c.norm_eps}));
  WEIR_TRY(matmul(a_.cx, {{{w.wq, w.bq, b.q, false}, {w.wk, w.bk, b.k, false}, {w.wv, w.bv, b.v, false}}, 3, b.h, n}));
  WEIR_TRY(rope_append(a_.cx, rope_args(layer, n, chunk.pos)));
  const KvView kv = a_.kv->view(layer);
  if (kv.digest != DigestKind::kNone && kv.digest != DigestKind::kMinMax)
    WEIR_TRY(page_digest(a_.cx, {kv, a_.kv->append_rows(layer), n / kPageTokens + 2}));
  AttnPagedArgs attn = attn_args(layer, n, chunk.pos);
  attn.lse = b.lse;
  if (!chunk.sink_moved) attn.q_sink = nullptr;  // the same query: one pass, and dense attention's bits
  WEIR_TRY(attn_prefill(a_.cx, attn));
  if (chunk.observer != nullptr) WEIR_TRY(chunk.observer->observe(layer));
  WEIR_TRY(matmul(a_.cx, {{{w.wo, nullptr, b.x, true}, {}, {}}, 1, b.o, n}));
  WEIR_TRY(rms_norm(a_.cx, {b.h, b.x, w.ffn_norm, n, c.d_model, c.norm_eps}));
  WEIR_TRY(glu_matmul(a_.cx, {b.g, w.gate, w.up, b.h, n}));
  return matmul(a_.cx, {{{w.down, nullptr, b.x, true}, {}, {}}, 1, b.g, n});
}

StepEndArgs CudaSession::end_args(bool commit) const {
  StepEndArgs e = {};
  e.logits = a_.b.logits;
  e.vocab_size = a_.config->vocab_size;
  e.commit = commit;
  e.state = a_.device.state;
  e.mailbox = mailbox_;
  e.best = reinterpret_cast<unsigned long long*>(a_.device.counters + kBestKey);
  e.counter = a_.device.counters + kEndCounter;
  return e;
}

Status CudaSession::enqueue_chunk(const DeviceChunk& chunk) {
  const ModelConfig& c = *a_.config;
  WEIR_TRY(copy_chunk_in(chunk));
  WEIR_TRY(embed(a_.cx, {a_.b.x, a_.weights->token_embd, a_.device.tokens, chunk.n_tok}));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    if (chunk.cancel != nullptr && chunk.cancel->load(std::memory_order_relaxed))
      return fail(WEIR_ERR_CANCELLED, "cancelled in layer %u", layer);
    WEIR_TRY(chunk_layer(chunk, layer));
  }
  if (!chunk.want_logits) return {};
  GemvArgs logits;
  logits.part[0] = {a_.weights->output, nullptr, a_.b.logits, false};
  logits.n_parts = 1;
  logits.x = a_.b.x + size_t{chunk.n_tok - 1} * c.d_model;
  logits.norm = a_.weights->output_norm;
  logits.eps = c.norm_eps;
  WEIR_TRY(gemv(a_.cx, logits));
  return step_end(a_.cx, end_args(false));
}

Status CudaSession::run_chunk(const DeviceChunk& chunk) {
  WEIR_REQUIRE_DEVICE();
  const Status status = enqueue_chunk(chunk);
  const Status waited =
      note(wait("a prompt chunk"));  // whatever was enqueued before a failure ends before the caller goes on
  return status.ok() ? waited : note(status);
}

// --------------------------------------------------------------------------------------------------------------- decode steps

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

Status CudaSession::record(bool selects, uint32_t parts, cudaGraphExec_t& out) {
  WEIR_CUDA_TRY(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "recording a step");
  const Status status = enqueue_step(selects, parts);
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
  if (!status.ok() || ended != cudaSuccess) {
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    return status.ok() ? cuda_status(ended, "recording a step") : status;
  }
  const cudaError_t made = cudaGraphInstantiate(&out, graph, 0);
  (void)cudaGraphDestroy(graph);
  WEIR_CUDA_TRY(made, "making the step's graph");
  WEIR_CUDA_TRY(cudaGraphUpload(out, stream_), "uploading the step's graph");
  return wait("uploading the step's graph");
}

Status CudaSession::step(int32_t token) {
  WEIR_REQUIRE_DEVICE();
  const bool selects = selects_now();
  a_.host.tokens[0] = token;
  WEIR_TRY(note(cuda_status(cudaGraphLaunch(selects ? selected_ : all_pages_, stream_), "launching a step")));
  return note(wait("a decode step"));
}

Status CudaSession::get_logits() {
  WEIR_REQUIRE_DEVICE();
  const size_t bytes = a_.config->vocab_size * sizeof(float);
  WEIR_TRY(note(cuda_status(cudaMemcpyAsync(a_.host.logits, a_.b.logits, bytes, cudaMemcpyDeviceToHost, stream_),
                            "copying logits")));
  return note(wait("copying logits"));
}

// -------------------------------------------------------------------------------------------------------------- for benchmarks

Status CudaSession::rebuild_last_digests() {
  WEIR_REQUIRE_DEVICE();
  for (uint32_t layer = 0; layer < a_.config->n_layers; ++layer) {
    const KvView kv = a_.kv->view(layer);
    if (kv.digest == DigestKind::kMinMax) WEIR_TRY(rebuild_last_minmax(a_.cx, kv));
  }
  return note(wait("making digests"));
}

Status CudaSession::fill_noise(uint64_t seed) {
  WEIR_REQUIRE_DEVICE();
  const KvShape& shape = a_.kv->shape();
  const KvView first = a_.kv->view(0);
  WEIR_TRY(cuda::fill_noise(a_.cx, first.pool, shape.n_slots() * first.page_elements(), seed));
  for (uint32_t layer = 0; layer < a_.config->n_layers && first.digest != DigestKind::kNone; ++layer) {
    const KvView kv = a_.kv->view(layer);
    // Counters are zero between kernels: every stream's first row.
    WEIR_TRY(page_digest(a_.cx, {kv, a_.device.counters, kv.capacity}));
  }
  WEIR_TRY(note(wait("filling pages")));
  return first.digest == DigestKind::kMinMax ? rebuild_last_digests() : Status();
}

// Times graphs of one part each, between the steps that the caller made; they write where a step does, beyond the tokens that count.
Status CudaSession::profile_step(int32_t token, double* seconds) {
  WEIR_REQUIRE_DEVICE();
  constexpr uint32_t kRepeats = 20;
  // The parts append once more where the step's token went on: there must be a place in the open page.
  do {
    WEIR_TRY(step(token));
  } while (a_.host.state->n_tokens % kPageTokens == 0);
  const bool selects = selects_now();
  cudaEvent_t start = nullptr, stop = nullptr;
  WEIR_CUDA_TRY(cudaEventCreate(&start), "creating an event");
  cudaError_t error = cudaEventCreate(&stop);
  Status status;
  for (uint32_t part = 0; part < kParts && error == cudaSuccess && status.ok(); ++part) {
    seconds[part] = 0.0;
    cudaGraphExec_t graph = nullptr;
    if (part == kPartOther || (!selects && (part == kPartScore || part == kPartSelect))) continue;
    status = record(selects, part_bit(part), graph);
    if (!status.ok()) {
      if (graph != nullptr) (void)cudaGraphExecDestroy(graph);
      break;
    }
    float ms = 0.0f;
    error = cudaGraphLaunch(graph, stream_);
    if (error == cudaSuccess) error = cudaEventRecord(start, stream_);
    for (uint32_t i = 0; i < kRepeats && error == cudaSuccess; ++i) error = cudaGraphLaunch(graph, stream_);
    if (error == cudaSuccess) error = cudaEventRecord(stop, stream_);
    if (error == cudaSuccess) error = cudaEventSynchronize(stop);
    if (error == cudaSuccess) error = cudaEventElapsedTime(&ms, start, stop);
    seconds[part] = ms * 1e-3 / kRepeats;
    (void)cudaGraphExecDestroy(graph);
  }
  (void)cudaEventDestroy(start);
  if (stop != nullptr) (void)cudaEventDestroy(stop);
  if (!status.ok()) return note(status);
  if (error != cudaSuccess) return note(cuda_status(error, "measuring the parts of a step"));
  return rebuild_last_digests();  // attention appended a key that does not count
}

}  // namespace

uint64_t session_device_bytes(const OpShapes& shapes) { return attn_decode_scratch_bytes(shapes); }

Status create_session(void* place, const DeviceSessionArgs& args, DeviceSession*& out) {
  auto* session = new (place) CudaSession(args);
  const Status status = session->create();
  if (!status.ok()) {
    session->~CudaSession();
    return status;
  }
  out = session;
  return {};
}

}  // namespace weir::cuda
