// weir calibrate --heads: scores every KV head by a test of induction, and writes the head file that heads=duo and
// heads=razor read. The test is RazorAttention's (Tang et al., arXiv:2407.15891, sec. 3): tokens in a random order,
// twice. While the second copy is decoded, a head that retrieves looks at the place of the same token in the first copy
// (echo) and at the place after it (induction). The trace has masses of whole pages, so the score is the mass on the
// pages of these two, mean over the copy, of the best query head of the group. The two are told apart by the steps in
// which the first is the last token of its page, and the second the first of the next page.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <unordered_set>

#include "commands.h"
#include "eval_progress.h"
#include "eval_text.h"
#include "eval_trace.h"
#include "options.h"
#include "out_file.h"
#include "output.h"

namespace weir_cli {
namespace {

struct CalibrateFlags {
  std::string model, text, out;
  bool heads = false;
  uint32_t n_tokens = 512;
  uint32_t threads = 0;
  uint32_t sinks = 64, recent = 256;  // as DuoAttention trains for; RazorAttention has 4 and 4,000
};

// The first n different tokens of the text, in an order that depends on nothing else: all steps need the same memory
// of the text, and none can be guessed from its neighbours.
std::vector<weir_token> test_tokens(const std::vector<weir_token>& text, uint32_t n) {
  std::vector<weir_token> tokens;
  std::unordered_set<weir_token> seen;
  for (size_t i = 0; i < text.size() && tokens.size() < n; ++i) {
    if (seen.insert(text[i]).second) tokens.push_back(text[i]);
  }
  uint64_t state = 1;
  for (size_t i = tokens.size(); i > 1; --i) {  // Fisher and Yates, with splitmix64
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    std::swap(tokens[i - 1], tokens[(z ^ (z >> 31)) % i]);
  }
  return tokens;
}

// The tables of a head file.
enum Table { kBoth, kEcho, kInduction, kTables };

// Mass on the pages of the places that each step of the second copy should look at.
class HeadTest {
 public:
  HeadTest(const weir_model_info& info, uint32_t distance)
      : n_heads_(info.n_heads), group_(info.n_heads / info.n_kv_heads), distance_(distance) {
    for (std::vector<double>& mass : mass_) mass.resize(size_t{info.n_layers} * info.n_heads);
  }

  static weir_status see(void* user, const weir_trace_layer* layer) {
    HeadTest& test = *static_cast<HeadTest*>(user);
    for (uint32_t head = 0; head < test.n_heads_; ++head) test.add(*layer, head);
    test.echo_ = layer->n_tokens - 1 - test.distance_;
    return WEIR_OK;
  }
  void end_step() {
    ++n_steps_;
    n_apart_ += is_apart(echo_) ? 1 : 0;
  }
  double score(Table table, uint32_t layer, uint32_t kv_head) const {
    const auto first =
        mass_[table].begin() + static_cast<ptrdiff_t>(size_t{layer} * n_heads_ + size_t{kv_head} * group_);
    return std::min(*std::max_element(first, first + group_) / (table == kBoth ? n_steps_ : n_apart_), 1.0);
  }

 private:
  static constexpr uint32_t kPageTokens = 16;
  static bool is_apart(uint32_t echo) { return echo % kPageTokens == kPageTokens - 1; }

  void add(const weir_trace_layer& layer, uint32_t head) {
    const HeadPages pages = head_pages(layer, head);
    const size_t at = size_t{layer.layer} * n_heads_ + head;
    const uint32_t echo = layer.n_tokens - 1 - distance_;
    for (uint32_t i = 0; i < pages.n_attended; ++i) {
      const uint32_t first = layer.first_pos[size_t{pages.stream} * layer.capacity + pages.row(i)];
      const bool has_echo = first <= echo && echo < first + kPageTokens;
      const bool has_next = first <= echo + 1 && echo + 1 < first + kPageTokens;
      if (has_echo || has_next) mass_[kBoth][at] += double{pages.mass[i]};
      if (is_apart(echo) && has_echo) mass_[kEcho][at] += double{pages.mass[i]};
      if (is_apart(echo) && has_next) mass_[kInduction][at] += double{pages.mass[i]};
    }
  }

  uint32_t n_heads_, group_, distance_, n_steps_ = 0, n_apart_ = 0;
  uint32_t echo_ = 0;                  // of the step that is seen
  std::vector<double> mass_[kTables];  // [n_layers, n_heads] sum over the steps
};

std::string head_file(const weir_model_info& info, const CalibrateFlags& flags, const HeadTest& test) {
  std::string text = format("weir-heads\t2\nlayers\t%u\nkv_heads\t%u\nhead_dim\t%u\nsinks\t%u\nrecent\t%u\n",
                            info.n_layers, info.n_kv_heads, info.head_dim, flags.sinks, flags.recent);
  for (const auto& [table, name] : {std::pair{kBoth, ""}, {kEcho, "echo\n"}, {kInduction, "induction\n"}}) {
    text += name;
    for (uint32_t layer = 0; layer < info.n_layers; ++layer) {
      for (uint32_t head = 0; head < info.n_kv_heads; ++head)
        text += format("%.6f%c", test.score(table, layer, head), head + 1 == info.n_kv_heads ? '\n' : '\t');
    }
  }
  return text;
}

int run_calibrate(const CalibrateFlags& flags) {
  if (!flags.heads) throw UsageError("weir calibrate: --heads says what to calibrate");
  if (!can_trace()) throw std::runtime_error("this library cannot trace what heads attend");
  OutFile out(flags.out);
  const RuntimePtr runtime = create_runtime(flags.threads);
  const ModelPtr model = open_model(runtime.get(), flags.model);
  const weir_model_info info = attention_info(model.get());
  const TextTokens text = text_tokens(model.get(), read_text_file(flags.text));
  const std::vector<weir_token> tokens = test_tokens(text.tokens, flags.n_tokens);
  if (tokens.size() < flags.n_tokens) {
    throw std::runtime_error(format("%s has %zu different tokens, the test needs %u (--tokens)", flags.text.c_str(),
                                    tokens.size(), flags.n_tokens));
  }
  std::vector<weir_token> prompt;
  if (text.bos >= 0) prompt.push_back(text.bos);
  prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.device = WEIR_DEVICE_CPU;  // the only one that traces
  options.flags = WEIR_SESSION_TRACE;
  options.context_tokens = static_cast<uint32_t>(prompt.size() + tokens.size());
  const SessionPtr session = create_session(model.get(), options);
  check(weir_session_prefill(session.get(), prompt.data(), prompt.size(), nullptr, nullptr), "cannot read the tokens");
  HeadTest test(info, flags.n_tokens);
  set_trace(session.get(), HeadTest::see, &test);
  Progress progress(tokens.size());
  for (weir_token token : tokens) {
    check(weir_session_step(session.get(), token), "cannot decode the tokens");
    test.end_step();
    progress.done();
  }
  out.write(head_file(info, flags, test));
  out.commit();
  return 0;
}

}  // namespace

void add_calibrate(CLI::App& program, Action& action) {
  auto flags = std::make_shared<CalibrateFlags>();
  CLI::App* app = program.add_subcommand("calibrate", "Scores of a model's heads, for the option heads of sessions");
  add_model_flag(*app, flags->model)->required();
  app->add_flag("--heads", flags->heads, "Score KV heads by how much of their attention finds a token again");
  app->add_option("--text", flags->text, "Text whose tokens the test takes")->option_text("FILE")->required();
  app->add_option("-o,--out", flags->out, "Head file to write")->check(some_path())->option_text("FILE")->required();
  app->add_option("--tokens", flags->n_tokens, "Different tokens of the test, which come twice; default 512")
      ->option_text("N")
      ->transform(whole_number(64, 65536));
  app->add_option("--sinks", flags->sinks, "First tokens that streaming heads keep; default 64")
      ->option_text("N")
      ->transform(whole_number(0, 1 << 20));
  app->add_option("--recent", flags->recent, "Latest tokens that streaming heads keep; default 256")
      ->option_text("N")
      ->transform(whole_number(1, 1 << 30));
  app->add_option("--threads", flags->threads, "Threads; 0 (default): one per core")
      ->option_text("N")
      ->transform(whole_number(0, 256));
  app->callback([flags, &action] { action = [flags] { return run_calibrate(*flags); }; });
}

}  // namespace weir_cli
