// api: a conversation without end takes what its pool holds, not what it might become: the tokens that nothing asks for
// again are not kept. Rewinds, forks and saved sessions work with those that are.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <string>
#include <vector>

#include "tests/api/saved_bytes.h"
#include "tests/api/spill_session.h"

namespace {

using namespace spill_session;
using saved_bytes::File;
using saved_bytes::saved;
using saved_bytes::try_restore;

constexpr uint32_t kBudget = 64, kLatest = kBudget + 4096 + 16, kVocab = 272;

weir_session_options endless() {
  weir_session_options o = WEIR_SESSION_OPTIONS_INIT;
  o.device = WEIR_DEVICE_CPU;
  o.policy = "sink";
  o.budget_tokens = kBudget;
  return o;
}

weir_token token_at(uint32_t i) { return static_cast<weir_token>(uint64_t{i} * 2654435761u % (kVocab - 20) + 10); }
std::vector<weir_token> tokens_from(uint32_t first, uint32_t n) {
  std::vector<weir_token> tokens(n);
  for (uint32_t i = 0; i < n; ++i) tokens[i] = token_at(first + i);
  return tokens;
}
void append(weir_session* session, uint32_t first, uint32_t n) {
  assert_ok(weir_session_prefill(session, tokens_from(first, n).data(), n, nullptr, nullptr));
}

struct View {
  explicit View(weir_session* session) {
    const weir_token* held = nullptr;
    uint32_t n = 0;
    assert_ok(weir_session_tokens(session, &held, &n));
    tokens.assign(held, held + n);
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(session, &stats));
    first = stats.n_tokens - n;
  }
  void check(uint32_t wanted_first, uint32_t wanted_end) const {
    assert_int_equal(first, wanted_first);
    assert_int_equal(first + tokens.size(), wanted_end);
    for (uint32_t i = 0; i < tokens.size(); ++i) assert_int_equal(tokens[i], token_at(first + i));
  }
  std::vector<weir_token> tokens;
  uint32_t first;
};

// What both do next is the same.
void same_from_here(const Session& a, const Session& b) {
  for (uint32_t i = 0; i < 3; ++i) {
    for (const Session* s : {&a, &b}) assert_ok(weir_session_step(*s, token_at(77 + i)));
    assert_true(const_cast<Session&>(a).logits() == const_cast<Session&>(b).logits());
  }
  assert_true(View(a).tokens == View(b).tokens);
}

void endless__the_plan_is_what_is_used(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  for (bool preset : {false, true}) {
    weir_session_options o = endless();
    if (preset) assert_ok(weir_session_options_preset("stream", &o));
    const weir_plan_info plan = plan_of(f->model, o);
    assert_true(plan.context_tokens > 1u << 29);
    assert_true(plan.sampler_bytes < 256 << 10);
    weir_session* session = nullptr;
    assert_ok(weir_session_create(f->model, &o, &session));
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    assert_ok(weir_session_memory(session, &memory));
    assert_int_equal(memory.bytes, plan.total_bytes);
    weir_session_destroy(session);
  }
  // A context that the pool could hold is recorded whole, however long.
  weir_session_options o = endless();
  o.context_tokens = 1 << 20;
  assert_true(plan_of(f->model, o).sampler_bytes >= 4 << 20);
}

// A store takes what it is given and a little for its tables, whatever the conversation might become.
void endless__a_store_is_bounded(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  weir_session_options o = endless();
  const weir_plan_info without = plan_of(f->model, o);
  for (const uint64_t budget : {200u << 10, 1u << 20}) {
    o.spill_budget_bytes = budget;
    o.spill_raw_bytes = budget / 2;
    const weir_plan_info plan = plan_of(f->model, o);
    assert_true(plan.context_tokens > 1u << 29);
    assert_true(plan.total_bytes < without.total_bytes + 2 * budget + (1 << 20));
  }
  o.spill_budget_bytes = 200u << 10;
  o.spill_raw_bytes = 100u << 10;
  // Far more pages than the tables have entries.
  Session session(f->model, o);
  append(session, 0, 3 * kLatest);
  weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
  assert_ok(weir_session_memory(session, &memory));
  assert_int_equal(memory.bytes, memory.plan_bytes);
  weir_session_stats stats = WEIR_SESSION_STATS_INIT;
  assert_ok(weir_session_get_stats(session, &stats));
  assert_true(stats.pages_cold > 0 && stats.pages_cold < 1000);
  // Saved, restored, and saved again.
  const File file = saved(session);
  Session other(f->model, o);
  append(other, 7, 500);
  assert_int_equal(try_restore(other, file), WEIR_OK);
  assert_true(saved(other) == file);
  same_from_here(session, other);
  assert_true(saved(other) == saved(session));
}

void endless__the_latest_tokens_are_there(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  Session session(f->model, endless());
  append(session, 0, 2 * kLatest - 1);
  View(session).check(0, 2 * kLatest - 1);
  assert_ok(weir_session_step(session, token_at(2 * kLatest - 1)));
  View(session).check(kLatest, 2 * kLatest);
  append(session, 2 * kLatest, 3 * kLatest + 5);  // a prompt that is longer than what is kept
  View(session).check(4 * kLatest, 5 * kLatest + 5);
  weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
  assert_ok(weir_session_memory(session, &memory));
  assert_int_equal(memory.bytes, memory.plan_bytes);
  assert_int_equal(memory.allocs_while_decoding, 0);
  assert_ok(weir_session_reset(session));
  append(session, 0, 20);
  View(session).check(0, 20);
}

void endless__rewinds(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  constexpr uint32_t kEnd = 2 * kLatest + 40;
  Session session(f->model, endless());
  append(session, 0, kEnd);
  // Into what the pool holds, and as far back as tokens are known.
  assert_ok(weir_session_rewind(session, kEnd - 20, WEIR_REWIND_LOSSY));
  View(session).check(kLatest, kEnd - 20);
  assert_ok(weir_session_rewind(session, kLatest + 25, WEIR_REWIND_LOSSY));
  View(session).check(kLatest, kLatest + 25);
  assert_error(weir_session_rewind(session, kLatest - 1, WEIR_REWIND_LOSSY), WEIR_ERR_NOT_FOUND, "are held");
  assert_error(weir_session_rewind(session, kBudget + 1, WEIR_REWIND_LOSSY), WEIR_ERR_NOT_FOUND, "are held");
  View(session).check(kLatest, kLatest + 25);
  // To the beginning, which stays in the pool: nothing is lost.
  assert_ok(weir_session_rewind(session, 13, 0));
  View(session).check(0, 13);
  append(session, 13, 30);
  View(session).check(0, 43);
  Session fresh(f->model, endless());
  append(fresh, 0, 13);
  append(fresh, 13, 30);
  same_from_here(session, fresh);
}

// A session is made to hold a conversation of which it has only the beginning and the end.
void endless__prompts(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  constexpr uint32_t kLong = 2 * kLatest + 100;
  Session session(f->model, endless()), other(f->model, endless());
  for (Session* s : {&session, &other}) append(*s, 0, kLong);
  std::vector<weir_token> wanted;
  for (uint32_t i = 0; i < kLong + 40; ++i) wanted.push_back(token_at(i));
  weir_prompt_report report = WEIR_PROMPT_REPORT_INIT;
  assert_ok(weir_session_prompt_tokens(session, wanted.data(), kLong + 40, nullptr, &report));
  assert_true(report.n_kept == kLong && report.n_read == 40 && report.n_forgotten == 0);
  assert_ok(weir_session_prefill(other, wanted.data() + kLong, 40, nullptr, nullptr));
  same_from_here(session, other);
  // Another end; and one that is too long ago, of which only the beginning is left.
  wanted[kLong + 20] = (token_at(kLong + 20) + 1) % kVocab;
  assert_ok(weir_session_prompt_tokens(session, wanted.data(), kLong + 30, nullptr, &report));
  assert_true(report.n_kept == kLong + 20 && report.n_read == 10);
  wanted[kLatest - 50] = (wanted[kLatest - 50] + 1) % kVocab;
  assert_ok(weir_session_prompt_tokens(session, wanted.data(), kLatest, nullptr, &report));
  assert_true(report.n_kept == kBudget && report.n_read == kLatest - kBudget);
  // The same of which the last token is stepped again, among those at the beginning.
  for (uint32_t i = kLatest; i < kLong; ++i) assert_ok(weir_session_step(session, token_at(i)));
  assert_ok(weir_session_prompt_tokens(session, wanted.data(), 10, nullptr, &report));
  assert_true(report.n_kept == 9 && report.n_read == 1);
  assert_true(View(session).tokens == std::vector<weir_token>(wanted.begin(), wanted.begin() + 10));
}

void endless__forks(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  for (uint32_t n : {50u, 2 * kLatest + 3}) {
    Session session(f->model, endless());
    append(session, 0, n);
    weir_session* fork = nullptr;
    assert_ok(weir_session_fork(session, &fork));
    assert_true(View(fork).tokens == View(session).tokens);
    assert_ok(weir_session_rewind(fork, 10, 0));
    View(fork).check(0, 10);
    weir_session_destroy(fork);
  }
}

// The file of a conversation whose tokens are all known, as earlier versions wrote it.
File in_version_1(const File& file, const std::vector<weir_token>& tokens) {
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    std::memcpy(&value, file.data() + at, sizeof(value));
    return value;
  };
  File out(file.begin(), file.begin() + 24);
  const uint32_t version = 1;
  std::memcpy(out.data() + 8, &version, sizeof(version));
  const auto add = [&out](const void* bytes, size_t n) {
    const auto* from = static_cast<const uint8_t*>(bytes);
    out.insert(out.end(), from, from + n);
  };
  const auto add_sum = [&](size_t from) {
    const uint64_t sum = XXH3_64bits(out.data() + from, out.size() - from);
    add(&sum, sizeof(sum));
  };
  out.resize(16);
  add_sum(0);
  const size_t tokn = 24 + 4 + 4 + number(28) + 8;
  add(file.data() + 24, tokn - 24);
  const size_t n = number(tokn + 4), first = number(tokn + 8), n_front = number(tokn + 12);
  const size_t begin = out.size();
  add(file.data() + tokn, 8);
  add(tokens.data(), tokens.size() * sizeof(weir_token));
  add_sum(begin);
  const size_t logt = tokn + 16 + 4 * (n_front + n - first) + 8;
  add(file.data() + logt, file.size() - 8 - logt);
  add_sum(0);
  return out;
}

void endless__saved_sessions(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  for (uint32_t n : {50u, 2 * kLatest - 1, 3 * kLatest + 7}) {
    Session session(f->model, endless());
    append(session, 0, n);
    const File file = saved(session);
    assert_int_equal(file[8], n < 2 * kLatest ? 1 : 2);
    Session again(f->model, endless());
    append(again, 5, 9000);  // of which nothing is left
    assert_ok(try_restore(again, file));
    assert_true(View(again).tokens == View(session).tokens);
    assert_true(saved(again) == file);
    if (n >= 2 * kLatest) {
      Session old(f->model, endless());
      assert_ok(try_restore(old, in_version_1(file, tokens_from(0, n))));
      assert_true(View(old).tokens == View(session).tokens);
      assert_true(saved(old) == file);
      assert_ok(weir_session_rewind(old, 10, 0));
      View(old).check(0, 10);
    }
    same_from_here(session, again);
  }
}

// Numbers that no session writes are refused, with all checksums right.
void endless__damaged_records(void** state) {
  const fixture* f = static_cast<fixture*>(*state);
  Session session(f->model, endless());
  append(session, 0, 3 * kLatest);
  const File file = saved(session);
  uint32_t n_text = 0;
  std::memcpy(&n_text, file.data() + 28, sizeof(n_text));
  const size_t tokn = 24 + 4 + 4 + n_text + 8;
  const struct {
    size_t at;
    uint32_t value;
  } changes[] = {{8, 0},       {8, 1},        {8, kLatest}, {8, 4 * kLatest},          {12, 0}, {12, kBudget + 1},
                 {4, kLatest}, {4, 1u << 31}, {16, kVocab}, {16 + 4 * kBudget, kVocab}};
  for (const auto& change : changes) {
    File damaged = file;
    std::memcpy(damaged.data() + tokn + change.at, &change.value, sizeof(change.value));
    const size_t end = tokn + 16 + 4 * (kBudget + kLatest);
    const uint64_t sum = XXH3_64bits(damaged.data() + tokn, end - tokn);
    std::memcpy(damaged.data() + end, &sum, sizeof(sum));
    const uint64_t total = XXH3_64bits(damaged.data(), damaged.size() - 8);
    std::memcpy(damaged.data() + damaged.size() - 8, &total, sizeof(total));
    Session again(f->model, endless());
    if (try_restore(again, damaged) != WEIR_ERR_FORMAT) fail_msg("%zu: %u", change.at, change.value);
    assert_int_equal(View(again).tokens.size(), 0);
    append(again, 0, 5);
  }
}

int open_small(void** state) { return open_fixture_of(WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf", state); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(endless__the_plan_is_what_is_used),
      cmocka_unit_test(endless__a_store_is_bounded),
      cmocka_unit_test(endless__the_latest_tokens_are_there),
      cmocka_unit_test(endless__rewinds),
      cmocka_unit_test(endless__prompts),
      cmocka_unit_test(endless__forks),
      cmocka_unit_test(endless__saved_sessions),
      cmocka_unit_test(endless__damaged_records),
  };
  return cmocka_run_group_tests_name("api/test_endless", tests, open_small, close_fixture);
}
