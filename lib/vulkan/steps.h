// The kernels of steps and prompts that are no ops of the table (device/kernels.h); each is recorded and returns. The
// context's mutex is held.
#pragma once

#include "device/kernels.h"

namespace weir::vulkan {

using device::AttnDecodeArgs;
using device::CopyPagesArgs;
using device::CopyRowOutArgs;
using device::ExpertsStepArgs;
using device::FillNoiseArgs;
using device::FillRowArgs;
using device::GemvArgs;
using device::LoadUnitArgs;
using device::MarkResidentArgs;
using device::PageRecallArgs;
using device::PageScoreStepArgs;
using device::PageSoftmaxArgs;
using device::PageStampAtArgs;
using device::RopeAppendAtArgs;
using device::SparseLayerArgs;
using device::SpoilLostArgs;
using device::StepBeginArgs;
using device::StepEndArgs;
using device::TopLogitsArgs;

#define WEIR_KERNEL(name, Args) Status name(const Args& a);
#include "device/kernels.inc"
#undef WEIR_KERNEL

}  // namespace weir::vulkan
