// The replies of /v1/completions; see text_response.h.
#include "server/text_response.h"

#include <algorithm>

namespace weir_server {
namespace {

// Log-probabilities in the form of this endpoint. `offset`: where the tokens begin in the text; it moves on.
Json logprobs_of(const Answer& answer, const std::vector<Piece>& tokens, size_t& offset) {
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
    for (size_t i = 0; i < std::min<size_t>(piece.top.size(), request.n_top); ++i)
      top[token_bytes(answer.context(), piece.top[i].token)] = piece.top[i].logprob;
    out["top_logprobs"].push_back(std::move(top));
  }
  return out;
}

Json head(const Answer& answer) {
  return {{"id", answer.id()},
          {"object", "text_completion"},
          {"created", answer.created()},
          {"model", answer.context().id}};
}

Json choice_json(size_t i, const std::string& text, Json logprobs, const char* reason) {
  return {{"index", i},
          {"text", text},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", reason == nullptr ? Json() : Json(reason)}};
}

std::string echo_of(const Answer& answer, size_t i) {
  const Request& request = answer.request();
  return request.echoes.empty() ? "" : request.echoes[i / request.n_choices];
}

HttpReply reply_at_once(Answer& answer) {
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
  Json body = head(answer);
  body["choices"] = Json::array();
  for (size_t i = 0; i < n; ++i) {
    size_t offset = echo_of(answer, i).size();
    body["choices"].push_back(
        choice_json(i, texts[i], logprobs_of(answer, tokens[i], offset), answer.choices()[i]->finish_reason()));
  }
  body["usage"] = answer.usage();
  return {200, "application/json", json_text(body)};
}

class Stream {
 public:
  explicit Stream(std::shared_ptr<Answer> answer) : answer_(std::move(answer)), offsets_(answer_->choices().size()) {}

  bool more(std::string& text) {
    if (!answer_->wait(100)) return false;
    text += answer_->progress();
    for (size_t i = 0; i < offsets_.size(); ++i) {
      Choice& choice = *answer_->choices()[i];
      if (choice.has_ended()) continue;
      Choice::Delta delta = choice.take();
      if (delta.begins) {
        const std::string echo = echo_of(*answer_, i);
        offsets_[i] = echo.size();
        if (!echo.empty()) add(i, echo, nullptr, nullptr, text);
      }
      if (!delta.content.empty() || !delta.tokens.empty())
        add(i, delta.content, logprobs_of(*answer_, delta.tokens, offsets_[i]), nullptr, text);
      if (delta.ends && !choice.has_failed()) add(i, "", nullptr, choice.finish_reason(), text);
    }
    const HttpReply failure = answer_->failure();
    if (failure.status != 200) {
      text += "data: " + failure.body + "\n\n";
      return false;
    }
    if (!answer_->has_ended()) return true;
    if (answer_->request().includes_usage) {
      Json last = head(*answer_);
      last["choices"] = Json::array();
      last["usage"] = answer_->usage();
      text += event_text(last);
    }
    text += "data: [DONE]\n\n";
    return false;
  }

 private:
  void add(size_t i, const std::string& content, Json logprobs, const char* reason, std::string& text) const {
    Json chunk = head(*answer_);
    chunk["choices"] = Json::array({choice_json(i, content, std::move(logprobs), reason)});
    if (answer_->request().includes_usage) chunk["usage"] = nullptr;
    text += event_text(chunk);
  }

  std::shared_ptr<Answer> answer_;
  std::vector<size_t> offsets_;
};

}  // namespace

HttpReply reply_to_completion(std::shared_ptr<Answer> answer) {
  if (!answer->request().streams) return reply_at_once(*answer);
  HttpReply reply;
  reply.type = "text/event-stream";
  reply.more = [stream = std::make_shared<Stream>(std::move(answer))](std::string& text) { return stream->more(text); };
  return reply;
}

}  // namespace weir_server
