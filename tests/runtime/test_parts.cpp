// runtime: what a session remembers is a list of parts. A part of the test's own, a number for each layer that grows
// with every token and that cannot be taken back to any position, is planned, forked, rewound, saved, restored and
// taken back after a cancelled prompt or step, on the processor and on a device, with and without copies of pages.
#include <cstring>
#include <memory>
#include <vector>

#include "api/handles.h"
#include "host_models.h"
#include "tests/api/saved_bytes.h"
#include "weir/experimental.h"

namespace {

using namespace host_models;
using namespace saved_bytes;
using weir::Arenas;
using weir::Io;
using weir::Part;
using weir::Status;

constexpr char kModel[] = WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf";

// For each layer the sum over tokens of (layer + 1) * (position + 1). It goes back to every 8th position.
class Counter final : public Part {
 public:
  static constexpr uint32_t kEvery = 8;
  explicit Counter(uint32_t n_layers) : n_layers_(n_layers) {}

  const char* name() const override { return "the test's counter"; }
  void lay_out(Arenas& arenas) override { sums_ = arenas.state.take<uint64_t>(n_layers_); }
  void reset() override { std::fill_n(sums_, n_layers_, uint64_t{0}); }
  void copy_from(const Part& other, uint32_t) override {
    std::copy_n(static_cast<const Counter&>(other).sums_, n_layers_, sums_);
  }
  Status can_cut(uint32_t n_tokens, bool) const override {
    if (n_tokens % kEvery == 0) return {};
    return weir::fail(WEIR_ERR_NOT_FOUND, "a rewind to %u tokens: the counter was kept at %u and not there", n_tokens,
                      n_tokens / kEvery * kEvery);
  }
  void cut(uint32_t n_tokens) override {
    for (uint32_t layer = 0; layer < n_layers_; ++layer) sums_[layer] = sum(layer, n_tokens);
  }
  void roll_back(uint32_t n_tokens) override {
    ++n_rolled_back;
    cut(n_tokens);
  }
  void seal(uint32_t first, uint32_t end) override {
    for (uint32_t layer = 0; layer < n_layers_; ++layer) sums_[layer] += sum(layer, end) - sum(layer, first);
  }
  Status io(Io& io) override {
    WEIR_TRY(io.section("TEST"));
    WEIR_TRY(io.array(std::span(sums_, n_layers_)));
    for (uint32_t layer = 0; layer < n_layers_; ++layer) {
      if (sums_[layer] != sum(layer, io.n_tokens)) return io.damaged("layer %u has another sum", layer);
    }
    return {};
  }

  uint32_t n_rolled_back = 0;

  // Whether it has seen these tokens, each once.
  bool is_at(uint32_t n_tokens) const {
    for (uint32_t layer = 0; layer < n_layers_; ++layer) {
      if (sums_[layer] != sum(layer, n_tokens)) return false;
    }
    return true;
  }

 private:
  static uint64_t sum(uint32_t layer, uint32_t n) { return uint64_t{n} * (n + 1) / 2 * (layer + 1); }
  uint32_t n_layers_;
  uint64_t* sums_ = nullptr;
};

struct Setup {
  const char* policy;
  int32_t device;
  uint32_t budget;
  uint64_t spill_bytes;
};

// Everything in the pool; with recall; copies of what left for good.
const Setup kSetups[] = {{"dense", WEIR_DEVICE_CPU, 0, 0},        {"dense", WEIR_DEVICE_CUDA, 0, 0},
                         {"arkvale", WEIR_DEVICE_CPU, 128, 0},    {"arkvale", WEIR_DEVICE_CUDA, 128, 0},
                         {"sink", WEIR_DEVICE_CPU, 96, 1u << 20}, {"lfps", WEIR_DEVICE_CPU, 64, 0}};

// A session with a counter, or without.
struct Counted {
  Counted(const Models& m, const Setup& s, Counted* parent = nullptr, bool counts = true)
      : counter(m.model->model.config().n_layers), part(&counter), session(new weir_session(m.model)) {
    if (counts) session->add_parts({&part, 1});
    const Status status =
        parent != nullptr ? session->create_fork(*parent->session) : session->create(m.model->model, options(s));
    if (!status.ok()) fail_msg("%s: %s", s.policy, weir::last_error_text());
  }
  static weir_session_options options(const Setup& s) {
    weir_session_options o = WEIR_SESSION_OPTIONS_INIT;
    o.device = s.device;
    o.context_tokens = 1024;
    o.batch_tokens = 64;
    o.policy = s.policy;
    o.budget_tokens = s.budget;
    o.spill_budget_bytes = s.spill_bytes;
    return o;
  }
  uint32_t n_tokens() const { return session->kv().n_tokens(); }
  void prefill(uint32_t n) { assert_ok(try_prefill(n, nullptr, nullptr)); }
  weir_status try_prefill(uint32_t n, weir_progress_fn progress, void* user) {
    std::vector<weir_token> prompt;
    for (uint32_t i = 0; i < n; ++i) prompt.push_back(token(n_tokens() + i));
    return weir_session_prefill(session.get(), prompt.data(), n, progress, user);
  }
  void step(uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) assert_ok(weir_session_step(session.get(), token(n_tokens())));
  }
  Counter counter;
  Part* part;
  std::unique_ptr<weir_session> session;
};

void expect_at(const Counted& c, uint32_t n_tokens, const Setup& s, const char* when) {
  if (c.n_tokens() == n_tokens && c.counter.is_at(n_tokens)) return;
  fail_msg("%s on %d, %s: %u tokens, wanted %u, or the counter is elsewhere", s.policy, s.device, when, c.n_tokens(),
           n_tokens);
}

template <class F>
void for_each_setup(F&& f) {
  const Models m(kModel);
  for (const Setup& s : kSetups) f(m, s);
}

void parts__are_planned(void**) {
  for_each_setup([](const Models& m, const Setup& s) {
    weir_plan_info without = WEIR_PLAN_INFO_INIT, with = WEIR_PLAN_INFO_INIT;
    Counter counter(m.model->model.config().n_layers);
    Part* const part = &counter;
    weir_runtime& r = *m.runtime;
    const auto plan = [&](weir_plan_info& out, std::span<Part* const> more) {
      const weir_session_options o = Counted::options(s);
      assert_true(
          weir::plan_session(m.model->model, o, r.pool.n_threads(), r.devices, m.model->device_weights, out, more)
              .ok());
    };
    plan(without, {});
    plan(with, {&part, 1});
    assert_int_equal(with.sampler_bytes, without.sampler_bytes + weir::kCacheLine);
    assert_int_equal(with.total_bytes, without.total_bytes + weir::kCacheLine);
    const Counted c(m, s);
    weir_memory_info info = WEIR_MEMORY_INFO_INIT;
    assert_ok(weir_session_memory(c.session.get(), &info));
    assert_int_equal(info.plan_bytes, with.total_bytes);
    assert_int_equal(info.bytes, with.total_bytes);
  });
}

void parts__see_every_token_and_are_reset(void**) {
  for_each_setup([](const Models& m, const Setup& s) {
    Counted c(m, s);
    expect_at(c, 0, s, "new");
    c.prefill(150);
    expect_at(c, 150, s, "after a prompt");
    c.step(20);
    expect_at(c, 170, s, "after steps");
    Counted other(m, s);
    other.prefill(10);
    weir_session* both[] = {c.session.get(), other.session.get()};
    const weir_token tokens[] = {token(170), token(10)};
    assert_ok(weir_step_many(both, tokens, 2));
    expect_at(c, 171, s, "after a step together");
    expect_at(other, 11, s, "after a step together");
    assert_ok(weir_session_reset(c.session.get()));
    expect_at(c, 0, s, "after a reset");
  });
}

void parts__are_forked(void**) {
  for_each_setup([](const Models& m, const Setup& s) {
    Counted c(m, s);
    c.prefill(100);
    Counted fork(m, s, &c);
    expect_at(fork, 100, s, "a fork");
    fork.step(3);
    c.step(5);
    expect_at(fork, 103, s, "the fork goes on");
    expect_at(c, 105, s, "and its parent");
  });
}

void parts__are_rewound(void**) {
  for_each_setup([](const Models& m, const Setup& s) {
    Counted c(m, s);
    c.prefill(60);
    c.step(15);
    for (const uint32_t flags : {0u, uint32_t{WEIR_REWIND_LOSSY}}) {
      assert_int_equal(weir_session_rewind(c.session.get(), 70, flags), WEIR_ERR_NOT_FOUND);
      assert_non_null(std::strstr(weir_last_error(), "the counter was kept at 64"));
      expect_at(c, 75, s, "a rewind that is refused");
    }
    assert_ok(weir_session_rewind(c.session.get(), 72, 0));
    expect_at(c, 72, s, "a rewind");
    c.step(9);
    expect_at(c, 81, s, "and on");
    assert_ok(weir_session_rewind(c.session.get(), 0, 0));
    expect_at(c, 0, s, "to the beginning");
  });
}

void parts__are_saved_and_restored(void**) {
  for_each_setup([](const Models& m, const Setup& s) {
    Counted c(m, s), other(m, s), without(m, s, nullptr, false);
    c.prefill(120);
    c.step(30);
    const File file = saved(c.session);
    other.prefill(40);
    assert_ok(try_restore(other.session, file));
    expect_at(other, 150, s, "restored");
    if (saved(other.session) != file) fail_msg("%s: another file", s.policy);
    c.step(10);
    other.step(10);
    expect_at(other, 160, s, "and on");
    if (saved(other.session) != saved(c.session)) fail_msg("%s: another way on", s.policy);
    // A section more or less is another file.
    assert_int_equal(try_restore(without.session, file), WEIR_ERR_FORMAT);
    assert_non_null(std::strstr(weir_last_error(), "no section END!"));
    without.prefill(20);
    assert_int_equal(try_restore(other.session, saved(without.session)), WEIR_ERR_FORMAT);
    assert_non_null(std::strstr(weir_last_error(), "no section TEST"));
    expect_at(other, 0, s, "a file without the part");
    // What the part says of its own bytes comes before the checksum.
    File damaged = file;
    const size_t end = damaged.size() - 12, section = end - 8 - 8 * m.model->model.config().n_layers;
    damaged[section] ^= 1;
    other.prefill(20);
    assert_int_equal(try_restore(other.session, damaged), WEIR_ERR_FORMAT);
    assert_non_null(std::strstr(weir_last_error(), "layer 0 has another sum"));
    expect_at(other, 0, s, "a damaged file");
  });
}

// Refuses to go on after the second chunk.
weir_status two_chunks(void*, const weir_progress_info* info) {
  return info->done >= 128 ? WEIR_ERR_CANCELLED : WEIR_OK;
}

// A prompt that is cancelled was none, unless the part cannot go back to before it: then whole chunks stay.
void parts__are_taken_back_after_a_cancelled_prompt(void**) {
  for_each_setup([](const Models& m, const Setup& s) {
    if (s.budget != 0 && s.spill_bytes != 0) return;  // pages left for good meanwhile
    for (const uint32_t before : {0u, 40u, 43u}) {
      Counted c(m, s);
      if (before != 0) c.prefill(before);
      const weir_status status = c.try_prefill(200, two_chunks, nullptr);
      assert_int_equal(status, WEIR_ERR_CANCELLED);
      if (before % Counter::kEvery == 0) {
        expect_at(c, before, s, "a cancelled prompt");
      } else {
        assert_true(c.n_tokens() > before && c.n_tokens() < before + 200);
        expect_at(c, c.n_tokens(), s, "chunks of a cancelled prompt");
      }
      c.step(4);
      expect_at(c, c.n_tokens(), s, "and on");
    }
  });
}

// A step that fails in its layers is taken back from the parts, too.
void parts__are_taken_back_after_a_refused_step(void**) {
  const auto set_trace = reinterpret_cast<weir_session_trace_fn>(weir_get_experimental("weir_session_trace"));
  assert_non_null(set_trace);
  const Models m(kModel);
  const Setup s = {"dense", WEIR_DEVICE_CPU, 0, 0};
  weir_session_options o = Counted::options(s);
  o.flags = WEIR_SESSION_TRACE;
  Counter counter(m.model->model.config().n_layers);
  Part* part = &counter;
  const auto session = std::make_unique<weir_session>(m.model);
  session->add_parts({&part, 1});
  assert_true(session->create(m.model->model, o).ok());
  for (uint32_t i = 0; i < 5; ++i) assert_ok(weir_session_step(session.get(), token(i)));
  const weir_trace_fn refuse = [](void*, const weir_trace_layer* layer) -> weir_status {
    return layer->layer == 1 ? WEIR_ERR_CANCELLED : WEIR_OK;
  };
  assert_ok(set_trace(session.get(), refuse, nullptr));
  assert_int_equal(counter.n_rolled_back, 0);
  assert_int_equal(weir_session_step(session.get(), token(5)), WEIR_ERR_CANCELLED);
  assert_int_equal(counter.n_rolled_back, 1);
  assert_true(counter.is_at(5));
  assert_ok(set_trace(session.get(), nullptr, nullptr));
  assert_ok(weir_session_step(session.get(), token(5)));
  assert_true(counter.is_at(6));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(parts__are_planned),
      cmocka_unit_test(parts__see_every_token_and_are_reset),
      cmocka_unit_test(parts__are_forked),
      cmocka_unit_test(parts__are_rewound),
      cmocka_unit_test(parts__are_saved_and_restored),
      cmocka_unit_test(parts__are_taken_back_after_a_cancelled_prompt),
      cmocka_unit_test(parts__are_taken_back_after_a_refused_step),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
