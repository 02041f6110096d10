// runtime: prompts of sessions on a device, without a device. What lib/device enqueues for a chunk is computed with the
// processor's ops (host_module.cpp), in the same order, so logits, pages, page tables and digests have the bits of a
// session on the processor. The one difference is attention that a session with recall computes in units (AttnCarry):
// it has those bits, too, because it adds up the units in the order of one call.
#include <string>
#include <vector>

#include "same_session.h"
#include "tests/gguf/changed_file.h"
#include "tests/policy/every_policy.h"
#include "tests/policy/head_file.h"

namespace {

using namespace host_models;
using same_session::assert_same;
using weir::test::has_heads;
using weir::test::TestHeadFile;

struct Row {
  const char* policy;
  Options options;
  uint32_t budget;
  bool every_model = false;
};

// Budgets that make pages leave, or stay cold, while kTurns are read.
const Row kRows[] = {
    {"dense", {}, 0, true},
    {"sink", {}, 96, true},
    {"sink", {{"exact_mask", "true"}, {"window", "80"}}, 112, true},
    {"sink", {{"positions", "abs"}}, 96},
    {"quest", {{"skip_layers", "0"}, {"digest", "minmax"}}, 96, true},
    {"quest", {{"skip_layers", "0"}, {"digest", "mean_std"}, {"prompt", "snapkv"}, {"prompt_budget", "96"}}, 96},
    {"h2o", {{"skip_layers", "1"}}, 128},
    {"h2o", {{"skip_layers", "0"}, {"init", "window"}, {"score", "norm_sum"}}, 96},
    {"h2o", {{"skip_layers", "0"}, {"init", "zero"}}, 96, true},
    {"tova", {{"skip_layers", "0"}}, 96, true},
    {"tova", {{"scope", "stream"}, {"prompt", "snapkv"}, {"prompt_budget", "64"}}, 128},
    {"raas", {{"prompt", "snapkv"}, {"prompt_budget", "96"}}, 256},
    {"raas", {{"stamp_source", "digest"}, {"digest", "cuboid_mean"}, {"pin_prompt", "false"}}, 128},
    {"hybrid", {{"skip_layers", "0"}, {"digest", "centroid"}}, 320},
    {"hybrid", {{"skip_layers", "0"}, {"digest", "sketch"}}, 320},
    {"random", {{"pin_prompt", "false"}}, 96},
    {"keyformer", {{"skip_layers", "0"}}, 96},
    {"scissorhands", {{"skip_layers", "0"}}, 96},
    {"arkvale", {{"digest", "sphere_mean"}}, 128},
    {"arkvale", {}, 128, true},
    {"psa", {{"skip_layers", "0"}}, 96},
    {"raas", {{"prompt", "pyramid"}, {"prompt_budget", "64"}, {"prompt_beta", "4"}, {"prompt_window", "16"}}, 128},
    {"raas", {{"prompt", "ada"}, {"prompt_budget", "64"}, {"prompt_window", "16"}}, 128},
    {"h2o", {{"heads", "duo"}, {"skip_layers", "0"}}, 96},
    {"raas", {{"heads", "duo"}, {"prompt", "snapkv"}, {"prompt_budget", "64"}}, 128},
    {"sink", {{"heads", "razor"}, {"heads_context_part", "0"}, {"positions", "abs"}}, 96},
    {"h2o", {{"heads", "razor"}, {"heads_context_part", "0"}, {"skip_layers", "0"}}, 96},
};

// llama; windows; windows, soft caps and norms after stages; experts; experts, sinks, windows and biases; head norms.
const char* const kModels[] = {"llama_f32",   "gemma3_f32", "gemma2_f32",  "qwen3moe_f32",
                               "gpt_oss_f32", "qwen3_f32",  "glm4moe_f32", "mistral3_f32"};
constexpr uint32_t kBatches[] = {64, 16, 37};
// In the end more pages than attention handles as one unit.
constexpr uint32_t kTurns[] = {150, 37, 1, 90, 350};

std::string path_of(const char* model) {
  return std::string(WEIR_SOURCE_DIR "/tests/golden/models/") + model + ".gguf";
}

// That the device's session is one is checked by its plan.
Session open_session(const Models& m, const Row& row, int32_t device, uint32_t batch_tokens, uint32_t kv_format) {
  const TestHeadFile heads("device_prompts_heads.tsv");
  Options options = row.options;
  if (has_heads(options.data(), options.size())) {
    assert_true(heads.write_for(m.model));
    options.push_back({"heads_file", heads.path()});
  }
  weir_session_options o = WEIR_SESSION_OPTIONS_INIT;
  o.device = device;
  o.context_tokens = 1024;
  o.batch_tokens = batch_tokens;
  o.policy = row.policy;
  o.policy_options = options.data();
  o.n_policy_options = static_cast<uint32_t>(options.size());
  o.budget_tokens = row.budget;
  o.kv_format = kv_format;
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  assert_ok(weir_plan(m.model, &o, &plan));
  assert_int_equal(plan.device, device);
  weir_session* session = nullptr;
  assert_ok(weir_session_create(m.model, &o, &session));
  return Session(session);
}

weir_status read_prompt(const Session& session, uint32_t first, uint32_t n) {
  std::vector<weir_token> prompt;
  for (uint32_t i = first; i < first + n; ++i) prompt.push_back(token(i));
  return weir_session_prefill(session.get(), prompt.data(), n, nullptr, nullptr);
}

// All turns of one conversation on both devices.
void compare_turns(const Models& m, const Row& row, uint32_t batch_tokens, const std::string& what,
                   uint32_t kv_format = WEIR_KV_BF16) {
  const Session host = open_session(m, row, WEIR_DEVICE_CPU, batch_tokens, kv_format);
  const Session device = open_session(m, row, WEIR_DEVICE_CUDA, batch_tokens, kv_format);
  uint32_t first = 0;
  for (const uint32_t n : kTurns) {
    const weir_status status = read_prompt(host, first, n);
    assert_int_equal(read_prompt(device, first, n), status);
    if (status != WEIR_OK) fail_msg("%s: %s", what.c_str(), weir_last_error());
    assert_same(host, device, what + ", after " + std::to_string(first + n) + " tokens");
    first += n;
  }
  weir_session_stats stats = WEIR_SESSION_STATS_INIT;
  assert_ok(weir_session_get_stats(device.get(), &stats));
  const bool may_stay = is_among(row.policy, "dense quest psa hybrid");
  if (stats.pages_evicted == 0 && !may_stay) fail_msg("%s: no page left", what.c_str());
}

void device_prompts__have_the_bits_of_the_processor(void**) {
  ASSERT_EVERY_POLICY_EXCEPT("lfps", kRows, policy);  // attends single tokens, on the processor only
  const Models m(path_of("llama_f32").c_str());
  for (const Row& row : kRows) {
    for (const uint32_t batch : kBatches)
      compare_turns(m, row, batch, std::string(row.policy) + ", chunks of " + std::to_string(batch));
  }
}

void device_prompts__with_pages_in_every_format(void**) {
  const Models m(path_of("llama_f32").c_str());
  for (const Row& row : kRows) {
    for (const uint32_t format : {WEIR_KV_Q8, WEIR_KV_K8V4})
      compare_turns(m, row, 37, std::string(row.policy) + ", format " + std::to_string(format), format);
  }
}

void device_prompts__of_every_kind_of_layer(void**) {
  for (const char* model : kModels) {
    const Models m(path_of(model).c_str());
    for (const Row& row : kRows) {
      if (row.every_model) compare_turns(m, row, 64, std::string(model) + ", " + row.policy);
    }
  }
}

// A copy of a model in which gates and ups of all experts are one tensor.
weir_test::ChangedFile fused(const char* model) {
  weir::GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.open(path_of(model).c_str()).ok());
  weir_test::GgufWriter writer;
  uint32_t n_fused = 0;
  for (const weir::GgufTensor& gate : file.tensors()) {
    const std::string name(gate.name), part = "ffn_gate_exps.";
    const size_t at = name.find(part);
    if (at == std::string::npos) continue;
    const weir::GgufTensor* up = file.find_tensor(name.substr(0, at) + "ffn_up_exps.weight");
    const size_t each = gate.bytes / gate.dims[0];
    weir_test::Bytes data;
    for (size_t e = 0; e < gate.dims[0]; ++e) {
      data.insert(data.end(), gate.data + e * each, gate.data + (e + 1) * each);
      data.insert(data.end(), up->data + e * each, up->data + (e + 1) * each);
    }
    writer.add_tensor(name.substr(0, at) + "ffn_gate_up_exps.weight", {gate.dims[0], 2 * gate.dims[1], gate.dims[2]},
                      gate.type_id, data);
    ++n_fused;
  }
  assert_true(n_fused != 0);
  return weir_test::ChangedFile(path_of(model), writer, nullptr, [](std::string_view name) {
    return name.find("ffn_gate_exps") == name.npos && name.find("ffn_up_exps") == name.npos;
  });
}

void device_prompts__of_experts_with_one_tensor_of_gates_and_ups(void**) {
  for (const char* model : {"qwen3moe_f32", "glm4moe_f32"}) {
    const weir_test::ChangedFile file = fused(model);
    compare_turns(Models(file.path()), kRows[0], 64, std::string(model) + ", fused");
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(device_prompts__have_the_bits_of_the_processor),
      cmocka_unit_test(device_prompts__with_pages_in_every_format),
      cmocka_unit_test(device_prompts__of_every_kind_of_layer),
      cmocka_unit_test(device_prompts__of_experts_with_one_tensor_of_gates_and_ups),
  };
  return cmocka_run_group_tests_name("runtime/device_prompts", tests, nullptr, nullptr);
}
