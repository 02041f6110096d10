// Fills a session's KV memory with pseudo-random tokens, so that a benchmark reaches a depth without decoding up to it.
// The policy evicts as in decoding, page by page; the values are noise of the size of normalised keys.
#include <algorithm>

#include "models/attend.h"
#include "policy/room.h"
#include "quant/half.h"
#include "runtime/session.h"

namespace weir {
namespace {

weir_token noise_token(uint32_t position, uint32_t vocab_size) {
  return static_cast<weir_token>(uint64_t{position} * 2654435761u % vocab_size);
}

}  // namespace

// Attention's history after noise: as after a prompt whose last queries were noise.
Status Session::fill_history() {
  const PolicyNeeds& needs = policy_->needs();
  const ModelConfig& c = model_->config();
  const uint32_t n_rows = std::min({needs.prompt_rows, step_.b.max_tok, kv_.n_tokens()});
  uint64_t random = 2;
  for (uint32_t layer = needs.history_from_layer; n_rows > 0 && layer < c.n_layers; ++layer) {
    const Attention& attention = model_->weights().layers[layer].attention;
    if (!is_ruled(attention)) continue;
    for (size_t i = 0; i < size_t{n_rows} * c.n_heads * c.head_dim; ++i) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      step_.b.q[i] = static_cast<float>(static_cast<int64_t>(random) >> 40) * 0x1p-22f;  // [-2, 2)
    }
    WEIR_TRY(policy_->observe_prompt(step_.cx, step_.backend->ops, *tables_.change(),
                                     {layer, c.n_heads, step_.b.q, step_.b.lse, n_rows, kv_.n_tokens() - n_rows, 0,
                                      step_.b.token_mass, 0, attention.soft_cap}));
  }
  return {};
}

Status Session::fill(uint32_t n_tokens) {
  const Lock lock(*this);
  WEIR_TRY(lock.status());
  WEIR_TRY(host_tables());
  const uint32_t room = policy_->needs().context_tokens - kv_.n_tokens();
  if (n_tokens > room)
    return fail(WEIR_ERR_CONTEXT_FULL, "%u tokens do not fit, %u positions are free", n_tokens, room);
  WEIR_TRY(fill_pages(n_tokens));
  if (device_ != nullptr) return fill_on_device();
  if (policy_->needs().history.group != 0) WEIR_TRY(fill_history());
  if (!has_logits_) std::fill_n(step_.b.logits, model_->config().vocab_size, 0.0f);
  has_logits_ = true;
  return {};
}

Status Session::fill_pages(uint32_t n_tokens) {
  const PageTables::Change kv = tables_.change();
  const uint32_t d = kv_.shape().head_dim, vocab_size = model_->config().vocab_size;
  if (device_ != nullptr && cold_.is_on()) WEIR_TRY(device_tables());  // of the streams; their rows change on the host
  uint64_t random = 1;
  for (uint32_t done = 0; done < n_tokens;) {
    const uint32_t n = std::min(n_tokens - done, kPageTokens - kv_.n_tokens() % kPageTokens);
    make_room(*policy_, *kv, n, Phase::kDecode);
    WEIR_TRY(kv->reserve(n, 0, kv_.n_tokens() + n));
    for (uint32_t s = 0; device_ == nullptr && s < kv_.shape().n_streams(); ++s) {
      const StreamView stream = kv_.stream(s);
      const uint32_t row = stream.n_pages - 1;
      uint16_t* page = kv->page_data(stream.slots[row]);
      for (uint32_t t = stream.len[row] - n; t < stream.len[row]; ++t) {
        for (uint32_t i = 0; i < 2 * d; ++i) {
          random = random * 6364136223846793005u + 1442695040888963407u;
          const float value = static_cast<float>(static_cast<int64_t>(random) >> 40) * 0x1p-23f;  // [-1, 1)
          const size_t half = i < d ? size_t{t} * d + i : size_t{kPageTokens} * d + size_t{t} * d + (i - d);
          page[half] = f32_to_bf16(value);
        }
      }
      if (kv_.shape().digest != DigestKind::kNone) kv->rebuild_digest(s, row);
    }
    if (device_ != nullptr && cold_.is_on()) WEIR_TRY(fill_row_on_device());
    kv->commit();
    if (device_ == nullptr) seal(kv_.n_tokens() - n);
    if (cold_.is_on() && device_ != nullptr && kv_.n_tokens() % kPageTokens == 0) {
      cold_.seal_row(kv_.n_tokens() / kPageTokens - 1, reinterpret_cast<const uint16_t*>(staging_.recall.pages));
    }
    for (uint32_t t = kv_.n_tokens() - n; t < kv_.n_tokens(); ++t) {
      const weir_token token = noise_token(t, vocab_size);
      record_.put(t, &token, 1);
    }
    done += n;
  }
  return {};
}

}  // namespace weir
