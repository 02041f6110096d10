// runtime: sessions on a device that are saved and restored, without a device: host_module.cpp computes nothing, but
// its sessions take what the processor saved. What they save is then the same file, also after going back.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "api/handles.h"
#include "host_models.h"
#include "tests/api/saved_bytes.h"

namespace {

using namespace host_models;
using namespace saved_bytes;

constexpr char kSmallModel[] = WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf";
constexpr char kWindowModel[] = WEIR_SOURCE_DIR "/tests/golden/models/gemma3_f32.gguf";

struct Setup {
  const char* policy;
  Options options;
  uint32_t budget;
  uint64_t spill_bytes = 0;
  uint32_t flags = 0;
};

const Setup kSetups[] = {
    {"arkvale", {}, 128},
    {"arkvale", {{"attend", "top"}, {"recall_pages", "0"}, {"recall_from", "4"}}, 128},
    {"arkvale", {{"digest", "cuboid_mean"}, {"agg", "max_raw"}}, 128, 600 << 10},
    {"arkvale", {}, 128, 0, WEIR_SPILL_NO_RAW},
    {"raas", {{"recall", "on"}}, 128},
    {"arkvale", {{"digest", "sketch"}, {"agg", "sum_prob"}}, 128},
    {"dense", {}, 0},
    {"h2o", {{"skip_layers", "1"}}, 128},
    {"quest", {{"skip_layers", "0"}, {"digest", "mean_std"}}, 96},
};
constexpr size_t kRecalling = 6;  // the first

Session open_session(const Models& m, const Setup& s, int32_t device) {
  weir_session_options o = WEIR_SESSION_OPTIONS_INIT;
  o.device = device;
  o.context_tokens = 1024;
  o.batch_tokens = 64;
  o.policy = s.policy;
  o.policy_options = s.options.data();
  o.n_policy_options = static_cast<uint32_t>(s.options.size());
  o.budget_tokens = s.budget;
  o.spill_budget_bytes = s.spill_bytes;
  o.spill_flags = s.flags;
  weir_session* session = nullptr;
  assert_ok(weir_session_create(m.model, &o, &session));
  return Session(session);
}

void converse(const Session& session) {
  std::vector<weir_token> prompt;
  for (uint32_t i = 0; i < 150; ++i) prompt.push_back(token(i));
  assert_ok(weir_session_prefill(session.get(), prompt.data(), 150, nullptr, nullptr));
  for (uint32_t i = 0; i < 85; ++i) assert_ok(weir_session_step(session.get(), token(i * 7)));
}

weir_session_stats stats_of(const Session& session) {
  weir_session_stats stats = WEIR_SESSION_STATS_INIT;
  assert_ok(weir_session_get_stats(session.get(), &stats));
  return stats;
}

void assert_same(const Session& host, const Session& device, const char* policy, const char* when) {
  const weir_session_stats a = stats_of(host), b = stats_of(device);
  if (a.n_tokens != b.n_tokens || a.pages_resident != b.pages_resident || a.pages_cold != b.pages_cold)
    fail_msg("%s, %s: other counters", policy, when);
  if (saved(host) != saved(device)) fail_msg("%s, %s: another file", policy, when);
}

// Both take the same file, go back, and are still the same.
void device_save__the_file_is_that_of_the_processor(void**) {
  for (const char* path : {kSmallModel, kWindowModel}) {
    const Models m(path);
    for (const Setup& s : kSetups) {
      const Session whole = open_session(m, s, WEIR_DEVICE_CPU), host = open_session(m, s, WEIR_DEVICE_CPU),
                    device = open_session(m, s, WEIR_DEVICE_CUDA);
      assert_ok(try_restore(device, saved(whole)));  // nothing
      assert_same(whole, device, s.policy, "empty");
      converse(whole);
      const File file = saved(whole);
      for (const uint32_t cut : {235u, 230u, 224u, 100u, 16u, 3u, 0u}) {
        assert_ok(try_restore(host, file));
        assert_ok(try_restore(device, file));
        assert_same(whole, device, s.policy, "restored");
        const float *a = nullptr, *b = nullptr;
        uint32_t n = 0;
        assert_ok(weir_session_logits(whole.get(), &a, &n));
        assert_ok(weir_session_logits(device.get(), &b, &n));
        assert_memory_equal(a, b, n * sizeof(float));
        const weir_status back = weir_session_rewind(host.get(), cut, 0);
        assert_int_equal(weir_session_rewind(device.get(), cut, 0), back);
        assert_same(host, device, s.policy, ("back to " + std::to_string(cut)).c_str());
      }
      assert_ok(try_restore(device, file));
      weir_session* handle = nullptr;
      assert_ok(weir_session_fork(device.get(), &handle));
      const Session fork(handle);
      assert_same(whole, fork, s.policy, "a fork");
      assert_ok(try_restore(host, saved(fork)));
      for (uint32_t i = 0; i < 20; ++i) {
        assert_ok(weir_session_step(whole.get(), token(i)));
        assert_ok(weir_session_step(host.get(), token(i)));
      }
      assert_same(whole, host, s.policy, "home again");
    }
  }
}

// Smaller stores drop the same pages on both, and a store that had lost pages keeps losing them.
void device_save__smaller_stores(void**) {
  const Models m(kSmallModel);
  for (size_t i = 0; i < kRecalling; ++i) {
    Setup s = kSetups[i];
    s.spill_bytes = 0;
    const Session whole = open_session(m, s, WEIR_DEVICE_CPU);
    converse(whole);
    const File file = saved(whole);
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    plan = whole->plan_info();
    s.spill_bytes = uint64_t{plan.n_streams} * 8 * (plan.page_bytes + 512);
    const Session host = open_session(m, s, WEIR_DEVICE_CPU), device = open_session(m, s, WEIR_DEVICE_CUDA);
    assert_ok(try_restore(host, file));
    assert_ok(try_restore(device, file));
    assert_true(stats_of(device).pages_dropped > 0);
    assert_int_equal(stats_of(device).pages_dropped, stats_of(host).pages_dropped);
    assert_int_equal(stats_of(device).pages_cold, stats_of(host).pages_cold);
    // The digests of lost pages are spoilt when the tables are put on the device.
    for (const Session* session : {&host, &device}) {
      assert_ok(weir_session_rewind(session->get(), 234, WEIR_REWIND_LOSSY));
    }
    assert_same(host, device, s.policy, "a smaller store");
    const Session again = open_session(m, s, WEIR_DEVICE_CUDA);
    const File lossy = saved(device);
    assert_ok(try_restore(again, lossy));
    if (saved(again) != lossy) fail_msg("%s: another file of what is lost", s.policy);
    s.flags |= WEIR_SPILL_STRICT;
    const Session strict = open_session(m, s, WEIR_DEVICE_CUDA);
    assert_int_equal(try_restore(strict, file), WEIR_ERR_BUDGET);
    assert_int_equal(stats_of(strict).n_tokens + stats_of(strict).pages_resident + stats_of(strict).pages_cold, 0);
    assert_int_equal(stats_of(strict).spill_stored_bytes, 0);
  }
}

// Copies that are damaged when the session is saved.
void device_save__damaged_copies(void**) {
  const Models m(kSmallModel);
  for (const Setup& s : {kSetups[3], Setup{"raas", {{"recall", "on"}}, 128, 0, WEIR_SPILL_NO_RAW}}) {
    const Session whole = open_session(m, s, WEIR_DEVICE_CPU);
    converse(whole);
    const File file = saved(whole);
    const Session host = open_session(m, s, WEIR_DEVICE_CPU), device = open_session(m, s, WEIR_DEVICE_CUDA);
    for (const Session* session : {&host, &device}) {
      assert_ok(try_restore(*session, file));
      auto& store = const_cast<weir::SpillStore&>((*session)->store());
      store.drain();
      const std::span<std::byte> cells = store.cells_memory();
      for (size_t i = 0; i < cells.size(); ++i) {
        if (i % weir::SpillCells::kCellBytes >= 32) cells[i] ^= std::byte{0x10};
      }
    }
    (void)saved(host);
    (void)saved(device);
    assert_true(stats_of(device).pages_dropped > 0);
    assert_int_equal(stats_of(device).pages_dropped, stats_of(host).pages_dropped);
    assert_ok(weir_session_rewind(host.get(), 234, WEIR_REWIND_LOSSY));
    assert_ok(weir_session_rewind(device.get(), 234, WEIR_REWIND_LOSSY));
    assert_same(host, device, s.policy, "damaged");
  }
}

// A file that is cut leaves nothing.
void device_save__files_that_are_cut(void**) {
  const Models m(kSmallModel);
  for (const Setup& s : kSetups) {
    const Session whole = open_session(m, s, WEIR_DEVICE_CPU), device = open_session(m, s, WEIR_DEVICE_CUDA);
    const File empty = saved(device);
    converse(whole);
    const File file = saved(whole);
    for (size_t part = 0; part < 64; ++part) {
      const File cut(file.begin(), file.begin() + static_cast<ptrdiff_t>(file.size() * part / 64));
      assert_int_equal(try_restore(device, cut), WEIR_ERR_FORMAT);
      const weir_session_stats stats = stats_of(device);
      assert_int_equal(stats.n_tokens + stats.pages_resident + stats.pages_cold + stats.spill_stored_bytes, 0);
      if (part % 8 == 7 && saved(device) != empty) fail_msg("%s: cut at %zu/64", s.policy, part);
    }
    assert_ok(try_restore(device, file));
    assert_same(whole, device, s.policy, "after files that were cut");
    assert_ok(weir_session_reset(device.get()));
    assert_int_equal(stats_of(device).spill_stored_bytes, 0);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(device_save__the_file_is_that_of_the_processor),
      cmocka_unit_test(device_save__smaller_stores),
      cmocka_unit_test(device_save__damaged_copies),
      cmocka_unit_test(device_save__files_that_are_cut),
  };
  return cmocka_run_group_tests_name("runtime_device_save", tests, nullptr, nullptr);
}
