// What benchmarks do with a session and no application should.
#pragma once

#include "core/status.h"
#include "weir/base.h"

namespace weir {

class Session;

// Fills the KV memory with n_tokens pseudo-random tokens, as if they had been decoded, so that a benchmark reaches a
// depth without decoding up to it.
Status fill_with_noise(Session& session, uint32_t n_tokens);
// Seconds of the parts of one decode step (kPart*); the step counts. WEIR_ERR_UNSUPPORTED on the processor.
Status profile_step(Session& session, weir_token token, double* seconds);

}  // namespace weir
