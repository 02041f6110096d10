// Forced text; see eval_text.h.
#include "eval_text.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>

#include "eval_prediction.h"
#include "eval_results.h"
#include "input.h"

namespace weir_cli {
namespace {

// Sessions in step. A step of theirs is one call, so that the weights are read once.
void step_all(const std::vector<weir_session*>& sessions, const std::vector<weir_token>& tokens) {
  if (interrupt_count() > 0) throw Interrupted();
  check(weir_step_many(sessions.data(), tokens.data(), static_cast<uint32_t>(sessions.size())), "cannot feed the text");
}

SessionFlags session_flags(const TextSettings& settings, const PolicyEntry& policy, uint32_t budget, size_t n_prompt,
                           size_t n_forced) {
  SessionFlags flags = point_session(policy, budget, n_prompt, n_forced);
  flags.device = settings.device;
  return flags;
}

PolicyEntry whole_history() {
  PolicyEntry policy;
  policy.name = policy.label = "dense";
  return policy;
}

// A policy's session beside the one with the whole history.
struct Lane {
  SessionPtr session;
  std::vector<double> kl;
  uint64_t n_same = 0;
  double nll = 0;
  uint64_t n_pages = 0, n_steps = 0;  // attended
  uint64_t kv_bytes = 0;
  uint64_t recalled_in_prompt = 0, recalled_so_far = 0;  // pages that came back

  weir_session_stats stats() const {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    check(weir_session_get_stats(session.get(), &stats), "cannot read the statistics");
    return stats;
  }
  void begin() {
    recalled_in_prompt = stats().pages_recalled;
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    check(weir_session_memory(session.get(), &memory), "cannot read the memory in use");
    kv_bytes = memory.kv_budget_bytes;
  }
  void count_pages() {
    const weir_session_stats now = stats();
    n_pages += now.pages_attended;
    recalled_so_far = now.pages_recalled;
    ++n_steps;
  }

  void compare(const Prediction& truth, weir_token next) {
    const Prediction own = predict(session.get());
    kl.push_back(kl_divergence(truth, own));
    n_same += own.best == truth.best ? 1 : 0;
    nll -= own.log_p[static_cast<size_t>(next)];
  }

  void finish(uint64_t n_streams, TextRecord& record) const {
    const auto n = static_cast<double>(kl.size());
    record.n_positions = kl.size();
    record.kl_mean = std::accumulate(kl.begin(), kl.end(), 0.0) / n;
    record.kl_p99 = percentile_99(kl);
    record.top1 = static_cast<double>(n_same) / n;
    record.perplexity = std::exp(nll / n);
    record.kv_bytes = kv_bytes;
    if (n_steps == 0) return;
    const auto n_lists = static_cast<double>(n_steps * n_streams);
    record.pages = static_cast<double>(n_pages) / n_lists;
    record.recalls = static_cast<double>(recalled_so_far - recalled_in_prompt) / n_lists;
  }
};

// The whole history and its lanes, in step through the text.
class Walk {
 public:
  Walk(weir_model* model, const TextSettings& settings, const TextTokens& text)
      : model_(model), settings_(settings), tokens_(text.context(0, size_t{settings.n_prompt} + settings.n_forced)) {
    prompt_.prefill.assign(tokens_.begin(), tokens_.begin() + settings.n_prompt);
  }

  TextRecord start_lane(const PolicyEntry& policy, uint32_t budget) {
    Started started = start(policy, budget);
    lanes_.emplace_back().session = std::move(started.session);
    if (lanes_.back().session) lanes_.back().begin();
    TextRecord record;
    record.family = record.id = kTextFamily;
    record.label = policy.label;
    record.spec = policy.spec();
    record.budget = budget;
    record.is_refused = !lanes_.back().session;
    record.message = started.refused;
    return record;
  }

  void run(Progress& progress) {
    std::vector<weir_session*> sessions;
    for (const Lane& lane : lanes_) {
      if (lane.session) sessions.push_back(lane.session.get());
    }
    if (sessions.empty()) {
      progress.done(lanes_.size() * settings_.n_forced);
      return;
    }
    const Started whole = start(whole_history(), 0);
    if (!whole.session) throw std::runtime_error("no session with the whole history: " + whole.refused);
    sessions.push_back(whole.session.get());
    for (size_t at = settings_.n_prompt; at < tokens_.size(); ++at) {
      const Prediction truth = predict(whole.session.get());
      for (Lane& lane : lanes_) {
        if (lane.session) lane.compare(truth, tokens_[at]);
      }
      if (at + 1 < tokens_.size()) {
        step_all(sessions, std::vector<weir_token>(sessions.size(), tokens_[at]));
        for (Lane& lane : lanes_) {
          if (lane.session) lane.count_pages();
        }
      }
      progress.done(lanes_.size());
    }
  }

  void finish(size_t index, TextRecord& record) const {
    if (record.is_refused) return;
    const weir_model_info info = attention_info(model_);
    lanes_[index].finish(uint64_t{info.n_layers} * info.n_kv_heads, record);
  }

 private:
  Started start(const PolicyEntry& policy, uint32_t budget) const {
    return start_session(model_, session_flags(settings_, policy, budget, settings_.n_prompt, settings_.n_forced), 0,
                         prompt_);
  }

  weir_model* model_;
  const TextSettings& settings_;
  std::vector<weir_token> tokens_;
  PromptTokens prompt_;
  std::vector<Lane> lanes_;
};

}  // namespace

std::string read_text_file(const std::string& path) {
  const auto failed = [&](const char* what) {
    return std::runtime_error(path + ": cannot " + what + ": " + std::strerror(errno));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) throw failed("open");
  std::string text;
  char chunk[65536];
  for (size_t n; (n = std::fread(chunk, 1, sizeof(chunk), file.get())) > 0;) text.append(chunk, n);
  if (std::ferror(file.get()) != 0) throw failed("read");
  drop_byte_order_mark(text);
  const size_t invalid = first_invalid_utf8(text);
  if (invalid != std::string::npos) throw std::runtime_error(path + ": not UTF-8 at byte " + std::to_string(invalid));
  return text;
}

size_t first_invalid_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  for (size_t at = 0; at < text.size();) {
    const unsigned lead = byte(at);
    const size_t length = lead < 0x80                   ? 1
                          : lead >= 0xc2 && lead < 0xe0 ? 2
                          : lead >= 0xe0 && lead < 0xf0 ? 3
                          : lead >= 0xf0 && lead < 0xf5 ? 4
                                                        : 0;
    if (length == 0) return at;
    // Some values of the second byte would be a longer form, a surrogate, or above U+10FFFF.
    const unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (size_t i = 1; i < length; ++i) {
      const unsigned next = byte(at + i);
      if (next < (i == 1 ? low : 0x80) || next > (i == 1 ? high : 0xbf)) return at;
    }
    at += length;
  }
  return std::string_view::npos;
}

std::vector<weir_token> TextTokens::context(size_t first, size_t n) const {
  const auto start = tokens.begin() + static_cast<std::ptrdiff_t>(first);
  std::vector<weir_token> part(start, start + static_cast<std::ptrdiff_t>(n));
  if (bos >= 0) part.at(0) = bos;
  return part;
}

TextTokens text_tokens(const weir_model* model, const std::string& text) {
  weir_special_tokens special = WEIR_SPECIAL_TOKENS_INIT;
  check(weir_model_special_tokens(model, &special), "cannot read the special tokens");
  return {tokenize(model, text, 0), special.add_bos != 0 ? special.bos : -1};
}

size_t check_text(const TextTokens& text, const TextSettings& settings) {
  const size_t n_windows = settings.n_windows == 0u ? 0 : text.tokens.size() / kWindowTokens;
  const size_t n_forced = size_t{settings.n_prompt} + settings.n_forced;
  const size_t n_needed = std::max(settings.n_windows == 0u ? 0 : kWindowTokens, n_forced);
  if (text.tokens.size() < n_needed) {
    throw std::runtime_error(
        format("%s: the text is too short: it has %zu tokens, at least %zu are needed (a window has "
               "%zu, prompt and forced tokens are %zu)",
               settings.file.c_str(), text.tokens.size(), n_needed, kWindowTokens, n_forced));
  }
  return std::min<size_t>(n_windows, settings.n_windows.value_or(UINT32_MAX));
}

std::vector<WindowRecord> score_windows(weir_model* model, const TextSettings& settings, const TextTokens& text,
                                        const std::vector<size_t>& indices, Progress& progress) {
  constexpr size_t kFirst = kWindowTokens - kScoredTokens;
  const SessionFlags flags = session_flags(settings, whole_history(), 0, kFirst, kScoredTokens);
  SessionOptions options(flags);
  std::vector<WindowRecord> records;
  std::vector<std::vector<weir_token>> windows;
  std::vector<SessionPtr> sessions;
  std::vector<weir_session*> pointers;
  for (size_t index : indices) {
    records.push_back({index, 0});
    windows.push_back(text.context(index * kWindowTokens, kWindowTokens));
    sessions.push_back(create_session(model, options.get()));
    pointers.push_back(sessions.back().get());
    prefill(pointers.back(), {windows.back().begin(), windows.back().begin() + kFirst});
  }
  std::vector<weir_token> next(indices.size());
  for (size_t position = kFirst; position < kWindowTokens; ++position) {
    for (size_t i = 0; i < indices.size(); ++i) {
      next[i] = windows[i][position];
      records[i].nll -= predict(pointers[i]).log_p[static_cast<size_t>(next[i])];
    }
    progress.done(indices.size());
    if (position + 1 < kWindowTokens) step_all(pointers, next);
  }
  return records;
}

std::vector<TextRecord> run_text_group(weir_model* model, const EvalSettings& settings,
                                       const TextSettings& text_settings, const TextTokens& text,
                                       const std::vector<EvalPoint>& group, Progress& progress) {
  Walk walk(model, text_settings, text);
  std::vector<TextRecord> records;
  for (const EvalPoint& point : group)
    records.push_back(walk.start_lane(settings.policies[point.policy], point.budget));
  walk.run(progress);
  for (size_t i = 0; i < records.size(); ++i) walk.finish(i, records[i]);
  return records;
}

nlohmann::ordered_json to_json(const WindowRecord& r) {
  nlohmann::ordered_json line = head_to_json({kWindowFamily, window_id(r.index), "dense", "dense", 0, false, ""});
  line["n_positions"] = kScoredTokens;
  line["nll"] = r.nll;
  return line;
}

nlohmann::ordered_json to_json(const TextRecord& r) {
  nlohmann::ordered_json line = head_to_json(r);
  if (r.is_refused) return line;
  line["n_positions"] = r.n_positions;
  line["kl_mean"] = r.kl_mean;
  line["kl_p99"] = r.kl_p99;
  line["top1"] = r.top1;
  line["perplexity"] = r.perplexity;
  line["pages"] = r.pages;
  line["recalls"] = r.recalls;
  line["kv_bytes"] = r.kv_bytes;
  return line;
}

std::string window_id(size_t index) { return format("window-%zu", index); }

double percentile_99(std::vector<double> values) {
  if (values.empty()) return 0;
  const size_t rank = values.size() - 1 - values.size() / 100;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(rank), values.end());
  return values[rank];
}

}  // namespace weir_cli
