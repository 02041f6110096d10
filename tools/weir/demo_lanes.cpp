// The lanes of `weir demo`; see demo_lanes.h.
#include "demo_lanes.h"

#include <algorithm>

namespace weir_cli {
namespace {

constexpr size_t kPart = 128;  // tokens of a prompt that a lane reads before the next lane's turn
constexpr float kTemperature = 1;

}  // namespace

DemoLane::DemoLane(weir_model* model, const LaneSetup& setup) : name_(setup.name) {
  SessionOptions options(setup.session);
  plan_ = make_plan(model, options.get());
  session_ = create_session(model, options.get());
}

DemoLaneState DemoLane::state() const {
  const weir_session_stats stats = session_stats(session_.get());
  const uint64_t room = plan_.spill_raw_bytes + plan_.spill_compressed_bytes;
  const uint64_t stored = std::min(stats.spill_stored_bytes, room);
  return {stats.n_tokens, session_memory(session_.get()).kv_bytes + stored, stats.spill_stored_bytes - stored};
}

std::vector<weir_page_state> DemoLane::pages() const {
  uint32_t n_pages = 0;
  std::vector<weir_page_state> pages(session_stats(session_.get()).n_tokens / plan_.page_tokens + 1);
  check(weir_session_pages(session_.get(), pages.data(), static_cast<uint32_t>(pages.size()), &n_pages),
        "cannot read where pages are");
  pages.resize(n_pages);
  return pages;
}

DemoLanes::DemoLanes(const weir_runtime* runtime, weir_model* model, const std::vector<LaneSetup>& setups)
    : runtime_(runtime) {
  for (const LaneSetup& setup : setups) lanes_.emplace_back(model, setup);
  for (const DemoLane& lane : lanes_) sessions_.push_back(lane.session());
}

uint64_t DemoLanes::count_allocs() const {
  weir_memory_counters counters = WEIR_MEMORY_COUNTERS_INIT;
  check(weir_runtime_memory(runtime_, &counters), "cannot read the runtime's counters");
  return counters.n_allocs + counters.n_device_allocs;
}

bool DemoLanes::note_step(const LanesFn& on_step) {
  for (DemoLane& lane : lanes_) lane.kv_peak_bytes_ = std::max(lane.kv_peak_bytes_, lane.state().kv_bytes);
  return on_step();
}

bool DemoLanes::read(const std::vector<weir_token>& tokens, const LanesFn& on_step) {
  for (auto from = tokens.begin(); from != tokens.end();) {
    const auto end = from + static_cast<ptrdiff_t>(std::min<size_t>(kPart, static_cast<size_t>(tokens.end() - from)));
    for (weir_session* session : sessions_) prefill(session, {from, end});
    if (!note_step(on_step)) return false;
    from = end;
  }
  return true;
}

bool DemoLanes::step(const std::vector<weir_token>& tokens, const LanesFn& on_step) {
  for (weir_token token : tokens) {
    const std::vector<weir_token> each(sessions_.size(), token);
    const uint64_t n_before = count_allocs();
    check(weir_step_many(sessions_.data(), each.data(), static_cast<uint32_t>(each.size())), "cannot step the lanes");
    n_allocs_ += count_allocs() - n_before;
    if (!note_step(on_step)) return false;
  }
  return true;
}

bool DemoLanes::answer(uint32_t max_tokens, uint32_t flags, const LanesFn& on_step) {
  weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
  options.max_tokens = max_tokens;
  options.flags = flags;
  for (DemoLane& lane : lanes_) {
    check(weir_session_begin(lane.session(), &options), "cannot begin an answer");
    lane.text_.clear();
    lane.has_ended_ = false;
  }
  for (uint32_t n_running = 1; n_running > 0;) {
    std::vector<weir_event> events(sessions_.size(), weir_event(WEIR_EVENT_INIT));
    const uint64_t n_before = count_allocs();
    check(weir_next_many(sessions_.data(), events.data(), static_cast<uint32_t>(events.size()), &n_running),
          "cannot step the lanes");
    n_allocs_ += count_allocs() - n_before;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (events[i].text != nullptr) lanes_[i].text_.append(events[i].text, events[i].text_bytes);
      lanes_[i].has_ended_ |= events[i].kind == WEIR_EVENT_END;
    }
    if (!note_step(on_step)) return false;
  }
  return true;
}

bool DemoLanes::go_on(uint32_t n_tokens, const LanesFn& on_step) {
  weir_session* const session = sessions_.back();
  weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
  sampling.temperature = kTemperature;
  check(weir_session_set_sampling(session, &sampling), "cannot set how tokens are drawn");
  weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
  options.flags = WEIR_GENERATE_IGNORE_EOS;
  options.max_tokens = n_tokens;
  check(weir_session_begin(session, &options), "cannot go on");
  for (;;) {
    weir_event event = WEIR_EVENT_INIT;
    const uint64_t n_before = count_allocs();
    check(weir_session_next(session, &event), "cannot go on");
    n_allocs_ += count_allocs() - n_before;
    if (event.kind == WEIR_EVENT_END) return true;
    if (!note_step(on_step)) return false;
  }
}

}  // namespace weir_cli
