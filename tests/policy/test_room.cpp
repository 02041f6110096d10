// policy: what make_room, next_chunk and the registry guarantee, whatever a policy answers. The policy here gives the
// answers that a test sets.
#include <cstring>

#include "policy/room.h"
#include "tests/kv/cache_case.h"

namespace {

using namespace weir;
using namespace weir::test;

class Told : public Policy {
 public:
  uint32_t row = kNone;     // the row that leaves, as often as `leaves` says
  uint32_t leaves = 0;      // pages of each stream that leave in one call
  uint32_t max_tokens = 0;  // of a chunk; 0: chunk_that_fits
  mutable std::vector<RoomArgs> asked;

  Told(uint32_t context, uint32_t pages, const StepRules& rules = {}) : Policy({}, rules, 1.0f) {
    needs_.context_tokens = context;
    needs_.pages_per_stream = pages;
  }
  StepRules& rules() { return rules_; }
  Policy* copy_to(PolicyStorage&) const override { return nullptr; }  // nobody forks its session
  uint32_t chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const override {
    return max_tokens != 0 ? std::min(max_tokens, n_left) : chunk_that_fits(kv, n_left, batch_tokens);
  }
  uint32_t victim(const StreamView& s, const RoomArgs& room) const override {
    const bool first = asked.empty() || asked.back().stream != room.stream;
    left_ = first ? leaves : left_ - 1;
    asked.push_back(room);
    return left_ == 0 ? kNone : row == UINT32_MAX ? s.n_pages - 1 : row;
  }

 private:
  mutable uint32_t left_ = 0;
};

KvShape shape(uint32_t pages) {
  KvShape s;
  s.n_layers = 2;
  s.n_kv_heads = 2;
  s.head_dim = 8;
  s.pages_per_stream = pages;
  return s;
}

void room__a_page_that_takes_tokens_never_leaves(void**) {
  Cache cache(shape(6));
  Told policy(4096, 6);
  policy.leaves = 3;  // always the last row
  for (uint32_t n_tok = 1; n_tok <= 5 * kPageTokens; ++n_tok) {
    cache.append(1);
    const uint32_t before = cache.kv.stream(0).n_pages;
    const bool is_full = n_tok % kPageTokens == 0;
    if (is_full && before < 4) continue;  // it would leave
    policy.asked.clear();
    make_room(policy, cache.kv, 1, Phase::kDecode);
    check(cache.kv);
    for (uint32_t s = 0; s < 4; ++s) assert_int_equal(cache.kv.stream(s).n_pages, is_full ? before - 3 : before);
    if (is_full) return;
  }
  fail_msg("%s", "the last page was never full");
}

void room__streams_are_asked_until_nothing_leaves(void**) {
  Cache cache(shape(6));
  Told policy(4096, 6);
  cache.append(6 * kPageTokens);
  policy.row = 1;
  policy.leaves = 2;
  std::vector<uint32_t> told;
  const auto hook = [](void* user, uint32_t stream, const StreamView& s, uint32_t row, const RoomArgs& room) {
    assert_int_equal(room.stream, stream);
    assert_int_equal(row, 1);
    static_cast<std::vector<uint32_t>*>(user)->push_back(s.first_pos[row]);
  };
  make_room(policy, cache.kv, 1, Phase::kPromptEnd, {hook, &told});
  assert_int_equal(told.size(), 8);
  for (size_t i = 0; i < told.size(); ++i) assert_int_equal(told[i], (1 + i % 2) * kPageTokens);
  assert_int_equal(policy.asked.size(), 12);  // two victims and a last question per stream
  for (size_t i = 0; i < policy.asked.size(); ++i) {
    const RoomArgs& room = policy.asked[i];
    assert_true(room.phase == Phase::kPromptEnd);
    assert_int_equal(room.pos, 6 * kPageTokens);
    assert_int_equal(room.opens, 1);
    assert_int_equal(room.is_full, i % 3 == 0);  // the table is full until the first page left
    assert_int_equal(room.stream, i / 3);
  }
}

// A chunk fills the open page and the pages that can be made available: free ones, and those that may leave.
void room__a_chunk_fits_what_can_be_had(void**) {
  struct Case {
    uint32_t n_tokens, pinned_end, front, chunk;
  };
  const Case cases[] = {
      {0, 0, 0, 96},                    // all six pages
      {5, 0, 0, 91},                    // five pages and eleven tokens of the open one
      {16, 0, 0, 80},                   // the last page stays, also when it is full
      {32, 0, 0, 80},                   // the one before it can leave
      {32, 16, 0, 64},                  // unless it is pinned
      {30, 16, 0, 66},                  // one pinned, one filling: four pages and two tokens
      {96, 96, 0, 0},  {95, 95, 0, 1},  // only the open page's last token
      {64, 0, 1, 64},                   // a front row never leaves
      {64, 0, 4, 32},
  };
  for (const Case& c : cases) {
    Cache cache(shape(6));
    Told policy(4096, 6);
    policy.rules().front_rows = c.front;
    policy.max_tokens = 1000;
    if (c.n_tokens != 0) cache.append(c.n_tokens);
    if (c.pinned_end != 0) assert_true(cache.kv.set_flags(0, c.pinned_end, kPageKept, 0) != 0);
    assert_int_equal(next_chunk(policy, cache.kv, 500, 256), c.chunk);
    policy.max_tokens = 7;
    assert_int_equal(next_chunk(policy, cache.kv, 500, 256), std::min(c.chunk, 7u));
  }
}

// Prompt pages leave while a prompt is read: a chunk is what fits without evictions, else a quarter of the pages.
void room__a_chunk_that_makes_pages_leave_is_a_quarter(void**) {
  struct Case {
    uint32_t pages, n_tokens, n_left, batch, chunk;
  };
  const Case cases[] = {
      {16, 0, 500, 256, 256},                                                 // it fills the pages
      {16, 0, 500, 512, 64},                                                  // 500 tokens are 32 pages
      {16, 0, 256, 512, 256},                                                 // the rest of the prompt
      {16, 192, 500, 64, 64},                                                 // the last four pages
      {16, 200, 500, 64, 56},                                                 // eight tokens of the open page are taken
      {16, 208, 500, 256, 64}, {16, 208, 20, 256, 20}, {3, 40, 500, 256, 8},  // one page
      {3, 48, 500, 256, 16},   {1, 16, 500, 256, 16},
  };
  for (const Case& c : cases) {
    Cache cache(shape(c.pages));
    if (c.n_tokens != 0) cache.append(c.n_tokens);
    assert_int_equal(chunk_that_fits(cache.kv, c.n_left, c.batch), c.chunk);
  }
}

// Devices follow rules, not answers: without a rule that lets pages leave, a step might find no room.
void room__rules_that_keep_all_pages_need_all_pages(void**) {
  Told holds_all(4096, 256), one_less(4096, 255);
  assert_true(check_rules("told", holds_all).ok());
  assert_int_equal(check_rules("told", one_less).code(), WEIR_ERR_INTERNAL);
  assert_non_null(std::strstr(last_error_text(), "policy told keeps 255 pages of 256"));
  one_less.rules().victim = VictimRule::kStalest;
  assert_true(check_rules("told", one_less).ok());

  class Wide : public Told {
   public:
    explicit Wide(uint32_t wide) : Told(4096, 256) {
      needs_.n_wide_layers = 1;
      needs_.wide_pages = wide;
    }
  };
  assert_true(check_rules("told", Wide(256)).ok());
  assert_int_equal(check_rules("told", Wide(200)).code(), WEIR_ERR_INTERNAL);
}

// Attention and tables have what the rules need, and nothing else.
void room__needs_follow_from_the_rules(void**) {
  using Observe = StepRules::Observe;
  const auto needs = [](const StepRules& rules) { return Told(4096, 256, rules).needs(); };
  const PolicyNeeds none = needs({});
  assert_true(none.digest == DigestKind::kNone && !none.page_mass && !none.page_lists && !none.list_per_head &&
              !none.sink_query);
  const PolicyNeeds lists = needs({.digest = DigestKind::kCentroid, .selects = true});
  assert_true(lists.digest == DigestKind::kCentroid && lists.page_lists && !lists.list_per_head && !lists.page_mass);
  assert_true(needs({.selects = true, .agg = AggMode::kQHead}).list_per_head);
  assert_false(needs({.agg = AggMode::kQHead}).list_per_head);
  assert_true(needs({.digest = DigestKind::kCentroid}).digest == DigestKind::kNone);  // nothing reads it
  const PolicyNeeds digest = needs({.digest = DigestKind::kMeanStd, .observe = Observe::kStampDigest});
  assert_true(digest.digest == DigestKind::kMeanStd && !digest.page_mass && !digest.page_lists);
  for (const Observe observe : {Observe::kStampMass, Observe::kAccumulate}) {
    const PolicyNeeds mass = needs({.digest = DigestKind::kMeanStd, .observe = observe});
    assert_true(mass.page_mass && mass.digest == DigestKind::kNone);
  }
  const PolicyNeeds sink = needs({.in_cache_pos = true});
  assert_true(sink.sink_query && !sink.page_mass);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(room__a_page_that_takes_tokens_never_leaves),
      cmocka_unit_test(room__streams_are_asked_until_nothing_leaves),
      cmocka_unit_test(room__a_chunk_fits_what_can_be_had),
      cmocka_unit_test(room__a_chunk_that_makes_pages_leave_is_a_quarter),
      cmocka_unit_test(room__rules_that_keep_all_pages_need_all_pages),
      cmocka_unit_test(room__needs_follow_from_the_rules),
  };
  return cmocka_run_group_tests_name("policy_room", tests, nullptr, nullptr);
}
