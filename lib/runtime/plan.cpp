// From options to bytes: the layout of a session's memory. Planning and creating run
// the same layout function, once over arenas that only measure and once over the block, so that the plan cannot differ
// from what is taken.
#include <algorithm>
#include <cstring>

#include "gguf/file_bytes.h"
#include "ops/table.h"
#include "runtime/device_choice.h"
#include "runtime/option_checks.h"
#include "runtime/session.h"
#include "runtime/session_pools.h"

namespace weir {
namespace {

constexpr uint32_t kDefaultBatch = 512;  // where the GEMM of 8B shapes stops gaining on two cores
// A message's beginning and end, those of the message before, and where a long text was cut last.
constexpr uint32_t kDefaultSnapshots = 4;
constexpr uint32_t kMaxSnapshots = 1024;
constexpr uint32_t kDefaultSnapshotTokens = 1024;

uint32_t batch_of(const weir_session_options& o) { return o.batch_tokens == 0 ? kDefaultBatch : o.batch_tokens; }

constexpr size_t kMaxHeadFile = 16 << 20;  // a line of some 40 bytes for each head of any model

// Reads the file that the options name as heads_file, if they do. A mapping of it would fault when somebody cuts it.
Status read_head_file(const weir_session_options& o, FileBytes& bytes, PolicyConfig& config) {
  for (uint32_t i = 0; i < o.n_policy_options; ++i) {
    if (std::strcmp(o.policy_options[i].key, "heads_file") != 0) continue;
    config.head_file_path = o.policy_options[i].value;
    WEIR_TRY(bytes.copy(config.head_file_path, kMaxHeadFile));
    config.head_file = {reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()};
    return {};  // a second one is refused with the other options
  }
  return {};
}

// Tokens of one stream that the caller's budget holds, 0 when there is none. Bytes are for all streams together, those
// of local layers included.
Status budget_of(const weir_session_options& o, const ModelConfig& c, uint32_t& tokens) {
  KvShape shape = {c.n_kv_layers, c.n_kv_heads, c.head_dim};
  shape.window = c.window;
  shape.global_every = c.global_every;
  shape.format = format_of(o);
  const uint64_t local = shape.n_local_streams(), ruled = shape.n_streams() - local;
  // The policy chooses a context that the caller leaves open; then whole windows are paid for.
  const uint32_t context = o.context_tokens != 0 ? o.context_tokens : kMaxTokens;
  const uint64_t local_bytes =
      local * pages_of_window(c.window, std::min(batch_of(o), context), context) * shape.page_bytes() +
      shape.open_bytes();
  const uint64_t page_row = std::max<uint64_t>(ruled, 1) * shape.page_bytes();  // a page in every stream
  tokens = o.budget_tokens;
  if (o.budget_bytes != 0) {
    const uint64_t pages = (o.budget_bytes - std::min(o.budget_bytes, local_bytes)) / page_row;
    if (pages < 2) {
      return fail(WEIR_ERR_BUDGET,
                  "a budget of %llu bytes is below two pages of each of the %llu streams%s%s, %llu bytes",
                  static_cast<unsigned long long>(o.budget_bytes), static_cast<unsigned long long>(ruled),
                  local == 0 ? "" : " under the budget and the windows of the others",
                  shape.open_bytes() == 0 ? "" : " and the pages that take tokens, in bf16",
                  static_cast<unsigned long long>(local_bytes + 2 * page_row));
    }
    tokens = static_cast<uint32_t>(std::min<uint64_t>(pages, kMaxTokens / kPageTokens) * kPageTokens);
  }
  if (tokens != 0 && tokens < 2 * kPageTokens) {
    return fail(WEIR_ERR_BUDGET, "a budget of %u tokens is below two pages, %u tokens", tokens, 2 * kPageTokens);
  }
  return {};
}

weir_session_options without_store(weir_session_options o) {
  o.spill_budget_bytes = o.spill_raw_bytes = o.spill_file_bytes = 0;
  o.spill_path = nullptr;
  o.spill_flags = 0;
  return o;
}

// The bytes of what the setup describes.
void measure(const SessionSetup& setup, const PolicyNeeds& needs, std::span<Part* const> more, weir_plan_info& plan) {
  SessionPools pools;
  KvCache kv;
  SessionParts parts;
  Step step;
  parts.set_up(setup, kv, {}, more);
  lay_out_session(setup, needs, pools, step);
  DeviceTables tables;
  DeviceBuffers device;
  DeviceStaging staging;
  if (setup.module != nullptr) {
    lay_out_staging(setup, needs, pools, parts.list, tables, device, staging);
  } else {
    lay_out_host_parts(pools, parts.list);
  }
  ModuleRows rows;
  if (setup.rows != nullptr) lay_out_device_rows(setup, needs, pools, step.b, rows);
  fill_plan(setup, needs, pools, plan);
}

// Another policy or budget attends where this session does, though it would have chosen another place.
void stay_where(const SessionSetup& setup, weir_session_options& other) {
  if (setup.rows != nullptr) other.flags |= WEIR_SESSION_HOST_ATTENTION;
  if (setup.rows == nullptr && setup.module == nullptr) other.device = WEIR_DEVICE_CPU;
}

// The store gets what the rest leaves of half of dense's memory. False at `fits`: too little for one that is of use.
Status fit_store(const Model& model, const weir_session_options& o, uint32_t n_threads, const DeviceHost& devices,
                 const DeviceWeights& weights, const Policy& policy, SessionSetup& setup, bool& fits) {
  weir_session_options dense = without_store(o);
  stay_where(setup, dense);
  dense.policy = nullptr;
  dense.policy_options = nullptr;
  dense.n_policy_options = 0;
  dense.context_tokens = policy.needs().context_tokens;
  dense.budget_tokens = dense.max_prompt_tokens = 0;
  dense.budget_bytes = 0;
  weir_plan_info whole = WEIR_PLAN_INFO_INIT, rest = WEIR_PLAN_INFO_INIT;
  WEIR_TRY(plan_session(model, dense, n_threads, devices, weights, whole));
  measure(setup, policy.needs(), {}, rest);
  const uint64_t half = whole.total_bytes / 2;
  fits = rest.total_bytes + rest.kv_bytes <= half;
  if (!fits) return {};
  const Status status = plan_store_within(o, half - rest.total_bytes, policy.needs(), setup);
  fits = status.ok() && setup.spill_plan.total_bytes() >= rest.kv_bytes;
  return status.code() == WEIR_ERR_BUDGET ? Status() : status;
}

PolicyConfig describe_model(const weir_session_options& o, const ModelConfig& c) {
  PolicyConfig config;
  config.n_layers = c.n_kv_layers;
  config.n_heads = c.n_heads;
  config.n_kv_heads = c.n_kv_heads;
  config.head_dim = c.head_dim;
  config.context_tokens = o.context_tokens;
  config.trained_tokens = c.context_tokens;
  config.global_every = c.window != 0 ? c.global_every : 0;
  config.max_prompt_tokens = o.max_prompt_tokens;
  config.attn_scale = c.attn_scale;
  config.options = {o.policy_options, o.n_policy_options};
  return config;
}

// Streams and pages, and whether the options fit them.
Status describe_pages(const weir_session_options& o, const ModelConfig& c, const PolicyNeeds& needs,
                      const StreamWindows& windows, SessionSetup& setup) {
  setup.kv = {.n_layers = c.n_kv_layers,
              .n_kv_heads = c.n_kv_heads,
              .head_dim = c.head_dim,
              .pages_per_stream = needs.pages_per_stream,
              .digest = needs.digest,
              .n_wide_layers = needs.n_wide_layers,
              .wide_pages = needs.wide_pages,
              .prompt_scores = needs.prompt_scores,
              .window = c.window,
              .global_every = c.global_every};
  setup.kv.format = format_of(o);
  setup.kv.windows = windows;
  setup.kv.own_pages = windows.pages(setup.max_tok, needs.context_tokens);
  setup.kv.recall_slots = needs.recall_slots;
  setup.kv.leave_at_once = setup.rules.leave_at_once;
  setup.kv.one_pool = needs.one_pool;
  setup.kv.by_layer = needs.layer_pages;
  setup.kv.last_gaps = needs.last_gaps;
  setup.kv.history = needs.history;
  setup.kv.history_from_layer = needs.history_from_layer;
  setup.kv.history.n_layers = setup.kv.n_global(c.n_kv_layers) - setup.kv.n_global(needs.history_from_layer);
  setup.kv.window_pages = pages_of_window(c.window, setup.max_tok, needs.context_tokens);
  const uint64_t pool_bytes = setup.kv.n_slots() * setup.kv.page_bytes() + setup.kv.open_bytes();
  if (windows.any() && o.budget_bytes != 0 && pool_bytes > o.budget_bytes) {
    return fail(WEIR_ERR_BUDGET, "a budget of %llu bytes: with the windows of the option heads the pool takes %llu",
                static_cast<unsigned long long>(o.budget_bytes), static_cast<unsigned long long>(pool_bytes));
  }
  if (windows.any() && o.spill_budget_bytes != 0)
    return fail(WEIR_ERR_UNSUPPORTED, "spill_budget_bytes: with the option heads nothing is stored of what leaves");
  if (!windows.any() && may_keep_copies(needs, setup.rules)) setup.kv.archive_pages = whole_pages(needs.context_tokens);
  if (setup.kv.n_archived_streams() == 0) setup.kv.archive_pages = 0;
  setup.max_archive_pages = setup.kv.archive_pages;
  if (o.spill_budget_bytes == 0) setup.kv.archive_pages = 0;
  setup.trace = (o.flags & WEIR_SESSION_TRACE) != 0;
  if (setup.trace && needs.history.group != 0) {
    return fail(WEIR_ERR_UNSUPPORTED, "WEIR_SESSION_TRACE: policy %s attends single tokens, which have no trace",
                o.policy);
  }
  // Slots are numbered in 32 bits.
  if (setup.kv.n_rows() >= UINT32_MAX) {
    return fail(
        WEIR_ERR_INVALID_ARG,
        "%u tokens in each of %u streams are more pages than can be numbered; a smaller context or budget is needed",
        setup.kv.max_capacity() * kPageTokens, setup.kv.n_streams());
  }
  return {};
}

// The state of recurrent layers and how many snapshots there are of it.
Status describe_recurrent(const weir_session_options& o, const ModelConfig& c, SessionSetup& setup) {
  if (c.recurrent.n_layers == 0) return {};
  const uint64_t bytes = c.recurrent.elements() * sizeof(float);
  const uint64_t n = o.snapshot_budget_bytes == 0 ? kDefaultSnapshots : o.snapshot_budget_bytes / bytes;
  if (n == 0) {
    return fail(
        WEIR_ERR_BUDGET,
        "snapshot_budget_bytes: %llu are less than the %llu bytes of one snapshot; give as many, or 0 for %u of "
        "them",
        static_cast<unsigned long long>(o.snapshot_budget_bytes), static_cast<unsigned long long>(bytes),
        kDefaultSnapshots);
  }
  setup.recurrent.layers = c.recurrent;
  setup.recurrent.n_snapshots = static_cast<uint32_t>(std::min<uint64_t>(n, kMaxSnapshots));
  setup.recurrent.snapshot_tokens = o.snapshot_tokens == 0 ? kDefaultSnapshotTokens : o.snapshot_tokens;
  setup.recurrent.elsewhere = setup.module != nullptr;
  return {};
}

OpShapes describe_shapes(const ModelConfig& c, const PolicyNeeds& needs, const SessionSetup& setup) {
  OpShapes shapes;
  shapes.n_threads = setup.n_threads;
  shapes.max_tok = setup.max_tok;
  shapes.max_cols = c.max_cols();
  shapes.max_rows =
      std::max({c.vocab_size, c.d_ff, row_width(c, c.traits.has(Trait::kHeadGate) ? Row::kQGate : Row::kQ), c.d_model,
                c.recurrent.in_width});
  shapes.n_heads = c.n_heads;
  shapes.n_kv_heads = c.n_kv_heads;
  shapes.head_dim = c.head_dim;
  shapes.max_pages = setup.kv.max_capacity();
  shapes.history_tokens = needs.history.group != 0 ? needs.history.tokens + needs.history.n_sink : 0;
  // A list may be longer than the policy's budget of pages: what the application pins is always in it, and so is the
  // whole window of a head that has one.
  if (setup.rules.attend_tokens != 0) shapes.token_pages = shapes.max_pages;
  shapes.d_model = c.d_model;
  shapes.n_experts = c.n_experts;
  shapes.n_experts_used = c.n_experts_used;
  shapes.expert_ff = c.expert_ff;
  shapes.shared_ff = c.shared_ff;
  shapes.conv_channels = c.recurrent.n_channels;
  shapes.recurrent_width = c.recurrent.width;
  return shapes;
}

Status check_ops(const Backend& backend) {
#define WEIR_OP(op, Args) \
  if (backend.ops.op == nullptr) return fail(WEIR_ERR_UNSUPPORTED, "backend %s has no op " #op, backend.name);
#include "ops/ops.inc"
#undef WEIR_OP
  return {};
}

}  // namespace

Status check_options(const Model& model, const weir_session_options& o, uint32_t n_threads, const DeviceHost& devices,
                     const DeviceWeights& weights, PolicyStorage& storage, Policy*& policy, SessionSetup& setup) {
  if (model.vocab_only())
    return fail(WEIR_ERR_STATE,
                "the model was opened with WEIR_MODEL_VOCAB_ONLY or WEIR_MODEL_DESCRIBE_ONLY and has no weights");
  WEIR_TRY(check_numbers(o));
  const ModelConfig& c = model.config();
  WEIR_TRY(check_format(o, c));
  PolicyConfig config = describe_model(o, c);
  FileBytes head_file;
  WEIR_TRY(read_head_file(o, head_file, config));
  WEIR_TRY(budget_of(o, c, config.budget_tokens));
  WEIR_TRY(make_policy(o.policy, config, storage, policy));

  const PolicyNeeds& needs = policy->needs();
  setup.model = &model;
  setup.rules = policy->step_rules();
  WEIR_TRY(find_backend({o, model, needs, storage.windows.any(), devices, weights}, setup));
  setup.n_threads = n_threads;
  // A conversation without end has no larger chunks than one of the model's context.
  const bool endless = o.context_tokens == 0 && o.batch_tokens == 0 && c.context_tokens != 0;
  setup.max_tok = std::min({batch_of(o), needs.context_tokens, endless ? c.context_tokens : needs.context_tokens});
  WEIR_TRY(describe_recurrent(o, c, setup));
  WEIR_TRY(describe_pages(o, c, needs, storage.windows, setup));
  setup.record = plan_record(needs, setup.kv, c.vocab_size);
  setup.shapes = describe_shapes(c, needs, setup);
  WEIR_TRY(check_ops(*setup.backend));
  const bool by_half = (o.spill_flags & WEIR_SPILL_HALF) != 0 && o.spill_budget_bytes == 0;
  if (!by_half || setup.module != nullptr || !setup.kv.recalls()) return plan_store(o, needs, setup);
  bool fits = false;
  WEIR_TRY(fit_store(model, o, n_threads, devices, weights, *policy, setup, fits));
  if (fits) return {};
  weir_session_options whole = without_store(o);  // in the pool, then
  stay_where(setup, whole);
  whole.budget_tokens = 0;
  whole.budget_bytes = 0;
  policy->~Policy();
  policy = nullptr;
  setup = {};
  return check_options(model, whole, n_threads, devices, weights, storage, policy, setup);
}

// A conversation may become far longer than what its pool holds (sink counts positions in the cache: 2^30 tokens).
// Where it can, a rewind reaches into the pool, and the repetition penalty and the text behind it: tokens before that
// are kept only for rewinds to the beginning. Elsewhere all of them are small beside the pages.
TokenRecord::Shape plan_record(const PolicyNeeds& needs, const KvShape& kv, uint32_t vocab_size) {
  constexpr uint32_t kWholeRecord = 1u << 20;
  TokenRecord::Shape shape = {.context = needs.context_tokens, .vocab_size = vocab_size};
  const uint64_t pool = uint64_t{kv.max_capacity()} * kPageTokens, latest = pool + Sampler::kMaxRecent + kPageTokens;
  if (needs.context_tokens <= kWholeRecord || pool + 4 * latest >= needs.context_tokens) return shape;
  shape.front = static_cast<uint32_t>(pool);
  shape.latest = static_cast<uint32_t>(latest);
  return shape;
}

void lay_out_host_parts(SessionPools& p, const PartList& parts) {
  Arenas arenas = {p.pages, p.digests, p.tables, p.tables, p.sampler, p.recurrent, p.snapshots};
  parts.lay_out(arenas);
}

void lay_out_session(const SessionSetup& setup, const PolicyNeeds& needs, SessionPools& p, Step& step) {
  PolicyNeeds wanted = needs;
  wanted.page_mass = needs.page_mass || setup.trace;
  wanted.row_lse = setup.kv.windows.compensates;
  wanted.history.n_layers = setup.kv.history.n_layers;
  const ModelConfig& c = setup.model->config();
  if (setup.rows == nullptr) lay_out_rows(c, setup.max_tok, p.workspace, step.b);
  lay_out_attention(c, setup.model->rope(), wanted, setup.max_tok, setup.kv.max_capacity(), setup.kv.page_bytes(),
                    p.workspace, step.b);
  step.cx.scratch_bytes = setup.backend->scratch_bytes(setup.shapes);
  step.cx.scratch = p.workspace.take<std::byte>(step.cx.scratch_bytes);
}

namespace {

// The tables are on the device and in staging memory, at the same distances. Pages and digests are on the device alone,
// what only the host uses is in staging memory.
void lay_out_device_tables(const SessionSetup& setup, SessionPools& p, const PartList& parts, DeviceTables& tables,
                           DeviceBuffers& device, DeviceStaging& staging) {
  Arena elsewhere;
  Arenas on_device = {p.pages, p.digests, p.tables, elsewhere, elsewhere, p.recurrent, elsewhere};
  tables.kv.set_shape(setup.kv, &tables.left);
  tables.kv.lay_out(on_device);
  tables.left.lay_out(on_device);
  RecurrentState::Shape mirror = setup.recurrent;
  mirror.elsewhere = false;
  mirror.n_snapshots = 0;
  tables.recurrent.set_shape(mirror);
  tables.recurrent.lay_out(on_device);
  device.table_bytes = p.tables.used();
  staging.tables = p.staging.take<std::byte>(device.table_bytes);
  Arena host_tables(staging.tables, device.table_bytes);
  Arenas on_host = {elsewhere, elsewhere, host_tables, p.staging, p.sampler, elsewhere, p.snapshots};
  parts.lay_out(on_host);
}

void lay_out_recall(const SessionSetup& setup, SessionPools& p, DeviceBuffers& device, DeviceRecall& recall) {
  const ModelConfig& c = setup.model->config();
  const KvShape& kv = setup.kv;
  recall.most = setup.rules.recall_pages;
  recall.n_rows = static_cast<uint32_t>(kv.n_rows());
  recall.n_pages = std::max(kv.n_streams(), c.n_kv_heads * std::max(recall.most, kSplitPages));
  device.journal = p.workspace.take<uint32_t>(uint64_t{kv.n_streams()} * (2 + 4 * uint64_t{recall.most}));
  device.unit_out = p.workspace.take<float>(uint64_t{setup.max_tok} * c.n_heads * c.head_dim);
  device.raw_index = p.workspace.take<uint32_t>(recall.n_rows);
  device.resident = p.workspace.take<uint32_t>(uint64_t{kv.n_streams()} * ((kv.max_capacity() + 31) / 32));
  recall.raw_index = p.staging.take<uint32_t>(recall.n_rows);
  recall.posts = p.staging.take<RecallPost>(c.n_kv_heads);
  recall.answers = p.staging.take<RecallAnswer>(c.n_kv_heads);
  recall.rows = p.staging.take<uint32_t>(uint64_t{c.n_kv_heads} * recall.most);
  recall.pages = p.staging.take<std::byte>(recall.n_pages * kv.page_bytes());
  recall.page_slots = p.staging.take<uint32_t>(recall.n_pages);
  recall.unit_pos = p.staging.take<uint32_t>(uint64_t{c.n_kv_heads} * kSplitPages);
  recall.unit_len = p.staging.take<uint32_t>(uint64_t{c.n_kv_heads} * kSplitPages);
}

void lay_out_trace(const SessionSetup& setup, Arena& arena, TraceBuffers& trace) {
  const ModelConfig& c = setup.model->config();
  const uint64_t n = uint64_t{c.n_kv_layers} * c.n_heads;
  trace.page_mass = arena.take<float>(n * setup.kv.max_capacity());
  trace.select = arena.take<uint32_t>(n * setup.kv.max_capacity());
  trace.n_select = arena.take<uint32_t>(n);
}

}  // namespace

void lay_out_staging(const SessionSetup& setup, const PolicyNeeds& needs, SessionPools& p, const PartList& parts,
                     DeviceTables& tables, DeviceBuffers& device, DeviceStaging& staging) {
  lay_out_device_tables(setup, p, parts, tables, device, staging);
  const ModelConfig& c = setup.model->config();
  const uint64_t n_angles = setup.model->rope().angles().size();
  device.state = p.workspace.take<StepState>(1);
  device.tokens = p.workspace.take<int32_t>(setup.max_tok);
  device.angles = p.workspace.take<double>(n_angles);
  device.counters = p.workspace.take<uint32_t>(DeviceBuffers::kCounters);
  device.module = p.workspace.take<std::byte>(setup.module->session_device_bytes(setup.shapes));
  device.mask = p.workspace.take<uint32_t>(mask_words(c.vocab_size));

  staging.state = p.staging.take<StepState>(1);
  staging.tokens = p.staging.take<int32_t>(setup.max_tok);
  staging.cos_sin = p.staging.take<float>(setup.max_tok * 2 * n_angles);
  staging.cos_sin_sink = needs.sink_query ? p.staging.take<float>(setup.max_tok * 2 * n_angles) : nullptr;
  staging.angles = p.staging.take<double>(n_angles);
  staging.token_mass = needs.prompt_rows != 0
                           ? p.staging.take<float>(uint64_t{c.n_kv_heads} * setup.kv.max_capacity() * kPageTokens)
                           : nullptr;
  staging.logits = p.staging.take<float>(c.vocab_size);
  staging.top_ids = p.staging.take<int32_t>(kMaxTopLogits);
  staging.top_logits = p.staging.take<float>(kMaxTopLogits);
  staging.mask = p.staging.take<uint32_t>(mask_words(c.vocab_size));
  staging.asked = p.staging.take<int32_t>(kMaxTopLogits);
  staging.asked_logits = p.staging.take<float>(kMaxTopLogits);
  staging.parts = p.staging.take<LogitPart>(kLogitParts);
  if (setup.trace) {
    lay_out_trace(setup, p.workspace, device.trace);
    lay_out_trace(setup, p.staging, staging.trace);
    staging.trace.is_listed = p.staging.take<bool>(c.n_kv_layers);
  }
  if (setup.kv.recalls()) lay_out_recall(setup, p, device, staging.recall);
}

void fill_plan(const SessionSetup& setup, const PolicyNeeds& needs, const SessionPools& p, weir_plan_info& plan) {
  plan.struct_size = sizeof(plan);
  plan.context_tokens = needs.context_tokens;
  plan.page_tokens = kPageTokens;
  plan.pages_per_stream = setup.kv.recalls() ? setup.kv.recall_slots : needs.pages_per_stream;
  plan.budget_tokens = plan.pages_per_stream * kPageTokens;
  plan.n_streams = setup.kv.n_streams();
  plan.n_window_streams = static_cast<uint32_t>(setup.kv.n_local_streams());
  plan.window_pages_per_stream = plan.n_window_streams != 0 ? setup.kv.window_pages : 0;
  plan.window_kv_bytes = uint64_t{plan.n_window_streams} * plan.window_pages_per_stream * setup.kv.page_bytes();
  plan.n_head_streams = setup.kv.windows.n_streams;
  plan.head_pages_per_stream = setup.kv.own_pages;
  plan.head_kv_bytes = uint64_t{plan.n_head_streams} * plan.head_pages_per_stream * setup.kv.page_bytes();
  plan.page_bytes = setup.kv.page_bytes();
  plan.weights_bytes = setup.model->weights_bytes();
  plan.kv_bytes = p.pages.used();
  plan.digest_bytes = p.digests.used();
  plan.table_bytes = p.tables.used();
  plan.workspace_bytes = p.workspace.used() + p.rows.used();
  plan.sampler_bytes = p.sampler.used();
  plan.recurrent_bytes = p.recurrent.used();
  plan.snapshot_bytes = p.snapshots.used();
  plan.n_snapshots = setup.recurrent.n_snapshots;
  plan.snapshot_tokens = setup.recurrent.snapshot_tokens;
  plan.session_bytes = sizeof(Session);
  plan.device = WEIR_DEVICE_CPU;
  plan.device_bytes = p.rows.used();
  if (setup.module != nullptr) {
    plan.session_bytes += setup.module->session_bytes;
    plan.device_bytes =
        plan.kv_bytes + plan.digest_bytes + plan.table_bytes + plan.recurrent_bytes + plan.workspace_bytes;
  }
  if (setup.module != nullptr || setup.rows != nullptr) {
    plan.staging_bytes = align_up(p.staging.used(), kStagingAlignment);
    plan.device = (setup.module != nullptr ? setup.module : setup.rows)->backend->device;
    plan.device_weights_bytes = DeviceWeights::bytes_of(*setup.model);
  }
  plan.spill_bytes = setup.spill_plan.total_bytes();
  plan.spill_file_bytes = setup.spill_plan.file_bytes;
  plan.spill_raw_bytes = uint64_t{setup.spill_plan.n_raw} * plan.page_bytes;
  plan.spill_compressed_bytes = uint64_t{setup.spill_plan.n_cells} * SpillCells::kCellBytes;
  plan.spill_tokens = stored_tokens(setup);
  plan.total_bytes = plan.spill_bytes + plan.kv_bytes + plan.digest_bytes + plan.table_bytes + plan.workspace_bytes +
                     plan.sampler_bytes + plan.session_bytes + plan.staging_bytes + plan.recurrent_bytes +
                     plan.snapshot_bytes;
}

Status plan_session(const Model& model, const weir_session_options& options, uint32_t n_threads,
                    const DeviceHost& devices, const DeviceWeights& weights, weir_plan_info& plan,
                    std::span<Part* const> more) {
  PolicyStorage storage;
  Policy* policy = nullptr;
  SessionSetup setup;
  WEIR_TRY(check_options(model, options, n_threads, devices, weights, storage, policy, setup));
  measure(setup, policy->needs(), more, plan);
  policy->~Policy();
  return {};
}

}  // namespace weir
