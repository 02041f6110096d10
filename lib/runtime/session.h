// A session: one conversation over a model, in memory that is planned to the byte and taken once. The API shims call
// this; it calls the decoder.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/cancel.h"
#include "core/clock.h"
#include "core/memory.h"
#include "core/status.h"
#include "kv/page_copies.h"
#include "kv/spill_store.h"
#include "models/decoder.h"
#include "models/model.h"
#include "policy/policy.h"
#include "runtime/answering.h"
#include "runtime/call_outs.h"
#include "runtime/machine.h"
#include "runtime/page_tables.h"
#include "runtime/session_counters.h"
#include "runtime/session_parts.h"
#include "runtime/session_setup.h"
#include "runtime/session_trace.h"
#include "runtime/token_mask.h"
#include "text/tokenizer.h"
#include "weir/experimental.h"
#include "weir/save.h"

namespace weir {

class Session {
 public:
  // `owner` is what the session keeps alive; it only stores the pointer.
  Session(HostMemory& parent, ThreadPool& pool, DeviceHost& devices, DeviceWeights& device_weights, void* owner)
      : memory_(parent.hooks(), &parent),
        pool_(pool),
        devices_(devices),
        device_weights_(device_weights),
        parent_(parent),
        owner_(owner),
        store_(&memory_, &slot_memory_, &parent) {}
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  // Before it is created: parts that it has besides, behind its own. For tests; plan_session() measures such parts.
  void add_parts(std::span<Part* const> parts) { more_parts_ = parts; }
  Status create(const Model& model, const weir_session_options& options);
  // Instead: a session with the conversation of another one of the same model (fork.cpp).
  Status create_fork(Session& parent);

  Status reset();
  Status prefill(const weir_token* tokens, uint64_t n_tokens, weir_progress_fn progress, void* user);
  Status step(weir_token token);
  Status logits(const float*& out, uint32_t& n);
  Status tokens(const weir_token*& out, uint32_t& n);
  Status set_sampling(const weir_sampling_options& options);
  Status sample(weir_token& token);
  // What may be drawn (token_mask.cpp). The constraint is held from then on.
  Status set_token_mask(weir_mask_fn fn, void* user);
  Status set_constraint(constraint::SharedConstraint* constraint);
  Status generate(const weir_generate_options& options, weir_generate_result& result);
  // The same answer, one event a call.
  Status begin_answer(const weir_generate_options& options);
  Status next_event(weir_event& event);
  // The latest answer as a message, whose texts last until the next call.
  Status answer(weir_chat_message& message, bool& is_malformed);
  // Any thread: the next token begins the end of the thought that is open.
  void finish_thinking() { answering_.finish_thinking(); }
  // Makes the conversation these tokens (prompt_tokens.cpp).
  Status prompt_tokens(std::span<const weir_token> wanted, const weir_prompt_options& options,
                       weir_prompt_report& report);
  // Goes back to the first n_tokens of the conversation (rewind.cpp). flags: WEIR_REWIND_*.
  Status rewind(uint32_t n_tokens, uint32_t flags);
  // The conversation to a stream of bytes, and back (session_save.cpp).
  Status save(weir_write_fn fn, void* user);
  Status restore(weir_read_fn fn, void* user);
  // Pages that hold any of the positions [first, end) stay and are attended, or may leave again.
  Status pin(uint32_t first, uint32_t end);
  Status unpin(uint32_t first, uint32_t end);
  Status set_trace(weir_trace_fn fn, void* user);
  // For each page of the conversation: in how many streams it is where.
  Status page_states(weir_page_state* out, uint32_t capacity, uint32_t& n_pages);
  // Pages that left since the last call, at most `capacity`; n_lost: how many the ring had not kept.
  Status page_events(PageEvent* out, uint32_t capacity, uint32_t& n_events, uint64_t& n_lost);

  // Any thread. A cancel stays until a call has ended because of it, or it is cleared.
  Cancel& cancel() { return cancel_; }
  Status set_cancel(SharedCancel* cancel);  // that its calls look at, too
  void get_stats(weir_session_stats& stats) const;
  void get_memory(weir_memory_info& info) const;

  void* owner() const { return owner_; }
  const DeviceModule* device_module() const { return machine_->module(); }  // null: all of it runs on the processor
  const weir_plan_info& plan_info() const { return plan_; }
  // Tests look at pages through this; one thread at a time. After a step on a device, host_tables() first.
  const KvCache& kv() const { return kv_; }
  const SpillStore& store() const { return store_; }  // for tests
  // Makes the host's page tables current after steps that a device did alone.
  Status host_tables() { return machine_->fetch_tables(); }

  // What several sessions do at once (step_many.cpp), and what benchmarks do (bench.cpp).
  struct Together;
  struct Benchmark;

 private:
  friend class LogitsPart;
  friend class TextPart;
  friend class CopiesPart;
  class Entry;  // one thread at a time, allocation counting
  class Lock;   // one thread at a time, without the counting
  struct Pins;
  struct PromptPlan;
  class Prompt;    // what a prompt changed, and the way back
  class Stepping;  // this and the next three: session_entry.h
  struct Answers;
  struct Reading;
  struct Rewinding;
  class ShownAnswer;
  class File;     // session_save.cpp
  void forget();  // the conversation
  void wipe_conversation();
  void restart_text();  // sampler and detokenizer are those of the record's last tokens

  // -1: the mask lets nothing follow.
  Status sample_logits(bool in_answer, weir_token& token);

  Status build(SpillStore* other);  // by setup_ and with policy_; other: see Machine::create

  // A token that sample() gave for the next position may have been shown: no cancel refuses it a place.
  bool was_drawn(weir_token token) const { return has_logits_ && token == drawn_ && drawn_for_ == kv_.n_tokens(); }
  Status check_logits() const;

  HostMemory memory_;
  ThreadPool& pool_;
  DeviceHost& devices_;
  DeviceWeights& device_weights_;
  HostMemory& parent_;
  void* owner_;
  const Model* model_ = nullptr;
  SessionSetup setup_;  // what the session was built from
  weir_plan_info plan_ = WEIR_PLAN_INFO_INIT;
  PolicyStorage policy_storage_;
  Policy* policy_ = nullptr;
  // Where it computes.
  Machine* machine_ = nullptr;
  alignas(Machine::kAlignment) std::byte machine_place_[Machine::kBytes];
  PageTables tables_;
  const KvCache& kv_ = tables_.kv();  // what is in its rows, after host_tables()
  // What the session remembers, the tables included.
  SessionParts remembered_;
  LogitsPart logits_part_{*this};
  TextPart text_part_{*this};
  CopiesPart copies_part_{*this};
  std::span<Part* const> more_parts_;
  SlotMemory slot_memory_{memory_};
  SpillStore store_;  // with recall, or for what leaves without it
  PageCopies copies_;
  Step step_;
  CallOuts call_outs_;
  SessionTrace trace_{pool_, call_outs_};
  Sampler& sampler_ = remembered_.sampler;
  AnswerMask mask_{memory_};
  TokenRecord& record_ = remembered_.record;  // of which the conversation has kv_.n_tokens()
  Detokenizer detokenizer_;
  Answering answering_{parent_, kv_, record_, detokenizer_};
  bool keeps_text_ = false;  // the step of several sessions is part of an answer
  // Whether there may be something of the conversation although it has no tokens, and whether there has been.
  bool is_used_ = false, was_used_ = false;
  bool has_logits_ = false;

  std::atomic<const void*> token_thread_{nullptr};  // this_thread() of the one that is in on_token
  std::atomic<bool> busy_{false};
  Cancel cancel_;
  SessionCounters counters_;

  weir_token drawn_ = -1;               // what sample() gave last
  uint32_t drawn_for_ = UINT32_MAX;     // its position
  uint32_t pulled_until_ = UINT32_MAX;  // n_tokens after a step of such a token
};

}  // namespace weir
