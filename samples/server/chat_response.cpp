// The replies of /v1/chat/completions; see chat_response.h.
#include "server/chat_response.h"

namespace weir_server {
namespace {

Json head(const Answer& answer, const char* object) {
  return {{"id", answer.id()}, {"object", object}, {"created", answer.created()}, {"model", answer.context().id}};
}

Json logprobs_of(const Answer& answer, const std::vector<Piece>& tokens) {
  if (!answer.request().wants_logprobs) return nullptr;
  return {{"content", logprobs_json(answer.context(), tokens, answer.request().n_top)}, {"refusal", nullptr}};
}

HttpReply reply_at_once(Answer& answer) {
  struct Whole {
    std::string content, thought;
    Json calls = Json::array();
    std::vector<Piece> tokens;
  };
  std::vector<Whole> all(answer.choices().size());
  const bool is_there = wait_for_all(answer, [&](size_t i, Choice::Delta& delta) {
    all[i].content += delta.content;
    all[i].thought += delta.thought;
    for (Json& call : delta.calls) all[i].calls.push_back(std::move(call));
    for (Piece& piece : delta.tokens) all[i].tokens.push_back(std::move(piece));
  });
  if (!is_there) return error_reply(499, "the client is gone");
  HttpReply failure = answer.failure();
  if (failure.status != 200) return failure;
  Json body = head(answer, "chat.completion");
  body["choices"] = Json::array();
  for (size_t i = 0; i < all.size(); ++i) {
    const Choice& choice = *answer.choices()[i];
    Json message = {{"role", "assistant"}, {"content", all[i].content}, {"refusal", nullptr}};
    if (!all[i].thought.empty()) message["reasoning_content"] = all[i].thought;
    if (!all[i].calls.empty()) {
      for (Json& call : all[i].calls) call.erase("index");
      if (all[i].content.empty()) message["content"] = nullptr;
      message["tool_calls"] = std::move(all[i].calls);
    }
    body["choices"].push_back({{"index", i},
                               {"message", std::move(message)},
                               {"logprobs", logprobs_of(answer, all[i].tokens)},
                               {"finish_reason", choice.finish_reason()}});
  }
  body["usage"] = answer.usage();
  Json more = answer.weir_beginning(*answer.choices()[0]);
  more.update(answer.weir_end(*answer.choices()[0]));
  body["weir"] = std::move(more);
  return {200, "application/json", json_text(body)};
}

class Stream {
 public:
  explicit Stream(std::shared_ptr<Answer> answer) : answer_(std::move(answer)) {}

  // What came next; false: that was all.
  bool more(std::string& text) {
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
      Json last = chunk_head();
      last["choices"] = Json::array();
      last["usage"] = answer_->usage();
      text += event_text(last);
    }
    text += "data: [DONE]\n\n";
    return false;
  }

 private:
  Json chunk_head() const { return head(*answer_, "chat.completion.chunk"); }

  Json chunk(size_t i, Json delta, Json logprobs = nullptr, const char* reason = nullptr) const {
    Json chunk = chunk_head();
    chunk["choices"] = Json::array({{{"index", i},
                                     {"delta", std::move(delta)},
                                     {"logprobs", std::move(logprobs)},
                                     {"finish_reason", reason == nullptr ? Json() : Json(reason)}}});
    if (answer_->request().includes_usage) chunk["usage"] = nullptr;
    return chunk;
  }

  void add_beginning(size_t i, std::string& text) const {
    Json first = chunk(i, {{"role", "assistant"}, {"content", ""}});
    first["weir"] = answer_->weir_beginning(*answer_->choices()[i]);
    text += event_text(first);
  }

  void add_delta(size_t i, const Choice::Delta& delta, std::string& text) const {
    if (!delta.thought.empty()) text += event_text(chunk(i, {{"reasoning_content", delta.thought}}));
    if (!delta.content.empty() || !delta.tokens.empty()) {
      const Json logprobs = logprobs_of(*answer_, delta.tokens);
      text += event_text(chunk(i, {{"content", delta.content}}, logprobs));
    }
    for (const Json& call : delta.calls) text += event_text(chunk(i, {{"tool_calls", Json::array({call})}}));
  }

  void add_end(size_t i, std::string& text) const {
    const Choice& choice = *answer_->choices()[i];
    Json last = chunk(i, Json::object(), nullptr, choice.finish_reason());
    last["weir"] = answer_->weir_end(choice);
    text += event_text(last);
  }

  std::shared_ptr<Answer> answer_;
};

}  // namespace

HttpReply reply_to_chat(std::shared_ptr<Answer> answer) {
  if (!answer->request().streams) return reply_at_once(*answer);
  HttpReply reply;
  reply.type = "text/event-stream";
  reply.more = [stream = std::make_shared<Stream>(std::move(answer))](std::string& text) { return stream->more(text); };
  return reply;
}

}  // namespace weir_server
