// How a prompt is cut, so that no submission runs long: operating systems end work of a GPU that takes some two
// seconds, and a cancelled prompt ends between submissions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weir::vulkan {

class Pace {
 public:
  // What a submission should take, and a layer at most. Chunks never have fewer rows than the last constant.
  static constexpr uint64_t kSubmissionNs = 50'000'000, kLayerNs = 500'000'000;
  static constexpr uint32_t kMinRows = 64;

  // A chunk begins.
  void begin() { n_layers_ = 0; }
  // A layer was enqueued: whether to submit it now and wait. A device whose speed is unknown begins with one layer.
  bool is_due() {
    ++n_layers_;
    return layer_ns_ == 0 || (n_layers_ + 1) * layer_ns_ > kSubmissionNs;
  }
  // What was due, in a chunk of n_rows, took `ns`. After a slow layer later chunks have half the rows.
  void took(uint64_t ns, uint32_t n_rows) {
    layer_ns_ = std::max<uint64_t>(ns / std::max(n_layers_, 1u), 1);
    n_layers_ = 0;
    if (layer_ns_ > kLayerNs) max_rows_ = std::min(max_rows_, std::max(n_rows / 2, kMinRows));
  }
  uint32_t max_rows() const { return max_rows_; }

 private:
  uint64_t layer_ns_ = 0;  // of the latest submission; 0: unknown
  uint32_t n_layers_ = 0;  // since then
  uint32_t max_rows_ = UINT32_MAX;
};

}  // namespace weir::vulkan
