// What a session's conversation was in is wiped before the memory goes back to the allocator's hooks, and what is kept
// for the next conversation is wiped by a reset and by a restore: no token ids and no keys are left.
#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <set>
#include <vector>

#include "api/handles.h"
#include "tests/api/api_test.h"
#include "tests/api/programs.h"

namespace {

using namespace programs;

// Looks for traces of a conversation in blocks that are freed, and in those that are there.
struct Blocks {
  std::set<std::pair<std::byte*, uint64_t>> live, before;  // before: of others than the session
  std::map<uint64_t, std::vector<uint8_t>> traces;         // 24 bytes, by the first eight; at even addresses
  std::vector<bool> begins = std::vector<bool>(65536);     // by the first two of them
  uint64_t n_found = 0;

  bool has_trace(const void* block, uint64_t n) const {
    const auto* bytes = static_cast<const std::byte*>(block);
    for (uint64_t at = 0; at + 24 <= n; at += 2) {
      uint64_t here = 0;
      std::memcpy(&here, bytes + at, 8);
      if (!begins[here & 0xFFFF]) continue;
      const auto trace = traces.find(here);
      if (trace != traces.end() && std::memcmp(bytes + at, trace->second.data(), 24) == 0) return true;
    }
    return false;
  }
  uint64_t n_live_with_traces() const {
    uint64_t n = 0;
    for (const auto& block : live) n += before.count(block) == 0 && has_trace(block.first, block.second) ? 1 : 0;
    return n;
  }
};

weir_status alloc(void* user, const weir_alloc_info* info, void** out) {
  auto& blocks = *static_cast<Blocks*>(user);
  *out = ::operator new(info->bytes, std::align_val_t(info->alignment));
  std::memset(*out, 0xA5, info->bytes);
  blocks.live.insert({static_cast<std::byte*>(*out), info->bytes});
  return WEIR_OK;
}

weir_status free_block(void* user, const weir_alloc_info* info) {
  auto& blocks = *static_cast<Blocks*>(user);
  blocks.n_found += blocks.has_trace(info->ptr, info->bytes) ? 1 : 0;
  blocks.live.erase({static_cast<std::byte*>(info->ptr), info->bytes});
  ::operator delete(info->ptr, std::align_val_t(info->alignment));
  return WEIR_OK;
}

// Tokens, the keys of pages in the pool, logits, and the states of recurrent layers as they are saved.
void remember(Blocks& blocks, weir_session* session, bool has_state) {
  const weir_token* tokens = nullptr;
  uint32_t n = 0;
  assert_ok(weir_session_tokens(session, &tokens, &n));
  const auto keep = [&](const void* from) {
    uint64_t first = 0;
    std::memcpy(&first, from, sizeof(first));
    const auto* data = static_cast<const uint8_t*>(from);
    blocks.traces[first] = {data, data + 24};
    blocks.begins[first & 0xFFFF] = true;
  };
  for (uint32_t i = 0; i + 6 <= n; i += 20) keep(tokens + i);
  const weir::KvCache& kv = session->kv();
  for (uint32_t s = 0; s < kv.shape().n_streams(); s += 3) {
    const weir::StreamView v = kv.stream(s);
    for (uint32_t row = 0; row < v.n_pages; row += 2) {
      if (v.slots[row] != weir::kNoSlot) keep(kv.page_keys(v.slots[row]));
    }
  }
  if (const std::vector<float> logits = logits_of(session); !logits.empty()) keep(logits.data());
  if (!has_state) return;
  Bytes saved;
  assert_ok(save(session, saved));
  constexpr char kName[] = "RECU";
  const auto section = std::find_end(saved.begin(), saved.end(), kName, kName + 4);
  assert_true(section != saved.end());
  for (auto at = section + 4; at + 24 < saved.end(); at += 1000) {
    if (std::count(at, at + 24, 0) < 6) keep(&*at);
  }
}

enum class End : uint8_t { kDestroy, kReset, kRestore };

void check_end(weir_model* model, Blocks& blocks, const char* policy, bool has_store, End end) {
  Config config;
  config.policy = policy;
  weir_session_options& o = config.options;
  o.device = WEIR_DEVICE_CPU;
  o.context_tokens = 400;
  o.batch_tokens = 20;
  o.budget_tokens = 128;
  if (has_store) o.spill_budget_bytes = 1 << 20;
  weir_session *session = nullptr, *empty = nullptr;
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  assert_ok(weir_plan(model, nullptr, &plan));
  blocks.before = blocks.live;
  blocks.traces.clear();
  blocks.begins.assign(65536, false);
  if (has_store && config.create(model, &session) == WEIR_ERR_INVALID_ARG) return;  // its policy lets no pages go
  if (!has_store) assert_ok(config.create(model, &session));
  assert_ok(config.create(model, &empty));
  Bytes nothing;
  assert_ok(save(empty, nothing));
  weir_session_destroy(empty);
  blocks.n_found = 0;
  const Op ops[] = {{Kind::kPrefill, 100, 3, 0, 0},     {Kind::kGenerate, 20, 0, 0, 0},
                    {Kind::kRewind, 0, 0, 60, 0},       {Kind::kCancelledPrefill, 60, 92, 0, 0},
                    {Kind::kPrefill, 110, 30, 0, 0},    {Kind::kSteps, 40, 200, 0, 0},
                    {Kind::kLossyRewind, 0, 0, 150, 0}, {Kind::kPrefill, 30, 500, 0, 0}};
  for (const Op& op : ops) {
    (void)run(session, op);
    remember(blocks, session, plan.n_snapshots != 0);
  }
  assert_true(blocks.n_live_with_traces() > 0);
  if (end == End::kReset) assert_ok(weir_session_reset(session));
  if (end == End::kRestore) assert_ok(restore(session, nothing));
  if (end != End::kDestroy && blocks.n_live_with_traces() != 0)
    fail_msg("%s%s: %s leaves traces", policy, has_store ? " with a store" : "",
             end == End::kReset ? "a reset" : "a restore");
  weir_session_destroy(session);
  if (blocks.n_found != 0) fail_msg("%s%s: freed blocks have traces", policy, has_store ? " with a store" : "");
}

void wiped__whatever_ends_a_conversation(void**) {
  Blocks blocks;
  weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
  options.n_threads = 1;
  options.alloc = alloc;
  options.free = free_block;
  options.alloc_user = &blocks;
  weir_runtime* runtime = nullptr;
  assert_ok(weir_runtime_create(&options, &runtime));
  for (const char* path : {kModels[0], kModels[1], WEIR_SOURCE_DIR "/tests/golden/models/qwen35_f32.gguf"}) {
    weir_model* model = nullptr;
    assert_ok(weir_model_open(runtime, path, nullptr, &model));
    for (const char* policy : kPolicies) {
      for (End end : {End::kDestroy, End::kReset, End::kRestore}) {
        check_end(model, blocks, policy, false, end);
        check_end(model, blocks, policy, true, end);
      }
    }
    weir_model_close(model);
  }
  weir_runtime_destroy(runtime);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(wiped__whatever_ends_a_conversation)};
  return cmocka_run_group_tests_name("wiped", tests, nullptr, nullptr);
}
