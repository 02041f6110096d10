// The state of a model's recurrent layers (ops/recurrent.h). Its size is fixed, and it has no past: the tokens of it
// cannot be told apart, so the last ones cannot be cut off. Snapshots are what a conversation goes back to, and from
// there the tokens are read again. There is one at every multiple of snapshot_tokens and one wherever a prompt begins
// and ends, as long as there is room. Where the last prompt began and ended is where a conversation is most likely to
// go on: with another message, with another answer, or after an answer without its thoughts. So these two stay until
// the next prompt has ended, however long the answer is. Of the others that one makes room whose place is nearest to
// others, measured by its distance from the end.
#pragma once

#include <cstdint>

#include "core/memory.h"
#include "kv/part.h"
#include "ops/recurrent.h"

namespace weir {

// Where the state is if it is not in host memory.
class StateMemory {
 public:
  virtual Status copy_state_out(float* host, const float* state, uint64_t n) = 0;
  virtual Status copy_state_in(float* state, const float* host, uint64_t n) = 0;

 protected:
  ~StateMemory() = default;
};

class RecurrentState final : public Part {
 public:
  struct Shape {
    RecurrentShape layers;
    uint32_t n_snapshots = 0, snapshot_tokens = 0;
    bool elsewhere = false;  // not in host memory
  };
  // Before lay_out().
  void set_shape(const Shape& shape) { shape_ = shape; }
  // Before reset(), if it is elsewhere: its memory, laid out as here.
  void set_memory(StateMemory& memory, float* state) {
    memory_ = &memory;
    state_ = state;
  }
  const char* name() const override { return "the state of recurrent layers"; }
  void lay_out(Arenas& arenas) override;
  void reset() override;
  void copy_from(const Part& other, uint32_t n_tokens) override;
  Status can_cut(uint32_t n_tokens, bool lossy) const override;
  void cut(uint32_t n_tokens) override;
  // The tokens of a pass are in the state that it wrote, which is current now.
  void seal(uint32_t first, uint32_t end) override;
  Status io(Io& io) override;

  bool is_on() const { return shape_.layers.n_layers != 0; }
  const Shape& shape() const { return shape_; }
  uint32_t n_tokens() const { return n_tokens_; }
  // The state of the recurrent layer with this number. `current` as a device sees it; null: in host memory.
  LayerState layer(uint32_t number, const uint32_t* current = nullptr) const;
  uint32_t current() const { return current_; }
  // After steps that nobody sealed, in measurements.
  void take(uint32_t n_tokens, uint32_t current) {
    n_tokens_ = n_tokens;
    current_ = current;
  }
  float* memory() const { return state_; }

  // Where the conversation can go back to if it is to have n_tokens: the same or fewer.
  uint32_t nearest(uint32_t n_tokens) const;
  // Tokens that the next chunk has at most, so that it ends where a snapshot is due.
  uint32_t max_chunk() const;
  // A prompt begins: makes a snapshot of now, to which it can be taken back. Until the prompt ends nothing takes the
  // place of it.
  void begin_prompt();
  // Only a few tokens of it are left: the conversation goes back to here instead of its end and reads these again.
  void near_prompt_end();
  // It has ended, all of it or what could not be taken back.
  void end_prompt();
  // Nothing of it is left.
  void give_up_prompt() { begun_ = ended_ = 0; }

 private:
  struct Snapshot {
    uint32_t n_tokens;  // 0: there is none
    float* state;       // [elements]
    bool is_touched;    // there may be something in it
  };
  uint64_t elements() const { return shape_.layers.elements(); }
  float* now() const { return state_ + current_ * elements(); }
  Snapshot* find(uint32_t n_tokens) const;
  Snapshot* place();
  void keep();
  Status copy_out(float* host, const float* state, uint64_t n) const;
  Status copy_in(float* state, const float* host, uint64_t n) const;
  void go_to(uint32_t n_tokens);
  Status state_io(Io& io, float* state, bool elsewhere);

  Shape shape_;
  StateMemory* memory_ = nullptr;
  float* state_ = nullptr;         // [2, elements]
  float* room_ = nullptr;          // [layer_elements], if it is elsewhere
  Snapshot* snapshots_ = nullptr;  // [n_snapshots]
  uint32_t n_tokens_ = 0;          // that the current state has
  uint32_t current_ = 0;
  // Tokens of snapshots that stay; 0: of none. Where the prompt began that is being read, where it nearly ends; and
  // where the last one began and ended.
  uint32_t begun_ = 0, ended_ = 0, message_[2] = {};
};

}  // namespace weir
