// The options of the spill store: what contradicts itself is refused, the plan has every byte, and what a step attends
// does not depend on where a spilled page lies.
#include <algorithm>

#include "tests/api/spill_session.h"
#include "weir/experimental.h"

namespace {

using namespace spill_session;

void spill__contradictions_are_refused(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  struct Case {
    void (*change)(weir_session_options& o);
    weir_status status;
    const char *text, *other;
  };
  const Case cases[] = {
      {[](weir_session_options& o) { o.spill_raw_bytes = (8 << 20) + 1; }, WEIR_ERR_INVALID_ARG,
       "spill_raw_bytes 8388609", "spill_budget_bytes, which are only 8388608"},
      {[](weir_session_options& o) { o.spill_path = "/tmp/x"; }, WEIR_ERR_INVALID_ARG, "spill_path is set",
       "spill_file_bytes is 0"},
      {[](weir_session_options& o) { o.spill_file_bytes = 1 << 20; }, WEIR_ERR_INVALID_ARG,
       "spill_file_bytes is 1048576", "spill_path is NULL"},
      {[](weir_session_options& o) { o.spill_file_bytes = 1 << 20, o.spill_path = ""; }, WEIR_ERR_INVALID_ARG,
       "spill_file_bytes is 1048576", "spill_path is empty"},
      {[](weir_session_options& o) { o.spill_raw_bytes = 4096, o.spill_flags = WEIR_SPILL_NO_RAW; },
       WEIR_ERR_INVALID_ARG, "spill_raw_bytes is 4096", "WEIR_SPILL_NO_RAW"},
      {[](weir_session_options& o) { o.spill_flags = 24 | WEIR_SPILL_STRICT; }, WEIR_ERR_UNSUPPORTED, "spill_flags",
       "0x18"},
      {[](weir_session_options& o) { o.reserved_spill = 3; }, WEIR_ERR_UNSUPPORTED, "reserved_spill", "3"},
      {[](weir_session_options& o) { o.spill_file_bytes = 511, o.spill_path = "/tmp/x"; }, WEIR_ERR_BUDGET,
       "spill_file_bytes 511 hold no page", "bytes"},
      {[](weir_session_options& o) { o.policy = "raas", o.spill_budget_bytes = 0, o.spill_raw_bytes = 1; },
       WEIR_ERR_INVALID_ARG, "spill_raw_bytes", "policy raas stores pages only with spill_budget_bytes"},
      {[](weir_session_options& o) { o.policy = "raas", o.spill_budget_bytes = 0, o.spill_flags = WEIR_SPILL_STRICT; },
       WEIR_ERR_INVALID_ARG, "spill_flags", "policy raas stores pages only with spill_budget_bytes"},
      {[](weir_session_options& o) { o.policy = "raas", o.spill_flags = WEIR_SPILL_STRICT; }, WEIR_ERR_INVALID_ARG,
       "WEIR_SPILL_STRICT", "not raas"},
      {[](weir_session_options& o) {
         o.policy = nullptr, o.spill_budget_bytes = 0, o.spill_path = "/tmp/x", o.spill_file_bytes = 1 << 20;
       },
       WEIR_ERR_INVALID_ARG, "spill_path", "policy dense lets no pages go"},
  };
  for (const Case& c : cases) {
    weir_session_options o = options_of("arkvale", {}, 160);
    o.spill_budget_bytes = 8 << 20;
    c.change(o);
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    weir_session* session = nullptr;
    assert_error(weir_plan(f->model, &o, &plan), c.status, c.text);
    assert_error(weir_plan(f->model, &o, &plan), c.status, c.other);
    assert_error(weir_session_create(f->model, &o, &session), c.status, c.text);
    assert_null(session);
  }
}

// The budget is too small for one page of each stream.
void spill__budget_of_less_than_a_page_a_stream(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  weir_session_options o = options_of("arkvale", {}, 160);
  const weir_plan_info plan = plan_of(f->model, o);
  const uint64_t least = cells_for(plan, 1);
  for (uint32_t flags : {0, int{WEIR_SPILL_NO_RAW}}) {
    o.spill_flags = flags;
    o.spill_budget_bytes = least - 1;
    weir_plan_info refused = WEIR_PLAN_INFO_INIT;
    weir_session* session = nullptr;
    assert_error(weir_plan(f->model, &o, &refused), WEIR_ERR_BUDGET, std::to_string(least).c_str());
    assert_error(weir_session_create(f->model, &o, &session), WEIR_ERR_BUDGET, std::to_string(least).c_str());
    o.spill_budget_bytes = least;
    Session works(f->model, o);
    works.prefill(0, 100);
  }
}

// All host memory of the store is in the plan, its file is beside it, and nothing else is taken.
void spill__plan_has_every_byte(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  const Folder folder;
  const std::string path = folder.file();
  const weir_session_options plain = options_of("arkvale", {}, 160);
  const weir_plan_info all = plan_of(f->model, plain);
  // The store holds the whole context at worst.
  assert_true(all.spill_bytes > cells_for(all, kContext / 16));
  assert_int_equal(all.spill_file_bytes, 0);
  weir_session_options o = plain;
  o.spill_budget_bytes = cells_for(all, 8);
  const weir_plan_info small = plan_of(f->model, o);
  assert_true(small.spill_bytes < all.spill_bytes && small.spill_bytes > o.spill_budget_bytes);
  o.spill_path = path.c_str();
  o.spill_file_bytes = 2 << 20;
  const weir_plan_info with_file = plan_of(f->model, o);
  assert_int_equal(with_file.spill_file_bytes, 2 << 20);
  // Links between the cells of the file are in memory, its bytes are not.
  assert_true(with_file.spill_bytes > small.spill_bytes && with_file.spill_bytes < small.spill_bytes + (64 << 10));
  assert_int_equal(with_file.total_bytes - small.total_bytes, with_file.spill_bytes - small.spill_bytes);
  {
    Session session(f->model, o);
    assert_int_equal(access(path.c_str(), F_OK), -1);  // it has no name
    session.prefill(0, 600);
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    assert_ok(weir_session_memory(session, &memory));
    assert_int_equal(memory.plan_bytes, with_file.total_bytes);
    assert_int_equal(memory.bytes, memory.plan_bytes);
    assert_int_equal(memory.allocs_while_decoding, 0);
    assert_true(session.store().pages_in_file > 0);
  }
  // Where something is already, it stays what it is.
  FILE* there = fopen(path.c_str(), "w");
  assert_non_null(there);
  fclose(there);
  weir_session* refused = nullptr;
  assert_error(weir_session_create(f->model, &o, &refused), WEIR_ERR_IO, path.c_str());
  assert_null(refused);
  assert_int_equal(unlink(path.c_str()), 0);
  o.spill_path = "/nowhere/spill";
  assert_error(weir_session_create(f->model, &o, &refused), WEIR_ERR_IO, "there is no such folder");
}

// An application that was built before these fields gets the store it asked for.
void spill__shorter_options_have_the_defaults(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  weir_session_options o = options_of("arkvale", {}, 160);
  const weir_plan_info want = plan_of(f->model, o);
  o.spill_raw_bytes = 1;
  o.spill_flags = UINT32_MAX;
  o.struct_size = offsetof(weir_session_options, spill_raw_bytes);
  weir_plan_info got = WEIR_PLAN_INFO_INIT;
  got.struct_size = offsetof(weir_plan_info, spill_file_bytes);
  got.spill_file_bytes = 77;
  assert_ok(weir_plan(f->model, &o, &got));
  assert_int_equal(got.total_bytes, want.total_bytes);
  assert_int_equal(got.spill_file_bytes, 77);
}

// Logits do not depend on the pool, the share of raw pages, the threads, or a file. `all` has all pages in the pool.
void check_tiers(const fixture* f, const weir_session_options& all, const weir_session_options& plain) {
  std::vector<std::vector<float>> want;
  {
    Session session(f->model, all);
    session.prefill(0, kPrompt);
    for (uint32_t i = 0; i < kSteps; ++i) {
      assert_ok(weir_session_step(session, token(kPrompt + i)));
      want.push_back(session.logits());
    }
  }
  const Folder folder;
  const std::string path = folder.file();
  const weir_plan_info plan = plan_of(f->model, plain);
  enum Raw { kNone, kQuarter, kAll };
  const struct {
    uint32_t slots;
    Raw raw;
    uint32_t n_threads;
    bool file;
  } cases[] = {
      {9, kNone, 2, false},    {9, kQuarter, 1, false}, {12, kAll, 2, false}, {9, kNone, 1, true},
      {12, kQuarter, 2, true}, {9, kAll, 2, true},      {30, kNone, 2, true}, {9, kNone, 7, true},
  };
  for (const auto& c : cases) {
    weir_runtime* runtime = nullptr;
    weir_model* model = nullptr;
    weir_runtime_options threads = WEIR_RUNTIME_OPTIONS_INIT;
    threads.n_threads = c.n_threads;
    assert_ok(weir_runtime_create(&threads, &runtime));
    assert_ok(weir_model_open(runtime, TINY_MODEL, nullptr, &model));
    {
      weir_session_options o = plain;
      o.budget_tokens = c.slots * 16;
      // Room for a part of the pages of the conversation where there is a file, for all elsewhere.
      o.spill_budget_bytes = cells_for(plan, c.file ? 3 : kContext / 16);
      if (c.raw == kNone) o.spill_flags = WEIR_SPILL_NO_RAW;
      if (c.raw == kAll) o.spill_raw_bytes = c.file ? cells_for(plan, 2) : o.spill_budget_bytes;
      if (c.file) o.spill_path = path.c_str(), o.spill_file_bytes = 16 << 20;
      Session session(model, o);
      session.prefill(0, kPrompt);
      for (uint32_t i = 0; i < kSteps; ++i) {
        assert_ok(weir_session_step(session, token(kPrompt + i)));
        if (session.logits() != want[i]) fail_msg("logits differ at step %u, %u pages in the pool", i, c.slots);
      }
      assert_int_equal(session.stats().pages_dropped, 0);
      const weir::SpillStats store = session.store();
      assert_int_equal(store.pages_in_file > 0, c.file);
      assert_int_equal(store.pages_raw > 0, c.raw != kNone);
      if (c.slots != 30) assert_true(session.stats().pages_recalled > 0);
      weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
      assert_ok(weir_session_memory(session, &memory));
      assert_int_equal(memory.bytes, memory.plan_bytes);
      assert_int_equal(memory.allocs_while_decoding, 0);
    }
    weir_model_close(model);
    weir_runtime_destroy(runtime);
  }
}

void spill__results_do_not_depend_on_the_tier(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  check_tiers(f, options_of("quest", kQuest, 8 * 16), options_of("arkvale", kTop, 9 * 16));
  check_tiers(f, options_of("psa", kPsa, 0), options_of("psa", kPsaRecall, 9 * 16));
  check_tiers(f, options_of("psa", kPsa, 0), options_of("psa", kPsaOnePool, 9 * 16));
}

// The ring of events holds what one step can evict, however many pages come back.
void spill__no_event_is_missed(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  Options top = kTop;
  top[2].value = "24";  // recall_from
  Session session(f->model, options_of("arkvale", top, 30 * 16));
  const auto read = reinterpret_cast<weir_session_page_events_fn>(weir_get_experimental("weir_session_page_events"));
  std::vector<weir_page_event> events(16 * 30 + 1);
  uint32_t most = 0, n = 0;
  uint64_t n_lost = 0;
  session.prefill(0, 600);
  for (;;) {  // those of the prompt
    assert_ok(read(session, events.data(), 100, &n, &n_lost));
    if (n == 0) break;
  }
  for (uint32_t i = 0; i < kSteps / 2; ++i) {
    const uint64_t before = session.stats().pages_evicted;
    assert_ok(weir_session_step(session, token(i)));
    assert_ok(read(session, events.data(), static_cast<uint32_t>(events.size()), &n, &n_lost));
    assert_int_equal(n_lost, 0);
    assert_int_equal(n, session.stats().pages_evicted - before);
    most = std::max(most, n);
  }
  assert_true(most > 4 * 16);
}

weir_status refuse_last_layer(void* user, const weir_trace_layer* info) {
  return *static_cast<bool*>(user) && info->layer == 7 ? WEIR_ERR_CANCELLED : WEIR_OK;
}

// A step that a trace callback stopped leaves nothing that the next one could see: what it wanted shields no page.
void spill__stopped_steps_change_no_result(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  weir_model_info info = WEIR_MODEL_INFO_INIT;
  assert_ok(weir_model_get_info(f->model, &info));
  assert_int_equal(info.n_layers, 8);
  weir_session_options plain = options_of("arkvale", kTop, 9 * 16), traced = plain;
  traced.flags = WEIR_SESSION_TRACE;
  Session want(f->model, plain), got(f->model, traced);
  const auto set_trace = reinterpret_cast<weir_session_trace_fn>(weir_get_experimental("weir_session_trace"));
  bool refuses = false;
  assert_ok(set_trace(got, refuse_last_layer, &refuses));
  want.prefill(0, kPrompt);
  got.prefill(0, kPrompt);
  for (uint32_t i = kPrompt; i < kPrompt + kSteps; ++i) {
    refuses = i % 3 == 0;
    if (refuses) assert_error(weir_session_step(got, token(7 * i + 3)), WEIR_ERR_CANCELLED, "");
    refuses = false;
    assert_ok(weir_session_step(want, token(i)));
    assert_ok(weir_session_step(got, token(i)));
    if (got.logits() != want.logits()) fail_msg("logits differ at position %u", i);
  }
  assert_true(want.stats().pages_recalled > 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(spill__contradictions_are_refused),
      cmocka_unit_test(spill__budget_of_less_than_a_page_a_stream),
      cmocka_unit_test(spill__plan_has_every_byte),
      cmocka_unit_test(spill__shorter_options_have_the_defaults),
      cmocka_unit_test(spill__results_do_not_depend_on_the_tier),
      cmocka_unit_test(spill__no_event_is_missed),
      cmocka_unit_test(spill__stopped_steps_change_no_result),
  };
  return cmocka_run_group_tests_name("spill", tests, open_fixture, close_fixture);
}
