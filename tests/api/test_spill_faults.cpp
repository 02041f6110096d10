// When the spill store is full, or its file, its memory or the system fail, pages are dropped and counted; with a
// strict store no token is appended instead, and the conversation is as before.
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>

#include "tests/api/spill_session.h"

// What the library asks of the system goes through here (tests/CMakeLists.txt wraps these functions).
namespace {
struct Faults {
  int n_reads = 0, n_writes = 0, n_threads = 0;
  int read_fails_at = -1, write_fails_at = -1, thread_fails_at = -1;  // number of the call, from 0
  int read_damaged_at = -1;
} g;
}  // namespace

extern "C" {
ssize_t __real_pread(int fd, void* data, size_t bytes, off_t offset);
ssize_t __real_pwrite(int fd, const void* data, size_t bytes, off_t offset);
int __real_pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

ssize_t __wrap_pread(int fd, void* data, size_t bytes, off_t offset) {
  const int n = g.n_reads++;
  if (n == g.read_fails_at) {
    errno = EIO;
    return -1;
  }
  const ssize_t got = __real_pread(fd, data, bytes, offset);
  if (n == g.read_damaged_at && got > 0) static_cast<char*>(data)[got / 2] ^= 0x10;
  return got;
}
ssize_t __wrap_pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  if (g.n_writes++ == g.write_fails_at) {
    errno = ENOSPC;
    return -1;
  }
  return __real_pwrite(fd, data, bytes, offset);
}
int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  if (g.n_threads++ == g.thread_fails_at) return EAGAIN;
  return __real_pthread_create(thread, attributes, start, argument);
}
}  // extern "C"

namespace {

using namespace spill_session;

// Policies that recall pages before a step attends, and while it does.
struct Recalling {
  const char* policy;
  const Options& options;
  bool reads_ahead;  // a page that is damaged may be one that no step asks for
  weir_session_options in_pool() const { return options_of(policy, options, 9 * 16); }
};
const Recalling kRecalling[] = {{"arkvale", kTop, false}, {"psa", kPsaRecall, true}, {"psa", kPsaOnePool, true}};

// A session whose store is small: a few pages a stream in memory, and perhaps a file.
struct SmallStore {
  SmallStore(weir_model* model, const Recalling& policy, const weir_plan_info& plan, uint32_t pages_per_stream,
             uint32_t flags, uint64_t file_bytes)
      : path(folder.file()) {
    options = policy.in_pool();
    options.spill_budget_bytes = cells_for(plan, pages_per_stream);
    options.spill_flags = flags | WEIR_SPILL_NO_RAW;
    if (file_bytes != 0) options.spill_path = path.c_str(), options.spill_file_bytes = file_bytes;
    session = std::make_unique<Session>(model, options);
    g = {};
  }
  Folder folder;
  std::string path;
  weir_session_options options;
  std::unique_ptr<Session> session;
};

// Takes steps until one fails, or kSteps. Until then the conversation grows, all logits are numbers, and a strict store
// has lost nothing.
weir_status steps(Session& s, bool is_strict, uint32_t& n_done) {
  for (n_done = 0; n_done < kSteps; ++n_done) {
    const uint32_t before = s.stats().n_tokens;
    const weir_status status = weir_session_step(s, token(n_done));
    assert_int_equal(s.stats().n_tokens, status == WEIR_OK ? before + 1 : before);
    if (status != WEIR_OK) return status;
    if (is_strict) assert_int_equal(s.stats().pages_dropped, 0);
    for (float x : s.logits()) assert_true(std::isfinite(x));
  }
  return WEIR_OK;
}

// The cold pages of a session can be read, and those that are resident are none of the lost ones.
uint64_t lost_pages(const weir_session* session) {
  uint64_t n = 0;
  for (uint32_t s = 0; s < session->kv().shape().n_streams(); ++s) {
    const weir::StreamView v = session->kv().stream(s);
    for (uint32_t row = 0; row < v.n_pages; ++row) n += v.is_lost(row);
  }
  return n;
}

// Store and file full: without STRICT pages are dropped, with it the step that fills pages is refused.
void check_full_store_and_file(const fixture* f, const Recalling& policy) {
  const weir_plan_info plan = plan_of(f->model, policy.in_pool());
  for (uint64_t file_bytes : {0, 1 << 18}) {
    SmallStore loose(f->model, policy, plan, 4, 0, file_bytes),
        strict(f->model, policy, plan, 4, WEIR_SPILL_STRICT, file_bytes);
    loose.session->prefill(0, kPrompt);
    strict.session->prefill(0, kPrompt);
    uint32_t n_loose = 0, n_strict = 0;
    assert_int_equal(steps(*loose.session, false, n_loose), WEIR_OK);
    assert_true(loose.session->stats().pages_dropped > 0);
    assert_int_equal(loose.session->stats().pages_dropped, lost_pages(*loose.session));
    assert_int_equal(loose.session->stats().spill_errors, 0);

    Session& s = *strict.session;
    assert_int_equal(steps(s, true, n_strict), WEIR_ERR_BUDGET);
    assert_non_null(std::strstr(weir_last_error(), "the spill store is full"));
    assert_int_equal((kPrompt + n_strict + 1) % 16, 0);  // the token that would fill a page
    assert_int_equal(s.stats().pages_dropped, 0);
    const std::vector<float> before = s.logits();
    const weir_session_stats stats = s.stats();
    assert_error(weir_session_step(s, 30), WEIR_ERR_BUDGET, "the spill store is full");
    assert_int_equal(s.try_prefill(0, 200), WEIR_ERR_BUDGET);
    assert_true(s.logits() == before);
    assert_int_equal(s.stats().n_tokens, stats.n_tokens);
    assert_int_equal(s.stats().n_prompt, stats.n_prompt);
    assert_int_equal(s.stats().pages_dropped, 0);
    // A chunk that fits, and one that does not: nothing of the prompt stays.
    assert_ok(weir_session_reset(s));
    s.prefill(0, 17);
    const std::vector<float> first = s.logits();
    assert_int_equal(s.try_prefill(17, 700), WEIR_ERR_BUDGET);
    assert_int_equal(s.stats().n_tokens, 17);
    assert_true(s.logits() == first);
    assert_int_equal(s.stats().pages_dropped, 0);
    s.prefill(17, 10);
    assert_ok(weir_session_step(s, 30));
  }
}
void spill__full_store_and_file(void** state) {
  for (const Recalling& policy : kRecalling) check_full_store_and_file(static_cast<fixture*>(*state), policy);
}

// The n-th write fails: the file is given up, what was there is lost and counted, and the conversation goes on; with
// STRICT it stops where the loss is found, and can be started anew.
void check_write_and_read_errors(const fixture* f, const Recalling& policy) {
  const weir_plan_info plan = plan_of(f->model, policy.in_pool());
  for (bool write : {true, false}) {
    uint32_t n_failed = 0;
    for (int n : {0, 1, 7, 40, 150}) {
      for (uint32_t flags : {0, int{WEIR_SPILL_STRICT}}) {
        SmallStore small(f->model, policy, plan, 4, flags, 16 << 20);
        Session& s = *small.session;
        (write ? g.write_fails_at : g.read_fails_at) = n;
        s.prefill(0, kPrompt);
        uint32_t n_done = 0;
        const weir_status status = steps(s, flags != 0, n_done);
        if ((write ? g.n_writes : g.n_reads) <= n) continue;  // so many there are not
        const weir_session_stats stats = s.stats();
        assert_true(stats.spill_errors > 0);
        assert_int_equal(stats.pages_dropped, lost_pages(s));
        assert_int_equal(s.store().pages_in_file, 0);
        if (!write || n > 40) assert_true(stats.pages_dropped > 0);
        assert_int_equal(status, flags == 0 ? WEIR_OK : WEIR_ERR_IO);
        ++n_failed;
        if (flags == 0) continue;
        assert_non_null(std::strstr(weir_last_error(), "spill file"));
        // It stays so, except that without a page lost there is only no room any more.
        const weir_status again = stats.pages_dropped > 0 ? WEIR_ERR_IO : WEIR_ERR_BUDGET;
        const std::vector<float> before = s.logits();
        assert_int_equal(weir_session_step(s, 30), again);
        assert_int_equal(s.try_prefill(0, 100), again);
        assert_true(s.logits() == before);
        assert_int_equal(s.stats().n_tokens, stats.n_tokens);
        assert_ok(weir_session_reset(s));
        s.prefill(0, kPrompt);
      }
    }
    assert_true(n_failed >= 6);
  }
}
void spill__write_and_read_errors(void** state) {
  for (const Recalling& policy : kRecalling) check_write_and_read_errors(static_cast<fixture*>(*state), policy);
}

// A block that was changed on the disk is no page: it is dropped and never attended; with STRICT the step fails.
void check_damaged_blocks(const fixture* f, const Recalling& policy) {
  const weir_plan_info plan = plan_of(f->model, policy.in_pool());
  for (uint32_t flags : {0, int{WEIR_SPILL_STRICT}}) {
    SmallStore small(f->model, policy, plan, 4, flags, 16 << 20);
    Session& s = *small.session;
    g.read_damaged_at = 5;
    s.prefill(0, kPrompt);
    uint32_t n_done = 0;
    const weir_status status = steps(s, flags != 0, n_done);
    assert_int_equal(s.stats().spill_errors, 1);
    if (policy.reads_ahead && s.stats().pages_dropped == 0) continue;
    assert_int_equal(s.stats().pages_dropped, 1);
    assert_int_equal(lost_pages(s), 1);
    assert_true(s.store().pages_in_file > 0);  // the others are there
    if (flags == 0) {
      assert_int_equal(status, WEIR_OK);
      continue;
    }
    assert_int_equal(status, WEIR_ERR_FORMAT);
    assert_error(weir_session_step(s, 30), WEIR_ERR_FORMAT, "damaged");
    assert_int_equal(s.try_prefill(0, 40), WEIR_ERR_FORMAT);
    weir_session* const handles[] = {s};
    const weir_token next = 30;
    assert_error(weir_step_many(handles, &next, 1), WEIR_ERR_FORMAT, "sessions[0]: ");
    assert_ok(weir_session_reset(s));
    s.prefill(0, kPrompt);
    assert_ok(weir_session_step(s, 30));
  }
}
void spill__damaged_blocks(void** state) {
  for (const Recalling& policy : kRecalling) check_damaged_blocks(static_cast<fixture*>(*state), policy);
}

// A prompt that reads a damaged page: with STRICT nothing of it stays, without it every token is read.
void check_damaged_blocks_in_a_prompt(const fixture* f, const Recalling& policy) {
  const weir_plan_info plan = plan_of(f->model, policy.in_pool());
  for (bool damaged : {false, true}) {
    for (uint32_t flags : {0, int{WEIR_SPILL_STRICT}}) {
      SmallStore small(f->model, policy, plan, 4, flags, 16 << 20);
      Session& s = *small.session;
      s.prefill(0, 300);
      assert_true(s.store().pages_in_file > 0);
      const std::vector<float> before = s.logits();
      const uint64_t n_prompt = s.stats().n_prompt;
      (damaged ? g.read_damaged_at : g.read_fails_at) = g.n_reads + 3;
      const weir_status status = s.try_prefill(300, 12);  // one chunk
      if (flags == 0) {
        assert_int_equal(status, WEIR_OK);
        assert_int_equal(s.stats().n_tokens, 312);
      } else {
        assert_int_equal(status, damaged ? WEIR_ERR_FORMAT : WEIR_ERR_IO);
        assert_int_equal(s.stats().n_tokens, 300);
        assert_int_equal(s.stats().n_prompt, n_prompt);
        assert_true(s.logits() == before);
      }
      assert_true(s.stats().pages_dropped > 0);
      assert_int_equal(s.stats().pages_dropped, lost_pages(s));
    }
  }
}
void spill__damaged_blocks_in_a_prompt(void** state) {
  for (const Recalling& policy : kRecalling) check_damaged_blocks_in_a_prompt(static_cast<fixture*>(*state), policy);
}

// A prompt, steps, and another prompt. Ends at the first call that fails, whose tokens are not appended.
weir_status converse(Session& s, bool is_strict) {
  const auto call = [&](auto&& f) -> weir_status {
    const uint32_t before = s.stats().n_tokens;
    const weir_status status = f();
    if (status == WEIR_OK && is_strict) assert_int_equal(s.stats().pages_dropped, 0);
    if (status == WEIR_OK) return status;
    // Chunks of a prompt stay only if the page before it, which they filled, is lost.
    if (s.stats().n_tokens != before)
      assert_true(before % 16 != 0 && static_cast<weir_session*>(s)->kv().pages_lost() > 0);
    return status;
  };
  weir_status status = call([&] { return s.try_prefill(0, 150); });
  for (uint32_t i = 0; status == WEIR_OK && i < 34; ++i) status = call([&] { return weir_session_step(s, token(i)); });
  return status != WEIR_OK ? status : call([&] { return s.try_prefill(300, 40); });
}

// Every read and every write of a conversation fails in turn, and every block that is read is damaged in turn.
void check_each_read_and_write_in_turn(const fixture* f, const Recalling& policy) {
  weir_model* model = nullptr;
  assert_ok(weir_model_open(f->runtime, WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf", nullptr, &model));
  const weir_plan_info plan = plan_of(model, policy.in_pool());
  int* const faults[] = {&g.write_fails_at, &g.read_fails_at, &g.read_damaged_at};
  for (uint32_t flags : {0, int{WEIR_SPILL_STRICT}}) {
    int n_writes = 0, n_reads = 0;
    {
      SmallStore small(model, policy, plan, 2, flags, 4 << 20);
      assert_int_equal(converse(*small.session, flags != 0), WEIR_OK);
      n_writes = g.n_writes, n_reads = g.n_reads;
      assert_true(n_writes > 10 && n_reads > 10);
    }
    for (int* fault : faults) {
      for (int n = 0; n < (fault == faults[0] ? n_writes : n_reads); ++n) {
        SmallStore small(model, policy, plan, 2, flags, 4 << 20);
        Session& s = *small.session;
        *fault = n;
        const weir_status status = converse(s, flags != 0);
        const weir_session_stats stats = s.stats();
        // Pages of tokens that were taken back were lost, too.
        assert_true(flags == 0 ? lost_pages(s) == stats.pages_dropped : lost_pages(s) <= stats.pages_dropped);
        assert_int_equal(stats.spill_errors, 1);
        if (flags == 0) {
          assert_int_equal(status, WEIR_OK);
          assert_int_equal(stats.n_tokens, 224);
          assert_true(fault == faults[0] || stats.pages_dropped > 0 || (policy.reads_ahead && fault == faults[2]));
          continue;
        }
        // After a write that fails perhaps nothing is missing: what is in the file is in the pool, and there is room.
        if ((fault != faults[0] && !(policy.reads_ahead && fault == faults[2])) || stats.pages_dropped > 0)
          assert_int_equal(status, fault == faults[2] ? WEIR_ERR_FORMAT : WEIR_ERR_IO);
        g = {};
        assert_ok(weir_session_reset(s));
        assert_ok(s.try_prefill(0, 40));
      }
    }
  }
  weir_model_close(model);
}
void spill__each_read_and_write_in_turn(void** state) {
  for (const Recalling& policy : kRecalling) check_each_read_and_write_in_turn(static_cast<fixture*>(*state), policy);
}

struct Refusing {
  uint64_t n_allocs = 0, bytes = 0, refused_at = UINT64_MAX;
};

weir_status refusing_alloc(void* user, const weir_alloc_info* info, void** out) {
  auto& r = *static_cast<Refusing*>(user);
  if (r.n_allocs++ == r.refused_at) return WEIR_ERR_OUT_OF_MEMORY;
  *out = ::operator new(info->bytes, std::align_val_t(info->alignment));
  r.bytes += info->bytes;
  return WEIR_OK;
}

weir_status refusing_free(void* user, const weir_alloc_info* info) {
  static_cast<Refusing*>(user)->bytes -= info->bytes;
  ::operator delete(info->ptr, std::align_val_t(info->alignment));
  return WEIR_OK;
}

int open_files() {
  int n = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) (void)entry, ++n;
  return n;
}

// Every allocation of a session with a spill file refused in turn: neither memory nor a file stays.
void check_each_allocation_refused(const Recalling& policy) {
  Refusing r;
  weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
  options.n_threads = 1;
  options.alloc = refusing_alloc;
  options.free = refusing_free;
  options.alloc_user = &r;
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  assert_ok(weir_runtime_create(&options, &runtime));
  assert_ok(weir_model_open(runtime, LONG_RUN_MODEL, nullptr, &model));
  const Folder folder;
  const std::string path = folder.file();
  weir_session_options o = policy.in_pool();
  o.spill_path = path.c_str();
  o.spill_file_bytes = 1 << 20;
  const uint64_t bytes = r.bytes;
  const int n_files = open_files();
  g = {};
  bool works = false;
  for (uint64_t n = 0; !works; ++n) {
    r.refused_at = r.n_allocs + n;
    weir_session* session = nullptr;
    const weir_status status = weir_session_create(model, &o, &session);
    works = status == WEIR_OK;
    assert_int_equal(open_files(), n_files + (works ? 1 : 0));
    if (!works) {
      assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY);
      assert_true(std::strstr(weir_last_error(), "could not be allocated") != nullptr || n == 0);
      assert_null(session);
      assert_int_equal(r.bytes, bytes);
    } else {
      assert_true(n >= 3);  // the object, its block, the store
    }
    weir_session_destroy(session);
    assert_int_equal(r.bytes, bytes);
    assert_int_equal(open_files(), n_files);
    assert_int_equal(access(path.c_str(), F_OK), -1);
  }
  weir_model_close(model);
  weir_runtime_destroy(runtime);
  assert_int_equal(r.bytes, 0);
}
void spill__each_allocation_refused(void**) {
  for (const Recalling& policy : kRecalling) check_each_allocation_refused(policy);
}

// No thread for the compression: the session is refused, its memory and its file are gone.
void check_threads_that_cannot_start(const fixture* f, const Recalling& policy) {
  const Folder folder;
  const std::string path = folder.file();
  weir_session_options o = policy.in_pool();
  o.spill_path = path.c_str();
  o.spill_flags |= WEIR_SPILL_NO_RAW;  // raw pages need no thread
  o.spill_file_bytes = 1 << 20;
  weir_memory_counters before = WEIR_MEMORY_COUNTERS_INIT, after = WEIR_MEMORY_COUNTERS_INIT;
  assert_ok(weir_runtime_memory(f->runtime, &before));
  g = {};
  g.thread_fails_at = 0;
  weir_session* session = nullptr;
  assert_error(weir_session_create(f->model, &o, &session), WEIR_ERR_OUT_OF_MEMORY, "worker 1 of 1");
  assert_null(session);
  assert_ok(weir_runtime_memory(f->runtime, &after));
  assert_int_equal(after.bytes, before.bytes);
  Session works(f->model, o);
}
void spill__threads_that_cannot_start(void** state) {
  for (const Recalling& policy : kRecalling) check_threads_that_cannot_start(static_cast<fixture*>(*state), policy);
}

// A limit of file sizes below the file (ulimit -f): the session is refused, and the process lives.
void check_limit_of_file_sizes(const fixture* f, const Recalling& policy) {
  const Folder folder;
  const std::string path = folder.file();
  weir_session_options o = policy.in_pool();
  o.spill_path = path.c_str();
  o.spill_file_bytes = 1 << 20;
  weir_memory_counters before = WEIR_MEMORY_COUNTERS_INIT, after = WEIR_MEMORY_COUNTERS_INIT;
  assert_ok(weir_runtime_memory(f->runtime, &before));
  g = {};
  rlimit had = {};
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &had), 0);
  const rlimit limit = {(1 << 20) - 1, had.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  weir_session* session = nullptr;
  const weir_status status = weir_session_create(f->model, &o, &session);
  setrlimit(RLIMIT_FSIZE, &had);
  assert_int_equal(status, WEIR_ERR_IO);
  assert_non_null(std::strstr(weir_last_error(), "ulimit -f"));
  assert_null(session);
  assert_ok(weir_runtime_memory(f->runtime, &after));
  assert_int_equal(after.bytes, before.bytes);
  Session works(f->model, o);
}
void spill__limit_of_file_sizes(void** state) {
  for (const Recalling& policy : kRecalling) check_limit_of_file_sizes(static_cast<fixture*>(*state), policy);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(spill__write_and_read_errors),      cmocka_unit_test(spill__damaged_blocks),
      cmocka_unit_test(spill__damaged_blocks_in_a_prompt), cmocka_unit_test(spill__each_read_and_write_in_turn),
      cmocka_unit_test(spill__each_allocation_refused),    cmocka_unit_test(spill__threads_that_cannot_start),
      cmocka_unit_test(spill__limit_of_file_sizes),
  };
  const CMUnitTest of_many_streams[] = {
      // which fill a store and a file
      cmocka_unit_test(spill__full_store_and_file),
  };
  return cmocka_run_group_tests_name("spill_faults", tests, open_long_run_fixture, close_fixture) +
         cmocka_run_group_tests_name("spill_faults, many streams", of_many_streams, open_fixture, close_fixture);
}
