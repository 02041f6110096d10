// An answer while it is made: its text, piece by piece as it becomes clear, the parts that it belongs to, what ends a
// thought early, and the answer as a message. Which token comes next is not decided here, but for those that end a
// thought; tokens come when the conversation has them.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "core/memory.h"
#include "core/status.h"
#include "kv/kv_cache.h"
#include "models/model.h"
#include "runtime/logprobs.h"
#include "runtime/token_record.h"
#include "text/answer_message.h"
#include "text/answer_parts.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"
#include "weir/session.h"

namespace weir {

class Answering {
 public:
  // What was asked for, and how far it is.
  struct State {
    enum Pull { kNone, kRuns, kEnds };  // of one that is pulled; kEnds: no text comes any more, its end was not given
    Pull pull = kNone;
    uint32_t flags = 0, max_tokens = 0, min_tokens = 0, n_top = 0;
    uint32_t n_tokens = 0;
    weir_token ended_by = -1;
    int32_t stop = WEIR_STOP_NONE, stop_index = -1;
    bool has_begun = false;
    uint32_t first = 0, end = 0;  // tokens of the conversation before it and after its latest token
    AnswerParts::State start;     // before it
    uint32_t thinking_budget = 0, n_thought = 0;
    uint32_t n_forced = 0, n_forced_done = 0;  // of the tokens that end a thought; of these, that were appended
    bool is_forcing = false;

    bool has(uint32_t flag) const { return (flags & flag) != 0; }
    bool runs() const { return pull != kNone; }
    bool is_full() const { return max_tokens != 0 && n_tokens >= max_tokens; }
  };

  // All of it outlives this; `memory` holds messages.
  Answering(HostMemory& memory, const KvCache& kv, const TokenRecord& record, Detokenizer& detokenizer)
      : memory_(memory), kv_(kv), record_(record), detokenizer_(detokenizer) {}
  ~Answering() { drop_message(); }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;
  void set_model(const Model& model) { model_ = &model; }

  // Checks stop strings and n_top; checks the rest and begins.
  static Status check(const weir_generate_options& options);
  Status begin(const weir_generate_options& options);
  void begin_events() { state_.pull = State::kRuns; }
  // No event comes any more, because the conversation goes on elsewhere.
  void leave();
  // Whether the conversation is where the latest event of a pulled answer left it.
  Status check_place() const;
  void wipe_all();

  const State& state() const { return state_; }
  const AnswerParts& parts() const { return parts_; }
  LogProbs& probs() { return probs_; }  // of the latest token that was drawn for it

  // Any thread: the next token begins the end of the thought that is open.
  void finish_thinking() { finish_thinking_.store(true); }
  // Whether the next token is one of those that end a thought early.
  bool force(weir_token& token);
  // Why the answer ends with this token, which was drawn and is not appended then; WEIR_STOP_NONE: it goes on.
  int32_t stop_at(weir_token token) const;
  void end_by(weir_token token, int32_t stop) { state_.ended_by = token, state_.stop = stop; }

  // A token that will be appended, and what it makes clear; until it is, the text can be taken back.
  struct Text {
    std::string_view whole;    // that is complete with the token
    StopStrings::Piece piece;  // of it, what is shown
    Detokenizer::Held before;
  };
  Text push(weir_token token);
  void take_back(const Text& text);
  // It was appended and shown: the events of a pulled answer do not tell it.
  void add_shown(weir_token token, const Text& text);
  // The last text: at the end of the answer nothing can complete a character that was left open. After stops at which
  // the conversation may go on the next call can, so its bytes are kept.
  std::string_view finish(int32_t stop);

  // Events. Of text without a token, if there is such text; of a token that was appended; of the end, or first those
  // with the text that is left.
  bool give_text(weir_event& event);
  void give_token(weir_token token, weir_event& event);
  void give_end(weir_event& event);
  // Takes back the text that was given since the mark.
  void mark() { parts_.mark(); }
  void take_text_back() { parts_.take_back(); }

  // The latest answer as a message, whose texts last until the next call.
  Status message(weir_chat_message& message, bool& is_malformed);

 private:
  Status set_thinking(const weir_generate_options& options);
  void count_token();
  void push_part(weir_token token, std::string_view text);
  bool take_part(AnswerParts::Piece& piece);
  void read_again();
  void drop_message();

  HostMemory& memory_;
  const KvCache& kv_;
  const TokenRecord& record_;
  Detokenizer& detokenizer_;
  const Model* model_ = nullptr;
  State state_;
  StopStrings stops_;  // if it has any
  bool has_stops_ = false;
  AnswerParts parts_;
  static constexpr uint32_t kMaxForced = 512;
  weir_token forced_[kMaxForced];  // what ends a thought early
  LogProbs probs_;
  std::atomic<bool> finish_thinking_{false};
  AnswerMessage* message_ = nullptr;
};

}  // namespace weir
