// A session on the GPU: the whole class. Creation, page tables and single steps: session.cpp; prompts:
// session_chunk.cpp; the contents of a decode step: session_step.cpp; steps of several sessions at once:
// session_many.cpp; recall: session_recall.cpp; benchmarks: session_bench.cpp.
#pragma once

#include <span>

#include "cuda/attn/attn_decode.cuh"
#include "cuda/common/base.cuh"
#include "cuda/matmul/gemv.cuh"
#include "cuda/pages/page_recall.cuh"
#include "cuda/session.h"
#include "cuda/step/step.cuh"
#include "models/attend.h"

namespace weir::cuda {

// Indices into DeviceBuffers::counters. Attention uses the front of the array.
inline constexpr uint32_t kBeginCounter = DeviceBuffers::kCounters - 6, kEndCounter = DeviceBuffers::kCounters - 4,
                          kBestKey = DeviceBuffers::kCounters - 2, kTopCounter = DeviceBuffers::kCounters - 8,
                          kRouteCounter = DeviceBuffers::kCounters - 10;

// Bit of a part of a step. Measurements record only some parts.
constexpr uint32_t part_bit(uint32_t part) { return 1u << part; }
inline constexpr uint32_t kAllParts = (1u << kParts) - 1;

class CudaSession;

// Sessions over the same weights whose decode steps are recorded as one. The first one is the leader: GEMVs run in its
// stream, once for all sessions.
struct SessionGroup {
  CudaSession* session[kMostTogether] = {};
  bool selects[kMostTogether] = {};  // in this step
  uint32_t n = 0;
  uint32_t parts = kAllParts;
};

// A recorded step of several sessions, and the steps that it is valid for. Serial numbers are never reused, so a graph
// that contains a destroyed session is never found again.
struct JointKey {
  uint64_t serial[kMostTogether] = {};  // in the order of the group; 0 after the last
  uint32_t selects = 0;                 // one bit per session
  bool operator==(const JointKey&) const = default;
};
struct JointGraph {
  JointKey key;
  cudaGraphExec_t exec = nullptr;
  uint64_t last_use = 0;  // 0: never
};

class CudaSession final : public DeviceSession {
 public:
  explicit CudaSession(const DeviceSessionArgs& args) : a_(args) {}
  ~CudaSession() override;
  Status create();

  bool is_lost() const override { return lost_; }
  Status put_tables(bool repeats) override;
  Status get_tables() override;
  Status run_chunk(const DeviceChunk& chunk) override;
  Status token_mass(uint32_t layer, const TokenMassArgs& a) override;
  Status step(int32_t token) override;
  Status get_logits() override;
  Status top_logits(uint32_t n) override;
  Status fill_noise(uint64_t seed) override;
  Status rebuild_last_digests() override;
  Status profile_step(int32_t token, double* seconds) override;
  Status copy_row_out(uint32_t row) override;
  Status copy_pages(uint32_t n, bool in) override;
  Status fill_row(uint32_t row, uint64_t seed) override;
  // The group of these sessions, with what each selects in its next step.
  static SessionGroup together(DeviceSession* const* sessions, uint32_t n);
  // DeviceModule::prepare_many and step_many, called on the group's leader.
  Status prepare_together(const SessionGroup& group);
  Status step_together(const SessionGroup& group, const int32_t* tokens);

 private:
  static uint64_t new_serial();
  // Remembers a lost device: all later calls then fail in the same way.
  Status note(Status status);
  Status wait(const char* what);
  // After a step: checks that the policy's rules made room in every stream. If not, the session is lost.
  Status check_room();
  Status lose(cudaError_t error, const char* what);
  Status copy_chunk_in(const DeviceChunk& chunk);
  Status enqueue_chunk(const DeviceChunk& chunk);
  Status chunk_stage(const DeviceChunk& chunk, uint32_t layer, const Stage& stage);
  Status chunk_attention(const DeviceChunk& chunk, uint32_t layer);
  Status copy_tables(bool in);

  // With recall.
  bool recalls() const { return a_.recall != nullptr; }
  Status map_recall();
  PageRecallArgs recall_args(uint32_t layer) const;
  Status attend_units(const DeviceChunk& chunk, const AttnPagedArgs& whole, uint32_t layer, uint32_t n_rows);
  // Before a launch: nothing is asked for. After it: sends the pages that steps ask for until the stream is done.
  void open_posts();
  void answer_posts();
  Status put_raw_index();
  static Status wait_and_answer(const SessionGroup& group);

  SessionGroup alone(bool selects, uint32_t parts) { return {{this}, {selects}, 1, parts}; }
  Status record(const SessionGroup& group, cudaGraphExec_t& out);
  static JointKey key_of(const SessionGroup& group);
  cudaGraphExec_t find_graph(const SessionGroup& group);
  static Status note_all(const SessionGroup& group, Status status);
  // Records a step of a group, called on its leader: what the group shares, and in between what each session does
  // itself.
  Status enqueue_step(const SessionGroup& group);
  Status enqueue_stage(const SessionGroup& group, uint32_t layer, uint32_t stage);
  Status enqueue_products(const SessionGroup& group, const Stage& stage, bool after_branches);
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
  bool observes(uint32_t layer) const {
    return a_.rules.observe != StepRules::Observe::kNone && layer >= a_.rules.observe_from_layer &&
           is_ruled(layers()[layer].attention);
  }
  // Whether selection can change anything. That depends on the number of pages that compete: the prompt's pages, or
  // all. If all pages compete, none is evicted in a decode step.
  bool selects_now() const {
    const uint32_t filled = (a_.host.state->n_tokens + kPageTokens) / kPageTokens;  // with the step's token
    const uint32_t pages = a_.rules.candidate_flags != 0 ? n_prompt_pages_ : n_pages_ + filled - n_filled_;
    return selected_ != nullptr && pages > a_.rules.select_above_pages;
  }
  bool is_selected(uint32_t layer, bool selects) const {
    return selects && a_.rules.selects && layer >= a_.rules.select_from_layer && is_ruled(layers()[layer].attention);
  }

  AttendPass pass_of(uint32_t n_tok, uint32_t pos) const {
    return {*a_.config, *a_.rope, *a_.kv, a_.b, a_.rules.scope, n_tok, pos};
  }
  StepEndArgs end_args(bool commit) const;
  uint32_t* n_tokens() const { return &a_.device.state->n_tokens; }
  std::span<const Layer> layers() const { return a_.weights->layers; }

  DeviceSessionArgs a_;
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t all_pages_ = nullptr;  // attends all pages
  cudaGraphExec_t selected_ = nullptr;   // null when the policy selects nothing
  StepState* mailbox_ = nullptr;         // the device's address of host.state
  int32_t* token_ = nullptr;             // the device's address of host.tokens
  PageEvent* events_ = nullptr;          // the device's address of host.events
  int32_t* top_ids_ = nullptr;           // the device's address of host.top_ids
  float* top_logits_ = nullptr;          // the device's address of host.top_logits
  cudaEvent_t event_ = nullptr;          // marks where branches of a recording begin and end
  const uint64_t serial_ = new_serial();
  static constexpr uint32_t kJointGraphs = 4;
  JointGraph joint_[kJointGraphs];  // of groups that this session leads
  uint64_t n_joint_uses_ = 0;
  DeviceRecall recall_;  // the device's addresses of host.recall
  bool raw_index_is_behind_ = true;
  RecallHead* heads_ = nullptr;     // the journal: [n_streams]
  RecallEntry* entries_ = nullptr;  // [n_streams, most]
  // Taken when the tables were put on the device: the most pages of a stream, the most prompt pages of a stream, and
  // the number of pages that the tokens fill.
  uint32_t n_pages_ = 0, n_prompt_pages_ = 0, n_filled_ = 0;
  bool lost_ = false;
};
static_assert(sizeof(CudaSession) <= session_bytes());

// The device's address of staging memory.
template <class T>
Status map(T* host, T*& out) {
  void* address = nullptr;
  WEIR_CUDA_TRY(cudaHostGetDevicePointer(&address, const_cast<std::remove_const_t<T>*>(host), 0),
                "mapping staging memory");
  out = static_cast<T*>(address);
  return {};
}

#define WEIR_REQUIRE_DEVICE() \
  const OnDevice on_device;   \
  if (lost_) return fail(WEIR_ERR_DEVICE_LOST, "the device failed earlier in this session; destroy it")

}  // namespace weir::cuda
