// What a session remembers is a list of parts: the tokens, the pages and their copies, what attention has learned, the
// sampler, the text. A part says once where its memory lies and what its bytes mean; planning, reset, fork, rewind, the
// way back from a prompt that failed, save and restore are loops over the list (docs/architecture.md).
#pragma once

#include <cstdint>

#include "core/memory.h"
#include "core/status.h"
#include "kv/io.h"

namespace weir {

// Where the memory of parts comes from. Planning and creating hand out the same, first from arenas that only measure.
struct Arenas {
  Arena& pages;
  Arena& digests;
  Arena& tables;
  Arena& host;       // what only the host uses of tables; without a device the same arena as tables
  Arena& state;      // host memory that is wiped when the conversation is forgotten
  Arena& recurrent;  // the state of recurrent layers
  Arena& snapshots;  // copies of it on the host

  static Arenas all_in(Arena& arena) { return {arena, arena, arena, arena, arena, arena, arena}; }
};

class Part {
 public:
  Part() = default;
  virtual const char* name() const = 0;  // for messages

  // Takes all memory that the part ever has. It is called twice: while arenas only measure, pointers are null.
  virtual void lay_out(Arenas& arenas) = 0;
  // As in a session that has just been created; also called once after lay_out().
  virtual void reset() = 0;
  // Makes this part, which was just reset, equal to the same part of another session, whose layout is the same and
  // whose conversation has n_tokens.
  virtual void copy_from(const Part& other, uint32_t n_tokens) = 0;

  // Whether the part can go back to the first n_tokens; if not, why, and what can be done. Nothing changes. `lossy`:
  // what cannot be had again may be missing afterwards.
  virtual Status can_cut(uint32_t /*n_tokens*/, bool /*lossy*/) const { return {}; }
  // The conversation has only its first n_tokens now; can_cut() has agreed.
  virtual void cut(uint32_t n_tokens) = 0;
  // The tokens behind the first n_tokens, if there were any, were of a pass that failed or of a prompt that is taken
  // back. Parts that see tokens only when they are in the conversation do nothing.
  virtual void roll_back(uint32_t n_tokens) { cut(n_tokens); }

  // The tokens from `first` on, before `end`, are complete in all layers. Those of a prompt may be taken back.
  virtual void seal(uint32_t /*first*/, uint32_t /*end*/) {}

  // What later steps depend on, in one description for both directions; nothing if it follows from other parts. When
  // restoring, the part was just reset, everything is checked before it is used, and if something fails the part is
  // reset again.
  virtual Status io(Io& /*io*/) { return {}; }

 protected:
  Part(const Part&) = default;
  Part& operator=(const Part&) = default;
  ~Part() = default;
};

// The parts of a session, in the order in which they are saved.
class PartList {
 public:
  static constexpr uint32_t kMax = 16;

  void add(Part& part) { parts_[n_++] = &part; }
  Part* const* begin() const { return parts_; }
  Part* const* end() const { return parts_ + n_; }

  void lay_out(Arenas& arenas) const {
    for (Part* part : *this) part->lay_out(arenas);
  }
  void reset() const {
    for (Part* part : *this) part->reset();
  }
  // `other` has the same parts in the same order.
  void copy_from(const PartList& other, uint32_t n_tokens) const {
    for (uint32_t i = 0; i < n_; ++i) parts_[i]->copy_from(*other.parts_[i], n_tokens);
  }
  Status can_cut(uint32_t n_tokens, bool lossy) const {
    for (const Part* part : *this) WEIR_TRY(part->can_cut(n_tokens, lossy));
    return {};
  }
  void cut(uint32_t n_tokens) const {
    for (Part* part : *this) part->cut(n_tokens);
  }
  void roll_back(uint32_t n_tokens) const {
    for (Part* part : *this) part->roll_back(n_tokens);
  }
  void seal(uint32_t first_token, uint32_t end_token) const {
    for (Part* part : *this) part->seal(first_token, end_token);
  }
  Status io(Io& io) const {
    for (Part* part : *this) WEIR_TRY(part->io(io));
    return {};
  }

 private:
  Part* parts_[kMax] = {};
  uint32_t n_ = 0;
};

}  // namespace weir
