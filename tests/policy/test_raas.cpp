// policy: RaaS. The example of docs/algorithms.md, "RaaS", checked by hand, its invariants over random weights, and
// planted milestones.
#include "tests/policy/policy_test.h"

#include <random>

namespace {

using namespace weir;
using namespace weir::test;

PageStampArgs stamp_args(Table& t, const float* weight, uint32_t now, StampRule rule, float r, float alpha) {
  PageStampArgs a = {};
  a.weight = weight;
  a.stamp = t.stamp.data();
  a.last_score = t.score.data();
  a.flags = t.flags.data();
  a.n_pages = &t.n;
  a.capacity = static_cast<uint32_t>(t.slots.size());
  a.n_heads = 1;
  a.n_kv_heads = 1;
  a.now = now;
  a.rule = rule;
  a.r = r;
  a.alpha = alpha;
  return a;
}

// A page here is one token of the example, which ranks the newest token like any other; its weight is above alpha in
// every step.
void raas__token_trace(void**) {
  Made made("raas", 5 * kPageTokens, 1024,
            {{"stamp_rule", "alpha"}, {"alpha", "0.1"}, {"protect_recent", "0"}, {"min_decode_pages", "2"}});
  assert_true(made.status.ok());
  const struct {
    uint32_t evicted;  // position, 0: none
    std::vector<float> weights;
    std::vector<uint32_t> stamps;
  } steps[] = {{0, {1.0f}, {1}},
               {0, {.7f, .3f}, {2, 2}},
               {0, {.5f, .2f, .3f}, {3, 3, 3}},
               {0, {.4f, .05f, .25f, .3f}, {4, 3, 4, 4}},
               {0, {.3f, .2f, .05f, .15f, .3f}, {5, 5, 4, 5, 5}},
               {3, {.3f, .05f, .25f, .10f, .3f}, {6, 5, 6, 5, 6}},
               {2, {.35f, .05f, .2f, .1f, .3f}, {7, 6, 7, 6, 7}},
               {4, {}, {}}};
  Table t(5);
  ThreadPool pool(std::pmr::new_delete_resource());
  OpContext cx;
  cx.pool = &pool;
  for (uint32_t now = 1; now <= 8; ++now) {
    const uint32_t row = made.policy->victim(t.view(), room(now, t.n == 5));
    if (steps[now - 1].evicted == 0) {
      assert_int_equal(row, Policy::kNone);
    } else {
      assert_int_equal(t.first_pos[row], steps[now - 1].evicted);
      t.remove(row);
    }
    t.append(now, now);
    if (steps[now - 1].weights.empty()) break;
    assert_true(
        ref::page_stamp(cx, stamp_args(t, steps[now - 1].weights.data(), now, StampRule::kAlpha, 0, 0.1f)).ok());
    for (uint32_t i = 0; i < t.n; ++i) assert_int_equal(t.stamp[i], steps[now - 1].stamps[i]);
  }
}

// Random weights, one page a step. Returns the positions resident at the end.
std::vector<uint32_t> simulate(std::initializer_list<weir_key_value> options, uint32_t b, StampRule rule, float r,
                               float alpha, uint32_t n_prompt, uint32_t seed, uint32_t n_steps) {
  Made made("raas", b * kPageTokens, 1u << 20, options);
  assert_true(made.status.ok());
  std::mt19937 random(seed);
  Table t(b);
  ThreadPool pool(std::pmr::new_delete_resource());
  OpContext cx;
  cx.pool = &pool;
  for (uint32_t i = 0; i < n_prompt; ++i) t.append(i, n_prompt, kPagePinned | kPagePrompt);
  for (uint32_t now = n_prompt + 1; now < n_prompt + n_steps; ++now) {
    const uint32_t row = made.policy->victim(t.view(), room(now, t.n == b));
    if (t.n == b) {
      assert_true(row != Policy::kNone && row + 1 < t.n);  // never the page that was sealed last
      assert_int_equal(t.flags[row] & kPagePinned, 0);     // never a pinned one
      t.remove(row);
    } else {
      assert_int_equal(row, Policy::kNone);
    }
    t.append(now, now);
    std::vector<float> weights(b);
    float sum = 0;
    for (uint32_t i = 0; i < t.n; ++i) sum += weights[i] = std::ldexp(1.0f, -static_cast<int>(random() % 12));
    for (float& w : weights) w /= sum;
    const std::vector<uint32_t> before = t.stamp;
    assert_true(ref::page_stamp(cx, stamp_args(t, weights.data(), now, rule, r, alpha)).ok());
    for (uint32_t i = 0; i < t.n; ++i) assert_true(t.stamp[i] >= before[i] && t.stamp[i] <= now);
    assert_int_equal(t.stamp[t.n - 1], now);
  }
  return std::vector<uint32_t>(t.first_pos.begin(), t.first_pos.begin() + t.n);
}

// r = 0 and alpha >= 1 are a FIFO behind the pinned prompt.
void raas__no_stamps_is_fifo(void**) {
  const std::vector<uint32_t> want = {0, 1, 2, 45, 46, 47, 48, 49, 50, 51, 52};
  assert_true(simulate({{"r", "0"}}, 11, StampRule::kTopR, 0, 0, 3, 1, 50) == want);
  assert_true(simulate({{"stamp_rule", "alpha"}, {"alpha", "1"}}, 11, StampRule::kAlpha, 0, 1, 3, 1, 50) == want);
}

void raas__invariants_over_random_weights(void**) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    for (uint32_t n_prompt : {0u, 1u, 4u}) {
      const auto resident = simulate({}, 12, StampRule::kTopR, 0.5f, 0, n_prompt, seed, 120);
      assert_int_equal(resident.size(), 12);
      for (uint32_t i = 0; i < n_prompt; ++i) assert_int_equal(resident[i], i);
    }
  }
}

// A milestone with the most attention stays for as long as it has it (a FIFO would lose it), and leaves soon after.
void raas__milestone_stays_while_used(void**) {
  constexpr uint32_t b = 12, milestone = 5, used_until = 5 + 3 * b;
  Made made("raas", b * kPageTokens, 1u << 20, {});
  Table t(b);
  ThreadPool pool(std::pmr::new_delete_resource());
  OpContext cx;
  cx.pool = &pool;
  std::mt19937 random(3);
  uint32_t gone_at = 0;
  for (uint32_t now = 1; now < used_until + 4 * b && gone_at == 0; ++now) {
    if (t.n == b) {
      const uint32_t row = made.policy->victim(t.view(), room(now, true));
      if (t.first_pos[row] == milestone) gone_at = now;
      t.remove(row);
    }
    t.append(now, now);
    std::vector<float> weights(b);
    for (uint32_t i = 0; i < t.n; ++i) {
      weights[i] = 0.01f + 0.001f * static_cast<float>(random() % 16);
      if (t.first_pos[i] == milestone) weights[i] = now < used_until ? 0.5f : 0.0001f;
    }
    assert_true(ref::page_stamp(cx, stamp_args(t, weights.data(), now, StampRule::kTopR, 0.5f, 0)).ok());
  }
  assert_true(gone_at >= used_until && gone_at <= used_until + b);
}

// With decide=gap a page is waited for as long as its longest silence was: not the last hit decides.
void raas__a_page_that_returns_is_waited_for(void**) {
  Made gap("raas", 8 * kPageTokens, 1u << 20, {{"decide", "gap"}, {"protect_recent", "0"}});
  Made stamp("raas", 8 * kPageTokens, 1u << 20, {{"decide", "stamp"}, {"protect_recent", "0"}});
  assert_true(gap.policy->needs().last_gaps && !stamp.policy->needs().last_gaps);
  Table t(8);
  for (uint32_t i = 0; i < 8; ++i) t.append(i * kPageTokens, 100 + 10 * i);
  std::vector<uint32_t> gaps = {100, 35, 12, 30, 0, 0, 0, 0};  // until 200, 145, 132, 160, 140 and later
  StreamView v = t.view();
  v.last_gap = gaps.data();
  assert_int_equal(gap.policy->victim(v, room(256, true)), 2);
  assert_int_equal(stamp.policy->victim(t.view(), room(256, true)), 0);
  gaps[2] = 20;  // as long as page 4, which has less weight
  t.score[4] = 0.1f, t.score[2] = 0.2f;
  assert_int_equal(gap.policy->victim(v, room(256, true)), 4);
  gaps.assign(8, 7);
  assert_int_equal(gap.policy->victim(v, room(256, true)), 0);
}

void raas__recent_pages_are_protected(void**) {
  Made made("raas", 16 * kPageTokens, 1u << 20, {{"protect_recent", "4"}});
  Table t(16);
  for (uint32_t i = 0; i < 16; ++i) t.append(i * kPageTokens, i >= 10 ? 1 : 100);  // the newest have the oldest stamps
  assert_int_equal(made.policy->victim(t.view(), room(256, true)), 10);
  assert_int_equal(made.policy->victim(t.view(), room(256, false)), Policy::kNone);
  for (uint32_t i = 0; i < 13; ++i)
    t.flags[i] = kPagePinned;  // three pages can leave: at least one of them is not protected
  assert_int_equal(made.policy->victim(t.view(), room(256, true)), 13);
  for (uint32_t i = 13; i < 16; ++i) t.flags[i] = kPagePinned;
  assert_int_equal(made.policy->victim(t.view(), room(256, true)), Policy::kNone);
}

// The default protects a share of the pages that can leave, however many others are pinned by a prompt, whole or
// compressed.
void raas__the_protected_share_is_of_the_pages_that_can_leave(void**) {
  for (const char* name : {"raas", "hybrid"}) {
    const Made made(name, 32 * kPageTokens, 1u << 20, {{"protect_share", "0.5"}});
    for (uint32_t n_pinned : {0u, 8u, 20u, 24u, 27u, 28u}) {
      Table t(32);
      const uint32_t n_free = 32 - n_pinned, n_protected = std::max(1u, n_free / 2);
      for (uint32_t i = 0; i < 32; ++i) t.append(i * kPageTokens, 1000 - i, i < n_pinned ? uint32_t{kPagePinned} : 0u);
      // Newer pages have older stamps: the victim is the newest page that is not protected.
      assert_int_equal(made.policy->victim(t.view(), room(512, true)), 32 - n_protected - 1);
    }
  }
  const Made all("raas", 32 * kPageTokens, 1u << 20, {{"protect_share", "0.75"}});
  const Made none("raas", 32 * kPageTokens, 1u << 20, {{"protect_share", "0"}});
  Table t(32);
  for (uint32_t i = 0; i < 32; ++i) t.append(i * kPageTokens, 1000 - i);
  assert_int_equal(all.policy->victim(t.view(), room(512, true)), 7);
  assert_int_equal(none.policy->victim(t.view(), room(512, true)), 30);  // all but the page that was sealed last
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(raas__token_trace),
      cmocka_unit_test(raas__no_stamps_is_fifo),
      cmocka_unit_test(raas__invariants_over_random_weights),
      cmocka_unit_test(raas__milestone_stays_while_used),
      cmocka_unit_test(raas__a_page_that_returns_is_waited_for),
      cmocka_unit_test(raas__recent_pages_are_protected),
      cmocka_unit_test(raas__the_protected_share_is_of_the_pages_that_can_leave),
  };
  return cmocka_run_group_tests_name("policy_raas", tests, nullptr, nullptr);
}
