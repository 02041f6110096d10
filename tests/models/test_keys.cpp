// models: keys of an architecture that are missing, have another name or another form, or are not known: read, taken
// for granted with a line, or refused by name; and no such line for files that say everything.
#include <algorithm>
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
      std::string* const lines[] = {&warnings, &defaults, &unused};
      *lines[static_cast<size_t>(model.notes().kind(i))] += std::string(model.notes().text(i)) + "\n";
    }
  }
  explicit Opened(const ChangedFile& file) : Opened(file.path()) {}

  Model model;
  Status status;
  std::string warnings, defaults, unused;
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

// What the models' own configuration has where it says nothing: converters leave the key out then. Every other loader
// takes 10,000. One line names the key and the base.
void rope_base__missing(void**) {
  const struct {
    const char *file, *arch;
    double base;
    bool warns;
    const char* taken;
  } cases[] = {
      {"gemma3_f32", "gemma3", 1e6, true, "1000000"},
      {"qwen3_f32", "qwen3", 1e4, true, "10000"},
      {"qwen3moe_f32", "qwen3moe", 1e4, true, "10000"},
      {"qwen2moe_f32", "qwen2moe", 1e4, true, "10000"},
      {"qwen2_f32", "qwen2", 1e4, true, "10000"},
      {"smollm3_f32", "smollm3", 2e6, true, "2000000"},
      {"olmo2_f32", "olmo2", 1e4, true, "10000"},
      {"granite_f32", "granite", 1e4, true, "10000"},
      {"glm4_f32", "glm4", 1e4, true, "10000"},
      {"phi3_f32", "phi3", 1e4, true, "10000"},
      {"gemma2_f32", "gemma2", 1e4, false, "10000"},
      {"llama_f32", "llama", 1e4, false, "10000"},
      {"gpt_oss_f32", "gpt-oss", 150000, true, "150000"},
      {"qwen35_f32", "qwen35", 1e4, true, "10000"},
      {"granitehybrid_f32", "granitehybrid", 1e4, true, "10000"},
      {"qwen35moe_f32", "qwen35moe", 1e4, true, "10000"},
      {"qwen3next_f32", "qwen3next", 1e4, true, "10000"},
      {"lfm2moe_f32", "lfm2moe", 1e4, true, "10000"},
      {"nemotron_h_moe_f32", "nemotron_h_moe", 1e4, true, "10000"},
      {"lfm2_f32", "lfm2", 1e4, true, "10000"},
      {"nemotron_h_f32", "nemotron_h", 1e4, true, "10000"},
      {"glm4moe_f32", "glm4moe", 1e4, true, "10000"},
      {"granitemoe_f32", "granitemoe", 1e4, true, "10000"},
      {"qwen3vl_f32", "qwen3vl", 1e4, true, "10000"},
      {"qwen3vlmoe_f32", "qwen3vlmoe", 1e4, true, "10000"},
      {"mistral3_f32", "mistral3", 1e4, true, "10000"},
  };
  static_assert(std::size(cases) == std::size(weir::test::kArchitectures));
  for (const auto& c : cases) {
    const std::string key = std::string(c.arch) + ".rope.freq_base";
    const Opened o(without(c.file, key));
    const Opened given(with(c.file, GgufWriter().add_f32(key, static_cast<float>(c.base)), key));
    assert_true(o.status.ok() && given.status.ok());
    if (o.model.rope().angles() != given.model.rope().angles()) fail_msg("%s: not %g", c.arch, c.base);
    const std::string& line = c.warns ? o.warnings : o.defaults;
    const std::string text = c.warns ? std::string("; ") + c.taken + " is taken" : std::string("; it is ") + c.taken;
    if (count(o.warnings + o.defaults, key + ":") != 1 || !has(line, key + ": the file has no such key" + text))
      fail_msg("%s: \"%s\"", c.arch, (o.warnings + o.defaults).c_str());
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
}

// However many keys nobody knows: what is known to change answers stands before them, and the rest is counted.
void unknown_keys__hide_nothing(void**) {
  constexpr int kMany = 1000;
  GgufWriter many;
  for (int i = 0; i < kMany; ++i) many.add_u32("qwen2.key" + std::to_string(i), 1);
  const auto without_some = [](std::string_view key) {
    const bool goes = key == "qwen2.rope.freq_base" || key == "tokenizer.ggml.pre";
    return goes ? std::string() : std::string(key);
  };
  const Opened few(ChangedFile(golden("qwen2_f32"), {}, without_some));
  const Opened full(ChangedFile(golden("qwen2_f32"), many, without_some));
  assert_true(few.status.ok() && full.status.ok());
  const Notes &known = few.model.notes(), &all = full.model.notes();
  assert_true(known.size() >= 2 && known.n_left_out() == 0 && all.size() < 100);
  for (size_t i = 0; i < known.size(); ++i) assert_string_equal(all.text(i), known.text(i));
  assert_int_equal(all.size() + all.n_left_out(), known.size() + kMany);
  assert_true(has(full.warnings, "qwen2.rope.freq_base:") && has(full.warnings, "tokenizer.ggml.pre:"));
  // Nor do ids that mean nothing.
  GgufWriter ids;
  ids.add_array("tokenizer.ggml.eos_token_ids", GgufType::kI32, std::vector<int32_t>(200, 1 << 30));
  const Opened wrong(ChangedFile(golden("qwen2_f32"), ids, without_some));
  assert_true(wrong.status.ok());
  assert_int_equal(wrong.model.notes().n_all(), known.size() + 1);
  assert_int_equal(count(wrong.warnings, "tokenizer.ggml.eos_token_ids"), 1);
}

void notes__warnings_come_before_defaults(void**) {
  Notes notes(std::pmr::new_delete_resource());
  for (int i = 0; i < 20; ++i) notes.take_default("default %d", i);
  for (int i = 0; i < 50; ++i) notes.warn("warning %d", i);
  notes.take_default("late");
  const size_t n = notes.size();
  for (size_t i = 0; i < n; ++i) {
    assert_true(notes.kind(i) == Notes::Kind::kWarning);
    assert_string_equal(notes.text(i), ("warning " + std::to_string(i)).c_str());
  }
  assert_int_equal(n + notes.n_left_out(), 71);
}

void keys_that_change_answers__are_refused(void**) {
  const auto refused = [](const char* file, const GgufWriter& more, const char* key, const char* instead_of = "") {
    const Opened o(with(file, more, instead_of));
    if (o.status.code() != WEIR_ERR_UNSUPPORTED || !has(last_error_text(), key))
      fail_msg("%s: %s \"%s\"", key, weir_status_name(o.status.code()), last_error_text());
  };
  for (const char* key : {"attention.q_lora_rank", "attention.temperature_length", "swiglu_clamp_exp",
                          "expert_weights_scale", "router_logit_softcapping", "embedding_length_per_layer_input",
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
  refused("qwen3moe_f32", GgufWriter().add_u32("qwen3moe.expert_gating_func", 4), "qwen3moe.expert_gating_func");
  refused("llama_f32",
          GgufWriter().add_array("llama.attention.head_count_kv", GgufType::kI32, std::vector<int32_t>{2, 4}),
          "llama.attention.head_count_kv", "llama.attention.head_count_kv");
}

// What a file says about its router goes before the architecture's own way, and models with other routers are others.
void routers__are_what_the_file_says(void**) {
  using Score = RouteRule::Score;
  const Opened usual(golden("qwen3moe_f32").c_str()), plain(golden("qwen2moe_f32").c_str());
  assert_true(usual.model.config().route.normalise && !plain.model.config().route.normalise);
  const struct {
    GgufWriter more;
    bool same;
    RouteRule want;
  } cases[] = {
      {GgufWriter().add_u32("qwen3moe.expert_gating_func", 1), true, {}},
      {GgufWriter().add_u32("qwen3moe.expert_gating_func", 3), true, {}},
      {GgufWriter().add_bool("qwen3moe.expert_weights_norm", true), true, {}},
      {GgufWriter().add_f32("qwen3moe.expert_weights_scale", 0.0f), true, {}},
      {GgufWriter().add_bool("qwen3moe.expert_weights_norm", false), false, {.normalise = false}},
      {GgufWriter().add_u32("qwen3moe.expert_gating_func", 2), false, {.score = Score::kSigmoid}},
      {GgufWriter().add_f32("qwen3moe.expert_weights_scale", 2.5f), false, {.scale = 2.5f}},
      {GgufWriter().add_u32("qwen3moe.expert_group_count", 4).add_u32("qwen3moe.expert_group_used_count", 2),
       false,
       {.n_groups = 4, .n_groups_used = 2}},
  };
  std::vector<uint64_t> fingerprints;
  for (const auto& c : cases) {
    const Opened o(with("qwen3moe_f32", c.more));
    if (!o.status.ok()) fail_msg("%s", last_error_text());
    for (const Layer& layer : o.model.weights().layers) {
      const RouteRule& got = layer.experts.router.rule;
      assert_true(got.score == c.want.score && got.normalise == c.want.normalise && got.scale == c.want.scale);
      assert_true(got.n_groups == c.want.n_groups && got.n_groups_used == c.want.n_groups_used);
    }
    const uint64_t fingerprint = o.model.fingerprint();
    assert_true((fingerprint == usual.model.fingerprint()) == c.same);
    if (!c.same) fingerprints.push_back(fingerprint);
  }
  std::sort(fingerprints.begin(), fingerprints.end());
  assert_true(std::adjacent_find(fingerprints.begin(), fingerprints.end()) == fingerprints.end());
}

// A block behind the layers, which block_count counts or does not, and parts that see and hear: not used, and counted.
void parts__that_text_does_without(void**) {
  const Opened o(golden("glm4moe_f32").c_str());
  const uint32_t n_layers = o.model.config().n_layers;
  assert_int_equal(n_layers, 2);
  assert_true(has(o.unused, "25 tensors (") && has(o.unused, ") that predict tokens after the next one"));
  const std::string blocks = "glm4moe.block_count", next = "glm4moe.nextn_predict_layers";
  const Opened uncounted(with("glm4moe_f32", GgufWriter().add_u32(blocks, n_layers), blocks));
  assert_true(uncounted.status.ok() && uncounted.model.fingerprint() == o.model.fingerprint());
  assert_string_equal(uncounted.unused.c_str(), o.unused.c_str());
  const auto keep = [&](std::string_view name) { return !name.starts_with("blk.2."); };
  const Opened cut(ChangedFile(golden("glm4moe_f32"), {}, nullptr, keep));
  assert_true(cut.status.ok() && cut.model.config().n_layers == n_layers && cut.unused.empty());
  assert_int_equal(Opened(without("glm4moe_f32", next)).status.code(), WEIR_ERR_UNSUPPORTED);
  assert_true(has(last_error_text(), "blk.2.nextn."));
  for (const uint32_t n : {3u, 4u, 1u << 31, UINT32_MAX}) {
    assert_int_equal(Opened(with("glm4moe_f32", GgufWriter().add_u32(next, n), next)).status.code(), WEIR_ERR_FORMAT);
    assert_true(has(last_error_text(), next));
  }

  GgufWriter seeing;
  const weir_test::Bytes data(64);
  for (const char* name : {"v.blk.0.attn_q.weight", "mm.0.weight", "a.conv1d.0.weight"})
    seeing.add_tensor(name, {16}, 0, data);
  const Opened whole(with("llama_f32", seeing));
  if (!whole.status.ok()) fail_msg("%s", last_error_text());
  assert_true(has(whole.unused, "3 tensors (0.0 MB) of images and sound") && whole.warnings.empty());
  const Opened other(with("llama_f32", GgufWriter().add_tensor("vision.weight", {16}, 0, data)));
  assert_int_equal(other.status.code(), WEIR_ERR_UNSUPPORTED);
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
      cmocka_unit_test(unknown_keys__hide_nothing),
      cmocka_unit_test(notes__warnings_come_before_defaults),
      cmocka_unit_test(keys_that_change_answers__are_refused),
      cmocka_unit_test(routers__are_what_the_file_says),
      cmocka_unit_test(parts__that_text_does_without),
      cmocka_unit_test(arrays__of_layers),
      cmocka_unit_test(pre_tokenizer__of_the_architecture),
  };
  return cmocka_run_group_tests_name("models/keys", tests, nullptr, nullptr);
}
