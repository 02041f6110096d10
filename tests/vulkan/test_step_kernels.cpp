// vulkan: the kernels of a step that are no ops of the table, against plain definitions; on the CPU driver,
// WEIR_TEST_VULKAN_DEVICE.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "device/kernels/fill.h"
#include "device/kernels/list_windows.h"
#include "device/kernels/logits.h"
#include "device/kernels/page_softmax.h"
#include "device/kernels/page_stamp_at.h"
#include "device/kernels/step_end.h"
#include "ops/ops.h"
#include "ops/page_stamp.h"
#include "ops/table.h"
#include "quant/half.h"
#include "runtime/logprobs.h"
#include "tests/vulkan/device_arrays.h"
#include "vulkan/kernels.h"
#include "vulkan/steps.h"

namespace weir::vulkan {
namespace {

using test::open_context;

// Seeded random numbers (splitmix64), the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint32_t below(uint32_t n) {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return static_cast<uint32_t>((z ^ (z >> 31)) % n);
  }
  float between(float low, float high) { return low + (high - low) * static_cast<float>(below(1u << 24)) * 0x1p-24f; }

 private:
  uint64_t state_;
};

void check(Status status) {
  if (!status.ok()) fail_msg("%s", last_error_text());
}

// An array in device memory of its own.
template <class T>
class Array {
 public:
  explicit Array(const std::vector<T>& values) : n_(values.size()) {
    check(context().memory.allocate(context().device, std::max<size_t>(bytes(), 1), &data_));
    set(values);
  }
  explicit Array(size_t n, T value = {}) : Array(std::vector<T>(n, value)) {}
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { check(context().release(data_)); }
  T* data() const { return static_cast<T*>(data_); }
  void set(const std::vector<T>& values) {
    check(context().copy_in(data_, values.data(), bytes()));
    check(context().recorder.wait(context().device));
  }
  std::vector<T> get() const {
    std::vector<T> values(n_);
    check(context().copy_out(values.data(), data_, bytes()));
    check(context().recorder.wait(context().device));
    return values;
  }

 private:
  size_t bytes() const { return n_ * sizeof(T); }
  size_t n_;
  void* data_ = nullptr;
};

// --- pages -----------------------------------------------------------------------------------------------------------

// The invocations of a workgroup along x, from SPIR-V: 0 where the pipeline says how many.
uint32_t workgroup_width(const ShaderCode& code) {
  constexpr uint32_t kExecutionMode = 16, kConstant = 43, kSpecConstant = 50, kExecutionModeId = 331;
  constexpr uint32_t kLocalSize = 17, kLocalSizeId = 38, kHeader = 5;
  uint32_t id = 0;
  const uint32_t n = static_cast<uint32_t>(code.bytes / sizeof(uint32_t));
  for (uint32_t at = kHeader; at < n; at += code.words[at] >> 16) {
    const uint32_t* const words = code.words + at;
    const uint32_t what = words[0] & 0xFFFFu;
    if (what == kExecutionMode && words[2] == kLocalSize) return words[3];
    if (what == kExecutionModeId && words[2] == kLocalSizeId) id = words[3];
    if (id != 0 && what == kConstant && words[2] == id) return words[3];
    if (id != 0 && what == kSpecConstant && words[2] == id) return 0;
  }
  fail_msg("%s has no workgroup", code.name);
  return 0;
}

// A shader that does not include common/subgroup.glsl has workgroups of one invocation, and leaves out the rows of all
// others.
void shaders__have_workgroups(void**) {
  uint32_t n = 0;
  for (size_t kernel = 0; kernel < kKernelCount; ++kernel) {
    for (size_t type = 0; type < kWeightTypeCount; ++type) {
      const ShaderCode code = shader_code(static_cast<Kernel>(kernel), static_cast<WeightType>(type));
      if (code.words == nullptr) continue;
      const uint32_t width = workgroup_width(code);
      if (width != 0 && width != kInvocations) fail_msg("%s: workgroups of %u invocations", code.name, width);
      ++n;
    }
  }
  assert_true(n > kKernelCount);
}

void list_windows__lists_all_rows(void**) {
  open_context();
  constexpr uint32_t kCapacity = 600, kHeads = 3, kLists = 6;
  const Array<uint32_t> select(kLists * kCapacity, UINT32_MAX), n_select(kLists, 7u);
  const Array<uint32_t> windows(std::vector<uint32_t>{100, 0, 33}), n_pages(std::vector<uint32_t>{600, 300, 257});
  check(list_windows({select.data(), n_select.data(), windows.data(), n_pages.data(), kCapacity, kLists, kHeads}));
  const std::vector<uint32_t> rows = select.get(), n = n_select.get();
  for (uint32_t list = 0; list < kLists; ++list) {
    const uint32_t n_rows = list / 2 == 0 ? 600 : list / 2 == 2 ? 257 : 0;  // of a stream without a window none
    assert_int_equal(n[list], n_rows != 0 ? n_rows : 7);
    for (uint32_t row = 0; row < kCapacity; ++row)
      assert_int_equal(rows[list * kCapacity + row], row < n_rows ? row : UINT32_MAX);
  }
}

void page_softmax__is_the_softmax_of_the_rows_in_use(void**) {
  open_context();
  constexpr uint32_t kCapacity = 700, kHeads = 6;
  for (const float scale : {1.0f, 0.088f, 30.0f}) {
    Random random(3);
    const std::vector<uint32_t> n_pages = {1, 9, 700};
    std::vector<float> host(size_t{kHeads} * kCapacity);
    for (float& x : host) x = random.between(-9.0f, 9.0f);
    host[kCapacity * 2 + 8] = -INFINITY;  // an open page without a digest
    host[kCapacity * 5 + 300] = NAN;
    const Array<float> score(host);
    const Array<uint32_t> pages(n_pages);
    check(page_softmax({score.data(), pages.data(), kCapacity, kHeads, 3, scale}));
    const std::vector<float> got = score.get();
    for (uint32_t head = 0; head < kHeads; ++head) {
      const float* const x = &host[size_t{head} * kCapacity];
      const uint32_t n = n_pages[head / 2];
      float high = -INFINITY;
      for (uint32_t p = 0; p < n; ++p) high = std::fmax(high, scale * x[p]);
      const auto share = [&](uint32_t p) { return std::exp(double{scale * x[p] - high}); };
      double sum = 0.0;
      for (uint32_t p = 0; p < n; ++p) sum += share(p);
      for (uint32_t p = 0; p < kCapacity; ++p) {
        const float y = got[size_t{head} * kCapacity + p];
        if (p >= n) {
          assert_memory_equal(&y, &x[p], sizeof(y));
        } else if (head == 5) {
          assert_true(std::isnan(y));
        } else {
          const double want = share(p) / sum;
          assert_true(std::fabs(double{y} - want) <= 1e-5 * want + 1e-30);
        }
      }
    }
  }
}

struct Stamps {
  std::vector<uint32_t> stamp, gap;
  std::vector<float> score;
};

// The example of a stamp's arguments, on the device in the step of `state` or, without, by the reference.
Stamps stamp_pages(const PageStampArgs& rules, uint32_t group, bool listed, const StepState* state) {
  constexpr uint32_t kStreams = 3, kCapacity = 1500;
  Random random(group + 7);
  const std::vector<uint32_t> n_pages = {1500, 1, 333};
  std::vector<float> weight(size_t{kStreams} * group * kCapacity);
  for (float& w : weight) w = static_cast<float>(random.below(97)) / 97.0f;
  std::vector<uint32_t> flags(kStreams * kCapacity), select(flags.size(), UINT32_MAX), n_select(kStreams, 0);
  for (uint32_t& f : flags) f = random.below(5) == 0 ? uint32_t{kPagePinned} : 0u;
  for (uint32_t s = 0; s < kStreams; ++s) {
    for (uint32_t row = 0; row < n_pages[s]; ++row)
      if (random.below(3) != 0) select[s * kCapacity + n_select[s]++] = row;
  }
  Stamps out = {std::vector<uint32_t>(flags.size(), 5), std::vector<uint32_t>(flags.size()),
                std::vector<float>(flags.size(), -1.0f)};
  for (uint32_t& gap : out.gap) gap = random.below(6000);
  PageStampArgs a = rules;
  a.capacity = kCapacity;
  a.n_heads = kStreams * group;
  a.n_kv_heads = kStreams;
  if (state == nullptr) {
    a.weight = weight.data(), a.flags = flags.data(), a.n_pages = n_pages.data();
    if (listed) a.select = select.data(), a.n_select = n_select.data();
    a.stamp = out.stamp.data(), a.last_score = out.score.data(), a.gap = out.gap.data();
    OpContext cx;
    check(ref::page_stamp(cx, a));
    return out;
  }
  const Array<float> weights(weight), scores(out.score);
  const Array<uint32_t> flag(flags), pages(n_pages), list(select), n_list(n_select), stamps(out.stamp), gaps(out.gap);
  const Array<StepState> at(std::vector<StepState>{*state});
  a.weight = weights.data(), a.flags = flag.data(), a.n_pages = pages.data();
  if (listed) a.select = list.data(), a.n_select = n_list.data();
  a.stamp = stamps.data(), a.last_score = scores.data(), a.gap = gaps.data();
  check(page_stamp_at({a, at.data()}));
  return {stamps.get(), gaps.get(), scores.get()};
}

void page_stamp_at__stamps_with_the_state_s_token(void**) {
  open_context();
  for (const StampRule rule : {StampRule::kTopR, StampRule::kAlpha}) {
    for (const uint32_t group : {1u, 3u, 8u}) {
      for (const bool listed : {false, true}) {
        PageStampArgs a = {};
        a.rule = rule;
        a.rank_all = group == 3;
        a.r = 0.3f;
        a.alpha = 0.9f;
        a.now = 4242;
        StepState state = {};
        state.n_tokens = 4241;
        const Stamps want = stamp_pages(a, group, listed, nullptr);
        a.now = 1;  // not read
        const Stamps got = stamp_pages(a, group, listed, &state);
        assert_true(got.stamp == want.stamp && got.score == want.score && got.gap == want.gap);
        state.is_late = 1;
        const Stamps late = stamp_pages(a, group, listed, &state);
        assert_true(std::all_of(late.stamp.begin(), late.stamp.end(), [](uint32_t x) { return x == 5; }));
        assert_true(std::all_of(late.score.begin(), late.score.end(), [](float x) { return x == -1.0f; }));
      }
    }
  }
}

// --- the end of a step -----------------------------------------------------------------------------------------------

// All NaN with n_values 0, all -inf with 1; the largest are zeros of both signs below 1000, and hardly any equal with
// more. One in nine is NaN.
std::vector<float> odd_logits(uint32_t n, uint32_t n_values, uint64_t seed) {
  Random random(seed);
  std::vector<float> logits(n, n_values == 0 ? NAN : -INFINITY);
  for (float& x : logits) {
    const uint32_t odd = random.below(9), value = random.below(std::max(n_values, 1u));
    if (n_values > 1) x = n_values < 1000 ? -static_cast<float>(value) : static_cast<float>(value) - 1e6f;
    if (n_values > 1 && n_values < 1000 && odd == 1) x = 0.0f;
    if (odd == 0) x = NAN;
  }
  return logits;
}

int32_t argmax(const std::vector<float>& logits) {
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i]) && (best < 0 || logits[i] > logits[static_cast<size_t>(best)]))
      best = static_cast<int32_t>(i);
  }
  return best;
}

StepState some_state() {
  StepState s = {};
  s.next_token = 77;
  s.n_tokens = 1000;
  s.pages_evicted = (uint64_t{5} << 32) + 11;
  s.pages_evicted_before = (uint64_t{4} << 32) + 10;
  s.prompt_pages_evicted = 3;
  s.pages_resident = 12;
  s.pages_resident_max = 13;
  s.pages_attended = 14;
  s.n_without_room = 15;
  s.pages_cold = 16;
  s.pages_lost = 17;
  s.pages_recalled = (uint64_t{1} << 40) + 18;
  return s;
}

struct StepEnd {
  explicit StepEnd(const std::vector<float>& values, const StepState& from)
      : logits(values), state(std::vector<StepState>{from}), mailbox(1), best(1), counter(1) {}
  StepEndArgs args(uint32_t vocab_size, bool commit) const {
    StepEndArgs a = {};
    a.logits = logits.data(), a.vocab_size = vocab_size, a.commit = commit;
    a.state = state.data(), a.mailbox = mailbox.data(), a.best = best.data(), a.counter = counter.data();
    return a;
  }
  void check_zeros() const {
    assert_int_equal(best.get()[0], 0);
    assert_int_equal(counter.get()[0], 0);
  }
  Array<float> logits;
  Array<StepState> state, mailbox;
  Array<unsigned long long> best;
  Array<uint32_t> counter;
};

void step_end__finds_the_token_and_commits(void**) {
  open_context();
  for (const uint32_t vocab_size : {1u, 7u, 255u, 257u, 32000u, 151936u}) {
    for (const uint32_t n_values : {0u, 1u, 3u, 50u, 1u << 21}) {
      for (uint32_t flags = 0; flags < 4; ++flags) {
        if (flags != 1 && vocab_size > 300 && n_values != 50) continue;
        const bool commit = (flags & 1) != 0, late = (flags & 2) != 0;
        const std::vector<float> logits = odd_logits(vocab_size, n_values, vocab_size + n_values + flags);
        StepState want = some_state();
        want.is_late = late ? 1 : 0;
        const StepEnd end(logits, want);
        check(step_end(end.args(vocab_size, commit)));
        want.next_token = argmax(logits);
        want.n_tokens += commit && !late ? 1 : 0;
        want.recurrent ^= commit && !late ? 1 : 0;
        want.pages_evicted_before = want.pages_evicted;
        const StepState got = end.state.get()[0], seen = end.mailbox.get()[0];
        assert_int_equal(got.next_token, want.next_token);
        assert_memory_equal(&got, &want, sizeof(got));
        assert_memory_equal(&seen, &want, sizeof(seen));
        end.check_zeros();
      }
    }
  }
}

// The same work again and again: the state says which step it is.
void step_end__recorded_once(void**) {
  Context& c = open_context();
  std::vector<float> logits(5000, 0.0f);
  logits[4321] = 1.0f;
  StepEnd end(logits, some_state());
  Recorded work;
  Status status = c.recorder.begin_recording(c.device, 0, work);
  if (status.ok()) status = step_end(end.args(5000, true));
  if (status.ok()) status = c.recorder.end_recording(c.device);
  check(status);
  for (uint32_t step = 1; step <= 3; ++step) {
    check(c.recorder.launch(c.device, work));
    check(c.recorder.wait(c.device));
    assert_int_equal(end.mailbox.get()[0].n_tokens, 1000 + step);
    assert_int_equal(end.mailbox.get()[0].next_token, 4321);
    end.check_zeros();
  }
  logits[4000] = 9.0f;
  end.logits.set(logits);
  check(c.recorder.launch(c.device, work));
  check(c.recorder.wait(c.device));
  assert_int_equal(end.mailbox.get()[0].next_token, 4000);
  c.recorder.destroy(c.device, work);
}

void top_logits__lists_the_best_in_order(void**) {
  open_context();
  const Array<std::byte> scratch(top_logits_scratch_bytes());
  const Array<uint32_t> counter(1);
  for (const uint32_t vocab_size : {1u, 2u, 300u, 1024u, 32000u, 60000u, 151936u, 300000u}) {
    for (const uint32_t n_values : {0u, 3u, 1000u, 1u << 21}) {
      const std::vector<float> logits = odd_logits(vocab_size, n_values, vocab_size + n_values);
      const auto value = [&](int32_t id) {
        const float x = logits[static_cast<size_t>(id)];
        return std::isnan(x) ? -INFINITY : x;
      };
      std::vector<int32_t> order(vocab_size);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t x, int32_t y) { return value(x) > value(y); });
      const Array<float> device(logits);
      for (const uint32_t n : {1u, 2u, 16u, 24u, 40u, 65u, 1000u, 1024u}) {
        if (n > vocab_size) continue;
        const Array<int32_t> ids(n + 1, -7);
        const Array<float> values(n + 1, -7.0f);
        check(top_logits({device.data(), vocab_size, n, ids.data(), values.data(), scratch.data(), counter.data()}));
        const std::vector<int32_t> got = ids.get();
        const std::vector<float> got_values = values.get();
        for (uint32_t i = 0; i < n; ++i) {
          if (got[i] != order[i] || got_values[i] != value(order[i]))
            fail_msg("the best %u of %u, %u values: number %u is %d (%g) instead of %d (%g)", n, vocab_size, n_values,
                     i, got[i], double{got_values[i]}, order[i], double{value(order[i])});
        }
        assert_true(got[n] == -7 && got_values[n] == -7.0f);
        assert_int_equal(counter.get()[0], 0);
      }
      assert_int_equal(top_logits({device.data(), vocab_size, 0, nullptr, nullptr, scratch.data(), nullptr}).code(),
                       WEIR_ERR_INTERNAL);
    }
  }
}

// Lists only tokens that a mask has, of which there may be fewer than are asked for.
void top_logits__lists_the_best_of_a_mask(void**) {
  open_context();
  const Array<std::byte> scratch(top_logits_scratch_bytes());
  const Array<uint32_t> counter(1);
  for (const uint32_t vocab_size : {2u, 300u, 32000u, 151936u}) {
    const std::vector<float> logits = odd_logits(vocab_size, 1000, vocab_size);
    const Array<float> device(logits);
    for (const uint32_t percent : {100u, 50u, 1u, 0u}) {
      Random random(vocab_size + percent);
      std::vector<uint32_t> mask(mask_words(vocab_size));
      std::vector<int32_t> order;
      const uint32_t from = random.below(vocab_size), to = from + vocab_size / 4;  // here is nothing
      for (uint32_t id = 0; id < vocab_size; ++id) {
        if (random.below(100) >= percent || (percent == 50 && id >= from && id < to)) continue;
        mask[id / 32] |= 1u << id % 32;
        order.push_back(static_cast<int32_t>(id));
      }
      const auto value = [&](int32_t id) {
        const float x = logits[static_cast<size_t>(id)];
        return std::isnan(x) ? -INFINITY : x;
      };
      std::stable_sort(order.begin(), order.end(), [&](int32_t x, int32_t y) { return value(x) > value(y); });
      const Array<uint32_t> bits(mask);
      for (const uint32_t n : {1u, 40u, 1024u}) {
        if (n > vocab_size) continue;
        const Array<int32_t> ids(n + 1, -7);
        const Array<float> values(n + 1, -7.0f);
        check(top_logits(
            {device.data(), vocab_size, n, ids.data(), values.data(), scratch.data(), counter.data(), bits.data()}));
        const std::vector<int32_t> got = ids.get();
        const std::vector<float> got_values = values.get();
        for (uint32_t i = 0; i < n; ++i) {
          const int32_t id = i < order.size() ? order[i] : -1;
          const float want = id < 0 ? -INFINITY : value(id);
          if (got[i] != id || got_values[i] != want)
            fail_msg("the best %u of %u, %u %%: number %u is %d (%g) instead of %d (%g)", n, vocab_size, percent, i,
                     got[i], double{got_values[i]}, id, double{want});
        }
        assert_true(got[n] == -7 && got_values[n] == -7.0f);
      }
    }
  }
}

void read_logits__sums_parts_and_reads_tokens(void**) {
  open_context();
  for (const uint32_t vocab_size : {1u, 65u, 300u, 32000u, 151936u}) {
    for (const uint32_t n_values : {0u, 3u, 1000u, 1u << 21}) {
      const std::vector<float> logits = odd_logits(vocab_size, n_values, vocab_size + n_values);
      const Array<float> device(logits);
      const std::vector<int32_t> tokens = {0, static_cast<int32_t>(vocab_size - 1),
                                           static_cast<int32_t>(vocab_size / 2)};
      const Array<int32_t> asked(tokens);
      const Array<float> values(tokens.size() + 1, -7.0f);
      const Array<LogitPart> parts(kLogitParts + 1, {-7.0f, -7.0f});
      check(read_logits({device.data(), vocab_size, parts.data(), asked.data(), values.data(), 3}));
      const std::vector<LogitPart> got = parts.get();
      const uint32_t rows = logit_part_rows(vocab_size);
      for (uint32_t part = 0, first = 0; part < kLogitParts; ++part, first = std::min(first + rows, vocab_size)) {
        const LogitPart want = logit_part(logits.data() + first, std::min(rows, vocab_size - first));
        if (got[part].best != want.best || !(std::fabs(got[part].sum - want.sum) <= 2e-6f * want.sum))
          fail_msg("part %u of %u, %u values: %g, sum %.9g, not %g, %.9g", part, vocab_size, n_values,
                   double{got[part].best}, double{got[part].sum}, double{want.best}, double{want.sum});
      }
      assert_true(got[kLogitParts].sum == -7.0f);
      const std::vector<float> read = values.get();
      for (size_t i = 0; i < tokens.size(); ++i)
        assert_memory_equal(&read[i], &logits[static_cast<size_t>(tokens[i])], sizeof(float));
      assert_true(read[3] == -7.0f);
      // One of the two alone.
      const Array<float> again(1, -7.0f);
      check(read_logits({device.data(), vocab_size, nullptr, asked.data(), again.data(), 1}));
      assert_memory_equal(again.get().data(), logits.data(), sizeof(float));
      const Array<LogitPart> alone(kLogitParts);
      check(read_logits({device.data(), vocab_size, alone.data(), nullptr, nullptr, 0}));
      assert_memory_equal(alone.get().data(), got.data(), kLogitParts * sizeof(LogitPart));
    }
  }
}

// --- benchmarks ------------------------------------------------------------------------------------------------------

void fill_noise__is_uniform_and_follows_the_seed(void**) {
  open_context();
  constexpr uint32_t n = 3'000'000;
  const auto noise = [&](uint64_t seed, uint32_t n_elements) {
    const Array<uint16_t> pool(n, 0x7FC0);
    check(fill_noise({pool.data(), n_elements, seed}));
    return pool.get();
  };
  const std::vector<uint16_t> one = noise(1, n), other = noise(uint64_t{1} << 32 | 1, n), again = noise(1, 1000);
  double sum = 0.0, square = 0.0;
  uint32_t n_same = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const float x = bf16_to_f32(one[i]);
    assert_true(x >= -1.0f && x < 1.0f);
    sum += double{x};
    square += double{x} * double{x};
    n_same += one[i] == other[i] ? 1 : 0;
  }
  assert_true(std::fabs(sum / n) < 0.003 && std::fabs(square / n - 1.0 / 3.0) < 0.005);
  assert_true(n_same < n / 50);
  assert_true(std::equal(again.begin(), again.begin() + 1000, one.begin()));
  assert_true(std::all_of(again.begin() + 1000, again.end(), [](uint16_t x) { return x == 0x7FC0; }));
}

void copy_memory__of_every_length(void**) {
  open_context();
  constexpr uint32_t n = 4 * 3'000'001;
  std::vector<uint32_t> values(n);
  Random random(5);
  for (uint32_t& x : values) x = random.below(UINT32_MAX);
  const Array<uint32_t> from(values);
  for (const uint32_t quads : {1u, 255u, 257u, 4096u * 256u, n / 4 - 1}) {
    const Array<uint32_t> to(n);
    check(copy_memory(to.data(), from.data(), uint64_t{quads} * 16));
    const std::vector<uint32_t> got = to.get();
    assert_true(std::equal(got.begin(), got.begin() + 4 * quads, values.begin()));
    assert_true(std::all_of(got.begin() + 4 * quads, got.end(), [](uint32_t x) { return x == 0; }));
  }
  assert_int_equal(copy_memory(from.data(), from.data(), 8).code(), WEIR_ERR_INTERNAL);
}

}  // namespace
}  // namespace weir::vulkan

int main() {
  using namespace weir::vulkan;
  const CMUnitTest tests[] = {
      cmocka_unit_test(shaders__have_workgroups),
      cmocka_unit_test(list_windows__lists_all_rows),
      cmocka_unit_test(page_softmax__is_the_softmax_of_the_rows_in_use),
      cmocka_unit_test(page_stamp_at__stamps_with_the_state_s_token),
      cmocka_unit_test(step_end__finds_the_token_and_commits),
      cmocka_unit_test(step_end__recorded_once),
      cmocka_unit_test(top_logits__lists_the_best_in_order),
      cmocka_unit_test(top_logits__lists_the_best_of_a_mask),
      cmocka_unit_test(read_logits__sums_parts_and_reads_tokens),
      cmocka_unit_test(fill_noise__is_uniform_and_follows_the_seed),
      cmocka_unit_test(copy_memory__of_every_length),
  };
  return cmocka_run_group_tests_name("vulkan_step_kernels", tests, nullptr, nullptr);
}
