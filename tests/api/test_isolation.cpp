// One session, one conversation after another: nothing of the earlier one is left. A restore over any conversation is a
// restore into a new session, byte for byte, and so is a reset; and every conversation that can be saved can be
// restored, and goes on. Under every policy, with and without recall, over models with and without sliding windows,
// with head files, with stores of all sizes. WEIR_TEST_SEEDS=<n> tries more.
#include <memory>

#include "tests/api/api_test.h"
#include "tests/api/programs.h"

namespace {

using namespace programs;

struct Fixture {
  weir_runtime* runtime = nullptr;
  weir_model* models[std::size(kModels)] = {};
  weir_model_info info[std::size(kModels)];
};
Fixture g;

uint32_t n_seeds() {
  const char* n = std::getenv("WEIR_TEST_SEEDS");
  return n != nullptr ? static_cast<uint32_t>(std::atoi(n)) : 12;
}

struct Closer {
  void operator()(weir_session* session) const { weir_session_destroy(session); }
};
using Session = std::unique_ptr<weir_session, Closer>;

Session create(Config& c, size_t model) {
  weir_session* session = nullptr;
  (void)c.create(g.models[model], &session);
  return Session(session);
}

// What a test says when it fails, and where.
struct Case {
  const char* policy;
  uint32_t seed;
  std::string config;
  void require(bool holds, const char* what) const {
    if (!holds) fail_msg("%s, seed %u: %s (%s; %s)", policy, seed, what, config.c_str(), weir_last_error());
  }
};

void converse(Choices& choices, weir_session* session, uint32_t n_ops) {
  for (uint32_t i = 0; i < n_ops; ++i) (void)run(session, choose_op(choices, stats_of(session).n_tokens));
}

// The same calls have the same outcomes.
void assert_twins(const Case& c, Choices& choices, weir_session* a, weir_session* b, uint32_t n_ops) {
  Bytes file_a, file_b;
  for (uint32_t i = 0; i <= n_ops; ++i) {
    c.require(save(a, file_a) == save(b, file_b) && file_a == file_b, "saved files differ");
    const weir_session_stats sa = stats_of(a), sb = stats_of(b);
    c.require(sa.pages_cold == sb.pages_cold && sa.pages_resident == sb.pages_resident &&
                  sa.spill_stored_bytes == sb.spill_stored_bytes,
              "counts of pages differ");
    const Op op = choose_op(choices, sa.n_tokens);
    if (i < n_ops) c.require(run(a, op) == run(b, op), "calls have different outcomes");
  }
}

// What the cases of a policy came to, so that no test passes because everything was refused.
struct Tally {
  uint32_t n_tried = 0, n_restored = 0;
  uint32_t n_with_tokens = 0;  // of these, conversations that were not empty
  void add(weir_status status, weir_session* session) {
    ++n_tried;
    n_restored += status == WEIR_OK ? 1u : 0u;
    n_with_tokens += status == WEIR_OK && stats_of(session).n_tokens > 0 ? 1u : 0u;
  }
};

// Seeds of a policy, each with a model and options that are possible. `f` gets the case and its choices, and adds to
// the tally what it restores; at least `least` of a hundred must be, and as many of these have tokens.
template <class F>
void for_each_case(uint32_t least, const F& f) {
  for (const char* policy : kPolicies) {
    uint32_t n_possible = 0;
    Tally tally;
    for (uint32_t seed = 0; seed < n_seeds(); ++seed) {
      Folder folder;
      Choices choices(uint64_t{seed} * 1000003 + static_cast<uint64_t>(policy[0]) * 31 + policy[1]);
      const size_t model = seed % std::size(kModels);
      Config config;
      Session first;
      for (uint32_t tries = 0; tries < 8 && first == nullptr; ++tries) {
        config = choose_config(choices, g.info[model], policy, folder);
        first = create(config, model);
      }
      if (first == nullptr) continue;
      ++n_possible;
      const Case c = {policy, seed, std::string(kModels[model]) + " " + config.text()};
      f(c, choices, config, model, std::move(first), tally);
    }
    if (tally.n_tried < (least == 0 ? 0 : n_possible / 2) || tally.n_restored * 100 < tally.n_tried * least ||
        tally.n_with_tokens * 100 < tally.n_restored * least) {
      fail_msg("%s: of %u conversations in %u cases %u were restored, %u with tokens", policy, tally.n_tried,
               n_possible, tally.n_restored, tally.n_with_tokens);
    }
    if (n_possible * 4 < n_seeds() * 3) fail_msg("%s: only %u of %u cases are possible", policy, n_possible, n_seeds());
  }
}

void isolation__restored_over_another_conversation(void**) {
  for_each_case(50, [](const Case& c, Choices& choices, Config& config, size_t model, Session used, Tally& tally) {
    // The saved session may have had another store, or none.
    Config other = config;
    if (!config.has_heads && choices.one_in(3)) {
      other.options.spill_budget_bytes = other.options.spill_raw_bytes = other.options.spill_file_bytes = 0;
      if (config.recalls || choices.one_in(2)) choose_store(choices, other, g.info[model]);
    }
    Session source = create(other, model), fresh = create(config, model);
    if (source == nullptr) return;
    c.require(fresh != nullptr, "cannot be created twice");
    converse(choices, source.get(), choices.from(1, 8));
    Bytes file;
    c.require(save(source.get(), file) == WEIR_OK, "cannot be saved");
    converse(choices, used.get(), choices.from(1, 8));
    const weir_status status = restore(used.get(), file);
    tally.add(status, used.get());
    c.require(status == restore(fresh.get(), file), "restores differ");
    const weir_session_stats stats = stats_of(used.get());
    c.require(stats.pages_cold < (1u << 20), "counts pages below none");
    assert_twins(c, choices, used.get(), fresh.get(), 6);
  });
}

void isolation__reset_is_new(void**) {
  for_each_case(0, [](const Case& c, Choices& choices, Config& config, size_t model, Session used, Tally&) {
    Session fresh = create(config, model);
    c.require(fresh != nullptr, "cannot be created twice");
    for (uint32_t i = choices.from(1, 8); i > 0; --i) {
      const Op op = choose_op(choices, stats_of(used.get()).n_tokens);
      if (op.kind != Kind::kSample) (void)run(used.get(), op);  // options of sampling stay
    }
    c.require(weir_session_reset(used.get()) == WEIR_OK, "cannot be reset");
    const weir_session_stats stats = stats_of(used.get());
    c.require(
        stats.n_tokens == 0 && stats.pages_cold == 0 && stats.pages_resident == 0 && stats.spill_stored_bytes == 0,
        "something is left");
    assert_twins(c, choices, used.get(), fresh.get(), 7);
  });
}

// Whatever can be saved can be restored, also into sessions with other stores, and goes on as it would have.
void isolation__what_is_saved_can_be_restored(void**) {
  for_each_case(50, [](const Case& c, Choices& choices, Config& config, size_t model, Session session, Tally& tally) {
    Session same = create(config, model);
    Config changed = config;
    if (config.options.spill_budget_bytes != 0) {
      choose_store(choices, changed, g.info[model]);
      changed.options.spill_flags &= ~uint32_t{WEIR_SPILL_STRICT};
    }
    Session other = create(changed, model);
    c.require(same != nullptr, "cannot be created twice");
    Bytes file, again;
    for (uint32_t i = 0; i < 9; ++i) {
      const Op op = choose_op(choices, stats_of(session.get()).n_tokens);
      (void)run(session.get(), op);
      c.require(save(session.get(), file) == WEIR_OK, "cannot be saved");
      const weir_status status = restore(same.get(), file);
      tally.add(status, same.get());
      c.require(status == WEIR_OK, "cannot be restored");
      c.require(save(same.get(), again) == WEIR_OK && again == file, "is another one after it was restored");
      if (other != nullptr) c.require(restore(other.get(), file) == WEIR_OK, "cannot be restored with another store");
      Op next = choose_op(choices, stats_of(session.get()).n_tokens);
      next.kind = next.seed % 2 == 0 ? Kind::kSteps : Kind::kPrefill;
      if (other != nullptr) (void)run(other.get(), next);
      c.require(run(session.get(), next) == run(same.get(), next), "goes on differently");
      if (choices.one_in(2)) std::swap(session, same);  // what was restored is saved, too
    }
  });
}

int open_models(void**) {
  weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
  options.n_threads = 1;
  assert_ok(weir_runtime_create(&options, &g.runtime));
  for (size_t i = 0; i < std::size(kModels); ++i) {
    assert_ok(weir_model_open(g.runtime, kModels[i], nullptr, &g.models[i]));
    g.info[i] = WEIR_MODEL_INFO_INIT;
    assert_ok(weir_model_get_info(g.models[i], &g.info[i]));
  }
  return 0;
}

int close_models(void**) {
  for (weir_model* model : g.models) weir_model_close(model);
  weir_runtime_destroy(g.runtime);
  return 0;
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(isolation__restored_over_another_conversation),
      cmocka_unit_test(isolation__reset_is_new),
      cmocka_unit_test(isolation__what_is_saved_can_be_restored),
  };
  return cmocka_run_group_tests_name("isolation", tests, open_models, close_models);
}
