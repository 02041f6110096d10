// A session on the GPU: what it records, and the steps of several sessions at once. What it records is in lib/device.
// Creation and recording: session.cpp; steps of several sessions: session_many.cpp; benchmarks: session_bench.cpp.
#pragma once

#include "cuda/cuda_queue.h"
#include "cuda/session.h"
#include "device/base_session.h"
#include "device/joint_steps.h"

namespace weir::cuda {

using device::SessionGroup;

class CudaSession final : public device::BaseSession {
 public:
  explicit CudaSession(const DeviceSessionArgs& args) : BaseSession(args, cuda_queue_, op_table()) {}
  ~CudaSession() override;
  Status create();

  Status profile_step(int32_t token, double* seconds) override;
  using BaseSession::together;
  // DeviceModule::prepare_many and step_many, called on the group's leader.
  Status prepare_together(const SessionGroup& group);
  Status step_together(const SessionGroup& group, const int32_t* tokens);

 private:
  Status launch_step(bool selects) override;
  Status record(const SessionGroup& group, cudaGraphExec_t& out);
  cudaGraphExec_t find_graph(const SessionGroup& group);
  void forget_joint_steps();

  CudaQueue cuda_queue_{a_.cx};
  cudaGraphExec_t all_pages_ = nullptr;        // attends all pages
  cudaGraphExec_t selected_ = nullptr;         // null when the policy selects nothing
  device::JointSteps<cudaGraphExec_t> joint_;  // of groups that this session leads
};
static_assert(sizeof(CudaSession) <= session_bytes());

}  // namespace weir::cuda
