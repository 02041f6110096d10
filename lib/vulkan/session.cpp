// A session on a Vulkan device. What steps and chunks enqueue is in lib/device; here a step is recorded when the
// session is created (twice if its policy selects pages), and submitted for each token.
#include "vulkan/session.h"

#include <algorithm>
#include <new>

#include "core/clock.h"
#include "device/base_session.h"
#include "vulkan/kv_ranges.h"
#include "vulkan/ops.h"
#include "vulkan/rope_turns.h"
#include "vulkan/vulkan_queue.h"

namespace weir::vulkan {

using device::SessionGroup;

namespace {

// Of a layer's kernels, in recorded work: a few of them take more than push constants hold.
constexpr uint64_t kArgumentsPerLayer = 4096, kOtherArguments = 16384;

// DeviceBuffers::module: partial results of attention or of the best logits, and a row of activations behind them.
uint64_t partial_bytes(const OpShapes& shapes) {
  return align_up(std::max(attn_decode_scratch_bytes(shapes), top_logits_scratch_bytes()), kCacheLine);
}

float* row_in(const DeviceSessionArgs& args) {
  OpShapes shapes;
  shapes.n_heads = args.config->n_heads;
  shapes.head_dim = args.config->head_dim;
  return reinterpret_cast<float*>(args.device.module + partial_bytes(shapes));
}

class VulkanSession final : public device::BaseSession {
 public:
  explicit VulkanSession(const DeviceSessionArgs& args) : BaseSession(args, vulkan_queue_, op_table()) {}
  ~VulkanSession() override;
  Status create();
  Status profile_step(int32_t token, double* seconds) override;
  static Status step_together(DeviceSession* const* sessions, const int32_t* tokens, uint32_t n);

 private:
  Status launch_step(bool selects) override;
  Status record(uint32_t parts, bool selects, Recorded& out);
  Status time_part(uint32_t part, bool selects, double& seconds);

  VulkanQueue vulkan_queue_{a_.cx, row_in(a_)};
  Recorded all_pages_, selected_;
};

VulkanSession::~VulkanSession() {
  const device::Queue::Use use(queue_);
  Context& c = context();
  (void)c.recorder.wait(c.device);
  c.recorder.destroy(c.device, all_pages_);
  c.recorder.destroy(c.device, selected_);
}

Status VulkanSession::create() {
  WEIR_REQUIRE_DEVICE();
  WEIR_TRY(prepare());
  // Instead of radians, which prepare() put there.
  static_assert(sizeof(*a_.host.angles) == sizeof(uint64_t));
  const auto angles = a_.rope->angles();
  turns_of(angles, reinterpret_cast<uint64_t*>(a_.host.angles));
  WEIR_TRY(queue_.copy_in(a_.device.angles, a_.host.angles, angles.size() * sizeof(uint64_t), "copying rotations"));
  WEIR_TRY(queue_.wait("copying rotations"));
  WEIR_TRY(record(device::kAllParts, false, all_pages_));
  return a_.rules.selects ? record(device::kAllParts, true, selected_) : Status();
}

Status VulkanSession::record(uint32_t parts, bool selects, Recorded& out) {
  Context& c = context();
  WEIR_TRY(c.recorder.begin_recording(c.device, a_.config->n_layers * kArgumentsPerLayer + kOtherArguments, out));
  const Status enqueued = enqueue_step(alone(selects, parts));
  const Status ended = c.recorder.end_recording(c.device);
  return enqueued.ok() ? ended : enqueued;
}

// A step that may ask for pages goes part by part: each asks for those of a layer, and the next one finds them there.
Status VulkanSession::launch_step(bool selects) {
  Context& c = context();
  const Recorded& work = selects ? selected_ : all_pages_;
  if (!may_ask()) return c.recorder.launch(c.device, work);
  for (uint32_t part = 0; part < work.n_parts; ++part) {
    if (part != 0) {
      WEIR_TRY(c.recorder.wait(c.device));
      answer_posts();
    }
    WEIR_TRY(c.recorder.launch_part(c.device, work, part));
  }
  return {};
}

// One after the other: each reads the weights by itself.
Status VulkanSession::step_together(DeviceSession* const* sessions, const int32_t* tokens, uint32_t n) {
  SessionGroup group;
  group.n = n;
  for (uint32_t i = 0; i < n; ++i) {
    auto* session = static_cast<VulkanSession*>(sessions[i]);  // the module creates no other class
    group.session[i] = session;
    group.selects[i] = session->selects_now();
  }
  const device::Queue::Use use(static_cast<VulkanSession*>(sessions[0])->queue_);
  WEIR_TRY(open_step(group, tokens));
  Status launched;
  for (uint32_t i = 0; i < n && launched.ok(); ++i)
    launched = static_cast<VulkanSession*>(sessions[i])->launch_step(group.selects[i]);
  return close_step(group, launched);
}

// Steps of one part each, which write where a step writes, beyond the committed tokens.
Status VulkanSession::time_part(uint32_t part, bool selects, double& seconds) {
  constexpr uint32_t kRepeats = 20;
  Context& c = context();
  Recorded work;
  Status status = record(device::part_bit(part), selects, work);
  uint64_t start = 0;
  for (uint32_t i = 0; i <= kRepeats && status.ok(); ++i) {
    if (i == 1) start = now_ns();  // the first one warms up
    status = c.recorder.launch(c.device, work);
    if (status.ok()) status = c.recorder.wait(c.device);
  }
  seconds = static_cast<double>(now_ns() - start) * 1e-9 / kRepeats;
  (void)c.recorder.wait(c.device);
  c.recorder.destroy(c.device, work);
  return status;
}

Status VulkanSession::profile_step(int32_t token, double* seconds) {
  WEIR_REQUIRE_DEVICE();
  // The timed parts append one more token after the step's, so the open page must have room.
  do {
    WEIR_TRY(step(token));
  } while (a_.host.state->n_tokens % kPageTokens == 0);
  const bool selects = selects_now();
  for (uint32_t part = 0; part < kParts; ++part) {
    seconds[part] = 0.0;
    if (part != kPartOther) WEIR_TRY(note(time_part(part, selects, seconds[part])));
  }
  return rebuild_last_digests();  // attention appended a key that is not committed
}

}  // namespace

uint32_t session_bytes() { return sizeof(VulkanSession); }

uint64_t session_device_bytes(const OpShapes& shapes) {
  return partial_bytes(shapes) + uint64_t{shapes.max_cols} * sizeof(float);
}

Status check_session(const ModelConfig& c, const PolicyNeeds& needs, const StepRules& rules) {
  if (needs.pages_per_stream == 0) return {};  // attention on the host
  WEIR_TRY(check_head_dim(c.head_dim));
  if (rules.recalls && needs.pages_per_stream > kMostRecallRows)
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: recall over %u tokens; %u are the most",
                needs.pages_per_stream * kPageTokens, kMostRecallRows * kPageTokens);
  if (rules.recalls && c.n_layers >= Recorded::kMostParts)
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: recall in %u layers; %u are the most", c.n_layers,
                Recorded::kMostParts - 1);
  if (rules.stop_microbatch != 0)
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: the policy psa needs attention on the host (--host-attention)");
  // One counter per page list, and every query head may have a list of its own.
  if (c.n_heads > DeviceBuffers::kCounters / 2)
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: %u heads; %u are the most", c.n_heads, DeviceBuffers::kCounters / 2);
  return {};
}

Status create_session(void* place, const DeviceSessionArgs& args, DeviceSession*& out) {
  auto* session = new (place) VulkanSession(args);
  const Status status = session->create();
  if (!status.ok()) {
    session->~VulkanSession();
    return status;
  }
  out = session;
  return {};
}

Status prepare_many(DeviceSession* const*, uint32_t) { return {}; }

Status step_many(DeviceSession* const* sessions, const int32_t* tokens, uint32_t n) {
  return VulkanSession::step_together(sessions, tokens, n);
}

}  // namespace weir::vulkan
