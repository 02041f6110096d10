// policy: PSA over pages that come back from the store (docs/algorithms.md, "PSA with recall"). Whatever the pool, the
// threads and the store, it attends what it attends with all pages in the pool, to the last bit; which pages are in the
// pool equals a model in plain sets; a page that is lost is never attended.
#include <compare>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "tests/policy/policy_test.h"
#include "tests/policy/session_sim.h"

namespace {

using namespace weir;
using namespace weir::test;

using Lists = std::vector<std::vector<uint32_t>>;
using Options = std::vector<weir_key_value>;

PolicySpec spec_of(Options options, uint32_t pool_pages, uint32_t n_threads = 1) {
  options.push_back({"skip_layers", "0"});
  if (pool_pages != 0) options.push_back({"recall", "on"});
  return {"psa", pool_pages * kPageTokens, 4096, 0, options, 0, n_threads};
}

// Keeps the lists of all steps, and sees that no stream has more pages than slots.
void keep_lists(Sim& sim, Lists& lists) {
  sim.on_layer = [&](uint32_t layer) {
    for (uint32_t head = 0; head < sim.shape.n_kv_heads; ++head) {
      lists.push_back(sim.attended(layer, head * sim.shape.group));
      const StreamView s = sim.kv.stream(layer * sim.shape.n_kv_heads + head);
      uint32_t n = 0;
      for (uint32_t row = 0; row < s.n_pages; ++row) n += s.slots[row] != kNoSlot ? 1 : 0;
      assert_int_equal(n, s.n_resident);
      assert_true(sim.needs().one_pool ? sim.kv.n_in_pool() <= sim.kv.n_pool_slots() : n <= s.n_slots);
    }
  };
}

void converse(Sim& sim) {
  sim.prefill(150);
  sim.steps(40);
  sim.prefill(33);
  sim.steps(30);
}

struct Variant {
  const char* name;
  Options options;
  uint32_t least;  // pages of the pool
};

const Variant kVariants[] = {
    {"eps 0", {{"eps", "0"}, {"mb", "2"}, {"max_pages", "256"}}, 6},
    {"eps 0.5", {{"eps", "0.5"}, {"mb", "1"}, {"max_pages", "256"}}, 4},
    {"eps 0.98", {{"eps", "0.98"}, {"mb", "4"}, {"max_pages", "256"}}, 10},
    {"cap", {{"eps", "0.98"}, {"mb", "3"}, {"max_pages", "7"}}, 8},
    {"bound", {{"eps", "0.9"}, {"mb", "2"}, {"bound", "true"}}, 6},
    {"sinks", {{"eps", "0.8"}, {"mb", "2"}, {"max_pages", "256"}, {"sink_pages", "5"}}, 10},
    {"no sinks", {{"eps", "0.8"}, {"mb", "1"}, {"max_pages", "256"}, {"sink_pages", "0"}}, 3},
    {"means", {{"eps", "0.8"}, {"mb", "3"}, {"max_pages", "256"}, {"digest", "mean_std"}, {"agg", "max_z"}}, 8},
    {"quiet", {{"quiet", "2"}, {"quiet_share", "0.08"}, {"mb", "2"}, {"max_pages", "256"}}, 6},
    {"all of the cap", {{"eps", "1"}, {"max_pages", "6"}}, 6},
};

// Pages of a stream, and whose they are.
std::vector<std::pair<uint32_t, const char*>> pools_of(const Variant& v) {
  std::vector<std::pair<uint32_t, const char*>> pools;
  for (uint32_t pages : {v.least, v.least + 1, 12u}) {
    pools.push_back({pages, "stream"});
    if (std::strcmp(v.name, "all of the cap") != 0) pools.push_back({pages, "unified"});
  }
  return pools;
}

void psa_recall__same_as_without(void**) {
  for (const SimShape& shape : {SimShape{2, 2, 4, 64, 48, true}, SimShape{2, 3, 2, 32, 64, true}}) {
    const Inputs inputs(shape, 260, 61);
    for (const Backend* backend : kBackends) {
      for (const Variant& v : kVariants) {
        Sim all(*backend, inputs, spec_of(v.options, 0));
        Lists want;
        keep_lists(all, want);
        converse(all);
        uint64_t recalled = 0;
        for (const auto& [pool, kind] : pools_of(v)) {
          for (uint32_t n_threads : {1u, 2u, 7u}) {
            if (backend == &reference_backend() && (n_threads != 1 || pool != v.least)) continue;
            PolicySpec spec = spec_of(v.options, pool, n_threads);
            spec.options.push_back({"pool", kind});
            Sim sim(*backend, inputs, spec);
            assert_int_equal(sim.needs().recall_slots, pool);
            Lists lists;
            keep_lists(sim, lists);
            converse(sim);
            assert_same_outputs(sim, all, v.name);
            assert_true(lists == want);
            assert_true(sim.n_evicted > 0 && sim.kv.pages_lost() == 0);
            // Threads change nothing of what is in the pool.
            if (n_threads == 1) recalled = sim.cold.pages_recalled();
            assert_int_equal(sim.cold.pages_recalled(), recalled);
            assert_true(recalled > 0);
          }
        }
      }
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------------

// The pages of the pool as sets of rows with the step that attended them last, and what comes and goes by the rules.
class Model {
 public:
  Model(Sim& sim, uint32_t slots, uint32_t microbatch, uint32_t sinks)
      : sim_(sim), slots_(slots), microbatch_(microbatch), sinks_(sinks) {
    for (uint32_t s = 0; s < sim.kv.shape().n_streams(); ++s) in_.push_back(pool_of(s));
    n_recalled = sim.cold.pages_recalled();
    sim.on_evict = [this](uint32_t stream, const StreamView& v, uint32_t row, const RoomArgs&) {
      assert_int_equal(row, victim(stream, v, v.n_pages - 1, {}));
      in_[stream].erase(row);
    };
    sim.on_layer = [this](uint32_t layer) {
      for (uint32_t head = 0; head < sim_.shape.n_kv_heads; ++head) attend(layer * sim_.shape.n_kv_heads + head);
    };
  }

  uint64_t n_recalled = 0, n_replaced_this_step = 0, n_over = 0;

 private:
  using Pool = std::map<uint32_t, uint32_t>;

  Pool pool_of(uint32_t stream) const {
    const StreamView v = sim_.kv.stream(stream);
    Pool pool;
    for (uint32_t row = 0; row < v.n_pages; ++row) {
      if (v.slots[row] != kNoSlot) pool[row] = v.stamp[row];
    }
    return pool;
  }

  uint32_t victim(uint32_t stream, const StreamView& v, uint32_t open, const std::set<uint32_t>& kept) const {
    std::tuple<uint32_t, float, uint32_t> best = {UINT32_MAX, 0.0f, Policy::kNone};
    for (const auto& [row, stamp] : in_[stream]) {
      if (row == open || is_forced(v, row) || kept.contains(row)) continue;
      best = std::min(best, {stamp, v.last_score[row], row});
    }
    return std::get<2>(best);
  }

  bool is_forced(const StreamView& v, uint32_t row) const {
    return row + 1 == v.n_pages || row < sinks_ || (v.flags[row] & kPageKept) != 0;
  }

  void attend(uint32_t stream) {
    const StreamView v = sim_.kv.stream(stream);
    const uint32_t open = v.n_pages - 1, now = sim_.n_tokens() + 1, group = sim_.shape.group;
    const uint32_t layer = stream / sim_.shape.n_kv_heads, head = stream % sim_.shape.n_kv_heads * group;
    Pool& in = in_[stream];
    in.try_emplace(open, now);
    std::vector<uint32_t> order(v.n_pages);
    for (uint32_t row = 0; row < v.n_pages; ++row) order[row] = row;
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      if (is_forced(v, a) || is_forced(v, b)) return is_forced(v, a) && !is_forced(v, b);
      return v.last_score[a] > v.last_score[b];
    });
    const size_t n_attended = sim_.attended(layer, head).size();
    for (size_t first = 0; first < n_attended; first += microbatch_) {
      const std::set<uint32_t> kept(at(order, first), at(order, first + 2 * microbatch_));
      for (size_t i = first; i < std::min(n_attended, first + microbatch_); ++i) {
        if (!in.contains(order[i])) {
          if (in.size() == slots_) {
            const uint32_t leaves = victim(stream, v, open, kept);
            assert_int_not_equal(leaves, Policy::kNone);
            n_replaced_this_step += in[leaves] == now ? 1 : 0;
            in.erase(leaves);
          }
          ++n_recalled;
        }
        in[order[i]] = now;
      }
    }
    n_over += n_attended > slots_ ? 1 : 0;
    assert_true(in == pool_of(stream));
    assert_true(in.size() <= slots_);
  }

  static std::vector<uint32_t>::const_iterator at(const std::vector<uint32_t>& order, size_t i) {
    return order.begin() + static_cast<ptrdiff_t>(std::min(i, order.size()));
  }

  Sim& sim_;
  const uint32_t slots_, microbatch_, sinks_;
  std::vector<Pool> in_;
};

// Which pages come and which leave, also where a step attends more than the pool holds, and beside pinned pages.
void psa_recall__pages_of_the_pool(void**) {
  const SimShape shape = {2, 2, 3, 32, 64, true};
  const Inputs inputs(shape, 300, 62);
  for (const char* eps : {"0.05", "0.9"}) {
    for (uint32_t n_threads : {1u, 5u}) {
      for (uint32_t variant = 0; variant < 4; ++variant) {
        const bool pinned = variant % 2 != 0;
        const uint32_t sinks = variant / 2, pool = (pinned ? 7 : 6) + sinks;
        Sim sim(cpu_backend(), inputs,
                spec_of({{"eps", eps}, {"mb", "2"}, {"max_pages", "256"}, {"sink_pages", sinks == 0 ? "0" : "1"}}, pool,
                        n_threads));
        sim.prefill(200);
        if (pinned) sim.pin(40, 60);  // two pages, of which at least one is cold
        Model model(sim, pool, 2, sinks);
        const uint64_t before = model.n_recalled;
        sim.steps(60);
        assert_true(model.n_recalled > before);
        assert_int_equal(sim.cold.pages_recalled(), model.n_recalled);
        assert_int_equal(model.n_over > 0, std::strcmp(eps, "0.9") == 0);
        assert_int_equal(model.n_replaced_this_step > 0, std::strcmp(eps, "0.9") == 0);
      }
    }
  }
}

// One pool of all layers: where streams differ in what they attend, less comes back than with a pool for each; and
// where a step needs a little more than there is, not everything comes back in each step, as it would if what was used
// the longest ago left.
void psa_recall__one_pool(void**) {
  const SimShape shape = {4, 2, 2, 32, 64, true};
  Inputs inputs(shape, 400, 64);
  // Queries of the last two layers are sharp.
  for (uint32_t layer = 2; layer < 4; ++layer) {
    for (uint32_t pos = 0; pos < 400; ++pos) {
      for (uint32_t i = 0; i < shape.n_heads() * shape.head_dim; ++i) inputs.q(layer, pos)[i] *= 6.0f;
    }
  }
  uint64_t recalled[2] = {}, attended = 0;
  for (uint32_t pages : {12u, 16u}) {
    for (bool unified : {false, true}) {
      PolicySpec spec = spec_of({{"eps", "0.9"}, {"mb", "2"}, {"max_pages", "256"}}, pages);
      spec.options.push_back({"pool", unified ? "unified" : "stream"});
      Sim sim(cpu_backend(), inputs, spec);
      sim.prefill(300);
      sim.steps(10);
      const uint64_t before = sim.cold.pages_recalled();
      attended = 0;
      sim.on_layer = [&](uint32_t layer) {
        for (uint32_t head = 0; head < shape.n_kv_heads; ++head)
          attended += sim.attended(layer, head * shape.group).size();
        assert_true(sim.kv.n_in_pool() <= (unified ? sim.kv.n_pool_slots() : 0));
      };
      sim.steps(60);
      recalled[unified] = sim.cold.pages_recalled() - before;
      assert_int_equal(sim.kv.pages_resident(), pages * sim.kv.shape().n_streams());
    }
    std::printf("%u pages a stream: %.1f attended in a step, %.1f recalled with pools, %.1f with one\n", pages,
                double(attended) / 60, double(recalled[0]) / 60, double(recalled[1]) / 60);
    assert_true(recalled[1] < recalled[0] && recalled[0] < attended);
  }
}

// A store that is too small loses pages: they are not attended, and steps go on.
void psa_recall__lost_pages(void**) {
  const SimShape shape = {2, 2, 3, 32, 64, true};
  const Inputs inputs(shape, 300, 63);
  for (const char* bound : {"false", "true"}) {
    for (uint32_t n_threads : {1u, 5u}) {
      const char* kind = n_threads == 1 ? "stream" : "unified";
      PolicySpec spec = spec_of({{"eps", "0.7"}, {"mb", "2"}, {"max_pages", "256"}, {"bound", bound}}, 12, n_threads);
      spec.spill_pages = 4 * 5;
      spec.options.push_back({"pool", kind});
      Sim sim(cpu_backend(), inputs, spec);
      std::vector<std::set<uint32_t>> lost(sim.kv.shape().n_streams());  // before the step
      sim.on_layer = [&](uint32_t layer) {
        for (uint32_t head = 0; head < shape.n_kv_heads; ++head) {
          const uint32_t stream = layer * shape.n_kv_heads + head;
          const StreamView v = sim.kv.stream(stream);
          const std::vector<uint32_t> list = sim.attended(layer, head * shape.group);
          assert_int_equal(list.back(), v.n_pages - 1);
          for (uint32_t row : list) assert_false(lost[stream].contains(row));
          for (uint32_t row = 0; row < v.n_pages; ++row) {
            if (v.is_lost(row)) lost[stream].insert(row);
          }
        }
      };
      sim.prefill(180);
      sim.steps(100);
      assert_true(sim.kv.pages_lost() > 0 && sim.cold.pages_recalled() > 0);
      for (float x : sim.out[1]) assert_true(std::isfinite(x));
    }
  }
}

// A prompt longer than pool and store loses pages, but not the first ones: they never leave the pool. A step that stops
// as early as it can attends whole microbatches of the pages that are there. So it does where the very first page is
// lost all the same, as a file may have it: that page has no place in the order.
void psa_recall__first_pages_are_never_lost(void**) {
  const SimShape shape = {2, 2, 3, 32, 64, true};
  const Inputs inputs(shape, 440, 65);
  for (const Backend* backend : kBackends) {
    for (const char* n_sinks : {"1", "2", "4"}) {
      for (const auto& [microbatch, is_lost] : {std::pair{"2", false}, {"3", false}, {"2", true}, {"3", true}}) {
        const auto mb = static_cast<size_t>(std::atoi(microbatch));
        const auto sinks = static_cast<uint32_t>(std::atoi(n_sinks));
        PolicySpec spec = spec_of({{"eps", "0"}, {"mb", microbatch}, {"max_pages", "256"}, {"sink_pages", n_sinks}},
                                  2 * static_cast<uint32_t>(mb) + 1 + sinks);
        spec.spill_pages = 4 * 12;
        Sim sim(*backend, inputs, spec);
        sim.prefill(400);
        for (uint32_t s = 0; s < sim.kv.shape().n_streams(); ++s) {
          assert_true(sim.kv.stream(s).is_lost(sinks));
          if (!is_lost) continue;
          sim.kv.evict(s, 0);
          sim.kv.stream(s).copies[0] = kNoCopy;
          sim.kv.lose(s, 0);
        }
        const uint32_t first = is_lost ? 1 : 0;
        sim.on_layer = [&](uint32_t layer) {
          for (uint32_t head = 0; head < shape.n_kv_heads; ++head) {
            const StreamView v = sim.kv.stream(layer * shape.n_kv_heads + head);
            const auto is_forced = [&](uint32_t row) { return row + 1 == v.n_pages || row < sinks; };
            for (uint32_t row = first; row < sinks; ++row) assert_int_not_equal(v.slots[row], kNoSlot);
            std::vector<uint32_t> order;
            for (uint32_t row = 0; row < v.n_pages; ++row) {
              if (!v.is_lost(row)) order.push_back(row);
            }
            std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
              if (is_forced(a) || is_forced(b)) return is_forced(a) && !is_forced(b);
              return v.last_score[a] > v.last_score[b];
            });
            // Nothing is known of what is left before a page that is not forced.
            const auto n_forced = static_cast<size_t>(std::count_if(order.begin(), order.end(), is_forced));
            order.resize(std::min(order.size(), (n_forced / mb + 1) * mb));
            std::sort(order.begin(), order.end());
            assert_true(sim.attended(layer, head * shape.group) == order);
          }
        };
        sim.steps(30);
      }
    }
  }
}

// A page whose copy proves to be damaged is not attended, not even in the step that finds out.
void psa_recall__damaged_pages(void**) {
  const SimShape shape = {2, 2, 3, 32, 64, true};
  const Inputs inputs(shape, 300, 66);
  for (const Backend* backend : kBackends) {
    for (const char* kind : {"stream", "unified"}) {
      for (uint32_t n_threads : {1u, 5u}) {
        if (backend == &reference_backend() && n_threads != 1) continue;
        PolicySpec spec = spec_of({{"eps", "0.95"}, {"mb", "2"}, {"max_pages", "256"}, {"pool", kind}}, 6, n_threads);
        Sim sim(*backend, inputs, spec);
        sim.prefill(200);
        for (size_t i = 100; i < sim.copies().size(); i += size_t{6} * sim.kv.shape().page_bytes())
          sim.copies()[i] ^= std::byte{0x10};
        uint64_t n_found = 0;
        sim.on_layer = [&](uint32_t layer) {
          for (uint32_t head = 0; head < shape.n_kv_heads; ++head) {
            const StreamView v = sim.kv.stream(layer * shape.n_kv_heads + head);
            for (uint32_t row : sim.attended(layer, head * shape.group)) assert_false(v.is_lost(row));
          }
          n_found = std::max(n_found, sim.kv.pages_lost());
        };
        sim.steps(40);
        assert_true(n_found > 1 && n_found < 20 && sim.cold.pages_recalled() > 0);
        for (float x : sim.out[1]) assert_true(std::isfinite(x));
      }
    }
  }
}

// Pages that were read ahead are those that come back, though others are read ahead before they are copied to their
// slots. Which thread reads when is up to the machine, so the order is made here.
void psa_recall__pages_read_ahead(void**) {
  const SimShape shape = {1, 1, 1, 32, 64, true};
  const Inputs inputs(shape, 300, 68);
  Sim sim(cpu_backend(), inputs, spec_of({{"eps", "0.9"}, {"mb", "2"}, {"max_pages", "256"}}, 8));
  sim.prefill(290);
  const StreamView v = sim.kv.stream(0);
  std::vector<uint32_t> cold;
  for (uint32_t row = 0; row < v.n_pages; ++row) {
    if (v.slots[row] == kNoSlot) cold.push_back(row);
  }
  assert_true(cold.size() >= 6);
  PageFetcher& fetcher = *sim.fetcher();
  fetcher.start(sim.kv, sim.cold, 0, 1000, 1);
  const size_t n = sim.kv.shape().page_bytes() / sizeof(uint16_t);
  std::vector<uint16_t> want(n);
  for (size_t i = 0; i + 1 < 4; ++i) {
    uint32_t rows[] = {cold[i]};
    assert_int_equal(fetcher.want(0, rows, 1, &cold[i + 1], 1), 1);
    fetcher.read_ahead(0);
    assert_int_equal(fetcher.load(0, rows, 1), 1);
    fetcher.settle(0);
    assert_true(sim.cold.read_copy(0, cold[i], want.data()).ok());
    assert_memory_equal(sim.kv.page_data(v.slots[cold[i]]), want.data(), n * sizeof(uint16_t));
  }
}

// --- who leaves one pool --------------------------------------------------------------------------------------------

// A page of the pool.
struct InPool {
  uint32_t stream, row;
  auto operator<=>(const InPool&) const = default;
};

// The pages of the pool that may leave, by layer.
std::set<InPool> pages_of_layers(const Sim& sim, uint32_t first, uint32_t end) {
  std::set<InPool> pages;
  for (uint32_t s = first * sim.shape.n_kv_heads; s < end * sim.shape.n_kv_heads; ++s) {
    const StreamView v = sim.kv.stream(s);
    for (uint32_t row = sim.policy().n_front_rows(); row + 1 < v.n_pages; ++row) {
      if (v.slots[row] != kNoSlot) pages.insert({s, row});
    }
  }
  return pages;
}

// Has the fetcher bring back one cold page of a stream of the layer that runs; returns the page that left for it.
InPool bring_back_one(Sim& sim, uint32_t stream) {
  const uint32_t n_layers = sim.shape.n_layers, head = stream % sim.shape.n_kv_heads;
  const std::set<InPool> before = pages_of_layers(sim, 0, n_layers);
  const StreamView v = sim.kv.stream(stream);
  uint32_t row = 0;
  while (v.slots[row] != kNoSlot) ++row;
  assert_true(row + 1 < v.n_pages);
  assert_int_equal(sim.fetcher()->want(head, &row, 1, nullptr, 0), 1);
  assert_int_equal(sim.fetcher()->load(head, &row, 1), 1);
  sim.fetcher()->settle(head);
  const std::set<InPool> after = pages_of_layers(sim, 0, n_layers);
  std::vector<InPool> left;
  std::set_difference(before.begin(), before.end(), after.begin(), after.end(), std::back_inserter(left));
  assert_int_equal(left.size(), 1);
  assert_true(after.contains({stream, row}));
  return left[0];
}

// While layer 1 of 3 runs: pages that the latest run of their layer did not attend leave before those that it did,
// though for layers that have not run in this step that was a step ago; of equals those of layer 0 first, which is the
// last to run again, and of a layer those of the least score.
void psa_recall__who_leaves_one_pool(void**) {
  const SimShape shape = {3, 2, 1, 32, 64, true};
  const Inputs inputs(shape, 420, 67);
  Sim sim(cpu_backend(), inputs, spec_of({{"eps", "0.9"}, {"mb", "1"}, {"max_pages", "256"}, {"pool", "unified"}}, 5));
  sim.prefill(410);
  assert_int_equal(sim.kv.n_in_pool(), sim.kv.n_pool_slots());
  const uint32_t now = 1000;
  std::vector<std::set<InPool>> groups(4);  // those that leave first come first
  std::map<InPool, float> score;
  for (uint32_t layer = 0; layer < 3; ++layer) {
    const uint32_t last_run = layer == 0 ? now : now - 1;
    uint32_t i = 0;
    for (const InPool& page : pages_of_layers(sim, layer, layer + 1)) {
      const StreamView v = sim.kv.stream(page.stream);
      const bool is_latest = ++i % 2 == 0;
      v.stamp[page.row] = is_latest ? last_run : last_run - 1;
      score[page] = v.last_score[page.row] = static_cast<float>(i * 7 % 5);
      groups[(is_latest ? 2 : 0) + (layer == 0 ? 0 : 1)].insert(page);
    }
  }
  sim.fetcher()->start(sim.kv, sim.cold, 1, now, sim.policy().n_front_rows());
  uint32_t n = 0;
  for (std::set<InPool>& group : groups) {
    assert_true(group.size() > 1);
    for (float last = -1; !group.empty(); ++n) {
      const InPool left = bring_back_one(sim, 2 + n % 2);
      assert_int_equal(group.erase(left), 1);
      assert_true(score[left] >= last);
      last = score[left];
    }
  }
}

void psa_recall__rules_and_needs(void**) {
  Made m("psa", 512, 4096, {{"recall", "on"}});
  assert_true(m.status.ok());
  const PolicyNeeds& needs = m.policy->needs();
  assert_int_equal(needs.recall_slots, 32);
  assert_int_equal(needs.pages_per_stream, 256);
  assert_int_equal(needs.fetch_pages, 4);
  assert_true(needs.page_lists && needs.may_recall);
  const StepRules rules = m.policy->step_rules();
  assert_true(rules.recalls && rules.selects && rules.victim == VictimRule::kCold && rules.attend_wanted);
  assert_int_equal(rules.stop_microbatch, 4);
  assert_int_equal(rules.select_budget, 32);
  assert_int_equal(rules.select_from_layer, 0);
  assert_int_equal(m.policy->needs().min_unpinned, 9);
  assert_true(rules.sink_pages == 1 && rules.front_rows == 1 && m.policy->n_front_rows() == 1);
  Made nine("psa", 144, 4096, {{"recall", "on"}});  // two microbatches, the open page and the first
  assert_int_equal(nine.policy->step_rules().stop_microbatch, 3);
  Made none("psa", 144, 4096, {{"recall", "on"}, {"sink_pages", "0"}});
  assert_int_equal(none.policy->step_rules().stop_microbatch, 4);
  Made small("psa", 96, 4096, {{"recall", "on"}, {"max_pages", "100"}});
  assert_int_equal(small.policy->step_rules().stop_microbatch, 2);
  assert_int_equal(small.policy->step_rules().select_budget, 100);
  Made bound("psa", 96, 4096, {{"recall", "on"}, {"bound", "true"}});
  assert_int_equal(bound.policy->step_rules().select_budget, 256);
  for (uint32_t budget : {0u, 4096u}) {
    Made all("psa", budget, 4096, {{"recall", "on"}});
    assert_true(all.policy->needs().recall_slots == 0 && all.policy->needs().fetch_pages == 0);
    assert_true(!all.policy->step_rules().recalls && all.policy->step_rules().victim == VictimRule::kNever);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(psa_recall__same_as_without),
      cmocka_unit_test(psa_recall__pages_of_the_pool),
      cmocka_unit_test(psa_recall__one_pool),
      cmocka_unit_test(psa_recall__lost_pages),
      cmocka_unit_test(psa_recall__first_pages_are_never_lost),
      cmocka_unit_test(psa_recall__damaged_pages),
      cmocka_unit_test(psa_recall__pages_read_ahead),
      cmocka_unit_test(psa_recall__who_leaves_one_pool),
      cmocka_unit_test(psa_recall__rules_and_needs),
  };
  return cmocka_run_group_tests_name("policy_psa_recall", tests, nullptr, nullptr);
}
