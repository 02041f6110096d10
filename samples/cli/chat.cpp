// weir chat: a conversation in the terminal. The session keeps the history; a later turn feeds only what is new. On a
// terminal the last row shows tokens, speed and KV memory while the answer streams above it; piped, it reads lines and
// prints answers, nothing else. Ctrl-C stops the answer, not the program.
#include <unistd.h>
#include <CLI/CLI.hpp>

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
#include "terminal.h"

namespace weir_cli {
namespace {

struct ChatFlags {
  std::string model;
  std::string system;
  bool accept_resembling = false;
  uint32_t max_tokens = 0;
  SessionFlags session;
  SamplingFlags sampling;
  SavedFlags saved;
};

constexpr char kHelp[] =
    "/stats  what the conversation takes\n"
    "/reset  forget the conversation\n"
    "/exit   leave (also Ctrl-D, or Ctrl-C twice)\n"
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
    require_chat_template(model_.get(), flags.model);
    SessionOptions options(flags.session);
    plan_ = checked_plan(model_.get(), options.get());
    session_ = create_session(model_.get(), options.get());
    const bool resumes = !flags.saved.resume.empty();
    if (resumes) resume_session(session_.get(), flags.saved.resume);
    has_history_ = session_stats(session_.get()).n_tokens != 0;
    if (!resumes || flags.sampling.given()) {
      sampling_ = flags.sampling.get();
      check(weir_session_set_sampling(session_.get(), &sampling_), "cannot set the sampling");
    }
  }

  int run() {
    greet();
    row_.open();
    draw_status();
    bool failed = false;
    for (std::string line; read_turn(line);) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      if (line[0] == '/') {
        if (!command(line)) break;
        continue;
      }
      try {
        answer(line);
      } catch (const Error& e) {
        failed = true;
        report(e);
      }
    }
    row_.close();
    if (save_ != nullptr) save_session(session_.get(), *save_);
    return interactive_ ? 0 : failed ? 1 : was_cut_ ? kCutAnswer : 0;
  }

 private:
  void greet() {
    if (!interactive_) return;
    const weir_model_info info = model_info(model_.get());
    const std::string name = plain_line(info.name[0] != '\0' ? info.name : flags_.model);
    put_format("%s%s%s  %s, %s budget of %s tokens, %s in all. /help tells more.\n%s\n", style_.bold, name.c_str(),
               style_.reset, human_bytes(info.weights_bytes).c_str(), flags_.session.policy.c_str(),
               grouped(plan_.budget_tokens).c_str(), human_bytes(plan_.total_bytes).c_str(),
               sampling_.temperature > 0
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
    const std::string name = line.substr(0, line.find_first_of(" \t\r"));
    if (name == "/exit" || name == "/quit") return false;
    if (name == "/help") {
      print(kHelp);
    } else if (name == "/stats") {
      print_stats();
    } else if (name == "/reset") {
      reset();
      print("The conversation is forgotten.\n");
    } else {
      print("No command " + plain_line(name) + ". /help lists them.\n");
    }
    return true;
  }

  void reset() {
    check(weir_session_reset(session_.get()), "cannot reset the session");
    has_history_ = false;
    speed_ = 0;
    draw_status();
  }

  std::vector<weir_token> render(const std::string& text) const {
    std::vector<Message> messages;
    if (!has_history_ && !flags_.system.empty()) messages.push_back({"system", flags_.system});
    messages.push_back({"user", text});
    const uint32_t flags = WEIR_CHAT_ADD_ASSISTANT | (has_history_ ? static_cast<uint32_t>(WEIR_CHAT_CONTINUE) : 0u) |
                           resembling_flag(flags_.accept_resembling);
    return tokenize_chat(model_.get(), messages, flags);
  }

  void answer(const std::string& text) {
    const std::vector<weir_token> tokens = render(text);
    if (!read_prompt(tokens)) return;
    has_history_ = true;
    const auto answer_start = std::chrono::steady_clock::now();
    bool ends_line = false;
    const auto on_token = [&](const weir_token_event& event) {
      if (event.text_bytes > 0) {
        show({event.text, static_cast<size_t>(event.text_bytes)});
        ends_line = event.text[event.text_bytes - 1] == '\n';
      }
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - answer_start;
      speed_ = (event.index + 1) / elapsed.count();
      row_.draw_if_due([&] { return status_text(); });
      return interrupt_count() == 0;
    };
    const weir_generate_result result =
        generate(session_.get(), flags_.max_tokens != 0 ? flags_.max_tokens : answer_limit(model_.get()),
                 WEIR_GENERATE_SPECIAL_TEXT, on_token);
    print_styled("", ends_line ? "" : "\n");
    if (interactive_ && result.stop == WEIR_STOP_CANCELLED) notice("stopped");
    if (result.stop == WEIR_STOP_LENGTH) notice("the answer was cut at " + grouped(result.n_tokens) + " tokens");
    if (result.stop == WEIR_STOP_CONTEXT)
      notice("the answer was cut: the context of " + grouped(plan_.context_tokens) +
             " tokens is full; /reset starts anew");
    was_cut_ |= result.stop == WEIR_STOP_CONTEXT || (result.stop == WEIR_STOP_LENGTH && flags_.max_tokens == 0);
    if (interactive_) print("\n");
    draw_status();
  }

  // False when Ctrl-C stopped it; the turn is then as if never said.
  bool read_prompt(const std::vector<weir_token>& tokens) {
    const uint32_t n_before = session_stats(session_.get()).n_tokens;
    const auto on_progress = [&](uint64_t done, uint64_t total) {
      row_.draw_if_due([&] { return " reading " + grouped(done) + " of " + grouped(total) + " tokens"; });
      return interrupt_count() == 0;
    };
    try {
      prefill(session_.get(), tokens, on_progress);
    } catch (const Error& e) {
      if (e.status() != WEIR_ERR_CANCELLED) throw;
      if (session_stats(session_.get()).n_tokens == n_before) {
        notice("stopped; the turn is forgotten");
      } else {
        reset();
        notice("stopped inside a long prompt; the conversation is forgotten");
      }
      return false;
    }
    return true;
  }

  // Thinking is shown dim. The marks are single tokens in the models that think, so they arrive whole.
  void show(std::string_view text) {
    if (text == "<think>") put(style_.dim);
    if (stdout_is_terminal_)
      print(plain_text(text));
    else
      print(text);
    if (text == "</think>") put(style_.reset);
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
  weir_sampling_options sampling_ = WEIR_SAMPLING_OPTIONS_INIT;  // unless a resumed conversation has its own
  bool has_history_ = false;
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
  add_template_flag(*app, flags->accept_resembling);
  app->add_option("-n", flags->max_tokens, "Most tokens of an answer; default: what the model was trained for")
      ->transform(whole_number(1, kMostTokens))
      ->type_name("MAX");
  add_saved_flags(*app, flags->saved);
  add_sampling_flags(*app, flags->sampling);
  add_session_flags(*app, flags->session);
  app->callback([flags, &action] {
    action = [flags] {
      check_saved_flags(flags->saved, flags->system);
      catch_interrupts();
      return Chat(*flags).run();
    };
  });
}

}  // namespace weir_cli
