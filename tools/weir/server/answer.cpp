// Answers on their way to a client; see answer.h.
#include "server/answer.h"

#include <algorithm>
#include <ctime>
#include <random>

#include "server/limits.h"

namespace weir_server {
namespace {

constexpr char kSpace[] = " \t\r\n";

}  // namespace

std::string Trimmed::add(const std::string& text) {
  std::string all = std::move(held_) + text;
  held_.clear();
  if (skips_) {
    all.erase(0, all.find_first_not_of(kSpace));
    if (all.empty()) return "";
    skips_ = false;
  }
  const size_t end = all.find_last_not_of(kSpace);
  const size_t n = end == std::string::npos ? 0 : end + 1;
  held_ = all.substr(n);
  all.resize(n);
  return all;
}

Choice::Choice(const Request& request, std::shared_ptr<Job> job)
    : job_(std::move(job)),
      has_tools_(request.has_tools),
      must_call_(request.must_call),
      is_parallel_(request.is_parallel),
      wants_logprobs_(request.wants_logprobs),
      is_plain_(request.is_plain),
      content_(false),
      thought_(true) {}

Choice::~Choice() {
  if (!has_ended_) job_->cancel();
}

Choice::Delta Choice::take() {
  Delta delta;
  if (has_ended_) return delta;
  Job::Update update = job_->take();
  n_read_ = update.n_read;
  n_to_read_ = update.n_to_read;
  if (update.beginning) {
    beginning_ = *update.beginning;
    has_begun_ = delta.begins = true;
  }
  for (Piece& piece : update.pieces) {
    if (is_plain_ && piece.segment != WEIR_SEGMENT_MARK) {
      delta.content += content_.add(piece.text);
    } else if (piece.segment == WEIR_SEGMENT_THOUGHT) {
      delta.thought += thought_.add(piece.text);
      if (!had_thought_) content_.trim_front();
      had_thought_ = true;
    } else if (piece.segment == WEIR_SEGMENT_TOOL_CALL && has_tools_) {
      call_text_ += piece.text;
    } else if (piece.segment == WEIR_SEGMENT_ANSWER && must_call_) {
      call_text_ += piece.text;
    } else if (piece.segment != WEIR_SEGMENT_MARK) {
      delta.content += content_.add(piece.text);
    }
    const bool is_said =
        is_plain_ ? piece.segment != WEIR_SEGMENT_MARK : piece.segment == WEIR_SEGMENT_ANSWER && !must_call_;
    if (!wants_logprobs_ || !is_said) continue;
    // A token whose text has not come yet may be the beginning of a stop string, which is no content.
    const bool shows = !piece.text.empty();
    if (piece.token >= 0) held_tokens_.push_back(std::move(piece));
    if (shows) add_tokens(delta);
  }
  if (update.ending) {
    ending_ = std::move(*update.ending);
    has_ended_ = delta.ends = true;
    if (ending_.stop != WEIR_STOP_STRING) add_tokens(delta);
    if (has_tools_) add_calls(delta);
    // Where calls follow, white space before them is no part of the content.
    if (n_calls_ == 0) delta.content += content_.rest();
  }
  return delta;
}

void Choice::add_tokens(Delta& delta) {
  std::move(held_tokens_.begin(), held_tokens_.end(), std::back_inserter(delta.tokens));
  held_tokens_.clear();
}

// The calls of an answer that has ended. What cannot be read is content.
void Choice::add_calls(Delta& delta) {
  Json calls = Json::array();
  if (!ending_.tool_calls.empty()) calls = Json::parse(ending_.tool_calls, nullptr, false);
  if (must_call_ && (!calls.is_array() || calls.empty())) {
    const Json call = Json::parse(call_text_, nullptr, false);
    calls = Json::array();
    if (call.is_object() && call.contains("name") && call.contains("arguments")) calls.push_back(call);
  }
  if (!calls.is_array() || calls.empty()) {
    delta.content += call_text_;
    return;
  }
  if (ending_.has_malformed_call && !must_call_) delta.content += content_.rest() + call_text_;
  for (const Json& call : calls) {
    if (n_calls_ > 0 && !is_parallel_) break;
    if (!call.is_object() || !call.contains("name")) continue;
    const Json id = call.contains("id") && call["id"].is_string() ? call["id"] : Json("call_" + random_hex(12));
    const Json arguments = call.contains("arguments") ? call["arguments"] : Json::object();
    delta.calls.push_back({{"index", n_calls_++},
                           {"id", id},
                           {"type", "function"},
                           {"function", {{"name", call["name"]}, {"arguments", json_text(arguments)}}}});
  }
}

const char* Choice::finish_reason() const {
  if (n_calls_ > 0) return "tool_calls";
  return ending_.stop == WEIR_STOP_LENGTH || ending_.stop == WEIR_STOP_CONTEXT ? "length" : "stop";
}

void Running::add(const std::string& id, const std::vector<std::shared_ptr<Job>>& jobs) {
  const std::lock_guard lock(mutex_);
  jobs_[id] = jobs;
}

void Running::remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  jobs_.erase(id);
}

bool Running::cancel(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto jobs = jobs_.find(id);
  if (jobs == jobs_.end()) return false;
  for (const auto& job : jobs->second) job->cancel();
  return true;
}

bool Running::finish_thinking(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto jobs = jobs_.find(id);
  if (jobs == jobs_.end()) return false;
  for (const auto& job : jobs->second) job->finish_thinking();
  return true;
}

Answer::Answer(Context& context, Running& running, Request request, const std::string& prefix,
               std::function<bool(Signal&, int)> wait)
    : context_(context),
      running_(running),
      request_(std::move(request)),
      wait_(std::move(wait)),
      id_(make_id(prefix)),
      created_(std::time(nullptr)) {
  for (const auto& job : request_.jobs) choices_.push_back(std::make_unique<Choice>(request_, job));
  switch (context_.pool->submit(request_.jobs)) {
    case Pool::Submitted::kYes:
      break;
    case Pool::Submitted::kQueueIsFull:
      throw RequestError(429, "all sessions are busy and the queue is full; try again later", "", "queue_full");
    case Pool::Submitted::kIsStopping:
      throw RequestError(503, "the server is ending");
    case Pool::Submitted::kHasNoSessions:
      throw RequestError(503,
                         "there are no sessions: memory ran out when settings were changed; smaller settings "
                         "make them anew");
  }
  running_.add(id_, request_.jobs);
}

Answer::~Answer() { running_.remove(id_); }

bool Answer::wait(int ms) {
  const bool is_there = wait_(*request_.signal, ms);
  request_.signal->clear();
  if (!is_there) {
    for (const auto& job : request_.jobs) job->cancel();
  }
  return is_there;
}

bool Answer::has_ended() const {
  return std::all_of(choices_.begin(), choices_.end(), [](const auto& choice) { return choice->has_ended(); });
}

std::string Answer::progress() {
  const Choice& first = *choices_.front();
  if (first.has_begun() || Clock::now() - told_at_ < std::chrono::milliseconds(kProgressMs)) return "";
  told_at_ = Clock::now();
  if (first.n_to_read() == 0) return ": waiting\n\n";
  return ": prompt " + std::to_string(first.n_read()) + "/" + std::to_string(first.n_to_read()) + "\n\n";
}

HttpReply Answer::failure() const {
  for (const auto& choice : choices_) {
    if (!choice->has_ended() || !choice->has_failed()) continue;
    const Ending& ending = choice->ending();
    if (ending.stop == WEIR_STOP_CANCELLED) return error_reply(503, "the answer was cancelled", "", "cancelled");
    const bool is_too_long = ending.status == WEIR_ERR_CONTEXT_FULL || ending.status == WEIR_ERR_BUDGET;
    return error_reply(is_too_long ? 400 : 500, ending.error, "", is_too_long ? "context_length_exceeded" : "");
  }
  return {};
}

Json Answer::usage() const {
  uint64_t n_prompt = 0, n_cached = 0, n_tokens = 0, n_thought = 0;
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = *choices_[i];
    if (i % request_.n_choices == 0) {  // choices of one prompt count it once
      n_prompt += choice.has_begun() ? choice.beginning().prompt_tokens : request_.prompt_tokens[i];
      n_cached += choice.beginning().cached_tokens;
    }
    n_tokens += choice.ending().n_tokens;
    n_thought += choice.ending().n_thought;
  }
  return {{"prompt_tokens", n_prompt},
          {"completion_tokens", n_tokens},
          {"total_tokens", n_prompt + n_tokens},
          {"prompt_tokens_details", {{"cached_tokens", n_cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", n_thought}}}};
}

Json Answer::weir_beginning(const Choice& choice) const {
  const Beginning& b = choice.beginning();
  return {{"session", b.session},
          {"conversation", request_.conversation.empty() ? Json() : Json(request_.conversation)},
          {"prompt_tokens", b.prompt_tokens},
          {"cached_tokens", b.cached_tokens}};
}

Json Answer::weir_end(const Choice& choice) const {
  const Ending& e = choice.ending();
  return {{"tokens_per_second", e.tokens_per_second},
          {"kv_bytes", e.kv_bytes},
          {"kv_budget_bytes", e.kv_budget_bytes},
          {"dense_bytes", e.dense_bytes},
          {"recalled_pages", e.recalled_pages},
          {"dropped_pages", e.dropped_pages},
          {"stop_string", e.stop == WEIR_STOP_STRING ? Json(e.stop_string) : Json()}};
}

std::string random_hex(size_t n_bytes) {
  std::random_device source;
  std::string text;
  for (size_t i = 0; i < n_bytes; ++i) text += weir_cli::format("%02x", source() & 255u);
  return text;
}

std::string make_id(const std::string& prefix) { return prefix + random_hex(12); }

std::string token_bytes(const Context& context, weir_token token) {
  weir_token_info info = WEIR_TOKEN_INFO_INIT;
  weir_cli::check(weir_token_get_info(context.model.get(), token, &info), "cannot describe a token");
  return std::string(info.bytes, info.n_bytes);
}

std::vector<Logprob> top_of(const Piece& piece, uint32_t n_top) {
  std::vector<Logprob> top(piece.top.begin(), piece.top.begin() + std::min<ptrdiff_t>(n_top, std::ssize(piece.top)));
  const auto is_drawn = [&](const Logprob& entry) { return entry.token == piece.token; };
  if (n_top > 0 && std::none_of(top.begin(), top.end(), is_drawn)) top.push_back({piece.token, piece.logprob});
  return top;
}

Json logprobs_json(const Context& context, const std::vector<Piece>& tokens, uint32_t n_top) {
  const auto one = [&](weir_token token, float logprob) {
    const std::string bytes = token_bytes(context, token);
    Json list = Json::array();
    for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
    return Json{{"token", bytes}, {"logprob", logprob}, {"bytes", list}};
  };
  Json all = Json::array();
  for (const Piece& piece : tokens) {
    Json entry = one(piece.token, piece.logprob);
    Json top = Json::array();
    for (const Logprob& entry_of_top : top_of(piece, n_top))
      top.push_back(one(entry_of_top.token, entry_of_top.logprob));
    entry["top_logprobs"] = std::move(top);
    all.push_back(std::move(entry));
  }
  return all;
}

bool wait_for_all(Answer& answer, const std::function<void(size_t choice, Choice::Delta&)>& add) {
  for (;;) {
    for (size_t i = 0; i < answer.choices().size(); ++i) {
      Choice::Delta delta = answer.choices()[i]->take();
      add(i, delta);
    }
    if (answer.has_ended()) return true;
    if (!answer.wait(1000)) return false;
  }
}

bool AnswerStream::more(std::string& text) {
  if (!answer_->wait(100)) return false;
  text += answer_->progress();
  for (size_t i = 0; i < answer_->choices().size(); ++i) {
    Choice& choice = *answer_->choices()[i];
    if (choice.has_ended()) continue;
    const Choice::Delta delta = choice.take();
    if (delta.begins) add_beginning(i, text);
    add_delta(i, delta, text);
    if (delta.ends && !choice.has_failed()) add_end(i, text);
  }
  const HttpReply failure = answer_->failure();
  if (failure.status != 200) {
    text += "data: " + failure.body + "\n\n";
    return false;
  }
  if (!answer_->has_ended()) return true;
  if (answer_->request().includes_usage) {
    Json last = head(*answer_, object_);
    last["choices"] = Json::array();
    last["usage"] = answer_->usage();
    text += event_text(last);
  }
  text += "data: [DONE]\n\n";
  return false;
}

void AnswerStream::add_choice(Json choice, std::string& text, const Json& weir) const {
  Json chunk = head(*answer_, object_);
  chunk["choices"] = Json::array({std::move(choice)});
  if (answer_->request().includes_usage) chunk["usage"] = nullptr;
  if (!weir.is_null()) chunk["weir"] = weir;
  text += event_text(chunk);
}

HttpReply AnswerStream::reply(std::shared_ptr<AnswerStream> stream) {
  HttpReply reply;
  reply.type = "text/event-stream";
  reply.more = [stream = std::move(stream)](std::string& text) { return stream->more(text); };
  return reply;
}

Json head(const Answer& answer, const char* object) {
  return {{"id", answer.id()}, {"object", object}, {"created", answer.created()}, {"model", answer.context().id}};
}

HttpReply json_reply(const Json& json) { return {200, "application/json", json_text(json)}; }

std::string event_text(const Json& data) { return "data: " + json_text(data) + "\n\n"; }

std::string event_text(const std::string& name, const Json& data) {
  return "event: " + name + "\ndata: " + json_text(data) + "\n\n";
}

}  // namespace weir_server
