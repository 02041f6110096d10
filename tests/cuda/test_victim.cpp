// cuda: which page leaves (cuda/pages/victim.cuh), compiled for the host and run by a warp whose lanes take turns
// (on_host/cuda/common/base.cuh), against Policy::victim: every policy with its options over random tables, including
// ties and NaN scores. No GPU is needed.
#include "cuda/pages/victim.cuh"

#include <string>
#include <vector>

#include "policy/policy.h"
#include "tests/cmocka_cpp.h"
#include "tests/policy/every_policy.h"

namespace {

using namespace weir;

uint64_t random_state = 1;
uint32_t below(uint32_t n) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(random_state >> 33) % n;
}

struct Spec {
  const char* name;
  uint32_t budget;  // tokens
  std::vector<weir_key_value> options;
};

const Spec kSpecs[] = {
    {"dense", 0, {}},
    {"quest", 512, {}},
    {"sink", 512, {}},
    {"sink", 512, {{"positions", "abs"}, {"window", "200"}}},
    {"sink", 512, {{"sinks", "0"}, {"positions", "abs"}, {"window", "1"}}},
    {"h2o", 512, {}},
    {"h2o", 512, {{"score", "norm_sum"}, {"recent", "100"}}},
    {"tova", 512, {}},
    {"tova", 512, {{"decide", "token"}}},
    {"raas", 512, {}},
    {"raas", 2048, {}},
    {"raas", 512, {{"protect_recent", "0"}}},
    {"raas", 512, {{"protect_recent", "5"}, {"pin_prompt", "false"}}},
    {"raas", 512, {{"protect_share", "0.75"}}},
    {"raas", 512, {{"protect_share", "0.1"}}},
    {"raas", 512, {{"overflow", "hybrid"}}},
    {"raas", 512, {{"decide", "gap"}}},
    {"raas", 512, {{"decide", "gap"}, {"protect_recent", "0"}}},
    {"hybrid", 512, {}},
    {"hybrid", 512, {{"rho", "0.25"}, {"protect_share", "0.3"}}},
    {"random", 512, {}},
    {"random", 512, {{"seed", "4294967295"}, {"pin_prompt", "false"}}},
    {"keyformer", 512, {}},
    {"scissorhands", 512, {}},
    {"arkvale", 0, {}},
    {"arkvale", 512, {}},
    {"arkvale", 512, {{"protect_recent", "0"}, {"recall_from", "8"}}},
    {"arkvale", 256, {{"protect_recent", "9"}, {"recall_from", "4"}}},
    {"psa", 512, {}},
    {"lfps", 512, {}},
    {"raas", 0, {{"recall", "on"}}},
    {"hybrid", 0, {{"recall", "on"}}},
    {"hybrid", 512, {{"recall", "on"}}},
    {"hybrid", 512, {{"recall", "on"}, {"rho", "0.2"}, {"protect_recent", "4"}}},
};

// One stream's table.
struct Table {
  std::vector<uint32_t> slots, first_pos, len, flags, stamp, gap;
  std::vector<float> score;
  uint32_t n = 0, pos = 0;               // rows in use; position of the next token
  uint32_t n_resident = 0, n_slots = 0;  // pages in the pool, and most of them
};

// With recall: leaves at most n_slots pages in the pool, the last one among them.
void make_cold(Table& t, uint32_t n_slots) {
  t.n_slots = n_slots;
  const uint32_t most = std::min(t.n, below(3) == 0 ? n_slots - 1 : n_slots);
  while (t.n_resident > most) {
    uint32_t& slot = t.slots[below(t.n - 1)];
    if (slot == kNoSlot) continue;
    slot = kNoSlot;
    --t.n_resident;
  }
}

float random_score() {
  switch (below(8)) {
    case 0:
      return NAN;
    case 1:
      return 0.0f;
    case 2:
      return -0.0f;
    case 3:
      return -INFINITY;
    default:
      return static_cast<float>(below(5)) * 0.25f - 0.25f;  // ties
  }
}

// The first rows hold the prompt, and the last page may be filling. Some pages have been evicted, and the application
// has pinned or unpinned some.
Table random_table(uint32_t capacity) {
  Table t;
  t.n = below(4) == 0 ? 1 + below(capacity) : capacity - below(std::min(capacity, 2u));
  const uint32_t n_prompt = below(4) == 0 ? 0 : below(t.n + 1);
  const bool unpinned = below(4) == 0;
  uint32_t page = below(3);
  for (uint32_t row = 0; row < t.n; ++row, page += below(4) == 0 ? 1 + below(9) : 1) {
    t.slots.push_back(row);
    t.first_pos.push_back(page * kPageTokens);
    t.len.push_back(row + 1 < t.n ? kPageTokens : 1 + below(kPageTokens));
    if (row + 1 == t.n && below(2) == 0) t.len[row] = kPageTokens;
    uint32_t flags = row >= n_prompt ? 0u : unpinned ? uint32_t{kPagePrompt} : kPagePrompt | kPagePinned;
    if (below(12) == 0) flags |= kPageKept;
    t.flags.push_back(flags);
    t.stamp.push_back(t.first_pos[row] + 1 + below(6));
    t.gap.push_back(below(9) * kPageTokens / 4);
    t.score.push_back(random_score());
  }
  t.pos = t.first_pos.back() + t.len.back();
  return t;
}

StreamView view(Table& t, uint32_t capacity) {
  StreamView s = {};
  s.slots = t.slots.data(), s.first_pos = t.first_pos.data(), s.len = t.len.data(), s.flags = t.flags.data();
  s.stamp = t.stamp.data(), s.last_score = t.score.data(), s.last_gap = t.gap.data();
  s.n_pages = t.n, s.capacity = capacity;
  s.n_resident = t.n_resident, s.n_slots = t.n_slots, s.n_free = t.n_slots - t.n_resident;
  return s;
}

// As step_begin's kernels, of which each rule has one.
uint32_t victim_of(const StepRules& rules, const cuda::DeviceStream& s, const cuda::Room& room) {
  switch (rules.victim) {
    case VictimRule::kNever:
      return cuda::victim_of<VictimRule::kNever>(rules, s, room);
    case VictimRule::kWindow:
      return cuda::victim_of<VictimRule::kWindow>(rules, s, room);
    case VictimRule::kStalest:
      return cuda::victim_of<VictimRule::kStalest>(rules, s, room);
    case VictimRule::kLightest:
      return cuda::victim_of<VictimRule::kLightest>(rules, s, room);
    case VictimRule::kMarked:
      return cuda::victim_of<VictimRule::kMarked>(rules, s, room);
    case VictimRule::kRandom:
      return cuda::victim_of<VictimRule::kRandom>(rules, s, room);
    case VictimRule::kCold:
      return cuda::victim_of<VictimRule::kCold>(rules, s, room);
  }
  return kNoRow;
}

void victim__as_the_policies_say(void**) {
  ASSERT_EVERY_POLICY(kSpecs, name);
  cuda::HostBlock warp(cuda::kWarp);
  for (const Spec& spec : kSpecs) {
    PolicyConfig config;
    config.n_layers = 4;
    config.n_heads = 8;
    config.n_kv_heads = 2;
    config.head_dim = 64;
    config.context_tokens = 1u << 16;
    config.trained_tokens = 1u << 16;
    config.budget_tokens = spec.budget;
    config.max_prompt_tokens = 600;
    config.options = spec.options;
    PolicyStorage storage;
    Policy* policy = nullptr;
    if (!make_policy(spec.name, config, storage, policy).ok()) fail_msg("%s: %s", spec.name, last_error_text());
    const StepRules rules = policy->step_rules();
    const uint32_t capacity = std::min(policy->needs().pages_per_stream, 200u);
    uint32_t n_left = 0, n_stayed = 0;
    for (uint32_t i = 0; i < 2000; ++i) {
      Table t = random_table(capacity);
      t.n_resident = t.n, t.n_slots = capacity;
      if (rules.recalls) make_cold(t, policy->needs().recall_slots);
      const uint32_t stream = below(8), opens = t.pos % kPageTokens == 0 ? 1 : 0;
      const StreamView s = view(t, capacity);
      uint32_t want = policy->victim(s, {Phase::kDecode, t.pos, opens, t.n_resident + opens > t.n_slots, stream});
      if (want != Policy::kNone && is_filling(s, want)) want = Policy::kNone;
      const cuda::DeviceStream device = {s, t.n, capacity, 0, stream, 0, t.n_slots, t.n_resident};
      uint32_t got[cuda::kWarp] = {};
      const std::string error = warp.run([&] {
        got[cuda::threadIdx.x % cuda::kWarp] = victim_of(rules, device, {t.pos, opens});
      });
      if (!error.empty()) fail_msg("%s: %s", spec.name, error.c_str());
      for (uint32_t lane = 0; lane < cuda::kWarp; ++lane) {
        if (got[lane] != want)
          fail_msg("%s, table %u: lane %u says row %u, the policy %u", spec.name, i, lane, got[lane], want);
      }
      (want == Policy::kNone ? n_stayed : n_left) += 1;
    }
    const bool never = rules.victim == VictimRule::kNever;
    if (never ? n_left != 0 : n_left < 100 || n_stayed < 100)
      fail_msg("%s: a page left in %u tables and none in %u", spec.name, n_left, n_stayed);
    policy->~Policy();
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(victim__as_the_policies_say)};
  return cmocka_run_group_tests_name("cuda/victim", tests, nullptr, nullptr);
}
