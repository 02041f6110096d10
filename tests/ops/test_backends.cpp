// The backends' op tables: complete, named, and with enough scratch memory for every call that the shapes allow.
#include "tests/ops/attn_case.h"
#include "weir/runtime.h"

namespace weir::test {
namespace {

void tables_are_complete(void**) {
  for (const Backend* backend : {&reference_backend(), &cpu_backend()}) {
#define WEIR_OP(name, Args) assert_non_null(backend->ops.name);
#include "ops/ops.inc"
#undef WEIR_OP
    assert_non_null(backend->scratch_bytes);
    assert_true(std::strlen(backend->name) > 0 && std::strlen(backend->target()) > 0);
    assert_int_equal(backend->device, WEIR_DEVICE_CPU);
  }
  assert_string_equal(reference_backend().name, "reference");
  assert_string_equal(cpu_backend().name, "cpu");
  assert_int_equal(reference_backend().scratch_bytes({}), 0);
}

void cpu_target_is_the_one_chosen(void**) {
  for (int64_t target : targets()) {
    const TargetScope scope(target);
    const bool plain = target == HWY_SCALAR || target == HWY_EMU128;
    if (!plain) assert_string_equal(cpu_backend().target(), hwy::TargetName(target));
  }
}

OpShapes shapes_of(const AttnSpec& s, uint32_t max_pages, uint32_t max_tok) {
  OpShapes shapes;
  shapes.n_threads = 3;
  shapes.max_tok = max_tok;
  shapes.max_cols = shapes.max_rows = s.n_heads * s.kv.head_dim;
  shapes.n_heads = s.n_heads;
  shapes.n_kv_heads = s.kv.n_kv_heads;
  shapes.head_dim = s.kv.head_dim;
  shapes.max_pages = max_pages;
  return shapes;
}

// The scratch of a session is enough for every call up to its shapes; Machine::check detects writes beyond it.
void scratch_serves_smaller_calls(const Backend& backend) {
  AttnSpec s;
  s.n_heads = 14;
  for (uint32_t max_tok : {1u, 8u, 100u}) {
    s.kv = {.n_kv_heads = 2, .head_dim = 72, .n_pages = 70, .last_len = 3, .spare_rows = 0};
    for (uint32_t n_tok : {1u, 2u, 7u, 8u, 19u, 100u}) {
      if (n_tok > max_tok) continue;
      s.n_tok = n_tok;
      AttnCase c(s, 1);
      Machine machine(backend, shapes_of(s, 70, max_tok));
      machine.check(backend.ops.attn_paged(machine.cx(), c.args()));
      c.kv.n_pages(0) = 8;
      c.kv.n_pages(1) = 69;
      machine.check(backend.ops.attn_paged(machine.cx(), c.args()));
    }
  }
}

void missing_scratch_is_an_error(void**) {
  AttnSpec s;
  s.kv = {.n_kv_heads = 2, .head_dim = 64, .n_pages = 70};
  s.n_heads = 6;
  for (uint32_t n_tok : {1u, 30u}) {
    s.n_tok = n_tok;
    AttnCase c(s, 1);
    Machine machine(cpu_backend(), c.shapes());
    machine.cx().scratch_bytes = 1000;
    assert_int_equal(cpu_backend().ops.attn_paged(machine.cx(), c.args()).code(), WEIR_ERR_INTERNAL);
  }
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/backends", {}, {{"backends__scratch_serves_smaller_calls", scratch_serves_smaller_calls}},
                   {{"backends__tables_are_complete", tables_are_complete, nullptr, nullptr, nullptr},
                    {"backends__cpu_target_is_the_one_chosen", cpu_target_is_the_one_chosen, nullptr, nullptr, nullptr},
                    {"backends__missing_scratch_is_an_error", missing_scratch_is_an_error, nullptr, nullptr, nullptr}});
}
