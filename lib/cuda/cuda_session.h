// A session on the GPU: what it records, and the steps of several sessions at once. What it records is in lib/device.
// Creation and recording: session.cpp; steps of several sessions: session_many.cpp; benchmarks: session_bench.cpp.
#pragma once

#include "cuda/cuda_queue.h"
#include "cuda/session.h"
#include "device/base_session.h"

namespace weir::cuda {

using device::SessionGroup;

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

class CudaSession final : public device::BaseSession {
 public:
  explicit CudaSession(const DeviceSessionArgs& args) : BaseSession(args, cuda_queue_, op_table()) {}
  ~CudaSession() override;
  Status create();

  Status profile_step(int32_t token, double* seconds) override;
  // The group of these sessions, with what each selects in its next step.
  static SessionGroup together(DeviceSession* const* sessions, uint32_t n);
  // DeviceModule::prepare_many and step_many, called on the group's leader.
  Status prepare_together(const SessionGroup& group);
  Status step_together(const SessionGroup& group, const int32_t* tokens);

 private:
  static uint64_t new_serial();
  Status launch_step(bool selects) override;
  Status record(const SessionGroup& group, cudaGraphExec_t& out);
  static JointKey key_of(const SessionGroup& group);
  cudaGraphExec_t find_graph(const SessionGroup& group);

  CudaQueue cuda_queue_{a_.cx};
  cudaGraphExec_t all_pages_ = nullptr;  // attends all pages
  cudaGraphExec_t selected_ = nullptr;   // null when the policy selects nothing
  const uint64_t serial_ = new_serial();
  static constexpr uint32_t kJointGraphs = 4;
  JointGraph joint_[kJointGraphs];  // of groups that this session leads
  uint64_t n_joint_uses_ = 0;
};
static_assert(sizeof(CudaSession) <= session_bytes());

}  // namespace weir::cuda
