// Recorded steps of groups of sessions, which the first session of a group keeps, its leader.
//
// A recording is valid for these sessions in this order, and for the set of them that selects pages. Preparing the
// first step of a group records it; later steps find it among the few that the leader keeps. A call of the application
// prepares all its groups before any of them steps. Each group has another leader, so no recording displaces one of the
// same call. Recordings take the driver's memory, none of the library's.
#pragma once

#include <algorithm>

#include "device/base_session.h"

namespace weir::device {

// Serial numbers are never reused, so a recording that contains a destroyed session is never found again.
struct JointKey {
  explicit JointKey(const SessionGroup& group) {
    for (uint32_t i = 0; i < group.n; ++i) {
      serial[i] = group.session[i]->serial();
      selects |= (group.selects[i] ? 1u : 0u) << i;
    }
  }
  JointKey() = default;
  bool operator==(const JointKey&) const = default;

  uint64_t serial[kMaxTogether] = {};  // in the order of the group; 0 after the last
  uint32_t selects = 0;                // one bit per session
};

template <class Recording>
class JointSteps {
 public:
  // The group's recording, or null.
  const Recording* find(const JointKey& key) {
    for (Kept& kept : kept_) {
      if (kept.last_use == 0 || kept.key != key) continue;
      kept.last_use = ++n_uses_;
      return &kept.recording;
    }
    return nullptr;
  }
  // `destroy(recording)` for the one that was not used for longest, if all places are taken.
  template <class Destroy>
  void keep(const JointKey& key, const Recording& made, const Destroy& destroy) {
    Kept& place = *std::min_element(std::begin(kept_), std::end(kept_),
                                    [](const Kept& a, const Kept& b) { return a.last_use < b.last_use; });
    if (place.last_use != 0) destroy(place.recording);
    place = {key, made, ++n_uses_};
  }
  template <class Destroy>
  void clear(const Destroy& destroy) {
    for (Kept& kept : kept_) {
      if (kept.last_use != 0) destroy(kept.recording);
      kept = {};
    }
  }

 private:
  struct Kept {
    JointKey key;
    Recording recording = {};
    uint64_t last_use = 0;  // 0: never
  };
  Kept kept_[4];
  uint64_t n_uses_ = 0;
};

}  // namespace weir::device
