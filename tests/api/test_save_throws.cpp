// api: callbacks of weir_session_save and weir_session_restore that throw, at every call. No exception gets through.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "api_test.h"

namespace {

struct File {
  std::vector<unsigned char> bytes;
  uint64_t at = 0, n_calls = 0, throws_at = 0;
};

weir_status write(void* user, const weir_write_info* info) {
  auto& file = *static_cast<File*>(user);
  if (++file.n_calls == file.throws_at) throw std::runtime_error("disk on fire");
  const auto* bytes = static_cast<const unsigned char*>(info->data);
  file.bytes.insert(file.bytes.end(), bytes, bytes + info->n_bytes);
  return WEIR_OK;
}

weir_status read(void* user, const weir_read_info* info, uint64_t* n_read) {
  auto& file = *static_cast<File*>(user);
  if (++file.n_calls == file.throws_at) throw 7;
  *n_read = std::min<uint64_t>(info->n_bytes, file.bytes.size() - file.at);
  std::memcpy(info->data, file.bytes.data() + file.at, *n_read);
  file.at += *n_read;
  return WEIR_OK;
}

void save__callbacks_may_throw(void** state) {
  const auto* f = static_cast<const fixture*>(*state);
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.device = WEIR_DEVICE_CPU;
  options.context_tokens = 512;
  options.policy = "arkvale";
  options.budget_tokens = 128;
  weir_session* session = nullptr;
  assert_ok(weir_session_create(f->model, &options, &session));
  weir_token tokens[200];
  for (int i = 0; i < 200; ++i) tokens[i] = 20 + i * 37 % 200;
  assert_ok(weir_session_prefill(session, tokens, 200, nullptr, nullptr));
  File good;
  assert_ok(weir_session_save(session, write, &good));
  for (uint64_t call = 1; call <= good.n_calls; call += 1 + good.n_calls / 50) {
    File bad;
    bad.throws_at = call;
    assert_error(weir_session_save(session, write, &bad), WEIR_ERR_IO, "the callback threw");
    assert_int_equal(bad.n_calls, call);
  }
  File again;
  assert_ok(weir_session_save(session, write, &again));
  assert_true(again.bytes == good.bytes);
  good.n_calls = 0;
  assert_ok(weir_session_restore(session, read, &good));
  const uint64_t n_calls = good.n_calls;
  weir_session_stats stats = WEIR_SESSION_STATS_INIT;
  for (uint64_t call = 1; call <= n_calls; call += 1 + n_calls / 50) {
    good.at = good.n_calls = 0;
    good.throws_at = call;
    assert_error(weir_session_restore(session, read, &good), WEIR_ERR_IO, "the callback threw");
    assert_int_equal(good.n_calls, call);
    assert_ok(weir_session_get_stats(session, &stats));
    assert_int_equal(stats.n_tokens, 0);
    assert_int_equal(stats.pages_resident, 0);
  }
  good.at = good.throws_at = 0;
  assert_ok(weir_session_restore(session, read, &good));
  assert_ok(weir_session_step(session, 30));
  weir_session_destroy(session);
}

int open_small(void** state) { return open_fixture_of(WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf", state); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(save__callbacks_may_throw)};
  return cmocka_run_group_tests_name("save_throws", tests, open_small, close_fixture);
}
