// What sessions on a device have in common, whatever the module: what a step and a chunk enqueue, with which arguments,
// the copies of page tables, and what is lost. A module adds its queue and how it records steps. Tables, single steps
// and benchmarks: base_session.cpp; prompts: session_chunk.cpp; the contents of a decode step: session_step.cpp;
// recall: session_recall.cpp.
#pragma once

#include <span>

#include "device/kernels.h"
#include "device/module.h"
#include "device/queue.h"
#include "models/attend.h"

namespace weir::device {

// Indices into DeviceBuffers::counters. Attention uses the front of the array.
inline constexpr uint32_t kBeginCounter = DeviceBuffers::kCounters - 6, kEndCounter = DeviceBuffers::kCounters - 4,
                          kBestKey = DeviceBuffers::kCounters - 2, kTopCounter = DeviceBuffers::kCounters - 8,
                          kRouteCounter = DeviceBuffers::kCounters - 10;

// Bit of a part of a step. Measurements record only some parts.
constexpr uint32_t part_bit(uint32_t part) { return 1u << part; }
inline constexpr uint32_t kAllParts = (1u << kParts) - 1;

class BaseSession;

// Sessions over the same weights whose decode steps are recorded as one. The first one is the leader: GEMVs run in its
// queue, once for all sessions.
struct SessionGroup {
  BaseSession* session[kMaxTogether] = {};
  bool selects[kMaxTogether] = {};  // in this step
  uint32_t n = 0;
  uint32_t parts = kAllParts;
};

class BaseSession : public DeviceSession {
 public:
  // `queue` may be built later; it runs the ops of `ops`, too, in args.cx.
  BaseSession(const DeviceSessionArgs& args, Queue& queue, const OpTable& ops);

  // A number that no other session of the process has.
  uint64_t serial() const { return serial_; }
  bool recalls() const { return a_.recall != nullptr; }
  bool is_lost() const final { return lost_; }
  uint32_t max_rows() const final { return queue_.max_rows(); }
  Status put_tables(bool repeats) final;
  Status get_tables() final;
  Status move_open_page(const OpenMove& move) final;
  Status add_left(uint32_t n_tokens) final;
  Status run_chunk(const DeviceChunk& chunk) final;
  Status token_mass(uint32_t layer, const TokenMassArgs& a) final;
  Status step(int32_t token) final;
  Status get_trace() final;
  Status get_logits() final;
  Status top_logits(const LogitRequest& request) final;
  Status fill_noise(uint64_t seed) final;
  Status rebuild_digests() final;
  Status rebuild_last_digests() final;
  Status copy_row_out(uint32_t row) final;
  Status copy_pages(uint32_t n, bool in) final;
  Status fill_row(uint32_t row, uint64_t seed) final;

 protected:
  // Starts the recorded step of this session alone.
  virtual Status launch_step(bool selects) = 0;

  // Once, before the first step is recorded.
  Status prepare();
  // Remembers a lost device: all later calls then fail in the same way.
  Status note(Status status);
  Status wait(const char* what) { return note(queue_.wait(what)); }
  Status refuse_lost() const;
  static Status note_all(const SessionGroup& group, Status status);

  SessionGroup alone(bool selects, uint32_t parts) { return {{this}, {selects}, 1, parts}; }
  // Sessions of this module, with what each selects in its next step.
  static SessionGroup together(DeviceSession* const* sessions, uint32_t n);
  // The contents of a step of a group, called on its leader: what the group shares, and in between what each session
  // does itself.
  Status enqueue_step(const SessionGroup& group);
  // Around a step of a group, called on its leader, which launches it in between.
  static Status open_step(const SessionGroup& group, const int32_t* tokens);
  static Status close_step(const SessionGroup& group, Status launched);
  // Whether selection can change anything. That depends on the number of pages that compete: the prompt's pages, or
  // all. If all pages compete, none is evicted in a decode step.
  bool selects_now() const {
    const uint32_t filled = (a_.host.state->n_tokens + kPageTokens) / kPageTokens;  // with the step's token
    const uint32_t pages = a_.rules.candidate_flags != 0 ? n_prompt_pages_ : n_pages_ + filled - n_filled_;
    return a_.rules.selects && pages > a_.rules.select_above_pages;
  }

  // Whether digests of full pages that appending does not make are made behind the steps that fill them, one in 16, and
  // not in every step: a page that is filled is the last one, which is attended whatever its digest says, unless stamps
  // go by it.
  bool digests_behind_steps() const;
  Status enqueue_digests();
  Status digest_filled_pages();

  // With recall: whether a step may ask the host for pages, because not all copies are raw; as of the latest
  // open_step().
  bool may_ask() const { return recalls() && may_ask_; }
  // Reads the pages that a step asks for.
  void answer_posts();

  DeviceSessionArgs a_;
  Queue& queue_;

 private:
  class ChunkWalk;
  class StepWalk;

  // After a step: checks that the policy's rules made room in every stream. If not, the session is lost.
  Status check_room();
  Status copy_chunk_in(const DeviceChunk& chunk);
  Status enqueue_chunk(const DeviceChunk& chunk);
  Status chunk_attention(const DeviceChunk& chunk, uint32_t layer);
  Status copy_tables(bool in);
  LeftAt left_at() const;
  // Whether some of a layer's streams have compensation tokens.
  bool compensates(uint32_t layer) const;
  // Rotates the output, too.
  Status enqueue_compensation(uint32_t layer, const AttnPagedArgs& attn, const uint32_t* n_tokens);
  // Where pages have rotated values: of what is appended next, and back of what attention has left.
  Status rotate_new_values(uint32_t n_tok, bool overlap);
  Status rotate_output(uint32_t n_tok);

  // With recall.
  Status map_recall();
  PageRecallArgs recall_args(uint32_t layer) const;
  Status attend_units(const DeviceChunk& chunk, const AttnPagedArgs& whole, uint32_t layer, uint32_t n_rows);
  // Before a launch: nothing is asked for. After it: sends the pages that steps ask for until the queue is done.
  void open_posts();
  Status put_raw_index(Queue& queue);
  static Status wait_and_answer(const SessionGroup& group);

  Status enqueue_products(const SessionGroup& group, const Stage& stage, bool after_branches);
  Status enqueue_mix(const Layer& layer, uint32_t n_tok, bool forked);
  Status enqueue_experts(uint32_t layer, const Stage& stage, bool overlap);
  Status enqueue_post_norm(const SessionGroup& group, const Stage& stage);
  template <class Column>
  Status enqueue_gemv(const SessionGroup& group, GemvArgs g, const Column& column);
  template <class F>
  Status enqueue_each(const SessionGroup& group, const F& enqueue);
  Status enqueue_begin();
  Status enqueue_attention(uint32_t layer, bool selects, uint32_t parts, bool overlap);
  Status enqueue_observation(uint32_t layer, const PageLists& lists);
  PageStampArgs stamp_args(uint32_t layer, const PageLists& lists) const;
  PageSelectArgs select_args(uint32_t layer) const;
  AttnDecodeArgs decode_args(uint32_t layer, bool append, bool overlap) const;
  AttnStop stop_args(uint32_t layer) const;
  bool observes(uint32_t layer) const {
    return a_.rules.observe != StepRules::Observe::kNone && layer >= a_.rules.observe_from_layer &&
           is_ruled(a_.weights->attention(layer));
  }
  // Layers and single heads may have windows of their own.
  bool has_ruled_stream(uint32_t layer) const;
  bool is_selected(uint32_t layer, bool selects) const {
    return selects && a_.rules.selects && layer >= a_.rules.select_from_layer && has_ruled_stream(layer);
  }

  AttendPass pass_of(uint32_t n_tok, uint32_t pos) const {
    return {*a_.config, *a_.rope, *a_.kv, a_.b, a_.rules.scope, n_tok, pos};
  }
  // Where a layer's masses and lists are: its own place in a session that can be traced.
  bool traces() const { return a_.device.trace.page_mass != nullptr; }
  size_t trace_at(uint32_t layer) const;
  float* page_mass(uint32_t layer) const {
    return traces() ? a_.device.trace.page_mass + trace_at(layer) : a_.b.page_mass;
  }
  uint32_t* select(uint32_t layer) const { return traces() ? a_.device.trace.select + trace_at(layer) : a_.b.select; }
  uint32_t* n_select(uint32_t layer) const {
    return traces() ? a_.device.trace.n_select + size_t{layer} * a_.config->n_heads : a_.b.n_select;
  }

  StepEndArgs end_args(bool commit) const;
  uint32_t* n_tokens() const { return &a_.device.state->n_tokens; }
  std::span<const Layer> layers() const { return a_.weights->layers; }

  const OpTable& ops_;
  bool selected_ = false;     // in the latest step
  bool fills_pages_ = false;  // the latest step does, and digests are made behind it
  const uint64_t serial_;
  StepState* mailbox_ = nullptr;  // the device's address of host.state
  int32_t* token_ = nullptr;      // the device's address of host.tokens
  PageEvent* events_ = nullptr;   // the device's address of host.events
  int32_t* top_ids_ = nullptr;    // the device's address of host.top_ids
  float* top_logits_ = nullptr;   // the device's address of host.top_logits
  int32_t* asked_ = nullptr;      // the device's addresses of host.asked, asked_logits and parts
  float* asked_logits_ = nullptr;
  LogitPart* parts_ = nullptr;
  DeviceRecall recall_;  // the device's addresses of host.recall
  bool raw_index_is_behind_ = true, may_ask_ = true;
  RecallHead* heads_ = nullptr;     // the journal: [n_streams]
  RecallEntry* entries_ = nullptr;  // [n_streams, most]
  // Taken when the tables were put on the device: the most pages of a stream, the most prompt pages of a stream, and
  // the number of pages that the tokens fill.
  uint32_t n_pages_ = 0, n_prompt_pages_ = 0, n_filled_ = 0;
  bool lost_ = false;
};

// At the beginning of a session's call.
#define WEIR_REQUIRE_DEVICE()                   \
  const ::weir::device::Queue::Use use(queue_); \
  WEIR_TRY(refuse_lost())

}  // namespace weir::device
