// A session on the GPU, the whole class. Life and tables: session.cpp; prompts: session_chunk.cpp; what a decode step is: session_step.cpp; benchmarks:
// session_bench.cpp.
#pragma once

#include "cuda/common.cuh"
#include "cuda/session.h"
#include "cuda/step.cuh"

namespace weir::cuda {

// Where the shared counters lie.
inline constexpr uint32_t kBeginCounter = DeviceBuffers::kCounters - 6, kEndCounter = DeviceBuffers::kCounters - 4,
                          kBestKey = DeviceBuffers::kCounters - 2;

// Parts of a step to record, for measurements.
constexpr uint32_t part_bit(uint32_t part) { return 1u << part; }
inline constexpr uint32_t kAllParts = (1u << kParts) - 1;

class CudaSession final : public DeviceSession {
 public:
  explicit CudaSession(const DeviceSessionArgs& args) : a_(args) {}
  ~CudaSession() override;
  Status create();

  Status put_tables() override;
  Status get_tables() override;
  Status run_chunk(const DeviceChunk& chunk) override;
  Status token_mass(uint32_t layer, const TokenMassArgs& a) override;
  Status step(int32_t token) override;
  Status get_logits() override;
  Status fill_noise(uint64_t seed) override;
  Status rebuild_last_digests() override;
  Status profile_step(int32_t token, double* seconds) override;

 private:
  // Remembers a lost device: all later calls fail alike.
  Status note(Status status);
  Status wait(const char* what);
  Status copy_chunk_in(const DeviceChunk& chunk);
  Status enqueue_chunk(const DeviceChunk& chunk);
  Status chunk_layer(const DeviceChunk& chunk, uint32_t layer);
  Status copy_tables(bool in);

  Status record(bool selects, uint32_t parts, cudaGraphExec_t& out);
  Status enqueue_step(bool selects, uint32_t parts);
  Status enqueue_layer(uint32_t layer, bool selects, uint32_t parts);
  Status enqueue_attention(uint32_t layer, bool selects, uint32_t parts);
  Status enqueue_observation(uint32_t layer, const PageLists& lists);
  PageStampArgs stamp_args(uint32_t layer, const PageLists& lists) const;
  // Whether selection can change anything: pages that compete are at most those that the tokens fill, or those of the prompt.
  bool selects_now() const {
    const uint32_t pages =
        a_.rules.candidate_flags != 0 ? n_prompt_pages_ : (a_.host.state->n_tokens + kPageTokens) / kPageTokens;
    return selected_ != nullptr && pages > a_.rules.select_above_pages;
  }
  bool is_selected(uint32_t layer, bool selects) const {
    return selects && a_.rules.selects && layer >= a_.rules.select_from_layer;
  }

  RopeAppendArgs rope_args(uint32_t layer, uint32_t n_tok, uint32_t pos) const;
  AttnPagedArgs attn_args(uint32_t layer, uint32_t n_tok, uint32_t pos) const;
  StepEndArgs end_args(bool commit) const;
  uint32_t* n_tokens() const { return &a_.device.state->n_tokens; }
  const LayerWeights& weights(uint32_t layer) const { return a_.weights->layers[layer]; }

  DeviceSessionArgs a_;
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t all_pages_ = nullptr;  // without selection
  cudaGraphExec_t selected_ = nullptr;   // null when the policy selects nothing
  StepState* mailbox_ = nullptr;         // the device's address of host.state
  int32_t* token_ = nullptr;             // the device's address of host.tokens
  uint32_t n_prompt_pages_ = 0;          // most of a stream
  bool lost_ = false;
};
static_assert(sizeof(CudaSession) <= session_bytes());

#define WEIR_REQUIRE_DEVICE() \
  const OnDevice on_device;   \
  if (lost_) return fail(WEIR_ERR_DEVICE_LOST, "the device failed earlier in this session; destroy it")

}  // namespace weir::cuda
