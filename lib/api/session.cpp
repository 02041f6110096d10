// Plans and sessions.
#include "weir/session.h"

#include <cstddef>

#include "api/chat_messages.h"
#include "api/handles.h"
#include "policy/policy.h"
#include "policy/presets.h"
#include "runtime/step_many.h"

using namespace weir;

namespace {

template <class T>
weir_status init(T* options, uint32_t struct_size, const char* function) {
  if (options == nullptr || struct_size < 8)
    return fail(WEIR_ERR_INVALID_ARG, "%s: options is NULL or struct_size is %u", function, struct_size).code();
  std::memset(options, 0, struct_size);
  options->struct_size = struct_size;
  return WEIR_OK;
}

// Builds a session of `model` by build(session); nothing is left when that fails.
template <class Build>
Status make_session(weir_model* model, const Build& build, weir_session** out) {
  HostMemory& memory = model->runtime->memory;
  auto* session = make_in<weir_session>(memory, model);
  Status status;
  try {
    status = build(*session);
  } catch (...) {
    destroy_in(memory, session);
    throw;
  }
  if (!status.ok()) {
    destroy_in(memory, session);
    return status;
  }
  api::retain(model);
  *out = session;
  return {};
}

// After what may have made the driver compile.
void keep_cache(weir_session& session) {
  const weir_runtime& runtime = *static_cast<weir_model*>(session.owner())->runtime;
  if (session.device_module() != nullptr) runtime.devices.keep_cache(*session.device_module(), runtime.log);
}

Status create_session(weir_model* model, const weir_session_options& options, weir_session** out) {
  WEIR_TRY(make_session(
      model, [&](weir_session& session) { return session.create(model->model, options); }, out));
  const weir_plan_info& plan = (*out)->plan_info();
  model->runtime->log.write(WEIR_LOG_INFO, "session: policy %s, %u tokens a stream, %llu bytes, %llu of them KV",
                            options.policy == nullptr ? "dense" : options.policy, plan.budget_tokens,
                            static_cast<unsigned long long>(plan.total_bytes),
                            static_cast<unsigned long long>(plan.kv_bytes));
  if (plan.context_tokens > model->model.config().context_tokens && options.context_tokens != 0) {
    model->runtime->log.write(WEIR_LOG_WARNING, "session: a context of %u tokens, the model was trained for %u",
                              plan.context_tokens, model->model.config().context_tokens);
  }
  keep_cache(**out);
  return {};
}

Status fork_session(weir_session& parent, weir_session** out) {
  auto* model = static_cast<weir_model*>(parent.owner());
  WEIR_TRY(make_session(
      model, [&](weir_session& session) { return session.create_fork(parent); }, out));
  const weir_plan_info& plan = (*out)->plan_info();
  model->runtime->log.write(WEIR_LOG_INFO, "session: a fork, %llu bytes, %llu of them KV",
                            static_cast<unsigned long long>(plan.total_bytes),
                            static_cast<unsigned long long>(plan.kv_bytes));
  return {};
}

Status read_generate_options(const weir_generate_options* options, weir_generate_options& out) {
  WEIR_TRY(api::read_struct(options, "weir_generate_options", out));
  constexpr uint32_t kKnown =
      uint32_t{WEIR_GENERATE_SPECIAL_TEXT} | uint32_t{WEIR_GENERATE_IGNORE_EOS} | uint32_t{WEIR_GENERATE_STOP_AT_CALL};
  if ((out.flags & ~kKnown) == 0 && out.reserved == 0) return {};
  return fail(WEIR_ERR_INVALID_ARG, "weir_generate_options: flags 0x%x are not known, or reserved is not 0", out.flags);
}

Status list_sessions(const char* function, weir_session* const* sessions, uint32_t n, SessionList& list) {
  if (n == 0 || n > kMaxTogetherSessions) {
    return fail(WEIR_ERR_INVALID_ARG, "%s: n_sessions is %u, not 1..%u", function, n, kMaxTogetherSessions);
  }
  for (uint32_t i = 0; i < n; ++i) {
    if (sessions[i] == nullptr) return fail(WEIR_ERR_INVALID_ARG, "%s: sessions[%u] is NULL", function, i);
  }
  list = {sessions,
          [](const void* handles, uint32_t i) -> Session& { return *static_cast<weir_session* const*>(handles)[i]; }};
  return {};
}

}  // namespace

weir_status weir_session_options_init(weir_session_options* options, uint32_t struct_size) {
  return init(options, struct_size, __func__);
}
weir_status weir_sampling_options_init(weir_sampling_options* options, uint32_t struct_size) {
  return init(options, struct_size, __func__);
}
weir_status weir_generate_options_init(weir_generate_options* options, uint32_t struct_size) {
  return init(options, struct_size, __func__);
}

weir_status weir_session_options_preset(const char* name, weir_session_options* options) {
  WEIR_API_REQUIRE(name);
  WEIR_API_REQUIRE(options);
  return api::guard([&]() -> Status {
    weir_session_options value;
    WEIR_TRY(api::read_struct(options, "weir_session_options", value));
    if (options->struct_size < offsetof(weir_session_options, reserved)) {
      return fail(WEIR_ERR_INVALID_ARG, "weir_session_options: struct_size %u has no room for policy options",
                  options->struct_size);
    }
    const Preset* preset = nullptr;
    WEIR_TRY(find_preset(name, preset));
    options->policy = preset->policy;
    options->policy_options = preset->options.empty() ? nullptr : preset->options.data();
    options->n_policy_options = static_cast<uint32_t>(preset->options.size());
    if (value.budget_tokens == 0 && value.budget_bytes == 0) options->budget_tokens = preset->budget_tokens;
    if (options->struct_size >= offsetof(weir_session_options, reserved_spill))
      options->spill_flags = (value.spill_flags & ~uint32_t{WEIR_SPILL_HALF}) | preset->spill_flags;
    return {};
  });
}

const char* weir_policy_name(uint32_t index) { return policy_name(index); }

const char* weir_preset_name(uint32_t index) { return index < presets().size() ? presets()[index].name : nullptr; }

weir_status weir_session_options_fit(const weir_model* model, uint64_t bytes, weir_session_options* options) {
  WEIR_API_REQUIRE(model);
  WEIR_API_REQUIRE(options);
  return api::guard([&]() -> Status {
    weir_session_options value;
    WEIR_TRY(api::read_struct(options, "weir_session_options", value));
    if (options->struct_size < offsetof(weir_session_options, policy)) {
      return fail(WEIR_ERR_INVALID_ARG, "weir_session_options: struct_size %u has no room for spill_budget_bytes",
                  options->struct_size);
    }
    WEIR_TRY(fit_options(model->model, model->runtime->pool.n_threads(), model->runtime->devices, model->device_weights,
                         bytes, value));
    options->context_tokens = value.context_tokens;
    options->budget_tokens = value.budget_tokens;
    options->spill_budget_bytes = value.spill_budget_bytes;
    return {};
  });
}

weir_status weir_plan(const weir_model* model, const weir_session_options* options, weir_plan_info* plan) {
  WEIR_API_REQUIRE(model);
  return api::guard([&]() -> Status {
    WEIR_TRY(api::check_out_struct(plan, "weir_plan_info"));
    weir_session_options read;
    WEIR_TRY(api::read_struct(options, "weir_session_options", read));
    weir_plan_info value = WEIR_PLAN_INFO_INIT;
    WEIR_TRY(plan_session(model->model, read, model->runtime->pool.n_threads(), model->runtime->devices,
                          model->device_weights, value));
    api::write_struct(value, plan);
    return {};
  });
}

weir_status weir_session_create(weir_model* model, const weir_session_options* options, weir_session** out) {
  WEIR_API_REQUIRE(out);
  *out = nullptr;
  WEIR_API_REQUIRE(model);
  return api::guard([&]() -> Status {
    weir_session_options read;
    WEIR_TRY(api::read_struct(options, "weir_session_options", read));
    return create_session(model, read, out);
  });
}

weir_status weir_session_fork(weir_session* session, weir_session** out) {
  WEIR_API_REQUIRE(out);
  *out = nullptr;
  WEIR_API_REQUIRE(session);
  return api::guard([&] { return fork_session(*session, out); });
}

void weir_session_destroy(weir_session* session) {
  if (session == nullptr) return;
  const Call call;
  auto* model = static_cast<weir_model*>(session->owner());
  keep_cache(*session);
  destroy_in(model->runtime->memory, session);
  api::release(model);
}

weir_status weir_session_reset(weir_session* session) {
  WEIR_API_REQUIRE(session);
  return api::guard([&] { return session->reset(); });
}

weir_status weir_session_prefill(weir_session* session, const weir_token* tokens, uint64_t n_tokens,
                                 weir_progress_fn progress, void* progress_user) {
  WEIR_API_REQUIRE(session);
  WEIR_API_REQUIRE(tokens);
  if (n_tokens == 0) return fail(WEIR_ERR_INVALID_ARG, "weir_session_prefill: n_tokens is 0").code();
  return api::guard([&] {
    const Status status = session->prefill(tokens, n_tokens, progress, progress_user);
    keep_cache(*session);
    return status;
  });
}

weir_status weir_session_rewind(weir_session* session, uint32_t n_tokens, uint32_t flags) {
  WEIR_API_REQUIRE(session);
  if ((flags & ~static_cast<uint32_t>(WEIR_REWIND_LOSSY)) != 0)
    return fail(WEIR_ERR_INVALID_ARG, "weir_session_rewind: flags 0x%x are not known", flags).code();
  return api::guard([&] { return session->rewind(n_tokens, flags); });
}

weir_status weir_session_step(weir_session* session, weir_token token) {
  WEIR_API_REQUIRE(session);
  return api::guard([&] { return session->step(token); });
}

weir_status weir_step_many(weir_session* const* sessions, const weir_token* tokens, uint32_t n_sessions) {
  WEIR_API_REQUIRE(sessions);
  WEIR_API_REQUIRE(tokens);
  return api::guard([&]() -> Status {
    SessionList list;
    WEIR_TRY(list_sessions(__func__, sessions, n_sessions, list));
    return step_many(list, tokens, n_sessions);
  });
}

weir_status weir_next_many(weir_session* const* sessions, weir_event* events, uint32_t n_sessions,
                           uint32_t* n_running) {
  WEIR_API_REQUIRE(sessions);
  WEIR_API_REQUIRE(events);
  return api::guard([&]() -> Status {
    SessionList list;
    WEIR_TRY(list_sessions("weir_next_many", sessions, n_sessions, list));
    EventList given = {reinterpret_cast<std::byte*>(events), events->struct_size};
    WEIR_TRY(api::check_out_struct(events, "weir_event"));
    for (uint32_t i = 0; i < n_sessions; ++i) {
      uint32_t size = 0;
      std::memcpy(&size, given.bytes + size_t{i} * given.stride, sizeof(size));
      if (size != given.stride || size % alignof(weir_event) != 0) {
        return fail(WEIR_ERR_INVALID_ARG, "weir_next_many: events[%u].struct_size is %u; set it to sizeof(weir_event)",
                    i, size);
      }
    }
    uint32_t n = 0;
    WEIR_TRY(next_many(list, n_sessions, given, n));
    if (n_running != nullptr) *n_running = n;
    return {};
  });
}

weir_status weir_session_logits(weir_session* session, const float** logits, uint32_t* n_logits) {
  WEIR_API_REQUIRE(session);
  WEIR_API_REQUIRE(logits);
  return api::guard([&]() -> Status {
    uint32_t n = 0;
    WEIR_TRY(session->logits(*logits, n));
    if (n_logits != nullptr) *n_logits = n;
    return {};
  });
}

weir_status weir_session_tokens(weir_session* session, const weir_token** tokens, uint32_t* n_tokens) {
  WEIR_API_REQUIRE(session);
  WEIR_API_REQUIRE(tokens);
  WEIR_API_REQUIRE(n_tokens);
  return api::guard([&] { return session->tokens(*tokens, *n_tokens); });
}

weir_status weir_session_set_sampling(weir_session* session, const weir_sampling_options* options) {
  WEIR_API_REQUIRE(session);
  return api::guard([&]() -> Status {
    weir_sampling_options read;
    WEIR_TRY(api::read_struct(options, "weir_sampling_options", read));
    return session->set_sampling(read);
  });
}

weir_status weir_session_sample(weir_session* session, weir_token* token) {
  WEIR_API_REQUIRE(session);
  WEIR_API_REQUIRE(token);
  return api::guard([&] { return session->sample(*token); });
}

weir_status weir_session_save(weir_session* session, weir_write_fn write, void* user) {
  WEIR_API_REQUIRE(session);
  WEIR_API_REQUIRE(write);
  return api::guard([&] { return session->save(write, user); });
}

weir_status weir_session_restore(weir_session* session, weir_read_fn read, void* user) {
  WEIR_API_REQUIRE(session);
  WEIR_API_REQUIRE(read);
  return api::guard([&] { return session->restore(read, user); });
}

weir_status weir_session_generate(weir_session* session, const weir_generate_options* options,
                                  weir_generate_result* result) {
  WEIR_API_REQUIRE(session);
  return api::guard([&]() -> Status {
    weir_generate_options read;
    WEIR_TRY(read_generate_options(options, read));
    if (result != nullptr) WEIR_TRY(api::check_out_struct(result, "weir_generate_result"));
    weir_generate_result value = WEIR_GENERATE_RESULT_INIT;
    const Status status = session->generate(read, value);
    if (result != nullptr) api::write_struct(value, result);
    return status;
  });
}

weir_status weir_session_begin(weir_session* session, const weir_generate_options* options) {
  WEIR_API_REQUIRE(session);
  return api::guard([&]() -> Status {
    weir_generate_options read;
    WEIR_TRY(read_generate_options(options, read));
    if (read.on_token != nullptr) {
      return fail(WEIR_ERR_INVALID_ARG,
                  "weir_generate_options: on_token is set; the events of weir_session_begin come "
                  "from weir_session_next");
    }
    return session->begin_answer(read);
  });
}

weir_status weir_session_next(weir_session* session, weir_event* event) {
  WEIR_API_REQUIRE(session);
  return api::guard([&]() -> Status {
    WEIR_TRY(api::check_out_struct(event, "weir_event"));
    weir_event value = WEIR_EVENT_INIT;
    WEIR_TRY(session->next_event(value));
    api::write_struct(value, event);
    return {};
  });
}

weir_status weir_session_pages(weir_session* session, weir_page_state* pages, uint32_t capacity, uint32_t* n_pages) {
  WEIR_API_REQUIRE(session);
  WEIR_API_REQUIRE(n_pages);
  if (capacity != 0) {
    WEIR_API_REQUIRE(pages);
  }
  return api::guard([&] { return session->page_states(pages, capacity, *n_pages); });
}

void weir_session_finish_thinking(weir_session* session) {
  if (session != nullptr) session->finish_thinking();
}

weir_status weir_session_answer(weir_session* session, weir_chat_message* message, uint32_t message_bytes,
                                uint32_t* is_malformed) {
  WEIR_API_REQUIRE(session);
  WEIR_API_REQUIRE(message);
  return api::guard([&]() -> Status {
    if (message_bytes < api::kFirstMessageBytes || message_bytes > api::kMaxStructSize)
      return fail(WEIR_ERR_INVALID_ARG, "weir_session_answer: message_bytes is %u", message_bytes);
    weir_chat_message value = WEIR_CHAT_MESSAGE_INIT;
    bool malformed = false;
    WEIR_TRY(session->answer(value, malformed));
    if (is_malformed != nullptr) *is_malformed = malformed ? 1 : 0;
    std::memset(static_cast<void*>(message), 0, message_bytes);
    std::memcpy(static_cast<void*>(message), &value, std::min<size_t>(message_bytes, sizeof(value)));
    return {};
  });
}

weir_status weir_session_pin(weir_session* session, uint32_t first, uint32_t end) {
  WEIR_API_REQUIRE(session);
  return api::guard([&] { return session->pin(first, end); });
}

weir_status weir_session_unpin(weir_session* session, uint32_t first, uint32_t end) {
  WEIR_API_REQUIRE(session);
  return api::guard([&] { return session->unpin(first, end); });
}

void weir_session_cancel(weir_session* session) {
  if (session != nullptr) session->cancel().set();
}

void weir_session_clear_cancel(weir_session* session) {
  if (session != nullptr) session->cancel().clear();
}

weir_status weir_session_get_stats(const weir_session* session, weir_session_stats* stats) {
  WEIR_API_REQUIRE(session);
  return api::guard([&]() -> Status {
    WEIR_TRY(api::check_out_struct(stats, "weir_session_stats"));
    weir_session_stats value = WEIR_SESSION_STATS_INIT;
    session->get_stats(value);
    api::write_struct(value, stats);
    return {};
  });
}

weir_status weir_session_memory(const weir_session* session, weir_memory_info* info) {
  WEIR_API_REQUIRE(session);
  return api::guard([&]() -> Status {
    WEIR_TRY(api::check_out_struct(info, "weir_memory_info"));
    weir_memory_info value = WEIR_MEMORY_INFO_INIT;
    session->get_memory(value);
    api::write_struct(value, info);
    return {};
  });
}
