// The values of the rules that policies may have, from the list that the host's enums are made from; shared.h says how.
#ifndef WEIR_SHADERS_RULES_H
#define WEIR_SHADERS_RULES_H

#ifdef __cplusplus
#include "shaders/shared.h"
namespace weir::vulkan {
#else
#include "shared.h"
#endif

#define WEIR_VICTIM_RULE(Name, number) WEIR_SHARED uint kVictim##Name = number;
#define WEIR_ACCUMULATE_RULE(Name, number) WEIR_SHARED uint kAccumulate##Name = number;
#define WEIR_AGG_MODE(Name, number) WEIR_SHARED uint kAgg##Name = number;
#define WEIR_DIGEST_KIND(Name, number) WEIR_SHARED uint kDigest##Name = number;
#include "ops/rules.inc"

#ifdef __cplusplus
}  // namespace weir::vulkan
#endif
#endif
