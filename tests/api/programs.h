// Random programs of the API for property tests and for the fuzz target: sessions under any policy with any options,
// and conversations in them. What happens follows from the decisions alone, which come from a seed or from a fuzzer's
// bytes; so twins do the same. Nothing here judges: calls return what they got.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weir/weir.h"

namespace programs {

using Bytes = std::vector<uint8_t>;

class Choices {
 public:
  explicit Choices(uint64_t seed) : state_(seed) {}
  Choices(const uint8_t* bytes, size_t n) : at_(bytes), end_(bytes + n) {}

  // 0 to n - 1. A fuzzer's bytes that have ended are all 0.
  uint32_t below(uint32_t n) {
    if (n <= 1) return 0;
    if (at_ == nullptr) return static_cast<uint32_t>(next() % n);
    uint32_t value = 0;
    for (uint32_t most = n - 1; most != 0; most >>= 8) value = value << 8 | (at_ == end_ ? 0u : *at_++);
    return value % n;
  }
  uint32_t from(uint32_t least, uint32_t most) { return least + below(most - least + 1); }
  bool one_in(uint32_t n) { return below(n) == n - 1; }
  template <class T, size_t N>
  const T& of(const T (&list)[N]) {
    return list[below(N)];
  }
  bool are_over() const { return at_ != nullptr && at_ == end_; }

 private:
  uint64_t next() {  // SplitMix64
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  uint64_t state_ = 0;
  const uint8_t *at_ = nullptr, *end_ = nullptr;
};

// --- sessions ------------------------------------------------------------------------------------------------------

#define WEIR_TEST_GOLDEN WEIR_SOURCE_DIR "/tests/golden/models/"
// Plain ones and ones with sliding windows; the latter are every other one. The last has recurrent layers.
inline const char* const kModels[] = {WEIR_TEST_GOLDEN "llama_f32.gguf",  WEIR_TEST_GOLDEN "gemma3_q8_0.gguf",
                                      WEIR_TEST_GOLDEN "llama_hd80.gguf", WEIR_TEST_GOLDEN "gemma2_f32.gguf",
                                      WEIR_TEST_GOLDEN "qwen3_f32.gguf",  WEIR_TEST_GOLDEN "gpt_oss_f32.gguf",
                                      WEIR_TEST_GOLDEN "qwen35_f32.gguf"};
#undef WEIR_TEST_GOLDEN

// All; the tables below may say nothing about one, then it has its defaults.
inline const char* const kPolicies[] = {
#define WEIR_POLICY(name) #name,
#include "policy/policies.inc"
#undef WEIR_POLICY
};

// Values that an option may get, separated by spaces.
struct OptionValues {
  const char* policy;
  const char* key;
  const char* values;
};
inline constexpr const char* kDigests = "minmax cuboid_mean sphere_mean centroid mean_std sketch";
inline constexpr const char* kAggregates = "max_raw max_z sum_prob max_prob mean_raw";
inline const OptionValues kOptionValues[] = {
    {"sink", "sinks", "0 4 16 33"},
    {"sink", "window", "1 17 64 120"},
    {"sink", "positions", "abs incache"},
    {"h2o", "recent", "0 17 60"},
    {"h2o", "score", "sum norm_sum"},
    {"h2o", "init", "exact window zero"},
    {"h2o", "skip_layers", "0 1 2"},
    {"tova", "decide", "page token"},
    {"tova", "scope", "layer stream"},
    {"tova", "skip_layers", "0 1 2"},
    {"quest", "digest", kDigests},
    {"quest", "agg", "max_raw max_z sum_prob qhead"},
    {"quest", "skip_layers", "0 1 2"},
    {"quest", "sink_pages", "0 1 2"},
    {"quest", "dense_tokens", "0 40 150"},
    {"raas", "alpha", "0 0.3 0.8"},
    {"raas", "stamp_source", "exact_mass digest"},
    {"raas", "pin_prompt", "true false"},
    {"raas", "min_decode_pages", "1 3"},
    {"raas", "overflow", "auto compress hybrid extend error"},
    {"raas", "rank_scope", "evictable all"},
    {"hybrid", "rho", "0.2 0.6"},
    {"hybrid", "digest", kDigests},
    {"hybrid", "skip_layers", "0 1"},
    {"random", "seed", "1 7"},
    {"random", "pin_prompt", "true false"},
    {"random", "overflow", "auto compress extend error"},
    {"keyformer", "recent", "0 17 60"},
    {"keyformer", "seed", "0 7"},
    {"keyformer", "tau_tokens", "1 50"},
    {"keyformer", "tau_end", "0.5 2"},
    {"scissorhands", "recent", "0 17 60"},
    {"scissorhands", "window", "1 30"},
    {"scissorhands", "drop", "0 1"},
    {"arkvale", "recall_from", "1 3 7"},
    {"arkvale", "recall_pages", "0 1 4"},
    {"arkvale", "attend", "resident top"},
    {"arkvale", "protect_recent", "0 1 3"},
    {"arkvale", "digest", kDigests},
    {"arkvale", "agg", kAggregates},
    {"psa", "eps", "0.3 0.8 0.98"},
    {"psa", "mb", "1 3"},
    {"psa", "digest", kDigests},
    {"lfps", "quota", "8 60 300"},
    {"lfps", "candidates", "quota threshold"},
    {"lfps", "position_share", "0 0.5 1"},
    {"lfps", "gamma", "0.3 0.9"},
    {"lfps", "sinks", "0 4 20"},
    {"lfps", "recent", "1 16 40"},
    {"lfps", "rows", "1 8 32"},
    {"lfps", "skip_layers", "0 1"},
};
// What raas, hybrid and psa may have with recall.
inline const OptionValues kRecallValues[] = {
    {"raas", "recall_pages", "0 2 8"}, {"raas", "attend", "resident top"},
    {"raas", "digest", kDigests},      {"hybrid", "recall_pages", "0 2 8"},
    {"hybrid", "digest", kDigests},    {"psa", "eps", "0.3 0.8 0.98"},
    {"psa", "pool", "unified stream"}, {"psa", "mb", "1 3"},
    {"psa", "digest", kDigests},
};

inline std::string one_of_words(Choices& choices, const char* words) {
  std::vector<std::string> list(1);
  for (const char* c = words; *c != '\0'; ++c) {
    if (*c == ' ') list.emplace_back();
    if (*c != ' ') list.back() += *c;
  }
  return list[choices.below(static_cast<uint32_t>(list.size()))];
}

// Where head files and spill files are; it goes with all that is in it.
class Folder {
 public:
  Folder() { ok_ = mkdtemp(path_) != nullptr; }
  ~Folder() {
    for (const std::string& file : files_) (void)unlink(file.c_str());
    if (ok_) (void)rmdir(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) {
    files_.push_back(std::string(path_) + "/" + name);
    return files_.back();
  }

 private:
  char path_[32] = "/tmp/weir-programs-XXXXXX";
  bool ok_ = false;
  std::vector<std::string> files_;
};

struct Config {
  std::string policy, spill_path;
  std::vector<std::pair<std::string, std::string>> settings;
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  bool recalls = false, has_heads = false;

  void set(const char* key, std::string value) { settings.emplace_back(key, std::move(value)); }
  weir_status create(weir_model* model, weir_session** out) {
    std::vector<weir_key_value> list;
    for (const auto& [key, value] : settings) list.push_back({key.c_str(), value.c_str()});
    options.policy = policy.c_str();
    options.policy_options = list.data();
    options.n_policy_options = static_cast<uint32_t>(list.size());
    options.spill_path = options.spill_file_bytes != 0 ? spill_path.c_str() : nullptr;
    return weir_session_create(model, &options, out);
  }
  std::string text() const {
    std::string out = policy;
    for (const auto& [key, value] : settings) out += " " + key + "=" + value;
    char numbers[200];
    std::snprintf(numbers, sizeof(numbers), "; context %u batch %u budget %u spill %llu raw %llu file %llu flags %u/%u",
                  options.context_tokens, options.batch_tokens, options.budget_tokens,
                  static_cast<unsigned long long>(options.spill_budget_bytes),
                  static_cast<unsigned long long>(options.spill_raw_bytes),
                  static_cast<unsigned long long>(options.spill_file_bytes), options.flags, options.spill_flags);
    return out + numbers;
  }
};

inline void choose_values(Choices& choices, Config& c, const OptionValues* from, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (c.policy == from[i].policy && choices.below(3) == 0) c.set(from[i].key, one_of_words(choices, from[i].values));
  }
}

// A head file of any scores.
inline std::string head_file(Choices& choices, const weir_model_info& m, Folder& folder) {
  const std::string path = folder.file("heads.tsv");
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return path;
  std::fprintf(file, "weir-heads\t2\nlayers\t%u\nkv_heads\t%u\nhead_dim\t%u\nsinks\t%u\nrecent\t%u\n", m.n_layers,
               m.n_kv_heads, m.head_dim, choices.below(40), 1 + choices.below(90));
  for (const char* table : {"", "echo\n", "induction\n"}) {
    std::fputs(table, file);
    for (uint32_t i = 0; i < m.n_layers * m.n_kv_heads; ++i)
      std::fprintf(file, "%.6f%s", choices.below(1001) / 1e3, (i + 1) % m.n_kv_heads == 0 ? "\n" : "\t");
  }
  std::fclose(file);
  return path;
}

inline void add_heads(Choices& choices, Config& c, const weir_model_info& m, Folder& folder) {
  c.has_heads = true;
  const bool is_razor = choices.one_in(2);
  c.set("heads", is_razor ? "razor" : "duo");
  c.set("heads_file", head_file(choices, m, folder));
  if (!is_razor) c.set("heads_sparsity", one_of_words(choices, "0.3 0.6 1"));
  if (choices.one_in(2)) c.set("heads_sinks", one_of_words(choices, "0 5 16 40"));
  if (choices.one_in(2)) c.set("heads_recent", one_of_words(choices, "1 20 64"));
  if (!is_razor) return;
  c.set("heads_echo", one_of_words(choices, "0.1 0.5"));
  c.set("heads_induction", one_of_words(choices, "0.1 0.5"));
  if (choices.one_in(2)) c.set("heads_compensate", one_of_words(choices, "true false"));
}

// A spill store from less than a chunk's pages to more than the context's, with raw pages or without, and a file.
inline void choose_store(Choices& choices, Config& c, const weir_model_info& m) {
  const uint64_t page = uint64_t{16} * m.head_dim * 4, of_all = page * m.n_layers * m.n_kv_heads;
  c.options.spill_budget_bytes = of_all * choices.from(4, choices.one_in(2) ? 40 : 200) / 10 + 2 * page;
  if (choices.one_in(3)) c.options.spill_raw_bytes = choices.below(static_cast<uint32_t>(of_all));
  if (choices.one_in(3)) c.options.spill_flags |= WEIR_SPILL_NO_RAW;
  if ((c.options.spill_flags & WEIR_SPILL_NO_RAW) != 0) c.options.spill_raw_bytes = 0;
  if (choices.one_in(3)) c.options.spill_file_bytes = of_all * choices.from(1, 20) + 4096;
}

// Not all of them are possible: some budgets are too small for the policy.
inline Config choose_config(Choices& choices, const weir_model_info& m, const char* policy, Folder& folder) {
  Config c;
  weir_session_options& o = c.options;
  c.policy = policy;
  c.spill_path = folder.file("spill");
  o.device = WEIR_DEVICE_CPU;
  o.context_tokens = 16 * choices.from(8, 20) + (choices.one_in(4) ? choices.below(16) : 0);
  o.batch_tokens = choices.one_in(2) ? choices.from(1, 20) : choices.from(20, 120);
  o.budget_tokens = 16 * choices.from(3, 12);
  if (choices.one_in(4)) o.max_prompt_tokens = choices.below(o.context_tokens);
  const bool may_recall = c.policy == "raas" || c.policy == "hybrid" || c.policy == "psa";
  c.recalls = c.policy == "arkvale" || (may_recall && choices.one_in(2));
  if (may_recall && c.recalls) {
    c.set("recall", "on");
    choose_values(choices, c, kRecallValues, std::size(kRecallValues));
  } else {
    choose_values(choices, c, kOptionValues, std::size(kOptionValues));
  }
  const bool has_prompt_rules = !c.recalls && c.policy != "dense" && c.policy != "lfps";
  if (has_prompt_rules && choices.one_in(5)) c.set("prompt", one_of_words(choices, "snapkv pyramid ada"));
  if (!c.recalls && c.policy != "lfps" && choices.one_in(4)) add_heads(choices, c, m, folder);
  if (!c.has_heads && (c.recalls ? !choices.one_in(8) : choices.one_in(2))) choose_store(choices, c, m);
  if (c.recalls && choices.one_in(6)) o.spill_flags |= WEIR_SPILL_STRICT;
  return c;
}

// --- calls ---------------------------------------------------------------------------------------------------------

inline weir_session_stats stats_of(weir_session* session) {
  weir_session_stats stats = WEIR_SESSION_STATS_INIT;
  (void)weir_session_get_stats(session, &stats);
  return stats;
}

// None without logits.
inline std::vector<float> logits_of(weir_session* session) {
  const float* logits = nullptr;
  uint32_t n = 0;
  if (weir_session_logits(session, &logits, &n) != WEIR_OK) return {};
  return {logits, logits + n};
}

inline weir_status append_bytes(void* user, const weir_write_info* info) {
  auto& bytes = *static_cast<Bytes*>(user);
  const auto* data = static_cast<const uint8_t*>(info->data);
  bytes.insert(bytes.end(), data, data + info->n_bytes);
  return WEIR_OK;
}

inline weir_status save(weir_session* session, Bytes& bytes) {
  bytes.clear();
  return weir_session_save(session, append_bytes, &bytes);
}

struct Source {
  const Bytes* bytes;
  size_t at;
};

inline weir_status give_bytes(void* user, const weir_read_info* info, uint64_t* n_read) {
  auto& source = *static_cast<Source*>(user);
  *n_read = std::min<uint64_t>(info->n_bytes, source.bytes->size() - source.at);
  if (*n_read != 0) std::memcpy(info->data, source.bytes->data() + source.at, *n_read);
  source.at += *n_read;
  return WEIR_OK;
}

inline weir_status restore(weir_session* session, const Bytes& bytes) {
  Source source = {&bytes, 0};
  return weir_session_restore(session, give_bytes, &source);
}

// Agrees so many times.
inline weir_status agree_some(void* user, const weir_progress_info*) {
  auto& left = *static_cast<uint32_t*>(user);
  if (left == 0) return WEIR_ERR_CANCELLED;
  --left;
  return WEIR_OK;
}

enum class Kind : uint8_t {
  kPrefill,
  kCancelledPrefill,
  kSteps,
  kGenerate,
  kRewind,
  kLossyRewind,
  kPin,
  kUnpin,
  kSample
};
inline constexpr uint32_t kKinds = 9;

struct Op {
  Kind kind;
  uint32_t n, seed, at, end;
};

// For a conversation of n_tokens.
inline Op choose_op(Choices& choices, uint32_t n_tokens) {
  static constexpr Kind kOften[] = {Kind::kPrefill, Kind::kSteps,  Kind::kPrefill,
                                    Kind::kSteps,   Kind::kRewind, Kind::kLossyRewind};
  Op op = {};
  op.kind = choices.one_in(3) ? static_cast<Kind>(choices.below(kKinds)) : choices.of(kOften);
  if (n_tokens == 0) op.kind = Kind::kPrefill;
  op.n = choices.from(1, op.kind == Kind::kPrefill || op.kind == Kind::kCancelledPrefill ? 110 : 24);
  op.seed = choices.below(65536);
  op.at = choices.below(n_tokens + 1);
  if (choices.one_in(2)) op.at = n_tokens - std::min(n_tokens, choices.below(40));
  if (choices.one_in(3)) op.at -= op.at % 16;
  op.end = op.at + 1 + choices.below(40);
  return op;
}

inline weir_token token(uint32_t seed, uint32_t i) {
  return static_cast<weir_token>((seed + i) * 2654435761u % 199 + 20);
}

// The bytes of numbers, which may be NaN, or none at all.
inline std::string_view bits(const std::vector<float>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)};
}

// What a call said, and what there is afterwards.
struct Outcome {
  weir_status status = WEIR_OK;
  uint32_t n_tokens = 0;
  std::vector<float> logits;
  std::vector<weir_token> drawn;
  bool operator==(const Outcome& o) const {
    return status == o.status && n_tokens == o.n_tokens && drawn == o.drawn && bits(logits) == bits(o.logits);
  }
};

inline weir_status run_prefill(weir_session* session, const Op& op) {
  std::vector<weir_token> tokens;
  for (uint32_t i = 0; i < op.n; ++i) tokens.push_back(token(op.seed, i));
  uint32_t left = op.seed % 5;
  const bool cancels = op.kind == Kind::kCancelledPrefill;
  return weir_session_prefill(session, tokens.data(), op.n, cancels ? agree_some : nullptr, cancels ? &left : nullptr);
}

inline weir_status keep_token(void* user, const weir_token_event* event) {
  static_cast<std::vector<weir_token>*>(user)->push_back(event->token);
  return WEIR_OK;
}

inline Outcome run(weir_session* session, const Op& op) {
  Outcome out;
  switch (op.kind) {
    case Kind::kPrefill:
    case Kind::kCancelledPrefill:
      out.status = run_prefill(session, op);
      break;
    case Kind::kSteps:
      for (uint32_t i = 0; i < op.n && out.status == WEIR_OK; ++i)
        out.status = weir_session_step(session, token(op.seed, i));
      break;
    case Kind::kGenerate: {
      weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
      weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
      options.max_tokens = op.n;
      options.flags = WEIR_GENERATE_IGNORE_EOS;
      options.on_token = keep_token;
      options.user = &out.drawn;
      out.status = weir_session_generate(session, &options, &result);
      break;
    }
    case Kind::kRewind:
    case Kind::kLossyRewind:
      out.status = weir_session_rewind(session, op.at, op.kind == Kind::kLossyRewind ? WEIR_REWIND_LOSSY : 0);
      break;
    case Kind::kPin:
      out.status = weir_session_pin(session, op.at, op.end);
      break;
    case Kind::kUnpin:
      out.status = weir_session_unpin(session, op.at, op.end);
      break;
    case Kind::kSample: {
      weir_sampling_options options = WEIR_SAMPLING_OPTIONS_INIT;
      options.temperature = static_cast<float>(op.seed % 3) * 0.5f;
      options.repeat_penalty = op.seed % 2 == 0 ? 1.0f : 1.2f;
      options.seed = op.seed;
      out.status = weir_session_set_sampling(session, &options);
      weir_token drawn = -1;
      if (out.status == WEIR_OK && weir_session_sample(session, &drawn) == WEIR_OK) out.drawn.push_back(drawn);
      break;
    }
  }
  out.n_tokens = stats_of(session).n_tokens;
  out.logits = logits_of(session);
  return out;
}

}  // namespace programs
