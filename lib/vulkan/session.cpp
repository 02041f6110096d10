// A session on a Vulkan device. What steps and chunks enqueue is in lib/device; here a step is recorded when the
// session is created (twice if its policy selects pages), and submitted for each token. Sessions that step together
// have a recording of their own (lib/device/joint_steps.h), which reads the weights once for all of them.
#include "vulkan/session.h"

#include <algorithm>
#include <new>

#include "core/clock.h"
#include "device/joint_steps.h"
#include "ops/table.h"
#include "policy/policy.h"
#include "shaders/decode.h"
#include "vulkan/kv_ranges.h"
#include "vulkan/ops.h"
#include "vulkan/ops_recurrent.h"
#include "vulkan/rope_turns.h"
#include "vulkan/step_gemv.h"
#include "vulkan/vulkan_queue.h"

namespace weir::vulkan {

using device::SessionGroup;

namespace {

// Room for arguments of a layer's kernels in recorded work: a few of them take more than push constants hold.
constexpr uint64_t kArgumentsPerLayer = 4096, kOtherArguments = 16384;

// DeviceBuffers::module: what no two kernels need at the same time, and a row of activations behind it. The first part
// has partial results of attention or of the best logits, or the inputs of sessions that step together.
uint64_t shared_bytes(const OpShapes& shapes) {
  return align_up(
      std::max({attn_decode_scratch_bytes(shapes), top_logits_scratch_bytes(), packed_bytes(shapes.max_cols)}),
      kCacheLine);
}

float* row_in(const DeviceSessionArgs& args) {
  OpShapes shapes;
  shapes.n_heads = args.config->n_heads;
  shapes.head_dim = args.config->head_dim;
  shapes.max_cols = args.config->max_cols();
  return reinterpret_cast<float*>(args.device.module + shared_bytes(shapes));
}

class VulkanSession final : public device::BaseSession {
 public:
  explicit VulkanSession(const DeviceSessionArgs& args) : BaseSession(args, vulkan_queue_, op_table()) {}
  ~VulkanSession() override;
  Status create();
  Status profile_step(int32_t token, double* seconds) override;
  using BaseSession::together;
  // DeviceModule::prepare_many and step_many, called on the group's leader.
  Status prepare_together(const SessionGroup& group);
  Status step_together(const SessionGroup& group, const int32_t* tokens);

 private:
  Status launch_step(bool selects) override;
  bool steps_as_one(const SessionGroup& group) const;
  // Makes the pipelines of a step.
  Status make_pipelines(const SessionGroup& group);
  Status record(const SessionGroup& group, Recorded& out);
  Status time_part(uint32_t part, bool selects, double& seconds);

  VulkanQueue vulkan_queue_{a_.cx, row_in(a_), a_.device.module};
  bool reads_weights_once_ = false;  // for a group
  Recorded all_pages_, selected_;
  device::JointSteps<Recorded> joint_;  // of groups that this session leads
};

VulkanSession::~VulkanSession() {
  const device::Queue::Use use(queue_);
  Context& c = context();
  (void)c.recorder.wait(c.device);
  c.recorder.destroy(c.device, all_pages_);
  c.recorder.destroy(c.device, selected_);
  joint_.clear([&](Recorded& work) { c.recorder.destroy(c.device, work); });
}

Status VulkanSession::create() {
  WEIR_REQUIRE_DEVICE();
  reads_weights_once_ = most_have_step_gemv(*a_.weights);
  WEIR_TRY(prepare());
  // Instead of radians, which prepare() put there.
  static_assert(sizeof(*a_.host.angles) == sizeof(uint64_t));
  const auto angles = a_.rope->angles();
  turns_of(angles, reinterpret_cast<uint64_t*>(a_.host.angles));
  WEIR_TRY(queue_.copy_in(a_.device.angles, a_.host.angles, angles.size() * sizeof(uint64_t), "copying rotations"));
  WEIR_TRY(queue_.wait("copying rotations"));
  WEIR_TRY(make_pipelines(alone(false, device::kAllParts)));
  if (a_.rules.selects) WEIR_TRY(make_pipelines(alone(true, device::kAllParts)));
  WEIR_TRY(record(alone(false, device::kAllParts), all_pages_));
  return a_.rules.selects ? record(alone(true, device::kAllParts), selected_) : Status();
}

Status VulkanSession::make_pipelines(const SessionGroup& group) {
  Context& c = context();
  c.recorder.begin_noting();
  Status enqueued = enqueue_step(group);
  if (enqueued.ok() && digests_behind_steps()) enqueued = enqueue_digests();
  c.recorder.end_noting();
  if (enqueued.ok()) return c.pipelines.make_noted(c.device);
  c.pipelines.forget_noted();
  return enqueued;
}

Status VulkanSession::record(const SessionGroup& group, Recorded& out) {
  Context& c = context();
  const uint64_t argument_bytes = group.n * (a_.config->n_layers * kArgumentsPerLayer + kOtherArguments);
  WEIR_TRY(c.recorder.begin_recording(c.device, argument_bytes, out));
  const Status enqueued = enqueue_step(group);
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

// Sessions that recall step one after the other: each of their layers may be a part of its own, for whose pages the
// host is asked. So do those whose weights would be read for each of them anyway: one submission of all their steps
// might take as long as an operating system lets a GPU work.
bool VulkanSession::steps_as_one(const SessionGroup& group) const {
  return group.n > 1 && reads_weights_once_ &&
         std::none_of(group.session, group.session + group.n,
                      [](const device::BaseSession* session) { return session->recalls(); });
}

Status VulkanSession::prepare_together(const SessionGroup& group) {
  const device::Queue::Use use(queue_);
  const device::JointKey key(group);
  if (!steps_as_one(group) || joint_.find(key) != nullptr) return {};
  Context& c = context();
  const auto destroy = [&](Recorded& work) { c.recorder.destroy(c.device, work); };
  WEIR_TRY(note_all(group, c.recorder.wait(c.device)));  // what is displaced may have been launched
  Recorded made;
  Status status = make_pipelines(group);
  if (status.ok()) status = record(group, made);
  if (!status.ok()) {
    destroy(made);
    return note_all(group, status);
  }
  joint_.keep(key, made, destroy);
  return {};
}

Status VulkanSession::step_together(const SessionGroup& group, const int32_t* tokens) {
  const device::Queue::Use use(queue_);
  Context& c = context();
  const bool as_one = steps_as_one(group);
  const Recorded* const joint = as_one ? joint_.find(device::JointKey(group)) : nullptr;
  if (as_one && joint == nullptr) return fail(WEIR_ERR_INTERNAL, "a step of %u sessions was not prepared", group.n);
  WEIR_TRY(open_step(group, tokens));
  Status launched;
  if (as_one) launched = c.recorder.launch(c.device, *joint);
  for (uint32_t i = 0; !as_one && i < group.n && launched.ok(); ++i)
    launched = static_cast<VulkanSession*>(group.session[i])->launch_step(group.selects[i]);
  return close_step(group, launched);
}

// Steps of one part each, which write where a step writes, beyond the committed tokens.
Status VulkanSession::time_part(uint32_t part, bool selects, double& seconds) {
  constexpr uint32_t kRepeats = 20;
  Context& c = context();
  Recorded work;
  Status status = record(alone(selects, device::part_bit(part)), work);
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
  return shared_bytes(shapes) + uint64_t{shapes.max_cols} * sizeof(float);
}

Status check_session(const ModelConfig& c, const PolicyNeeds& needs, const StepRules& rules) {
  if (needs.pages_per_stream == 0) return {};  // attention on the host
  WEIR_TRY(check_head_dim(c.head_dim));
  const RecurrentShape& r = c.recurrent;
  if (r.n_heads != 0) WEIR_TRY(check_recurrent("recurrent layers", r.key_dim, r.value_dim, r.n_taps));
  if (rules.recalls && needs.pages_per_stream > kMaxRecallRows)
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: recall over %u tokens; %u are the most",
                needs.pages_per_stream * kPageTokens, kMaxRecallRows * kPageTokens);
  if (rules.recalls && c.n_kv_layers >= Recorded::kMaxParts)
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: recall in %u layers; %u are the most", c.n_kv_layers,
                Recorded::kMaxParts - 1);
  if (rules.stop_microbatch != 0 && !attn_stop_has_shape(c.n_heads, c.n_kv_heads))
    return fail(WEIR_ERR_UNSUPPORTED,
                "Vulkan: attention that stops by itself needs groups of up to %u query heads, not %u; attention on the "
                "host takes larger ones (WEIR_SESSION_HOST_ATTENTION)",
                kMaxStopHeads, c.n_heads / c.n_kv_heads);
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

Status prepare_many(DeviceSession* const* sessions, uint32_t n) {
  return static_cast<VulkanSession*>(sessions[0])->prepare_together(VulkanSession::together(sessions, n));
}

Status step_many(DeviceSession* const* sessions, const int32_t* tokens, uint32_t n) {
  return static_cast<VulkanSession*>(sessions[0])->step_together(VulkanSession::together(sessions, n), tokens);
}

}  // namespace weir::vulkan
