// Constraints and masks.
#include "weir/constraint.h"

#include "api/handles.h"

using namespace weir;

namespace {

void destroy_constraint(constraint::SharedConstraint* shared) {
  auto* constraint = static_cast<weir_constraint*>(shared);
  weir_model* model = constraint->model;
  destroy_in(model->runtime->memory, constraint);
  api::release(model);
}

// A part of it that was built before memory ran out goes with the model.
void build_token_trie(weir_model& model) {
  const std::lock_guard lock(model.token_trie_lock);
  if (!model.has_token_trie) model.token_trie.build(model.model.tokenizer());
  model.has_token_trie = true;
}

Status create_constraint(weir_model* model, int32_t kind, std::string_view text, weir_constraint** out) {
  build_token_trie(*model);
  HostMemory& memory = model->runtime->memory;
  auto* made = make_in<weir_constraint>(memory, model, destroy_constraint);
  api::retain(model);
  Status status;
  try {
    status = made->compile(kind, text);
  } catch (...) {
    made->release();
    throw;
  }
  if (!status.ok()) {
    made->release();
    return status;
  }
  *out = made;
  return {};
}

}  // namespace

weir_status weir_constraint_create(weir_model* model, int32_t kind, const char* text, uint64_t text_bytes,
                                   weir_constraint** out) {
  WEIR_API_REQUIRE(out);
  *out = nullptr;
  WEIR_API_REQUIRE(model);
  if (kind != WEIR_CONSTRAINT_JSON) WEIR_API_REQUIRE(text);
  return api::guard([&] {
    return create_constraint(model, kind, {text == nullptr ? "" : text, text == nullptr ? 0 : text_bytes}, out);
  });
}

void weir_constraint_destroy(weir_constraint* constraint) {
  if (constraint == nullptr) return;
  const Call call;
  constraint->release();
}

weir_status weir_session_set_token_mask(weir_session* session, weir_mask_fn fn, void* user) {
  WEIR_API_REQUIRE(session);
  return api::guard([&] { return session->set_token_mask(fn, user); });
}

weir_status weir_session_set_constraint(weir_session* session, weir_constraint* constraint, uint32_t segments) {
  WEIR_API_REQUIRE(session);
  return api::guard([&]() -> Status {
    if (segments != 0)
      return fail(WEIR_ERR_UNSUPPORTED, "segments 0x%x: a constraint rules the answer itself, 0", segments);
    if (constraint != nullptr && constraint->model != session->owner())
      return fail(WEIR_ERR_INVALID_ARG, "the constraint is one of another model");
    return session->set_constraint(constraint);
  });
}
