// ops: page_select. Mirrors lib/ops/page_select_ref.cpp, lib/cpu/page_select.cpp. Properties are in
// test_page_select_properties.cpp.
#include "tests/ops/select_case.h"

namespace weir::test {
namespace {

constexpr uint32_t kGroups[] = {1, 2, 3, 4, 7, 8};

// Every mode and group, with budgets below, at and above the number of pages, and everything that forces or excludes a
// page.
std::vector<SelectSpec> specs() {
  std::vector<SelectSpec> list;
  Random random(31);
  for (AggMode agg : kAllModes) {
    for (uint32_t group : kGroups) {
      for (uint32_t n_pages : {1u, 2u, 3u, 17u, 64u, 150u}) {
        for (uint32_t budget : {1u, 2u, n_pages / 3 + 1, n_pages, n_pages + 2}) {
          SelectSpec s;
          s.agg = agg;
          s.n_kv_heads = 2;
          s.group = group;
          s.n_pages = n_pages;
          s.budget = budget;
          s.candidate_flags = random.below(2) == 0 ? uint32_t{kPagePrompt} : 0u;
          s.n_sink_pages = random.below(3);
          s.kept = random.below(2) == 0;
          s.n_values = random.below(2) == 0 ? 5 : 41;  // 5: many ties
          s.odd_values = random.below(2) == 0;
          list.push_back(s);
        }
      }
    }
    SelectSpec many;  // shared among threads
    many.agg = agg;
    many.n_kv_heads = 3;
    many.group = 2;
    many.n_pages = 500;
    many.budget = 64;
    many.n_threads = 3;
    list.push_back(many);
  }
  return list;
}

std::string name_of(const SelectSpec& s) {
  return mode_name(s.agg) + "_g" + std::to_string(s.group) + "_" + std::to_string(s.n_pages) + "_pages";
}

// The lists themselves are an output where the scores are exact. Softmax scores may differ in their last bits; then
// either order of two pages is correct, and list_follows_the_scores checks those lists.
std::vector<Output> outputs(const SelectCase& c) {
  std::vector<Output> out = {{"group_score", c.group_score}};
  if (is_rounded(c.spec.agg)) return out;
  out.push_back({"select", std::vector<float>(c.select.begin(), c.select.end())});
  out.push_back({"n_select", std::vector<float>(c.n_select.begin(), c.n_select.end())});
  return out;
}

// Cases of a mode and group run together, because there are too many to name each. An output has all of them in a row.
std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  const std::vector<SelectSpec> all = specs();
  for (AggMode agg : kAllModes) {
    for (uint32_t group : kGroups) {
      const auto run = [=](const Backend& backend) {
        std::vector<Output> joined;
        for (const SelectSpec& s : all) {
          if (s.agg != agg || s.group != group) continue;
          SelectCase c(s, 50 + s.n_pages + s.budget);
          c.run(backend);
          const std::vector<Output> out = outputs(c);
          if (joined.empty()) joined.assign(out.size(), {});
          for (size_t i = 0; i < out.size(); ++i) {
            joined[i].name = out[i].name;
            joined[i].values.insert(joined[i].values.end(), out[i].values.begin(), out[i].values.end());
          }
        }
        return joined;
      };
      const std::string name = "page_select__" + mode_name(agg) + "_g" + std::to_string(group);
      if (is_rounded(agg)) {
        list.push_back({name, run, 1e-13, "f32 sums in another order and another exp: about 1e-7 of a score"});
      } else {
        list.push_back({name, run, 0.0, "estimates are whole numbers: the same sums, so the same pages"});
      }
    }
  }
  return list;
}

void list_follows_the_scores(const Backend& backend) {
  for (const SelectSpec& s : specs()) {
    for (uint32_t n_values : {s.n_values, 0u}) {
      SelectSpec spec = s;
      spec.n_values = n_values;
      SelectCase c(spec, 90 + s.n_pages);
      c.run(backend);
      for (uint32_t i = 0; i < c.lists(); ++i) {
        if (c.list(i) != c.sorted_list(i))
          fail_msg("%s: list %u does not follow from the scores", name_of(s).c_str(), i);
      }
    }
  }
}

// Group score of one row in f64, from the definition of the modes.
double exact_group_score(const SelectCase& c, uint32_t stream, uint32_t row) {
  const uint32_t n = c.n_pages[stream];
  if (row + 1 >= n || !c.competes(stream, row)) return 0.0;
  double sum = 0.0, most = -INFINITY;
  for (uint32_t g = 0; g < c.spec.group; ++g) {
    const float* score = &c.score[(size_t{stream} * c.spec.group + g) * c.capacity];
    double x = double{score[row]};
    if (is_softmax(c.spec.agg)) {
      double all = 0.0;
      for (uint32_t p = 0; p + 1 < n; ++p)
        if (c.competes(stream, p)) all += std::exp(double{c.scale} * (double{score[p]} - x));
      x = 1.0 / all;
    } else if (c.spec.agg == AggMode::kMaxZ) {
      double mean = 0.0, square = 0.0, count = 0.0;
      for (uint32_t p = 0; p + 1 < n; ++p)
        if (c.competes(stream, p)) mean += double{score[p]}, count += 1.0;
      mean /= count;
      for (uint32_t p = 0; p + 1 < n; ++p)
        if (c.competes(stream, p)) square += (double{score[p]} - mean) * (double{score[p]} - mean);
      x = square > 0.0 ? (x - mean) / std::sqrt(square / count) : 0.0;
    }
    sum += x;
    most = std::max(most, x);
  }
  if (c.spec.agg == AggMode::kSumProb) return std::log(sum);
  if (c.spec.agg == AggMode::kMaxProb) return std::log(most);
  return c.spec.agg == AggMode::kMaxZ || c.spec.agg == AggMode::kMaxRaw ? most : sum / c.spec.group;
}

void group_score_equals_f64(const Backend& backend) {
  for (AggMode agg : kAllModes) {
    for (uint32_t group : kGroups) {
      for (uint32_t candidates : {0u, uint32_t{kPagePrompt}}) {
        SelectSpec s;
        s.agg = agg;
        s.group = group;
        s.n_pages = 40;
        s.candidate_flags = candidates;
        s.n_values = 0;
        SelectCase c(s, group);
        c.run(backend);
        for (uint32_t stream = 0; stream < s.n_kv_heads; ++stream) {
          for (uint32_t row = 0; row < c.capacity; ++row) {
            const double got = double{c.group_score[size_t{stream} * c.capacity + row]};
            const double want = row < c.n_pages[stream] ? exact_group_score(c, stream, row)
                                                        : static_cast<double>(SelectCase::kUntouched);
            assert_true(std::fabs(got - want) <= 1e-5 * std::fabs(want) + 1e-5);
          }
        }
      }
    }
  }
}

void check_lists(const SelectCase& c) {
  for (uint32_t i = 0; i < c.lists(); ++i) {
    const std::vector<uint32_t> got = c.list(i), want = c.sorted_list(i);
    if (got == want) continue;
    size_t at = 0;
    while (at < got.size() && at < want.size() && got[at] == want[at]) ++at;
    fail_msg("%s, budget %u, %u values: list %u has %zu pages for %zu; the first %zu follow from the scores",
             name_of(c.spec).c_str(), c.spec.budget, c.spec.n_values, i, got.size(), want.size(), at);
  }
}

// Softmaxes as near as sums of so many numbers are. The processor adds estimates in vectors of f32, of which narrow
// ones have longer sums.
void check_scores(const SelectCase& c, const Backend& backend) {
  const double bound = is_softmax(c.spec.agg) || backend.device == WEIR_DEVICE_CPU ? 2e-4 : 2e-5;
  for (uint32_t row = 0; row < c.spec.n_pages; row += 1499) {
    const double got = double{c.group_score[row]}, want = exact_group_score(c, 0, row);
    if (!(std::fabs(got - want) <= bound * std::fabs(want) + bound))
      fail_msg("%s: the score of row %u is %.9g instead of %.9g", name_of(c.spec).c_str(), row, got, want);
  }
}

// Tables of a long context, longer than what a kernel keeps to itself, with estimates far from zero: the list follows
// from the scores, and some scores are those of the definition.
void long_tables_follow_the_scores(const Backend& backend) {
  for (AggMode agg : kAllModes) {
    for (uint32_t budget : {1u, 700u, 16000u}) {
      SelectSpec s;
      s.agg = agg;
      s.group = 2;
      s.n_pages = 16384;
      s.budget = budget;
      s.n_sink_pages = 3;
      s.candidate_flags = budget == 700 ? uint32_t{kPagePrompt} : 0u;
      s.n_values = budget == 16000 ? 41 : 0;
      SelectCase c(s, budget);
      for (float& x : c.score) x += 300.0f;
      c.run(backend);
      check_lists(c);
      check_scores(c, backend);
    }
  }
}

// Tables about the sizes at which a kernel's way changes, with more equal scores than it may compare in pairs, and with
// infinite ones.
void tables_of_all_sizes_follow_the_scores(const Backend& backend) {
  for (uint32_t n_pages : {256u, 700u, 2557u, 2558u, 4093u, 4096u, 4099u, 8195u}) {
    for (AggMode agg : {AggMode::kSumProb, AggMode::kMaxRaw, AggMode::kMaxZ, AggMode::kQHead}) {
      for (uint32_t n_values : {0u, 3u, 41u}) {
        SelectSpec s;
        s.agg = agg;
        s.group = 3;
        s.n_pages = n_pages;
        s.budget = n_pages / 3;
        s.n_sink_pages = 2;
        s.candidate_flags = n_values == 3 ? uint32_t{kPagePrompt} : 0u;
        s.kept = n_values == 41;
        s.n_values = n_values;
        s.odd_values = n_values != 0;
        SelectCase c(s, n_pages + n_values);
        for (size_t i = 0; i < c.score.size() && n_values == 41; i += 97) c.score[i] = INFINITY;
        c.run(backend);
        check_lists(c);
        if (n_values == 0) check_scores(c, backend);
      }
    }
  }
}

// Two heads with probabilities (.5 .3 .2) and (.05 .35 .6) over three sealed pages; the second head's estimates are
// larger by 10. Row 3 is the open page. The budget is three pages, one of them the open page.
void modes_golden(const Backend& backend) {
  struct Want {
    AggMode agg;
    std::vector<float> score;
    std::vector<std::vector<uint32_t>> lists;
  };
  const auto ln = [](double x) { return static_cast<float>(std::log(x)); };
  const std::vector<float> first = {ln(.5), ln(.3), ln(.2)},
                           second = {10.0f + ln(.05), 10.0f + ln(.35), 10.0f + ln(.6)};
  const std::vector<Want> wants = {
      {AggMode::kSumProb, {ln(.55), ln(.65), ln(.8)}, {{1, 2, 3}}},
      {AggMode::kMaxProb, {ln(.5), ln(.35), ln(.6)}, {{0, 2, 3}}},
      {AggMode::kMeanRaw, {5.0f + ln(.025) / 2, 5.0f + ln(.105) / 2, 5.0f + ln(.12) / 2}, {{1, 2, 3}}},
      {AggMode::kMaxRaw, second, {{1, 2, 3}}},
      {AggMode::kQHead, {5.0f + ln(.025) / 2, 5.0f + ln(.105) / 2, 5.0f + ln(.12) / 2}, {{0, 1, 3}, {1, 2, 3}}},
  };
  for (const Want& want : wants) {
    SelectSpec s;
    s.agg = want.agg;
    s.n_kv_heads = 1;
    s.group = 2;
    s.n_pages = 4;
    s.budget = 3;
    SelectCase c(s, 1);
    c.scale = 0.5f;
    for (uint32_t row = 0; row < 3; ++row) {
      const float unscale = is_softmax(want.agg) ? 2.0f : 1.0f;  // probabilities are of scale * estimate
      c.score[row] = unscale * first[row];
      c.score[c.capacity + row] = unscale * second[row];
    }
    c.run(backend);
    for (uint32_t row = 0; row < 3; ++row) assert_float_equal(c.group_score[row], want.score[row], 1e-5f);
    assert_float_equal(c.group_score[3], 0.0f, 0.0f);
    assert_int_equal(c.lists(), want.lists.size());
    for (uint32_t i = 0; i < c.lists(); ++i) assert_true(c.list(i) == want.lists[i]);
  }
}

void reference_follows_the_definition(void**) {
  list_follows_the_scores(reference_backend());
  group_score_equals_f64(reference_backend());
  modes_golden(reference_backend());
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/page_select", cases(),
                   {{"page_select__list_follows_the_scores", list_follows_the_scores},
                    {"page_select__group_score_equals_f64", group_score_equals_f64},
                    {"page_select__long_tables_follow_the_scores", long_tables_follow_the_scores},
                    {"page_select__tables_of_all_sizes_follow_the_scores", tables_of_all_sizes_follow_the_scores},
                    {"page_select__modes_golden", modes_golden}},
                   {cmocka_unit_test(reference_follows_the_definition)});
}
