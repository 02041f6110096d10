// Where a session computes: on the host (machine_host.h), on a device (machine_device.h), or with keys, values and
// attention on the host and all else on a device (machine_split.h). A session is a conversation and one machine. What
// memory there is, where it lies, and which copy of tables and logits is current, only the machine knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/cancel.h"
#include "core/memory.h"
#include "core/status.h"
#include "core/thread_pool.h"
#include "kv/page_copies.h"
#include "kv/spill_store.h"
#include "models/decoder.h"
#include "policy/policy.h"
#include "runtime/device_host.h"
#include "runtime/logprobs.h"
#include "runtime/page_tables.h"
#include "runtime/session_parts.h"
#include "runtime/session_setup.h"
#include "runtime/slot_memory.h"
#include "runtime/token_mask.h"

namespace weir {

struct SessionPools;

// What of a session its machine computes with; all of it outlives the machine.
struct MachineWork {
  const SessionSetup& setup;
  const Policy& policy;
  HostMemory& memory;
  ThreadPool& pool;
  DeviceHost& devices;
  DeviceWeights& weights;
  weir_plan_info& plan;
  PageTables& tables;
  SlotMemory& slot_memory;
  SpillStore& store;
  PageCopies& copies;
  Step& step;
  SessionParts& parts;
  const Cancel& cancel;
  bool& has_logits;  // of the last token
};

// A draw from the logits of the last token.
struct DrawRequest {
  Sampler& sampler;
  TokenMask* mask;  // null: every token may be drawn
  uint32_t n_top;   // how many of the best tokens somebody wants to know
};

class Machine {
 public:
  enum class Kind { kHost, kSplit, kDevice };
  // Builds the one that the setup asks for in `place` [kBytes].
  static constexpr size_t kBytes = 1792, kAlignment = 16;
  static Machine* make(void* place, const MachineWork& work);

  explicit Machine(const MachineWork& work) : w_(work) {}
  virtual ~Machine();  // gives all memory back
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Once: takes the memory that the plan says, and lays out in it what `work` names. `other`: whose copy the store will
  // be; null: an empty one.
  virtual Status create(SpillStore* other) = 0;
  // Goes on as another one of the same setup, whose tables have been copied.
  virtual Status copy_from(Machine& other) = 0;
  virtual Kind kind() const = 0;
  const DeviceModule* module() const { return module_; }  // null: all of it runs on the processor
  uint64_t device_bytes() const { return device_bytes_; }

  virtual PoolAccess* pool_access() { return nullptr; }  // null: pages are in host memory
  // Makes the host's page tables current.
  virtual Status fetch_tables() { return {}; }
  // After a conversation was restored.
  virtual Status end_restore() { return {}; }
  // After tokens were taken from the end of the tables; and the same in a prompt that failed, whose error stays.
  virtual Status end_cut() { return {}; }
  virtual void end_failed_prompt() {}

  // Before pages that windows have passed leave: adds up what must be known of them, where they are.
  virtual Status sum_what_leaves() { return {}; }
  // A chunk of a prompt of which n_left tokens follow: makes room for it, and appends it or leaves all as it was.
  virtual Status run_chunk(const weir_token* tokens, uint32_t n_tok, uint32_t n_left) = 0;
  virtual uint32_t max_rows() const { return UINT32_MAX; }  // that the next chunk should have
  // A decode step, which appends the token or leaves all as it was.
  virtual Status step(weir_token token) = 0;
  // Strict stores: room for the copies of the pages that n_tok more tokens fill.
  virtual Status prepare_copies(uint32_t n_tok);

  // Makes the logits of the last token current in Step::b.
  virtual Status fetch_logits() { return {}; }
  // They are no longer those of the last token.
  virtual void forget_logits() {}
  virtual Status draw(const DrawRequest& request, weir_token& token);
  // How probable a token is that was just drawn.
  virtual Status find_probs(weir_token token, uint32_t n_top, LogProbs& probs);

  // Wipes what may be left of the conversation, or at the session's end all memory.
  virtual void wipe_conversation() = 0;
  virtual void wipe_all() = 0;

  // Pages and digests, for whoever saves and restores them: where they are, and room for pieces of them on the host;
  // none where they are in host memory.
  virtual KvCache& page_cache() { return *w_.tables.change(); }
  virtual std::span<uint16_t> piece_room() const { return {}; }
  virtual Status copy_out(void*, const void*, uint64_t) const { return {}; }
  virtual Status copy_in(void*, const void*, uint64_t) const { return {}; }

  // For benchmarks. Noise instead of n tokens that are reserved; after these were committed; and at the end of it all.
  virtual Status begin_noise() { return {}; }
  virtual Status add_noise(uint32_t n_tok, uint64_t& random) = 0;
  virtual void seal_noise(uint32_t n_tok) = 0;
  virtual Status end_noise() = 0;
  // Seconds of the parts of one step (kPart*). The token may be appended more than once.
  virtual Status profile(weir_token token, double* seconds);

 protected:
  // The memory that a plan has, as far as this machine has it.
  Status take_block(uint64_t bytes);
  Status take_staging();
  Status create_store(SpillStore* other);
  // After a commit: the tokens from position `first` on are complete.
  void seal(uint32_t first) { w_.parts.list.seal(first, w_.tables.kv().n_tokens()); }

  const MachineWork w_;
  const DeviceModule* module_ = nullptr;
  void* block_ = nullptr;  // [block_bytes_] on the host
  uint64_t block_bytes_ = 0;
  // Its part that steps and prompts compute with, logits, sampler and tokens.
  void* private_ = nullptr;
  uint64_t private_bytes_ = 0;
  void* device_block_ = nullptr;  // [device_bytes_] on the device
  uint64_t device_bytes_ = 0;
  void* staging_block_ = nullptr;  // [plan.staging_bytes] of the host, from which the device copies
};

}  // namespace weir
