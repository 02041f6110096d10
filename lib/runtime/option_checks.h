// What is wrong with session options whatever the policy: numbers out of range, and formats that a model's heads do not
// fit.
#pragma once

#include <cstdint>

#include "core/status.h"
#include "models/model.h"
#include "ops/kv_format.h"
#include "weir/session.h"

namespace weir {

inline constexpr uint32_t kMaxTokens = 1u << 30;

Status check_numbers(const weir_session_options& o);
Status check_format(const weir_session_options& o, const ModelConfig& c);

inline KvFormat format_of(const weir_session_options& o) { return static_cast<KvFormat>(o.kv_format); }

}  // namespace weir
