// Memory of what attention learns from its past: tables of two weights per token and query head, lists of the entries
// that matter, and sums of keys and values. lib/ops/history.h says what they mean.
#pragma once

#include <cstdint>

#include "core/memory.h"
#include "kv/part.h"
#include "ops/history.h"

namespace weir {

struct HistoryShape {
  uint32_t group = 0;  // query heads of a KV head; 0: there is no history
  uint32_t n_sink = 0;
  uint32_t tokens = 0;     // entries of a table: all tokens of the context, though sinks have none
  uint32_t list_room = 0;  // entries of a list
  uint32_t n_layers = 0;   // that have a history
};

class AttnHistory final : public Part {
 public:
  // Before lay_out(); without, there is no history.
  void set_shape(const HistoryShape& shape, uint32_t n_kv_heads, uint32_t head_dim) {
    shape_ = shape;
    n_kv_heads_ = n_kv_heads;
    head_dim_ = head_dim;
  }
  const char* name() const override { return "what attention learned from its past"; }
  void lay_out(Arenas& arenas) override;
  void reset() override;
  void copy_from(const Part& other, uint32_t n_tokens) override;
  // Forgets the tokens from position n_tokens on. What was learned about others stays.
  void cut(uint32_t n_tokens) override;
  // The section HIST. Lists are not in it: they are the entries above the floors.
  Status io(Io& io) override;

  bool is_on() const { return shape_.group != 0; }
  bool is_empty() const;                    // nothing was learned: reset() would change nothing
  HistoryView view(uint32_t number) const;  // of the layers that have one, in order

 private:
  uint64_t n_heads() const { return uint64_t{shape_.n_layers} * n_kv_heads_ * shape_.group; }
  uint64_t n_streams() const { return uint64_t{shape_.n_layers} * n_kv_heads_; }
  void cut_head(uint32_t head, uint32_t n) const;
  Status head_io(Io& io, const HistoryView& v, uint32_t head, uint32_t n_known) const;

  HistoryShape shape_;
  uint32_t n_kv_heads_ = 0, head_dim_ = 0;
  HistoryView all_;  // of all layers, one after another
};

}  // namespace weir
