// policy: Scissorhands over pages. Hits are counted here in f64 from the masses of every step; when a stream is full,
// the pages with the least counts outside the recent window leave, several at once.
#include <map>
#include <utility>

#include "tests/policy/policy_test.h"
#include "tests/policy/session_sim.h"

namespace {

using namespace weir;
using namespace weir::test;

using PageOfStream = std::pair<uint32_t, uint32_t>;  // stream, first position

const SimShape kShapes[] = {{2, 2, 4, 64, 64, true}, {1, 1, 1, 32, 64, true}, {2, 3, 3, 64, 32, true}};

void check_counts(const SimShape& shape, uint32_t n_prompt, const char* window, double keep) {
  constexpr uint32_t kRecent = 40, kTokens = 600;
  const Inputs inputs(shape, kTokens, 41);
  Sim sim(cpu_backend(), inputs,
          {"scissorhands", 256, 4096, 0, {{"skip_layers", "0"}, {"recent", "40"}, {"window", window}}});
  std::map<PageOfStream, double> count;
  uint32_t n_hits = 0, n_misses = 0;
  sim.on_layer = [&](uint32_t layer) {
    const double n = sim.n_tokens() + 1;
    for (uint32_t kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      const uint32_t stream = layer * shape.n_kv_heads + kv_head;
      const StreamView v = sim.kv.stream(stream);
      for (uint32_t row = 0; row < v.n_pages; ++row) {
        double high = 0.0;
        for (uint32_t g = 0; g < shape.group; ++g) {
          const size_t head = kv_head * shape.group + g;
          high = std::max(high, double{sim.mass(layer)[head * v.capacity + row]});
        }
        // What is nearer to the border than f32 can tell is taken from the table.
        double& own = count[{stream, v.first_pos[row]}];
        const double kept = keep * own;
        const bool is_near = std::fabs(high * n - v.len[row]) < 1e-4;
        own = is_near ? double{v.last_score[row]} : kept + (high * n >= v.len[row] ? 1.0 : 0.0);
        high* n >= v.len[row] ? ++n_hits : ++n_misses;
        if (std::fabs(own - double{v.last_score[row]}) > 1e-3 * (1.0 + own))
          fail_msg("page %u has %g hits, not %g", v.first_pos[row], double{v.last_score[row]}, own);
      }
    }
  };
  uint32_t n_checked = 0;
  sim.on_evict = [&](uint32_t stream, const StreamView& v, uint32_t victim, const RoomArgs& room) {
    if (room.phase != Phase::kDecode) return;
    assert_true(v.first_pos[victim] + kPageTokens + kRecent <= room.pos);
    for (uint32_t row = 0; row < v.n_pages && v.first_pos[row] + kPageTokens + kRecent <= room.pos; ++row)
      assert_true((count[{stream, v.first_pos[victim]}] <= count[{stream, v.first_pos[row]}] * (1.0 + 1e-4)));
    ++n_checked;
  };
  sim.prefill(n_prompt);
  for (uint32_t stream = 0; stream < shape.n_layers * shape.n_kv_heads; ++stream) {
    const StreamView v = sim.kv.stream(stream);
    for (uint32_t row = 0; row < v.n_pages; ++row) count[{stream, v.first_pos[row]}] = double{v.last_score[row]};
  }
  sim.steps(kTokens - n_prompt);
  assert_true(n_checked > 10 && n_hits > 100 && n_misses > 100);
}

void scissorhands__counts_hits_of_the_latest_steps(void**) {
  for (const SimShape& shape : kShapes) {
    for (uint32_t n_prompt : {1u, 100u}) {
      check_counts(shape, n_prompt, "256", 1.0 - 1.0 / 256);
      check_counts(shape, n_prompt, "4", 0.75);
      check_counts(shape, n_prompt, "1", 0.0);
    }
  }
}

// Half of the pages outside the window by default leave in one step, then none until the stream is full again.
void scissorhands__pages_leave_at_once(void**) {
  const struct {
    const char* drop;
    uint32_t leave;  // of 16 pages; four and the open one stay in any case
  } rows[] = {{"0", 1}, {"0.5", 5}, {"1", 11}};
  for (const auto& row : rows) {
    const Inputs inputs({2, 2, 2, 64, 64, true}, 600, 42);
    Sim sim(cpu_backend(), inputs,
            {"scissorhands", 256, 4096, 0, {{"skip_layers", "0"}, {"recent", "64"}, {"drop", row.drop}}});
    sim.prefill(10);
    uint32_t before = 0, n_drops = 0;
    sim.step();
    for (uint32_t i = 12; i <= 600; ++i, before = sim.kv.stream(0).n_pages) {
      before = sim.kv.stream(0).n_pages;
      if (i < 600) sim.step();
      const uint32_t now = sim.kv.stream(0).n_pages;
      if (now == before || now == before + 1) continue;
      assert_int_equal(before, 16);
      assert_int_equal(now, 16 - row.leave + 1);
      ++n_drops;
    }
    if (row.leave > 1) assert_true(n_drops >= 2);
    for (uint32_t s = 0; s < 4; ++s) assert_true(sim.kv.stream(s).n_pages <= 16);
  }
}

// A page whose tokens have their even share of the last queries of a prompt begins with all of these as hits.
void scissorhands__prompts_count_by_their_mean(void**) {
  const SimShape shape = {1, 1, 2, 64, 512, true};
  const Inputs inputs(shape, 200, 43);
  Sim sim(cpu_backend(), inputs, {"scissorhands", 256, 4096, 0, {{"skip_layers", "0"}, {"window", "32"}}});
  sim.prefill(160);
  const StreamView v = sim.kv.stream(0);
  double sum = 0.0;
  for (uint32_t row = 0; row < v.n_pages; ++row) {
    assert_true(v.last_score[row] >= 0.0f && v.last_score[row] <= 32.0f);
    sum += double{v.last_score[row]};
  }
  assert_true(sum > 0.5 * 32 * v.n_pages && sum < 32.0 * v.n_pages);  // some have more than their share, some less
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(scissorhands__counts_hits_of_the_latest_steps),
      cmocka_unit_test(scissorhands__pages_leave_at_once),
      cmocka_unit_test(scissorhands__prompts_count_by_their_mean),
  };
  return cmocka_run_group_tests_name("policy_scissorhands", tests, nullptr, nullptr);
}
