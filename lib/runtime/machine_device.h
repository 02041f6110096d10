// A session on a device. Pages, digests, tables and workspace are one block of its memory; the host has staging memory,
// tables for the library's policies, which work around prompts, sampler and tokens. Decode steps change only the
// device's tables; the host fetches them when they are needed there. With recall (machine_recall.cpp) pages leave and
// come back in the device's own steps.
#pragma once

#include "runtime/machine.h"

namespace weir {

class DeviceMachine final : public Machine, public StateMemory {
 public:
  using Machine::Machine;
  ~DeviceMachine() override;
  Status create(SpillStore* other) override;
  Status copy_from(Machine& other) override;
  Kind kind() const override { return Kind::kDevice; }
  Status fetch_tables() override;
  Status end_restore() override;
  Status end_cut() override;
  void end_failed_prompt() override;
  Status sum_what_leaves() override;
  Status run_chunk(const weir_token* tokens, uint32_t n_tok, uint32_t n_left) override;
  uint32_t max_rows() const override { return device_->max_rows(); }
  Status step(weir_token token) override;
  Status prepare_copies(uint32_t n_tok) override;
  Status fetch_logits() override;
  void forget_logits() override { on_device_ = greedy_is_known_ = false; }
  Status draw(const DrawRequest& request, weir_token& token) override;
  Status find_probs(weir_token token, uint32_t n_top, LogProbs& probs) override;
  void wipe_conversation() override;
  void wipe_all() override;
  PoolAccess* pool_access() override { return &pages_; }
  KvCache& page_cache() override { return device_tables_.kv; }
  std::span<uint16_t> piece_room() const override;
  Status copy_state_out(float* host, const float* state, uint64_t n) override;
  Status copy_state_in(float* state, const float* host, uint64_t n) override;
  Status copy_out(void* host, const void* device, uint64_t bytes) const override;
  Status copy_in(void* device, const void* host, uint64_t bytes) const override;
  Status begin_noise() override;
  Status add_noise(uint32_t n_tok, uint64_t& random) override;
  void seal_noise(uint32_t n_tok) override;
  Status end_noise() override;
  Status profile(weir_token token, double* seconds) override;

  // A step of several sessions at once (step_many.cpp), whose messages are left in the module. Before it: sends the
  // tables. From begin_step() on the device changes its own. Then either end_step(), where the session steps again
  // alone if its step was late, or lose_step().
  bool is_lost() const { return device_->is_lost(); }
  Status send_tables() {
    WEIR_TRY(put_tables(false));
    return open_next();
  }
  DeviceSession* begin_step() {
    w_.tables.leave_to_device();
    return device_;
  }
  DeviceSession* device() const { return device_; }
  Status end_step(weir_token token);
  void lose_step() { greedy_is_known_ = false; }
  // What the last token sealed is copied.
  Status seal_step();

 private:
  class Observer;
  // Pages on their way between the store and the device.
  class Pages final : public RecallSource, public PoolAccess, public ChunkPages {
   public:
    explicit Pages(DeviceMachine& machine) : m_(machine) {}
    bool read(uint32_t stream, uint32_t row, std::byte* out) override;
    std::byte* buffer() override;
    bool write(uint32_t slot) override;
    bool read(uint32_t slot) override;
    bool in_units(uint32_t layer, uint32_t& n_rows) override;
    void load_unit(uint32_t layer, uint32_t first_row) override;

   private:
    uint32_t find_page(uint32_t stream, const StreamView& v, uint32_t row, uint32_t at);
    DeviceMachine& m_;
  };

  const KvCache& kv() const { return w_.tables.kv(); }
  Status told(Status status) const { return from_module(*module_, status); }
  void place_pools(const SessionPools& measured, SessionPools& pools, DeviceBuffers& buffers);
  Status start_recall(SpillStore* other, DeviceSessionArgs& args);
  Status put_tables(bool repeats);  // its message is left in the module
  Status open_next();               // before a decode step, when the tables have been sent
  Status send_current_tables() { return told(put_tables(false)); }
  void fill_state();
  void read_counters();
  bool put_rotations(const weir_token* tokens, uint32_t n_tok);
  void close_step();
  Status trace_step();
  Status step_until_in_time(weir_token token);
  Status repair_late_step();
  Status bring_asked_pages();
  Status seal_on_device(uint32_t first);
  Status seal_row(uint32_t row);
  Status draw_from_best(const DrawRequest& request, weir_token& token);

  DeviceSession* device_ = nullptr;
  DeviceTables device_tables_;  // whose pointers are to the device
  DeviceStaging staging_;
  Pages pages_{*this};
  bool on_device_ = false;        // the latest logits are not in the staging memory yet
  bool greedy_is_known_ = false;  // next_token of the state belongs to the latest logits
  bool has_mask_ = false;         // the device has the mask that is in the staging memory
  uint32_t n_listed_ = 0;         // of the best of all logits, with their sums, that came with the latest draw
};

}  // namespace weir
