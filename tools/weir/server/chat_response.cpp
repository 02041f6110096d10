// The replies of /v1/chat/completions; see chat_response.h.
#include "server/chat_response.h"

namespace weir_server {
namespace {

Json chat_logprobs(const Answer& answer, const std::vector<Piece>& tokens) {
  if (!answer.request().wants_logprobs) return nullptr;
  return {{"content", logprobs_json(answer.context(), tokens, answer.request().n_top)}, {"refusal", nullptr}};
}

HttpReply whole_chat(Answer& answer) {
  struct Message {
    std::string content, thought;
    Json calls = Json::array();
    std::vector<Piece> tokens;
  };
  std::vector<Message> all(answer.choices().size());
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
                               {"logprobs", chat_logprobs(answer, all[i].tokens)},
                               {"finish_reason", choice.finish_reason()}});
  }
  body["usage"] = answer.usage();
  Json more = answer.weir_beginning(*answer.choices()[0]);
  more.update(answer.weir_end(*answer.choices()[0]));
  body["weir"] = std::move(more);
  return json_reply(body);
}

class ChatStream final : public AnswerStream {
 public:
  explicit ChatStream(std::shared_ptr<Answer> answer) : AnswerStream(std::move(answer), "chat.completion.chunk") {}

 private:
  static Json choice_json(size_t i, Json delta, Json logprobs = nullptr, const char* reason = nullptr) {
    return {{"index", i},
            {"delta", std::move(delta)},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", reason == nullptr ? Json() : Json(reason)}};
  }
  void add_beginning(size_t i, std::string& text) override {
    add_choice(choice_json(i, {{"role", "assistant"}, {"content", ""}}), text,
               answer_->weir_beginning(*answer_->choices()[i]));
  }
  void add_delta(size_t i, const Choice::Delta& delta, std::string& text) override {
    if (!delta.thought.empty()) add_choice(choice_json(i, {{"reasoning_content", delta.thought}}), text);
    if (!delta.content.empty() || !delta.tokens.empty())
      add_choice(choice_json(i, {{"content", delta.content}}, chat_logprobs(*answer_, delta.tokens)), text);
    for (const Json& call : delta.calls) add_choice(choice_json(i, {{"tool_calls", Json::array({call})}}), text);
  }
  void add_end(size_t i, std::string& text) override {
    const Choice& choice = *answer_->choices()[i];
    add_choice(choice_json(i, Json::object(), nullptr, choice.finish_reason()), text, answer_->weir_end(choice));
  }
};

}  // namespace

HttpReply reply_to_chat(std::shared_ptr<Answer> answer) {
  if (!answer->request().streams) return whole_chat(*answer);
  return AnswerStream::reply(std::make_shared<ChatStream>(std::move(answer)));
}

}  // namespace weir_server
