// A session on the processor. Its block has everything: pages, digests, tables, workspace, sampler and tokens.
#pragma once

#include "runtime/machine.h"

namespace weir {

class HostMachine : public Machine {
 public:
  using Machine::Machine;
  Status create(SpillStore* other) override;
  Status copy_from(Machine& other) override;
  Kind kind() const override { return Kind::kHost; }
  Status run_chunk(const weir_token* tokens, uint32_t n_tok, uint32_t n_left) override;
  Status step(weir_token token) override;
  void wipe_conversation() override;
  void wipe_all() override;
  Status add_noise(uint32_t n_tok, uint64_t& random) override;
  void seal_noise(uint32_t n_tok) override { seal(w_.tables.kv().n_tokens() - n_tok); }
  Status end_noise() override;

  // A step of several sessions as one pass (step_many.cpp): makes room for the token and sets the step up for it. A
  // commit or a rollback follows.
  Status open_step(const weir_token* token);
  static constexpr uint32_t kMaxRows = 256;  // with so many, reading the weights is only a small part of the work
  // The most sessions of such a pass.
  virtual uint32_t max_together() const;

 protected:
  // What a session whose attention alone is on the host has besides.
  virtual void lay_out(SessionPools& pools);
  virtual Status take_rows(const SessionPools&) { return {}; }

 private:
  Status compute_logits();
  Status fill_history();
};

}  // namespace weir
