// cli: random models of the bench. Mirrors tools/lab/bench_model.cpp, gguf_write.cpp and bench_bandwidth.cpp: the
// files are read back by the library, which checks every number in them.
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "tests/cli/cli_test.h"
#include "tools/lab/bench_bandwidth.h"
#include "tools/lab/bench_model.h"
#include "tools/lab/gguf_write.h"
#include "tools/weir/weir_cpp.h"

using namespace weir_cli;
using namespace weir_cli::test;
namespace fs = std::filesystem;

namespace {

template <class Fn>
bool throws(const Fn& fn) {
  try {
    fn();
  } catch (const std::runtime_error&) {
    return true;
  }
  return false;
}

void decodes(weir_model* model) {
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.context_tokens = 32;
  const SessionPtr session = create_session(model, options);
  prefill(session.get(), tokenize(model, "the path", 0));
  assert_int_equal(generate(session.get(), 3, WEIR_GENERATE_IGNORE_EOS, nullptr).n_tokens, 3);
  const float* logits = nullptr;
  uint32_t n = 0;
  assert_int_equal(weir_session_logits(session.get(), &logits, &n), WEIR_OK);
  for (uint32_t i = 0; i < n; ++i) assert_true(logits[i] > -1e6f && logits[i] < 1e6f);  // neither infinite nor NaN
}

void bench_model__file_opens_and_decodes(void**) {
  const RuntimePtr runtime = create_runtime(1);
  for (const char* type : {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "mxfp4"}) {
    const std::string path = bench_model_file(model_shape("tiny"), type, g_folder);
    const ModelPtr model = open_model(runtime.get(), path);
    const weir_model_info info = model_info(model.get());
    assert_string_equal(info.weight_type, type);
    assert_int_equal(info.vocab_size, 1664);
    assert_int_equal(info.n_tensors, 74);
    decodes(model.get());
  }
}

// Shapes with experts, small enough for a test.
void bench_model__experts_decode(void**) {
  const RuntimePtr runtime = create_runtime(1);
  for (const char* architecture : {"qwen3moe", "gpt-oss"}) {
    const ModelShape shape = {architecture, architecture, 2, 64, 4, 2, 32, 96, 512, 256, false, 10000.0f, 6, 2};
    const ModelPtr model = open_model(runtime.get(), bench_model_file(shape, "q8_0", g_folder));
    assert_string_equal(model_info(model.get()).architecture, architecture);
    decodes(model.get());
  }
}

// Shapes with recurrent layers, small enough for a test.
void bench_model__recurrent_layers_decode(void**) {
  const RuntimePtr runtime = create_runtime(1);
  const auto decodes_as = [&](const char* architecture, const std::string& layers, uint32_t n_experts) {
    const ModelShape shape = {.name = architecture,
                              .architecture = architecture,
                              .n_layers = static_cast<uint32_t>(layers.size()),
                              .d_model = 64,
                              .n_heads = 4,
                              .n_kv_heads = 2,
                              .head_dim = 32,
                              .d_ff = 96,
                              .vocab_size = 512,
                              .context_tokens = 256,
                              .tied = false,
                              .rope_base = 10000.0f,
                              .n_experts = n_experts,
                              .n_experts_used = n_experts / 2,
                              .shared_ff = n_experts * 16,
                              .layers = layers,
                              .n_taps = 4,
                              .n_groups = 2,
                              .n_state_heads = 4,
                              .state_dim = 32,
                              .inner = 128,
                              .rope_dim = 8};
    const ModelPtr model = open_model(runtime.get(), bench_model_file(shape, "q8_0", g_folder));
    assert_string_equal(model_info(model.get()).architecture, architecture);
    decodes(model.get());
  };
  decodes_as("qwen35", "ddda", 0);
  decodes_as("qwen35moe", "dada", 4);
  decodes_as("lfm2", "cca", 0);
  decodes_as("nemotron_h_moe", "mfmaf", 4);
}

// A shape that the K types can have, small enough for a test.
void bench_model__k_types_decode(void**) {
  const RuntimePtr runtime = create_runtime(1);
  const ModelShape shape = {"small-qwen", "qwen2", 2, 256, 4, 2, 64, 512, 512, 256, false, 10000.0f};
  for (const char* type : {"q4_k", "q5_k", "q6_k", "nvfp4", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"}) {
    const ModelPtr model = open_model(runtime.get(), bench_model_file(shape, type, g_folder));
    assert_string_equal(model_info(model.get()).weight_type, type);
    decodes(model.get());
  }
  assert_true(
      throws([] { bench_model_file(model_shape("tiny"), "q4_k", g_folder); }));  // rows of 384 are no whole blocks
}

void bench_model__whole_file_is_used_again_and_a_short_one_is_not(void**) {
  const std::string path = bench_model_file(model_shape("tiny"), "q4_0", g_folder);
  const uint64_t bytes = fs::file_size(path);
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  const auto written = fs::last_write_time(path);
  bench_model_file(model_shape("tiny"), "q4_0", g_folder);
  assert_true(fs::last_write_time(path) == written);
  fs::resize_file(path, bytes / 2);
  bench_model_file(model_shape("tiny"), "q4_0", g_folder);
  assert_int_equal(fs::file_size(path), bytes);
}

void bench_model__unknown_names_are_errors(void**) {
  assert_true(throws([] { model_shape("900b"); }));
  assert_true(throws([] { weight_type("q3_7"); }));
}

void gguf_write__failure_leaves_no_file(void**) {
  GgufWriter file;
  file.add_string("general.architecture", "llama");
  file.add_tensor("a", {2, 32}, weight_type("q8_0"));
  const std::string path = (g_folder / "broken.gguf").string();
  const auto source = [](const GgufWriter::Tensor&, uint64_t, uint64_t) -> const uint8_t* {
    throw std::runtime_error("no bytes");
  };
  assert_true(throws([&] { file.write(path, source, [](uint64_t, uint64_t) {}); }));
  assert_false(fs::exists(path));
  assert_true(
      throws([&] { file.write((g_folder / "no/such/folder.gguf").string(), source, [](uint64_t, uint64_t) {}); }));
}

void bandwidth__passes_give_a_rate(void**) {
  BandwidthMeter meter(2);
  assert_true(meter.buffer_bytes() >= 16u << 20);
  assert_true(meter.pass_gbps() > 0.01);
  assert_true(meter.best_gbps(2) > 0.01);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(bench_model__file_opens_and_decodes),
      cmocka_unit_test(bench_model__experts_decode),
      cmocka_unit_test(bench_model__recurrent_layers_decode),
      cmocka_unit_test(bench_model__k_types_decode),
      cmocka_unit_test(bench_model__whole_file_is_used_again_and_a_short_one_is_not),
      cmocka_unit_test(bench_model__unknown_names_are_errors),
      cmocka_unit_test(gguf_write__failure_leaves_no_file),
      cmocka_unit_test(bandwidth__passes_give_a_rate),
  };
  return cmocka_run_group_tests_name("bench_model", tests, make_folder, remove_folder);
}
