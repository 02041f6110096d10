// What the kernels of a decode step and of a prompt take that are no ops of the table: the same for all device modules.
// Pointers are device memory unless a comment says something else. `overlap`: the kernel may begin before the one
// before it has ended, where the device can do that. What each kernel computes is said with its arguments, in
// device/kernels/; kernels.inc lists them. Here are names alone: who enqueues or runs a kernel includes its arguments.
#pragma once

#include <cstdint>

namespace weir {

struct AttnPagedArgs;
struct AttnStop;
struct KvTables;
struct KvView;
struct PageSelectArgs;
struct PageStampArgs;

}  // namespace weir

namespace weir::device {

// Maximum number of input vectors (columns) of one GEMV.
inline constexpr uint32_t kMaxColumns = 8;

struct AddLeftArgs;
struct AttnDecodeArgs;
struct AttnStopArgs;
struct CompensateArgs;
struct CopyPagesArgs;
struct CopyRowOutArgs;
struct ExpertsStepArgs;
struct FillNoiseArgs;
struct FillRowArgs;
struct GemvArgs;
struct GemvColumn;
struct LeftAt;
struct ListWindowsArgs;
struct LoadUnitArgs;
struct MarkResidentArgs;
struct MoveOpenPageArgs;
struct PageRecallArgs;
struct PageScoreStepArgs;
struct PageSoftmaxArgs;
struct PageStampAtArgs;
struct ReadLogitsArgs;
struct RecallEntry;
struct RecallHead;
struct RopeAppendAtArgs;
struct RotateHeadsArgs;
struct SparseLayerArgs;
struct SpoilLostArgs;
struct StepBeginArgs;
struct StepEndArgs;
struct TopLogitsArgs;

}  // namespace weir::device
