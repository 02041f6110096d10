// api: what presets plan beside what dense plans for the same model, on the CPU; and what the store's part of a plan
// says.
#include <filesystem>
#include <string>
#include <vector>

#include "tests/api/spill_session.h"

namespace {

using namespace spill_session;

constexpr const char* kPresets[] = {
#define WEIR_PRESET(name, ...) name,
#define WEIR_PRESET_WITH(name, ...) name,
#include "policy/presets.inc"
#undef WEIR_PRESET
#undef WEIR_PRESET_WITH
};

weir_session_options preset(const char* name, uint32_t context_tokens = 0) {
  weir_session_options o = WEIR_SESSION_OPTIONS_INIT;
  o.device = WEIR_DEVICE_CPU;
  o.context_tokens = context_tokens;
  assert_ok(weir_session_options_preset(name, &o));
  return o;
}

struct Model {
  explicit Model(const std::string& path) {
    assert_ok(weir_runtime_create(nullptr, &runtime));
    assert_ok(weir_model_open(runtime, path.c_str(), nullptr, &model));
  }
  ~Model() {
    weir_model_close(model);
    weir_runtime_destroy(runtime);
  }
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
};

// Nothing takes more than dense but what estimates need where all pages stay (digests, tables of attention, lists), and
// the latest tokens and a window's pages of a conversation without end, in models of a context below those.
void presets__plan_no_more_than_dense(void**) {
  std::vector<std::string> paths = {TINY_MODEL};
  for (const auto& entry : std::filesystem::directory_iterator(WEIR_SOURCE_DIR "/tests/golden/models"))
    if (entry.path().extension() == ".gguf") paths.push_back(entry.path());
  assert_true(paths.size() > 20);
  for (const std::string& path : paths) {
    const Model m(path);
    const weir_plan_info dense = plan_of(m.model, preset("exact"));
    for (const char* name : kPresets) {
      const weir_session_options o = preset(name);
      weir_plan_info plan = WEIR_PLAN_INFO_INIT;
      const weir_status status = weir_plan(m.model, &o, &plan);
      if (status == WEIR_ERR_INVALID_ARG && strstr(weir_last_error(), "skip_layers") != nullptr) continue;  // too small
      if (status != WEIR_OK) fail_msg("%s, %s: %s", path.c_str(), name, weir_last_error());
      const auto more = [](uint64_t a, uint64_t b) { return a > b ? a - b : 0; };
      const uint64_t besides = plan.digest_bytes + more(plan.workspace_bytes, dense.workspace_bytes) +
                               more(plan.table_bytes, dense.table_bytes) +
                               more(plan.sampler_bytes, dense.sampler_bytes) +
                               more(plan.window_kv_bytes, dense.window_kv_bytes);
      const bool holds_all = plan.pages_per_stream * 16 >= dense.context_tokens;
      if (plan.total_bytes > dense.total_bytes + (holds_all ? besides : 0))
        fail_msg("%s, %s: %llu bytes, dense %llu", path.c_str(), name,
                 static_cast<unsigned long long>(plan.total_bytes), static_cast<unsigned long long>(dense.total_bytes));
      assert_true(plan.kv_bytes - plan.window_kv_bytes <= dense.kv_bytes - dense.window_kv_bytes);
    }
  }
}

void presets__with_recall_take_half(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  for (uint32_t context : {0u, 131072u, 12000u, 8192u, 6000u, 3000u, 1100u, 1024u, 500u}) {
    const weir_plan_info dense = plan_of(f->model, preset("exact", context));
    const weir_session_options o = preset("reason-recall", context);
    const weir_plan_info plan = plan_of(f->model, o);
    const bool is_stored = plan.spill_bytes != 0;
    // A context of eight pools or more is worth it.
    assert_int_equal(is_stored, context == 0 || context >= 8192);
    assert_true(plan.total_bytes <= (is_stored ? dense.total_bytes / 2 : dense.total_bytes));
    if (is_stored) {
      assert_true(plan.total_bytes > dense.total_bytes / 2 - dense.total_bytes / 100);  // what there is is used
      assert_true(plan.spill_raw_bytes + plan.spill_compressed_bytes <= plan.spill_bytes);
      assert_true(plan.spill_tokens > plan.budget_tokens / 2 && plan.spill_tokens < plan.context_tokens);
    }
    if (context > 20000) continue;
    Session session(f->model, o);
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    assert_ok(weir_session_memory(session, &memory));
    assert_int_equal(memory.bytes, plan.total_bytes);
  }
  // A size that the caller gives is taken; another preset forgets the choice.
  weir_session_options o = preset("reason-recall");
  o.spill_budget_bytes = 80 << 20;
  assert_int_equal(plan_of(f->model, o).spill_tokens, plan_of(f->model, o).context_tokens);
  o = preset("reason-recall");
  o.spill_flags |= WEIR_SPILL_STRICT;
  assert_ok(weir_session_options_preset("reason-fixed", &o));
  assert_int_equal(o.spill_flags, WEIR_SPILL_STRICT);
  o = preset("reason-recall");
  o.struct_size = offsetof(weir_session_options, spill_raw_bytes);
  o.spill_flags = 77;
  assert_ok(weir_session_options_preset("reason-recall", &o));
  assert_int_equal(o.spill_flags, 77);
}

// The preset for conversations: at most half of dense's memory, once that is more than what no pool changes.
void presets__chat_takes_half(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  for (const uint32_t context : {6000u, 8192u, 16384u, 0u}) {
    const weir_plan_info dense = plan_of(f->model, preset("exact", context)),
                         plan = plan_of(f->model, preset("chat", context));
    assert_int_equal(plan.context_tokens, dense.context_tokens);
    assert_int_equal(plan.budget_tokens, 512);
    assert_true(plan.total_bytes <= dense.total_bytes / 2 && plan.spill_tokens > 512);
  }
}

// The store of a size that nobody has chosen has all pages as they are; a smaller one as many as leave room for the
// others compressed.
void presets__the_plan_of_a_store(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  weir_session_options o = options_of("arkvale", {}, 160);
  const weir_plan_info dense = plan_of(f->model, options_of("dense", {}, 0));
  const uint64_t all = dense.kv_bytes;
  weir_plan_info plan = plan_of(f->model, o);
  assert_int_equal(plan.spill_raw_bytes, all);
  assert_int_equal(plan.spill_compressed_bytes, 0);
  assert_int_equal(plan.spill_tokens, kContext);
  assert_true(plan.spill_bytes < all + (1 << 19));
  const auto raw_of = [&](uint64_t budget) {
    o.spill_budget_bytes = budget;
    plan = plan_of(f->model, o);
    if (budget != 0) assert_true(plan.spill_raw_bytes + plan.spill_compressed_bytes <= budget);
    return plan.spill_raw_bytes;
  };
  assert_int_equal(raw_of(2 * all), all);
  assert_int_equal(raw_of(all), all);
  for (uint64_t percent : {99u, 95u, 90u, 86u}) {
    const uint64_t raw = raw_of(all * percent / 100);
    assert_true(raw < all && raw > all / 4);
    // The others need four fifths.
    const uint64_t needed = raw + (all - raw) * 4 / 5;
    assert_true(needed <= all * percent / 100 && needed + all / 100 > all * percent / 100);
    assert_true(plan.spill_tokens < kContext);
  }
  for (uint64_t percent : {80u, 40u, 10u}) {
    const uint64_t raw = raw_of(all * percent / 100), quarter = all * percent / 400;
    assert_true(raw <= quarter && raw + plan.page_bytes > quarter);
  }
  // As before: what is given, and nothing raw.
  o.spill_raw_bytes = all / 2;
  assert_int_equal(raw_of(all), all / 2);
  o.spill_raw_bytes = 0;
  o.spill_flags = WEIR_SPILL_NO_RAW;
  assert_int_equal(raw_of(0), 0);
  assert_int_equal(plan.spill_tokens, kContext);
  assert_int_equal(plan_of(f->model, options_of("dense", {}, 0)).spill_tokens, 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(presets__plan_no_more_than_dense),
      cmocka_unit_test(presets__with_recall_take_half),
      cmocka_unit_test(presets__chat_takes_half),
      cmocka_unit_test(presets__the_plan_of_a_store),
  };
  return cmocka_run_group_tests_name("api/test_presets", tests, open_fixture, close_fixture);
}
