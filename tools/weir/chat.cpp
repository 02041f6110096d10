// weir chat: a conversation in the terminal. The session keeps the history; a later turn feeds only what is new. On a
// terminal the last row shows tokens, speed and KV memory while the answer streams above it; piped, it reads lines and
// prints answers, nothing else. Ctrl-C stops the answer, not the program.
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>

#include "commands.h"
#include "conversation.h"
#include "input.h"
#include "line_editor.h"
#include "output.h"
#include "session_file.h"
#include "talk.h"
#include "terminal.h"

namespace weir_cli {
namespace {

struct ChatFlags {
  std::string model;
  std::string system;
  std::string chat_template;
  std::vector<std::string> variables;
  uint32_t thinking_budget = 0;
  std::string thinking_close;
  bool show_thoughts = false;
  uint32_t max_tokens = 0;
  SessionFlags session;
  SamplingFlags sampling;
  SavedFlags saved;
};

constexpr char kHelp[] =
    "/regen            another answer to the last question\n"
    "/edit N [TEXT]    question N anew, counted from 1; what came behind it is forgotten\n"
    "/rewind [N]       forget the last N questions and answers; default 1\n"
    "/system [TEXT]    another system message; without TEXT none\n"
    "/think on|off     whether the model thinks before it answers, where its template has a switch\n"
    "/finish           typed while it thinks: the thought ends, the answer begins\n"
    "/thoughts         what was thought before the last answer\n"
    "/set [NAME VALUE] temp, top-p, top-k, min-p, repeat-penalty, seed or max-tokens; alone: how they are\n"
    "/save FILE        the conversation to a file; /load FILE: from one\n"
    "/stats            what the conversation takes\n"
    "/reset            forget the conversation\n"
    "/exit             leave (also Ctrl-D, or Ctrl-C twice)\n"
    "Ctrl-C stops an answer. A line that ends in \\ goes on in the next one, and a paste of several lines is one "
    "turn.\n"
    "Answers are drawn at random; --temp 0 has the most probable token each time.\n";

class Chat {
 public:
  explicit Chat(const ChatFlags& flags)
      : flags_(flags),
        save_(open_save_file(flags.saved)),
        interactive_(isatty(STDIN_FILENO) != 0 && stdout_is_terminal()),
        style_(interactive_),
        input_(interactive_),
        row_(interactive_),
        editor_(row_, style_, [this] { draw_status(); }),
        runtime_(create_runtime(flags.session.threads, flags.session.device)) {
    model_ = open_model(runtime_.get(), flags.model);
    if (flags.chat_template.empty()) require_chat_template(model_.get(), flags.model);
    SolveOptions abilities;
    abilities.chat_template = flags.chat_template;
    abilities.variables = variables_of_flags(flags.variables);
    abilities.thinking_budget = flags.thinking_budget;
    require_chat_abilities(model_.get(), abilities);
    const bool resumes = !flags.saved.resume.empty();
    open_session(flags.session, flags.saved.resume);
    talk_ = std::make_unique<Talk>(model_.get(), session_.get(), plan_.context_tokens);
    if (!resumes) talk_->set_system(flags.system);
    talk_->settings() = {flags.chat_template, "", abilities.variables};
    max_tokens_ = flags.max_tokens;
    SamplingFlags sampling = flags.sampling;
    take_recommended(model_.get(), sampling);
    sampling_ = sampling.get();
    samples_as_saved_ = resumes && !flags.sampling.given();
    if (!samples_as_saved_) apply_sampling(sampling_);
  }

  int run() {
    greet();
    row_.open();
    draw_status();
    bool failed = false;
    for (std::string line; read_turn(line);) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      try {
        if (line[0] == '/') {
          if (!command(line)) break;
          continue;
        }
        talk_->ask(line);
        answer();
      } catch (const Error& e) {
        failed = true;
        report(e);
      }
    }
    row_.close();
    if (save_ != nullptr) save(*save_);
    return interactive_ ? 0 : failed ? 1 : was_cut_ ? kCutAnswer : 0;
  }

 private:
  void open_session(const SessionFlags& flags, const std::string& resume) {
    SessionOptions options(flags);
    plan_ = checked_plan(model_.get(), options.get());
    session_ = create_session(model_.get(), options.get());
    policy_ = flags.policy;
    if (resume.empty()) return;
    try {
      resume_session(session_.get(), resume);
    } catch (const std::runtime_error&) {
      // Nobody has asked for the usual preset, and the file may be of a session with all of its context.
      if (flags.preset.empty() || flags.preset != flags.usual_preset) throw;
      SessionFlags whole = flags;
      whole.preset = whole.usual_preset = "";
      whole.policy = "dense";
      whole.budget = 0;
      whole.spill_flags = 0;
      whole.policy_options.clear();
      open_session(whole, resume);
    }
  }

  void greet() {
    if (!interactive_) return;
    const weir_model_info info = model_info(model_.get());
    const std::string name = plain_line(info.name[0] != '\0' ? info.name : flags_.model);
    put_format("%s%s%s  %s, %s budget of %s tokens, %s in all.\n%s/help tells more.\n\n", style_.bold, name.c_str(),
               style_.reset, human_bytes(info.weights_bytes).c_str(), policy_.c_str(),
               grouped(plan_.budget_tokens).c_str(), human_bytes(plan_.total_bytes).c_str(),
               sampling_.temperature > 0 && !samples_as_saved_
                   ? format("Temperature %g, seed %llu; --temp 0 has the most probable tokens.\n",
                            static_cast<double>(sampling_.temperature), static_cast<unsigned long long>(sampling_.seed))
                         .c_str()
                   : "");
  }

  void print(std::string_view text) {
    put(text);
    flush_output();
    row_.note_text(text);
  }

  void print_styled(const char* style, std::string_view text) {
    put(style);
    print(text);
    put(style_.reset);
    flush_output();
  }

  // Reads the user's next turn; false ends the conversation.
  bool read_turn(std::string& turn) { return interactive_ ? type_turn(turn) : read_lines(turn); }

  bool type_turn(std::string& turn) {
    for (bool was_interrupted = false;; was_interrupted = true) {
      forget_interrupts();
      const Read how = editor_.read(turn);
      if (how == Read::kLine) return true;
      if (how == Read::kEnd || was_interrupted) return false;
      print_styled(style_.dim, "Ctrl-C once more leaves.\n");
    }
  }

  bool read_lines(std::string& turn) {
    turn.clear();
    for (std::string line;;) {
      const Read how = read_line(line);
      if (how == Read::kInterrupted) print("\n");
      if (how != Read::kLine) return how == Read::kEnd && !turn.empty();
      forget_interrupts();
      if (std::exchange(is_first_line_, false)) drop_byte_order_mark(line);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      const bool goes_on = !line.empty() && line.back() == '\\';
      if (goes_on) line.back() = '\n';
      turn += line;
      if (!goes_on) return true;
    }
  }

  // False for /exit.
  bool command(const std::string& line) {
    const size_t end = line.find_first_of(" \t\r\n");
    const std::string name = line.substr(0, end);
    const size_t begin = end == std::string::npos ? end : line.find_first_not_of(" \t\r\n", end);
    const std::string rest = begin == std::string::npos ? "" : line.substr(begin);
    if (name == "/exit" || name == "/quit") return false;
    if (name == "/help") {
      print(kHelp);
    } else if (name == "/stats") {
      print_stats();
    } else if (name == "/reset") {
      talk_->forget();
      speed_ = 0;
      draw_status();
      print("The conversation is forgotten.\n");
    } else if (name == "/regen") {
      regenerate();
    } else if (name == "/edit") {
      edit(rest);
    } else if (name == "/rewind") {
      rewind(rest);
    } else if (name == "/system") {
      set_system(rest);
    } else if (name == "/think") {
      set_thinking(rest);
    } else if (name == "/thoughts") {
      print_styled(style_.dim, thought_.empty() ? "There are none.\n" : plain_text(thought_) + "\n");
    } else if (name == "/finish") {
      print("/finish is for while the model thinks: it then goes on to its answer.\n");
    } else if (name == "/set") {
      set(rest);
    } else if (name == "/save" || name == "/load") {
      move_session(name == "/save", rest);
    } else {
      print("No command " + plain_line(name) + ". /help lists them.\n");
    }
    return true;
  }

  void regenerate() {
    if (talk_->n_questions() == 0) return print("There is no question of this conversation yet.\n");
    talk_->drop_answer();
    answer();
  }

  // "N" or "N TEXT"; without a text it is typed, beginning with the old one.
  void edit(const std::string& rest) {
    const size_t end = std::min(rest.find_first_of(" \t\n"), rest.size());
    uint64_t number = 0;
    if (!parse_whole(rest.substr(0, end), number) || number == 0 || number > talk_->n_questions())
      return print("/edit wants the number of a question, from 1 to " + grouped(talk_->n_questions()) + ".\n");
    const size_t begin = rest.find_first_not_of(" \t\n", end);
    std::string text = begin == std::string::npos ? "" : rest.substr(begin);
    if (text.empty() && interactive_ && editor_.read(text, talk_->question(number)) != Read::kLine) return;
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) return print("/edit wants a text.\n");
    talk_->drop_from(number);
    talk_->ask(text);
    answer();
  }

  void rewind(const std::string& rest) {
    uint64_t number = 1;
    const uint64_t n = talk_->n_questions();
    if ((!rest.empty() && !parse_whole(rest, number)) || number == 0 || number > n)
      return print("/rewind wants how many questions to forget, from 1 to " + grouped(n) + ".\n");
    talk_->drop_from(n - number + 1);
    is_settled_ = false;
    print(grouped(number) + (number == 1 ? " question is" : " questions are") + " forgotten.\n");
  }

  void set_system(const std::string& text) {
    if (!talk_->can_set_system()) return print("A conversation from a file keeps its system message.\n");
    talk_->set_system(text);
    print(text.empty() ? "There is no system message.\n" : "The system message is set.\n");
  }

  void set_thinking(const std::string& rest) {
    if (rest != "on" && rest != "off") return print("/think wants on or off.\n");
    const std::string before = talk_->settings().variables;
    auto variables = nlohmann::ordered_json::parse(before.empty() ? "{}" : before);
    variables["enable_thinking"] = rest == "on";
    talk_->settings().variables = variables.dump();
    const weir_status status = try_chat_settings(model_.get(), talk_->settings());
    if (status == WEIR_OK) return;
    talk_->settings().variables = before;
    if (status != WEIR_ERR_NOT_FOUND) throw Error(status, "cannot render the conversation");
    print("This model's chat template has no switch for thoughts (enable_thinking).\n");
  }

  void set(const std::string& rest) {
    const size_t space = rest.find_first_of(" \t");
    const std::string name = rest.substr(0, space);
    const size_t begin = space == std::string::npos ? space : rest.find_first_not_of(" \t", space);
    const std::string value = begin == std::string::npos ? "" : rest.substr(begin);
    weir_sampling_options changed = sampling_;
    uint64_t whole = 0;
    double number = 0;
    const bool is_whole = parse_whole(value, whole), is_number = parse_finite(value, number);
    bool is_right = is_number;
    if (name == "temp") {
      changed.temperature = static_cast<float>(number);
    } else if (name == "top-p") {
      changed.top_p = static_cast<float>(number);
    } else if (name == "min-p") {
      changed.min_p = static_cast<float>(number);
    } else if (name == "repeat-penalty") {
      changed.repeat_penalty = static_cast<float>(number);
    } else if (name == "top-k" || name == "max-tokens") {
      is_right = is_whole && whole <= UINT32_MAX;
      if (is_right) (name == "top-k" ? changed.top_k : max_tokens_) = static_cast<uint32_t>(whole);
    } else if (name == "seed") {
      is_right = is_whole;
      changed.seed = whole;
    } else {
      return print_settings();
    }
    if (!is_right) return print("/set " + name + " wants a number.\n");
    if (name == "max-tokens") return;
    apply_sampling(changed);
    if (!std::exchange(samples_as_saved_, false)) return;
    print("The sampling that was saved with the conversation is replaced. ");
    print_settings();
  }

  void apply_sampling(const weir_sampling_options& sampling) {
    check(weir_session_set_sampling(session_.get(), &sampling), "cannot set the sampling");
    sampling_ = sampling;
  }

  void print_settings() {
    const std::string most = "max-tokens " + std::to_string(max_tokens_) + " (0: what the model was trained for)\n";
    if (samples_as_saved_) return print("The sampling is that which was saved with the conversation; " + most);
    const auto number = [](float value) { return format("%g", static_cast<double>(value)); };
    print("temp " + number(sampling_.temperature) + ", top-p " + number(sampling_.top_p) + ", top-k " +
          std::to_string(sampling_.top_k) + ", min-p " + number(sampling_.min_p) + ", repeat-penalty " +
          number(sampling_.repeat_penalty) + ", seed " + std::to_string(sampling_.seed) + ", " + most);
  }

  void save(OutFile& file) {
    if (!is_settled_) talk_->settle();
    is_settled_ = true;
    save_session(session_.get(), file);
  }

  void move_session(bool out, const std::string& path) {
    if (path.empty()) return print(out ? "/save wants a file.\n" : "/load wants a file.\n");
    try {
      if (out) {
        SavedFlags flags;
        flags.save = path;
        save(*open_save_file(flags));
      } else {
        resume_session(session_.get(), path);
        talk_->resume();
        is_settled_ = true;
        // The file has its own; what /set says goes on to hold.
        if (!samples_as_saved_) apply_sampling(sampling_);
        draw_status();
      }
      print(plain_line(path) +
            (out ? " has the conversation.\n" : " is the conversation now; its questions cannot be edited.\n"));
    } catch (const std::runtime_error& e) {
      print(plain_line(e.what()) + "\n");
    }
  }

  // Answers the last question.
  void answer() {
    is_settled_ = false;
    if (!read_prompt()) return;
    is_settled_ = true;
    std::string said;
    weir_event event = WEIR_EVENT_INIT;
    try {
      generate(said, event);
    } catch (...) {
      talk_->add_answer(said);
      throw;
    }
    talk_->add_answer(said);
    print_styled("", said.ends_with('\n') ? "" : "\n");
    if (interactive_ && event.stop == WEIR_STOP_CANCELLED) notice("stopped");
    if (event.stop == WEIR_STOP_LENGTH) notice("the answer was cut at " + grouped(event.index) + " tokens");
    if (event.stop == WEIR_STOP_CONTEXT)
      notice("the answer was cut: the context of " + grouped(plan_.context_tokens) +
             " tokens is full; /reset starts anew");
    was_cut_ |= event.stop == WEIR_STOP_CONTEXT || (event.stop == WEIR_STOP_LENGTH && max_tokens_ == 0);
    if (interactive_) print("\n");
    draw_status();
  }

  // `said` gets the text, also of an answer that fails; `event` is the last one.
  void generate(std::string& said, weir_event& event) {
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    options.max_tokens = max_tokens_ != 0 ? max_tokens_ : answer_limit(model_.get());
    options.flags = WEIR_GENERATE_SPECIAL_TEXT;
    options.thinking_budget = flags_.thinking_budget;
    options.thinking_close = given(flags_.thinking_close);
    check(weir_session_begin(session_.get(), &options), "cannot generate");
    thought_.clear();
    n_thought_ = 0;
    const auto start = std::chrono::steady_clock::now();
    do {
      if (interrupt_count() > 0) weir_session_cancel(session_.get());
      check(weir_session_next(session_.get(), &event), "cannot generate");
      said.append(event.text, event.text_bytes);
      show(event);
      if (interactive_ && event.segment == WEIR_SEGMENT_THOUGHT && take_typed_line("/finish"))
        weir_session_finish_thinking(session_.get());
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      if (event.kind == WEIR_EVENT_TOKEN) speed_ = (event.index + 1) / elapsed.count();
      row_.draw_if_due([&] { return status_text(); });
    } while (event.kind != WEIR_EVENT_END);
  }

  // False when Ctrl-C stopped it; the question is then as if never said.
  bool read_prompt() {
    const auto on_progress = [&](uint64_t done, uint64_t total) {
      row_.draw_if_due([&] { return " reading " + grouped(done) + " of " + grouped(total) + " tokens"; });
      return interrupt_count() == 0;
    };
    try {
      const weir_prompt_report report = talk_->prompt(on_progress);
      if (report.n_messages_dropped > 0)
        notice("the context is full: the " + grouped(report.n_messages_dropped) + " oldest messages are left out");
    } catch (const Error& e) {
      talk_->drop_from(talk_->n_questions());
      if (e.status() != WEIR_ERR_CANCELLED) throw;
      notice("stopped; the question is forgotten");
      return false;
    }
    return true;
  }

  // Thoughts and calls are shown dim, with their tags. On a terminal thoughts are only counted, in the status row,
  // unless they are asked for.
  void show(const weir_event& event) {
    const std::string_view text(event.text, event.text_bytes);
    const bool folds = interactive_ && !flags_.show_thoughts;
    const bool is_thought = event.segment == WEIR_SEGMENT_THOUGHT;
    if (folds && (is_thought || event.segment == WEIR_SEGMENT_MARK)) {
      if (is_thought) thought_ += text;
      if (is_thought && event.kind == WEIR_EVENT_TOKEN) ++n_thought_;
      return;
    }
    if (n_thought_ > 0 && (!text.empty() || event.kind == WEIR_EVENT_END)) {
      notice("thought for " + grouped(std::exchange(n_thought_, 0)) + " tokens; /thoughts shows them");
      if (text.find_first_not_of('\n') == std::string_view::npos) return;
    }
    if (text.empty()) return;
    if (event.segment != WEIR_SEGMENT_ANSWER) put(style_.dim);
    print(stdout_is_terminal_ ? plain_text(text) : std::string(text));
    if (event.segment != WEIR_SEGMENT_ANSWER) put(style_.reset);
  }

  void notice(const std::string& text) {
    if (interactive_)
      print_styled(style_.dim, "(" + text + ")\n");
    else
      tell(text);
  }

  void report(const Error& e) {
    if (interactive_)
      print_styled(style_.red, plain_line(with_way_out(e)) + "\n");
    else
      tell(with_way_out(e));
    draw_status();
  }

  std::string status_text() const {
    const weir_memory_info memory = session_memory(session_.get());
    const weir_session_stats stats = session_stats(session_.get());
    const double used = memory.kv_budget_bytes == 0
                            ? 0
                            : static_cast<double>(memory.kv_bytes) / static_cast<double>(memory.kv_budget_bytes);
    std::string text = " " + grouped(stats.n_tokens) + " tokens";
    if (speed_ > 0) text += format("  %.0f tok/s", speed_);
    if (n_thought_ > 0) text += "  thinking: " + grouped(n_thought_) + " tokens";
    text += "  KV " + human_bytes(memory.kv_bytes) + " of " + human_bytes(memory.kv_budget_bytes) + " " + bar(used, 12);
    if (stats.pages_spilled > 0) {
      text += "  pages " + grouped(stats.pages_resident) + " resident, " + grouped(stats.pages_cold) + " cold, " +
              grouped(stats.pages_recalled) + " recalled" + ratio_text(stats);
    } else if (stats.pages_evicted > 0) {
      text += "  " + grouped(stats.pages_evicted) + " pages evicted";
    }
    return text;
  }

  // Bytes of the pages in the store to what they take there.
  std::string ratio_text(const weir_session_stats& stats) const {
    if (stats.spill_stored_bytes == 0) return "";
    return format(", ratio %.2f", static_cast<double>(stored_pages(plan_, stats) * plan_.page_bytes) /
                                      static_cast<double>(stats.spill_stored_bytes));
  }

  void draw_status() { row_.draw(status_text()); }

  void print_stats() {
    const weir_memory_info m = session_memory(session_.get());
    const weir_session_stats s = session_stats(session_.get());
    const auto rate = [](uint64_t n, uint64_t ns) {
      return ns == 0 ? 0.0 : static_cast<double>(n) * 1e9 / static_cast<double>(ns);
    };
    print("tokens   " + grouped(s.n_tokens) + " of " + grouped(plan_.context_tokens) + "\n");
    print("prompt   " + grouped(s.n_prompt) + " tokens" + format(", %.1f a second\n", rate(s.n_prompt, s.prefill_ns)));
    print("decoded  " + grouped(s.n_decode) + " tokens" + format(", %.1f a second\n", rate(s.n_decode, s.decode_ns)));
    print("KV       " + human_bytes(m.kv_bytes) + " now, " + human_bytes(m.kv_peak_bytes) + " at most, budget " +
          human_bytes(m.kv_budget_bytes) + "\n");
    print("pages    " + grouped(s.pages_resident) + " resident, " + grouped(s.pages_evicted) + " evicted, " +
          grouped(s.pages_spilled) + " spilled, " + grouped(s.pages_recalled) + " recalled, " +
          grouped(s.pages_dropped) + " dropped\n");
    if (s.spill_stored_bytes > 0) {
      print("store    " + human_bytes(s.spill_stored_bytes) + " of " + human_bytes(plan_.spill_bytes) + ", " +
            grouped(s.pages_cold) + " pages cold" + ratio_text(s) + ", " +
            format("%.1f s", static_cast<double>(s.recall_ns) * 1e-9) + " of recalls\n");
    }
    print("memory   " + human_bytes(m.bytes) + " of a plan of " + human_bytes(m.plan_bytes) + ", " +
          grouped(m.allocs_while_decoding) + " allocations while decoding\n");
  }

  const ChatFlags& flags_;
  std::unique_ptr<OutFile> save_;
  bool interactive_, stdout_is_terminal_ = isatty(STDOUT_FILENO) != 0;
  Style style_;
  RawInput input_;
  StatusRow row_;
  LineEditor editor_;
  RuntimePtr runtime_;
  ModelPtr model_;
  SessionPtr session_;
  weir_plan_info plan_ = WEIR_PLAN_INFO_INIT;
  std::string policy_;
  weir_sampling_options sampling_ = WEIR_SAMPLING_OPTIONS_INIT;
  bool samples_as_saved_ = false;  // instead: a resumed conversation has its own, which nobody can ask for
  std::unique_ptr<Talk> talk_;
  std::string thought_;        // of the last answer, where it is not shown
  uint64_t n_thought_ = 0;     // its tokens, while it is thought
  uint32_t max_tokens_ = 0;    // of an answer; 0: answer_limit()
  bool is_settled_ = true;     // the session has nothing that was taken back
  bool is_first_line_ = true;  // of a pipe
  bool was_cut_ = false;       // an answer, by a limit that was not asked for
  double speed_ = 0;           // tokens a second of the last answer
};

}  // namespace

void add_chat(CLI::App& program, Action& action) {
  auto flags = std::make_shared<ChatFlags>();
  flags->sampling.talks = true;
  CLI::App* app = program.add_subcommand("chat", "A conversation in the terminal");
  add_model_flag(*app, flags->model)->required();
  app->add_option("--system", flags->system, "System message")->type_name("TEXT");
  app->add_flag("--show-thoughts", flags->show_thoughts, "On a terminal, show what the model thinks, too");
  app->add_option("-n", flags->max_tokens, "Most tokens of an answer; default: what the model was trained for")
      ->transform(whole_number(1, kMaxTokens))
      ->type_name("MAX");
  add_template_flag(*app, flags->chat_template);
  add_variable_flag(*app, flags->variables);
  add_thinking_flags(*app, flags->thinking_budget, flags->thinking_close);
  add_saved_flags(*app, flags->saved);
  add_sampling_flags(*app, flags->sampling);
  flags->session.usual_preset = "chat";
  add_session_flags(*app, flags->session);
  app->callback([flags, &action] {
    action = [flags] {
      check_saved_flags(flags->saved, flags->system);
      (void)variables_of_flags(flags->variables);  // wrong usage comes before any work
      flags->chat_template = read_template(flags->chat_template);
      catch_interrupts();
      return Chat(*flags).run();
    };
  });
}

}  // namespace weir_cli
