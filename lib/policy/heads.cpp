// DuoAttention and RazorAttention: retrieval heads keep what the policy keeps, streaming heads keep sinks and a window,
// while a prompt is read, too. They choose the heads differently, and RazorAttention keeps a mean of what leaves.
// Papers: Xiao et al., "DuoAttention: Efficient Long-Context LLM Inference with Retrieval and Streaming Heads",
// arXiv:2410.10819; Tang et al., "RazorAttention: Efficient KV Cache Compression Through Retrieval Heads",
// arXiv:2407.15891; docs/algorithms.md, "DuoAttention" and "RazorAttention".
// Differs from the papers: DuoAttention's scores may come from a test of the heads instead of training (weir
// calibrate); of equal scores the earlier head streams; what a streaming head sees does not depend on the length of
// chunks; KV heads are ranked, not query heads; and RazorAttention's window is that of the context that the session
// plans, of which it has the memory from the beginning.
#include "policy/heads.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "core/plain_text.h"
#include "kv/checksum.h"

namespace weir {
namespace {

constexpr const char* kVersions[] = {"1", "2"};  // 2: with the tables echo and induction

// Words of a text, which tabs and line ends part.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  // The next word, which must end with `end`.
  Status word(char end, const char* expected, std::string_view& word) {
    const size_t n = std::min(text_.substr(at_).find_first_of("\t\n"), text_.size() - at_);
    word = text_.substr(at_, n);
    if (at_ + n == text_.size()) return wrong(expected, "the end of the file");
    if (n == 0 || text_[at_ + n] != end) return wrong(expected, n == 0 ? "nothing" : "another number of words");
    at_ += n + 1;
    line_ += end == '\n' ? 1 : 0;
    return {};
  }

  // A line "name<tab>value".
  Status named(const char* name, uint32_t least, uint32_t most, uint32_t& value) {
    char expected[96];
    std::snprintf(expected, sizeof(expected), "\"%s\", a tab and a number from %u to %u", name, least, most);
    std::string_view found, number;
    WEIR_TRY(word('\t', expected, found));
    if (found != name) return wrong(expected, "another name");
    const uint32_t line = line_;
    WEIR_TRY(word('\n', expected, number));
    const auto result = std::from_chars(number.data(), number.data() + number.size(), value);
    const bool is_number = result.ec == std::errc() && result.ptr == number.data() + number.size();
    line_ = line;
    if (!is_number || value < least || value > most) return wrong(expected, "something else");
    ++line_;
    return {};
  }

  Status wrong(const char* expected, const char* found) const {
    return fail(WEIR_ERR_FORMAT, "line %u: %s was expected, not %s", line_, expected, found);
  }
  bool at_end() const { return at_ == text_.size(); }
  size_t at() const { return at_; }
  uint32_t line() const { return line_; }

 private:
  std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
};

bool read_score(std::string_view word, float& score) {
  const auto result = std::from_chars(word.data(), word.data() + word.size(), score);
  return result.ec == std::errc() && result.ptr == word.data() + word.size() && std::isfinite(score);
}

Status of_another_model(const HeadFile& file, const PolicyConfig& config) {
  return fail(WEIR_ERR_INVALID_ARG,
              "for a model of %u layers with %u KV heads of %u; this model has %u layers with %u KV heads of %u",
              file.n_layers, file.n_kv_heads, file.head_dim, config.n_layers, config.n_kv_heads, config.head_dim);
}

Status name_file(Status status, const char* path) {
  char shown[256];
  const size_t n = std::strlen(path);
  plain_text(path + (n > 60 ? n - 60 : 0), shown, sizeof(shown));
  return fail(status.code(), "head file %s%s: %s", n > 60 ? "..." : "", shown, last_error_text());
}

// The streams that a budget rules, in order.
struct RuledStreams {
  const PolicyConfig& config;
  bool has(uint32_t layer) const { return config.global_every == 0 || (layer + 1) % config.global_every == 0; }
  uint32_t n() const {
    return config.n_layers / (config.global_every == 0 ? 1 : config.global_every) * config.n_kv_heads;
  }
  template <class F>
  void each(const HeadFile& file, size_t table, const F& visit) const {
    HeadScores scores(file, table);
    for (uint32_t s = 0; s < config.n_layers * config.n_kv_heads; ++s) {
      const float score = scores.next();
      if (has(s / config.n_kv_heads)) visit(s, score);
    }
  }
};

// The `n` streams of the lowest scores of a table, of equals the earlier ones. Scores are not negative, so their bits
// are ordered as they are: the n-th lowest is found bit by bit, in no memory.
void add_lowest(const PolicyConfig& config, const HeadFile& file, size_t table, uint32_t n, StreamWindows& windows) {
  if (n == 0) return;
  const RuledStreams streams = {config};
  uint32_t limit = 0, n_below = 0;
  for (uint32_t bit = 1u << 30; bit != 0; bit >>= 1) {
    uint32_t below = 0;
    streams.each(file, table,
                 [&](uint32_t, float score) { below += std::bit_cast<uint32_t>(score) < (limit | bit) ? 1 : 0; });
    if (below < n) limit |= bit, n_below = below;
  }
  uint32_t n_equal = n - n_below;
  streams.each(file, table, [&](uint32_t stream, float score) {
    const uint32_t bits = std::bit_cast<uint32_t>(score);
    if (bits < limit || (bits == limit && n_equal != 0 && n_equal-- != 0)) windows.add(stream);
  });
}

// Checks a table: for each layer a line with a score for each KV head.
Status read_table(Words& words, const HeadFile& file) {
  char expected[64];
  std::snprintf(expected, sizeof(expected), "%u scores from 0 to 1, tabs between them", file.n_kv_heads);
  for (uint32_t layer = 0; layer < file.n_layers; ++layer) {
    for (uint32_t head = 0; head < file.n_kv_heads; ++head) {
      const bool is_last = head + 1 == file.n_kv_heads;
      const uint32_t line = words.line();
      std::string_view word;
      float score = 0.0f;
      WEIR_TRY(words.word(is_last ? '\n' : '\t', expected, word));
      if (!read_score(word, score))
        return fail(WEIR_ERR_FORMAT, "line %u: score %u is not a number; %s were expected", line, head + 1, expected);
    }
  }
  return {};
}

// A table with its name in the line before it.
Status read_named_table(Words& words, const char* name, const HeadFile& file, size_t& at) {
  std::string_view word;
  const uint32_t line = words.line();
  WEIR_TRY(words.word('\n', name, word));
  if (word != name) return fail(WEIR_ERR_FORMAT, "line %u: \"%s\" was expected, not another name", line, name);
  at = words.at();
  return read_table(words, file);
}

// What the options that begin with "heads" say.
struct HeadOptions {
  enum Name : uint32_t { kDuo, kRazor };
  static constexpr const char* kNames[] = {"duo", "razor"};
  uint32_t name = kDuo;
  float sparsity = 0.5f;
  float echo = 0.01f, induction = 0.14f;  // RazorAttention's
  uint32_t context_part = 5;
  bool compensate = true;
  const char* text() const { return kNames[name]; }
};

Status read_options(OptionReader& options, HeadOptions& o) {
  WEIR_TRY(options.get_word(kHeadsOption, o.name, HeadOptions::kNames));
  options.allow("heads_file");  // the caller has read it
  if (o.name == HeadOptions::kDuo) return options.get_f32("heads_sparsity", o.sparsity, 0.0f, 1.0f);
  WEIR_TRY(options.get_f32("heads_echo", o.echo, 0.0f, 1.0f));
  WEIR_TRY(options.get_f32("heads_induction", o.induction, 0.0f, 1.0f));
  WEIR_TRY(options.get_u32("heads_context_part", o.context_part, 0, 1u << 20));
  return options.get_bool("heads_compensate", o.compensate);
}

// Reads the head file, and the sizes that options may have instead of its own.
Status read_file(const PolicyConfig& config, const HeadOptions& o, OptionReader& options, HeadFile& file) {
  if (config.head_file.empty())
    return fail(WEIR_ERR_INVALID_ARG, "heads=%s needs heads_file, the scores of this model's heads", o.text());
  Status status = read_head_file(config.head_file, file);
  if (status.ok() &&
      (file.n_layers != config.n_layers || file.n_kv_heads != config.n_kv_heads || file.head_dim != config.head_dim))
    status = of_another_model(file, config);
  if (status.ok() && o.name == HeadOptions::kRazor && file.echo_at == 0) {
    status = fail(WEIR_ERR_INVALID_ARG,
                  "heads=razor needs the tables echo and induction of version 2, which weir calibrate writes");
  }
  if (!status.ok()) return name_file(status, config.head_file_path);
  WEIR_TRY(options.get_u32("heads_sinks", file.sinks, 0, 1u << 20));
  return options.get_u32("heads_recent", file.recent, 1, 1u << 30);
}

Status refuse_policies(const PolicyConfig& config, const HeadOptions& o, const PolicyNeeds& next) {
  if (next.history.group != 0)
    return fail(WEIR_ERR_INVALID_ARG, "heads=%s: this policy finds tokens by their positions, so all stay", o.text());
  if (next.recall_slots != 0)
    return fail(WEIR_ERR_INVALID_ARG, "heads=%s: with recall every head keeps its pages", o.text());
  if (next.sink_query) {
    return fail(WEIR_ERR_UNSUPPORTED,
                "heads=%s: heads of a layer have no common positions=incache; positions=abs works", o.text());
  }
  const uint64_t n_streams = uint64_t{config.n_layers} * config.n_kv_heads;
  if (n_streams <= StreamWindows::kMaxStreams) return {};
  return fail(WEIR_ERR_UNSUPPORTED, "heads=%s: %llu streams; %u is the most", o.text(),
              static_cast<unsigned long long>(n_streams), StreamWindows::kMaxStreams);
}

// A share of n heads: rounded, but not to none.
uint32_t heads_of(float share, uint32_t n) {
  const auto heads = static_cast<uint32_t>(std::lround(share * static_cast<float>(n)));
  return share > 0.0f ? std::max(heads, 1u) : 0;
}

// The streams that are among the best by neither of the tests stream.
void choose_by_tests(const PolicyConfig& config, const HeadOptions& o, const HeadFile& file, StreamWindows& windows) {
  const uint32_t n = RuledStreams{config}.n();
  StreamWindows by_echo, by_induction;
  add_lowest(config, file, file.echo_at, n - heads_of(o.echo, n), by_echo);
  add_lowest(config, file, file.induction_at, n - heads_of(o.induction, n), by_induction);
  for (uint32_t s = 0; s < config.n_layers * config.n_kv_heads; ++s) {
    if ((by_echo.bits[s / 32] & by_induction.bits[s / 32] & 1u << s % 32) != 0) windows.add(s);
  }
}

}  // namespace

float HeadScores::next() {
  const size_t n = rest_.find_first_of("\t\n");
  float score = 0.0f;
  (void)read_score(rest_.substr(0, n), score);
  rest_.remove_prefix(n + 1);
  return score > 0.0f ? std::min(score, 1.0f) : 0.0f;  // no negative zero
}

Status read_head_file(std::string_view text, HeadFile& file) {
  constexpr uint32_t kMax = 1u << 20;
  file = {};
  file.text = text;
  Words words(text);
  std::string_view word;
  const char* first = "\"weir-heads\", a tab and the version";
  WEIR_TRY(words.word('\t', first, word));
  if (word != "weir-heads") return words.wrong(first, "another kind of file");
  WEIR_TRY(words.word('\n', first, word));
  if (word != kVersions[0] && word != kVersions[1]) {
    return fail(WEIR_ERR_UNSUPPORTED, "line 1: version %.*s; this library reads versions %s and %s",
                static_cast<int>(std::min<size_t>(word.size(), 20)), word.data(), kVersions[0], kVersions[1]);
  }
  const bool has_tests = word == kVersions[1];
  WEIR_TRY(words.named("layers", 1, kMax, file.n_layers));
  WEIR_TRY(words.named("kv_heads", 1, kMax, file.n_kv_heads));
  WEIR_TRY(words.named("head_dim", 1, kMax, file.head_dim));
  WEIR_TRY(words.named("sinks", 0, kMax, file.sinks));
  WEIR_TRY(words.named("recent", 1, 1u << 30, file.recent));
  file.scores_at = words.at();
  WEIR_TRY(read_table(words, file));
  if (has_tests) {
    WEIR_TRY(read_named_table(words, "echo", file, file.echo_at));
    WEIR_TRY(read_named_table(words, "induction", file, file.induction_at));
  }
  return words.at_end() ? Status() : words.wrong("the end of the file", "more");
}

Status read_heads(const PolicyConfig& config, const PolicyNeeds& next, StreamWindows& windows) {
  windows = {};
  OptionReader options("heads", config.options, OptionReader::kHeadPolicy);
  if (!options.has(kHeadsOption)) return refuse_options_without(kHeadsOption, config.options.given);
  HeadOptions o;
  HeadFile file;
  WEIR_TRY(read_options(options, o));
  WEIR_TRY(read_file(config, o, options, file));
  WEIR_TRY(options.finish());
  WEIR_TRY(refuse_policies(config, o, next));
  if (o.name == HeadOptions::kRazor) {
    choose_by_tests(config, o, file, windows);
    if (o.context_part != 0) file.recent = std::max(file.recent, next.context_tokens / o.context_part);
  } else {
    const auto n_ruled = static_cast<float>(RuledStreams{config}.n());
    add_lowest(config, file, file.scores_at, static_cast<uint32_t>(std::lround(o.sparsity * n_ruled)), windows);
  }
  if (windows.n_streams != 0) {
    windows.sinks = file.sinks;
    windows.window = file.recent;
    windows.compensates = o.name == HeadOptions::kRazor && o.compensate;
  }
  Checksum which;
  which.add(windows.bits, sizeof(windows.bits));
  if (config.options.effective != nullptr)
    config.options.effective->add("heads_streams", "%016llx", static_cast<unsigned long long>(which.value()));
  return {};
}

}  // namespace weir
