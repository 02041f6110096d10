// Fuzz target: any bytes as a program of the API, tests/api/programs.h. It has a session under any policy and a twin
// that gets the same calls and must say the same, byte for byte. In between the twin is replaced: by a fork, by a new
// session that the saved conversation is restored into, by a new session after a reset. Allocations are refused, and
// reads and writes of the spill file fail; from then on the session has no twin, but must go on. No call says
// WEIR_ERR_INTERNAL, and at the end no memory is left.
#include <errno.h>

#include <cstddef>
#include <cstdint>
#include <new>

#include "tests/api/programs.h"

namespace {

using namespace programs;

void require(bool promise) {
  if (!promise) __builtin_trap();
}

// Calls of the system that fail once, in so many calls; 0: none does. cmake/WeirFuzz.cmake wraps these functions.
uint32_t g_read_fails_in = 0, g_write_fails_in = 0, g_alloc_fails_in = 0;
bool g_has_failed = false;

bool is_due(uint32_t& in) {
  if (in == 0 || --in != 0) return false;
  g_has_failed = true;
  return true;
}

weir_status refusing_alloc(void*, const weir_alloc_info* info, void** out) {
  if (is_due(g_alloc_fails_in)) return WEIR_ERR_OUT_OF_MEMORY;
  *out = ::operator new(info->bytes, std::align_val_t(info->alignment));
  return WEIR_OK;
}

weir_status plain_free(void*, const weir_alloc_info* info) {
  ::operator delete(info->ptr, std::align_val_t(info->alignment));
  return WEIR_OK;
}

}  // namespace

extern "C" {
ssize_t __real_pread(int fd, void* data, size_t bytes, off_t offset);
ssize_t __real_pwrite(int fd, const void* data, size_t bytes, off_t offset);

ssize_t __wrap_pread(int fd, void* data, size_t bytes, off_t offset) {
  if (!is_due(g_read_fails_in)) return __real_pread(fd, data, bytes, offset);
  errno = EIO;
  return -1;
}
ssize_t __wrap_pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  if (!is_due(g_write_fails_in)) return __real_pwrite(fd, data, bytes, offset);
  errno = ENOSPC;
  return -1;
}
}  // extern "C"

namespace {

constexpr uint32_t kMaxOps = 24;

struct Models {
  weir_runtime* runtime = nullptr;
  weir_model* models[std::size(kModels)] = {};
  weir_model_info info[std::size(kModels)];

  Models() {
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    options.n_threads = 1;
    options.alloc = refusing_alloc;
    options.free = plain_free;
    require(weir_runtime_create(&options, &runtime) == WEIR_OK);
    for (size_t i = 0; i < std::size(kModels); ++i) {
      require(weir_model_open(runtime, kModels[i], nullptr, &models[i]) == WEIR_OK);
      info[i] = WEIR_MODEL_INFO_INIT;
      require(weir_model_get_info(models[i], &info[i]) == WEIR_OK);
    }
  }
  uint64_t bytes() const {
    weir_memory_counters counters = WEIR_MEMORY_COUNTERS_INIT;
    require(weir_runtime_memory(runtime, &counters) == WEIR_OK);
    return counters.bytes;
  }
};

class Program {
 public:
  Program(Models& models, Choices& choices) : choices_(choices) {
    const uint32_t which = choices.below(std::size(kModels));
    model_ = models.models[which];
    config_ = choose_config(choices, models.info[which], choices.of(kPolicies), folder_);
  }
  ~Program() {
    weir_session_destroy(session_);
    weir_session_destroy(twin_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void run_all() {
    if (!begin_anew()) return;  // no session has such options
    for (uint32_t i = 0; i < kMaxOps && !choices_.are_over(); ++i) {
      run_one();
      if (session_ == nullptr) return;
      const weir_session_stats stats = stats_of(session_);
      require(stats.pages_cold < (1u << 24) && stats.n_tokens <= config_.options.context_tokens);
    }
  }

 private:
  void run_one() {
    switch (choices_.below(12)) {
      case 0:
        return fork();
      case 1:
        return save_and_restore();
      case 2:
        return reset();
      case 3:
        return fail_on_disk();
      case 4:
        return cancel();
      default:
        return call(choose_op(choices_, stats_of(session_).n_tokens));
    }
  }

  bool begin_anew() {
    weir_session_destroy(session_);
    weir_session_destroy(twin_);
    session_ = twin_ = nullptr;
    g_alloc_fails_in = choices_.below(8);
    g_has_failed = false;
    weir_status status = config_.create(model_, &session_);
    require((session_ != nullptr) == (status == WEIR_OK) && status != WEIR_ERR_INTERNAL);
    require(!g_has_failed || status == WEIR_ERR_OUT_OF_MEMORY);
    g_alloc_fails_in = 0;
    if (session_ == nullptr && config_.create(model_, &session_) != WEIR_OK) return false;
    require(config_.create(model_, &twin_) == WEIR_OK);
    return true;
  }

  void call(const Op& op) {
    const Outcome out = run(session_, op);
    require(out.status != WEIR_ERR_INTERNAL);
    if (twin_ != nullptr) require(out == run(twin_, op));
  }

  // A pending cancel ends the next call, or part of it.
  void cancel() {
    const Op op = choose_op(choices_, stats_of(session_).n_tokens);
    weir_session_cancel(session_);
    if (twin_ != nullptr) weir_session_cancel(twin_);
    call(op);
    weir_session_clear_cancel(session_);
    if (twin_ != nullptr) weir_session_clear_cancel(twin_);
  }

  void fork() {
    weir_session* fork = nullptr;
    g_alloc_fails_in = choices_.below(8);
    g_has_failed = false;
    const weir_status status = weir_session_fork(session_, &fork);
    g_alloc_fails_in = 0;
    require((fork != nullptr) == (status == WEIR_OK));
    require(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY || twin_ == nullptr);
    if (fork == nullptr) return;
    // Which of the two goes on must make no difference, nor that the other ends.
    const bool swaps = choices_.one_in(2);
    if (twin_ == nullptr) {
      weir_session_destroy(swaps ? session_ : fork);
      session_ = swaps ? fork : session_;
      return;
    }
    weir_session_destroy(twin_);
    twin_ = swaps ? session_ : fork;
    session_ = swaps ? fork : session_;
  }

  // What can be saved can be restored: over any conversation as into a new session.
  void save_and_restore() {
    Bytes file, same;
    require(save(session_, file) == WEIR_OK);
    if (twin_ != nullptr) require(save(twin_, same) == WEIR_OK && file == same);
    if (choices_.one_in(2)) saved_ = file;  // or what was saved before
    if (saved_.empty()) return;
    const bool is_strict = (config_.options.spill_flags & WEIR_SPILL_STRICT) != 0;
    const weir_status status = restore(session_, saved_);
    require(status == WEIR_OK || (twin_ == nullptr && is_strict && status == WEIR_ERR_BUDGET));
    if (twin_ == nullptr) return;
    weir_session_destroy(twin_);
    twin_ = nullptr;
    require(config_.create(model_, &twin_) == WEIR_OK);
    require(restore(twin_, saved_) == WEIR_OK);
    require(save(session_, file) == WEIR_OK && save(twin_, same) == WEIR_OK && file == same && file == saved_);
  }

  // Options of sampling stay, so the twin gets them.
  void reset() {
    require(weir_session_reset(session_) == WEIR_OK);
    const weir_session_stats stats = stats_of(session_);
    require(stats.n_tokens == 0 && stats.pages_cold == 0 && stats.pages_resident == 0 && stats.spill_stored_bytes == 0);
    if (twin_ == nullptr) {
      (void)begin_anew();  // without the file that has failed
      return;
    }
    weir_session_destroy(twin_);
    twin_ = nullptr;
    require(config_.create(model_, &twin_) == WEIR_OK);
    const Op sampling = {Kind::kSample, 1, choices_.below(64), 0, 0};
    call(sampling);
  }

  void fail_on_disk() {
    if (config_.options.spill_file_bytes == 0) return;
    uint32_t& fails_in = choices_.one_in(2) ? g_read_fails_in : g_write_fails_in;
    const Op op = choose_op(choices_, stats_of(session_).n_tokens);
    g_has_failed = false;
    fails_in = choices_.from(1, 40);
    const Outcome out = run(session_, op);
    require(out.status != WEIR_ERR_INTERNAL);
    fails_in = 0;
    if (!g_has_failed) {
      if (twin_ != nullptr) require(out == run(twin_, op));
      return;
    }
    weir_session_destroy(twin_);
    twin_ = nullptr;
  }

  Choices& choices_;
  Folder folder_;
  Config config_;
  weir_model* model_ = nullptr;
  weir_session *session_ = nullptr, *twin_ = nullptr;  // twin_ null: the session's disk has failed
  Bytes saved_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Models& models = *new Models;  // for the whole run
  const uint64_t bytes = models.bytes();
  Choices choices(data, size);
  if (size != 0) Program(models, choices).run_all();
  g_read_fails_in = g_write_fails_in = g_alloc_fails_in = 0;
  require(models.bytes() == bytes);
  return 0;
}
