// Uploading of a model's weights.
#include <algorithm>
#include <cstring>
#include <new>

#include "models/layer.h"
#include "models/model.h"
#include "ops/table.h"
#include "quant/planes.h"
#include "runtime/device_host.h"

namespace weir {
namespace {

constexpr uint64_t kAlignment = 256;         // of matrices in device memory
constexpr uint64_t kPieceBytes = 16u << 20;  // all threads convert rows to the device's layout, this much at a time

uint64_t weight_bytes(const Weight& w) { return align_up(w.row_bytes * w.n_rows, kAlignment); }
uint64_t vector_bytes(uint64_t n) { return align_up(n * sizeof(float), kAlignment); }

using Run = DeviceWeights::Run;

// Calls matrix(weight, copy, name, run) and vector(values, count, copy) for all weights of a model, in their order in
// device memory. The copies are those of `to`; its layers may be missing when the calls do not fill them.
template <class Matrix, class Vector>
Status for_all(const ModelConfig& c, const ModelWeights& from, ModelWeights& to, const Matrix& matrix,
               const Vector& vector) {
  WEIR_TRY(matrix(from.token_embd, to.token_embd, "token_embd", Run{}));
  WEIR_TRY(vector(from.output_norm, c.d_model, to.output_norm));
  if (from.output.data != from.token_embd.data) {
    WEIR_TRY(matrix(from.output, to.output, "output", Run{}));
  } else {
    to.output = to.token_embd;
  }
  for (size_t i = 0; i < from.layers.size(); ++i) {
    const Layer& layer = from.layers[i];
    Layer nobody;
    Layer& copy = i < to.layers.size() ? to.layers[i] : nobody;
    copy = layer;
    WEIR_TRY(vector(layer.attention.q_norm, c.head_dim, copy.attention.q_norm));
    WEIR_TRY(vector(layer.attention.k_norm, c.head_dim, copy.attention.k_norm));
    WEIR_TRY(vector(layer.attention.sinks, c.n_heads, copy.attention.sinks));
    const Recurrent& recurrent = layer.recurrent;
    const RecurrentShape& r = c.recurrent;
    const uint64_t norms = layer.kind.mixer == Mixer::kMamba2 ? r.width : r.value_dim;
    WEIR_TRY(vector(recurrent.conv, uint64_t{r.n_channels} * r.n_taps, copy.recurrent.conv));
    WEIR_TRY(vector(recurrent.conv_bias, r.n_channels, copy.recurrent.conv_bias));
    WEIR_TRY(vector(recurrent.a, r.n_heads, copy.recurrent.a));
    WEIR_TRY(vector(recurrent.dt_bias, r.n_heads, copy.recurrent.dt_bias));
    WEIR_TRY(vector(recurrent.skip, r.n_heads, copy.recurrent.skip));
    WEIR_TRY(vector(recurrent.norm, norms, copy.recurrent.norm));
    const Router& router = layer.experts.router;
    WEIR_TRY(vector(router.w, uint64_t{router.n_experts} * c.d_model, copy.experts.router.w));
    WEIR_TRY(vector(router.bias, router.n_experts, copy.experts.router.bias));
    WEIR_TRY(vector(router.choice_bias, router.n_experts, copy.experts.router.choice_bias));
    WEIR_TRY(vector(layer.experts.shared_router, c.d_model, copy.experts.shared_router));
    for (uint32_t s = 0; s < layer.n_stages; ++s) {
      const Stage& stage = layer.stage[s];
      WEIR_TRY(vector(stage.norm, row_width(c, stage.x), copy.stage[s].norm));
      for (uint32_t p = 0; p < stage.n_parts; ++p) {
        const StagePart& part = stage.part[p];
        if (p > 0 && part.w.data == stage.part[p - 1].w.data) {  // one matrix as gate and up
          copy.stage[s].part[p] = copy.stage[s].part[p - 1];
          continue;
        }
        const uint32_t n_experts = std::max(1u, layer.experts.router.n_experts);
        const Run run = part.n_between == 0 ? Run{} : Run{part.w.n_rows / n_experts, part.n_between};
        WEIR_TRY(matrix(part.w, copy.stage[s].part[p].w, part.name, run));
        copy.stage[s].part[p].n_between = 0;
        WEIR_TRY(vector(part.bias, part.w.n_rows, copy.stage[s].part[p].bias));
      }
      WEIR_TRY(vector(stage.post_norm, c.d_model, copy.stage[s].post_norm));
    }
  }
  return {};
}

}  // namespace

uint64_t DeviceWeights::bytes_of(const Model& model) {
  uint64_t bytes = 0;
  ModelWeights nobody(std::pmr::null_memory_resource());
  (void)for_all(
      model.config(), model.weights(), nobody,
      [&](const Weight& w, const Weight&, const char*, const Run&) {
        bytes += weight_bytes(w);
        return Status();
      },
      [&](const float* values, uint64_t n, const float*) {
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

// Works piece by piece: converts some rows as a matrix of their own, then copies its planes to where they belong in the
// whole one.
Status DeviceWeights::upload_matrix(const Weight& w, const Run& run, ThreadPool& pool, Weight& out) {
  auto* to = static_cast<uint8_t*>(block_) + used_;
  used_ += weight_bytes(w);
  out = w;
  out.data = to;
  uint32_t plane_bytes[kMaxPlanes] = {};
  const uint32_t n_planes = planes_of(w.type, plane_bytes);
  const auto at_once = static_cast<uint32_t>(std::clamp<uint64_t>(kPieceBytes / w.row_bytes, 1, w.n_rows));
  const uint32_t in_run = run.n_rows != 0 ? run.n_rows : w.n_rows;
  const uint64_t piece_bytes = w.row_bytes * at_once;
  void* piece = memory_->allocate(piece_bytes, kCacheLine);
  Status status;
  Weight part = w;
  for (uint32_t row = 0; row < w.n_rows && status.ok(); row += part.n_rows) {
    part.data = w.data + (row + size_t{row / in_run} * run.n_between) * w.row_bytes;
    part.n_rows = std::min(at_once, in_run - row % in_run);
    const uint32_t n_tasks = std::min(part.n_rows, pool.n_threads() * 4), share = (part.n_rows + n_tasks - 1) / n_tasks;
    {
      const ThreadPool::Lease lease(pool);
      pool.parallel_for(n_tasks, [&](size_t task, size_t) {
        const uint32_t first = std::min(part.n_rows, static_cast<uint32_t>(task) * share);
        repack(part, first, std::min(part.n_rows, first + share), static_cast<uint8_t*>(piece));
      });
    }
    // Offsets in units of 32 weights; a plane has plane_bytes / 8 of each.
    const uint64_t before = uint64_t{row} * w.n_cols / 32, here = uint64_t{part.n_rows} * w.n_cols / 32,
                   all = uint64_t{w.n_rows} * w.n_cols / 32;
    uint64_t plane = 0;  // bytes of 256 weights in the planes before
    for (uint32_t i = 0; i < n_planes && status.ok(); ++i) {
      status = from_module(
          *module_, module_->copy_in(to + (all * plane + before * plane_bytes[i]) / 8,
                                     static_cast<uint8_t*>(piece) + here * plane / 8, here * plane_bytes[i] / 8));
      plane += plane_bytes[i];
    }
  }
  memory_->deallocate(piece, piece_bytes, kCacheLine);
  return status;
}

void DeviceWeights::reserve(const Model& model) {
  weights_.layers.resize(model.weights().layers.size());
  weights_.kv_layers = model.weights().kv_layers;
}

Status DeviceWeights::upload(const Model& model, ThreadPool& pool) {
  return for_all(
      model.config(), model.weights(), weights_,
      [&](const Weight& w, Weight& copy, const char*, const Run& run) { return upload_matrix(w, run, pool, copy); },
      [&](const float* values, uint64_t n, const float*& copy) { return upload_vector(values, n, copy); });
}

Status DeviceWeights::check(const DeviceModule& module, const Model& model) {
  ModelWeights nobody(std::pmr::null_memory_resource());
  WEIR_TRY(for_all(
      model.config(), model.weights(), nobody,
      [&](const Weight& w, const Weight&, const char* name, const Run&) {
        const Status status = module.check_weight(w);
        return status.ok() ? status : fail(status.code(), "%s: %s", name, module.last_error());
      },
      [](const float*, uint64_t, const float*) { return Status(); }));
  uint32_t number = 0;
  for (const Layer& layer : model.weights().layers) {
    for (const Stage& stage : layer.stages()) {
      // Gate and up; of experts also those of the shared one.
      const bool gated = stage.kind == Stage::Kind::kGlu || stage.kind == Stage::Kind::kExperts;
      for (uint32_t p = 0; gated && p + 1 < stage.n_parts; p += 3) {
        const StagePart &gate = stage.part[p], &up = stage.part[p + 1];
        if (gate.w.type == up.w.type) continue;
        return fail(WEIR_ERR_UNSUPPORTED, "layer %u: %s is %s and %s %s; the device needs one type", number, gate.name,
                    weight_type_info(gate.w.type).name, up.name, weight_type_info(up.w.type).name);
      }
    }
    ++number;
  }
  return {};
}

Status DeviceWeights::ensure(DeviceHost& host, const DeviceModule& module, const Model& model, ThreadPool& pool) {
  const std::lock_guard lock(mutex_);
  if (ready_ && module_ != &module) {
    return fail(WEIR_ERR_UNSUPPORTED,
                "the model's weights are on %s already, and a model has one device; open it again",
                module_->backend->name);
  }
  if (ready_) return {};
  const uint64_t bytes = bytes_of(model);
  WEIR_TRY(host.allocate(module, bytes, "the model's weights", &block_,
                         "; a file with smaller weights, or the CPU as the device, needs less of it"));
  host_ = &host;
  module_ = &module;
  bytes_ = bytes;
  used_ = 0;
  Status status;
  try {
    status = upload(model, pool);
  } catch (const std::bad_alloc&) {
    const Refusal refusal = HostMemory::thread_refusal();
    status =
        fail(WEIR_ERR_OUT_OF_MEMORY, "%llu bytes of host memory to upload the model's weights could not be allocated%s",
             static_cast<unsigned long long>(refusal.bytes), refusal.why);
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
