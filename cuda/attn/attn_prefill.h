// Attention of many query rows over KV pages (attn_paged with n_tok > 1; any n_tok works).
#pragma once

#include "ops/types.h"

namespace weir {
struct AttnPagedArgs;
}  // namespace weir

namespace weir::cuda {

// head_dim is a multiple of 8 up to 256; positions fit in 32 bits. Needs no scratch. Results differ from the reference
// by rounding: the units of kSplitPages pages are not merged separately, and with tensor cores q and the weights are
// sums of two bf16 (17 bits of mantissa).
Status attn_prefill(OpContext& cx, const AttnPagedArgs& a);

// The same in plain f32, one warp per query row and head: for head dimensions and devices without a tensor-core kernel.
Status attn_prefill_plain(OpContext& cx, const AttnPagedArgs& a);

// page_mass of the last query row.
Status attn_page_mass(OpContext& cx, const AttnPagedArgs& a);

}  // namespace weir::cuda
