// Fuzz target: any bytes as a saved session behind a description that fits. The first byte chooses the session. Where
// the reader asks for a checksum it gets the right one, so that what comes behind is reached. A restore ends well or
// with WEIR_ERR_FORMAT and a session without tokens; after a good one the session works, and what it saves is good.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kv/checksum.h"
#include "weir/weir.h"

namespace {

using Bytes = std::vector<uint8_t>;

void require(bool promise) {
  if (!promise) __builtin_trap();
}

weir_status write_bytes(void* user, const weir_write_info* info) {
  auto& bytes = *static_cast<Bytes*>(user);
  const auto* data = static_cast<const uint8_t*>(info->data);
  bytes.insert(bytes.end(), data, data + info->n_bytes);
  return WEIR_OK;
}

Bytes saved(weir_session* session) {
  Bytes bytes;
  require(weir_session_save(session, write_bytes, &bytes) == WEIR_OK);
  return bytes;
}

// Gives out a file with checksums that fit. Sections begin with a name of four bytes; all that is read as eight bytes
// is a checksum or two numbers that may have any value.
struct Source {
  const uint8_t* bytes;
  size_t n, at = 0;
  bool signs;
  weir::Checksum section, total;
  bool is_end = false;  // in the last section
};

bool is_name(const uint8_t* bytes) {
  for (const char* name : {"DESC", "TOKN", "LOGT", "SAMP", "TEXT", "ROWS", "DIGS", "PAGE", "HIST", "END!"}) {
    if (std::memcmp(bytes, name, 4) == 0) return true;
  }
  return false;
}

weir_status read_bytes(void* user, const weir_read_info* info, uint64_t* n_read) {
  auto& s = *static_cast<Source*>(user);
  *n_read = std::min<uint64_t>(info->n_bytes, s.n - s.at);
  auto* out = static_cast<uint8_t*>(info->data);
  std::memcpy(out, s.bytes + s.at, *n_read);
  s.at += *n_read;
  if (info->n_bytes == 8 && *n_read == 8 && s.signs) {
    const uint64_t sum = s.is_end ? s.total.value() : s.section.value();
    std::memcpy(out, &sum, 8);
  }
  if (*n_read == 4 && is_name(out)) {
    s.section.reset();
    s.is_end = std::memcmp(out, "END!", 4) == 0;
  }
  s.section.add(out, *n_read);
  s.total.add(out, *n_read);
  return WEIR_OK;
}

struct Target {
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  std::vector<weir_session*> sessions;
  std::vector<Bytes> begins;  // of files of these sessions, up to the tokens

  Target() {
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    options.n_threads = 1;
    require(weir_runtime_create(&options, &runtime) == WEIR_OK);
    require(weir_model_open(runtime, WEIR_SOURCE_DIR "/tests/golden/models/llama_f16.gguf", nullptr, &model) ==
            WEIR_OK);
    static const weir_key_value mean_std[] = {{"digest", "mean_std"}, {"skip_layers", "0"}};
    static const weir_key_value unpinned[] = {{"pin_prompt", "false"}};
    add("dense", 0, nullptr, 0);
    add("arkvale", 64, nullptr, 0);
    add("quest", 64, mean_std, 2);
    add("h2o", 96, nullptr, 0);
    add("raas", 64, unpinned, 1, 1 << 20);
    static const weir_key_value all_layers[] = {{"skip_layers", "0"}};
    add("lfps", 32, all_layers, 1);
  }

  void add(const char* policy, uint32_t budget, const weir_key_value* some, uint32_t n, uint64_t spill_bytes = 0) {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.device = WEIR_DEVICE_CPU;
    options.context_tokens = 256;
    options.batch_tokens = 32;
    options.policy = policy;
    options.budget_tokens = budget;
    options.spill_budget_bytes = spill_bytes;
    options.policy_options = some;
    options.n_policy_options = n;
    weir_session* session = nullptr;
    require(weir_session_create(model, &options, &session) == WEIR_OK);
    const Bytes empty = saved(session);
    static constexpr char kTokens[] = "TOKN";
    const auto tokens = std::search(empty.begin(), empty.end(), kTokens, kTokens + 4);
    sessions.push_back(session);
    begins.emplace_back(empty.begin(), tokens);
  }

  uint32_t n_tokens(weir_session* session) const {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    require(weir_session_get_stats(session, &stats) == WEIR_OK);
    return stats.n_tokens;
  }

  void try_one(size_t which, const uint8_t* data, size_t size, bool signs) {
    weir_session* session = sessions[which];
    Bytes file = begins[which];
    file.insert(file.end(), data, data + size);
    Source source = {file.data(), file.size(), 0, signs, {}, {}, false};
    const weir_status status = weir_session_restore(session, read_bytes, &source);
    if (status != WEIR_OK) {
      require(status == WEIR_ERR_FORMAT && n_tokens(session) == 0);
      return;
    }
    const Bytes again = saved(session);
    Source second = {again.data(), again.size(), 0, false, {}, {}, false};
    require(weir_session_restore(session, read_bytes, &second) == WEIR_OK);
    require(saved(session) == again);
    use(session);
  }

  // Going back fails at most because pages are lost, steps and a prompt because the context is full or everything is
  // pinned.
  void use(weir_session* session) const {
    (void)weir_session_rewind(session, n_tokens(session) - n_tokens(session) / 8, 0);
    for (weir_token token = 20; token < 40; ++token) (void)weir_session_step(session, token);
    weir_token prompt[40];
    for (int i = 0; i < 40; ++i) prompt[i] = 30 + i;
    (void)weir_session_prefill(session, prompt, 40, nullptr, nullptr);
    weir_token drawn = -1;
    (void)weir_session_sample(session, &drawn);
    (void)weir_session_rewind(session, n_tokens(session) / 2, WEIR_REWIND_LOSSY);
    for (weir_token token = 20; token < 30; ++token) (void)weir_session_step(session, token);
    require(weir_session_reset(session) == WEIR_OK);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Target& target = *new Target;  // for the whole run
  if (size == 0) return 0;
  target.try_one(data[0] % target.sessions.size(), data + 1, size - 1, true);
  return 0;
}
