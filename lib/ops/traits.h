// What decoder layers may do beyond the plain Llama layer, as a set of traits. A model has the traits that
// lib/models/layer.cpp finds in its description. A backend has the traits that its ops, and its walk through the layer,
// can compute.
#pragma once

#include <cstdint>

namespace weir {

enum class Trait : uint8_t {
#define WEIR_TRAIT(Name, text) k##Name,
#include "ops/traits.inc"
#undef WEIR_TRAIT
};

class TraitSet {
 public:
  constexpr TraitSet() = default;
  template <class... Traits>
  constexpr explicit TraitSet(Traits... traits) : bits_((bit(traits) | ... | 0u)) {}
  constexpr void add(Trait trait, bool present = true) { bits_ |= present ? bit(trait) : 0u; }
  constexpr bool has(Trait trait) const { return (bits_ & bit(trait)) != 0; }
  constexpr bool operator==(const TraitSet&) const = default;

 private:
  static constexpr uint32_t bit(Trait trait) { return 1u << static_cast<uint32_t>(trait); }
  uint32_t bits_ = 0;
};

inline constexpr const char* kTraitNames[] = {
#define WEIR_TRAIT(Name, text) text,
#include "ops/traits.inc"
#undef WEIR_TRAIT
};
inline constexpr uint32_t kTraitCount = sizeof(kTraitNames) / sizeof(kTraitNames[0]);
static_assert(kTraitCount <= 32);

}  // namespace weir
