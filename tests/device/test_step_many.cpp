// device: sessions that step together. Each has a prompt, a policy and a budget of its own, and gives the logits,
// tokens and counters that it gives alone, bit for bit: whatever other sessions are in the set, in whatever order, and
// also if the set changes between steps.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/device/problem_tokens.h"

namespace {

constexpr uint32_t kMaxSteps = 192;
const uint32_t kSteps = steps_at_most(kMaxSteps);  // fewer are enough for equals_alone and in_two_threads
constexpr uint32_t kNoToken = 0xFFFFFFFFu;
constexpr uint32_t kMaxOfGroup = 8;  // as weir_step_many says

struct Row {
  variant v;
  uint32_t budget;
  const char* family;  // of the prompt's problem, so that the prompts have different lengths
};

// Budgets that decoding exceeds: pages leave, and selections begin at different steps.
const Row kRows[] = {
    {{"dense", {}, 0}, 0, "rule"},
    {{"raas", {}, 0}, 128, "base"},
    {{"quest", {{"skip_layers", "0"}}, 1}, 160, "rule"},
    {{"quest", {{"skip_layers", "0"}, {"digest", "minmax"}}, 2}, 160, "rule"},
    {{"sink", {}, 0}, 128, "early"},
    {{"h2o", {{"skip_layers", "0"}}, 1}, 160, "base"},
    {{"quest", {{"skip_layers", "0"}, {"digest", "centroid"}}, 2}, 192, "early"},
    {{"raas", {{"stamp_source", "digest"}}, 1}, 160, "rule"},
    {{"hybrid", {{"skip_layers", "0"}}, 1}, 256, "facts"},
    {{"psa", {{"skip_layers", "0"}, {"eps", "0.9"}, {"mb", "2"}}, 3}, 160, "rule"},
};
constexpr uint32_t kRowCount = sizeof(kRows) / sizeof(kRows[0]);

// What a session does alone, step by step.
struct Script {
  std::vector<weir_token> prompt;
  std::vector<weir_token> tokens;          // greedy, [kSteps]
  std::vector<std::vector<float>> logits;  // before each token
  std::vector<weir_session_stats> stats;   // before each token
};

std::vector<float> logits_of(weir_session* session) {
  const float* logits = nullptr;
  uint32_t n = 0;
  assert_ok(weir_session_logits(session, &logits, &n));
  return {logits, logits + n};
}

weir_session_stats stats_of(weir_session* session) {
  weir_session_stats stats = WEIR_SESSION_STATS_INIT;
  assert_ok(weir_session_get_stats(session, &stats));
  return stats;
}

// A row's session and its position in the script.
struct Player {
  uint32_t row = 0;
  weir_session* session = nullptr;
  uint32_t at = 0;
};

class Stage {
 public:
  Stage() {
    open_gpu_fixture(&f_);
    for (uint32_t row = 0; row < kRowCount; ++row) write_script(row);
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  ~Stage() { close_gpu_fixture(&f_); }

  const Script& script(uint32_t row) const { return scripts_[row]; }
  Player enter(uint32_t row) const {
    Player p = {row, nullptr, 0};
    const weir_session_options options = options_of(&kRows[row].v, test_device(), kRows[row].budget, 1024);
    assert_ok(weir_session_create(f_.model, &options, &p.session));
    const std::vector<weir_token>& prompt = scripts_[row].prompt;
    assert_ok(weir_session_prefill(p.session, prompt.data(), prompt.size(), nullptr, nullptr));
    return p;
  }
  // Compares the player with its script. Returns the next token, kNoToken after the last.
  uint32_t check(const Player& p) const;
  // Also checks that nothing was allocated.
  void leave(Player& p) const;
  void step_alone(Player& p) const {
    assert_ok(weir_session_step(p.session, static_cast<weir_token>(check(p))));
    ++p.at;
  }
  void step(std::vector<Player*> players) const;

 private:
  void write_script(uint32_t row);

  fixture f_ = {nullptr, nullptr};
  Script scripts_[kRowCount];
};

void Stage::write_script(uint32_t row) {
  Script& s = scripts_[row];
  weir_cli::ProblemOptions problem;
  problem.family = kRows[row].family;
  problem.steps = 24 + static_cast<int>(row);
  problem.seed = 70 + row;
  s.prompt = weir::test::problem_tokens(f_.model, problem).prompt;
  Player p = enter(row);
  for (uint32_t i = 0;; ++i) {
    s.logits.push_back(logits_of(p.session));
    s.stats.push_back(stats_of(p.session));
    if (i == kSteps) break;
    weir_token token = -1;
    assert_ok(weir_session_sample(p.session, &token));
    s.tokens.push_back(token);
    assert_ok(weir_session_step(p.session, token));
  }
  weir_session_destroy(p.session);
}

uint32_t Stage::check(const Player& p) const {
  const Script& s = scripts_[p.row];
  const char* name = describe(&kRows[p.row].v);
  const std::vector<float> logits = logits_of(p.session), &want = s.logits[p.at];
  assert_int_equal(logits.size(), want.size());
  if (std::memcmp(logits.data(), want.data(), want.size() * sizeof(float)) != 0) {
    fail_msg("%s: not the logits of a session alone after %u steps, they are %.3g apart", name, p.at,
             logits_apart(logits.data(), want.data(), static_cast<uint32_t>(want.size())));
  }
  const weir_session_stats got = stats_of(p.session), &alone = s.stats[p.at];
  if (got.n_tokens != alone.n_tokens || got.n_decode != alone.n_decode || got.pages_evicted != alone.pages_evicted ||
      got.pages_resident != alone.pages_resident || got.pages_resident_max != alone.pages_resident_max ||
      got.pages_attended != alone.pages_attended) {
    fail_msg("%s: not the counters of a session alone after %u steps", name, p.at);
  }
  if (p.at == kSteps) return kNoToken;
  weir_token token = -1;
  assert_ok(weir_session_sample(p.session, &token));
  if (token != s.tokens[p.at]) fail_msg("%s: not the token of a session alone after %u steps", name, p.at);
  return static_cast<uint32_t>(token);
}

void Stage::leave(Player& p) const {
  weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
  (void)check(p);
  assert_ok(weir_session_memory(p.session, &memory));
  assert_int_equal(memory.allocs_while_decoding, 0);
  weir_session_destroy(p.session);
  p.session = nullptr;
}

void Stage::step(std::vector<Player*> players) const {
  std::vector<weir_session*> sessions;
  std::vector<weir_token> tokens;
  for (Player* p : players) {
    sessions.push_back(p->session);
    tokens.push_back(static_cast<weir_token>(check(*p)));
  }
  assert_ok(weir_step_many(sessions.data(), tokens.data(), static_cast<uint32_t>(sessions.size())));
  for (Player* p : players) ++p->at;
}

// The scripts test something: answers differ, pages leave, and not every page is attended.
void step_many__scripts(void**) {
  NEED_GPU();
  NEED_STEPS(kSteps, kMaxSteps);
  const Stage stage;
  uint32_t n_evict = 0, n_select = 0;
  for (uint32_t row = 0; row < kRowCount; ++row) {
    const weir_session_stats& end = stage.script(row).stats[kSteps];
    n_evict += end.pages_evicted > 0 ? 1 : 0;
    n_select += end.pages_attended < end.pages_resident ? 1 : 0;
    for (uint32_t other = 0; other < row; ++other) assert_true(stage.script(row).tokens != stage.script(other).tokens);
  }
  assert_true(n_evict >= 3);
  assert_true(n_select >= 2);
}

void step_many__equals_alone(void**) {
  NEED_GPU();
  const Stage stage;
  const std::vector<std::vector<uint32_t>> sets = {{0, 1}, {8, 2, 3, 5}, {7, 0, 4, 1, 6, 2, 5, 3}};
  for (const std::vector<uint32_t>& rows : sets) {
    std::vector<Player> players;
    std::vector<Player*> all;
    for (const uint32_t row : rows) players.push_back(stage.enter(row));
    for (Player& p : players) all.push_back(&p);
    for (uint32_t i = 0; i < kSteps; ++i) stage.step(all);
    for (Player& p : players) stage.leave(p);
  }
}

// Sessions with one policy and prompt, at different positions of their answers.
void step_many__of_one_kind(void**) {
  NEED_GPU();
  NEED_STEPS(kSteps, kMaxSteps);
  const Stage stage;
  Player players[3] = {stage.enter(2), stage.enter(2), stage.enter(2)};
  for (uint32_t i = 0; i < 17; ++i) stage.step_alone(players[1]);
  for (uint32_t i = 0; i < 50; ++i) stage.step_alone(players[2]);
  for (uint32_t i = 0; i < kSteps - 50; ++i) stage.step({&players[0], &players[1], &players[2]});
  for (Player& p : players) stage.leave(p);
}

// Some sessions leave, others join, the order changes, and all of them step alone in between. A new session may get the
// memory of one that left.
void step_many__sets_change(void**) {
  NEED_GPU();
  NEED_STEPS(kSteps, kMaxSteps);
  const Stage stage;
  Player dense = stage.enter(0), raas = stage.enter(1), quest = stage.enter(2);
  for (uint32_t i = 0; i < 30; ++i) stage.step({&dense, &raas, &quest});
  stage.leave(raas);
  for (uint32_t i = 0; i < 10; ++i) stage.step({&dense, &quest});
  Player sink = stage.enter(3);
  raas = stage.enter(1);
  for (uint32_t i = 0; i < 30; ++i) stage.step({&sink, &quest, &dense});
  for (uint32_t i = 0; i < 30; ++i) stage.step({&dense, &raas, &quest});
  for (Player* p : {&dense, &raas, &quest, &sink}) {
    for (uint32_t i = 0; i < 5; ++i) stage.step_alone(*p);
  }
  // More sets than a session keeps graphs for, in turns.
  std::vector<Player*> others = {&raas, &quest, &sink};
  for (uint32_t i = 0; i < 30; ++i) {
    stage.step({&dense, others[0], others[1], others[2]});
    (void)std::next_permutation(others.begin(), others.end());
  }
  // The leader leaves first.
  stage.leave(dense);
  for (uint32_t i = 0; i < 20; ++i) stage.step({&quest, &sink, &raas});
  stage.leave(quest);
  for (uint32_t i = 0; i < 10; ++i) stage.step({&sink, &raas});
  stage.step_alone(sink);
  stage.step_alone(raas);
  stage.leave(raas);
  stage.leave(sink);
}

// More sessions than one graph takes: two full groups, and a remainder of one session, which has its own graph.
void step_many__of_two_groups(void**) {
  NEED_GPU();
  NEED_STEPS(kSteps, kMaxSteps);
  // Some steps alone come before, so that sessions of a row differ, and some in another order after.
  const uint32_t n_together = kSteps - 20;
  const Stage stage;
  for (const uint32_t n : {kMaxOfGroup + 1, 2 * kMaxOfGroup}) {
    std::vector<Player> players;
    std::vector<Player*> all;
    std::vector<uint64_t> ns;
    for (uint32_t i = 0; i < n; ++i) players.push_back(stage.enter(i % kRowCount));
    for (uint32_t i = 0; i < kMaxOfGroup; ++i) {
      for (uint32_t step = 0; step < 3 + i; ++step) stage.step_alone(players[i]);
    }
    for (Player& p : players) {
      all.push_back(&p);
      ns.push_back(stats_of(p.session).decode_ns);
    }
    for (uint32_t i = 0; i < n_together; ++i) stage.step(all);
    for (uint32_t i = 0; i < n; ++i) ns[i] = stats_of(players[i].session).decode_ns - ns[i];
    // Every session's time is that of the whole calls; that of the first group alone would be much less.
    const auto [least, most] = std::minmax_element(ns.begin(), ns.end());
    assert_true(*least > 0 && *most < *least + *least / 4);
    // Another order makes other groups, and no session may get a graph of the previous order.
    for (uint32_t i = 0; i < 5; ++i) {
      std::rotate(all.begin(), all.begin() + 3, all.end());
      stage.step(all);
    }
    for (Player& p : players) stage.leave(p);
  }
}

// Two threads that record their sets' graphs at the same time, and step at the same time. Only the main thread may use
// cmocka's assertions, so a thread only records where it diverged from its scripts.
struct Walk {
  std::vector<Player> players;
  weir_status status = WEIR_OK;
  uint32_t n_wrong = 0;
  std::string message;
};

void walk(const Stage& stage, Walk& w, std::atomic<uint32_t>& n_ready, uint32_t n_steps) {
  const auto n = static_cast<uint32_t>(w.players.size());
  std::vector<weir_session*> sessions(n);
  std::vector<weir_token> tokens(n);
  for (uint32_t i = 0; i < n; ++i) sessions[i] = w.players[i].session;
  ++n_ready;
  while (n_ready.load() < 2) std::this_thread::yield();
  for (uint32_t step = 0; step < n_steps; ++step) {
    for (uint32_t i = 0; i < n; ++i) tokens[i] = stage.script(w.players[i].row).tokens[w.players[i].at];
    w.status = weir_step_many(sessions.data(), tokens.data(), n);
    if (w.status != WEIR_OK) {
      w.message = weir_last_error();
      return;
    }
    for (Player& p : w.players) {
      const std::vector<float>& want = stage.script(p.row).logits[++p.at];
      const float* got = nullptr;
      uint32_t n_got = 0;
      const bool there = weir_session_logits(p.session, &got, &n_got) == WEIR_OK && n_got == want.size();
      if (!there || std::memcmp(got, want.data(), want.size() * sizeof(float)) != 0) ++w.n_wrong;
    }
  }
}

void step_many__in_two_threads(void**) {
  NEED_GPU();
  const Stage stage;
  const std::vector<uint32_t> rows[2] = {{0, 2, 3, 5}, {1, 7, 4, 6}};
  for (uint32_t round = 0; round < 4; ++round) {  // new sessions have no recorded graphs
    Walk walks[2];
    std::atomic<uint32_t> n_ready{0};
    for (uint32_t i = 0; i < 2; ++i) {
      for (const uint32_t row : rows[i]) walks[i].players.push_back(stage.enter(row));
    }
    const uint32_t n_steps = round == 0 ? kSteps : std::min(kSteps, 20u);
    std::thread other([&] { walk(stage, walks[1], n_ready, n_steps); });
    walk(stage, walks[0], n_ready, n_steps);
    other.join();
    for (Walk& w : walks) {
      if (w.status != WEIR_OK) fail_msg("round %u: %s: %s", round, weir_status_name(w.status), w.message.c_str());
      assert_int_equal(w.n_wrong, 0);
      for (Player& p : w.players) stage.leave(p);
    }
  }
}

// Prompts, resets and pins between joint steps move tables from host to device and back.
void step_many__prompts_between(void**) {
  NEED_GPU();
  NEED_STEPS(kSteps, kMaxSteps);
  const Stage stage;
  Player raas = stage.enter(1), quest = stage.enter(2), sink = stage.enter(3);
  for (uint32_t i = 0; i < 20; ++i) stage.step({&raas, &quest, &sink});
  assert_ok(weir_session_reset(quest.session));
  const std::vector<weir_token>& prompt = stage.script(quest.row).prompt;
  assert_ok(weir_session_prefill(quest.session, prompt.data(), prompt.size(), nullptr, nullptr));
  for (uint32_t i = 0; i < 60; ++i) {
    // Counters continue over a reset, so only the logits and tokens can equal the script's.
    assert_true(logits_of(quest.session) == stage.script(quest.row).logits[i]);
    weir_session* sessions[3] = {sink.session, quest.session, raas.session};
    const weir_token tokens[3] = {static_cast<weir_token>(stage.check(sink)), stage.script(quest.row).tokens[i],
                                  static_cast<weir_token>(stage.check(raas))};
    assert_ok(weir_step_many(sessions, tokens, 3));
    ++sink.at;
    ++raas.at;
  }
  stage.leave(raas);
  stage.leave(sink);
  weir_session_destroy(quest.session);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(step_many__scripts),         cmocka_unit_test(step_many__equals_alone),
      cmocka_unit_test(step_many__of_one_kind),     cmocka_unit_test(step_many__sets_change),
      cmocka_unit_test(step_many__of_two_groups),   cmocka_unit_test(step_many__in_two_threads),
      cmocka_unit_test(step_many__prompts_between),
  };
  return cmocka_run_group_tests_name("device/step_many", tests, nullptr, nullptr);
}
