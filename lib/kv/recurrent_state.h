// The state of a model's recurrent layers (ops/recurrent.h). Its size is fixed, and it has no past: the tokens of it
// cannot be told apart, so the last ones cannot be cut off. Snapshots are what a conversation goes back to, and from
// there the tokens are read again. There is one at every multiple of snapshot_tokens and one wherever a prompt begins
// and ends, as long as there is room; when there is none, the one goes whose place is nearest to others, measured by
// its distance from the end.
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
  float* memory() const { return state_; }

  // Where the conversation can go back to if it is to have n_tokens: the same or fewer.
  uint32_t nearest(uint32_t n_tokens) const;
  // Tokens that the next chunk has at most, so that it ends where a snapshot is due.
  uint32_t max_chunk() const;
  // Makes a snapshot of now. Until release() none takes the place of it.
  void hold();
  void release() { held_ = 0; }
  void keep();

 private:
  struct Snapshot {
    uint32_t n_tokens;  // 0: there is none
    float* state;       // [elements]
    bool is_touched;    // there may be something in it
  };
  uint64_t elements() const { return shape_.layers.elements(); }
  float* now() const { return state_ + current_ * elements(); }
  Snapshot* find(uint32_t n_tokens) const;
  Snapshot& place();
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
  uint32_t held_ = 0;  // the snapshot of so many tokens stays; 0: none has to
};

}  // namespace weir
