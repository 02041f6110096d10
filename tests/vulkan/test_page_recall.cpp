// vulkan: recall in a decode step against the definitions in tests/runtime (host_recall.cpp, host_begin.cpp), over
// random tables and several steps of several layers: tables, lists, counters, events, what the host is asked for, and
// the pool.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "device/kernels/page_recall.h"
#include "device/kernels/step_begin.h"
#include "tests/cmocka_cpp.h"
#include "tests/runtime/host_kernels.h"
#include "tests/runtime/host_queue.h"
#include "tests/vulkan/device_arrays.h"
#include "vulkan/steps.h"

namespace weir::vulkan {
namespace {

using device::RecallEntry;
using device::RecallHead;
using host_module::seen;
using test::open_context;

uint64_t random_state = 1;
uint32_t below(uint32_t n) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(random_state >> 33) % n;
}
bool one_in(uint32_t n) { return below(n) == 0; }

void expect_ok(const Status& status) {
  if (!status.ok()) fail_msg("%s", last_error_text());
}

float random_score() {
  switch (below(8)) {
    case 0:
      return one_in(2) ? NAN : -NAN;
    case 1:
      return one_in(2) ? 0.0f : -0.0f;
    case 2:
      return one_in(2) ? -INFINITY : INFINITY;
    case 3:
      return -0x1p-149f * static_cast<float>(below(3));  // below the normal numbers
    default:
      return static_cast<float>(below(7)) * 0.25f - 0.75f;  // ties
  }
}

// How many copies of each kind there are; pages of the context are rows.
struct Shape {
  uint32_t n_layers = 2, n_kv_heads = 2, capacity = 12, n_slots = 5, most = 3;
  uint32_t head_dim = 8, digest_elements = 16;
  uint32_t ring = 64;      // entries of the ring of events; 0: none
  uint32_t fewest = 1;     // rows in use
  uint32_t cold = 2;       // one in so many pages that need not be is in the pool
  uint32_t lost = 12;      // one in so many copies is none
  uint32_t elsewhere = 4;  // one in so many is not raw
  uint32_t pinned = 10;    // one in so many pages
  bool answers = true;     // the host sends what is asked for
  bool windows = false;    // half of the streams slide with a window, and all of their pages are in the pool

  uint32_t n_streams() const { return n_layers * n_kv_heads; }
  uint32_t n_rows() const { return n_streams() * capacity; }
  uint32_t n_all_slots() const { return n_streams() * n_slots; }
  uint32_t page_words() const { return kPageTokens * head_dim; }
  uint32_t page_bytes() const { return page_words() * 4; }
  uint32_t bit_words() const { return host_module::resident_words(capacity + 40); }
};

// Where arrays are in a block of words that the host and the device have alike.
struct Layout {
  explicit Layout(const Shape& s) {
    for (uint32_t& at : table) at = take(s.n_rows());
    free_slots = take(s.n_all_slots());
    n_pages = take(s.n_streams());
    n_resident = take(s.n_streams());
    row_begin = take(s.n_streams() + 1);
    slot_begin = take(s.n_streams() + 1);
    resident = take(s.n_streams() * s.bit_words());
    raw_index = take(s.n_rows());
    digests = take(s.n_rows() * s.digest_elements / 2);
    select = take(s.n_kv_heads * s.capacity);
    n_select = take(s.n_kv_heads);
    state = take(sizeof(StepState) / sizeof(uint32_t));
    heads = take(s.n_streams() * 2);
    entries = take(s.n_streams() * s.most * 4);
    posts = take(s.n_kv_heads * 4);
    answers = take(s.n_kv_heads * 2);
    rows = take(s.n_kv_heads * s.most);
    sent = take(s.n_kv_heads * s.most * s.page_words());
    raw_pages = take(s.n_rows() * s.page_words());
    pool = take(s.n_all_slots() * s.page_words());
    append_row = take(s.n_streams());
    window = take(s.n_streams());
    counter = take(1);
    compared = n_words;
    angles = take(2);
    cos_sin = take(2);
    events = take(s.ring * sizeof(PageEvent) / sizeof(uint32_t));
  }
  uint32_t take(uint32_t n) {
    const uint32_t at = n_words;
    n_words = (n_words + n + 3) / 4 * 4;
    return at;
  }

  uint32_t n_words = 0;
  uint32_t table[6], free_slots, n_pages, n_resident, row_begin, slot_begin, resident, raw_index, digests, select,
      n_select, state, heads, entries, posts, answers, rows, sent, raw_pages, pool, append_row, window, counter,
      compared, angles, cos_sin, events;
};

// A layer's streams after selection.
struct Case {
  Case(const Shape& wanted, const StepRules& wanted_rules)
      : shape(wanted), rules(wanted_rules), at(shape), host(at.n_words), ring(kLargeRing) {
    Context& c = open_context();
    void* words = nullptr;
    expect_ok(c.memory.allocate(c.device, at.n_words * sizeof(uint32_t), &words));
    device = static_cast<uint32_t*>(words);
    for (uint32_t& word : host) word = below(UINT32_MAX);
    rules.recalls = true;
    rules.victim = VictimRule::kCold;
    rules.recall_pages = shape.most;
    fill();
  }
  ~Case() { expect_ok(context().release(device)); }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  KvTables tables(uint32_t* words) const;
  PageEventRing events(bool on_host);
  PageRecallArgs args(uint32_t layer, bool on_host);
  StepBeginArgs begin_args(bool on_host);
  StepState& state() { return *reinterpret_cast<StepState*>(host.data() + at.state); }
  uint32_t& word(uint32_t array, uint32_t i) { return host[array + i]; }
  uint32_t& of_row(uint32_t column, uint32_t stream, uint32_t row) {
    return host[at.table[column] + stream * shape.capacity + row];
  }
  enum Column : uint32_t { kSlots, kFirstPos, kLen, kFlags, kStamp, kScore };

  void fill();
  void fill_stream(uint32_t stream);
  void select(uint32_t layer);
  void answer(uint32_t layer);
  void step(uint32_t layer, bool only_lists = false);
  void begin();
  void compare(uint32_t layer);
  void compare_events(const PageEvent* got);
  void next_token();

  static constexpr uint32_t kLargeRing = 1u << 15;
  const Shape shape;
  StepRules rules;
  const Layout at;
  std::vector<uint32_t> host;
  std::vector<PageEvent> ring;
  uint32_t* device = nullptr;
  uint64_t events_from = 0;  // the number of the first event since the ring was cleared
  uint64_t n_back = 0, n_left = 0, n_asked = 0, n_late = 0, n_short = 0;
};

// Rows in the pool at random, the last always; slots in any order, and the rest of them free.
void Case::fill_stream(uint32_t stream) {
  const uint32_t window = shape.windows && one_in(2) ? kPageTokens * (1 + below(shape.n_slots - 1)) : 0;
  const uint32_t n = window != 0 ? window / kPageTokens : shape.fewest + below(shape.capacity - shape.fewest + 1);
  const uint32_t tokens = state().n_tokens;
  host[at.n_pages + stream] = n;
  std::vector<uint32_t> slots(shape.n_slots), rows;
  for (uint32_t i = 0; i < shape.n_slots; ++i) slots[i] = stream * shape.n_slots + i;
  for (uint32_t i = shape.n_slots; i-- > 1;) std::swap(slots[i], slots[below(i + 1)]);
  for (uint32_t row = 0; row + 1 < n; ++row) rows.push_back(row);
  for (uint32_t i = static_cast<uint32_t>(rows.size()); i-- > 1;) std::swap(rows[i], rows[below(i + 1)]);
  rows.insert(rows.begin(), n - 1);
  const uint32_t most = std::min(n, shape.n_slots);
  const uint32_t n_there = window == 0 && one_in(3) ? 1 + below(most) : most;
  host[at.window + stream] = window;
  const uint32_t n_prompt = one_in(3) ? 0 : below(n + 1);
  for (uint32_t row = 0; row < n; ++row) {
    const uint32_t r = stream * shape.capacity + row;
    of_row(kSlots, stream, row) = kNoSlot;
    of_row(kFirstPos, stream, row) = row * kPageTokens;
    of_row(kLen, stream, row) = kPageTokens;
    of_row(kFlags, stream, row) = row < n_prompt ? uint32_t{kPagePrompt} : 0;
    if (one_in(shape.pinned)) of_row(kFlags, stream, row) |= one_in(2) ? uint32_t{kPageKept} : uint32_t{kPagePinned};
    of_row(kStamp, stream, row) = below(one_in(2) ? 4 : tokens + 1);
    const float score = random_score();
    std::memcpy(&of_row(kScore, stream, row), &score, sizeof(score));
    host[at.raw_index + r] = one_in(shape.lost)        ? kNoCopy
                             : one_in(shape.elsewhere) ? kCopyElsewhere
                                                       : below(shape.n_rows());
  }
  for (uint32_t i = 0; i < n_there; ++i) of_row(kSlots, stream, rows[i]) = slots[i];
  for (uint32_t i = n_there; i < shape.n_slots; ++i)
    host[at.free_slots + stream * shape.n_slots + i - n_there] = slots[i];
  host[at.n_resident + stream] = n_there;
  for (uint32_t row = 0; row < 32 * shape.bit_words(); ++row)
    host_module::mark_row(host.data() + at.resident, shape.capacity + 40, stream, row,
                          row < n && of_row(kSlots, stream, row) != kNoSlot);
}

void Case::fill() {
  state() = {};
  host[at.counter] = 0;
  StepState& st = state();
  st.n_tokens = 3 + below(1000);
  // Counters whose low words overflow.
  st.pages_evicted = st.pages_evicted_before = events_from =
      (uint64_t{1 + below(3)} << 32) - (one_in(2) ? below(9) : 0);
  st.prompt_pages_evicted = (uint64_t{1} << 32) - below(5);
  st.pages_cold = one_in(2) ? (uint64_t{3} << 32) + below(4) : 5000;
  st.pages_lost = (uint64_t{1} << 32) - below(3);
  st.pages_recalled = (uint64_t{1} << 32) - below(9);
  for (uint32_t s = 0; s <= shape.n_streams(); ++s) {
    host[at.row_begin + s] = s * shape.capacity;
    host[at.slot_begin + s] = s * shape.n_slots;
  }
  for (uint32_t s = 0; s < shape.n_streams(); ++s) {
    fill_stream(s);
    st.pages_resident += host[at.n_resident + s];
  }
  if (one_in(2)) st.pages_resident += (uint64_t{7} << 32) - st.pages_resident - 3;
  st.pages_resident_max = st.pages_resident + (one_in(2) ? 0 : below(30));
  std::fill_n(host.begin() + at.heads, shape.n_streams() * 2, 0u);
  std::fill_n(host.begin() + at.posts, shape.n_kv_heads * 4, 0u);
  std::fill_n(host.begin() + at.answers, shape.n_kv_heads * 2, 0u);
}

KvTables Case::tables(uint32_t* words) const {
  KvTables t = {};
  t.slots = words + at.table[kSlots], t.first_pos = words + at.table[kFirstPos], t.len = words + at.table[kLen];
  t.flags = words + at.table[kFlags], t.stamp = words + at.table[kStamp];
  t.last_score = reinterpret_cast<float*>(words + at.table[kScore]);
  t.n_pages = words + at.n_pages, t.free_slots = words + at.free_slots, t.n_resident = words + at.n_resident;
  t.row_begin = words + at.row_begin, t.slot_begin = words + at.slot_begin;
  t.append_row = words + at.append_row, t.window = words + at.window;
  t.n_layers = shape.n_layers, t.n_kv_heads = shape.n_kv_heads;
  t.has_windows = shape.windows;
  return t;
}

PageEventRing Case::events(bool on_host) {
  if (on_host) return {seen(ring.data()), kLargeRing};
  if (shape.ring == 0) return {};
  return {reinterpret_cast<PageEvent*>(device + at.events), shape.ring};
}

StepBeginArgs Case::begin_args(bool on_host) {
  uint32_t* const words = on_host ? host.data() : device;
  StepBeginArgs a = {};
  a.tables = tables(words);
  a.rules = rules;
  a.state = reinterpret_cast<StepState*>(words + at.state);
  a.angles = reinterpret_cast<const double*>(words + at.angles);
  a.magnitude[0] = 1.0;
  a.rope_dim = a.stride = 2, a.n_rotations = 1;
  a.cos_sin = reinterpret_cast<float*>(words + at.cos_sin);
  a.counter = words + at.counter;
  a.events = events(on_host);
  a.raw_index = words + at.raw_index;
  a.resident = words + at.resident;
  a.max_capacity = shape.capacity + 40;
  a.digests = shape.digest_elements != 0 ? reinterpret_cast<uint16_t*>(words + at.digests) : nullptr;
  a.digest_elements = shape.digest_elements;
  return a;
}

PageRecallArgs Case::args(uint32_t layer, bool on_host) {
  uint32_t* const words = on_host ? host.data() : device;
  const auto mapped = [&](uint32_t array) { return on_host ? seen(words + array) : words + array; };
  PageRecallArgs a = {};
  a.tables = tables(words);
  a.layer = layer;
  a.rules = rules;
  a.state = reinterpret_cast<StepState*>(words + at.state);
  a.select = words + at.select, a.n_select = words + at.n_select;
  a.capacity = shape.capacity;
  a.n_slots = shape.n_slots;
  a.digest_elements = shape.digest_elements;
  if (shape.digest_elements != 0) {
    const uint32_t first = layer * shape.n_kv_heads * shape.capacity * shape.digest_elements / 2;
    a.digests = reinterpret_cast<uint16_t*>(words + at.digests + first);
  }
  a.pool = reinterpret_cast<uint16_t*>(words + at.pool);
  a.page_bytes = shape.page_bytes();
  a.raw_index = words + at.raw_index;
  a.resident = words + at.resident;
  a.max_capacity = shape.capacity + 40;
  a.events = events(on_host);
  a.host.most = shape.most;
  a.host.n_rows = shape.n_rows();
  a.host.n_pages = shape.n_kv_heads * shape.most;
  a.host.raw_pages = reinterpret_cast<std::byte*>(mapped(at.raw_pages));
  a.host.posts = reinterpret_cast<RecallPost*>(mapped(at.posts));
  a.host.answers = reinterpret_cast<RecallAnswer*>(mapped(at.answers));
  a.host.rows = mapped(at.rows);
  a.host.pages = reinterpret_cast<std::byte*>(mapped(at.sent));
  a.heads = reinterpret_cast<RecallHead*>(words + at.heads);
  a.entries = reinterpret_cast<RecallEntry*>(words + at.entries);
  return a;
}

// Rows at random, ascending, the last among them; first pages and those that are kept are always wanted.
void Case::select(uint32_t layer) {
  for (uint32_t head = 0; head < shape.n_kv_heads; ++head) {
    const uint32_t stream = layer * shape.n_kv_heads + head, n = host[at.n_pages + stream], share = 1 + below(4);
    uint32_t n_listed = 0;
    for (uint32_t row = 0; row < n; ++row) {
      const bool stays = row < rules.front_rows || (of_row(kFlags, stream, row) & kPageKept) != 0;
      if (row + 1 == n || stays || one_in(share)) host[at.select + head * shape.capacity + n_listed++] = row;
    }
    host[at.n_select + head] = n_listed;
  }
}

// As if the host had read the pages of the post that this layer will make.
void Case::answer(uint32_t layer) {
  const uint32_t now = state().n_tokens + 1, ticket = now * shape.n_layers + layer;
  for (uint32_t head = 0; head < shape.n_kv_heads; ++head) {
    host[at.answers + 2 * head] = ticket == 0 ? UINT32_MAX : ticket - (shape.answers || one_in(2) ? 0 : 1);
    host[at.answers + 2 * head + 1] = shape.answers || one_in(2) ? 0 : 1;
  }
}

void Case::step(uint32_t layer, bool only_lists) {
  Context& c = context();
  select(layer);
  answer(layer);
  expect_ok(c.copy_in(device, host.data(), host.size() * sizeof(uint32_t)));
  PageRecallArgs on_device = args(layer, false), on_host = args(layer, true);
  on_device.only_lists = on_host.only_lists = only_lists;
  expect_ok(page_recall(on_device));
  expect_ok(c.recorder.wait(c.device));
  OpContext cx;
  const StepState before = state();
  expect_ok(host_module::page_recall(cx, on_host));
  compare(layer);
  const StepState& after = state();
  n_back += after.pages_recalled - before.pages_recalled;
  n_left += after.pages_evicted - before.pages_evicted;
  n_late += after.is_late != 0 ? 1 : 0;
  for (uint32_t head = 0; head < shape.n_kv_heads; ++head) n_asked += host[at.posts + 4 * head] != 0 ? 1 : 0;
}

// The beginning of a step that opens pages.
void Case::begin() {
  Context& c = context();
  StepState& st = state();
  st.n_tokens = (st.n_tokens + kPageTokens) / kPageTokens * kPageTokens;
  expect_ok(c.copy_in(device, host.data(), host.size() * sizeof(uint32_t)));
  expect_ok(step_begin(begin_args(false)));
  expect_ok(c.recorder.wait(c.device));
  OpContext cx;
  const StepState before = st;
  expect_ok(host_module::step_begin(cx, begin_args(true)));
  n_left += st.pages_evicted - before.pages_evicted;
  compare(UINT32_MAX);
  st.n_without_room = 0;
}

void Case::compare(uint32_t layer) {
  Context& c = context();
  std::vector<uint32_t> got(at.n_words);
  expect_ok(c.copy_out(got.data(), device, got.size() * sizeof(uint32_t)));
  expect_ok(c.recorder.wait(c.device));
  for (uint32_t i = 0; i < at.compared; ++i) {
    // Beyond a list, and beyond what a stream brought back, anything may be.
    if (i >= at.select && i < at.n_select) {
      const uint32_t head = (i - at.select) / shape.capacity, place = (i - at.select) % shape.capacity;
      if (head < shape.n_kv_heads && place >= host[at.n_select + head]) continue;
    }
    if (got[i] != host[i])
      fail_msg(
          "layer %u: word %u is %u, not %u (slots %u, flags %u, n_resident %u, resident %u, lists %u, state %u, "
          "entries %u, pool %u)",
          layer, i, got[i], host[i], at.table[kSlots], at.table[kFlags], at.n_resident, at.resident, at.select,
          at.state, at.entries, at.pool);
  }
  std::copy(got.begin() + at.events, got.end(), host.begin() + at.events);
  compare_events(reinterpret_cast<const PageEvent*>(got.data() + at.events));
}

// The host's events are in the order of the streams, the device's in none.
void Case::compare_events(const PageEvent* got) {
  const uint64_t before = events_from, n = state().pages_evicted - before;
  const uint64_t n_kept = std::min<uint64_t>(n, shape.ring);
  using Key = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>;
  const auto key = [](const PageEvent& e) {
    return Key(e.layer, e.kv_head, e.first_pos, e.n_tokens, e.flags, e.left_at);
  };
  std::vector<Key> want, have;
  for (uint64_t i = 0; i < n; ++i) want.push_back(key(ring[(before + i) % kLargeRing]));
  for (uint64_t i = 0; i < n_kept; ++i) {
    assert_int_equal(got[(before + i) % shape.ring].index, before + i);
    have.push_back(key(got[(before + i) % shape.ring]));
  }
  std::sort(have.begin(), have.end());
  std::sort(want.begin(), want.end());
  assert_true(std::includes(want.begin(), want.end(), have.begin(), have.end()));
  n_short += n - n_kept;
}

// The next step, or the same one again.
void Case::next_token() {
  StepState& st = state();
  st.n_tokens += one_in(4) ? 0 : 1;
  st.is_late = 0;
  st.pages_evicted_before = events_from = st.pages_evicted;
  std::memset(host.data() + at.events, 0xA5, shape.ring * sizeof(PageEvent));
  std::fill_n(host.begin() + at.posts, shape.n_kv_heads * 4, 0u);
  for (uint32_t s = 0; s < shape.n_streams(); ++s) {
    for (uint32_t row = 0; row < host[at.n_pages + s]; ++row) {
      if (!one_in(4)) continue;
      const float score = random_score();
      std::memcpy(&of_row(kScore, s, row), &score, sizeof(score));
      if (one_in(2)) of_row(kStamp, s, row) = below(st.n_tokens + 1);
    }
  }
}

StepRules random_rules(const Shape& shape, bool by_parts) {
  StepRules r;
  r.front_rows = below(4);
  r.protect.pages = one_in(2) ? 0 : below(4);
  r.stamps_wanted = one_in(2);
  r.attend_wanted = one_in(2);
  r.prompt_slots = by_parts ? 1 + below(shape.n_slots) : 0;
  r.select_budget = 1 + below(shape.n_slots + 2);
  return r;
}

struct Totals {
  uint64_t n_back = 0, n_left = 0, n_asked = 0, n_late = 0, n_short = 0;
  void add(const Case& c) {
    n_back += c.n_back, n_left += c.n_left, n_asked += c.n_asked, n_late += c.n_late, n_short += c.n_short;
  }
};

Totals run_cases(const Shape& base, bool by_parts, uint32_t n_cases, uint32_t n_steps) {
  Totals totals;
  for (uint32_t i = 0; i < n_cases; ++i) {
    Shape shape = base;
    shape.most = 1 + below(base.most);
    shape.ring = one_in(4) ? 0 : one_in(3) ? 2 : base.ring;
    shape.lost = one_in(3) ? 1000 : base.lost;
    shape.elsewhere = one_in(3) ? 1000 : base.elsewhere;
    shape.digest_elements = one_in(4) ? 0 : base.digest_elements;
    Case test(shape, random_rules(shape, by_parts));
    for (uint32_t step = 0; step < n_steps; ++step) {
      for (uint32_t layer = 0; layer < shape.n_layers; ++layer) test.step(layer, one_in(9));
      test.next_token();
    }
    totals.add(test);
  }
  return totals;
}

void recall__small_pools(void**) {
  random_state = 31;
  const Totals t = run_cases({}, false, 40, 4);
  assert_true(t.n_back > 100 && t.n_left > 50 && t.n_asked > 20 && t.n_late == 0 && t.n_short > 10);
}

void recall__slots_for_prompts(void**) {
  random_state = 32;
  const Totals t = run_cases({}, true, 50, 4);
  assert_true(t.n_back > 100 && t.n_left > 50 && t.n_asked > 20 && t.n_late == 0);
}

// Nobody answers in time, or a page cannot be read: the step is late, and its later layers change nothing.
void recall__without_an_answer(void**) {
  random_state = 33;
  Shape shape;
  shape.n_layers = 4;
  shape.answers = false;
  const Totals t = run_cases(shape, false, 30, 3);
  assert_true(t.n_late > 30 && t.n_back > 50);
}

// Heads of other sizes, which make pages and digests of other sizes, and more of them.
void recall__other_shapes(void**) {
  random_state = 34;
  for (const bool by_parts : {false, true}) {
    for (const uint32_t head_dim : {24u, 64u, 128u}) {
      Shape shape;
      shape.n_layers = 3;
      shape.n_kv_heads = 5;
      shape.head_dim = head_dim;
      shape.digest_elements = 2 * head_dim;
      shape.capacity = 50;
      shape.n_slots = 20;
      shape.most = 30;  // more than slots
      const Totals t = run_cases(shape, by_parts, 4, 2);
      assert_true(t.n_back > 20 && t.n_left > 10);
    }
  }
}

// More rows than a workgroup has invocations, and words of bits, too.
void recall__long_tables(void**) {
  random_state = 35;
  for (const bool by_parts : {false, true}) {
    Shape shape;
    shape.n_layers = 1;
    shape.capacity = 1200;
    shape.n_slots = 300;
    shape.most = 100;
    shape.fewest = 700;
    Totals t = run_cases(shape, by_parts, 4, 2);
    assert_true(t.n_back > 40 && t.n_left > 20);
    shape.n_kv_heads = 1;
    shape.capacity = 9000;
    shape.n_slots = 80;
    shape.fewest = 8300;
    t = run_cases(shape, by_parts, 1, 2);
    assert_true(t.n_back > 0);
  }
}

// Before that a page opens in every stream, for which pages become cold; streams with windows slide.
void recall__cold_pages_as_pages_open(void**) {
  random_state = 36;
  for (const bool by_parts : {false, true}) {
    uint64_t n_left = 0;
    for (uint32_t i = 0; i < 60; ++i) {
      Shape shape;
      shape.n_layers = 3;
      shape.n_kv_heads = 3;
      shape.capacity = i % 10 == 0 ? 300 : 14;
      shape.n_slots = i % 10 == 0 ? 40 : 5;
      shape.windows = one_in(2);
      shape.ring = one_in(4) ? 0 : one_in(3) ? 2 : 64;
      shape.lost = one_in(2) ? 1000 : 4;
      shape.digest_elements = one_in(4) ? 0 : 16;
      Case test(shape, random_rules(shape, by_parts));
      for (uint32_t step = 0; step < 3; ++step) {
        test.begin();
        test.next_token();
      }
      n_left += test.n_left;
    }
    assert_true(n_left > 300);
  }
}

void recall__refuses(void**) {
  Case test({}, {});
  PageRecallArgs a = test.args(0, false);
  a.page_bytes = 24;
  assert_int_equal(page_recall(a).code(), WEIR_ERR_INTERNAL);
  a = test.args(0, false);
  a.digest_elements = 7;
  assert_int_equal(page_recall(a).code(), WEIR_ERR_INTERNAL);
  a = test.args(0, false);
  a.events.capacity = 63;
  assert_int_equal(page_recall(a).code(), WEIR_ERR_INTERNAL);
  a = test.args(0, false);
  a.capacity = kMaxRecallRows + 1;
  assert_int_equal(page_recall(a).code(), WEIR_ERR_INTERNAL);
}

}  // namespace
}  // namespace weir::vulkan

int main() {
  using namespace weir::vulkan;
  const CMUnitTest tests[] = {
      cmocka_unit_test(recall__small_pools),       cmocka_unit_test(recall__slots_for_prompts),
      cmocka_unit_test(recall__without_an_answer), cmocka_unit_test(recall__other_shapes),
      cmocka_unit_test(recall__long_tables),       cmocka_unit_test(recall__cold_pages_as_pages_open),
      cmocka_unit_test(recall__refuses),
  };
  return cmocka_run_group_tests_name("vulkan_page_recall", tests, nullptr, nullptr);
}
