// Kernels, copies and waiting of a session's queue.
#include "vulkan/vulkan_queue.h"

#include "core/clock.h"
#include "device/kernels/attn_decode.h"
#include "device/kernels/attn_stop.h"
#include "device/kernels/copies.h"
#include "device/kernels/experts_step.h"
#include "device/kernels/fill.h"
#include "device/kernels/gemv.h"
#include "device/kernels/logits.h"
#include "device/kernels/page_recall.h"
#include "device/kernels/page_score_step.h"
#include "device/kernels/page_softmax.h"
#include "device/kernels/page_stamp_at.h"
#include "device/kernels/rope_append_at.h"
#include "device/kernels/sparse_layer.h"
#include "device/kernels/step_begin.h"
#include "device/kernels/step_end.h"
#include "ops/attn_paged.h"
#include "ops/experts.h"
#include "ops/glu_matmul.h"
#include "ops/matmul.h"
#include "ops/rms_norm.h"
#include "vulkan/ops.h"
#include "vulkan/step_gemv.h"

namespace weir::vulkan {

// Where there is no integer GEMV: for each input its norm, then its matrices.
Status VulkanQueue::gemv(const GemvArgs& a) {
  if (has_step_gemv(a)) return step_gemv(a, packed_);
  for (uint32_t column = 0; column <= a.n_more; ++column) {
    const float* x = column == 0 ? a.x : a.more[column - 1].x;
    if (a.norm != nullptr) {
      WEIR_TRY(rms_norm(cx_, {row_, x, a.norm, 1, a.part[0].w.n_cols, a.eps}));
      x = row_;
    }
    MatmulArgs m = {{}, a.n_parts, x, 1};
    for (uint32_t i = 0; i < a.n_parts; ++i) {
      m.part[i] = a.part[i];
      if (column > 0) m.part[i].y = a.more[column - 1].y[i];
    }
    if (!a.glu) {
      WEIR_TRY(matmul(cx_, m));
      continue;
    }
    const MatmulPart &gate = m.part[0], &up = m.part[1];
    WEIR_TRY(glu_matmul(cx_, {gate.y, gate.w, up.w, x, 1, a.activation, gate.bias, up.bias}));
  }
  return {};
}

Status VulkanQueue::experts_step(const ExpertsStepArgs& a) {
  ExpertsArgs op = a.op;
  op.x = row_;
  if (a.norm != nullptr) {
    WEIR_TRY(rms_norm(cx_, {row_, a.op.x, a.norm, 1, op.gate.w.n_cols, a.eps}));
  } else {
    Context& c = context();
    WEIR_TRY(c.recorder.copy(c.device, c.memory, row_, a.op.x, op.gate.w.n_cols * sizeof(float)));
  }
  return experts(cx_, op);
}

// The rest needs nothing of the queue.
#define WEIR_FORWARD(name, Args) \
  Status VulkanQueue::name(const Args& a) { return vulkan::name(a); }
WEIR_FORWARD(step_begin, StepBeginArgs)
WEIR_FORWARD(step_end, StepEndArgs)
WEIR_FORWARD(rope_append_at, RopeAppendAtArgs)
WEIR_FORWARD(page_stamp_at, PageStampAtArgs)
WEIR_FORWARD(page_softmax, PageSoftmaxArgs)
WEIR_FORWARD(page_score_step, PageScoreStepArgs)
WEIR_FORWARD(list_windows, ListWindowsArgs)
WEIR_FORWARD(add_left, AddLeftArgs)
WEIR_FORWARD(compensate, CompensateArgs)
WEIR_FORWARD(attn_decode, AttnDecodeArgs)
WEIR_FORWARD(attn_stop, AttnStopArgs)
WEIR_FORWARD(attn_prefill, AttnPagedArgs)
WEIR_FORWARD(page_recall, PageRecallArgs)
WEIR_FORWARD(top_logits, TopLogitsArgs)
WEIR_FORWARD(read_logits, ReadLogitsArgs)
WEIR_FORWARD(spoil_lost, SpoilLostArgs)
WEIR_FORWARD(mark_resident, MarkResidentArgs)
WEIR_FORWARD(copy_row_out, CopyRowOutArgs)
WEIR_FORWARD(copy_pages, CopyPagesArgs)
WEIR_FORWARD(load_unit, LoadUnitArgs)
WEIR_FORWARD(fill_row, FillRowArgs)
WEIR_FORWARD(rebuild_last_minmax, KvView)
WEIR_FORWARD(fill_noise, FillNoiseArgs)
#undef WEIR_FORWARD

// Sessions of this backend have pages in bf16 (Backend::kv_formats).
Status VulkanQueue::rotate_heads(const RotateHeadsArgs&) {
  return fail(WEIR_ERR_INTERNAL, "Vulkan: there is no rotate_heads");
}

Status VulkanQueue::move_open_page(const MoveOpenPageArgs&) {
  return fail(WEIR_ERR_INTERNAL, "Vulkan: there is no move_open_page");
}

Status VulkanQueue::sparse_layer(const SparseLayerArgs&) {
  return fail(WEIR_ERR_INTERNAL, "Vulkan: there is no sparse_layer");
}

Status VulkanQueue::copy_in(void* to, const void* from, size_t bytes, const char*) {
  return context().copy_in(to, from, bytes);
}

Status VulkanQueue::copy_out(void* to, const void* from, size_t bytes, const char*) {
  return context().copy_out(to, from, bytes);
}

Status VulkanQueue::clear(void* to, size_t bytes, const char*) {
  Context& c = context();
  return c.recorder.fill(c.device, c.memory, to, 0, bytes);
}

Status VulkanQueue::wait(const char* what) {
  const Status status = context().recorder.wait(context().device);
  return status.ok() ? status : fail(WEIR_ERR_DEVICE_LOST, "%s: %.400s", what, last_error_text());
}

Status VulkanQueue::end_layer(uint32_t n_rows) {
  if (!pace_.is_due()) return {};
  const uint64_t start = now_ns();  // without the time in which pipelines were made
  WEIR_TRY(wait("a prompt chunk"));
  pace_.took(now_ns() - start, n_rows);
  return {};
}

// Nobody ends what takes long on a driver for the processor.
uint32_t VulkanQueue::max_rows() const {
  return context().device.traits.kind == DeviceKind::kCpu ? UINT32_MAX : pace_.max_rows();
}

Status VulkanQueue::map_staging(void* host, void** out) {
  const uint64_t address = context().memory.staged_address(host, 1);
  if (address == 0) return fail(WEIR_ERR_INTERNAL, "Vulkan: host memory that the device does not see");
  *out = reinterpret_cast<void*>(address);
  return {};
}

int VulkanQueue::enter() {
  context().mutex.lock();
  return 0;
}
void VulkanQueue::leave(int) { context().mutex.unlock(); }

}  // namespace weir::vulkan
