// policy: StreamingLLM. Which pages are resident, positions in the cache (docs/algorithms.md, "Positions when pages
// leave"), chunks, and budgets.
#include "tests/policy/policy_test.h"

#include <cstring>

namespace {

using namespace weir;
using namespace weir::test;

// A cache of one stream with n_tok tokens appended under the policy, chunk by chunk as a session would.
struct Stream {
  std::vector<std::byte> memory[3];
  KvCache kv;
  const Policy& policy;
  uint32_t longest_chunk = 0;
  uint32_t window_begin = 0;  // oldest token behind the first page while the latest chunk was attended
  Stream(const Policy& p, uint32_t n_tok) : policy(p) {
    const KvShape shape = {1, 1, 8, p.needs().pages_per_stream, DigestKind::kNone};
    Arena m[3];
    kv.lay_out(shape, m[0], m[1], m[2]);
    for (int i = 0; i < 3; ++i) memory[i].resize(m[i].used());
    Arena a[3] = {{memory[0].data(), memory[0].size()},
                  {memory[1].data(), memory[1].size()},
                  {memory[2].data(), memory[2].size()}};
    kv.lay_out(shape, a[0], a[1], a[2]);
    kv.reset();
    append(n_tok);
  }
  void append(uint32_t n_tok) {
    while (n_tok > 0) {
      const uint32_t n = policy.chunk_tokens(kv, n_tok, 512);
      assert_true(n >= 1 && n <= n_tok);
      longest_chunk = std::max(longest_chunk, n);
      const uint32_t opens = kv.pages_to_open(n);
      for (;;) {
        const StreamView v = kv.stream(0);
        const uint32_t row = policy.victim(v, {Phase::kDecode, kv.n_tokens(), opens, v.n_pages + opens > v.capacity});
        if (row == Policy::kNone) break;
        kv.evict(0, row);
      }
      assert_true(kv.reserve(n, 0, 0).ok());
      if (kv.stream(0).n_pages > 1) window_begin = kv.stream(0).first_pos[1];
      kv.commit();
      n_tok -= n;
    }
    for (uint32_t row;
         (row = policy.victim(kv.stream(0), {Phase::kPromptEnd, kv.n_tokens(), 0, false})) != Policy::kNone;)
      kv.evict(0, row);
  }
};

// The resident positions are [0, sinks) and a suffix without a gap.
void check_suffix(const KvCache& kv, uint32_t sink_pages) {
  const StreamView v = kv.stream(0);
  for (uint32_t row = 0; row < v.n_pages; ++row) {
    if (row < sink_pages) assert_int_equal(v.first_pos[row], row * kPageTokens);
    if (row > sink_pages) assert_int_equal(v.first_pos[row], v.first_pos[row - 1] + kPageTokens);
  }
  assert_int_equal(v.first_pos[v.n_pages - 1] + v.len[v.n_pages - 1], kv.n_tokens());
}

void sink__residents_are_sinks_and_a_suffix(void**) {
  for (const char* sinks : {"0", "4", "16", "17"}) {
    Made made("sink", 128, 0, {{"sinks", sinks}});
    assert_true(made.status.ok());
    const uint32_t sink_pages = std::strcmp(sinks, "0") == 0 ? 0 : std::strcmp(sinks, "17") == 0 ? 2 : 1;
    for (uint32_t n_tok : {1u, 16u, 127u, 128u, 129u, 500u, 2000u}) {
      Stream s(*made.policy, n_tok);
      for (int i = 0; i < 40; ++i) {
        check_suffix(s.kv, sink_pages);
        s.append(1);
      }
      assert_true(s.kv.pages_resident_max() <= 8);
    }
  }
}

void sink__in_cache_position_with_a_mask(void**) {
  // ns=4, w=8 with an exact mask: the query at position 19 sits at 11 in the cache.
  Made made("sink", 48, 0, {{"sinks", "4"}, {"window", "8"}, {"exact_mask", "true"}});
  assert_true(made.status.ok());
  Stream s(*made.policy, 19);
  assert_int_equal(made.policy->in_cache_pos(s.kv, 19), 11);
  assert_int_equal(made.policy->in_cache_pos(s.kv, 5), 5);
  assert_int_equal(made.policy->step_rules().scope.window, 8);
  assert_int_equal(made.policy->step_rules().scope.n_sink, 4);
}

void sink__in_cache_position_counts_resident_tokens(void**) {
  Made made("sink", 128, 0, {});
  Stream s(*made.policy, 100);
  assert_int_equal(made.policy->in_cache_pos(s.kv, 100), 100);  // nothing has left
  s.append(1000);
  const StreamView v = s.kv.stream(0);
  uint32_t resident = 0;
  for (uint32_t row = 0; row < v.n_pages; ++row) resident += v.len[row];
  assert_int_equal(made.policy->in_cache_pos(s.kv, s.kv.n_tokens() - 1), resident - 1);
}

void sink__window_drops_by_position(void**) {
  Made made("sink", 256, 0, {{"window", "40"}});
  Stream s(*made.policy, 200);
  for (int i = 0; i < 100; ++i) {
    s.append(1);
    const StreamView v = s.kv.stream(0);
    assert_true(v.first_pos[1] + 39 <= s.kv.n_tokens());                    // the window of the next token is there,
    assert_true(v.first_pos[1] + kPageTokens - 1 + 39 >= s.kv.n_tokens());  // and no page that is all outside of it
  }
}

void sink__long_prompts_keep_the_window_while_chunking(void**) {
  Made made("sink", 1024, 0, {});
  Stream s(*made.policy, 5000);
  assert_true(s.longest_chunk >= 256);
  Made exact("sink", 1024, 0, {{"exact_mask", "true"}, {"window", "512"}});
  Stream e(*exact.policy, 1024);
  for (int i = 0; i < 30; ++i) {
    const uint32_t first = e.kv.n_tokens();
    e.append(exact.policy->chunk_tokens(e.kv, 512, 512));
    assert_true(e.window_begin + 511 <= first);  // the chunk's first row still sees all 512
  }
}

void sink__budgets(void**) {
  Made low("sink", 32, 0, {});
  assert_int_equal(low.status.code(), WEIR_ERR_BUDGET);
  Made wide("sink", 128, 0, {{"window", "200"}});
  assert_int_equal(wide.status.code(), WEIR_ERR_BUDGET);
  Made all("sink", 32, 32, {{"window", "20"}});
  assert_true(all.status.ok());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sink__residents_are_sinks_and_a_suffix),
      cmocka_unit_test(sink__in_cache_position_with_a_mask),
      cmocka_unit_test(sink__in_cache_position_counts_resident_tokens),
      cmocka_unit_test(sink__window_drops_by_position),
      cmocka_unit_test(sink__long_prompts_keep_the_window_while_chunking),
      cmocka_unit_test(sink__budgets),
  };
  return cmocka_run_group_tests_name("policy_sink", tests, nullptr, nullptr);
}
