// State of recurrent layers and its snapshots; see recurrent_state.h.
#include "kv/recurrent_state.h"

#include <algorithm>

namespace weir {

void RecurrentState::lay_out(Arenas& arenas) {
  if (!is_on()) return;
  float* const state = arenas.recurrent.take<float>(2 * elements());
  if (!shape_.elsewhere) state_ = state;
  room_ = shape_.elsewhere ? arenas.state.take<float>(shape_.layers.layer_elements()) : nullptr;
  snapshots_ = arenas.host.take<Snapshot>(shape_.n_snapshots);
  for (uint32_t i = 0; i < shape_.n_snapshots; ++i) {
    float* const at = arenas.snapshots.take<float>(elements());
    if (snapshots_ != nullptr) snapshots_[i] = {0, at, false};
  }
}

LayerState RecurrentState::layer(uint32_t number, const uint32_t* current) const {
  LayerState layer;
  layer.current = current != nullptr ? current : &current_;
  for (uint32_t i = 0; i < 2; ++i) {
    layer.rows[i] = state_ + i * elements() + number * shape_.layers.layer_elements();
    if (shape_.layers.n_heads != 0) layer.sums[i] = layer.rows[i] + shape_.layers.row_elements();
  }
  return layer;
}

// Only a device that is lost refuses to copy, and then nothing of the session is used any more.
Status RecurrentState::copy_out(float* host, const float* state, uint64_t n) const {
  if (memory_ != nullptr) return memory_->copy_state_out(host, state, n);
  std::copy_n(state, n, host);
  return {};
}

Status RecurrentState::copy_in(float* state, const float* host, uint64_t n) const {
  if (memory_ != nullptr) return memory_->copy_state_in(state, host, n);
  std::copy_n(host, n, state);
  return {};
}

void RecurrentState::reset() {
  if (!is_on()) return;
  for (uint32_t i = 0; i < 2; ++i) {  // both copies
    go_to(0);
    current_ ^= 1;
  }
  give_up_prompt();
  for (uint32_t i = 0; i < shape_.n_snapshots; ++i) {
    Snapshot& s = snapshots_[i];
    s.n_tokens = 0;
    if (s.is_touched) std::fill_n(s.state, elements(), 0.0f);
    s.is_touched = false;
  }
}

void RecurrentState::copy_from(const Part& part, uint32_t /*n_tokens*/) {
  if (!is_on()) return;
  const auto& other = static_cast<const RecurrentState&>(part);
  current_ = other.current_;
  n_tokens_ = other.n_tokens_;
  give_up_prompt();
  std::copy_n(other.message_, 2, message_);
  if (!shape_.elsewhere) std::copy_n(other.now(), elements(), now());  // a device copies its own
  for (uint32_t i = 0; i < shape_.n_snapshots; ++i) {
    snapshots_[i].n_tokens = other.snapshots_[i].n_tokens;
    snapshots_[i].is_touched = snapshots_[i].n_tokens != 0;
    if (snapshots_[i].is_touched) std::copy_n(other.snapshots_[i].state, elements(), snapshots_[i].state);
  }
}

RecurrentState::Snapshot* RecurrentState::find(uint32_t n_tokens) const {
  for (uint32_t i = 0; n_tokens != 0 && i < shape_.n_snapshots; ++i) {
    if (snapshots_[i].n_tokens == n_tokens) return snapshots_ + i;
  }
  return nullptr;
}

uint32_t RecurrentState::nearest(uint32_t n_tokens) const {
  if (!is_on() || n_tokens >= n_tokens_) return n_tokens;
  uint32_t best = 0;
  for (uint32_t i = 0; i < shape_.n_snapshots; ++i) {
    if (snapshots_[i].n_tokens <= n_tokens) best = std::max(best, snapshots_[i].n_tokens);
  }
  return best;
}

uint32_t RecurrentState::max_chunk() const {
  return is_on() ? shape_.snapshot_tokens - n_tokens_ % shape_.snapshot_tokens : UINT32_MAX;
}

Status RecurrentState::can_cut(uint32_t n_tokens, bool /*lossy*/) const {
  const uint32_t at = nearest(n_tokens);
  if (at == n_tokens) return {};
  return fail(WEIR_ERR_NOT_FOUND, "%u tokens: the last snapshot of recurrent layers before them has %u", n_tokens, at);
}

void RecurrentState::cut(uint32_t n_tokens) {
  if (is_on() && n_tokens < n_tokens_) go_to(n_tokens);
}

// To a snapshot, or to the beginning, which is zeros.
void RecurrentState::go_to(uint32_t n_tokens) {
  const Snapshot* snapshot = find(n_tokens);
  n_tokens_ = snapshot != nullptr ? n_tokens : 0;
  if (snapshot != nullptr) {
    (void)copy_in(now(), snapshot->state, elements());
  } else if (memory_ == nullptr) {
    if (!shape_.elsewhere) std::fill_n(now(), elements(), 0.0f);
  } else {
    std::fill_n(room_, shape_.layers.layer_elements(), 0.0f);
    for (uint32_t i = 0; i < shape_.layers.n_layers; ++i)
      (void)copy_in(now() + i * shape_.layers.layer_elements(), room_, shape_.layers.layer_elements());
  }
  for (uint32_t i = 0; i < shape_.n_snapshots; ++i) {
    if (snapshots_[i].n_tokens > n_tokens_) snapshots_[i].n_tokens = 0;
  }
  for (uint32_t& n : message_) n = n > n_tokens_ ? 0 : n;
}

void RecurrentState::seal(uint32_t /*first*/, uint32_t end) {
  if (!is_on()) return;
  current_ ^= 1;
  n_tokens_ = end;
  if (end % shape_.snapshot_tokens == 0) keep();
}

// A free place, or that of the snapshot that would be missed least: the tokens between its neighbours are what may have
// to be read again, and near the end that is likelier. Where the last prompt began and ended is given up only for where
// another one does, the latter only where nothing can fail any more or the prompt could not be taken back. Null: all of
// them stay.
RecurrentState::Snapshot* RecurrentState::place() {
  Snapshot *least = nullptr, *of_message[2] = {};
  double least_loss = 0.0;
  for (uint32_t i = 0; i < shape_.n_snapshots; ++i) {
    Snapshot& s = snapshots_[i];
    if (s.n_tokens == 0) return &s;
    if (s.n_tokens == begun_ || s.n_tokens == ended_) continue;
    if (s.n_tokens == message_[0] || s.n_tokens == message_[1]) {
      of_message[s.n_tokens == message_[1]] = &s;
      continue;
    }
    uint32_t before = 0, after = n_tokens_;
    for (uint32_t j = 0; j < shape_.n_snapshots; ++j) {
      const uint32_t other = snapshots_[j].n_tokens;
      if (other < s.n_tokens) before = std::max(before, other);
      if (other > s.n_tokens) after = std::min(after, other);
    }
    const double loss = static_cast<double>(after - before) / (n_tokens_ - s.n_tokens + 1.0);
    if (least == nullptr || loss < least_loss) {
      least = &s;
      least_loss = loss;
    }
  }
  const bool is_due = n_tokens_ == begun_ || n_tokens_ == ended_ || n_tokens_ == message_[1];
  if (least != nullptr || !is_due) return least;
  return of_message[0] != nullptr || n_tokens_ != begun_ ? of_message[0] : of_message[1];
}

void RecurrentState::keep() {
  if (n_tokens_ == 0 || find(n_tokens_) != nullptr) return;
  Snapshot* const s = place();
  if (s == nullptr) return;
  s->is_touched = true;
  s->n_tokens = copy_out(s->state, now(), elements()).ok() ? n_tokens_ : 0;
}

void RecurrentState::begin_prompt() {
  if (!is_on()) return;
  begun_ = n_tokens_;
  keep();
}

void RecurrentState::near_prompt_end() {
  if (!is_on()) return;
  ended_ = n_tokens_;
  keep();
}

void RecurrentState::end_prompt() {
  if (!is_on()) return;
  message_[0] = begun_;
  message_[1] = ended_ <= n_tokens_ && find(ended_) != nullptr ? ended_ : n_tokens_;
  give_up_prompt();
  if (message_[1] == n_tokens_) keep();
}

Status RecurrentState::state_io(Io& io, float* state, bool elsewhere) {
  const uint64_t n = shape_.layers.layer_elements();
  for (uint32_t i = 0; i < shape_.layers.n_layers; ++i, state += n) {
    float* const at = elsewhere ? room_ : state;
    if (elsewhere && io.saves()) WEIR_TRY(copy_out(at, state, n));
    WEIR_TRY(io.array(std::span(at, n)));
    if (elsewhere && io.restores()) WEIR_TRY(copy_in(state, at, n));
  }
  return {};
}

Status RecurrentState::io(Io& io) {
  if (!is_on()) return {};
  WEIR_TRY(io.section("RECU"));
  WEIR_TRY(state_io(io, now(), shape_.elsewhere));
  n_tokens_ = io.n_tokens;
  for (uint32_t& n : message_) {
    WEIR_TRY(io.value(n));
    if (n > io.n_tokens) return io.damaged("a message at %u of %u tokens", n, io.n_tokens);
  }
  for (uint32_t i = 0; i < shape_.n_snapshots; ++i) {
    Snapshot& s = snapshots_[i];
    WEIR_TRY(io.value(s.n_tokens));
    if (s.n_tokens > io.n_tokens) return io.damaged("a snapshot of %u tokens of %u", s.n_tokens, io.n_tokens);
    if (s.n_tokens == 0) continue;
    s.is_touched = true;
    WEIR_TRY(state_io(io, s.state, false));
  }
  return {};
}

}  // namespace weir
