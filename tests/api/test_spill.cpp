// The options of the spill store: what contradicts itself is refused, the plan has every byte, and what a step attends
// does not depend on where a spilled page lies.
#include <unistd.h>

#include <string>
#include <vector>

#include "api/handles.h"
#include "tests/api/api_test.h"

namespace {

#ifdef WEIR_INTERNAL_SANITIZED
constexpr uint32_t kSteps = 120;
#else
constexpr uint32_t kSteps = 300;
#endif
constexpr uint32_t kContext = 1024, kPrompt = 40;

using Options = std::vector<weir_key_value>;

// With all wanted pages brought back and only those attended, arkvale is quest, which never lets a page go.
const Options kQuest = {{"skip_layers", "0"}, {"sink_pages", "0"}, {"digest", "minmax"}, {"agg", "max_raw"}};
const Options kTop = {{"attend", "top"},    {"recall_pages", "0"}, {"recall_from", "7"},
                      {"digest", "minmax"}, {"agg", "max_raw"},    {"protect_recent", "1"}};

weir_session_options options_of(const char* policy, const Options& list, uint32_t budget_tokens) {
  weir_session_options o = WEIR_SESSION_OPTIONS_INIT;
  o.device = WEIR_DEVICE_CPU;
  o.context_tokens = kContext;
  o.batch_tokens = 64;
  o.policy = policy;
  o.policy_options = list.data();
  o.n_policy_options = static_cast<uint32_t>(list.size());
  o.budget_tokens = budget_tokens;
  return o;
}

weir_token token(uint32_t i) { return static_cast<weir_token>(i * 2654435761u % 199 + 20); }

// A folder for spill files; at the end nothing is left in it.
class Folder {
 public:
  Folder() { assert_non_null(mkdtemp(path_)); }
  ~Folder() { assert_int_equal(rmdir(path_), 0); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file() const { return std::string(path_) + "/spill"; }

 private:
  char path_[32] = "/tmp/weir-spill-XXXXXX";
};

class Session {
 public:
  Session(weir_model* model, const weir_session_options& options) {
    assert_ok(weir_session_create(model, &options, &handle_));
  }
  ~Session() { weir_session_destroy(handle_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  operator weir_session*() const { return handle_; }

  void prefill(uint32_t first, uint32_t n) { assert_ok(try_prefill(first, n)); }
  weir_status try_prefill(uint32_t first, uint32_t n) {
    std::vector<weir_token> tokens;
    for (uint32_t i = 0; i < n; ++i) tokens.push_back(token(first + i));
    return weir_session_prefill(handle_, tokens.data(), n, nullptr, nullptr);
  }
  std::vector<float> logits() {
    const float* logits = nullptr;
    uint32_t n = 0;
    assert_ok(weir_session_logits(handle_, &logits, &n));
    return {logits, logits + n};
  }
  weir_session_stats stats() const {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(handle_, &stats));
    return stats;
  }
  weir::SpillStats store() const { return handle_->store().stats(); }

 private:
  weir_session* handle_ = nullptr;
};

weir_plan_info plan_of(weir_model* model, const weir_session_options& o) {
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  assert_ok(weir_plan(model, &o, &plan));
  return plan;
}

// Bytes of cells for n pages a stream, whatever is in them.
uint64_t cells_for(const weir_plan_info& plan, uint32_t n_pages) {
  return weir::spill_worst_bytes(static_cast<uint32_t>(plan.page_bytes), uint64_t{n_pages} * plan.n_streams);
}

// ---------------------------------------------------------------------------------------------------------------------

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
      {[](weir_session_options& o) { o.spill_flags = 12 | WEIR_SPILL_STRICT; }, WEIR_ERR_UNSUPPORTED, "spill_flags",
       "0xc"},
      {[](weir_session_options& o) { o.reserved_spill = 3; }, WEIR_ERR_UNSUPPORTED, "reserved_spill", "3"},
      {[](weir_session_options& o) { o.spill_file_bytes = 511, o.spill_path = "/tmp/x"; }, WEIR_ERR_BUDGET,
       "spill_file_bytes 511 hold no page", "bytes"},
      {[](weir_session_options& o) { o.policy = "raas", o.spill_budget_bytes = 0, o.spill_raw_bytes = 1; },
       WEIR_ERR_INVALID_ARG, "spill_raw_bytes", "policy raas recalls no pages"},
      {[](weir_session_options& o) { o.policy = "raas", o.spill_budget_bytes = 0, o.spill_flags = WEIR_SPILL_STRICT; },
       WEIR_ERR_INVALID_ARG, "spill_flags", "policy raas recalls no pages"},
      {[](weir_session_options& o) {
         o.policy = nullptr, o.spill_budget_bytes = 0, o.spill_path = "/tmp/x", o.spill_file_bytes = 1 << 20;
       },
       WEIR_ERR_INVALID_ARG, "spill_path", "policy dense recalls no pages"},
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
  for (uint32_t flags : {0, int{WEIR_SPILL_NO_RAW}, int{WEIR_SPILL_STRICT}}) {
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

// Logits do not depend on the pool, the share of raw pages, the threads, or a file.
void spill__results_do_not_depend_on_the_tier(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  std::vector<std::vector<float>> want;
  {
    const weir_session_options quest = options_of("quest", kQuest, 8 * 16);
    Session session(f->model, quest);
    session.prefill(0, kPrompt);
    for (uint32_t i = 0; i < kSteps; ++i) {
      assert_ok(weir_session_step(session, token(kPrompt + i)));
      want.push_back(session.logits());
    }
  }
  const Folder folder;
  const std::string path = folder.file();
  const weir_session_options plain = options_of("arkvale", kTop, 9 * 16);
  const weir_plan_info plan = plan_of(f->model, plain);
  enum Raw { kNone, kQuarter, kAll };
  const struct {
    uint32_t slots;
    Raw raw;
    uint32_t n_threads;
    bool file;
  } cases[] = {
      {9, kNone, 2, false},    {9, kQuarter, 1, false}, {12, kAll, 2, false}, {9, kNone, 1, true},
      {12, kQuarter, 2, true}, {9, kAll, 2, true},      {30, kNone, 2, true},
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
    }
    weir_model_close(model);
    weir_runtime_destroy(runtime);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(spill__contradictions_are_refused),
      cmocka_unit_test(spill__budget_of_less_than_a_page_a_stream),
      cmocka_unit_test(spill__plan_has_every_byte),
      cmocka_unit_test(spill__shorter_options_have_the_defaults),
      cmocka_unit_test(spill__results_do_not_depend_on_the_tier),
  };
  return cmocka_run_group_tests_name("spill", tests, open_fixture, close_fixture);
}
