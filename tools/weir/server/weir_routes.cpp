// Weir's own addresses: plans, settings, events, and conversations on the disk.
#include <unistd.h>

#include <algorithm>
#include <array>

#include "server/limits.h"
#include "server/routes.h"

namespace weir_server {
namespace {

using weir_cli::Error;

struct Sentence {
  const char* name;
  const char* text;
};
// What a user has of each; docs/policies.md says more.
constexpr Sentence kPolicies[] = {
    {"dense", "Keeps everything: exact, and the memory grows with the conversation."},
    {"sink", "Keeps the first tokens and the latest ones: any length, and the middle is forgotten."},
    {"h2o", "Keeps the tokens that were attended the most, and the latest ones."},
    {"tova", "Drops what the latest token attends the least."},
    {"quest", "Keeps everything and reads only the pages that matter to a step: faster, not smaller."},
    {"raas", "Keeps the steps of a thought that later ones still use: for long reasoning in a fixed memory."},
    {"hybrid", "Keeps prompts like quest and thoughts like raas."},
    {"random", "Drops pages at random: to compare others with."},
    {"arkvale",
     "Keeps a part at hand and, as far as there is room, the rest outside; pages come back when a step wants them."},
    {"psa", "Reads as many pages as each step needs for most of its attention."},
    {"lfps", "Reads the pages that were attended lately, on the processor beside a device."},
    {"keyformer", "As h2o, with noise and a rising temperature, so that pages that are seldom read keep a chance."},
    {"scissorhands", "Keeps the pages that lately got their even share, and drops half of the others at once."},
};
constexpr Sentence kPresets[] = {
    {"exact", "Everything is kept: the answers are those of the model itself."},
    {"chat",
     "A small pool; pages outside come back when they are wanted, and go for good when the room there is full."},
    {"reason-fixed", "Long thoughts in a fixed memory: what no later step uses is dropped."},
    {"reason-long", "The prompt stays whole, and long thoughts take a fixed memory beside it."},
    {"reason-recall", "As chat, with twice as much at hand: for long thoughts."},
    {"h2o-fixed", "A fixed memory for the tokens that were attended the most, and the latest ones."},
    {"tova-fixed", "A fixed memory; what the latest token attends the least is dropped."},
    {"stream", "Talks without end about what was said last; the middle is forgotten."},
    {"longdoc", "Everything is kept, and steps read only what matters: faster with long documents."},
    {"quality", "Everything is kept, and each step reads what 98 % of its attention needs."},
    {"cpu-offload", "Keys and values in the memory of the machine, beside a device that has no room for them."},
    {"quest-paper", "The method quest as its paper prints it, to compare with."},
    {"raas-paper", "The method raas as its paper prints it, to compare with."},
    {"raas-paper-r", "The same by rank instead of a threshold."},
    {"tova-paper", "The method tova as its paper prints it, to compare with."},
};

template <size_t n>
std::string sentence_of(const Sentence (&sentences)[n], const std::string& name) {
  for (const Sentence& s : sentences) {
    if (name == s.name) return s.text;
  }
  return "";
}

std::vector<std::string> names_of(const char* (*name)(uint32_t)) {
  std::vector<std::string> names;
  for (uint32_t i = 0; name(i) != nullptr; ++i) names.emplace_back(name(i));
  return names;
}

// The policy that a preset means, in words.
std::string sentence_of_preset(const std::string& name) {
  const std::string sentence = sentence_of(kPresets, name);
  if (!sentence.empty()) return sentence;
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  if (weir_session_options_preset(name.c_str(), &options) != WEIR_OK) return "";
  return sentence_of(kPolicies, options.policy);
}

// `value` of a query or a body as a whole number.
uint64_t whole(const std::string& text, const std::string& name) {
  uint64_t value = 0;
  if (!weir_cli::parse_whole(text, value) || value > UINT32_MAX)
    throw RequestError(400, name + " is not a whole number from 0 to " + std::to_string(UINT32_MAX), name);
  return value;
}

// A policy or preset takes the place of the one before, with its options; budgets and context stay unless they are
// given, too.
void choose(weir_cli::SessionFlags& flags, const std::string& policy, const std::string& preset) {
  if (!policy.empty() && !preset.empty())
    throw RequestError(400, "preset and policy both choose a policy; give one", "preset");
  if (policy.empty() && preset.empty()) return;
  flags.policy_options.clear();
  flags.spill_flags = 0;
  flags.preset = preset;
  flags.usual_preset.clear();
  const bool is_policy = !policy.empty();
  if (is_policy) {
    const auto names = names_of(weir_policy_name);
    if (std::find(names.begin(), names.end(), policy) == names.end())
      throw RequestError(400, "policy is none of " + weir_cli::joined(names), "policy");
    flags.policy = policy;
    return;
  }
  flags.budget_bytes = 0;
  try {
    weir_cli::apply_preset(flags, false);
  } catch (const weir_cli::UsageError& e) {
    throw RequestError(400, e.what(), "preset");
  }
}

// All memory that the plan's device has: the machine's, or a GPU's own.
uint64_t limit_of(const Context& context, const weir_plan_info& plan) {
  for (const weir_device_info& info : weir_cli::list_devices(context.runtime.get())) {
    if (info.backend == plan.device) return info.memory_bytes;
  }
  return 0;
}

// Where the limit is not known everything may.
bool fits_in(uint64_t limit, uint64_t bytes) { return limit == 0 || bytes <= limit; }

struct Total {
  weir_plan_info plan;
  uint64_t bytes;
};

Total total_of(const Context& context, const weir_cli::SessionFlags& flags, uint32_t n_sessions) {
  weir_cli::SessionOptions options(flags);
  Total total = {weir_cli::make_plan(context.model.get(), options.get()), 0};
  // On a GPU what is there counts, weights included; on the CPU weights are mapped and read all the same.
  const bool is_gpu = total.plan.device != WEIR_DEVICE_CPU;
  total.bytes = n_sessions * (is_gpu ? total.plan.device_bytes : total.plan.total_bytes) +
                (is_gpu ? total.plan.device_weights_bytes : total.plan.weights_bytes);
  return total;
}

std::string option_of(const weir_cli::SessionFlags& flags, const char* key) {
  const std::string value = flags.option(key);
  return value.empty() ? "default" : value;
}

}  // namespace

HttpReply Routes::policies() const {
  Json list = Json::array();
  for (const std::string& name : names_of(weir_policy_name))
    list.push_back({{"name", name}, {"kind", "policy"}, {"sentence", sentence_of(kPolicies, name)}});
  for (const std::string& name : names_of(weir_preset_name))
    list.push_back({{"name", name}, {"kind", "preset"}, {"sentence", sentence_of_preset(name)}});
  return json_reply({{"policies", list}});
}

Json Routes::settings_json() const {
  const weir_cli::SessionFlags flags = context_.pool->flags();
  const weir_plan_info plan = context_.pool->plan();
  return {{"policy", flags.policy},
          {"preset", flags.preset.empty() ? Json() : Json(flags.preset)},
          {"budget_tokens", plan.budget_tokens},
          {"context_tokens", plan.context_tokens},
          {"recall", option_of(flags, "recall")},
          {"sessions", context_.pool->n_sessions()}};
}

HttpReply Routes::set_settings(const HttpRequest& request) {
  const Json body = parse_body(request.body);
  Fields fields(body, "");
  weir_cli::SessionFlags flags = context_.pool->flags();
  const std::string policy = fields.text("policy").value_or(""), preset = fields.text("preset").value_or("");
  if (const auto n = fields.whole("budget_tokens", 0, UINT32_MAX)) {
    flags.budget = static_cast<uint32_t>(*n);
    flags.budget_bytes = 0;
  } else if (!policy.empty() || !preset.empty()) {
    flags.budget = 0;
  }
  if (const auto n = fields.whole("context_tokens", 0, UINT32_MAX)) flags.context = static_cast<uint32_t>(*n);
  const auto sessions =
      static_cast<uint32_t>(fields.whole("sessions", 1, 256).value_or(std::max(1U, context_.pool->n_sessions())));
  choose(flags, policy, preset);
  if (const auto recall = fields.one_of("recall", {"default", "on", "off"})) {
    std::erase_if(flags.policy_options, [](const std::string& option) { return option.starts_with("recall="); });
    if (*recall != "default") flags.policy_options.push_back("recall=" + *recall);
  }
  fields.end();
  try {
    const Total one = total_of(context_, flags, 1), total = total_of(context_, flags, sessions);
    const uint64_t limit = limit_of(context_, total.plan);
    if (!fits_in(limit, total.bytes)) {
      const auto has = [&](const char* key) { return body.contains(key) && !body[key].is_null(); };
      const std::string param = has("sessions") && fits_in(limit, one.bytes) ? "sessions"
                                : has("context_tokens")                      ? "context_tokens"
                                : has("budget_tokens")                       ? "budget_tokens"
                                : !policy.empty()                            ? "policy"
                                : !preset.empty()                            ? "preset"
                                                                             : "sessions";
      return error_reply(400,
                         param + ": " + std::to_string(sessions) + " such sessions take " +
                             weir_cli::human_bytes(total.bytes) + " with the weights; there are " +
                             weir_cli::human_bytes(limit),
                         param);
    }
    if (!context_.pool->remake(flags, sessions))
      return error_reply(409, "an answer runs; settings change when none does", "", "busy");
  } catch (const Error& e) {
    const std::string message = e.what();
    std::string param = !policy.empty() ? "policy" : !preset.empty() ? "preset" : "";
    if (message.find("recall") != std::string::npos) param = "recall";
    if (message.find("context") != std::string::npos) param = "context_tokens";
    if (message.find("budget") != std::string::npos) param = "budget_tokens";
    return error_reply(e.status() == WEIR_ERR_INTERNAL ? 500 : 400, weir_cli::with_way_out(e), param);
  }
  return json_reply(settings_json());
}

HttpReply Routes::plan(const HttpRequest& request) const {
  weir_cli::SessionFlags flags = context_.pool->flags();
  const std::string policy = request.param("policy").value_or(""), preset = request.param("preset").value_or("");
  if (!policy.empty() || !preset.empty()) flags.budget = 0;
  if (const auto text = request.param("budget")) {
    flags.budget = static_cast<uint32_t>(whole(*text, "budget"));
    flags.budget_bytes = 0;
  }
  if (const auto text = request.param("context")) flags.context = static_cast<uint32_t>(whole(*text, "context"));
  choose(flags, policy, preset);
  const uint32_t n = context_.pool->n_sessions();
  try {
    const Total total = total_of(context_, flags, n);
    const weir_plan_info& p = total.plan;
    weir_cli::SessionFlags all = flags;
    all.policy = "dense";
    all.preset.clear();
    all.policy_options.clear();
    all.budget = 0;
    all.budget_bytes = all.spill_bytes = all.spill_file_bytes = all.spill_raw_bytes = 0;
    all.spill_flags = 0;
    all.spill_file.clear();
    const Total dense = total_of(context_, all, n);
    const uint64_t limit = limit_of(context_, p);
    const bool fits = fits_in(limit, total.bytes);
    return json_reply(
        {{"policy", flags.policy},
         {"budget_tokens", p.budget_tokens},
         {"context_tokens", p.context_tokens},
         {"weight_bytes", p.weights_bytes},
         {"kv_bytes", p.kv_bytes},
         {"dense_kv_bytes", dense.plan.kv_bytes},
         {"scratch_bytes", p.total_bytes - p.kv_bytes - p.spill_bytes},
         {"state_bytes", p.recurrent_bytes + p.snapshot_bytes},
         {"store_bytes", p.spill_bytes},
         {"total_bytes", total.bytes},
         {"per_session_bytes", p.total_bytes},
         {"fits", fits},
         {"limit_bytes", limit},
         {"message",
          fits ? Json() : Json("it is " + weir_cli::human_bytes(total.bytes - limit) + " more than there is")}});
  } catch (const Error& e) {
    return error_reply(e.status() == WEIR_ERR_INTERNAL ? 500 : 400, e.what(),
                       e.status() == WEIR_ERR_BUDGET ? "budget" : "");
  }
}

HttpReply Routes::fits() const {
  const uint32_t n = context_.pool->n_sessions();
  const weir_plan_info now = context_.pool->plan();
  const uint64_t limit = limit_of(context_, now);
  Json rows = Json::array();
  const auto add = [&](const std::string& name, bool is_preset) {
    weir_cli::SessionFlags flags = context_.pool->flags();
    Json budgets = Json::array();
    for (uint32_t budget = 512; budget <= 32768 && (budget <= now.context_tokens || budget == 512); budget *= 2) {
      flags.budget = budget;
      flags.budget_bytes = 0;
      try {
        choose(flags, is_preset ? "" : name, is_preset ? name : "");
        if (flags.policy == "dense") flags.budget = 0;  // else it would be a smaller context
        const Total total = total_of(context_, flags, n);
        const uint32_t held = flags.policy == "dense" ? total.plan.budget_tokens : budget;
        budgets.push_back(
            {{"budget_tokens", held}, {"total_bytes", total.bytes}, {"fits", fits_in(limit, total.bytes)}});
      } catch (const std::runtime_error&) {
        continue;  // the policy needs more, or this device does not have it
      }
      if (flags.policy == "dense") break;
    }
    if (!budgets.empty()) rows.push_back({{"policy", name}, {"budgets", budgets}});
  };
  for (const std::string& name : names_of(weir_policy_name)) add(name, false);
  for (const std::string& name : names_of(weir_preset_name)) add(name, true);
  return json_reply({{"limit_bytes", limit}, {"rows", rows}});
}

Json session_json(const SessionState& s) {
  return {{"id", s.id},
          {"state", s.state},
          {"conversation", s.conversation.empty() ? Json() : Json(s.conversation)},
          {"tokens", s.n_tokens},
          {"kv_bytes", s.kv_bytes},
          {"kv_budget_bytes", s.kv_budget_bytes},
          {"dense_bytes", s.dense_bytes},
          {"tokens_per_second", s.tokens_per_second},
          {"recalled_pages", s.recalled_pages},
          {"dropped_pages", s.dropped_pages},
          {"store_bytes", s.store_bytes},
          {"store_raw_bytes", s.store_raw_bytes},
          {"pages", s.pages}};
}

HttpReply Routes::sessions() const {
  Json list = Json::array();
  for (const SessionState& s : context_.pool->states()) list.push_back(session_json(s));
  return json_reply({{"sessions", list}});
}

namespace {

// The stream of events of one client. Who is slow gets the latest states, and misses those between.
class Events {
 public:
  Events(Pool& pool, const std::atomic<bool>& is_stopping, std::function<bool(Signal&, int)> wait)
      : pool_(pool), is_stopping_(is_stopping), wait_(std::move(wait)) {
    pool_.subscribe(&signal_);
  }
  ~Events() { pool_.unsubscribe(&signal_); }

  bool more(std::string& text) {
    if (has_begun_ && !wait_(signal_, 100)) return false;
    if (is_stopping_) return false;
    signal_.clear();
    const std::vector<SessionState> states = pool_.states();
    if (!has_begun_ || states.size() != versions_.size()) {
      has_begun_ = true;
      Json list = Json::array();
      versions_.clear();
      for (const SessionState& s : states) {
        list.push_back(session_json(s));
        versions_.push_back(s.version);
      }
      text += event_text("sessions", {{"sessions", list}});
    } else if (Clock::now() - told_at_ >= std::chrono::milliseconds(kStateMs)) {
      for (size_t i = 0; i < states.size(); ++i) {
        if (states[i].version == versions_[i]) continue;
        versions_[i] = states[i].version;
        text += event_text("session", session_json(states[i]));
        told_at_ = Clock::now();
      }
    }
    if (const size_t n = pool_.n_waiting(); n != n_waiting_) {
      n_waiting_ = n;
      text += event_text("queue", {{"waiting", n}});
    }
    if (!text.empty()) pinged_at_ = Clock::now();
    if (Clock::now() - pinged_at_ >= std::chrono::milliseconds(kPingMs)) {
      text += ": ping\n\n";
      pinged_at_ = Clock::now();
    }
    return true;
  }

 private:
  Pool& pool_;
  const std::atomic<bool>& is_stopping_;
  std::function<bool(Signal&, int)> wait_;
  Signal signal_;
  bool has_begun_ = false;
  std::vector<uint64_t> versions_;
  size_t n_waiting_ = 0;
  Clock::time_point told_at_, pinged_at_ = Clock::now();
};

}  // namespace

HttpReply Routes::events(const HttpRequest& request) {
  HttpReply reply;
  reply.type = "text/event-stream";
  reply.more = [events = std::make_shared<Events>(*context_.pool, is_stopping_, request.wait)](std::string& text) {
    return events->more(text);
  };
  return reply;
}

HttpReply Routes::stop_answer(const HttpRequest& request, bool thinking_only) {
  const Json body = parse_body(request.body);
  Fields fields(body, "");
  const auto id = fields.text("id");
  if (!id) fields.wrong("id", "is missing");
  fields.end();
  const bool has_thoughts = context_.chat.thought_end[0] != '\0';
  if (thinking_only) return json_reply({{"done", has_thoughts && running_.finish_thinking(*id)}});
  return json_reply({{"cancelled", running_.cancel(*id)}});
}

HttpReply Routes::saved(const HttpRequest& request, const std::string& rest) {
  if (!saved_) return error_reply(404, "this server saves nothing: it was started without --save-dir");
  const std::string restore = "/restore";
  if (rest.empty() && request.method == "GET") return json_reply(saved_->list());
  if (rest.empty() && request.method == "POST") {
    const Json body = parse_body(request.body);
    Fields fields(body, "");
    const auto conversation = fields.text("conversation");
    if (!conversation || conversation->empty()) fields.wrong("conversation", "is missing");
    const std::string title = fields.text("title").value_or("");
    if (title.size() > 1000) fields.wrong("title", "is longer than 1000 bytes");
    fields.end();
    auto lease = context_.pool->lease(*conversation, false);
    if (!lease) {
      if (context_.pool->holds(*conversation))
        return error_reply(409, "an answer of this conversation runs", "conversation", "busy");
      return error_reply(404, "no session holds this conversation any more", "conversation");
    }
    return json_reply({{"name", saved_->save(*lease, *conversation, title)}});
  }
  if (request.method == "DELETE") {
    if (!saved_->remove(rest)) return error_reply(404, "there is no such saved conversation");
    return json_reply({{"deleted", true}});
  }
  if (request.method == "POST" && rest.ends_with(restore)) {
    const std::string name = rest.substr(0, rest.size() - restore.size());
    if (!saved_->has(name)) return error_reply(404, "there is no such saved conversation");
    auto lease = context_.pool->lease("", true);
    if (!lease) return error_reply(409, "all sessions are busy", "", "busy");
    try {
      if (!saved_->restore(*lease, name)) return error_reply(404, "there is no such saved conversation");
    } catch (const Error& e) {
      // What the session holds now is no conversation. The message has the library's words without the path.
      lease->set_conversation("");
      const bool is_damaged = e.status() == WEIR_ERR_FORMAT || e.status() == WEIR_ERR_IO;
      return error_reply(400, std::string(is_damaged ? "the saved conversation is damaged: "
                                                     : "the saved conversation does not fit the settings: ") +
                                  weir_last_error());
    } catch (const std::exception&) {
      lease->set_conversation("");
      return error_reply(500, "the saved conversation cannot be read");
    }
    return json_reply({{"session", lease->id()}});
  }
  return error_reply(404, "there is no such saved conversation");
}

}  // namespace weir_server
