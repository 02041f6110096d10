// runtime: decode steps of sessions on a device, without a device. What lib/device records for a step is computed with
// the processor's ops and plain C++ (host_module.cpp), the products and attention with the same calls as on the
// processor, so logits, pages, tables and the pages that leave have the bits of a session there; alone, together, with
// kernels that join others and without.
#include <dlfcn.h>

#include <string>
#include <vector>

#include "same_session.h"
#include "tests/device/trace_copy.h"
#include "tests/policy/every_policy.h"
#include "tests/policy/head_file.h"

namespace {

using namespace host_models;
using same_session::assert_same;
using same_session::assert_same_counters;
using same_session::assert_same_tables;
using weir::test::has_heads;
using weir::test::TestHeadFile;
using weir::test::TraceCopies;
using weir::test::TracedLayer;

constexpr uint32_t kPrompt = 70, kSteps = 90, kTogether = 3, kEvery = 15;

struct Row {
  const char* policy;
  Options options;
  uint32_t budget;
  uint32_t kv_format = WEIR_KV_BF16;
};

// Budgets that make pages leave, or not be attended, in kPrompt + kSteps tokens.
const Row kRows[] = {
    {"dense", {}, 0},
    {"sink", {}, 96},
    {"sink", {{"exact_mask", "true"}, {"window", "60"}}, 96},
    {"quest", {{"skip_layers", "0"}, {"digest", "minmax"}}, 64},
    {"quest", {{"skip_layers", "0"}, {"agg", "qhead"}, {"digest", "mean_std"}}, 64},
    {"quest", {{"skip_layers", "0"}, {"digest", "sketch"}}, 64},
    {"h2o", {{"skip_layers", "0"}}, 96},
    {"h2o", {{"skip_layers", "0"}, {"score", "norm_sum"}, {"init", "window"}}, 96},
    {"tova", {{"skip_layers", "0"}}, 96},
    {"tova", {{"skip_layers", "0"}, {"decide", "token"}}, 96},
    {"raas", {}, 128},
    {"raas", {{"r", "0.5"}, {"pin_prompt", "false"}}, 96},
    {"raas", {{"stamp_source", "digest"}, {"digest", "cuboid_mean"}, {"pin_prompt", "false"}}, 96},
    {"hybrid", {{"skip_layers", "0"}, {"digest", "minmax"}}, 128},
    {"hybrid", {{"skip_layers", "0"}}, 128},
    {"hybrid", {{"skip_layers", "0"}, {"digest", "centroid"}}, 128},
    {"random", {}, 128},
    {"keyformer", {{"skip_layers", "0"}, {"tau_tokens", "100"}}, 96},
    {"scissorhands", {{"skip_layers", "0"}, {"window", "20"}}, 96},
    {"psa", {{"skip_layers", "0"}, {"digest", "minmax"}}, 64},
    {"psa", {{"skip_layers", "0"}, {"mb", "1"}, {"eps", "0.7"}, {"digest", "cuboid_mean"}}, 128},
    {"psa", {{"skip_layers", "0"}, {"bound", "true"}, {"eps", "0.8"}, {"mb", "2"}}, 0},
    {"psa", {{"skip_layers", "0"}, {"quiet", "2"}, {"quiet_share", "0.2"}, {"mb", "1"}}, 0},
    {"arkvale", {{"digest", "minmax"}}, 128},
    {"arkvale", {{"digest", "cuboid_mean"}}, 128},
    {"arkvale", {{"digest", "sketch"}, {"agg", "sum_prob"}}, 128},
    {"arkvale", {{"digest", "minmax"}, {"attend", "top"}, {"recall_pages", "0"}, {"recall_from", "4"}}, 96},
    {"raas", {{"recall", "on"}, {"protect_recent", "2"}}, 128},
    {"raas", {{"prompt", "pyramid"}, {"prompt_budget", "64"}, {"prompt_beta", "4"}, {"prompt_window", "16"}}, 128},
    {"h2o", {{"skip_layers", "0"}, {"prompt", "pyramid"}, {"prompt_budget", "48"}, {"prompt_window", "8"}}, 112},
    {"raas", {{"prompt", "ada"}, {"prompt_budget", "48"}, {"prompt_window", "8"}}, 112},
    {"dense", {{"heads", "duo"}}, 0},
    {"sink", {{"heads", "duo"}, {"positions", "abs"}}, 96},
    {"h2o", {{"heads", "duo"}, {"skip_layers", "0"}}, 96},
    {"tova", {{"heads", "duo"}, {"skip_layers", "0"}, {"decide", "token"}}, 96},
    {"quest", {{"heads", "duo"}, {"skip_layers", "0"}, {"digest", "minmax"}}, 64},
    {"quest", {{"heads", "duo"}, {"skip_layers", "0"}}, 64},
    {"quest", {{"heads", "duo"}, {"skip_layers", "0"}, {"agg", "qhead"}, {"digest", "mean_std"}}, 64},
    {"hybrid", {{"heads", "duo"}, {"skip_layers", "0"}, {"digest", "centroid"}}, 128},
    {"random", {{"heads", "duo"}, {"heads_sinks", "0"}}, 128},
    {"psa", {{"heads", "duo"}, {"skip_layers", "0"}, {"digest", "minmax"}, {"mb", "2"}, {"eps", "0.8"}}, 128},
    {"dense", {{"heads", "razor"}, {"heads_context_part", "0"}}, 0},
    {"raas", {{"heads", "razor"}, {"heads_context_part", "0"}, {"heads_induction", "0.4"}}, 128},
    {"quest", {{"heads", "razor"}, {"heads_context_part", "0"}, {"skip_layers", "0"}}, 64},
    {"psa", {{"heads", "razor"}, {"heads_context_part", "0"}, {"skip_layers", "0"}, {"mb", "2"}, {"eps", "0.8"}}, 96},
    {"h2o", {{"heads", "razor"}, {"heads_context_part", "16"}, {"skip_layers", "0"}}, 96},
    {"raas", {{"heads", "duo"}, {"prompt", "pyramid"}, {"prompt_budget", "64"}, {"prompt_window", "16"}}, 128},
    {"raas", {{"heads", "duo"}, {"prompt", "ada"}, {"prompt_budget", "64"}, {"prompt_window", "16"}}, 128},
    {"hybrid",
     {{"skip_layers", "0"}, {"digest", "minmax"}, {"prompt", "ada"}, {"prompt_budget", "64"}, {"prompt_window", "8"}},
     128},
    {"hybrid", {{"recall", "on"}, {"rho", "0.25"}}, 96},
};
// llama; windows; windows, soft caps and norms after stages; experts; experts, sinks, windows and biases; queries that
// grow.
const char* const kModels[] = {"llama_f32", "gemma3_f32", "gemma2_f32", "qwen3moe_f32", "gpt_oss_f32", "mistral3_f32"};

std::string path_of(const char* model) {
  return std::string(WEIR_SOURCE_DIR "/tests/golden/models/") + model + ".gguf";
}

void join_kernels(bool joins) {
  void* module = dlopen((std::string(module_folder()) + "/libweir_cuda.so").c_str(), RTLD_NOW);
  assert_non_null(module);
  const auto set = reinterpret_cast<void (*)(bool)>(dlsym(module, "weir_host_module_join_kernels"));
  assert_non_null(set);
  set(joins);
  dlclose(module);
}

Session open_session(const Models& m, const Row& row, int32_t device, uint32_t flags = 0) {
  const TestHeadFile heads("device_steps_heads.tsv");
  Options options = row.options;
  if (has_heads(options.data(), options.size())) {
    assert_true(heads.write_for(m.model));
    options.push_back({"heads_file", heads.path()});
  }
  weir_session_options o = WEIR_SESSION_OPTIONS_INIT;
  o.device = device;
  o.flags = flags;
  o.context_tokens = 512;
  o.batch_tokens = 64;
  o.policy = row.policy;
  o.policy_options = options.data();
  o.n_policy_options = static_cast<uint32_t>(options.size());
  o.budget_tokens = row.budget;
  o.kv_format = row.kv_format;
  weir_session* session = nullptr;
  assert_ok(weir_session_create(m.model, &o, &session));
  return Session(session);
}

void read_prompt(const Session& session, uint32_t first) {
  std::vector<weir_token> prompt;
  for (uint32_t i = 0; i < kPrompt; ++i) prompt.push_back(token(first + i));
  assert_ok(weir_session_prefill(session.get(), prompt.data(), kPrompt, nullptr, nullptr));
}

// The host's session decides the tokens.
weir_token next_token(const Session& host, uint32_t i) {
  weir_token greedy = -1;
  assert_ok(weir_session_sample(host.get(), &greedy));
  return i % 2 == 0 ? greedy : token(5000 + i);
}

void compare_steps(const Models& m, const Row& row, const std::string& what) {
  const Session host = open_session(m, row, WEIR_DEVICE_CPU), device = open_session(m, row, WEIR_DEVICE_CUDA);
  read_prompt(host, 0);
  read_prompt(device, 0);
  for (uint32_t i = 0; i < kSteps; ++i) {
    const weir_token next = next_token(host, i);
    assert_ok(weir_session_step(host.get(), next));
    assert_ok(weir_session_step(device.get(), next));
    const std::string when = what + ", step " + std::to_string(i);
    assert_same_counters(host, device, when);
    if (i % kEvery == kEvery - 1) assert_same(host, device, when);
  }
}

void device_steps__have_the_bits_of_the_processor(void**) {
  ASSERT_EVERY_POLICY_EXCEPT("lfps", kRows, policy);  // single tokens, on the processor only
  for (const bool joins : {true, false}) {
    join_kernels(joins);
    for (const char* model : kModels) {
      const Models m(path_of(model).c_str());
      for (const Row& row : kRows) {
        compare_steps(m, row, std::string(model) + ", " + row.policy + (joins ? "" : ", kernels apart"));
      }
    }
  }
  join_kernels(true);
}

// Pages in other formats, under every policy. Windows of single layers and heads slide over such pages, too.
void device_steps__with_pages_in_every_format(void**) {
  for (const bool joins : {true, false}) {
    join_kernels(joins);
    for (const char* model : {"llama_f32", "gemma3_f32"}) {
      const Models m(path_of(model).c_str());
      for (Row row : kRows) {
        for (const uint32_t format : {WEIR_KV_Q8, WEIR_KV_K8V4}) {
          row.kv_format = format;
          compare_steps(m, row,
                        std::string(model) + ", " + row.policy + ", format " + std::to_string(format) +
                            (joins ? "" : ", kernels apart"));
        }
      }
    }
  }
  join_kernels(true);
}

// Prompts that are taken back, and rewinds into the page that takes tokens and before it: the open page is what it
// was or what the pool has of it; and forks in between.
void go_back(const Models& m, const Row& row, const std::string& what) {
  Session host = open_session(m, row, WEIR_DEVICE_CPU), device = open_session(m, row, WEIR_DEVICE_CUDA);
  const weir_progress_fn cancel = [](void*, const weir_progress_info* info) -> weir_status {
    return info->done == 0 ? WEIR_OK : WEIR_ERR_CANCELLED;
  };
  std::vector<weir_token> more;
  for (uint32_t i = 0; i < 100; ++i) more.push_back(token(900 + i));
  const auto step_both = [&](uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) {
      assert_ok(weir_session_step(host.get(), token(5000 + i)));
      assert_ok(weir_session_step(device.get(), token(5000 + i)));
    }
  };
  const auto fork = [](Session& session) {
    weir_session* forked = nullptr;
    assert_ok(weir_session_fork(session.get(), &forked));
    session = Session(forked);
  };
  read_prompt(host, 0);
  read_prompt(device, 0);
  for (const uint32_t n_steps : {3u, 30u, 45u}) {
    step_both(n_steps);
    const uint32_t n = host->kv().n_tokens();
    assert_int_equal(weir_session_prefill(host.get(), more.data(), more.size(), cancel, nullptr), WEIR_ERR_CANCELLED);
    assert_int_equal(weir_session_prefill(device.get(), more.data(), more.size(), cancel, nullptr), WEIR_ERR_CANCELLED);
    step_both(2);
    assert_same(host, device, what + ", after a prompt that was taken back from " + std::to_string(n));
    for (const uint32_t back : {1u, 5u, 12u, 20u}) {
      const uint32_t to = host->kv().n_tokens() - back;
      assert_ok(weir_session_rewind(host.get(), to, 0));
      assert_ok(weir_session_rewind(device.get(), to, 0));
      if (back == 12) fork(host), fork(device);
      step_both(3);
      assert_same(host, device, what + ", after a rewind to " + std::to_string(to));
    }
  }
}

void device_steps__go_back_in_every_format(void**) {
  const Models m(path_of("llama_f32").c_str());
  for (Row row : {kRows[0], kRows[3]}) {
    for (const uint32_t format : {WEIR_KV_BF16, WEIR_KV_Q8, WEIR_KV_K8V4}) {
      row.kv_format = format;
      go_back(m, row, std::string(row.policy) + ", format " + std::to_string(format));
    }
  }
}

// Sessions of different policies step together, while each one's twin on the processor steps alone.
void device_steps__together_are_steps_alone(void**) {
  for (const char* model : kModels) {
    const Models m(path_of(model).c_str());
    for (const Row& row : kRows) {
      const Row* const rows[kTogether] = {&row, &kRows[3], &row};  // as the leader, and not
      std::vector<Session> host, device;
      weir_session* group[kTogether];
      for (uint32_t i = 0; i < kTogether; ++i) {
        host.push_back(open_session(m, *rows[i], WEIR_DEVICE_CPU));
        device.push_back(open_session(m, *rows[i], WEIR_DEVICE_CUDA));
        group[i] = device[i].get();
        read_prompt(host[i], 100 * i);
        read_prompt(device[i], 100 * i);
      }
      for (uint32_t step = 0; step < kSteps / 2; ++step) {
        weir_token next[kTogether];
        for (uint32_t i = 0; i < kTogether; ++i) {
          next[i] = next_token(host[i], step + i);
          assert_ok(weir_session_step(host[i].get(), next[i]));
        }
        assert_ok(weir_step_many(group, next, kTogether));
        for (uint32_t i = 0; i < kTogether && step % kEvery == kEvery - 1; ++i) {
          assert_same(host[i], device[i],
                      std::string(model) + ", " + row.policy + ", session " + std::to_string(i) + ", step " +
                          std::to_string(step));
        }
      }
    }
  }
}

void compare_traces(const Models& m, const Row& row, const std::string& what) {
  const auto set_trace = reinterpret_cast<weir_session_trace_fn>(weir_get_experimental("weir_session_trace"));
  assert_non_null(set_trace);
  const Session host = open_session(m, row, WEIR_DEVICE_CPU, WEIR_SESSION_TRACE),
                device = open_session(m, row, WEIR_DEVICE_CUDA, WEIR_SESSION_TRACE);
  TraceCopies a, b;
  assert_ok(set_trace(host.get(), TraceCopies::see, &a));
  assert_ok(set_trace(device.get(), TraceCopies::see, &b));
  read_prompt(host, 0);
  read_prompt(device, 0);
  for (uint32_t i = 0; i < kSteps; ++i) {
    const weir_token next = next_token(host, i);
    assert_ok(weir_session_step(host.get(), next));
    assert_ok(weir_session_step(device.get(), next));
    assert_int_equal(a.layers.size(), b.layers.size());
    for (size_t layer = 0; layer < a.layers.size(); ++layer) {
      const TracedLayer &x = a.layers[layer], &y = b.layers[layer];
      if (x.n_tokens != y.n_tokens || x.capacity != y.capacity || x.first_pos != y.first_pos || x.flags != y.flags ||
          x.stamps != y.stamps || x.scores != y.scores || x.listed != y.listed || x.masses != y.masses)
        fail_msg("%s, step %u: another trace of layer %u", what.c_str(), i, x.layer);
    }
  }
  assert_same(host, device, what);
}

void device_steps__have_the_traces_of_the_processor(void**) {
  for (const char* model : {"llama_f32", "gemma3_f32"}) {
    const Models m(path_of(model).c_str());
    for (const Row& row : kRows) compare_traces(m, row, std::string(model) + ", " + row.policy);
  }
}

// A step that a trace callback refuses is taken back; there are no logits then.
void device_steps__that_are_refused_are_taken_back(void**) {
  const auto set_trace = reinterpret_cast<weir_session_trace_fn>(weir_get_experimental("weir_session_trace"));
  const Models m(path_of("llama_f32").c_str());
  for (const uint32_t first : {0u, 9u, 10u}) {  // in the middle of a page, at its end, and the first of one
    const Session session = open_session(m, kRows[3], WEIR_DEVICE_CUDA, WEIR_SESSION_TRACE),
                  other = open_session(m, kRows[3], WEIR_DEVICE_CUDA, WEIR_SESSION_TRACE);
    TraceCopies copies;
    for (const Session* s : {&session, &other}) {
      read_prompt(*s, 0);
      for (uint32_t i = 0; i < first; ++i) assert_ok(weir_session_step(s->get(), token(i)));
    }
    copies.refused = 1;
    assert_ok(set_trace(session.get(), TraceCopies::see, &copies));
    assert_int_equal(weir_session_step(session.get(), token(7)), WEIR_ERR_CANCELLED);
    assert_non_null(strstr(weir_last_error(), "layer 1"));
    assert_int_equal(session->kv().n_tokens(), kPrompt + first);
    weir_session* const both[] = {session.get(), other.get()};
    const weir_token tokens[] = {token(8), token(8)};
    assert_int_equal(weir_step_many(both, tokens, 2), WEIR_ERR_UNSUPPORTED);
    assert_ok(set_trace(session.get(), nullptr, nullptr));
    assert_ok(weir_step_many(both, tokens, 2));
    assert_true(other->host_tables().ok());
    assert_same(other, session, "after a step that was refused");
  }
}

// A cancel that is shared stops a prompt on a device, too.
void device_steps__look_at_a_shared_cancel(void**) {
  const Models m(path_of("llama_f32").c_str());
  const Session device = open_session(m, kRows[0], WEIR_DEVICE_CUDA);
  weir_cancel* cancel = nullptr;
  assert_ok(weir_cancel_create(&cancel));
  assert_ok(weir_session_set_cancel(device.get(), cancel));
  weir_cancel_set(cancel);
  const weir_token tokens[] = {token(1), token(2)};
  assert_int_equal(weir_session_prefill(device.get(), tokens, 2, nullptr, nullptr), WEIR_ERR_CANCELLED);
  weir_cancel_clear(cancel);
  assert_ok(weir_session_prefill(device.get(), tokens, 2, nullptr, nullptr));
  weir_cancel_set(cancel);
  assert_int_equal(weir_session_step(device.get(), token(3)), WEIR_ERR_CANCELLED);
  weir_cancel_release(cancel);
}

size_t (*fail_at)(uint32_t) = nullptr;

// A prompt that is cancelled after its first chunk makes digests of the last pages again, without a way to say that
// this failed: whichever call of the device fails there, the next one of the session says that the device is lost.
void device_steps__a_loss_is_remembered(void**) {
  constexpr uint32_t kMaxCalls = 40;
  void* module = dlopen((std::string(module_folder()) + "/libweir_cuda.so").c_str(), RTLD_NOW);
  assert_non_null(module);
  fail_at = reinterpret_cast<size_t (*)(uint32_t)>(dlsym(module, "weir_host_module_fail_at"));
  assert_non_null(fail_at);
  const Models m(path_of("llama_f32").c_str());
  uint32_t n_lost = 0;
  for (static uint32_t n = 1; n <= kMaxCalls; ++n) {
    const Session device = open_session(m, kRows[3], WEIR_DEVICE_CUDA);
    read_prompt(device, 0);
    const std::vector<weir_token> more(100, token(1));
    const weir_progress_fn cancel = [](void*, const weir_progress_info* info) -> weir_status {
      if (info->done == 0) return WEIR_OK;
      (void)fail_at(n);
      return WEIR_ERR_CANCELLED;
    };
    assert_int_equal(weir_session_prefill(device.get(), more.data(), more.size(), cancel, nullptr), WEIR_ERR_CANCELLED);
    (void)fail_at(0);
    const weir_status status = weir_session_step(device.get(), token(2));
    assert_true(status == WEIR_OK || status == WEIR_ERR_DEVICE_LOST);
    if (status == WEIR_OK) continue;
    assert_int_equal(n, ++n_lost);  // no call before this one failed unnoticed
  }
  assert_in_range(n_lost, 5, kMaxCalls - 1);  // two copies, two waits, a kernel for each layer
  dlclose(module);
}

// What a step of `device` copies between host and device.
uint64_t copied_bytes(const Session& device, uint64_t (*bytes)()) {
  const uint64_t before = bytes();
  assert_ok(weir_session_step(device.get(), token(7)));
  return bytes() - before;
}

// A pin that is refused changes no table, so the next step has nothing to send; one that is granted has.
void device_steps__a_refused_pin_sends_no_tables(void**) {
  void* module = dlopen((std::string(module_folder()) + "/libweir_cuda.so").c_str(), RTLD_NOW);
  assert_non_null(module);
  const auto bytes = reinterpret_cast<uint64_t (*)()>(dlsym(module, "weir_host_module_bytes"));
  assert_non_null(bytes);
  const Models m(path_of("llama_f32").c_str());
  const Session device = open_session(m, {"h2o", {{"skip_layers", "0"}}, 64}, WEIR_DEVICE_CUDA);
  read_prompt(device, 0);
  for (uint32_t i = 0; i < kSteps; ++i) assert_ok(weir_session_step(device.get(), token(i)));
  const uint64_t plain = copied_bytes(device, bytes);
  constexpr uint32_t n = kPrompt + kSteps;
  weir_page_state pages[n / 16 + 1] = {};
  uint32_t n_pages = 0, left = 0;
  assert_true(device->page_states(pages, n / 16 + 1, n_pages).ok());
  while (left < n_pages && pages[left].resident != 0) ++left;
  assert_in_range(left, 0, n_pages - 1);  // a page that left in every stream
  assert_int_equal(weir_session_pin(device.get(), 16 * left, 16 * left + 1), WEIR_ERR_NOT_FOUND);
  assert_int_equal(copied_bytes(device, bytes), plain);
  assert_int_equal(weir_session_pin(device.get(), 0, n), WEIR_ERR_BUDGET);
  assert_int_equal(copied_bytes(device, bytes), plain);
  assert_ok(weir_session_pin(device.get(), n - 2, n));
  assert_true(copied_bytes(device, bytes) > plain);
  assert_int_equal(copied_bytes(device, bytes), plain);
  dlclose(module);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(device_steps__have_the_bits_of_the_processor),
      cmocka_unit_test(device_steps__with_pages_in_every_format),
      cmocka_unit_test(device_steps__go_back_in_every_format),
      cmocka_unit_test(device_steps__together_are_steps_alone),
      cmocka_unit_test(device_steps__have_the_traces_of_the_processor),
      cmocka_unit_test(device_steps__that_are_refused_are_taken_back),
      cmocka_unit_test(device_steps__look_at_a_shared_cancel),
      cmocka_unit_test(device_steps__a_loss_is_remembered),
      cmocka_unit_test(device_steps__a_refused_pin_sends_no_tables),
  };
  return cmocka_run_group_tests_name("runtime/device_steps", tests, nullptr, nullptr);
}
