// Sessions on the processor. A step's pages are reserved before the decoder runs and committed after it, so a failure
// leaves the conversation as it was.
#include "runtime/machine_host.h"

#include <algorithm>
#include <utility>

#include "models/attend.h"
#include "policy/page_fetcher.h"
#include "policy/room.h"
#include "quant/half.h"
#include "runtime/session_pools.h"

namespace weir {

void HostMachine::lay_out(SessionPools& pools) {
  lay_out_host_parts(pools, w_.parts.list);
  lay_out_session(w_.setup, w_.policy.needs(), pools, w_.step);
}

Status HostMachine::create(SpillStore* other) {
  weir_plan_info& plan = w_.plan;
  SessionPools measured;
  lay_out(measured);
  fill_plan(w_.setup, w_.policy.needs(), measured, plan);
  WEIR_TRY(take_rows(measured));
  const Status taken =
      take_block(plan.total_bytes - plan.session_bytes - plan.spill_bytes - plan.device_bytes - plan.staging_bytes);
  if (!taken.ok()) {
    return fail(taken.code(), "the session's %llu bytes (%llu of them KV pages) could not be allocated%s%s",
                static_cast<unsigned long long>(plan.total_bytes), static_cast<unsigned long long>(plan.kv_bytes),
                HostMemory::thread_refusal().why, kNeedLess);
  }
  auto* at = static_cast<std::byte*>(block_);
  SessionPools pools;
  pools.rows = Arena(static_cast<std::byte*>(device_block_), measured.rows.used());
  pools.staging = Arena(staging_block_, plan.staging_bytes);
  for (auto [pool, size] : {std::pair{&pools.pages, measured.pages.used()},
                            {&pools.digests, measured.digests.used()},
                            {&pools.tables, measured.tables.used()},
                            {&pools.recurrent, measured.recurrent.used()},
                            {&pools.snapshots, measured.snapshots.used()},
                            {&pools.workspace, measured.workspace.used()},
                            {&pools.sampler, measured.sampler.used()}}) {
    *pool = Arena(at, size);
    at += size;
  }
  private_bytes_ = measured.workspace.used() + measured.sampler.used();
  private_ = at - private_bytes_;
  lay_out(pools);
  return w_.setup.has_store() ? create_store(other) : Status();
}

Status HostMachine::copy_from(Machine&) { return {}; }

Status HostMachine::open_step(const weir_token* token) {
  WEIR_TRY(prepare_copies(1));
  const PageTables::Change kv = w_.tables.change();
  make_room(w_.policy, *kv, 1, Phase::kDecode);
  WEIR_TRY(kv->reserve(1, 0, kv->n_tokens() + 1));
  w_.step.tokens = token;
  w_.step.n_tok = 1;
  w_.step.is_decode = true;
  w_.step.want_logits = true;
  w_.step.cancel = nullptr;  // a step is short, and what the policy observed could not be taken back
  return {};
}

uint32_t HostMachine::max_together() const { return std::min(w_.step.b.max_tok, kMaxRows); }

Status HostMachine::compute_logits() {
  Step* const step = &w_.step;
  const Status status = run_logits({&step, 1});
  if (!status.ok()) w_.has_logits = false;  // some of them may be new
  return status;
}

Status HostMachine::step(weir_token token) {
  WEIR_TRY(open_step(&token));
  KvReservation reservation(*w_.tables.change(), w_.parts.list);
  const ThreadPool::Lease lease(w_.pool);
  Step* const step = &w_.step;
  WEIR_TRY(run_layers({&step, 1}));
  WEIR_TRY(compute_logits());
  reservation.commit();
  seal(w_.tables.kv().n_tokens() - 1);
  return {};
}

Status HostMachine::run_chunk(const weir_token* tokens, uint32_t n_tok, uint32_t n_left) {
  const PageTables::Change kv = w_.tables.change();
  make_room(w_.policy, *kv, n_tok, Phase::kPrompt);
  WEIR_TRY(kv->reserve(n_tok, w_.policy.prompt_flags(), kv->n_tokens() + n_tok));
  w_.step.tokens = tokens;
  w_.step.n_tok = n_tok;
  w_.step.is_decode = false;
  w_.step.want_logits = n_left == 0;
  w_.step.n_left = n_left;
  w_.step.cancel = &w_.cancel;
  KvReservation reservation(*kv, w_.parts.list);
  const ThreadPool::Lease lease(w_.pool);
  Step* const step = &w_.step;
  WEIR_TRY(run_layers({&step, 1}));
  if (step->want_logits) WEIR_TRY(compute_logits());
  const uint32_t first = kv->n_tokens();
  reservation.commit();
  seal(first);
  return {};
}

void HostMachine::wipe_conversation() {
  wipe(private_, w_.step.b.plain_bytes);
  if (w_.step.b.fetcher != nullptr) w_.step.b.fetcher->wipe_pages();
  wipe(w_.step.b.logits, w_.setup.model->config().vocab_size * sizeof(float));  // may be in staging memory
  wipe(static_cast<std::byte*>(private_) + (private_bytes_ - w_.plan.sampler_bytes), w_.plan.sampler_bytes);
}

void HostMachine::wipe_all() { wipe(private_, private_bytes_); }

Status HostMachine::add_noise(uint32_t n_tok, uint64_t& random) {
  const PageTables::Change kv = w_.tables.change();
  const uint32_t d = kv->shape().head_dim;
  for (uint32_t s = 0; s < kv->shape().n_streams(); ++s) {
    const StreamView stream = kv->stream(s);
    const uint32_t row = stream.n_pages - 1;
    const KvFormat format = kv->shape().format;
    uint16_t* const page = kv->page_data(stream.slots[row]);
    uint16_t* const open = kv->open_data(s, stream.first_pos[row] / kPageTokens);
    for (uint32_t t = stream.len[row] - n_tok; t < stream.len[row]; ++t) {
      float *const k = w_.step.b.k, *const v = w_.step.b.v;  // room for a row at least
      for (uint32_t i = 0; i < 2 * d; ++i) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        (i < d ? k[i] : v[i - d]) = static_cast<float>(static_cast<int64_t>(random) >> 40) * 0x1p-23f;  // [-1, 1)
      }
      const auto store = [&](KvFormat in, uint16_t* to) {
        const auto keys = keys_in(in, to, d);
        if (!is_by_channel(keys.format)) store_row(keys, t, k);
        store_row(values_in(in, to, d), t, v);
      };
      store(format, page);
      if (open != nullptr) store(KvFormat::kBf16, open);
    }
    if (is_by_channel(key_format(format))) store_by_channel(keys_in(format, page, d), open, stream.len[row]);
    if (stream.len[row] == kPageTokens) kv->forget_open_rows(stream.first_pos[row] / kPageTokens);
    if (kv->shape().digest != DigestKind::kNone) kv->rebuild_digest(s, row);
  }
  return {};
}

Status HostMachine::end_noise() {
  if (w_.policy.needs().history.group != 0) WEIR_TRY(fill_history());
  if (!w_.has_logits) std::fill_n(w_.step.b.logits, w_.setup.model->config().vocab_size, 0.0f);
  return {};
}

// Attention's history after noise: as after a prompt whose last queries were noise.
Status HostMachine::fill_history() {
  const PolicyNeeds& needs = w_.policy.needs();
  const Model& model = *w_.setup.model;
  const ModelConfig& c = model.config();
  StepBuffers& b = w_.step.b;
  const PageTables::Change kv = w_.tables.change();
  const uint32_t n_rows = std::min({needs.prompt_rows, b.max_tok, kv->n_tokens()});
  uint64_t random = 2;
  for (uint32_t layer = needs.history_from_layer; n_rows > 0 && layer < c.n_kv_layers; ++layer) {
    const Attention& attention = model.weights().attention(layer);
    if (!is_ruled(attention)) continue;
    for (size_t i = 0; i < size_t{n_rows} * c.n_heads * c.head_dim; ++i) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      b.q[i] = static_cast<float>(static_cast<int64_t>(random) >> 40) * 0x1p-22f;  // [-2, 2)
    }
    WEIR_TRY(w_.policy.observe_prompt(w_.step.cx, w_.step.backend->ops, *kv,
                                      {.layer = layer,
                                       .n_heads = c.n_heads,
                                       .q = b.q,
                                       .lse = b.lse,
                                       .n_rows = n_rows,
                                       .pos = kv->n_tokens() - n_rows,
                                       .n_left = 0,
                                       .token_mass = b.token_mass,
                                       .window = 0,
                                       .soft_cap = attention.soft_cap}));
  }
  return {};
}

}  // namespace weir
