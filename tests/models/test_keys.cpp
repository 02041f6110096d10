// models: keys of an architecture that are missing, have another name or another form, or are not known: read, taken
// for granted with a line, or refused by name; and no such line for files that say everything.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "models/model.h"
#include "tests/gguf/changed_file.h"
#include "tests/models/golden.h"

using namespace weir;
using weir_test::ChangedFile;
using weir_test::GgufWriter;

namespace {

std::string golden(const std::string& name) { return WEIR_GOLDEN_MODELS + name + ".gguf"; }

struct Opened {
  explicit Opened(const char* path) : model(std::pmr::new_delete_resource()) {
    status = model.open(path, 0, nullptr, nullptr);
    for (size_t i = 0; i < model.notes().size(); ++i) {
      std::string& to = model.notes().kind(i) == Notes::Kind::kWarning ? warnings : defaults;
      to += std::string(model.notes().text(i)) + "\n";
    }
  }
  explicit Opened(const ChangedFile& file) : Opened(file.path()) {}

  Model model;
  Status status;
  std::string warnings, defaults;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// How often `part` is in `text`.
int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

ChangedFile without(const std::string& name, const std::string& key) {
  return ChangedFile(golden(name), {}, [&](std::string_view k) { return k == key ? "" : std::string(k); });
}

ChangedFile with(const std::string& name, const GgufWriter& more, const std::string& instead_of = "") {
  return ChangedFile(golden(name), more, [&](std::string_view k) { return k == instead_of ? "" : std::string(k); });
}

void files_that_say_everything_give_no_warning(void**) {
  uint32_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WEIR_GOLDEN_MODELS)) {
    if (entry.path().extension() != ".gguf") continue;
    const Opened o(entry.path().c_str());
    if (!o.status.ok()) fail_msg("%s: %s", entry.path().c_str(), last_error_text());
    if (!o.warnings.empty()) fail_msg("%s: %s", entry.path().c_str(), o.warnings.c_str());
    ++n;
  }
  assert_true(n > 40);
  const Opened tiny(WEIR_SOURCE_DIR "/samples/models/weir-tiny-reasoner-q8_0.gguf");
  assert_true(tiny.status.ok() && tiny.warnings.empty());
}

void names__of_other_writers_are_read(void**) {
  GgufWriter local;
  local.add_f32("gemma3.rope.local.freq_base", 777.0f);
  const ChangedFile ours(golden("gemma3_f32"), GgufWriter().add_f32("gemma3.rope.freq_base_swa", 777.0f));
  const ChangedFile theirs(golden("gemma3_f32"), local, [](std::string_view key) {
    if (key == "gemma3.rope.freq_base") return std::string("gemma3.rope.global.freq_base");
    if (key == "gemma3.attention.layer_norm_rms_epsilon") return std::string("gemma3.attention.layer_norm_epsilon");
    return std::string(key);
  });
  const Opened a(ours), b(theirs), plain(golden("gemma3_f32").c_str());
  assert_true(a.status.ok() && b.status.ok() && b.warnings.empty());
  assert_true(a.model.rope().angles() == b.model.rope().angles());
  assert_true(a.model.fingerprint() == b.model.fingerprint());
  assert_true(a.model.rope().angles() != plain.model.rope().angles());
}

double base_of(const Model& model) { return std::pow(model.rope().angles()[1], -0.5 * model.rope().rope_dim()); }

// The base of the architecture's models, with a line that says so.
void rope_base__missing(void**) {
  const struct {
    const char *file, *arch;
    double base;
    bool warns;
  } cases[] = {
      {"gemma3_f32", "gemma3", 1e6, true},     {"qwen3_f32", "qwen3", 1e6, true},
      {"qwen3moe_f32", "qwen3moe", 1e6, true}, {"qwen2moe_f32", "qwen2moe", 1e6, true},
      {"qwen2_f32", "qwen2", 1e4, true},       {"smollm3_f32", "smollm3", 5e6, true},
      {"olmo2_f32", "olmo2", 5e5, true},       {"granite_f32", "granite", 1e4, true},
      {"glm4_f32", "glm4", 1e4, true},         {"phi3_f32", "phi3", 1e4, true},
      {"gemma2_f32", "gemma2", 1e4, false},    {"llama_f32", "llama", 1e4, false},
  };
  for (const auto& c : cases) {
    const std::string key = std::string(c.arch) + ".rope.freq_base";
    const Opened o(without(c.file, key));
    assert_true(o.status.ok());
    assert_true(std::fabs(base_of(o.model) / c.base - 1.0) < 1e-6);
    assert_int_equal(count(o.warnings, key + ":"), c.warns ? 1 : 0);
    assert_int_equal(count(o.defaults, key + ":"), c.warns ? 0 : 1);
  }
}

void numbers__missing(void**) {
  const struct {
    const char *file, *key;
    float ModelConfig::*number;
    float value;
  } cases[] = {
      {"gemma2_f32", "gemma2.attn_logit_softcapping", &ModelConfig::attn_soft_cap, 50.0f},
      {"gemma2_f32", "gemma2.final_logit_softcapping", &ModelConfig::logit_soft_cap, 30.0f},
      {"granite_f32", "granite.logit_scale", &ModelConfig::logit_scale, 1.0f},
      {"granite_f32", "granite.attention.scale", &ModelConfig::attn_scale, 0.125f},
      {"granite_f32", "granite.embedding_scale", nullptr, 0},
      {"granite_f32", "granite.residual_scale", nullptr, 0},
      {"gpt_oss_f32", "gpt-oss.rope.scaling.original_context_length", nullptr, 0},
      {"gpt_oss_f32", "gpt-oss.rope.scaling.factor", nullptr, 0},
      {"glm4_f32", "glm4.rope.dimension_count", nullptr, 0},
      {"phi3_f32", "phi3.rope.dimension_count", nullptr, 0},
  };
  for (const auto& c : cases) {
    const Opened o(without(c.file, c.key));
    if (!o.status.ok()) fail_msg("%s: %s", c.key, last_error_text());
    if (count(o.warnings, c.key) != 1) fail_msg("%s: \"%s\"", c.key, o.warnings.c_str());
    if (c.number != nullptr) assert_true(o.model.config().*c.number == c.value);
  }
  assert_int_equal(Opened(without("glm4_f32", "glm4.rope.dimension_count")).model.rope().rope_dim(), 32);
  assert_int_equal(Opened(without("phi3_f32", "phi3.rope.dimension_count")).model.rope().rope_dim(), 96);
}

void unknown_keys__are_named(void**) {
  GgufWriter more;
  more.add_f32("llama.attention.new_thing", 0.5f).add_u32("llama.some_size", 3);
  more.add_string("llama.rope.kind", "odd").add_array("llama.numbers", GgufType::kF32, std::vector<float>{1.0f});
  const Opened o(with("llama_f32", more));
  assert_true(o.status.ok());
  for (const char* key : {"llama.attention.new_thing", "llama.some_size", "llama.rope.kind", "llama.numbers"})
    assert_int_equal(count(o.warnings, key), 1);
  GgufWriter idle;
  idle.add_f32("llama.attention.new_thing", 0.0f).add_bool("llama.some_flag", false).add_u32("qwen2.some_size", 3);
  idle.add_string("llama.tensor_data_layout", "Meta AI original pth").add_u32("llamas.some_size", 3);
  idle.add_u32("llama.vision.block_count", 7)
      .add_string("llama.remark", "text")
      .add_bool("llama.attention.causal", true);
  const Opened quiet(with("llama_f32", idle));
  assert_true(quiet.status.ok());
  assert_string_equal(quiet.warnings.c_str(), "");
  // However many there are.
  GgufWriter many;
  for (int i = 0; i < 1000; ++i) many.add_u32("llama.key" + std::to_string(i), 1);
  const Opened full(with("llama_f32", many));
  assert_true(full.status.ok());
  assert_true(full.model.notes().size() < 100 && full.model.notes().size() + full.model.notes().n_left_out() >= 1000);
}

void keys_that_change_answers__are_refused(void**) {
  const auto refused = [](const char* file, const GgufWriter& more, const char* key, const char* instead_of = "") {
    const Opened o(with(file, more, instead_of));
    if (o.status.code() != WEIR_ERR_UNSUPPORTED || !has(last_error_text(), key))
      fail_msg("%s: %s \"%s\"", key, weir_status_name(o.status.code()), last_error_text());
  };
  for (const char* key : {"attention.q_lora_rank", "attention.temperature_length", "swiglu_clamp_exp",
                          "nextn_predict_layers", "router_logit_softcapping", "embedding_length_per_layer_input",
                          "use_parallel_residual", "logit_scale", "final_logit_softcapping", "attention.scale"}) {
    const std::string name = std::string("llama.") + key;
    refused("llama_f32", GgufWriter().add_f32(name, 2.0f), name.c_str());
    refused("llama_f32", GgufWriter().add_u32(name, 2), name.c_str());
    refused("llama_f32", GgufWriter().add_array(name, GgufType::kF32, std::vector<float>{2.0f}), name.c_str());
    assert_true(Opened(with("llama_f32", GgufWriter().add_f32(name, 0.0f))).status.ok());
  }
  assert_true(Opened(with("llama_f32", GgufWriter().add_f32("llama.logit_scale", 1.0f))).status.ok());
  refused("llama_f32", GgufWriter().add_bool("llama.attention.causal", false), "llama.attention.causal");
  refused("llama_f32", GgufWriter().add_u32("llama.attention.key_length_swa", 32), "llama.attention.key_length_swa");
  assert_true(Opened(with("llama_f32", GgufWriter().add_u32("llama.attention.key_length_swa", 64))).status.ok());
  refused("gemma2_f32", GgufWriter().add_f32("gemma2.rope.freq_base_swa", 5000.0f), "gemma2.rope.freq_base_swa");
  assert_true(Opened(with("gemma2_f32", GgufWriter().add_f32("gemma2.rope.freq_base_swa", 1e4f))).status.ok());
  refused("qwen3moe_f32", GgufWriter().add_bool("qwen3moe.expert_weights_norm", false), "qwen3moe.expert_weights_norm");
  refused("qwen2moe_f32", GgufWriter().add_bool("qwen2moe.expert_weights_norm", true), "qwen2moe.expert_weights_norm");
  assert_true(Opened(with("qwen3moe_f32", GgufWriter().add_bool("qwen3moe.expert_weights_norm", true))).status.ok());
  refused("qwen3moe_f32", GgufWriter().add_u32("qwen3moe.expert_gating_func", 2), "qwen3moe.expert_gating_func");
  refused("llama_f32",
          GgufWriter().add_array("llama.attention.head_count_kv", GgufType::kI32, std::vector<int32_t>{2, 4}),
          "llama.attention.head_count_kv", "llama.attention.head_count_kv");
}

// One number for each layer, and which layers have a window.
void arrays__of_layers(void**) {
  const std::string heads = "llama.attention.head_count_kv";
  const GgufWriter same = GgufWriter().add_array(heads, GgufType::kI32, std::vector<int32_t>{2, 2});
  const Opened plain(golden("llama_f32").c_str()), array(with("llama_f32", same, heads));
  assert_true(array.status.ok() && array.model.fingerprint() == plain.model.fingerprint());
  const std::string pattern = "gemma3.attention.sliding_window_pattern";
  const auto windows = [&](GgufType type, const std::vector<uint8_t>& is_local) {
    return with("gemma3_f32", GgufWriter().add_array(pattern, type, is_local), pattern);
  };
  const Opened number(golden("gemma3_f32").c_str());
  for (const GgufType type : {GgufType::kBool, GgufType::kU8}) {
    const Opened o(windows(type, {1, 1, 0}));
    if (!o.status.ok()) fail_msg("%s", last_error_text());
    assert_true(o.model.fingerprint() == number.model.fingerprint());
    for (uint32_t i = 0; i < 3; ++i)
      assert_int_equal(o.model.weights().layers[i].attention.window, number.model.weights().layers[i].attention.window);
  }
  const Opened all(windows(GgufType::kBool, {1, 1, 1})), none(windows(GgufType::kBool, {0, 0, 0}));
  assert_true(all.status.ok() && none.status.ok());
  for (uint32_t i = 0; i < 3; ++i) {
    assert_int_equal(all.model.weights().layers[i].attention.window, 20);
    assert_int_equal(none.model.weights().layers[i].attention.window, 0);
  }
  assert_int_equal(Opened(windows(GgufType::kBool, {0, 1, 1})).status.code(), WEIR_ERR_UNSUPPORTED);
  assert_true(has(last_error_text(), pattern));
  assert_int_equal(Opened(windows(GgufType::kBool, {1, 1})).status.code(), WEIR_ERR_FORMAT);
}

// A file of qwen2 that does not name its pre-tokenizer.
void pre_tokenizer__of_the_architecture(void**) {
  const struct {
    const char *file, *kind;
  } cases[] = {{"qwen2_f32", "gpt2/qwen2"},
               {"qwen3_f32", "gpt2/qwen2"},
               {"gpt_oss_f32", "gpt2/gpt-4o"},
               {"olmo2_f32", "gpt2/dbrx"},
               {"llama_f32", "gpt2/default"}};
  for (const auto& c : cases) {
    const Opened o(without(c.file, "tokenizer.ggml.pre"));
    assert_true(o.status.ok());
    assert_string_equal(o.model.tokenizer().kind(), c.kind);
    assert_int_equal(count(o.warnings, "tokenizer.ggml.pre:"), 1);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(files_that_say_everything_give_no_warning),
      cmocka_unit_test(names__of_other_writers_are_read),
      cmocka_unit_test(rope_base__missing),
      cmocka_unit_test(numbers__missing),
      cmocka_unit_test(unknown_keys__are_named),
      cmocka_unit_test(keys_that_change_answers__are_refused),
      cmocka_unit_test(arrays__of_layers),
      cmocka_unit_test(pre_tokenizer__of_the_architecture),
  };
  return cmocka_run_group_tests_name("models/keys", tests, nullptr, nullptr);
}
