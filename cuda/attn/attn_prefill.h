// Attention of many query rows over KV pages (attn_paged with n_tok > 1; any n_tok works).
#pragma once

#include "ops/ops.h"

namespace weir::cuda {

// head_dim is a multiple of 32 up to 256; positions fit in 32 bits. Needs no scratch. Results differ from the reference
// by rounding: units are not kept apart, and with tensor cores q and the weights are taken as sums of two bf16 (17
// bits).
Status attn_prefill(OpContext& cx, const AttnPagedArgs& a);

// The same in plain f32, a warp per query row and head: for head_dim and devices that the tensor core kernel is not
// made for.
Status attn_prefill_plain(OpContext& cx, const AttnPagedArgs& a);

// page_mass of the last query row.
Status attn_page_mass(OpContext& cx, const AttnPagedArgs& a);

}  // namespace weir::cuda
