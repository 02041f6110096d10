// weir demo: three conversations of one model side by side, stepped together: with the whole KV history, with a sliding
// window of a fixed budget, and as Weir keeps it within the same budget. They are told a secret, think for long, and
// are asked for it: right, wrong, right. Then Weir's goes on to 100,000 tokens. The exit status says whether that held.
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "commands.h"
#include "conversation.h"
#include "demo_ask.h"
#include "demo_lanes.h"
#include "demo_model.h"
#include "demo_pages.h"
#include "demo_reason.h"
#include "demo_story.h"
#include "demo_svg.h"
#include "demo_view.h"
#include "out_file.h"
#include "output.h"
#include "terminal.h"

namespace weir_cli {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kWanted = 100000;    // tokens that the first line speaks of
constexpr uint32_t kSlackTokens = 200;  // for questions and answers
constexpr uint32_t kAnswerTokens = 16, kTextAnswerTokens = 48;
constexpr uint32_t kCsvTokens = 100;  // between two rows of --csv
constexpr int kAskSeconds = 5;
constexpr const char* kKeeps[] = {"every token", "the latest tokens", "what is asked for comes back"};  // of each lane
constexpr size_t kEverything = 0, kWindow = 1, kWeir = 2;

struct DemoFlags {
  std::string model, folder, csv, svg;
  std::optional<std::string> secret;
  std::string text, fact, question, expect;
  uint64_t seed = 1;
  int steps = 0;
  uint32_t budget = 0, threads = 0, text_tokens = 1500;
  std::optional<uint32_t> go_on;
  bool fast = false;
};

// What became of the questions.
struct Outcome {
  std::vector<std::vector<std::string>> said;  // of each lane, to each question
  std::vector<bool> is_right;                  // of each lane: all of them
  std::vector<PageMark> pages;                 // of Weir's lane, when most pages of the secret had just come back
  uint32_t n_returns = 0;
};

// A folder on a disk, for what has no room in memory; /tmp often is memory.
std::string usual_folder() {
  std::error_code error;
  const fs::path var = "/var/tmp";
  if (fs::is_directory(var, error) && access(var.c_str(), W_OK) == 0) return var.string();
  return fs::temp_directory_path(error).string();
}

class Demo {
 public:
  explicit Demo(DemoFlags flags) : flags_(std::move(flags)), style_(stdout_is_terminal()) {}

  int run();

 private:
  void open();
  void tell_story();
  std::vector<LaneSetup> setups();
  void make_lanes();
  bool on_step(const std::string& doing, const Question* question, bool slowly);
  void live();
  void ask();
  void note_return();
  void print_table();
  void draw_picture() const;
  void go_on();
  std::vector<std::string> what_did_not_hold() const;
  std::string answers(size_t lane) const;
  uint64_t dense_bytes(uint32_t tokens) const;

  DemoFlags flags_;
  Style style_;
  RuntimePtr runtime_;
  ModelPtr model_;
  Story story_;
  uint64_t mark_bytes_ = 0;
  uint32_t go_on_to_ = 0, next_row_ = 0;
  std::unique_ptr<OutFile> csv_, svg_;
  std::unique_ptr<DemoLanes> lanes_;
  std::unique_ptr<PageStrip> strip_;
  std::unique_ptr<DemoView> view_;
  std::string headline_, text_;
  Outcome outcome_;
};

uint64_t Demo::dense_bytes(uint32_t tokens) const {
  SessionFlags dense;
  dense.device = "cpu";
  dense.context = tokens;
  SessionOptions options(dense);
  return make_plan(model_.get(), options.get()).kv_bytes;
}

void Demo::open() {
  if (!flags_.csv.empty()) csv_ = std::make_unique<OutFile>(flags_.csv);
  if (!flags_.svg.empty()) svg_ = std::make_unique<OutFile>(flags_.svg);
  if (csv_ != nullptr) csv_->write("lane,tokens,kv_bytes,file_bytes\n");
  runtime_ = create_runtime(flags_.threads);
  model_ = open_model(runtime_.get(), flags_.model);
  require_chat_template(model_.get(), flags_.model, false);
  if (!flags_.text.empty()) {
    std::ifstream file(flags_.text, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    text_ = text.str();
    if (!file || text_.empty()) throw std::runtime_error("demo: cannot read a text from " + flags_.text);
    return;
  }
  require_reasoner(model_.get(), "demo: --text FILE makes a demo with any other model");
}

void Demo::tell_story() {
  if (flags_.text.empty()) {
    const std::string drawn = drawn_secret(flags_.seed);
    std::string secret = flags_.secret.value_or(drawn);
    const bool can_ask = stdout_is_terminal() && isatty(STDIN_FILENO) != 0;
    if (!flags_.secret && can_ask) secret = ask_secret(drawn, kAskSeconds, style_);
    story_ = chain_story(model_.get(), flags_.steps, flags_.seed, *parse_secret(secret));
    return;
  }
  TextStory told;
  told.text = text_;
  told.max_tokens = flags_.text_tokens;
  told.fact = flags_.fact;
  told.question = flags_.question;
  told.wanted = flags_.expect;
  story_ = text_story(model_.get(), told);
}

// Everything, the window, and Weir: three quarters of the budget in the pool, a quarter for pages outside of it, and
// the rest in a file.
std::vector<LaneSetup> Demo::setups() {
  const auto n_told = static_cast<uint32_t>(story_.opening.size());
  LaneSetup everything, window, weir;
  everything.name = "everything";
  everything.session.device = "cpu";
  everything.session.context = n_told + story_.think_tokens + kSlackTokens;
  window = everything;
  window.name = "window";
  window.session.policy = "sink";
  window.session.budget = flags_.budget;
  window.session.context = 0;
  mark_bytes_ = make_plan(model_.get(), SessionOptions(window.session).get()).kv_bytes;
  weir = everything;
  weir.name = "Weir";
  weir.session.policy = "arkvale";
  weir.session.budget = flags_.budget / 4 * 3;
  weir.session.context = std::max(everything.session.context, go_on_to_ + kSlackTokens);
  const uint64_t pool_bytes = make_plan(model_.get(), SessionOptions(weir.session).get()).kv_bytes;
  weir.session.spill_bytes = mark_bytes_ - std::min(mark_bytes_, pool_bytes);
  weir.session.spill_file = (fs::path(flags_.folder) / ("weir-demo-" + std::to_string(getpid()))).string();
  weir.session.spill_file_bytes = 2 * dense_bytes(weir.session.context);  // it takes no more than it needs
  return {everything, window, weir};
}

void Demo::make_lanes() {
  try {
    lanes_ = std::make_unique<DemoLanes>(runtime_.get(), model_.get(), setups());
  } catch (const Error& e) {
    throw std::runtime_error(std::string(e.what()) +
                             "; --folder names a place for Weir's file, --go-on 0 makes it smaller");
  }
  const uint64_t most = std::max(
      2 * mark_bytes_, dense_bytes(static_cast<uint32_t>(story_.opening.size() + story_.think_tokens + kSlackTokens)));
  strip_ = std::make_unique<PageStrip>(story_.secret_first, story_.secret_end);
  view_ = std::make_unique<DemoView>(DemoScale{mark_bytes_, most}, flags_.fast ? 500 : 1000, stdout_is_terminal());
}

bool Demo::on_step(const std::string& doing, const Question* question, bool slowly) {
  if (interrupt_count() > 0) throw std::runtime_error("cancelled");
  const uint32_t n_tokens = lanes_->all()[kWeir].state().n_tokens;
  if (csv_ != nullptr && n_tokens >= next_row_) {
    for (const DemoLane& lane : lanes_->all()) {
      const DemoLaneState state = lane.state();
      csv_->write(format("%s,%u,%llu,%llu\n", lane.name().c_str(), state.n_tokens,
                         static_cast<unsigned long long>(state.kv_bytes),
                         static_cast<unsigned long long>(state.file_bytes)));
    }
    next_row_ = (n_tokens / kCsvTokens + 1) * kCsvTokens;
  }
  if (slowly) {
    strip_->look(lanes_->all()[kWeir]);
    note_return();
    view_->slow_frame(doing, *lanes_, *strip_, question);
  } else {
    view_->frame(doing, *lanes_, *strip_, [&] { strip_->look(lanes_->all()[kWeir]); });
  }
  return true;
}

void Demo::note_return() {
  const auto count = [](const std::vector<PageMark>& pages) {
    return std::count_if(pages.begin(), pages.end(), [](const PageMark& p) { return p.is_secret && p.came_back; });
  };
  if (outcome_.pages.empty() || count(strip_->in(kPicturePages)) >= count(outcome_.pages))
    outcome_.pages = strip_->in(kPicturePages);
}

// Before the questions.
void Demo::live() {
  lanes_->read(story_.opening, [&] { return on_step("reading", nullptr, false); });
  if (story_.think_tokens > 0) {
    lanes_->answer(story_.think_tokens, WEIR_GENERATE_SPECIAL_TEXT,
                   [&] { return on_step("thinking", nullptr, false); });
  }
}

void Demo::ask() {
  const bool reads = story_.think_tokens == 0;
  outcome_.said.resize(lanes_->all().size());
  outcome_.is_right.assign(lanes_->all().size(), true);
  strip_->look(lanes_->all()[kWeir]);
  strip_->count_from_here();
  for (const Question& question : story_.questions) {
    const auto asking = [&] { return on_step("asked: " + plain_line(question.text), nullptr, true); };
    if (reads)
      lanes_->read(question.tokens, asking);
    else
      lanes_->step(question.tokens, asking);
    lanes_->answer(reads ? kTextAnswerTokens : kAnswerTokens, 0,
                   [&] { return on_step("asked: " + plain_line(question.text), &question, true); });
    for (size_t i = 0; i < outcome_.said.size(); ++i) {
      const std::string& said = lanes_->all()[i].text();
      outcome_.said[i].push_back(said);
      outcome_.is_right[i] = outcome_.is_right[i] && is_right(question, said);
    }
  }
  outcome_.n_returns = strip_->secret_returns();
  view_->finish();
}

std::string Demo::answers(size_t lane) const {
  std::string text;
  for (size_t i = 0; i < story_.questions.size(); ++i)
    text += (i == 0 ? "" : " ") + plain_line(short_answer(story_.questions[i], outcome_.said[lane][i]));
  return text;
}

void Demo::print_table() {
  const bool is_long = story_.questions.front().index < 0;
  put_format("\n%s%-11s %-10s %-6s %18s %12s %15s%s\n", style_.bold, "", is_long ? "" : "answers", "", "KV in memory",
             "on disk", "session in all", style_.reset);
  for (size_t i = 0; i < lanes_->all().size(); ++i) {
    const DemoLane& lane = lanes_->all()[i];
    const uint64_t peak = lane.kv_peak_bytes(), file = lane.state().file_bytes;
    std::string kv = human_bytes(peak);
    if (peak > mark_bytes_) kv += format(", %.1fx", static_cast<double>(peak) / static_cast<double>(mark_bytes_));
    put_format("%-11s %-10s %s%-6s%s %18s %12s %15s\n", lane.name().c_str(), is_long ? "" : answers(i).c_str(),
               outcome_.is_right[i] ? style_.green : style_.red, outcome_.is_right[i] ? "right" : "wrong", style_.reset,
               kv.c_str(), file > 0 ? human_bytes(file).c_str() : "-",
               human_bytes(session_memory(lane.session()).bytes).c_str());
    if (is_long) put_line("  " + answers(i));
  }
  put_format("\nThe secret was %s. Its pages came back %u times while it was asked for.\n",
             plain_line(story_.secret).c_str(), outcome_.n_returns);
  if (story_.chance > 0)
    put_format("A guess is right once in %s times.\n", grouped(static_cast<uint64_t>(1 / story_.chance + 0.5)).c_str());
  put_line("");
  flush_output();
}

void Demo::draw_picture() const {
  DemoPicture picture;
  picture.headline = headline_;
  picture.told = story_.told;
  picture.secret = story_.secret;
  picture.mark_bytes = mark_bytes_;
  picture.pages = outcome_.pages;
  for (size_t i = 0; i < lanes_->all().size(); ++i) {
    const DemoLane& lane = lanes_->all()[i];
    picture.lanes.push_back({lane.name(), kKeeps[i], answers(i), lane.kv_peak_bytes(), lane.state().file_bytes,
                             static_cast<bool>(outcome_.is_right[i])});
  }
  picture.footer =
      format("%s tokens of %s. The bars are keys and values in memory. Drawn by weir demo.",
             grouped(lanes_->all()[kWeir].state().n_tokens).c_str(), plain_line(model_info(model_.get()).name).c_str());
  svg_->write(demo_svg(picture));
}

void Demo::go_on() {
  const uint32_t n_tokens = lanes_->all()[kWeir].state().n_tokens;
  if (go_on_to_ > n_tokens) {
    const uint64_t dense = dense_bytes(go_on_to_);
    lanes_->go_on(go_on_to_ - n_tokens, [&] {
      view_->going_on(*lanes_, go_on_to_, dense);
      return interrupt_count() == 0;
    });
    view_->finish();
    forget_interrupts();
  }
  const DemoLaneState state = lanes_->all()[kWeir].state();
  put_format("%s tokens in %s; everything would take %s. allocations while decoding %llu\n",
             grouped(state.n_tokens).c_str(), human_bytes(state.kv_bytes).c_str(),
             human_bytes(dense_bytes(state.n_tokens)).c_str(),
             static_cast<unsigned long long>(lanes_->allocs_while_decoding()));
}

// The claims of this demo, each measured.
std::vector<std::string> Demo::what_did_not_hold() const {
  std::vector<std::string> broken;
  const std::vector<DemoLane>& all = lanes_->all();
  if (!outcome_.is_right[kEverything]) broken.push_back("with everything the answer is wrong");
  if (outcome_.is_right[kWindow]) broken.push_back("the window's answer is right");
  if (!outcome_.is_right[kWeir]) broken.push_back("Weir's answer is wrong");
  if (all[kEverything].kv_peak_bytes() <= mark_bytes_) broken.push_back("everything fits the budget");
  for (size_t lane : {kWindow, kWeir}) {
    if (all[lane].kv_peak_bytes() > mark_bytes_) broken.push_back(all[lane].name() + " is above the budget");
  }
  if (lanes_->allocs_while_decoding() != 0) broken.push_back("memory was allocated while decoding");
  return broken;
}

int Demo::run() {
  open();
  const RawInput keys(stdout_is_terminal() && isatty(STDIN_FILENO) != 0);
  SessionFlags window;
  window.device = "cpu";
  window.policy = "sink";
  window.budget = flags_.budget;
  mark_bytes_ = make_plan(model_.get(), SessionOptions(window).get()).kv_bytes;
  headline_ =
      format("You have %s for keys and values. At %s tokens the model wants %s.", human_bytes(mark_bytes_).c_str(),
             grouped(kWanted).c_str(), human_bytes(dense_bytes(kWanted)).c_str());
  put_format("%s%s%s\n", style_.bold, headline_.c_str(), style_.reset);
  flush_output();
  tell_story();
  go_on_to_ = *flags_.go_on;
  make_lanes();
  put_format("The secret is %s.\n%s\n\n", plain_line(story_.secret).c_str(), story_.told.c_str());
  flush_output();
  live();
  ask();
  print_table();
  if (svg_ != nullptr) draw_picture();
  go_on();
  const std::vector<std::string> broken = what_did_not_hold();
  if (!broken.empty()) {
    flush_output();
    throw std::runtime_error("demo: " + joined(broken));
  }
  if (csv_ != nullptr) csv_->commit();
  if (svg_ != nullptr) svg_->commit();
  put_line("Your own model and text: weir demo -m MODEL.gguf --text FILE.txt");
  return 0;
}

// What depends on other flags.
void complete(DemoFlags& flags) {
  if (flags.secret && !parse_secret(*flags.secret))
    throw UsageError("demo: --secret " + *flags.secret + ": expected " + std::to_string(kSecretDigits) + " digits");
  const int n_given = !flags.fact.empty() + !flags.question.empty() + !flags.expect.empty();
  if (n_given > 0 && flags.text.empty()) throw UsageError("demo: --fact, --question and --expect belong to --text");
  if (n_given != 0 && n_given != 3) throw UsageError("demo: --fact, --question and --expect need one another");
  if (!flags.text.empty() && flags.secret) throw UsageError("demo: --secret is not for --text, --fact is");
  if (!flags.text.empty() && flags.steps != 0) throw UsageError("demo: --steps is not for --text, --tokens is");
  if (flags.steps == 0) flags.steps = flags.fast ? 150 : 400;
  if (flags.budget == 0) flags.budget = 1024;
  if (n_given == 0) {
    flags.fact = "The secret code is BLUE-RIVER-77.";
    flags.question = "What is the secret code?";
    flags.expect = "BLUE-RIVER-77";
  }
  if (!flags.go_on) flags.go_on = !flags.text.empty() ? 0 : flags.fast ? 4000 : kWanted;
  if (flags.folder.empty()) flags.folder = usual_folder();
  if (flags.model.empty()) flags.model = find_reasoner();
}

}  // namespace

void add_demo(CLI::App& program, Action& action) {
  auto flags = std::make_shared<DemoFlags>();
  CLI::App* app = program.add_subcommand(
      "demo", "A secret, a long chain of thought and a question: with everything, with a window, and with Weir");
  add_model_flag(*app, flags->model);
  app->add_flag("--fast", flags->fast, "A shorter chain, and on to 4,000 tokens only");
  app->add_option("--secret", flags->secret, "Six digits; on a terminal they are asked for")->type_name("DIGITS");
  app->add_option("--seed", flags->seed, "Which chain, and which secret where none is given; default 1")
      ->transform(whole_number(0, UINT64_MAX))
      ->type_name("S");
  app->add_option("--steps", flags->steps, "Steps of the chain, about 18 tokens each; default 400, with --fast 150")
      ->transform(whole_number(20, 800))
      ->type_name("N");
  app->add_option("--budget", flags->budget, "KV budget of window and Weir in tokens per stream; default 1024")
      ->transform(whole_number(256, kMaxTokens))
      ->type_name("TOKENS");
  app->add_option("--go-on", flags->go_on,
                  "Weir's lane goes on to so many tokens; default 100000, with --fast 4000, with --text 0")
      ->transform(whole_number(0, 1000000))
      ->type_name("TOKENS");
  app->add_option("--folder", flags->folder, "Where a file for what has no room in memory is made; default /var/tmp")
      ->check(some_path())
      ->type_name("DIR");
  app->add_option("--text", flags->text, "A text to read between a fact and the question; for any model that chats")
      ->check(some_path())
      ->type_name("FILE");
  app->add_option("--tokens", flags->text_tokens, "Tokens of the text that are read; default 1500")
      ->transform(whole_number(100, kMaxTokens))
      ->type_name("N");
  app->add_option("--fact", flags->fact, "What the model is told before the text; default: a secret code")
      ->type_name("TEXT");
  app->add_option("--question", flags->question, "What it is asked for after the text")->type_name("TEXT");
  app->add_option("--expect", flags->expect, "What a right answer to that contains")->type_name("TEXT");
  app->add_option("--threads", flags->threads, "Threads that compute; 0 (default): all cores")
      ->transform(whole_number(0, 256))
      ->type_name("N");
  app->add_option("--svg", flags->svg, "Also write a picture of the result to this file")
      ->check(some_path())
      ->type_name("FILE");
  app->add_option("--csv", flags->csv, "Also write the memory of each lane every 100 tokens to this file")
      ->check(some_path())
      ->type_name("FILE");
  CLI::App* reason = add_demo_reason(*app, action);
  app->footer("Exit status: 0 the story held, 1 it did not, or something failed, 2 wrong usage.");
  app->callback([flags, reason, &action] {
    if (reason->parsed()) return;
    action = [flags] {
      complete(*flags);
      catch_interrupts();
      return Demo(*flags).run();
    };
  });
}

}  // namespace weir_cli
