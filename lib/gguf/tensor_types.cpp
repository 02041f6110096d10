// Types that Weir computes with come from quants.inc; the others are listed here.
#include "gguf/tensor_types.h"

#include "quant/weight_type.h"

namespace weir {
namespace {

struct OtherType {
  uint32_t gguf_id;
  TensorType type;
};

constexpr OtherType kOtherTypes[] = {
    {9, {"q8_1", 32, 36}},    {15, {"q8_k", 256, 292}}, {19, {"iq1_s", 256, 50}}, {24, {"i8", 1, 1}},
    {25, {"i16", 1, 2}},      {26, {"i32", 1, 4}},      {27, {"i64", 1, 8}},      {28, {"f64", 1, 8}},
    {29, {"iq1_m", 256, 56}}, {34, {"tq1_0", 256, 54}}, {35, {"tq2_0", 256, 66}}, {41, {"q1_0", 128, 18}},
    {42, {"q2_0", 64, 18}},
};

constexpr bool is_other(uint32_t gguf_id) {
  for (const OtherType& other : kOtherTypes) {
    if (other.gguf_id == gguf_id) return true;
  }
  return false;
}
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) \
  static_assert(!is_other(gguf_id), text " is in quants.inc, so it leaves the list above");
#include "quant/quants.inc"
#undef WEIR_QUANT

}  // namespace

const GivenUpType* find_given_up_type(uint32_t gguf_id) {
  for (const GivenUpType& type : kGivenUp) {
    if (type.gguf_id == gguf_id) return &type;
  }
  return nullptr;
}

bool find_tensor_type(uint32_t gguf_id, TensorType& out) {
  WeightType ours;
  if (weight_type_from_gguf(gguf_id, ours)) {
    const WeightTypeInfo& info = weight_type_info(ours);
    out = {info.name, info.block_weights, info.block_bytes};
    return true;
  }
  for (const OtherType& other : kOtherTypes) {
    if (other.gguf_id != gguf_id) continue;
    out = other.type;
    return true;
  }
  return false;
}

}  // namespace weir
