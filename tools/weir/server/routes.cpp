// Which address is answered by what; see routes.h.
#include "server/routes.h"

#include <unistd.h>

#include "server/chat_response.h"
#include "server/page_files.h"
#include "server/responses.h"
#include "server/text_response.h"

namespace weir_server {

Routes::Routes(Context& context) : context_(context) {
  if (!context.save_folder.empty()) saved_.emplace(context.save_folder);
}

HttpReply Routes::answer(const HttpRequest& request) {
  try {
    return route(request);
  } catch (const RequestError& e) {
    HttpReply reply = error_reply(e.status(), e.what(), e.param(), e.code());
    if (e.status() == 429) reply.headers.push_back({"Retry-After", "1"});
    return reply;
  }
}

HttpReply Routes::route(const HttpRequest& request) {
  const bool posts = request.method == "POST";
  const std::string& path = request.path;
  if (request.method == "GET") {
    for (size_t i = 0; i < kPageFileCount; ++i) {
      const PageFile& file = kPageFiles[i];
      if (path == file.path)
        return {200, file.type, std::string(reinterpret_cast<const char*>(file.bytes), file.n_bytes)};
    }
    if (path == "/health") {
      return json_reply(
          {{"status", "ok"}, {"sessions", context_.pool->n_sessions()}, {"waiting", context_.pool->n_waiting()}});
    }
    if (path == "/v1/models") return models("");
    if (path.starts_with("/v1/models/")) return models(path.substr(std::string("/v1/models/").size()));
    if (path == "/v1/weir/model") return model();
    if (path == "/v1/weir/sessions") return sessions();
    if (path == "/v1/weir/policies") return policies();
    if (path == "/v1/weir/settings") return json_reply(settings_json());
    if (path == "/v1/weir/plan") return plan(request);
    if (path == "/v1/weir/fits") return fits();
    if (path == "/v1/weir/events") return events(request);
  }
  if (posts && path == "/v1/chat/completions")
    return reply_to_chat(begin(request, read_chat(context_, parse_body(request.body)), "chatcmpl-"));
  if (posts && path == "/v1/completions")
    return reply_to_completion(begin(request, read_completion(context_, parse_body(request.body)), "cmpl-"));
  if (posts && path == "/v1/responses")
    return reply_to_response(begin(request, read_response(context_, parse_body(request.body)), "resp_"));
  if (posts && path == "/v1/weir/settings") return set_settings(request);
  if (posts && path == "/v1/weir/cancel") return stop_answer(request, false);
  if (posts && path == "/v1/weir/finish_thinking") return stop_answer(request, true);
  const std::string saves = "/v1/weir/saved";
  if (path == saves) return saved(request, "");
  if (path.starts_with(saves + "/")) return saved(request, path.substr(saves.size() + 1));
  return error_reply(404, "there is nothing at " + request.method + " " + path);
}

std::shared_ptr<Answer> Routes::begin(const HttpRequest& request, Request wish, const std::string& prefix) {
  return std::make_shared<Answer>(context_, running_, std::move(wish), prefix, request.wait);
}

HttpReply Routes::models(const std::string& id) const {
  const Json one = {{"id", context_.id}, {"object", "model"}, {"created", context_.started}, {"owned_by", "weir"}};
  if (id.empty()) return json_reply({{"object", "list"}, {"data", Json::array({one})}});
  if (id != context_.id) return error_reply(404, "there is no model \"" + id + "\" here", "model", "model_not_found");
  return json_reply(one);
}

HttpReply Routes::model() const {
  const weir_plan_info plan = context_.pool->plan();
  const uint32_t can = context_.chat.can;
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  Json device_bytes = nullptr;
  std::string device = "cpu";
  for (const weir_device_info& info : weir_cli::list_devices(context_.runtime.get())) {
    if (info.backend != plan.device) continue;
    device = info.name;
    if (plan.device != WEIR_DEVICE_CPU) device_bytes = info.memory_bytes;
    break;
  }
  return json_reply({{"id", context_.id},
                     {"file", context_.file},
                     {"architecture", context_.info.architecture},
                     {"name", context_.info.name},
                     {"parameters", context_.info.n_params},
                     {"weight_bytes", context_.info.weights_bytes},
                     {"context_tokens", plan.context_tokens},
                     {"trained_context_tokens", context_.info.context_tokens},
                     {"device", weir_cli::device_name(plan.device)},
                     {"threads", weir_runtime_thread_count(context_.runtime.get())},
                     {"version", weir_version_string()},
                     {"chat",
                      {{"has_template", context_.has_template},
                       {"has_thoughts", (can & WEIR_CHAT_CAN_THOUGHTS) != 0},
                       {"has_tools", (can & WEIR_CHAT_CAN_TOOLS) != 0},
                       {"has_thinking_switch", (can & WEIR_CHAT_CAN_SKIP_THOUGHTS) != 0}}},
                     {"machine",
                      {{"memory_bytes", static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page},
                       {"available_bytes", static_cast<uint64_t>(::sysconf(_SC_AVPHYS_PAGES)) * page},
                       {"device", device},
                       {"device_bytes", device_bytes}}},
                     {"saves", !context_.save_folder.empty()}});
}

}  // namespace weir_server
