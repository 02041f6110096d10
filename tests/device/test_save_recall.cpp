// device: sessions that recall pages, saved and restored, and stores that are damaged while they run. On the GPU, and
// with the same checks on the processor, so that they are known to be right where there is no GPU.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/api/saved_bytes.h"
#include "tests/device/recall_session.h"

namespace {

using namespace recall_session;
using namespace saved_bytes;

constexpr uint32_t kPrompt = 200;
const Options kNone, kStamps = {{"recall", "on"}};

std::vector<int32_t> devices() {
  std::vector<int32_t> list = {WEIR_DEVICE_CPU};
  if (why_no_gpu()[0] == '\0') list.push_back(test_device());
  return list;
}

const char* name_of(int32_t device) { return device == test_device() ? "on the GPU" : "on the processor"; }

void restore(const Session& session, const File& file) { assert_ok(try_restore(session, file)); }

void steps(const Session& session, uint32_t first, uint32_t n) {
  for (uint32_t i = first; i < first + n; ++i) assert_ok(weir_session_step(session.get(), token(i)));
}

// A conversation with prompts, steps and, where the policy has room for it, a pin; cut in the middle of a page.
void converse(const Session& session) {
  prefill(session, 0, kPrompt);
  steps(session, kPrompt, steps_at_most(150));
  const weir_status pinned = weir_session_pin(session.get(), 3, 20);
  assert_true(pinned == WEIR_OK || pinned == WEIR_ERR_BUDGET);
  prefill(session, 900, 77);
  steps(session, 1000, 25);
}

void assert_same_logits(const Session& a, const Session& b, const char* what, const char* when) {
  const std::vector<float> x = logits_of(a), y = logits_of(b);
  if (std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) != 0) fail_msg("%s: logits differ %s", what, when);
}

// Both draw the same tokens and compute the same logits.
void go_on(const Session& a, const Session& b, uint32_t n, const char* what) {
  n = a->plan_info().device == WEIR_DEVICE_CPU ? n / 3 : n;  // tests/api/test_save.c takes more
  assert_same_logits(a, b, what, "at first");
  for (uint32_t i = 0; i < n; ++i) {
    weir_token x = -1, y = -1;
    assert_ok(weir_session_sample(a.get(), &x));
    assert_ok(weir_session_sample(b.get(), &y));
    if (x != y) fail_msg("%s: step %u draws %d and %d", what, i, x, y);
    assert_ok(weir_session_step(a.get(), x));
    assert_ok(weir_session_step(b.get(), y));
    if (i % 5 == 0) assert_same_logits(a, b, what, "after steps");
  }
  prefill(a, 300, 90);
  prefill(b, 300, 90);
  assert_same_logits(a, b, what, "after a prompt");
  steps(a, 50, 20);
  steps(b, 50, 20);
  assert_same_logits(a, b, what, "at last");
}

const weir_sampling_options kSeeded = {
    sizeof(weir_sampling_options), 20, 0.8f, 0.95f, 0.01f, 1.2f, 100, 0, 12345, 0, 0, nullptr, 0, 0};

// Raw pages only, compressed pages only, and what the options have by default; stores that become full have their own
// test.
struct Store {
  const char* name;
  uint64_t bytes;
  uint32_t flags;
};
constexpr Store kStores[] = {{"default", 0, 0},
                             {"compressed", 0, WEIR_SPILL_NO_RAW},
                             {"raw", uint64_t{400} << 20, 0},
                             {"mixed", uint64_t{4} << 20, 0}};

struct Choice {
  const char* policy;
  const Options& options;
  uint32_t budget;
};
const Choice kChoices[] = {
    {"arkvale", kTop, 12 * 16}, {"arkvale", kNone, 160}, {"raas", kStamps, 256}, {"hybrid", kStamps, 256}};

// Saved, restored and continued is as never stopped, in a store of the same parts or of others; what is saved again is
// the same file.
void save_recall__goes_on_as_if_it_had_never_stopped(void**) {
  fixture f;
  open_gpu_fixture(&f);
  for (const int32_t device : devices()) {
    for (const Choice& c : kChoices) {
      for (uint32_t from = 0; from < 4; ++from) {
        const bool seeded = from % 2 == 1;
        if (device == WEIR_DEVICE_CPU && from % 3 != 0)
          continue;  // the fewest: default to compressed, mixed to default
        const Setup setup = {c.policy, c.options, c.budget, kStores[from].bytes, 64, device, kStores[from].flags};
        const Session whole = open_session(f, setup);
        assert_ok(weir_session_set_sampling(whole.get(), seeded ? &kSeeded : nullptr));
        converse(whole);
        const weir_session_stats stats = stats_of(whole);
        assert_true(stats.pages_cold > 0 && stats.pages_recalled > 0 && stats.pages_dropped == 0);
        const File file = saved(whole);
        for (const uint32_t to : {from, (from + 1) % 4}) {
          char what[160];
          std::snprintf(what, sizeof(what), "%s %s, %s to %s store", c.policy, name_of(device), kStores[from].name,
                        kStores[to].name);
          const Setup other = {c.policy, c.options, c.budget, kStores[to].bytes, 64, device, kStores[to].flags};
          const Session resumed = open_session(f, other);
          prefill(resumed, 40, 150);  // what it had is replaced
          steps(resumed, 0, 40);
          restore(resumed, file);
          assert_int_equal(stats_of(resumed).n_tokens, stats.n_tokens);
          assert_int_equal(stats_of(resumed).pages_cold, stats.pages_cold);
          assert_int_equal(stats_of(resumed).pages_resident, stats.pages_resident);
          check_tables(resumed);
          if (to == from && saved(resumed) != file) fail_msg("%s: saved again, the file is another", what);
          weir_session* handle = nullptr;
          assert_ok(weir_session_fork(whole.get(), &handle));
          const Session fork(handle);
          if (saved(fork) != file) fail_msg("%s: the file of a fork is another", what);
          go_on(fork, resumed, 60, what);
          check_tables(resumed);
        }
        // Saving has changed nothing.
        const Session again = open_session(f, setup);
        restore(again, file);
        go_on(whole, again, 20, "after saving");
      }
    }
  }
  close_gpu_fixture(&f);
}

// A rewind after a restore finds the cold pages. When all that is wanted comes back, it leads to the bits of never
// having gone.
void save_recall__can_be_rewound(void**) {
  fixture f;
  open_gpu_fixture(&f);
  for (const int32_t device : devices()) {
    for (const uint32_t flags : {0u, uint32_t{WEIR_SPILL_NO_RAW}}) {
      const Setup setup = {"arkvale", kTop, 9 * 16, 0, 64, device, flags};
      const Session whole = open_session(f, setup), resumed = open_session(f, setup);
      prefill(whole, 0, kPrompt);
      steps(whole, kPrompt, 60);
      const File file = saved(whole);
      steps(whole, 7, 70);
      restore(resumed, file);
      for (const Session* s : {&whole, &resumed}) {
        assert_ok(weir_session_rewind(s->get(), kPrompt + 13, 0));
        check_tables(*s);
        steps(*s, 77, 30);
      }
      assert_same_logits(whole, resumed, name_of(device), "after a rewind");
    }
  }
  close_gpu_fixture(&f);
}

// What one device saved is the same file when the other saves it again.
void save_recall__moves_between_devices(void**) {
  NEED_GPU();
  fixture f;
  open_gpu_fixture(&f);
  for (const Choice& c : kChoices) {
    for (const int32_t from : {int32_t{WEIR_DEVICE_CPU}, test_device()}) {
      const int32_t to = from == WEIR_DEVICE_CPU ? test_device() : WEIR_DEVICE_CPU;
      const Session whole = open_session(f, {c.policy, c.options, c.budget, uint64_t{4} << 20, 64, from});
      const Session moved = open_session(f, {c.policy, c.options, c.budget, uint64_t{4} << 20, 64, to});
      converse(whole);
      const File file = saved(whole);
      restore(moved, file);
      if (saved(moved) != file) fail_msg("%s: the file of the other device is another", c.policy);
      check_tables(moved);
      assert_same_logits(whole, moved, c.policy, "after moving");
      for (const Session* s : {&whole, &moved}) steps(*s, 400, 1);
      const std::vector<float> a = logits_of(whole), b = logits_of(moved);
      const double apart = logits_apart(a.data(), b.data(), static_cast<uint32_t>(a.size()));
      print_message("%s, moved to %s: the next logits are %.5f apart\n", c.policy, name_of(to), apart);
      steps(moved, 401, 60);
      for (const float x : logits_of(moved)) assert_true(std::isfinite(x));
      check_tables(moved);
    }
  }
  close_gpu_fixture(&f);
}

// Lost pages stay lost, a smaller store loses more and counts them, and a strict one refuses.
void save_recall__full_stores(void**) {
  fixture f;
  open_gpu_fixture(&f);
  for (const int32_t device : devices()) {
    const Setup small = {"arkvale", kNone, 128, 400 << 10, 64, device};
    const Session lossy = open_session(f, small), again = open_session(f, small);
    converse(lossy);
    assert_true(stats_of(lossy).pages_dropped > 0);
    const File file = saved(lossy);
    restore(again, file);
    assert_int_equal(stats_of(again).pages_dropped, stats_of(lossy).pages_dropped);
    check_tables(again);
    if (saved(again) != file) fail_msg("a full store %s: saved again, the file is another", name_of(device));
    go_on(lossy, again, 30, "a full store");
    assert_int_equal(stats_of(again).pages_dropped, stats_of(lossy).pages_dropped);

    const Session large = open_session(f, {"arkvale", kNone, 128, 0, 64, device});
    converse(large);
    const File all = saved(large);
    const uint64_t before = stats_of(again).pages_dropped;
    restore(again, all);
    const weir_session_stats got = stats_of(again);
    assert_true(got.pages_dropped > before);
    assert_int_equal(got.pages_cold + got.pages_dropped - before, stats_of(large).pages_cold);
    check_tables(again);
    steps(again, 20, 40);
    for (const float x : logits_of(again)) assert_true(std::isfinite(x));

    const Session strict = open_session(f, {"arkvale", kNone, 128, 400 << 10, 64, device, WEIR_SPILL_STRICT});
    prefill(strict, 0, 40);
    assert_int_equal(try_restore(strict, all), WEIR_ERR_BUDGET);
    assert_int_equal(stats_of(strict).n_tokens + stats_of(strict).pages_cold + stats_of(strict).pages_resident, 0);
    assert_int_equal(stats_of(strict).spill_stored_bytes, 0);
    const Session wide = open_session(f, {"arkvale", kNone, 128, 0, 64, device, WEIR_SPILL_STRICT});
    restore(wide, all);
    go_on(large, wide, 20, "a strict store");
    restore(wide, file);
    assert_error(weir_session_step(wide.get(), token(1)), WEIR_ERR_IO, "since before the conversation was saved");
  }
  close_gpu_fixture(&f);
}

// A session that is reset gives back all copies, those of pages that steps have filled too.
void save_recall__a_reset_empties_the_store(void**) {
  fixture f;
  open_gpu_fixture(&f);
  for (const int32_t device : devices()) {
    const Session session = open_session(f, {"arkvale", kTop, 9 * 16, 0, 64, device});
    prefill(session, 0, kPrompt);
    steps(session, kPrompt, 90);
    assert_true(stats_of(session).spill_stored_bytes > 0);
    assert_ok(weir_session_reset(session.get()));
    assert_int_equal(stats_of(session).spill_stored_bytes, 0);
    assert_int_equal(session->store().stats().pages_held, 0);
  }
  close_gpu_fixture(&f);
}

// --- damage --------------------------------------------------------------------------------------------------------

// Changes all compressed pages; the links between their cells stay.
void damage(const Session& session) {
  auto& store = const_cast<weir::SpillStore&>(session->store());
  store.drain();
  const std::span<std::byte> cells = store.cells_memory();
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i % weir::SpillCells::kCellBytes >= 32) cells[i] ^= std::byte{0x10};
  }
}

Setup damaged_setup(int32_t device, uint32_t flags) {
  return {"arkvale", kTop, 9 * 16, 0, 64, device, flags | WEIR_SPILL_NO_RAW};
}

// Pages whose copies are damaged are lost, and never attended; with a strict store no token is appended from then on.
void save_recall__damaged_pages_in_steps(void**) {
  fixture f;
  open_gpu_fixture(&f);
  for (const int32_t device : devices()) {
    for (const uint32_t flags : {0u, uint32_t{WEIR_SPILL_STRICT}}) {
      const Session session = open_session(f, damaged_setup(device, flags));
      prefill(session, 0, kPrompt);
      steps(session, kPrompt, 40);
      assert_true(stats_of(session).pages_recalled > 0 && stats_of(session).spill_errors == 0);
      const Session whole = open_session(f, damaged_setup(device, flags));  // steps beside it, and loses nothing
      prefill(whole, 0, kPrompt);
      damage(session);
      weir_status status = WEIR_OK;
      uint32_t n_tokens = 0;
      for (uint32_t i = 0; status == WEIR_OK && i < 40; ++i) {
        n_tokens = stats_of(session).n_tokens;
        weir_session* const both[] = {whole.get(), session.get()};
        const weir_token tokens[] = {token(i), token(i * 5)};
        status =
            flags == 0 && i % 2 == 0 ? weir_step_many(both, tokens, 2) : weir_session_step(session.get(), token(i * 5));
        if (status == WEIR_OK) {
          for (const float x : logits_of(session)) assert_true(std::isfinite(x));
        }
      }
      const weir_session_stats stats = stats_of(session);
      assert_true(stats.spill_errors > 0 && stats.pages_dropped > 0);
      check_tables(session);
      check_tables(whole);
      assert_int_equal(stats_of(whole).pages_dropped, 0);
      assert_int_equal(stats.pages_dropped, session->kv().pages_lost());
      if (flags == 0) {
        assert_int_equal(status, WEIR_OK);
        continue;
      }
      assert_int_equal(status, WEIR_ERR_FORMAT);
      assert_int_equal(stats.n_tokens, n_tokens);
      assert_error(weir_session_step(session.get(), 30), WEIR_ERR_FORMAT, "because its copy was damaged");
      weir_session* const handles[] = {session.get()};
      const weir_token next = 30;
      assert_int_equal(weir_step_many(handles, &next, 1), WEIR_ERR_FORMAT);
      assert_int_equal(stats_of(session).n_tokens, n_tokens);
      assert_ok(weir_session_rewind(session.get(), 0, 0));
      prefill(session, 0, kPrompt);
      steps(session, 0, 20);
    }
  }
  close_gpu_fixture(&f);
}

struct Spoiler {
  const Session& session;
  uint64_t after;
};

weir_status spoil(void* user, const weir_progress_info* info) {
  const auto& spoiler = *static_cast<const Spoiler*>(user);
  if (info->done == spoiler.after) damage(spoiler.session);
  return WEIR_OK;
}

// A prompt whose chunk attends a damaged page: with a strict store nothing of it stays, also not of the chunks before;
// otherwise the page is lost.
void save_recall__damaged_pages_in_a_prompt(void**) {
  fixture f;
  open_gpu_fixture(&f);
  for (const int32_t device : devices()) {
    for (const uint32_t flags : {0u, uint32_t{WEIR_SPILL_STRICT}}) {
      for (const uint64_t after : {0u, 64u}) {
        const Session session = open_session(f, damaged_setup(device, flags));
        prefill(session, 0, 400);
        const std::vector<float> before = logits_of(session);
        const weir_session_stats first = stats_of(session);
        std::vector<weir_token> tokens;
        for (uint32_t i = 0; i < 128; ++i) tokens.push_back(token(500 + i));
        Spoiler spoiler = {session, after};
        const weir_status status = weir_session_prefill(session.get(), tokens.data(), 128, spoil, &spoiler);
        const weir_session_stats stats = stats_of(session);
        assert_true(stats.pages_dropped > 0 && stats.spill_errors > 0);
        check_tables(session);
        if (flags == 0) {
          assert_int_equal(status, WEIR_OK);
          assert_int_equal(stats.n_tokens, 528);
          for (const float x : logits_of(session)) assert_true(std::isfinite(x));
          continue;
        }
        assert_int_equal(status, WEIR_ERR_FORMAT);
        assert_int_equal(stats.n_tokens, 400);
        assert_int_equal(stats.n_prompt, first.n_prompt);
        if (after == 0) assert_true(logits_of(session) == before);
        assert_int_equal(weir_session_step(session.get(), 30), WEIR_ERR_FORMAT);
      }
    }
  }
  close_gpu_fixture(&f);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(save_recall__goes_on_as_if_it_had_never_stopped),
      cmocka_unit_test(save_recall__can_be_rewound),
      cmocka_unit_test(save_recall__moves_between_devices),
      cmocka_unit_test(save_recall__full_stores),
      cmocka_unit_test(save_recall__a_reset_empties_the_store),
      cmocka_unit_test(save_recall__damaged_pages_in_steps),
      cmocka_unit_test(save_recall__damaged_pages_in_a_prompt),
  };
  return cmocka_run_group_tests_name("device/save_recall", tests, nullptr, nullptr);
}
