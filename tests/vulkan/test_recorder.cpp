// vulkan: the recorder. Where barriers come, that a range that is not declared is refused, copies of every kind, and
// the same bits with a barrier before every command; on the CPU driver, WEIR_TEST_VULKAN_DEVICE.
#include "vulkan/recorder.h"

#include <cstring>
#include <vector>

#include "ops/rms_norm.h"
#include "ops/table.h"
#include "tests/cmocka_cpp.h"
#include "tests/vulkan/device_arrays.h"
#include "vulkan/ops.h"

namespace weir::vulkan {
namespace {

Range range(uint64_t address, uint64_t bytes, bool written) { return {address, bytes, written}; }

bool add(Hazards& h, Range r) { return h.add(&r, 1); }

void hazards__only_where_ranges_meet(void**) {
  Hazards h;
  assert_false(add(h, range(100, 50, false)));
  assert_false(add(h, range(120, 50, false)));  // two reads
  assert_false(add(h, range(170, 10, true)));   // beside both
  assert_false(add(h, range(90, 10, true)));
  assert_true(add(h, range(149, 1, true)));    // writes what is read
  assert_false(add(h, range(100, 49, true)));  // that was before the barrier
  assert_true(add(h, range(149, 1, false)));   // reads what is written
  assert_false(add(h, range(140, 20, false)));
  assert_true(add(h, range(130, 11, true)));
  assert_true(add(h, range(139, 5, true)));  // writes what is written
  h.clear();
  assert_false(add(h, range(139, 5, true)));
  assert_false(add(h, range(139, 0, true)));  // nothing
}

void hazards__make_room_with_a_barrier(void**) {
  Hazards h;
  bool barrier = false;
  uint32_t n = 0;
  for (; !barrier && n < 10000; ++n) barrier = add(h, range(uint64_t{n} * 10, 5, true));
  assert_true(barrier);
  assert_true(add(h, range(uint64_t{n - 1} * 10, 5, false)));  // the one that made room is still known
}

using test::open_context;

constexpr uint32_t kFloats = 1000;

float* allocate(Context& c) {
  void* out = nullptr;
  assert_true(c.memory.allocate(c.device, kFloats * sizeof(float), &out).ok());
  assert_int_equal(reinterpret_cast<uint64_t>(out) % Memory::kAlignment, 0);
  return static_cast<float*>(out);
}

void recorder__refuses_what_is_not_declared(void**) {
  Context& c = open_context();
  float* const x = allocate(c);
  float* const y = allocate(c);
  const auto run = [&](const Touches& t, const RmsNormPush& push) {
    return c.dispatch(Kernel::kRmsNorm, WeightType::kF32, {1}, push, t, {1});
  };
  const auto address = [](const float* p) { return Touches().reads(p, 4); };
  const RmsNormPush push = {address(y), address(x), address(x), 10, 1e-6f, 0};
  Touches all, no_y, no_bytes, outside;
  all.writes(y, 40), all.reads(x, 40);
  assert_true(run(all, push).ok());
  no_y.reads(x, 40);
  assert_int_equal(run(no_y, push).code(), WEIR_ERR_INTERNAL);
  assert_non_null(std::strstr(last_error_text(), "rms_norm declares no range for its address 0"));
  no_bytes.writes(y, 0), no_bytes.reads(x, 40);
  assert_int_equal(run(no_bytes, push).code(), WEIR_ERR_INTERNAL);
  outside.writes(y, 40), outside.reads(x, kFloats * sizeof(float) + 1024 * 1024);
  assert_int_equal(run(outside, push).code(), WEIR_ERR_INTERNAL);
  assert_non_null(std::strstr(last_error_text(), "not in device memory"));
  assert_true(c.recorder.wait(c.device).ok());
  assert_true(c.release(x).ok());
  assert_true(c.release(y).ok());
  assert_int_equal(c.release(y).code(), WEIR_ERR_INTERNAL);
}

// Norms in a chain and beside it: x -> y -> z, and x -> w.
std::vector<float> chain(Context& c, uint64_t& n_barriers) {
  float* rows[4];
  for (float*& row : rows) row = allocate(c);
  std::vector<float> host(kFloats), out(3 * kFloats);
  for (uint32_t i = 0; i < kFloats; ++i) host[i] = static_cast<float>(i % 37) - 17.5f;
  OpContext cx;
  assert_true(c.copy_in(rows[0], host.data(), kFloats * sizeof(float)).ok());
  assert_true(c.recorder.wait(c.device).ok());
  const uint64_t before = c.recorder.n_barriers();
  assert_true(rms_norm(cx, {rows[1], rows[0], rows[0], 1, kFloats, 1e-6f}).ok());
  assert_true(rms_norm(cx, {rows[2], rows[0], rows[0], 2, kFloats / 2, 1e-6f}).ok());
  assert_true(rms_norm(cx, {rows[3], rows[1], rows[0], 4, kFloats / 4, 1e-6f}).ok());
  for (uint32_t i = 0; i < 3; ++i)
    assert_true(c.copy_out(out.data() + i * kFloats, rows[1 + i], kFloats * sizeof(float)).ok());
  assert_true(c.recorder.wait(c.device).ok());
  n_barriers = c.recorder.n_barriers() - before;
  for (float* row : rows) assert_true(c.release(row).ok());
  return out;
}

void recorder__barriers_only_where_needed(void**) {
  Context& c = open_context();
  uint64_t some = 0, all = 0;
  const std::vector<float> want = chain(c, some);
  c.recorder.set_always_barrier(true);
  const std::vector<float> got = chain(c, all);
  c.recorder.set_always_barrier(false);
  assert_int_equal(some, 2);  // before the third norm, and before its row is copied: the first two are done then
  assert_int_equal(all, 6);
  assert_memory_equal(got.data(), want.data(), want.size() * sizeof(float));
}

void recorder__copies_and_fills(void**) {
  Context& c = open_context();
  constexpr uint64_t kBytes = (40u << 20) + 13;  // more than the staging memory holds
  void *a = nullptr, *b = nullptr;
  assert_true(c.memory.allocate(c.device, kBytes, &a).ok());
  assert_true(c.memory.allocate(c.device, kBytes, &b).ok());
  std::vector<uint8_t> host(kBytes), back(kBytes);
  for (uint64_t i = 0; i < kBytes; ++i) host[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
  assert_true(c.copy_in(a, host.data(), kBytes).ok());
  assert_true(c.recorder.copy(c.device, c.memory, b, a, kBytes).ok());
  assert_true(c.copy_out(back.data(), b, kBytes).ok());
  assert_true(c.recorder.wait(c.device).ok());
  assert_true(back == host);
  for (const uint64_t first : {0u, 1u, 3u, 6u}) {
    for (const uint64_t n : {0u, 1u, 2u, 5u, 1000u}) {
      auto* const at = static_cast<std::byte*>(a) + first;
      assert_true(c.recorder.fill(c.device, c.memory, at, 0xA5, n).ok());
      std::fill_n(host.begin() + static_cast<std::ptrdiff_t>(first), n, uint8_t{0xA5});
      assert_true(c.copy_out(back.data(), a, 2000).ok());
      assert_true(c.recorder.wait(c.device).ok());
      assert_memory_equal(back.data(), host.data(), 2000);
    }
  }
  const auto* inside = static_cast<const std::byte*>(a) + 100;
  assert_int_equal(c.copy_out(back.data(), inside, kBytes + 300).code(), WEIR_ERR_INTERNAL);
  assert_int_equal(c.copy_in(back.data(), host.data(), 10).code(), WEIR_ERR_INTERNAL);
  assert_true(c.release(a).ok());
  assert_true(c.release(b).ok());
}

// What was enqueued has run before memory that it uses is gone.
void memory__is_released_after_what_uses_it(void**) {
  Context& c = open_context();
  const std::vector<float> host(kFloats, 2.5f), other(kFloats, 7.0f);
  std::vector<float> back(kFloats), back_staged(kFloats);
  float* const x = allocate(c);
  float* const y = allocate(c);
  void* staged = nullptr;
  assert_true(c.memory.allocate_staging(c.device, kFloats * sizeof(float), 64, &staged).ok());
  std::memcpy(staged, other.data(), kFloats * sizeof(float));
  assert_true(c.copy_in(x, host.data(), kFloats * sizeof(float)).ok());
  assert_true(c.copy_out(back.data(), x, kFloats * sizeof(float)).ok());
  assert_true(c.release(x).ok());
  assert_memory_equal(back.data(), host.data(), kFloats * sizeof(float));
  assert_true(c.copy_in(y, staged, kFloats * sizeof(float)).ok());
  assert_true(c.copy_out(back_staged.data(), y, kFloats * sizeof(float)).ok());
  assert_true(c.release_staging(staged).ok());
  assert_memory_equal(back_staged.data(), other.data(), kFloats * sizeof(float));
  assert_true(c.release(y).ok());
  assert_int_equal(c.release(y).code(), WEIR_ERR_INTERNAL);
}

// The device computes before anybody waits, and what is recorded meanwhile comes after it.
void recorder__starts(void**) {
  Context& c = open_context();
  constexpr uint64_t kBytes = kFloats * sizeof(float);
  const std::vector<float> host(kFloats, 2.5f), other(kFloats, 7.0f);
  std::vector<float> first(kFloats), second(kFloats);
  float* const x = allocate(c);
  void* staged = nullptr;
  assert_true(c.memory.allocate_staging(c.device, kBytes, 64, &staged).ok());
  std::memset(staged, 0, kBytes);
  assert_true(c.recorder.start(c.device).ok());  // nothing
  assert_true(c.copy_in(x, host.data(), kBytes).ok());
  assert_true(c.copy_out(staged, x, kBytes).ok());
  assert_true(c.copy_out(first.data(), x, kBytes).ok());
  assert_true(c.recorder.start(c.device).ok());
  assert_true(c.recorder.start(c.device).ok());
  assert_int_equal(c.device.vk.vkDeviceWaitIdle(c.device.device), VK_SUCCESS);
  assert_memory_equal(staged, host.data(), kBytes);
  assert_true(c.copy_in(x, other.data(), kBytes).ok());
  assert_memory_equal(first.data(), host.data(), kBytes);
  assert_true(c.copy_out(second.data(), x, kBytes).ok());
  assert_true(c.recorder.start(c.device).ok());
  assert_true(c.recorder.wait(c.device).ok());
  assert_memory_equal(second.data(), other.data(), kBytes);
  assert_memory_equal(first.data(), host.data(), kBytes);
  assert_true(c.release_staging(staged).ok());
  assert_true(c.release(x).ok());
}

// y = norm(x), then z = norm(y) in a part of its own: at once, and with another y between the parts. Again and again.
void recorder__parts_of_recorded_work(void**) {
  Context& c = open_context();
  OpContext cx;
  float *const x = allocate(c), *const y = allocate(c), *const z = allocate(c);
  Recorded work;
  assert_true(c.recorder.next_part(c.device).ok());  // nothing is recorded
  assert_true(c.recorder.begin_recording(c.device, 0, work).ok());
  assert_true(rms_norm(cx, {y, x, x, 1, kFloats, 1e-6f}).ok());
  assert_true(c.recorder.next_part(c.device).ok());
  assert_true(rms_norm(cx, {z, y, x, 1, kFloats, 1e-6f}).ok());
  assert_true(c.recorder.end_recording(c.device).ok());
  assert_int_equal(work.n_parts, 2);
  constexpr size_t kBytes = kFloats * sizeof(float);
  std::vector<float> values(kFloats), got(kFloats), want_y(kFloats), want_z(kFloats);
  for (uint32_t turn = 0; turn < 4; ++turn) {
    for (uint32_t i = 0; i < kFloats; ++i) values[i] = static_cast<float>((i + turn) % 29) - 13.5f;
    assert_true(c.copy_in(x, values.data(), kBytes).ok());
    assert_true(rms_norm(cx, {y, x, x, 1, kFloats, 1e-6f}).ok());
    assert_true(c.copy_out(want_y.data(), y, kBytes).ok());
    assert_true(c.recorder.wait(c.device).ok());
    const bool apart = turn % 2 == 1;
    const std::vector<float> other(kFloats, 0.5f + static_cast<float>(turn));
    assert_true(c.copy_in(y, apart ? other.data() : want_y.data(), kBytes).ok());
    assert_true(rms_norm(cx, {z, y, x, 1, kFloats, 1e-6f}).ok());
    assert_true(c.copy_out(want_z.data(), z, kBytes).ok());
    for (float* row : {y, z}) assert_true(c.recorder.fill(c.device, c.memory, row, 0, kBytes).ok());
    if (apart) {
      assert_true(c.recorder.launch_part(c.device, work, 0).ok());
      assert_true(c.copy_out(got.data(), y, kBytes).ok());
      assert_true(c.copy_in(y, other.data(), kBytes).ok());
      assert_true(c.recorder.launch_part(c.device, work, 1).ok());
      assert_memory_equal(got.data(), want_y.data(), kBytes);
    } else {
      assert_true(c.recorder.launch(c.device, work).ok());
    }
    assert_true(c.copy_out(got.data(), z, kBytes).ok());
    assert_true(c.recorder.wait(c.device).ok());
    assert_memory_equal(got.data(), want_z.data(), kBytes);
  }
  c.recorder.destroy(c.device, work);
  Recorded many;
  assert_true(c.recorder.begin_recording(c.device, 0, many).ok());
  for (uint32_t i = 1; i < Recorded::kMaxParts; ++i) assert_true(c.recorder.next_part(c.device).ok());
  assert_int_equal(c.recorder.next_part(c.device).code(), WEIR_ERR_INTERNAL);
  (void)c.recorder.end_recording(c.device);
  c.recorder.destroy(c.device, many);
  for (float* row : {x, y, z}) assert_true(c.release(row).ok());
}

void memory__says_what_is_too_much(void**) {
  Context& c = open_context();
  void* out = &c;
  // With sparse binding one allocation may be larger than the driver's, but not than a buffer.
  assert_int_equal(c.memory.allocate(c.device, c.device.max_allocated() + 1, &out).code(), WEIR_ERR_UNSUPPORTED);
  assert_non_null(std::strstr(last_error_text(), "gives at most"));
  assert_null(out);
  // Another device than the one that is open.
  assert_true(c.open(c.device.index).ok());
  assert_int_equal(c.open(c.device.index + 1).code(), WEIR_ERR_UNSUPPORTED);
  assert_non_null(std::strstr(last_error_text(), c.device.traits.name));
}

}  // namespace
}  // namespace weir::vulkan

int main() {
  using namespace weir::vulkan;
  const CMUnitTest tests[] = {
      cmocka_unit_test(hazards__only_where_ranges_meet),
      cmocka_unit_test(hazards__make_room_with_a_barrier),
      cmocka_unit_test(recorder__refuses_what_is_not_declared),
      cmocka_unit_test(recorder__barriers_only_where_needed),
      cmocka_unit_test(recorder__copies_and_fills),
      cmocka_unit_test(memory__is_released_after_what_uses_it),
      cmocka_unit_test(recorder__starts),
      cmocka_unit_test(recorder__parts_of_recorded_work),
      cmocka_unit_test(memory__says_what_is_too_much),
  };
  return cmocka_run_group_tests_name("vulkan_recorder", tests, nullptr, nullptr);
}
