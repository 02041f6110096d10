// What a client asks for, from JSON to tasks of the pool. Every field is read or refused by its name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/context.h"
#include "server/fields.h"
#include "tools.h"

namespace weir_server {

struct Request {
  std::vector<std::shared_ptr<Job>> jobs;  // one for each choice
  std::shared_ptr<Signal> signal = std::make_shared<Signal>();
  std::string conversation;
  bool streams = false, includes_usage = false;
  uint32_t n_choices = 1;  // of each prompt
  bool wants_logprobs = false;
  uint32_t n_top = 0;  // of top_logprobs
  bool has_tools = false, must_call = false, is_parallel = true;
  // With /v1/completions: thoughts and calls are text as the rest.
  bool is_plain = false;
  std::vector<std::string> echoes;  // the prompts, where the answer begins with them
  std::vector<uint32_t> prompt_tokens;
  // With /v1/responses: what it says again in its answer.
  Json repeated = Json::object();
};

// Reads the body of /v1/chat/completions, /v1/completions or /v1/responses. Throws RequestError.
Request read_chat(const Context& context, const Json& body);
Request read_completion(const Context& context, const Json& body);
Request read_response(const Context& context, const Json& body);

}  // namespace weir_server
