// runtime: sessions whose attention is computed on the host and the rest on a device, without a device:
// host_module.cpp computes with the processor's ops, so every bit must be that of a session on the processor. What
// crosses to the host arrives when the library waits, no earlier.
#include <dlfcn.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>

#include "api/handles.h"
#include "host_models.h"
#include "tests/api/saved_bytes.h"
#include "tests/policy/every_policy.h"
#include "weir/experimental.h"

namespace {

using namespace host_models;
using namespace saved_bytes;

constexpr char kModels[] = WEIR_SOURCE_DIR "/tests/golden/models";
constexpr char kSmallModel[] = WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf";
constexpr uint32_t kPrompt = 150, kSteps = 24;

struct Row {
  const char* policy;
  Options options;
  uint32_t budget;
};

// Budgets that make pages leave or stay cold during kPrompt + kSteps tokens.
const Row kRows[] = {
    {"dense", {}, 0},
    {"sink", {}, 96},
    {"h2o", {{"skip_layers", "0"}}, 96},
    {"tova", {{"skip_layers", "0"}}, 96},
    {"quest", {{"skip_layers", "0"}}, 64},
    {"raas", {}, 96},
    {"hybrid", {{"skip_layers", "0"}}, 128},
    {"random", {}, 96},
    {"arkvale", {}, 128},
    {"psa", {{"skip_layers", "0"}, {"recall", "on"}}, 128},
    {"keyformer", {{"skip_layers", "0"}}, 96},
    {"scissorhands", {{"skip_layers", "0"}}, 96},
    {"lfps", {{"skip_layers", "0"}}, 32},
};

weir_session_options options_of(const Row& row, int32_t device, uint32_t flags) {
  weir_session_options o = WEIR_SESSION_OPTIONS_INIT;
  o.device = device;
  o.flags = flags;
  o.context_tokens = 512;
  o.batch_tokens = 64;
  o.policy = row.policy;
  o.policy_options = row.options.data();
  o.n_policy_options = static_cast<uint32_t>(row.options.size());
  o.budget_tokens = row.budget;
  return o;
}

Session open_session(const Models& m, const weir_session_options& options) {
  weir_session* session = nullptr;
  assert_ok(weir_session_create(m.model, &options, &session));
  return Session(session);
}

// One on the processor, and one under the device.
struct Pair {
  Pair(const Models& m, const Row& row)
      : host(open_session(m, options_of(row, WEIR_DEVICE_CPU, 0))),
        split(open_session(m, options_of(row, WEIR_DEVICE_CUDA, WEIR_SESSION_HOST_ATTENTION))) {}
  Session host, split;
};

weir_status prefill(const Session& session, uint32_t first, uint32_t n) {
  std::vector<weir_token> tokens;
  for (uint32_t i = 0; i < n; ++i) tokens.push_back(token(first + i));
  return weir_session_prefill(session.get(), tokens.data(), n, nullptr, nullptr);
}

std::vector<float> logits_of(const Session& session) {
  const float* logits = nullptr;
  uint32_t n = 0;
  assert_ok(weir_session_logits(session.get(), &logits, &n));
  return {logits, logits + n};
}

uint32_t n_tokens(const Session& session) {
  weir_session_stats stats = WEIR_SESSION_STATS_INIT;
  assert_ok(weir_session_get_stats(session.get(), &stats));
  return static_cast<uint32_t>(stats.n_tokens);
}

void assert_alike(const Session& a, const Session& b, const std::string& what) {
  if (n_tokens(a) != n_tokens(b) || logits_of(a) != logits_of(b)) fail_msg("%s: other logits", what.c_str());
}

void converse_alike(const Models& m, const Row& row, const std::string& what) {
  const Pair p(m, row);
  for (const Session* session : {&p.host, &p.split}) assert_ok(prefill(*session, 0, kPrompt));
  assert_alike(p.host, p.split, what + ", prompt");
  for (uint32_t i = 0; i < kSteps; ++i) {
    for (const Session* session : {&p.host, &p.split}) assert_ok(weir_session_step(session->get(), token(900 + i)));
    assert_alike(p.host, p.split, what + ", step " + std::to_string(i));
  }
}

void host_attention__has_the_bits_of_the_processor(void**) {
  ASSERT_EVERY_POLICY(kRows, policy);
  const Models m(kSmallModel);
  for (const Row& row : kRows) converse_alike(m, row, row.policy);
}

// Prompts that the device attends in several parts of 4,096 tokens, with streams that hold windows beside streams that
// hold everything; and what a policy learns from the device's sums.
void host_attention__long_prompts(void**) {
  const Row kLong[] = {{"dense", {}, 0}, {"lfps", {}, 0}, {"raas", {{"prompt", "snapkv"}}, 1024}};
  for (const char* file : {"/llama_f32.gguf", "/gemma3_f32.gguf"}) {
    const Models m((kModels + std::string(file)).c_str());
    for (const Row& row : kLong) {
      weir_session_options host = options_of(row, WEIR_DEVICE_CPU, 0),
                           split = options_of(row, WEIR_DEVICE_CUDA, WEIR_SESSION_HOST_ATTENTION);
      for (weir_session_options* o : {&host, &split}) {
        o->context_tokens = 10000;
        o->batch_tokens = 512;
      }
      const Session a = open_session(m, host), b = open_session(m, split);
      for (const Session* session : {&a, &b}) {
        assert_ok(prefill(*session, 0, 8700));
        assert_ok(prefill(*session, 3, 20));  // too few rows for the device
        for (uint32_t i = 0; i < 3; ++i) assert_ok(weir_session_step(session->get(), token(i)));
      }
      assert_alike(a, b, std::string(row.policy) + file);
    }
  }
}

// Norms after stages and of whole rows, windows, soft caps, biases, experts, sinks of heads.
// Recurrent layers run where attention does, so that a session of theirs is refused by name.
bool is_refused(const Models& m) {
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  const weir_session_options host = options_of(kRows[0], WEIR_DEVICE_CPU, 0),
                             split = options_of(kRows[0], WEIR_DEVICE_CUDA, WEIR_SESSION_HOST_ATTENTION);
  assert_ok(weir_plan(m.model, &host, &plan));
  if (plan.recurrent_bytes == 0) return false;
  assert_int_equal(weir_plan(m.model, &split, &plan), WEIR_ERR_UNSUPPORTED);
  assert_non_null(std::strstr(weir_last_error(), "recurrent layers"));
  return true;
}

void host_attention__every_architecture(void**) {
  uint32_t n = 0, n_refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
    if (!entry.path().filename().string().ends_with("_f32.gguf")) continue;
    const Models m(entry.path().c_str());
    if (is_refused(m)) {
      ++n_refused;
      continue;
    }
    for (const Row& row : {kRows[0], kRows[N_POLICIES - 1]}) converse_alike(m, row, entry.path().filename().string());
    ++n;
  }
  assert_true(n >= 10 && n_refused >= 8);
}

// What is planned is taken, and the device's part of it does not grow with the context.
void host_attention__takes_what_the_plan_says(void**) {
  const Models m(kSmallModel);
  std::set<uint64_t> device_bytes;
  for (const uint32_t context : {4096u, 32768u}) {
    weir_session_options o = options_of(kRows[0], WEIR_DEVICE_CUDA, WEIR_SESSION_HOST_ATTENTION);
    o.context_tokens = context;
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    assert_ok(weir_plan(m.model, &o, &plan));
    assert_int_equal(plan.device, WEIR_DEVICE_CUDA);
    assert_int_equal(plan.total_bytes, plan.kv_bytes + plan.table_bytes + plan.workspace_bytes + plan.sampler_bytes +
                                           plan.session_bytes + plan.staging_bytes);
    assert_true(plan.device_bytes > 0 && plan.device_bytes < plan.workspace_bytes);
    const Session session = open_session(m, o);
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    assert_ok(prefill(session, 0, kPrompt));
    assert_ok(weir_session_step(session.get(), 30));
    assert_ok(weir_session_memory(session.get(), &memory));
    assert_int_equal(memory.plan_bytes, plan.total_bytes);
    assert_int_equal(memory.bytes, plan.total_bytes);
    assert_int_equal(memory.peak_bytes, plan.total_bytes);
    assert_int_equal(memory.device_bytes, plan.device_bytes);
    assert_int_equal(memory.allocs_while_decoding, 0);
    weir_memory_counters counters = WEIR_MEMORY_COUNTERS_INIT;
    assert_ok(weir_runtime_memory(m.runtime, &counters));
    assert_int_equal(counters.device_bytes, plan.device_bytes + plan.device_weights_bytes);
    device_bytes.insert(plan.device_bytes);
  }
  assert_int_equal(device_bytes.size(), 1);
  weir_memory_counters counters = WEIR_MEMORY_COUNTERS_INIT;
  assert_ok(weir_runtime_memory(m.runtime, &counters));
  assert_int_equal(counters.n_device_allocs - counters.n_device_frees, 1);  // the weights
}

// lfps needs no flag, and WEIR_DEVICE_AUTO finds the device for it. On the processor the flag changes nothing.
void host_attention__is_chosen(void**) {
  const Models m(kSmallModel);
  const Row &lfps = kRows[N_POLICIES - 1], &psa = kRows[9];
  assert_string_equal(psa.policy, "psa");
  weir_plan_info plan = WEIR_PLAN_INFO_INIT, without = WEIR_PLAN_INFO_INIT;
  for (const Row* row : {&lfps, &psa}) {
    for (const int32_t device : {WEIR_DEVICE_CUDA, WEIR_DEVICE_AUTO}) {
      const weir_session_options o = options_of(*row, device, 0),
                                 flagged = options_of(*row, device, WEIR_SESSION_HOST_ATTENTION);
      assert_ok(weir_plan(m.model, &o, &plan));
      assert_ok(weir_plan(m.model, &flagged, &without));
      assert_memory_equal(&plan, &without, sizeof(plan));
      assert_int_equal(plan.device, WEIR_DEVICE_CUDA);
      assert_true(plan.device_bytes < plan.workspace_bytes);
    }
  }
  // Recurrent layers run where attention does; then AUTO goes on.
  const Models recurrent((std::string(kModels) + "/qwen35_f32.gguf").c_str());
  for (const Row* row : {&lfps, &psa}) {
    const weir_session_options o = options_of(*row, WEIR_DEVICE_AUTO, 0);
    assert_ok(weir_plan(recurrent.model, &o, &plan));
    assert_int_equal(plan.device, WEIR_DEVICE_CPU);
  }
  // The half of dense's memory is that of dense with attention in the same place; with 512 tokens there is no room for
  // a store in it, and the pool holds the whole context, in that place, too.
  for (const uint32_t context : {512u, 65536u}) {
    weir_session_options half = options_of(psa, WEIR_DEVICE_CUDA, 0), dense = options_of(kRows[0], WEIR_DEVICE_CUDA, 0);
    half.spill_flags = WEIR_SPILL_HALF;
    half.context_tokens = dense.context_tokens = context;
    dense.flags = WEIR_SESSION_HOST_ATTENTION;
    assert_ok(weir_plan(m.model, &half, &plan));
    assert_ok(weir_plan(m.model, &dense, &without));
    if ((plan.spill_bytes != 0) != (context == 65536)) fail_msg("%u tokens: %zu", context, size_t{plan.spill_bytes});
    if (context == 65536) assert_true(plan.total_bytes <= without.total_bytes / 2);
    half.flags = WEIR_SESSION_HOST_ATTENTION;
    assert_ok(weir_plan(m.model, &half, &without));
    assert_memory_equal(&plan, &without, sizeof(plan));
    // Where AUTO took the processor, that is the place.
    weir_session_options automatic = half;
    automatic.flags = 0;
    automatic.device = WEIR_DEVICE_AUTO;
    assert_ok(weir_plan(recurrent.model, &automatic, &plan));
    automatic.device = WEIR_DEVICE_CPU;
    assert_ok(weir_plan(recurrent.model, &automatic, &without));
    assert_memory_equal(&plan, &without, sizeof(plan));
  }
  // A pool that has room for all pages asks for none.
  weir_session_options whole = options_of(psa, WEIR_DEVICE_CUDA, 0);
  whole.budget_tokens = 512;
  assert_ok(weir_plan(m.model, &whole, &plan));
  whole.flags = WEIR_SESSION_HOST_ATTENTION;
  assert_ok(weir_plan(m.model, &whole, &without));
  assert_true(plan.device_bytes > without.device_bytes);
  const weir_session_options flagged = options_of(lfps, WEIR_DEVICE_CPU, WEIR_SESSION_HOST_ATTENTION),
                             plain = options_of(lfps, WEIR_DEVICE_CPU, 0);
  assert_ok(weir_plan(m.model, &flagged, &plan));
  assert_ok(weir_plan(m.model, &plain, &without));
  assert_memory_equal(&plan, &without, sizeof(plan));
  assert_int_equal(plan.device, WEIR_DEVICE_CPU);
}

// Several steps as one pass, of sessions with different policies; only sessions of one kind step together.
void host_attention__steps_together(void**) {
  const Models m(kSmallModel);
  std::vector<Session> together, alone;
  for (const Row& row : {kRows[0], kRows[4], kRows[N_POLICIES - 1]}) {
    Pair p(m, row);
    for (const Session* session : {&p.host, &p.split})
      assert_ok(prefill(*session, 0, 40 + static_cast<uint32_t>(together.size())));
    together.push_back(std::move(p.split));
    alone.push_back(std::move(p.host));
  }
  weir_session* handles[] = {together[0].get(), together[1].get(), together[2].get()};
  for (uint32_t i = 0; i < kSteps; ++i) {
    const weir_token tokens[] = {token(i), token(i + 50), token(i + 77)};
    assert_ok(weir_step_many(handles, tokens, 3));
    for (uint32_t s = 0; s < 3; ++s) {
      assert_ok(weir_session_step(alone[s].get(), tokens[s]));
      assert_alike(alone[s], together[s], "session " + std::to_string(s));
    }
  }
  // More sessions than a pass on a device takes have the bits of steps alone all the same.
  std::vector<Session> many;
  std::vector<weir_session*> list;
  std::vector<weir_token> same;
  for (uint32_t i = 0; i < 11; ++i) {
    many.push_back(open_session(m, options_of(kRows[0], WEIR_DEVICE_CUDA, WEIR_SESSION_HOST_ATTENTION)));
    list.push_back(many.back().get());
    same.push_back(token(i));
    assert_ok(prefill(many.back(), i, 20));
  }
  assert_ok(weir_step_many(list.data(), same.data(), 11));
  const Session host = open_session(m, options_of(kRows[0], WEIR_DEVICE_CPU, 0));
  assert_ok(prefill(host, 10, 20));
  assert_ok(weir_session_step(host.get(), same[10]));
  assert_alike(host, many[10], "of eleven");
  const Session on_device = open_session(m, options_of(kRows[0], WEIR_DEVICE_CUDA, 0));
  weir_session* mixed[] = {together[0].get(), on_device.get()};
  const weir_token tokens[] = {30, 30};
  assert_error(weir_step_many(mixed, tokens, 2), WEIR_ERR_INVALID_ARG, "only one computes its attention on the host");
  mixed[1] = alone[0].get();
  assert_error(weir_step_many(mixed, tokens, 2), WEIR_ERR_INVALID_ARG, "on different devices");
}

void host_attention__forks_saves_and_rewinds(void**) {
  const Models m(kSmallModel);
  for (const Row& row : {kRows[0], kRows[4], kRows[8]}) {
    const Pair p(m, row), other(m, row);
    for (const Session* session : {&p.host, &p.split}) {
      assert_ok(prefill(*session, 0, kPrompt));
      assert_ok(weir_session_step(session->get(), 44));
    }
    const File file = saved(p.split);
    assert_true(file == saved(p.host));
    assert_ok(try_restore(other.split, file));
    weir_session* handle = nullptr;
    assert_ok(weir_session_fork(p.split.get(), &handle));
    const Session fork(handle);
    for (uint32_t i = 0; i < kSteps; ++i) {
      for (const Session* session : {&p.host, &p.split, &other.split, &fork}) {
        assert_ok(weir_session_step(session->get(), token(i)));
        assert_alike(p.host, *session, row.policy);
      }
    }
    for (const Session* session : {&p.host, &p.split}) {
      assert_ok(weir_session_rewind(session->get(), kPrompt, 0));
      assert_ok(weir_session_step(session->get(), 71));
    }
    assert_alike(p.host, p.split, "rewound");
  }
}

// Masses of steps can be traced.
void host_attention__traces(void**) {
  const Models m(kSmallModel);
  const auto trace = reinterpret_cast<weir_session_trace_fn>(weir_get_experimental("weir_session_trace"));
  assert_non_null(trace);
  const uint32_t flags = WEIR_SESSION_HOST_ATTENTION | WEIR_SESSION_TRACE;
  const Session session = open_session(m, options_of(kRows[0], WEIR_DEVICE_CUDA, flags));
  uint32_t n_layers = 0;
  const weir_trace_fn count = [](void* user, const weir_trace_layer* layer) -> weir_status {
    *static_cast<uint32_t*>(user) += layer->mass != nullptr ? 1u : 0u;
    return WEIR_OK;
  };
  assert_ok(trace(session.get(), count, &n_layers));
  assert_ok(prefill(session, 0, 20));
  assert_ok(weir_session_step(session.get(), 30));
  weir_model_info info = WEIR_MODEL_INFO_INIT;
  assert_ok(weir_model_get_info(m.model, &info));
  assert_int_equal(n_layers, info.n_layers);
}

// There are none, or they are numbers.
void assert_sound_logits(const Session& session) {
  const float* logits = nullptr;
  uint32_t n = 0;
  const weir_status status = weir_session_logits(session.get(), &logits, &n);
  if (status != WEIR_OK) assert_int_equal(status, WEIR_ERR_STATE);
  for (uint32_t i = 0; i < n; ++i) assert_true(std::isfinite(logits[i]));
}

// Every allocation, op, copy and wait fails once. The call says so and appends nothing, and the session goes on as if
// it had not been made.
void host_attention__survives_failures(void**) {
  void* const module = dlopen(WEIR_HOST_MODULE "/libweir_cuda.so", RTLD_NOW);
  assert_non_null(module);
  const auto fail_at = reinterpret_cast<size_t (*)(uint32_t)>(dlsym(module, "weir_host_module_fail_at"));
  assert_non_null(fail_at);
  const size_t n_staged = fail_at(0);
  const Models m(kSmallModel);
  const Row observes = {"h2o", {{"skip_layers", "0"}}, 448};  // and lets nothing leave
  const weir_session_options options = options_of(observes, WEIR_DEVICE_CUDA, WEIR_SESSION_HOST_ATTENTION);
  weir_session* handle = nullptr;
  for (const uint32_t n : {1u, 2u, 2u}) {  // the weights, which then stay, the activations, staging memory
    fail_at(n);
    assert_int_equal(weir_session_create(m.model, &options, &handle), WEIR_ERR_DEVICE_LOST);
    assert_non_null(std::strstr(weir_last_error(), "as it was told"));
    assert_null(handle);
    assert_int_equal(fail_at(0), n_staged);
  }
  assert_ok(weir_session_create(m.model, &options, &handle));
  assert_int_equal(fail_at(0), n_staged + 1);
  const Session split(handle), host = open_session(m, options_of(observes, WEIR_DEVICE_CPU, 0));
  const auto fails_and_works = [&](const auto& call) {
    const uint32_t before = n_tokens(split);
    uint32_t n = 1;
    for (fail_at(n); call(split) != WEIR_OK; fail_at(++n)) {
      if (std::strstr(weir_last_error(), "as it was told") == nullptr) fail_msg("call %u: %s", n, weir_last_error());
      if (n_tokens(split) != before) fail_msg("tokens were appended when call %u failed", n);
      assert_sound_logits(split);
    }
    fail_at(0);
    assert_true(n > 4);
    assert_ok(call(host));
    assert_alike(host, split, "after failures");
  };
  fails_and_works([](const Session& session) { return prefill(session, 0, kPrompt); });
  for (uint32_t i = 0; i < 3; ++i)
    fails_and_works([i](const Session& session) { return weir_session_step(session.get(), token(i)); });
  fails_and_works([](const Session& session) { return prefill(session, 7, 70); });
  // A prompt that fails at any point leaves nothing for the step after it.
  for (uint32_t n = 1;; ++n) {
    assert_ok(weir_session_reset(split.get()));
    assert_ok(weir_session_reset(host.get()));
    for (const Session* session : {&split, &host}) assert_ok(prefill(*session, 0, 40));
    fail_at(n);
    const weir_status status = prefill(split, 5, 40);
    fail_at(0);
    if (status == WEIR_OK) break;
    for (const Session* session : {&split, &host}) assert_ok(weir_session_step(session->get(), 30));
    assert_alike(host, split, "a step after a prompt that failed");
  }
  dlclose(module);
}

// A model's weights are on one device; kernels of another one must not get their addresses.
void host_attention__weights_on_another_device(void**) {
  const Models m(kSmallModel);
  const Session session = open_session(m, options_of(kRows[0], WEIR_DEVICE_CUDA, WEIR_SESSION_HOST_ATTENTION));
  weir::DeviceHost& devices = m.runtime->devices;
  const weir::DeviceModule* module = nullptr;
  assert_true(devices.find(WEIR_DEVICE_CUDA, 0, module).ok());
  const weir::DeviceModule other = *module;
  weir::DeviceWeights& weights = m.model->device_weights;
  assert_true(weights.ensure(devices, *module, m.model->model, m.runtime->pool).ok());
  assert_int_equal(weights.ensure(devices, other, m.model->model, m.runtime->pool).code(), WEIR_ERR_UNSUPPORTED);
  assert_string_equal(weir::last_error_text(),
                      "the model's weights are on host already, and a model has one device; open it again");
}

// Host memory that is not there.
void host_attention__without_memory(void**) {
  const Models m(kSmallModel);
  weir_session_options o = options_of(kRows[N_POLICIES - 1], WEIR_DEVICE_CUDA, 0);
  o.context_tokens = 1u << 30;
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  assert_ok(weir_plan(m.model, &o, &plan));
  weir_session* session = nullptr;
  assert_error(weir_session_create(m.model, &o, &session), WEIR_ERR_OUT_OF_MEMORY,
               std::to_string(plan.total_bytes).c_str());
#if defined(__linux__)  // also where the system would promise that much
  assert_non_null(std::strstr(weir_last_error(), "this machine has less memory, swap included"));
#endif
  assert_non_null(std::strstr(weir_last_error(), "context_tokens (--context)"));  // what to do
  assert_non_null(std::strstr(weir_last_error(), "budget_tokens (--budget)"));
  assert_null(session);
  weir_memory_counters counters = WEIR_MEMORY_COUNTERS_INIT;
  assert_ok(weir_runtime_memory(m.runtime, &counters));
  assert_int_equal(counters.n_device_allocs - counters.n_device_frees, 1);  // the weights
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(host_attention__has_the_bits_of_the_processor),
      cmocka_unit_test(host_attention__every_architecture),
      cmocka_unit_test(host_attention__long_prompts),
      cmocka_unit_test(host_attention__takes_what_the_plan_says),
      cmocka_unit_test(host_attention__is_chosen),
      cmocka_unit_test(host_attention__steps_together),
      cmocka_unit_test(host_attention__forks_saves_and_rewinds),
      cmocka_unit_test(host_attention__traces),
      cmocka_unit_test(host_attention__survives_failures),
      cmocka_unit_test(host_attention__weights_on_another_device),
      cmocka_unit_test(host_attention__without_memory),
  };
  return cmocka_run_group_tests_name("runtime_host_attention", tests, nullptr, nullptr);
}
