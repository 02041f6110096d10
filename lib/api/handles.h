// What the opaque handles are, and what every shim does: check structs, catch exceptions.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>

#include "core/call.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "core/thread_pool.h"
#include "models/model.h"
#include "runtime/session.h"
#include "text/constraint/shared_constraint.h"
#include "text/tokenizer.h"
#include "weir/weir.h"

struct weir_runtime {
  weir_runtime(const weir::AllocatorHooks& hooks, const weir::Log& log_lines)
      : memory(hooks), pool(&memory), log(log_lines) {}
  std::atomic<uint32_t> n_refs{1};
  weir::HostMemory memory;
  weir::ThreadPool pool;
  weir::Log log;
  weir::DeviceHost devices;
};

struct weir_model {
  explicit weir_model(weir_runtime* owner)
      : runtime(owner), model(&owner->memory), device_weights(&owner->memory), token_trie(&owner->memory) {}
  std::atomic<uint32_t> n_refs{1};
  weir_runtime* runtime;  // referenced
  weir::Model model;
  weir::DeviceWeights device_weights;
  // The texts of its tokens for constraints, built when the first one is created.
  std::mutex token_trie_lock;
  weir::constraint::TokenTrie token_trie;
  bool has_token_trie = false;
};

struct weir_constraint final : weir::constraint::SharedConstraint {
  weir_constraint(weir_model* owner, Destroy destroy)
      : SharedConstraint(owner->token_trie, &owner->runtime->memory, destroy), model(owner) {}
  weir_model* model;  // referenced
};

// The session itself; its owner() is the weir_model that it references. No members, so that the plan's session_bytes
// are the handle's size.
struct weir_session final : weir::Session {
  explicit weir_session(weir_model* owner)
      : Session(owner->runtime->memory, owner->runtime->pool, owner->runtime->devices, owner->device_weights, owner) {}
};

struct weir_detokenizer {
  explicit weir_detokenizer(weir_model* owner) : model(owner) {}
  weir_model* model;  // referenced
  weir::Detokenizer text;
};

static_assert(sizeof(weir_session) == sizeof(weir::Session), "weir_plan_info.session_bytes is the handle's size");
static_assert(sizeof(size_t) == 8, "sizes of sessions need 64 bits");

namespace weir::api {

void retain(weir_runtime* runtime);
void release(weir_runtime* runtime);
void retain(weir_model* model);
void release(weir_model* model);

// No struct of any version is longer; a larger size means that it was never set.
inline constexpr uint32_t kMaxStructSize = 4096;

inline Status check_struct_size(uint32_t size, const char* name) {
  if (size >= 8 && size <= kMaxStructSize) return {};
  return fail(WEIR_ERR_INVALID_ARG, "%s: struct_size is %u; set it to sizeof the struct", name, size);
}

// Copies what the caller's struct has into `out`, whose other fields are zero. `in` may be null: all defaults.
template <class T>
Status read_struct(const T* in, const char* name, T& out) {
  std::memset(&out, 0, sizeof(out));
  out.struct_size = sizeof(T);
  if (in == nullptr) return {};
  const uint32_t size = in->struct_size;
  WEIR_TRY(check_struct_size(size, name));
  const auto* bytes = reinterpret_cast<const unsigned char*>(in);
  for (uint32_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return fail(WEIR_ERR_UNSUPPORTED, "%s: byte %u of %u is set, but this version knows only %zu bytes", name, i,
                  size, sizeof(T));
    }
  }
  std::memcpy(&out, in, std::min<size_t>(size, sizeof(T)));
  out.struct_size = sizeof(T);
  return {};
}

// Checks an info struct that the library fills.
template <class T>
Status check_out_struct(const T* out, const char* name) {
  if (out == nullptr) return fail(WEIR_ERR_INVALID_ARG, "%s is NULL", name);
  return check_struct_size(out->struct_size, name);
}

// Fills as much of the caller's struct as it has room for; its struct_size stays.
template <class T>
void write_struct(const T& value, T* out) {
  const uint32_t size = out->struct_size;
  std::memcpy(out, &value, std::min<size_t>(size, sizeof(T)));
  out->struct_size = size;
}

// The body of every shim: a call of its own (core/call.h), and no exception leaves the library.
template <class F>
weir_status guard(F&& body) noexcept {
  const Call call;
  Status status;
  try {
    status = body();
  } catch (const std::bad_alloc&) {
    const Refusal refusal = HostMemory::thread_refusal();
    status = fail(WEIR_ERR_OUT_OF_MEMORY, "an allocation of %llu bytes was refused%s",
                  static_cast<unsigned long long>(refusal.bytes), refusal.why);
  } catch (...) {
    status = fail(WEIR_ERR_INTERNAL, "an unexpected exception; please report it");
  }
  if (!status.ok()) call.publish_error();
  return status.code();
}

#define WEIR_API_REQUIRE(pointer) \
  if ((pointer) == nullptr) return ::weir::fail(WEIR_ERR_INVALID_ARG, "%s: " #pointer " is NULL", __func__).code()

}  // namespace weir::api
