// models: the description of a layer. Mirrors lib/models/layer.cpp, lib/ops/traits.h.
#include "models/layer.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "cpu/backend.h"
#include "kv/kv_cache.h"
#include "models/attend.h"
#include "models/model.h"
#include "ops/attn_paged.h"
#include "tests/cmocka_cpp.h"

namespace weir {
namespace {

// A plain layer: norms before, SwiGLU, no biases.
Layer plain_layer() {
  static const float kOnes[4] = {1, 1, 1, 1};
  Layer layer;
  layer.n_stages = 5;
  layer.stage[0].norm = layer.stage[3].norm = kOnes;
  layer.stage[0].n_parts = 3;
  layer.stage[0].part[0].y = Row::kQ;
  layer.stage[0].part[1].y = Row::kK;
  layer.stage[0].part[2].y = Row::kV;
  layer.stage[1].kind = Stage::Kind::kAttend;
  layer.stage[2].x = Row::kO;
  layer.stage[2].n_parts = 1;
  layer.stage[3].kind = Stage::Kind::kGlu;
  layer.stage[3].n_parts = 2;
  layer.stage[3].part[0].y = layer.stage[3].part[1].y = Row::kG;
  layer.stage[4].x = Row::kG;
  layer.stage[4].n_parts = 1;
  return layer;
}

const float kAny[4] = {1, 2, 3, 4};

struct Change {
  Trait trait;
  std::function<void(Layer&, ModelConfig&)> make;
};

// One way to have each trait.
std::vector<Change> changes() {
  return {
      {Trait::kQkvBias, [](Layer& l, ModelConfig&) { l.stage[0].part[1].bias = kAny; }},
      {Trait::kOutBias, [](Layer& l, ModelConfig&) { l.stage[4].part[0].bias = kAny; }},
      {Trait::kGluBias, [](Layer& l, ModelConfig&) { l.stage[3].part[1].bias = kAny; }},
      {Trait::kInnerNorm, [](Layer& l, ModelConfig&) { l.stage[4].norm = kAny; }},
      {Trait::kQkNorm, [](Layer& l, ModelConfig&) { l.attention.k_norm = kAny; }},
      {Trait::kQkRowNorm,
       [](Layer& l, ModelConfig&) {
         l.stage[1].kind = Stage::Kind::kNorm;
         l.stage[1].norm = kAny;
       }},
      {Trait::kPostNorm, [](Layer& l, ModelConfig&) { l.stage[2].post_norm = kAny; }},
      {Trait::kNoNorm, [](Layer& l, ModelConfig&) { l.stage[3].norm = nullptr; }},
      {Trait::kGeluGate, [](Layer& l, ModelConfig&) { l.stage[3].gate = Gate::kGelu; }},
      {Trait::kClampedGate, [](Layer& l, ModelConfig&) { l.stage[3].gate = Gate::kClamped; }},
      {Trait::kReluGate, [](Layer& l, ModelConfig&) { l.stage[3].gate = Gate::kRelu; }},
      {Trait::kEmbeddingScale, [](Layer&, ModelConfig& c) { c.embedding_scale = 16.0f; }},
      {Trait::kWindow, [](Layer& l, ModelConfig&) { l.attention.window = 512; }},
      {Trait::kLayerRope, [](Layer& l, ModelConfig&) { l.attention.rotation = 1; }},
      {Trait::kAttnSoftCap, [](Layer& l, ModelConfig&) { l.attention.soft_cap = 50.0f; }},
      {Trait::kLogitSoftCap, [](Layer&, ModelConfig& c) { c.logit_soft_cap = 30.0f; }},
      {Trait::kTemperature, [](Layer&, ModelConfig& c) { c.temperature.beta = 0.1f; }},
      {Trait::kAttnSinks, [](Layer& l, ModelConfig&) { l.attention.sinks = kAny; }},
      {Trait::kExperts, [](Layer& l, ModelConfig&) { l.experts.router.n_experts = 8; }},
      {Trait::kHeadGate,
       [](Layer& l, ModelConfig&) {
         l.stage[1] = Stage();
         l.stage[1].kind = Stage::Kind::kHeadGate;
         l.stage[1].x = Row::kQ;
       }},
      {Trait::kDeltaNet, [](Layer& l, ModelConfig&) { l.kind.mixer = Mixer::kDeltaNet; }},
      {Trait::kMamba2, [](Layer& l, ModelConfig&) { l.kind.mixer = Mixer::kMamba2; }},
      {Trait::kShortConv, [](Layer& l, ModelConfig&) { l.kind.mixer = Mixer::kShortConv; }},
  };
}

void traits__a_plain_layer_has_none(void**) {
  const Layer layer = plain_layer();
  assert_true(traits_of(ModelConfig(), {&layer, 1}) == TraitSet());
}

// Whatever a description has beyond the plain layer is one trait, in whichever layer it is.
void traits__each_is_found_in_the_description(void**) {
  TraitSet all;
  for (const Change& change : changes()) {
    Layer layers[3] = {plain_layer(), plain_layer(), plain_layer()};
    ModelConfig config;
    change.make(layers[1], config);
    assert_true(traits_of(config, layers) == TraitSet(change.trait));
    all.add(change.trait);
  }
  for (uint32_t i = 0; i < kTraitCount; ++i) assert_true(all.has(static_cast<Trait>(i)));
}

// A backend runs the traits that it names. Any other trait is refused by name when a session is planned, not in the
// middle of a step.
void traits__a_backend_refuses_those_that_it_lacks(void**) {
  uint32_t n_refused = 0;
  for (const Backend* backend : {&cpu_backend(), &reference_backend()}) {
    for (uint32_t i = 0; i < kTraitCount; ++i) {
      const auto trait = static_cast<Trait>(i);
      const Status status = check_traits(TraitSet(trait), backend->traits, backend->name);
      assert_int_equal(status.code(), backend->traits.has(trait) ? WEIR_OK : WEIR_ERR_UNSUPPORTED);
      if (status.ok()) continue;
      assert_non_null(std::strstr(last_error_text(), kTraitNames[i]));
      assert_non_null(std::strstr(last_error_text(), backend->name));
      ++n_refused;
    }
  }
  assert_true(n_refused > 0);
}

// The layers of gemma3 that see a window, and what follows from it.
void layers__of_gemma3_are_local_and_global(void**) {
  for (const char* name : {"gemma3_f32", "gemma3_q8_0"}) {
    Model model(std::pmr::new_delete_resource());
    const std::string path = std::string(WEIR_SOURCE_DIR "/tests/golden/models/") + name + ".gguf";
    assert_true(model.open(path.c_str(), 0, nullptr, nullptr).ok());
    const uint32_t every = std::strcmp(name, "gemma3_f32") == 0 ? 3 : 6;  // the file's, and the architecture's own
    const uint32_t window = every == 3 ? 20 : 9;
    assert_int_equal(model.rope().n_rotations(), 2);
    for (uint32_t i = 0; i < model.config().n_layers; ++i) {
      const Attention& attention = model.weights().layers[i].attention;
      assert_int_equal(attention.window, (i + 1) % every == 0 ? 0 : window);
      assert_int_equal(attention.rotation, (i + 1) % every == 0 ? 0 : 1);
      assert_int_equal(is_ruled(attention), (i + 1) % every == 0);
    }
    assert_true(model.config().traits == TraitSet(Trait::kQkNorm, Trait::kPostNorm, Trait::kGeluGate,
                                                  Trait::kEmbeddingScale, Trait::kWindow, Trait::kLayerRope));
  }
}

// Every other layer of gpt-oss sees a window, the first among them, and all of them have what gpt-oss has of its own.
void layers__of_gpt_oss_alternate(void**) {
  Model model(std::pmr::new_delete_resource());
  assert_true(model.open(WEIR_SOURCE_DIR "/tests/golden/models/gpt_oss_f32.gguf", 0, nullptr, nullptr).ok());
  assert_int_equal(model.rope().n_rotations(), 1);
  for (uint32_t i = 0; i < model.config().n_layers; ++i) {
    const Layer& layer = model.weights().layers[i];
    assert_int_equal(layer.attention.window, i % 2 == 0 ? 12 : 0);
    assert_non_null(layer.attention.sinks);
    assert_int_equal(layer.experts.router.n_experts, 6);
    assert_int_equal(layer.experts.router.n_used, 2);
    assert_non_null(layer.experts.router.bias);
    assert_null(layer.experts.shared_router);
  }
  assert_true(model.config().traits == TraitSet(Trait::kQkvBias, Trait::kOutBias, Trait::kGluBias, Trait::kClampedGate,
                                                Trait::kWindow, Trait::kAttnSinks, Trait::kExperts));
}

// Granite's residual stream is divided by the residual factor, which the embeddings' factor and epsilon make good for;
// logits are divided in the last norm.
void layers__of_granite_have_no_factors(void**) {
  Model model(std::pmr::new_delete_resource());
  assert_true(model.open(WEIR_SOURCE_DIR "/tests/golden/models/granite_f32.gguf", 0, nullptr, nullptr).ok());
  const ModelConfig& c = model.config();
  const auto near = [](float got, double want) { assert_true(std::fabs(double{got} / want - 1.0) < 1e-6); };
  near(c.embedding_scale, 3.0 / 0.6);
  near(c.norm_eps, 1e-5 / (0.6 * 0.6));
  near(c.attn_scale, 0.09);
  near(c.logit_scale, 1.0 / 4.0);
  assert_ptr_equal(model.weights().output_norm, model.weights().scaled_norm.data());
  assert_true(c.traits == TraitSet(Trait::kEmbeddingScale));
}

// A layer with a window sees that window, whatever the policy shows in the others.
void layers__with_a_window_see_it_and_no_more(void**) {
  Attention global, local;
  local.window = 100;
  const auto check = [](const AttnScope& got, uint32_t n_sink_pages, uint32_t n_sink, uint32_t window) {
    assert_int_equal(got.n_sink_pages, n_sink_pages);
    assert_int_equal(got.n_sink, n_sink);
    assert_int_equal(got.window, window);
  };
  check(scope_in({1, 4, 50}, global), 1, 4, 50);
  check(scope_in({1, 4, 50}, local), 0, 0, 100);
  check(scope_in({1, 4, 200}, local), 0, 0, 100);
  check(scope_in({1, 0, 0}, local), 0, 0, 100);
}

// What attention has beyond a plain layer reaches the op.
void layers__sinks_and_soft_caps_reach_attention(void**) {
  static const float kSinks[2] = {1.0f, -1.0f};
  const ModelConfig config = {};
  const RopeTable rope(std::pmr::null_memory_resource());
  KvCache kv;
  Arena pages, digests, tables;  // that only measure
  KvShape shape;
  shape.n_layers = shape.n_kv_heads = shape.pages_per_stream = 1;
  shape.head_dim = 64;
  kv.lay_out(shape, pages, digests, tables);
  const StepBuffers buffers = {};
  const AttnScope scope = {};
  Attention attention;
  assert_null(attn_paged_args({config, rope, kv, buffers, scope}, attention, 0).sinks);
  attention.sinks = kSinks;
  attention.soft_cap = 50.0f;
  const AttnPagedArgs a = attn_paged_args({config, rope, kv, buffers, scope}, attention, 0);
  assert_ptr_equal(a.sinks, kSinks);
  assert_true(a.soft_cap == 50.0f);
}

}  // namespace
}  // namespace weir

int main() {
  using namespace weir;
  const CMUnitTest tests[] = {
      cmocka_unit_test(traits__a_plain_layer_has_none),
      cmocka_unit_test(traits__each_is_found_in_the_description),
      cmocka_unit_test(traits__a_backend_refuses_those_that_it_lacks),
      cmocka_unit_test(layers__of_gemma3_are_local_and_global),
      cmocka_unit_test(layers__of_gpt_oss_alternate),
      cmocka_unit_test(layers__of_granite_have_no_factors),
      cmocka_unit_test(layers__with_a_window_see_it_and_no_more),
      cmocka_unit_test(layers__sinks_and_soft_caps_reach_attention),
  };
  return cmocka_run_group_tests_name("models/layer", tests, nullptr, nullptr);
}
