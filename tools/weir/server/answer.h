// Answers on their way from the pool to a client: what came since the last look, in the parts that clients want apart.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/http.h"
#include "server/request.h"

namespace weir_server {

// White space at the beginning and the end of a part that stands beside others belongs to none of them.
class Trimmed {
 public:
  explicit Trimmed(bool trims_front) : skips_(trims_front) {}
  // The text that can be sent now.
  std::string add(const std::string& text);
  // White space that was held back at the end.
  std::string rest() { return std::move(held_); }
  void trim_front() { skips_ = true; }

 private:
  bool skips_;
  std::string held_;
};

// One choice of a request.
class Choice {
 public:
  Choice(const Request& request, std::shared_ptr<Job> job);
  ~Choice();
  Choice(const Choice&) = delete;
  Choice& operator=(const Choice&) = delete;

  struct Delta {
    bool begins = false;  // the prompt was read
    std::string content, thought;
    Json calls = Json::array();  // OpenAI's tool_calls, whole ones
    std::vector<Piece> tokens;   // of the content, where log-probabilities are wanted
    bool ends = false;
  };
  Delta take();

  const Beginning& beginning() const { return beginning_; }
  uint32_t n_read() const { return n_read_; }
  uint32_t n_to_read() const { return n_to_read_; }
  bool has_begun() const { return has_begun_; }
  bool has_ended() const { return has_ended_; }
  const Ending& ending() const { return ending_; }
  // Why a whole answer ended: "stop", "length" or "tool_calls".
  const char* finish_reason() const;
  bool has_failed() const { return ending_.stop == WEIR_STOP_ERROR || ending_.stop == WEIR_STOP_CANCELLED; }
  Job& job() { return *job_; }

 private:
  void add_calls(Delta& delta);
  void add_tokens(Delta& delta);  // that are held

  std::shared_ptr<Job> job_;
  bool has_tools_, must_call_, is_parallel_, wants_logprobs_, is_plain_;
  Trimmed content_, thought_;
  std::string call_text_;  // of calls as the model writes them
  std::vector<Piece> held_tokens_;
  Beginning beginning_ = {};
  Ending ending_;
  uint32_t n_read_ = 0, n_to_read_ = 0;
  size_t n_calls_ = 0;
  bool has_begun_ = false, has_ended_ = false, had_thought_ = false;
};

// Answers that run, by the id that their client knows.
class Running {
 public:
  void add(const std::string& id, const std::vector<std::shared_ptr<Job>>& jobs);
  void remove(const std::string& id);
  // False: no such answer runs.
  bool cancel(const std::string& id);
  bool finish_thinking(const std::string& id);

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<std::shared_ptr<Job>>> jobs_;
};

// All choices of a request, from the queue to the end. Whoever destroys it does not want the rest.
class Answer {
 public:
  // `prefix` of the id. Throws RequestError where the pool does not take it.
  Answer(Context& context, Running& running, Request request, const std::string& prefix,
         std::function<bool(Signal&, int)> wait);
  ~Answer();

  const std::string& id() const { return id_; }
  int64_t created() const { return created_; }
  const Request& request() const { return request_; }
  const Context& context() const { return context_; }
  std::vector<std::unique_ptr<Choice>>& choices() { return choices_; }
  // Until something came, at most so long. False: the client is gone.
  bool wait(int ms);
  bool has_ended() const;
  // A comment of the stream that tells how far the prompt is, now and then; "" for none.
  std::string progress();
  // The first failure as status and JSON; status 200: none.
  HttpReply failure() const;
  Json usage() const;  // with the names of chat completions
  // The field "weir" of the first and of the last chunk.
  Json weir_beginning(const Choice& choice) const;
  Json weir_end(const Choice& choice) const;

 private:
  Context& context_;
  Running& running_;
  Request request_;
  std::function<bool(Signal&, int)> wait_;
  std::string id_;
  int64_t created_;
  std::vector<std::unique_ptr<Choice>> choices_;
  Clock::time_point told_at_ = Clock::now();
};

// "chatcmpl-" and 24 hexadecimal digits.
std::string make_id(const std::string& prefix);
// Random, 2 * n_bytes digits.
std::string random_hex(size_t n_bytes);

// OpenAI's list for tokens, with bytes and the most probable ones.
Json logprobs_json(const Context& context, const std::vector<Piece>& tokens, uint32_t n_top);
// At most n_top, the most probable ones, and the one that was drawn where it is not among them.
std::vector<Logprob> top_of(const Piece& piece, uint32_t n_top);
// Text of a token alone, perhaps no UTF-8.
std::string token_bytes(const Context& context, weir_token token);

// Waits for the whole answer. False: the client is gone.
bool wait_for_all(Answer& answer, const std::function<void(size_t choice, Choice::Delta&)>& add);
// The stream of an answer as chunks of `object`, to its end or to the first failure.
class AnswerStream {
 public:
  AnswerStream(std::shared_ptr<Answer> answer, const char* object) : answer_(std::move(answer)), object_(object) {}
  virtual ~AnswerStream() = default;
  // What came next; false: that was all.
  bool more(std::string& text);
  static HttpReply reply(std::shared_ptr<AnswerStream> stream);

 protected:
  virtual void add_beginning(size_t i, std::string& text) = 0;
  virtual void add_delta(size_t i, const Choice::Delta& delta, std::string& text) = 0;
  virtual void add_end(size_t i, std::string& text) = 0;
  // A chunk with one entry of "choices". `weir`: null for none.
  void add_choice(Json choice, std::string& text, const Json& weir = nullptr) const;

  std::shared_ptr<Answer> answer_;

 private:
  const char* object_;
};

// id, object, created and model.
Json head(const Answer& answer, const char* object);
HttpReply json_reply(const Json& json);
// A line of a stream.
std::string event_text(const Json& data);
std::string event_text(const std::string& name, const Json& data);

}  // namespace weir_server
