// Every read and write of a spill file fails once, and every block that is read is damaged once, in every call that
// uses the store: with recall and without, over models with and without sliding windows. The call says what its header
// says, the conversation is what that says, and the session goes on: it steps, it is saved and restored, and after a
// reset it is new. Where copies are only kept, steps and prompts do what they do without a fault. A sample of the
// faults is tried, with WEIR_TEST_SEEDS=<n> as many of each kind in each call.
#include <errno.h>

#include <cmath>
#include <memory>

#include "api/handles.h"
#include "tests/api/api_test.h"
#include "tests/api/programs.h"
#include "tests/kv/cache_case.h"

// What the library asks of the system goes through here (tests/CMakeLists.txt wraps these functions).
namespace {
enum class Fault : uint8_t { kNone, kRead, kWrite, kDamage };
struct Faults {
  Fault fault = Fault::kNone;
  int n_reads = 0, n_writes = 0, at = -1;  // at: number of the call, from 0
} g_faults;
}  // namespace

extern "C" {
ssize_t __real_pread(int fd, void* data, size_t bytes, off_t offset);
ssize_t __real_pwrite(int fd, const void* data, size_t bytes, off_t offset);

ssize_t __wrap_pread(int fd, void* data, size_t bytes, off_t offset) {
  const bool now = g_faults.n_reads++ == g_faults.at;
  if (now && g_faults.fault == Fault::kRead) {
    errno = EIO;
    return -1;
  }
  const ssize_t got = __real_pread(fd, data, bytes, offset);
  if (now && g_faults.fault == Fault::kDamage && got > 0) static_cast<char*>(data)[got / 2] ^= 0x10;
  return got;
}
ssize_t __wrap_pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  if (g_faults.n_writes++ == g_faults.at && g_faults.fault == Fault::kWrite) {
    errno = ENOSPC;
    return -1;
  }
  return __real_pwrite(fd, data, bytes, offset);
}
}  // extern "C"

namespace {

using namespace programs;

struct Closer {
  void operator()(weir_session* session) const { weir_session_destroy(session); }
};
using Session = std::unique_ptr<weir_session, Closer>;

struct Policy {
  const char* policy;
  std::vector<std::pair<std::string, std::string>> settings;
  bool recalls;
};
const Policy kPolicies[] = {
    {"arkvale", {{"recall_from", "6"}}, true}, {"raas", {{"recall", "on"}}, true},
    {"psa", {{"recall", "on"}}, true},         {"psa", {{"recall", "on"}, {"pool", "unified"}}, true},
    {"tova", {{"skip_layers", "0"}}, false},   {"random", {{"pin_prompt", "false"}}, false},
};

enum class Call : uint8_t {
  kStep,
  kPrefill,
  kCancelledPrefill,
  kGenerate,
  kStepMany,
  kRewind,
  kLossyRewind,
  kSave,
  kRestore,
  kFork
};
constexpr const char* kCallNames[] = {"step",         "prefill", "cancelled prefill", "generate", "step_many", "rewind",
                                      "lossy rewind", "save",    "restore",           "fork"};

constexpr uint32_t kBefore = 205, kTarget = 86;

struct Fixture {
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  weir_model_info info;
};

struct Case {
  Fixture* f;
  const Policy* policy;
  Call call;
  bool is_strict;
  Fault fault = Fault::kNone;
  int at = -1;

  void require(bool holds, const char* what) const {
    if (holds) return;
    fail_msg("%s%s, %s, fault %d at %d: %s (%s)", policy->policy, is_strict ? " strict" : "",
             kCallNames[static_cast<size_t>(call)], static_cast<int>(fault), at, what, weir_last_error());
  }
};

// A store of one page a stream in memory, and the rest in the file.
Session create(const Case& c, Folder& folder) {
  Config config;
  config.policy = c.policy->policy;
  config.settings = c.policy->settings;
  config.spill_path = folder.file("spill");
  weir_session_options& o = config.options;
  const uint64_t page = uint64_t{16} * c.f->info.head_dim * 4,
                 of_all = page * c.f->info.n_layers * c.f->info.n_kv_heads;
  o.device = WEIR_DEVICE_CPU;
  o.context_tokens = 400;
  o.batch_tokens = 12;
  o.budget_tokens = 128;
  o.spill_budget_bytes = of_all + page;
  o.spill_flags = WEIR_SPILL_NO_RAW | (c.is_strict ? uint32_t{WEIR_SPILL_STRICT} : 0u);
  o.spill_file_bytes = of_all * 40;
  weir_session* session = nullptr;
  assert_ok(config.create(c.f->model, &session));
  return Session(session);
}

// The conversation before the call.
void begin(const Case& c, weir_session* session) {
  c.require(run(session, {Kind::kPrefill, 170, 7, 0, 0}).status == WEIR_OK, "the prompt is refused");
  c.require(run(session, {Kind::kSteps, kBefore - 170, 500, 0, 0}).status == WEIR_OK, "steps are refused");
}

Outcome step_many(weir_session* session, weir_session* other) {
  Outcome out;
  weir_session* const both[] = {session, other};
  for (uint32_t i = 0; i < 20 && out.status == WEIR_OK; ++i) {
    const weir_token tokens[] = {token(90, i), token(91, i)};
    out.status = weir_step_many(both, tokens, 2);
  }
  out.n_tokens = stats_of(session).n_tokens;
  out.logits = logits_of(session);
  return out;
}

// Makes the call; `other` is a second session, and `file` what is restored or was saved. A fork takes the place of
// `session`'s other.
Outcome make_call(const Case& c, weir_session* session, Session& other, Bytes& file) {
  Outcome out;
  switch (c.call) {
    case Call::kStep:
      return run(session, {Kind::kSteps, 30, 90, 0, 0});
    case Call::kPrefill:
      return run(session, {Kind::kPrefill, 60, 90, 0, 0});
    case Call::kCancelledPrefill:
      return run(session, {Kind::kCancelledPrefill, 60, 92, 0, 0});  // after two chunks
    case Call::kGenerate:
      return run(session, {Kind::kGenerate, 30, 90, 0, 0});
    case Call::kStepMany:
      return step_many(session, other.get());
    case Call::kRewind:
      return run(session, {Kind::kRewind, 0, 0, kTarget, 0});
    case Call::kLossyRewind:
      return run(session, {Kind::kLossyRewind, 0, 0, kTarget, 0});
    case Call::kSave:
      out.status = save(session, file);
      break;
    case Call::kRestore:
      out.status = restore(session, file);
      break;
    case Call::kFork: {
      weir_session* fork = nullptr;
      out.status = weir_session_fork(session, &fork);
      c.require((fork != nullptr) == (out.status == WEIR_OK), "a handle without a fork");
      other.reset(fork);
      if (fork != nullptr) (void)run(fork, {Kind::kLossyRewind, 0, 0, kTarget, 0});
      if (fork != nullptr) (void)run(fork, {Kind::kPrefill, 60, 90, 0, 0});
      break;
    }
  }
  out.n_tokens = stats_of(session).n_tokens;
  out.logits = logits_of(session);
  return out;
}

// What the header says of a call that met a fault. `whole` is the outcome without, `before` what was there.
void check_outcome(const Case& c, const Outcome& out, const Outcome& whole, const Outcome& before) {
  const bool is_same = out.n_tokens == before.n_tokens && out.logits == before.logits;
  const uint32_t boundary = kTarget / 16 * 16;
  switch (c.call) {
    case Call::kStep:
    case Call::kPrefill:
    case Call::kGenerate:
    case Call::kStepMany:
      if (!c.is_strict) {
        c.require(out.status == whole.status && out.n_tokens == whole.n_tokens, "a page that is lost stops a call");
      } else {
        c.require(out.status == WEIR_OK || out.status == WEIR_ERR_IO || out.status == WEIR_ERR_FORMAT,
                  "another status");
        if (out.status == WEIR_OK) c.require(out.n_tokens == whole.n_tokens, "tokens are missing");
        c.require(out.n_tokens <= whole.n_tokens, "more tokens");
      }
      if (!c.policy->recalls) c.require(out == whole, "a fault of the store shows in a step");
      break;
    case Call::kCancelledPrefill:
      if (out.status == WEIR_ERR_IO || out.status == WEIR_ERR_FORMAT) {
        c.require(out.n_tokens <= before.n_tokens || c.is_strict, "an error with more tokens");
      } else {
        c.require(out.status == WEIR_ERR_CANCELLED, "another status");
        c.require(is_same || (out.n_tokens > before.n_tokens && out.logits.empty()), "neither as before nor with more");
      }
      break;
    case Call::kRewind:
      if (out.status == WEIR_ERR_NOT_FOUND) {
        c.require(is_same, "a refusal that changed something");
      } else if (out.status == WEIR_ERR_IO) {
        c.require(out.n_tokens == kTarget || out.n_tokens == boundary, "a failure with other tokens");
      } else {
        c.require(out.status == WEIR_OK && out.n_tokens == kTarget, "another status");
      }
      break;
    case Call::kLossyRewind:
      if (c.is_strict && out.status != WEIR_OK) {
        c.require(out.n_tokens <= kTarget, "a failure with more tokens");
      } else {
        c.require(out.status == WEIR_OK && out.n_tokens == kTarget, "a lost page stops a lossy rewind");
      }
      break;
    case Call::kSave:
      c.require(out.status == WEIR_OK && is_same, "a lost page stops saving");
      break;
    case Call::kRestore:
      c.require(c.is_strict || out.status == WEIR_OK, "a fault stops a restore");
      c.require(out.status != WEIR_OK || out.n_tokens == whole.n_tokens, "tokens are missing");
      break;
    case Call::kFork:
      c.require(is_same && (out.status == WEIR_OK || out.status == WEIR_ERR_IO), "a fork changes its session");
      break;
  }
}

// The invariants of the tables; those of one pool of all streams differ.
void check(const weir_session* session) {
  if (!session->kv().shape().one_pool) weir::test::check(session->kv());
}

// The session is sound, can be saved and restored, goes on, and can begin anew.
void check_afterwards(const Case& c, weir_session* session, Folder& folder, const Outcome& first) {
  check(session);
  const weir_session_stats stats = stats_of(session);
  c.require(stats.pages_cold < (1u << 20), "counts pages below none");
  Bytes file;
  c.require(save(session, file) == WEIR_OK, "cannot be saved afterwards");
  const Session fresh = create(c, folder);
  const weir_status restored = restore(fresh.get(), file);
  c.require(restored == WEIR_OK || (c.is_strict && restored == WEIR_ERR_BUDGET), "cannot be restored afterwards");
  const Outcome later = run(session, {Kind::kSteps, 34, 700, 0, 0});
  c.require(later.status == WEIR_OK || c.is_strict, "does not go on");
  for (float x : later.logits) c.require(std::isfinite(x), "goes on with no numbers");
  check(session);
  (void)run(session, {Kind::kLossyRewind, 0, 0, std::min(35u, later.n_tokens), 0});
  check(session);
  c.require(weir_session_reset(session) == WEIR_OK, "cannot be reset");
  c.require(stats_of(session).spill_stored_bytes == 0 && stats_of(session).pages_cold == 0, "a reset leaves pages");
  const Outcome again = run(session, {Kind::kPrefill, 100, 7, 0, 0});
  // A strict store that has no file any more has no room.
  const bool has_no_room = c.is_strict && again.status == WEIR_ERR_BUDGET && session->store().file_given_up();
  c.require(again == first || has_no_room, "after a reset it is another conversation");
}

int n_tried() {
  const char* n = std::getenv("WEIR_TEST_SEEDS");
  return n != nullptr ? std::atoi(n) : 3;
}

// One call with one fault; without, the number of reads and writes that the call makes.
Outcome try_one(const Case& c, const Outcome* whole, const Outcome& first, int& n_reads, int& n_writes) {
  g_faults = {};
  Folder folder;
  Session session = create(c, folder), other;
  Bytes file;
  if (c.call == Call::kStepMany || c.call == Call::kRestore) {
    other = create(c, folder);
    begin(c, other.get());
    c.require(save(other.get(), file) == WEIR_OK, "cannot be saved");
    if (c.call == Call::kRestore) c.require(run(session.get(), {Kind::kPrefill, 120, 60, 0, 0}).status == WEIR_OK, "");
  }
  if (c.call != Call::kRestore) begin(c, session.get());
  Outcome before;
  before.n_tokens = stats_of(session.get()).n_tokens;
  before.logits = logits_of(session.get());
  g_faults = {c.fault, 0, 0, c.at};
  const Outcome out = make_call(c, session.get(), other, file);
  n_reads = g_faults.n_reads;
  n_writes = g_faults.n_writes;
  g_faults = {};
  if (whole == nullptr) return out;
  check_outcome(c, out, *whole, before);
  if (other != nullptr) check(other.get());
  check_afterwards(c, session.get(), folder, first);
  return out;
}

void try_all(Fixture& f, bool is_strict) {
  uint32_t n_faults = 0;
  for (const Policy& policy : kPolicies) {
    if (is_strict && !policy.recalls) continue;
    for (uint32_t call = 0; call < std::size(kCallNames); ++call) {
      Case c = {&f, &policy, static_cast<Call>(call), is_strict};
      Folder folder;
      const Outcome first = run(create(c, folder).get(), {Kind::kPrefill, 100, 7, 0, 0});
      int n_reads = 0, n_writes = 0;
      const Outcome whole = try_one(c, nullptr, first, n_reads, n_writes);
      for (Fault fault : {Fault::kRead, Fault::kWrite, Fault::kDamage}) {
        const int n = fault == Fault::kWrite ? n_writes : n_reads, step = std::max(1, n / n_tried());
        for (int at = n % step; at < n; at += step) {
          c.fault = fault;
          c.at = at;
          int ignored = 0;
          (void)try_one(c, &whole, first, ignored, ignored);
          ++n_faults;
        }
      }
    }
  }
  assert_true(n_faults > 100);
}

template <const char* kFile>
void try_model(bool is_strict) {
  Fixture f;
  weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
  options.n_threads = 1;
  assert_ok(weir_runtime_create(&options, &f.runtime));
  assert_ok(weir_model_open(f.runtime, kFile, nullptr, &f.model));
  f.info = WEIR_MODEL_INFO_INIT;
  assert_ok(weir_model_get_info(f.model, &f.info));
  try_all(f, is_strict);
  weir_model_close(f.model);
  weir_runtime_destroy(f.runtime);
}

constexpr char kPlain[] = WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf";
constexpr char kWindows[] = WEIR_SOURCE_DIR "/tests/golden/models/gemma3_q8_0.gguf";

void store_faults__in_every_call(void**) { try_model<kPlain>(false); }
void store_faults__in_every_call_of_a_strict_store(void**) { try_model<kPlain>(true); }
void store_faults__under_windows(void**) { try_model<kWindows>(false); }
void store_faults__under_windows_of_a_strict_store(void**) { try_model<kWindows>(true); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(store_faults__in_every_call),
      cmocka_unit_test(store_faults__in_every_call_of_a_strict_store),
      cmocka_unit_test(store_faults__under_windows),
      cmocka_unit_test(store_faults__under_windows_of_a_strict_store),
  };
  return cmocka_run_group_tests_name("store_faults", tests, nullptr, nullptr);
}
