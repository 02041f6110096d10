// The replies of /v1/completions; see text_response.h.
#include "server/text_response.h"

#include <algorithm>

namespace weir_server {
namespace {

constexpr char kObject[] = "text_completion";

// Log-probabilities in the form of this endpoint. `offset`: where the tokens begin in the text; it moves on.
Json text_logprobs(const Answer& answer, const std::vector<Piece>& tokens, size_t& offset) {
  const Request& request = answer.request();
  if (!request.wants_logprobs) return nullptr;
  Json out = {{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", request.n_top == 0 ? Json() : Json::array()},
              {"text_offset", Json::array()}};
  for (const Piece& piece : tokens) {
    const std::string text = token_bytes(answer.context(), piece.token);
    out["tokens"].push_back(text);
    out["token_logprobs"].push_back(piece.logprob);
    out["text_offset"].push_back(offset);
    offset += text.size();
    if (request.n_top == 0) continue;
    Json top = Json::object();
    for (const Logprob& entry : top_of(piece, request.n_top))
      top[token_bytes(answer.context(), entry.token)] = entry.logprob;
    out["top_logprobs"].push_back(std::move(top));
  }
  return out;
}

Json text_choice(size_t i, const std::string& text, Json logprobs, const char* reason) {
  return {{"index", i},
          {"text", text},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", reason == nullptr ? Json() : Json(reason)}};
}

std::string echo_of(const Answer& answer, size_t i) {
  const Request& request = answer.request();
  return request.echoes.empty() ? "" : request.echoes[i / request.n_choices];
}

HttpReply whole_text(Answer& answer) {
  const size_t n = answer.choices().size();
  std::vector<std::string> texts(n);
  std::vector<std::vector<Piece>> tokens(n);
  for (size_t i = 0; i < n; ++i) texts[i] = echo_of(answer, i);
  const bool is_there = wait_for_all(answer, [&](size_t i, Choice::Delta& delta) {
    texts[i] += delta.content;
    for (Piece& piece : delta.tokens) tokens[i].push_back(std::move(piece));
  });
  if (!is_there) return error_reply(499, "the client is gone");
  HttpReply failure = answer.failure();
  if (failure.status != 200) return failure;
  Json body = head(answer, kObject);
  body["choices"] = Json::array();
  for (size_t i = 0; i < n; ++i) {
    size_t offset = echo_of(answer, i).size();
    body["choices"].push_back(
        text_choice(i, texts[i], text_logprobs(answer, tokens[i], offset), answer.choices()[i]->finish_reason()));
  }
  body["usage"] = answer.usage();
  return json_reply(body);
}

class TextStream final : public AnswerStream {
 public:
  explicit TextStream(std::shared_ptr<Answer> answer)
      : AnswerStream(std::move(answer), kObject), offsets_(answer_->choices().size()) {}

 private:
  void add_beginning(size_t i, std::string& text) override {
    const std::string echo = echo_of(*answer_, i);
    offsets_[i] = echo.size();
    if (!echo.empty()) add_choice(text_choice(i, echo, nullptr, nullptr), text);
  }
  void add_delta(size_t i, const Choice::Delta& delta, std::string& text) override {
    if (delta.content.empty() && delta.tokens.empty()) return;
    add_choice(text_choice(i, delta.content, text_logprobs(*answer_, delta.tokens, offsets_[i]), nullptr), text);
  }
  void add_end(size_t i, std::string& text) override {
    const Choice& choice = *answer_->choices()[i];
    add_choice(text_choice(i, "", nullptr, choice.finish_reason()), text, answer_->weir_end(choice));
  }

  std::vector<size_t> offsets_;
};

}  // namespace

HttpReply reply_to_completion(std::shared_ptr<Answer> answer) {
  if (!answer->request().streams) return whole_text(*answer);
  return AnswerStream::reply(std::make_shared<TextStream>(std::move(answer)));
}

}  // namespace weir_server
