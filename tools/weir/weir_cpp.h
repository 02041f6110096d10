// A thin C++ skin over the C API for the program's own use: handles that close themselves, statuses as exceptions, the
// two-call size queries wrapped up. It uses nothing but the public headers, so that it can serve an application as a
// model. The library itself throws nothing; every exception here starts from a returned status.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "weir/weir.h"

namespace weir_cli {

// A failed call of the library: what was tried, the library's own words, and the status by name.
class Error : public std::runtime_error {
 public:
  Error(weir_status status, const std::string& what)
      : std::runtime_error(what + ": " + weir_last_error() + " (" + weir_status_name(status) + ")"), status_(status) {}
  weir_status status() const { return status_; }

 private:
  weir_status status_;
};

inline void check(weir_status status, const std::string& what) {
  if (status != WEIR_OK) throw Error(status, what);
}

template <auto close>
struct Closer {
  template <class T>
  void operator()(T* handle) const {
    close(handle);
  }
};
using RuntimePtr = std::unique_ptr<weir_runtime, Closer<weir_runtime_destroy>>;
using ModelPtr = std::unique_ptr<weir_model, Closer<weir_model_close>>;
using SessionPtr = std::unique_ptr<weir_session, Closer<weir_session_destroy>>;
using ConstraintPtr = std::unique_ptr<weir_constraint, Closer<weir_constraint_destroy>>;

// Where the program keeps what drivers compiled: ${XDG_CACHE_HOME:-~/.cache}/weir; "": there is no such folder. Like
// every program, it takes no relative folders from the environment.
inline std::string cache_folder() {
  constexpr size_t kMax = 1000;  // bytes; the library takes little more
  const auto below = [](const char* variable, const char* rest) {
    const char* const folder = std::getenv(variable);
    const std::string path = folder == nullptr || folder[0] != '/' ? "" : std::string(folder) + rest;
    return path.size() <= kMax ? path : "";
  };
  const std::string cache = below("XDG_CACHE_HOME", "/weir");
  return cache.empty() ? below("HOME", "/.cache/weir") : cache;
}

// Prints what the library warns of while a model is opened on standard error, each line once, however many threads open
// it.
inline thread_local bool g_opens_model = false;
inline weir_status print_warning(void*, const weir_log_info* line) {
  static std::mutex mutex;
  static std::set<std::string> printed;
  const std::lock_guard lock(mutex);
  if (g_opens_model && printed.insert(line->message).second) std::fprintf(stderr, "weir: warning: %s\n", line->message);
  return WEIR_OK;
}

// `device` as --device has it; what follows "vulkan:" names one of several devices. `log` gets lines up to `log_level`.
inline RuntimePtr create_runtime(uint32_t n_threads, const std::string& device = {}, weir_log_fn log = print_warning,
                                 void* log_user = nullptr, int32_t log_level = WEIR_LOG_WARNING) {
  weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
  options.n_threads = n_threads;
  options.log = log;
  options.log_user = log_user;
  options.log_level = log_level;
  const std::string prefix = "vulkan:";
  if (device.compare(0, prefix.size(), prefix) == 0) options.vulkan_device = device.c_str() + prefix.size();
  const std::string folder = cache_folder();
  options.cache_dir = folder.c_str();
  weir_runtime* runtime = nullptr;
  check(weir_runtime_create(&options, &runtime), "cannot start the runtime");
  return RuntimePtr(runtime);
}

inline std::vector<weir_device_info> list_devices(const weir_runtime* runtime) {
  uint32_t n = 0;
  std::vector<weir_device_info> devices(16);
  devices[0].struct_size = sizeof(weir_device_info);
  const auto call = [&] {
    return weir_runtime_devices(runtime, devices.data(), static_cast<uint32_t>(devices.size()), &n);
  };
  weir_status status = call();
  if (status == WEIR_ERR_BUFFER_TOO_SMALL) {
    devices.resize(n);
    status = call();
  }
  check(status, "cannot list the devices");
  devices.resize(n);
  return devices;
}

// flags: WEIR_MODEL_*.
inline ModelPtr open_model(weir_runtime* runtime, const std::string& path, uint32_t flags = 0) {
  weir_model_options options = WEIR_MODEL_OPTIONS_INIT;
  options.flags = flags;
  weir_model* model = nullptr;
  g_opens_model = true;
  const weir_status status = weir_model_open(runtime, path.c_str(), &options, &model);
  g_opens_model = false;
  check(status, "cannot open model");
  return ModelPtr(model);
}

inline SessionPtr create_session(weir_model* model, const weir_session_options& options) {
  weir_session* session = nullptr;
  check(weir_session_create(model, &options, &session), "cannot create a session");
  return SessionPtr(session);
}

// kind: enum weir_constraint_kind.
inline ConstraintPtr create_constraint(weir_model* model, int32_t kind, const std::string& text) {
  weir_constraint* constraint = nullptr;
  check(weir_constraint_create(model, kind, text.data(), text.size(), &constraint), "cannot constrain answers");
  return ConstraintPtr(constraint);
}

// A number or short text of the file's metadata; none where the file has no such key.
inline std::optional<std::string> metadata_value(const weir_model* model, const std::string& wanted) {
  for (uint32_t i = 0; i < weir_model_metadata_count(model); ++i) {
    const char* key = nullptr;
    char value[64] = "";
    uint64_t n_bytes = 0;
    if (weir_model_metadata(model, i, &key, value, sizeof(value), &n_bytes) == WEIR_OK && wanted == key) return value;
  }
  return std::nullopt;
}

inline weir_model_info model_info(const weir_model* model) {
  weir_model_info info = WEIR_MODEL_INFO_INIT;
  check(weir_model_get_info(model, &info), "cannot describe the model");
  return info;
}

inline weir_plan_info make_plan(const weir_model* model, const weir_session_options& options) {
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  check(weir_plan(model, &options, &plan), "cannot plan the session");
  return plan;
}

// As model_info, but its layers are those with attention: they are counted by themselves wherever a layer has streams.
inline weir_model_info attention_info(const weir_model* model) {
  weir_model_info info = model_info(model);
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.device = WEIR_DEVICE_CPU;
  info.n_layers = make_plan(model, options).n_streams / info.n_kv_heads;
  return info;
}

inline weir_session_stats session_stats(const weir_session* session) {
  weir_session_stats stats = WEIR_SESSION_STATS_INIT;
  check(weir_session_get_stats(session, &stats), "cannot read the session's counters");
  return stats;
}

inline weir_memory_info session_memory(const weir_session* session) {
  weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
  check(weir_session_memory(session, &memory), "cannot read the session's memory");
  return memory;
}

// flags: WEIR_TOKENIZE_*.
inline std::vector<weir_token> tokenize(const weir_model* model, std::string_view text, uint32_t flags) {
  std::vector<weir_token> tokens(text.size() / 3 + 16);
  uint64_t n = 0;
  weir_status status = weir_tokenize(model, text.data(), text.size(), flags, tokens.data(), tokens.size(), &n);
  if (status == WEIR_ERR_BUFFER_TOO_SMALL) {
    tokens.resize(n);
    status = weir_tokenize(model, text.data(), text.size(), flags, tokens.data(), tokens.size(), &n);
  }
  check(status, "cannot tokenize the text");
  tokens.resize(n);
  return tokens;
}

// flags: WEIR_DETOKENIZE_*.
inline std::string detokenize(const weir_model* model, const std::vector<weir_token>& tokens, uint32_t flags) {
  uint64_t n = 0;
  weir_status status = weir_detokenize(model, tokens.data(), tokens.size(), flags, nullptr, 0, &n);
  if (status != WEIR_ERR_BUFFER_TOO_SMALL) check(status, "cannot write tokens as text");
  std::string text(n, '\0');
  if (n > 0) {
    check(weir_detokenize(model, tokens.data(), tokens.size(), flags, text.data(), text.size(), &n),
          "cannot write tokens as text");
  }
  return text;
}

struct Message {
  std::string role;  // "system", "user" or "assistant", "tool" or "developer"
  std::string content;
  std::string thought = {};                  // of an answer, without tags
  std::string tool_calls = {};               // of an answer: a list as JSON
  std::string tool_call_id = {}, name = {};  // of a tool's result
};

// An optional text for the API; null for "".
inline const char* given(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

inline weir_chat_message view_of(const Message& message) {
  weir_chat_message view = WEIR_CHAT_MESSAGE_INIT;
  view.role = message.role.c_str();
  view.content = message.content.data();
  view.content_bytes = message.content.size();
  if (!message.thought.empty()) {
    view.thought = message.thought.data();
    view.thought_bytes = message.thought.size();
  }
  view.tool_calls_json = given(message.tool_calls);
  view.tool_call_id = given(message.tool_call_id);
  view.name = given(message.name);
  return view;
}

// What a chat template is given besides messages; each "" for none.
struct ChatSettings {
  std::string chat_template;  // instead of the model's own
  std::string tools;          // a list as JSON
  std::string variables;      // an object as JSON
};

// Points into `settings`. flags: WEIR_CHAT_*.
inline weir_chat_options chat_options(const ChatSettings& settings, uint32_t flags) {
  weir_chat_options options = WEIR_CHAT_OPTIONS_INIT;
  options.flags = flags;
  options.template_text = given(settings.chat_template);
  options.tools_json = given(settings.tools);
  options.variables_json = given(settings.variables);
  return options;
}

// Whether the template takes these settings, with one message of a user: WEIR_ERR_UNSUPPORTED, WEIR_ERR_NOT_FOUND.
inline weir_status try_chat_settings(const weir_model* model, const ChatSettings& settings) {
  const Message question = {"user", "?"};
  const weir_chat_message view = view_of(question);
  const weir_chat_options options = chat_options(settings, WEIR_CHAT_ADD_ASSISTANT);
  uint64_t n_bytes = 0;
  const weir_status status = weir_chat_render_with(model, &view, 1, &options, nullptr, 0, &n_bytes);
  return status == WEIR_ERR_BUFFER_TOO_SMALL ? WEIR_OK : status;
}

// The conversation as text to look at; tokenize_chat() is what feeds a session. flags: WEIR_CHAT_*.
inline std::string render_chat(const weir_model* model, const std::vector<Message>& messages, uint32_t flags) {
  std::vector<weir_chat_message> views;
  for (const Message& m : messages) views.push_back(view_of(m));
  uint64_t n_bytes = 0;
  weir_status status = weir_chat_render(model, views.data(), views.size(), flags, nullptr, 0, &n_bytes);
  if (status != WEIR_ERR_BUFFER_TOO_SMALL) check(status, "cannot render the conversation");
  std::string text(n_bytes, '\0');
  if (n_bytes > 0) {
    check(weir_chat_render(model, views.data(), views.size(), flags, text.data(), text.size(), &n_bytes),
          "cannot render the conversation");
  }
  return text;
}

// What to prefill for these messages. Text of messages becomes no control token. flags: WEIR_CHAT_*.
inline std::vector<weir_token> tokenize_chat(const weir_model* model, const std::vector<Message>& messages,
                                             uint32_t flags, const ChatSettings& settings = {}) {
  std::vector<weir_chat_message> views;
  size_t n_bytes = 0;
  for (const Message& m : messages) {
    views.push_back(view_of(m));
    n_bytes += m.content.size();
  }
  const weir_chat_options options = chat_options(settings, flags);
  std::vector<weir_token> tokens(n_bytes / 3 + 256);
  uint64_t n = 0;
  const auto call = [&] {
    return weir_chat_tokenize(model, views.data(), views.size(), &options, tokens.data(), tokens.size(), &n);
  };
  weir_status status = call();
  if (status == WEIR_ERR_BUFFER_TOO_SMALL) {
    tokens.resize(n);
    status = call();
  }
  check(status, "cannot tokenize the conversation");
  tokens.resize(n);
  return tokens;
}

// Returns false to stop.
using TokenFn = std::function<bool(const weir_token_event&)>;
using PrefillFn = std::function<bool(uint64_t done, uint64_t total)>;

// An exception must not cross the C library, so it waits here until the call has returned.
template <class Fn>
struct Callback {
  const Fn& fn;
  std::exception_ptr thrown = nullptr;

  template <class... Args>
  weir_status call(Args&&... args) noexcept {
    try {
      return fn(args...) ? WEIR_OK : WEIR_ERR_CANCELLED;
    } catch (...) {
      thrown = std::current_exception();
      return WEIR_ERR_CANCELLED;
    }
  }
};

inline void prefill(weir_session* session, const std::vector<weir_token>& tokens,
                    const PrefillFn& on_progress = nullptr) {
  Callback<PrefillFn> callback{on_progress};
  const weir_progress_fn trampoline = [](void* user, const weir_progress_info* info) -> weir_status {
    return static_cast<Callback<PrefillFn>*>(user)->call(info->done, info->total);
  };
  const weir_status status =
      weir_session_prefill(session, tokens.data(), tokens.size(), on_progress ? trampoline : nullptr, &callback);
  if (callback.thrown) std::rethrow_exception(callback.thrown);
  check(status, "cannot read the prompt");
}

// What ends an answer and what is told of it. max_tokens 0: as many as the context holds. flags: WEIR_GENERATE_*.
struct AnswerOptions {
  uint32_t max_tokens = 0, flags = 0;
  std::vector<std::string> stops = {};  // texts that end it
  uint32_t min_tokens = 0, n_top = 0;
  uint32_t thinking_budget = 0;     // tokens of thought; 0: no limit
  std::string thinking_close = {};  // said where the budget ends a thought
};

// Points into `answer` and `texts`, which gets the stop strings.
inline weir_generate_options generate_options(const AnswerOptions& answer, std::vector<weir_text>& texts) {
  texts.clear();
  for (const std::string& stop : answer.stops) texts.push_back({stop.data(), stop.size()});
  weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
  options.flags = answer.flags;
  options.max_tokens = answer.max_tokens;
  options.min_tokens = answer.min_tokens;
  options.n_top = answer.n_top;
  options.thinking_budget = answer.thinking_budget;
  options.thinking_close = given(answer.thinking_close);
  options.stop = texts.data();
  options.n_stop = static_cast<uint32_t>(texts.size());
  return options;
}

// A cancelled call is a normal result here.
inline weir_generate_result generate(weir_session* session, const AnswerOptions& answer, const TokenFn& on_token) {
  Callback<TokenFn> callback{on_token};
  std::vector<weir_text> texts;
  weir_generate_options options = generate_options(answer, texts);
  options.user = &callback;
  if (on_token) {
    options.on_token = [](void* user, const weir_token_event* event) -> weir_status {
      return static_cast<Callback<TokenFn>*>(user)->call(*event);
    };
  }
  weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
  const weir_status status = weir_session_generate(session, &options, &result);
  if (callback.thrown) std::rethrow_exception(callback.thrown);
  if (status != WEIR_ERR_CANCELLED) check(status, "cannot generate");
  return result;
}

inline weir_generate_result generate(weir_session* session, uint32_t max_tokens, uint32_t flags,
                                     const TokenFn& on_token, const std::vector<std::string>& stops = {}) {
  AnswerOptions answer;
  answer.max_tokens = max_tokens;
  answer.flags = flags;
  answer.stops = stops;
  return generate(session, answer, on_token);
}

}  // namespace weir_cli
