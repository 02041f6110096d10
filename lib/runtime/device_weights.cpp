// Uploading of a model's weights.
#include <algorithm>
#include <cstring>

#include "runtime/device_host.h"

namespace weir {
namespace {

constexpr uint64_t kAlignment = 256;         // of matrices in device memory
constexpr uint64_t kPieceBytes = 16u << 20;  // rows are laid out anew by all threads, so many bytes at a time

uint64_t weight_bytes(const Weight& w) { return align_up(w.row_bytes * w.n_rows, kAlignment); }
uint64_t vector_bytes(uint64_t n) { return align_up(n * sizeof(float), kAlignment); }

// Calls matrix(weight) and vector(values, count) for all that a model has.
template <class Matrix, class Vector>
Status for_all(const ModelConfig& c, const ModelWeights& w, const Matrix& matrix, const Vector& vector) {
  WEIR_TRY(matrix(w.token_embd, "token_embd"));
  WEIR_TRY(vector(w.output_norm, c.d_model));
  if (w.output.data != w.token_embd.data) WEIR_TRY(matrix(w.output, "output"));
  const uint64_t q = uint64_t{c.n_heads} * c.head_dim, kv = uint64_t{c.n_kv_heads} * c.head_dim;
  for (const LayerWeights& l : w.layers) {
    WEIR_TRY(vector(l.attn_norm, c.d_model));
    WEIR_TRY(matrix(l.wq, "attn_q"));
    WEIR_TRY(matrix(l.wk, "attn_k"));
    WEIR_TRY(matrix(l.wv, "attn_v"));
    WEIR_TRY(vector(l.bq, q));
    WEIR_TRY(vector(l.bk, kv));
    WEIR_TRY(vector(l.bv, kv));
    WEIR_TRY(vector(l.q_norm, c.head_dim));
    WEIR_TRY(vector(l.k_norm, c.head_dim));
    WEIR_TRY(matrix(l.wo, "attn_output"));
    WEIR_TRY(vector(l.ffn_norm, c.d_model));
    WEIR_TRY(matrix(l.gate, "ffn_gate"));
    WEIR_TRY(matrix(l.up, "ffn_up"));
    WEIR_TRY(matrix(l.down, "ffn_down"));
  }
  return {};
}

}  // namespace

uint64_t DeviceWeights::bytes_of(const Model& model) {
  uint64_t bytes = 0;
  (void)for_all(
      model.config(), model.weights(),
      [&](const Weight& w, const char*) {
        bytes += weight_bytes(w);
        return Status();
      },
      [&](const float* values, uint64_t n) {
        bytes += values != nullptr ? vector_bytes(n) : 0;
        return Status();
      });
  return bytes;
}

Status DeviceWeights::upload_vector(const float* values, uint64_t n, const float*& out) {
  out = nullptr;
  if (values == nullptr) return {};
  auto* to = static_cast<std::byte*>(block_) + used_;
  used_ += vector_bytes(n);
  out = reinterpret_cast<const float*>(to);
  return from_module(*module_, module_->copy_in(to, values, n * sizeof(float)));
}

// Piece by piece: its rows are laid out as a matrix of their own, whose planes then go to their places in the whole one.
Status DeviceWeights::upload_matrix(const Weight& w, HostMemory& memory, ThreadPool& pool, Weight& out) {
  auto* to = static_cast<uint8_t*>(block_) + used_;
  used_ += weight_bytes(w);
  out = w;
  out.data = to;
  uint32_t plane_bytes[4] = {};
  const uint32_t n_planes = module_->planes(w.type, plane_bytes);
  const auto at_once = static_cast<uint32_t>(std::clamp<uint64_t>(kPieceBytes / w.row_bytes, 1, w.n_rows));
  const uint64_t piece_bytes = w.row_bytes * at_once;
  void* piece = memory.allocate(piece_bytes, kCacheLine);
  Status status;
  for (uint32_t row = 0; row < w.n_rows && status.ok(); row += at_once) {
    Weight part = w;
    part.data = w.data + row * w.row_bytes;
    part.n_rows = std::min(at_once, w.n_rows - row);
    const uint32_t n_tasks = std::min(part.n_rows, pool.n_threads() * 4), share = (part.n_rows + n_tasks - 1) / n_tasks;
    {
      const ThreadPool::Lease lease(pool);
      pool.parallel_for(n_tasks, [&](size_t task, size_t) {
        const uint32_t first = std::min(part.n_rows, static_cast<uint32_t>(task) * share);
        module_->repack(part, first, std::min(part.n_rows, first + share), static_cast<uint8_t*>(piece));
      });
    }
    // Offsets in units of 32 weights; a plane has plane_bytes / 8 of each.
    const uint64_t before = uint64_t{row} * w.n_cols / 32, here = uint64_t{part.n_rows} * w.n_cols / 32,
                   all = uint64_t{w.n_rows} * w.n_cols / 32;
    uint64_t plane = 0;  // bytes of 256 weights in the planes before
    for (uint32_t i = 0; i < n_planes && status.ok(); ++i) {
      status = from_module(*module_, module_->copy_in(to + (all * plane + before * plane_bytes[i]) / 8,
                                                      static_cast<uint8_t*>(piece) + here * plane / 8, here * plane_bytes[i] / 8));
      plane += plane_bytes[i];
    }
  }
  memory.deallocate(piece, piece_bytes, kCacheLine);
  return status;
}

Status DeviceWeights::upload(const Model& model, HostMemory& memory, ThreadPool& pool) {
  const ModelConfig& c = model.config();
  const ModelWeights& w = model.weights();
  weights_.layers.resize(w.layers.size());
  const uint64_t q = uint64_t{c.n_heads} * c.head_dim, kv = uint64_t{c.n_kv_heads} * c.head_dim;
  WEIR_TRY(upload_matrix(w.token_embd, memory, pool, weights_.token_embd));
  WEIR_TRY(upload_vector(w.output_norm, c.d_model, weights_.output_norm));
  weights_.output = weights_.token_embd;
  if (w.output.data != w.token_embd.data) WEIR_TRY(upload_matrix(w.output, memory, pool, weights_.output));
  for (size_t i = 0; i < w.layers.size(); ++i) {
    const LayerWeights& from = w.layers[i];
    LayerWeights& to = weights_.layers[i];
    WEIR_TRY(upload_vector(from.attn_norm, c.d_model, to.attn_norm));
    WEIR_TRY(upload_matrix(from.wq, memory, pool, to.wq));
    WEIR_TRY(upload_matrix(from.wk, memory, pool, to.wk));
    WEIR_TRY(upload_matrix(from.wv, memory, pool, to.wv));
    WEIR_TRY(upload_vector(from.bq, q, to.bq));
    WEIR_TRY(upload_vector(from.bk, kv, to.bk));
    WEIR_TRY(upload_vector(from.bv, kv, to.bv));
    WEIR_TRY(upload_vector(from.q_norm, c.head_dim, to.q_norm));
    WEIR_TRY(upload_vector(from.k_norm, c.head_dim, to.k_norm));
    WEIR_TRY(upload_matrix(from.wo, memory, pool, to.wo));
    WEIR_TRY(upload_vector(from.ffn_norm, c.d_model, to.ffn_norm));
    WEIR_TRY(upload_matrix(from.gate, memory, pool, to.gate));
    WEIR_TRY(upload_matrix(from.up, memory, pool, to.up));
    WEIR_TRY(upload_matrix(from.down, memory, pool, to.down));
  }
  return {};
}

Status DeviceWeights::ensure(DeviceHost& host, const DeviceModule& module, const Model& model, HostMemory& memory, ThreadPool& pool) {
  const std::lock_guard lock(mutex_);
  if (ready_) return {};
  WEIR_TRY(for_all(
      model.config(), model.weights(),
      [&](const Weight& w, const char* name) {
        const Status status = module.check_weight(w);
        return status.ok() ? status : fail(status.code(), "%s: %s", name, module.last_error());
      },
      [](const float*, uint64_t) { return Status(); }));
  const uint64_t bytes = bytes_of(model);
  WEIR_TRY(host.allocate(module, bytes, "the model's weights", &block_));
  host_ = &host;
  module_ = &module;
  bytes_ = bytes;
  used_ = 0;
  Status status;
  try {
    status = upload(model, memory, pool);
  } catch (...) {
    clear();
    throw;
  }
  if (!status.ok()) {
    clear();
    return status;
  }
  ready_ = true;
  return {};
}

void DeviceWeights::clear() {
  if (block_ != nullptr) host_->release(*module_, block_, bytes_);
  block_ = nullptr;
  ready_ = false;
}

}  // namespace weir
