// weir eval --text: how well a model predicts a text, and how far policies are from the whole history on it. The text's
// tokens are forced, so that all sessions always see the same; at most kMaxTogether of them are alive and take their
// steps together.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "eval_progress.h"
#include "eval_run.h"

namespace weir_cli {

// Perplexity by the common convention: windows of 1,024 tokens, of which the second half is scored.
inline constexpr size_t kWindowTokens = 1024, kScoredTokens = 512;

struct TextSettings {
  std::string file;                   // the text's
  std::string device = "auto";        // that sessions run on
  std::optional<uint32_t> n_windows;  // at most; none: as many as the text has
  uint32_t n_prompt = 256;            // tokens that are prefilled before the forced ones
  uint32_t n_forced = 1200;           // tokens whose predictions are compared
};

// The bytes of a file, which must be UTF-8. Throws std::runtime_error naming the file and what is wrong.
std::string read_text_file(const std::string& path);
// Where the first sequence starts that is not UTF-8 (RFC 3629); npos when there is none.
size_t first_invalid_utf8(std::string_view text);

// A text as tokens: nothing in it becomes a control token, and nothing is added to its start.
struct TextTokens {
  std::vector<weir_token> tokens;
  weir_token bos = -1;  // what the vocabulary wants at the start of every context; -1: nothing

  // Tokens [first, first + n), the first one replaced by bos where there is one.
  std::vector<weir_token> context(size_t first, size_t n) const;
};
TextTokens text_tokens(const weir_model* model, const std::string& text);

// How many windows are scored. Throws std::runtime_error that says how many tokens are needed when the text is too
// short for one window, or for the prompt and the forced tokens.
size_t check_text(const TextTokens& text, const TextSettings& settings);

// A line of text.jsonl for one window.
struct WindowRecord {
  size_t index = 0;
  double nll = 0;  // sum of -log p over the scored tokens, nats
};
nlohmann::ordered_json to_json(const WindowRecord& record);
std::string window_id(size_t index);

// Windows that are scored together; at most kMaxTogether.
std::vector<WindowRecord> score_windows(weir_model* model, const TextSettings& settings, const TextTokens& text,
                                        const std::vector<size_t>& indices, Progress& progress);

// A line of text.jsonl for one policy and budget.
struct TextRecord : PointRecord {
  uint64_t n_positions = 0;  // predictions compared: after the prompt, and after each forced token but the last
  double kl_mean = 0;        // KL(whole history || policy), nats
  double kl_p99 = 0;         // of a hundred positions one is above
  double top1 = 0;           // part with the same most probable token
  double perplexity = 0;     // of the forced tokens
  double pages = 0;          // attended, mean over forced tokens and streams
  double recalls = 0;        // pages that came back from the store, the same mean
  uint64_t kv_bytes = 0;     // of the session's pages, planned
};
nlohmann::ordered_json to_json(const TextRecord& record);

// Family and id of the policies' lines, and the family of the windows'.
inline constexpr char kTextFamily[] = "text", kWindowFamily[] = "windows";
// Points that run beside one session with the whole history, all in step.
inline constexpr size_t kMaxTextPoints = kMaxTogether - 1;
std::vector<TextRecord> run_text_group(weir_model* model, const EvalSettings& settings,
                                       const TextSettings& text_settings, const TextTokens& text,
                                       const std::vector<EvalPoint>& group, Progress& progress);

// The smallest of the values such that at most a hundredth are larger.
double percentile_99(std::vector<double> values);

}  // namespace weir_cli
