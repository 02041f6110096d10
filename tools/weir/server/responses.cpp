// The replies of /v1/responses; see responses.h.
#include "server/responses.h"

namespace weir_server {
namespace {

// What a response is made of: perhaps a thought, then what is said.
struct Said {
  std::string thought, content;
};

Json part_json(const std::string& text) {
  return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
}

class ResponseWriter {
 public:
  explicit ResponseWriter(std::shared_ptr<Answer> answer)
      : answer_(std::move(answer)), message_id_(make_id("msg_")), thought_id_(make_id("rs_")) {}

  Json message(const std::string& status, bool with_text) const {
    return {{"id", message_id_},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", with_text ? Json::array({part_json(said_.content)}) : Json::array()}};
  }
  Json thought(const std::string& status, bool with_text) const {
    const Json part = {{"type", "reasoning_text"}, {"text", said_.thought}};
    return {{"id", thought_id_},
            {"type", "reasoning"},
            {"summary", Json::array()},
            {"content", with_text ? Json::array({part}) : Json::array()},
            {"status", status}};
  }

  // `status`: "in_progress", "completed", "incomplete" or "failed".
  Json response(const std::string& status) const {
    const Choice& choice = *answer_->choices()[0];
    Json out = {{"id", answer_->id()},
                {"object", "response"},
                {"created_at", answer_->created()},
                {"status", status},
                {"error", nullptr},
                {"incomplete_details", nullptr},
                {"model", answer_->context().id},
                {"output", Json::array()},
                {"parallel_tool_calls", true},
                {"tool_choice", "auto"},
                {"tools", Json::array()},
                {"store", false},
                {"previous_response_id", nullptr},
                {"truncation", "disabled"}};
    out.update(answer_->request().repeated);
    if (status == "in_progress") {
      out["usage"] = nullptr;
      return out;
    }
    if (!said_.thought.empty()) out["output"].push_back(thought(thought_status(), true));
    out["output"].push_back(message(item_status(), true));
    if (status == "incomplete") out["incomplete_details"] = {{"reason", "max_output_tokens"}};
    if (status == "failed") {
      const Json error = Json::parse(answer_->failure().body)["error"];
      out["error"] = {{"code", "server_error"}, {"message", error["message"]}};
    }
    const Json usage = answer_->usage();
    out["usage"] = {{"input_tokens", usage["prompt_tokens"]},
                    {"input_tokens_details", usage["prompt_tokens_details"]},
                    {"output_tokens", usage["completion_tokens"]},
                    {"output_tokens_details", usage["completion_tokens_details"]},
                    {"total_tokens", usage["total_tokens"]}};
    Json more = answer_->weir_beginning(choice);
    more.update(answer_->weir_end(choice));
    out["weir"] = std::move(more);
    return out;
  }
  Json ended() const {
    const Choice& choice = *answer_->choices()[0];
    if (choice.has_failed()) return response("failed");
    return response(std::string(choice.finish_reason()) == "length" ? "incomplete" : "completed");
  }

 protected:
  // The status of what came last, when the answer has ended.
  std::string item_status() const {
    const Choice& choice = *answer_->choices()[0];
    return choice.has_failed() || std::string(choice.finish_reason()) == "length" ? "incomplete" : "completed";
  }
  // What is followed by a message was thought to its end.
  std::string thought_status() const { return said_.content.empty() ? item_status() : "completed"; }

  std::shared_ptr<Answer> answer_;
  Said said_;
  std::string message_id_, thought_id_;
};

class WholeResponse final : public ResponseWriter {
 public:
  using ResponseWriter::ResponseWriter;
  HttpReply reply() {
    const bool is_there = wait_for_all(*answer_, [&](size_t, Choice::Delta& delta) {
      said_.content += delta.content;
      said_.thought += delta.thought;
    });
    if (!is_there) return error_reply(499, "the client is gone");
    HttpReply failure = answer_->failure();
    if (failure.status != 200) return failure;
    return json_reply(ended());
  }
};

class ResponseStream final : public ResponseWriter {
 public:
  using ResponseWriter::ResponseWriter;

  bool more(std::string& text) {
    if (!answer_->wait(100)) return false;
    if (!is_created_) {
      is_created_ = true;
      add("response.created", {{"response", response("in_progress")}}, text);
      add("response.in_progress", {{"response", response("in_progress")}}, text);
    }
    text += answer_->progress();
    Choice& choice = *answer_->choices()[0];
    const Choice::Delta delta = choice.take();
    if (!delta.thought.empty()) add_thought(delta.thought, text);
    if (!delta.content.empty()) add_content(delta.content, text);
    if (!delta.ends) return true;
    end_thought(thought_status(), text);
    if (choice.has_failed()) {
      add("response.failed", {{"response", ended()}}, text);
      return false;
    }
    if (!has_message_) add_content("", text);
    end_message(text);
    const Json all = ended();
    add(all["status"] == "incomplete" ? "response.incomplete" : "response.completed", {{"response", all}}, text);
    return false;
  }

 private:
  void add(const std::string& type, Json data, std::string& text) {
    Json event = {{"type", type}, {"sequence_number", n_events_++}};
    event.update(data);
    text += event_text(type, event);
  }
  Json place(const std::string& item, size_t index) const {
    return {{"item_id", item}, {"output_index", index}, {"content_index", 0}};
  }
  Json with(Json place, const char* key, Json value) const {
    place[key] = std::move(value);
    return place;
  }
  void add_thought(const std::string& delta, std::string& text) {
    if (!has_thought_) {
      has_thought_ = true;
      add("response.output_item.added", {{"output_index", 0}, {"item", thought("in_progress", false)}}, text);
    }
    said_.thought += delta;
    add("response.reasoning_text.delta", with(place(thought_id_, 0), "delta", delta), text);
  }
  void end_thought(const std::string& status, std::string& text) {
    if (!has_thought_ || is_thought_over_) return;
    is_thought_over_ = true;
    add("response.reasoning_text.done", with(place(thought_id_, 0), "text", said_.thought), text);
    add("response.output_item.done", {{"output_index", 0}, {"item", thought(status, true)}}, text);
  }
  size_t message_index() const { return has_thought_ ? 1 : 0; }
  void add_content(const std::string& delta, std::string& text) {
    if (!has_message_) {
      end_thought("completed", text);
      has_message_ = true;
      add("response.output_item.added", {{"output_index", message_index()}, {"item", message("in_progress", false)}},
          text);
      add("response.content_part.added", with(place(message_id_, message_index()), "part", part_json("")), text);
    }
    if (delta.empty()) return;
    said_.content += delta;
    Json data = with(place(message_id_, message_index()), "delta", delta);
    add("response.output_text.delta", with(std::move(data), "logprobs", Json::array()), text);
  }
  void end_message(std::string& text) {
    Json data = with(place(message_id_, message_index()), "text", said_.content);
    add("response.output_text.done", with(std::move(data), "logprobs", Json::array()), text);
    add("response.content_part.done", with(place(message_id_, message_index()), "part", part_json(said_.content)),
        text);
    add("response.output_item.done", {{"output_index", message_index()}, {"item", message(item_status(), true)}}, text);
  }

  uint64_t n_events_ = 0;
  bool is_created_ = false, has_thought_ = false, is_thought_over_ = false, has_message_ = false;
};

}  // namespace

HttpReply reply_to_response(std::shared_ptr<Answer> answer) {
  if (!answer->request().streams) return WholeResponse(std::move(answer)).reply();
  HttpReply reply;
  reply.type = "text/event-stream";
  reply.more = [stream = std::make_shared<ResponseStream>(std::move(answer))](std::string& text) {
    return stream->more(text);
  };
  return reply;
}

}  // namespace weir_server
