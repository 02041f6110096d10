// The kernels of steps and prompts that are no ops of the table (device/kernels.h); each is recorded and returns. The
// context's mutex is held.
#pragma once

#include "device/kernels.h"

namespace weir::vulkan {

using device::AddLeftArgs;
using device::AttnDecodeArgs;
using device::AttnStopArgs;
using device::CompensateArgs;
using device::CopyPagesArgs;
using device::CopyRowOutArgs;
using device::ExpertsStepArgs;
using device::FillNoiseArgs;
using device::FillRowArgs;
using device::GemvArgs;
using device::ListWindowsArgs;
using device::LoadUnitArgs;
using device::MarkResidentArgs;
using device::MoveOpenPageArgs;
using device::PageRecallArgs;
using device::PageScoreStepArgs;
using device::PageSoftmaxArgs;
using device::PageStampAtArgs;
using device::ReadLogitsArgs;
using device::RopeAppendAtArgs;
using device::RotateHeadsArgs;
using device::SparseLayerArgs;
using device::SpoilLostArgs;
using device::StepBeginArgs;
using device::StepEndArgs;
using device::TopLogitsArgs;

Status step_begin(const StepBeginArgs& a);
Status step_end(const StepEndArgs& a);
Status rope_append_at(const RopeAppendAtArgs& a);
Status page_stamp_at(const PageStampAtArgs& a);
Status page_softmax(const PageSoftmaxArgs& a);
Status page_score_step(const PageScoreStepArgs& a);
Status list_windows(const ListWindowsArgs& a);
Status add_left(const AddLeftArgs& a);
Status compensate(const CompensateArgs& a);
Status attn_decode(const AttnDecodeArgs& a);
Status attn_stop(const AttnStopArgs& a);
Status attn_prefill(const AttnPagedArgs& a);
Status page_recall(const PageRecallArgs& a);
Status top_logits(const TopLogitsArgs& a);
Status read_logits(const ReadLogitsArgs& a);
Status spoil_lost(const SpoilLostArgs& a);
Status mark_resident(const MarkResidentArgs& a);
Status copy_row_out(const CopyRowOutArgs& a);
Status copy_pages(const CopyPagesArgs& a);
Status load_unit(const LoadUnitArgs& a);
Status fill_row(const FillRowArgs& a);
Status rebuild_last_minmax(const KvView& a);
Status fill_noise(const FillNoiseArgs& a);

// By a kernel: what benchmarks compare the speed of others with. A multiple of 16 bytes, below 64 GiB.
Status copy_memory(void* to, const void* from, uint64_t bytes);

// What top_logits needs, whatever its arguments.
uint64_t top_logits_scratch_bytes();

}  // namespace weir::vulkan
