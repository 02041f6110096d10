// The recogniser: states, and the steps between them.
#include "text/constraint/matcher.h"

#include <algorithm>
#include <cstring>

namespace weir::constraint {

namespace {

// Room of one matcher.
constexpr uint32_t kFrames = 16384, kFrameWords = 65536;
constexpr uint32_t kConfigs = 8192, kConfigWords = 131072;
constexpr uint32_t kSteps = 32768;  // a power of two
// Limits of one state, and of what is looked at for it.
constexpr uint32_t kMaxItems = 4096, kMaxPlaces = 16384, kMaxParents = 16384;
constexpr uint32_t kSeenSlots = 2 * kMaxPlaces;

}  // namespace

Matcher::Matcher(const Grammar& grammar, std::pmr::memory_resource* memory)
    : g_(grammar),
      frames_(memory),
      configs_(memory),
      step_keys_(memory),
      step_values_(memory),
      items_(memory),
      work_(memory),
      seen_(memory),
      seen_stamps_(memory),
      opened_(memory),
      opened_at_(memory),
      rule_stamps_(memory),
      callers_(memory),
      parents_(memory),
      finals_(memory),
      order_(memory),
      list_(memory),
      items_of_frame_(memory),
      marks_(memory),
      way_(memory) {
  frames_.reserve(kFrames, kFrameWords);
  configs_.reserve(kConfigs, kConfigWords);
  step_keys_.resize(kSteps, UINT32_MAX);
  step_values_.resize(kSteps, 0);
  const uint32_t n_rules = std::min(g_.n_rules(), kMaxParents);
  items_.reserve(kMaxItems);
  work_.reserve(kMaxPlaces);
  seen_.resize(kSeenSlots);
  seen_stamps_.resize(kSeenSlots, 0);
  for (PodVector<uint32_t>* v : {&opened_, &callers_, &finals_, &order_}) v->reserve(n_rules);
  opened_at_.resize(g_.n_rules(), 0);
  rule_stamps_.resize(g_.n_rules(), 0);
  parents_.reserve(kMaxParents);
  list_.reserve(std::max(3 * kMaxItems + 1, 2 * kMaxParents));
  items_of_frame_.reserve(kMaxParents);
  marks_.resize(kFrames, 0);
  way_.resize(kMaxTokenBytes + 1, 0);
  clear();
}

// Empties all memory and begins anew.
void Matcher::clear() {
  frames_.clear();
  configs_.clear();
  frames_.find_or_add(nullptr, 0);
  const uint32_t dead = 0;
  configs_.find_or_add(&dead, 1);
  forget_steps();
  is_full_ = false;
  start_ = at_ = follow(g_.rule(g_.root()).start, 0);
}

void Matcher::forget_steps() {
  std::fill(step_keys_.begin(), step_keys_.end(), UINT32_MAX);
  n_steps_ = 0;
}

void Matcher::reset() {
  if (is_full_ || start_ == kDead) return clear();
  at_ = start_;
}

void Matcher::copy_from(const Matcher& other) {
  frames_.copy_from(other.frames_);
  configs_.copy_from(other.configs_);
  at_ = other.at_;
  start_ = other.start_;
  is_full_ = other.is_full_;
  forget_steps();
}

bool Matcher::has_room() const {
  return frames_.has_room(kFrames / 8, kFrameWords / 8) && configs_.has_room(kConfigs / 8, kConfigWords / 8);
}

// Drops all states but the present one, and the lists of callers that it does not need.
void Matcher::collect() {
  list_.clear();
  const std::span<const uint32_t> config = configs_[at_];
  list_.append(config.data(), static_cast<uint32_t>(config.size()));
  std::fill(marks_.begin(), marks_.end(), 0);
  marks_[0] = 1;
  for (uint32_t i = 1; i < list_.size(); i += 3) marks_[list_[i + 2]] = 1;
  for (uint32_t f = frames_.size(); f-- > 0;) {
    if (marks_[f] == 0) continue;
    const std::span<const uint32_t> callers = frames_[f];
    for (size_t i = 0; i < callers.size(); i += 2) marks_[callers[i + 1]] = 1;
  }
  frames_.keep_marked(marks_.data());
  for (uint32_t i = 1; i < list_.size(); i += 3) list_[i + 2] = marks_[list_[i + 2]];
  configs_.clear();
  forget_steps();
  const uint32_t dead = 0;
  configs_.find_or_add(&dead, 1);
  at_ = configs_.find_or_add(list_.data(), list_.size());
  start_ = kDead;  // made anew when it is asked for
}

void Matcher::advance(std::string_view bytes) {
  for (const char c : bytes) {
    if (is_full_ || at_ == kDead) return;
    if (!has_room()) collect();
    at_ = step(at_, static_cast<uint8_t>(c));
    if (!has_room()) {
      collect();
      is_full_ = is_full_ || !has_room();
    }
  }
}

uint32_t Matcher::step(uint32_t config, uint8_t byte) {
  const uint32_t key = config << 8 | byte;
  const uint32_t home = (key * 0x9e3779b1u) >> 17;
  uint32_t at = home;
  while (step_keys_[at] != key && step_keys_[at] != UINT32_MAX) at = (at + 1) % kSteps;
  if (step_keys_[at] == key) return step_values_[at];
  const uint32_t to = compute_step(config, byte);
  if (is_full_) return kDead;
  if (n_steps_ >= kSteps / 4 * 3) {
    forget_steps();
    at = home;
  }
  step_keys_[at] = key;
  step_values_[at] = to;
  ++n_steps_;
  return to;
}

uint32_t Matcher::compute_step(uint32_t config, uint8_t byte) {
  begin_items();
  const std::span<const uint32_t> items = configs_[config];
  for (size_t i = 1; i < items.size(); i += 3) {
    const Item item = {items[i], items[i + 1], items[i + 2]};
    const Edge& edge = g_.edge(item.edge);
    const Terminal& terminal = g_.terminal(edge.what);
    const uint32_t to = g_.step(terminal, item.state, byte);
    if (to == Terminal::kDead) continue;
    if (g_.goes_on(terminal, to)) items_.push_back({item.edge, to, item.frame});
    if (g_.accepts(terminal, to)) put_place(edge.to, item.frame);
  }
  if (items_.empty() && work_.empty()) return kDead;
  return finish_items();
}

uint32_t Matcher::follow(uint32_t node, uint32_t frame) {
  begin_items();
  put_place(node, frame);
  return finish_items();
}

void Matcher::begin_items() {
  complete_ = false;
  items_.clear();
  work_.clear();
  opened_.clear();
  callers_.clear();
  parents_.clear();
  n_seen_ = 0;
  ++stamp_;
}

// A place to look at, once.
void Matcher::put_place(uint32_t node, uint32_t frame) {
  uint32_t at = static_cast<uint32_t>(((uint64_t{node} << 32 | frame) * 0x9e3779b97f4a7c15u) >> 40) % kSeenSlots;
  while (seen_stamps_[at] == stamp_) {
    if (seen_[at].node == node && seen_[at].frame == frame) return;
    at = (at + 1) % kSeenSlots;
  }
  if (n_seen_ == kMaxPlaces || work_.size() == kMaxPlaces) {
    is_full_ = true;
    return;
  }
  ++n_seen_;
  seen_stamps_[at] = stamp_;
  seen_[at] = {node, frame};
  work_.push_back({node, frame});
}

void Matcher::visit(const Place& place) {
  if (g_.is_end(place.node)) {
    if (place.frame == 0) {
      complete_ = true;
    } else if ((place.frame & kOpen) == 0) {  // else the rule has the empty text, and its caller went on without it
      const std::span<const uint32_t> callers = frames_[place.frame];
      for (size_t i = 0; i < callers.size(); i += 2) put_place(callers[i], callers[i + 1]);
    }
  }
  const uint32_t end = g_.first_edge(place.node + 1);
  for (uint32_t i = g_.first_edge(place.node); i < end; ++i) {
    const Edge& edge = g_.edge(i);
    if (edge.kind == Edge::kTerminal) {
      if (items_.size() == kMaxItems) {
        is_full_ = true;
      } else {
        items_.push_back({i, 0, place.frame});
      }
      continue;
    }
    if (edge.kind == Edge::kCall) open_rule(edge.what, {edge.to, place.frame});
    if (edge.kind == Edge::kEmpty || g_.is_nullable(edge.what)) put_place(edge.to, place.frame);
  }
}

// `caller`: where it goes on after the rule. What follows the last call of a rule are the rule's own callers, so that
// lists of any length that are written as a recursion on the right need no memory.
void Matcher::open_rule(uint32_t rule, const Place& caller) {
  if (rule_stamps_[rule] != stamp_) {
    if (opened_.size() == opened_.capacity()) {
      is_full_ = true;
      return;
    }
    rule_stamps_[rule] = stamp_;
    opened_at_[rule] = opened_.size();
    opened_.push_back(rule);
    callers_.push_back(UINT32_MAX);
    put_place(g_.rule(rule).start, kOpen | opened_at_[rule]);
  }
  if (parents_.size() == kMaxParents) {
    is_full_ = true;
    return;
  }
  uint32_t& latest = callers_[opened_at_[rule]];
  const bool is_tail = g_.is_tail(caller.node) && caller.frame != 0;
  parents_.push_back({is_tail ? kTail : caller.node, caller.frame, latest});
  latest = parents_.size() - 1;
}

uint32_t Matcher::finish_items() {
  while (!work_.empty() && !is_full_) {
    const Place place = work_.back();
    work_.pop_back();
    visit(place);
  }
  if (is_full_) return kDead;
  finish_frames();
  if (is_full_) return kDead;
  for (Item& item : items_) item.frame = final_frame(item.frame);
  const auto less = [](const Item& a, const Item& b) {
    return a.edge != b.edge ? a.edge < b.edge : a.state != b.state ? a.state < b.state : a.frame < b.frame;
  };
  std::sort(items_.begin(), items_.end(), less);
  list_.clear();
  list_.push_back(complete_ ? 1 : 0);
  for (uint32_t i = 0; i < items_.size(); ++i) {
    if (i != 0 && std::memcmp(&items_[i], &items_[i - 1], sizeof(Item)) == 0) continue;
    list_.append(&items_[i].edge, 3);
  }
  if (!configs_.has_room(1, list_.size())) is_full_ = true;
  return is_full_ ? kDead : configs_.find_or_add(list_.data(), list_.size());
}

// Callers come before those that they call, so their own lists are final by then.
void Matcher::finish_frames() {
  order_.clear();
  finals_.clear();
  for (uint32_t i = 0; i < opened_.size(); ++i) {
    order_.push_back(i);
    finals_.push_back(0);
  }
  std::sort(order_.begin(), order_.end(),
            [&](uint32_t a, uint32_t b) { return g_.order(opened_[a]) < g_.order(opened_[b]); });
  for (const uint32_t i : order_) {
    if (!is_full_) finish_frame(i);
  }
}

void Matcher::finish_frame(uint32_t opened) {
  items_of_frame_.clear();
  const auto put = [&](uint32_t node, uint32_t frame) {
    if (items_of_frame_.size() == kMaxParents) {
      is_full_ = true;
    } else {
      items_of_frame_.push_back(uint64_t{node} << 32 | frame);
    }
  };
  for (uint32_t i = callers_[opened]; i != UINT32_MAX; i = parents_[i].next) {
    const uint32_t frame = final_frame(parents_[i].frame);
    if (parents_[i].node != kTail) {
      put(parents_[i].node, frame);
      continue;
    }
    const std::span<const uint32_t> theirs = frames_[frame];
    for (size_t k = 0; k < theirs.size(); k += 2) put(theirs[k], theirs[k + 1]);
  }
  std::sort(items_of_frame_.begin(), items_of_frame_.end());
  list_.clear();
  for (uint32_t i = 0; i < items_of_frame_.size(); ++i) {
    if (i != 0 && items_of_frame_[i] == items_of_frame_[i - 1]) continue;
    list_.push_back(static_cast<uint32_t>(items_of_frame_[i] >> 32));
    list_.push_back(static_cast<uint32_t>(items_of_frame_[i]));
  }
  if (!frames_.has_room(1, list_.size())) {
    is_full_ = true;
    return;
  }
  finals_[opened] = frames_.find_or_add(list_.data(), list_.size());
}

}  // namespace weir::constraint
