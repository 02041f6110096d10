// Conversations of one model under several policies that go on together, the steps of all computed at once: the lanes
// of `weir demo`. It counts what each holds and what was allocated while they stepped; it shows nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "options.h"
#include "weir_cpp.h"

namespace weir_cli {

struct LaneSetup {
  std::string name;
  SessionFlags session;
};

struct DemoLaneState {
  uint32_t n_tokens = 0;
  uint64_t kv_bytes = 0;    // keys and values in memory: in the pool, and what the store holds of the rest
  uint64_t file_bytes = 0;  // in the spill file
};

class DemoLane {
 public:
  DemoLane(weir_model* model, const LaneSetup& setup);

  const std::string& name() const { return name_; }
  weir_session* session() const { return session_.get(); }
  const weir_plan_info& plan() const { return plan_; }
  DemoLaneState state() const;
  uint64_t kv_peak_bytes() const { return kv_peak_bytes_; }
  std::vector<weir_page_state> pages() const;

  const std::string& text() const { return text_; }  // of the answer that runs, or of the last one
  bool has_ended() const { return has_ended_; }

 private:
  friend class DemoLanes;

  std::string name_;
  weir_plan_info plan_ = WEIR_PLAN_INFO_INIT;
  SessionPtr session_;
  uint64_t kv_peak_bytes_ = 0;
  std::string text_;
  bool has_ended_ = true;
};

// Returns false to stop.
using LanesFn = std::function<bool()>;

class DemoLanes {
 public:
  DemoLanes(const weir_runtime* runtime, weir_model* model, const std::vector<LaneSetup>& setups);

  std::vector<DemoLane>& all() { return lanes_; }
  const std::vector<DemoLane>& all() const { return lanes_; }

  // The same prompt to all, a part of it to each lane in turn. These three call `on_step` when all lanes have gone on,
  // and return false where it did.
  bool read(const std::vector<weir_token>& tokens, const LanesFn& on_step);
  // The same tokens to all, one step each.
  bool step(const std::vector<weir_token>& tokens, const LanesFn& on_step);
  // Each lane answers, until all answers have ended. flags: WEIR_GENERATE_*.
  bool answer(uint32_t max_tokens, uint32_t flags, const LanesFn& on_step);
  // The last lane alone draws `n_tokens` tokens, whatever they mean.
  bool go_on(uint32_t n_tokens, const LanesFn& on_step);

  // Allocations of the whole runtime, by its own counters, while lanes stepped.
  uint64_t allocs_while_decoding() const { return n_allocs_; }

 private:
  uint64_t count_allocs() const;
  bool note_step(const LanesFn& on_step);

  const weir_runtime* runtime_;
  std::vector<DemoLane> lanes_;
  std::vector<weir_session*> sessions_;
  uint64_t n_allocs_ = 0;
};

}  // namespace weir_cli
