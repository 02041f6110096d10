// kv: the state of recurrent layers is always that of the conversation's tokens, whatever was read, taken back, cut,
// saved or copied; which snapshots there are; and that damaged bytes, refused memory and resets leave nothing behind.
#include "kv/recurrent_state.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/cmocka_cpp.h"

namespace {

using namespace weir;

constexpr RecurrentShape kLayers = {.n_layers = 3,
                                    .n_taps = 4,
                                    .n_channels = 5,
                                    .n_heads = 2,
                                    .key_dim = 3,
                                    .value_dim = 7,
                                    .n_key_heads = 1,
                                    .in_width = 5,
                                    .gate_width = 2,
                                    .width = 14};

// What an element of a layer's state is after tokens with this hash; 0: after none.
float value_of(uint32_t hash, uint32_t layer, uint64_t i) {
  return hash == 0 ? 0.0f : static_cast<float>((hash + layer * 7u + i % 5) % 8191u + 1u);
}

// Memory that only copies reach; `refuses` makes them fail.
struct Elsewhere final : StateMemory {
  std::vector<float> state;
  bool refuses = false;
  Status copy_state_out(float* host, const float* from, uint64_t n) override {
    if (refuses) return fail(WEIR_ERR_DEVICE_LOST, "the device is lost");
    std::copy_n(from, n, host);
    return {};
  }
  Status copy_state_in(float* to, const float* host, uint64_t n) override {
    if (refuses) return fail(WEIR_ERR_DEVICE_LOST, "the device is lost");
    std::copy_n(host, n, to);
    return {};
  }
};

// A state in exactly the memory that it asks for, with the passes and prompts of a session.
struct Session {
  std::vector<std::byte> recurrent, snapshots, host, rest;
  Elsewhere elsewhere;
  RecurrentState state;
  uint32_t n_tokens = 0, next_token = 0;
  std::vector<uint32_t> hashes = {0};  // of the first tokens, by their number; no two conversations have the same

  explicit Session(uint32_t n_snapshots, uint32_t snapshot_tokens = 16, bool is_elsewhere = false) {
    state.set_shape({kLayers, n_snapshots, snapshot_tokens, is_elsewhere});
    Arena m[4], unused;
    Arenas measured = {unused, unused, unused, m[2], m[3], m[0], m[1]};
    state.lay_out(measured);
    std::vector<std::byte>* const blocks[] = {&recurrent, &snapshots, &host, &rest};
    for (int i = 0; i < 4; ++i) blocks[i]->assign(m[i].used(), std::byte{0x5A});
    Arena a(recurrent.data(), recurrent.size()), b(snapshots.data(), snapshots.size()), c(host.data(), host.size());
    Arena d(rest.data(), rest.size());
    Arenas arenas = {unused, unused, unused, c, d, a, b};
    state.lay_out(arenas);
    assert_int_equal(a.used(), m[0].used());
    assert_int_equal(b.used(), m[1].used());
    if (is_elsewhere) {
      elsewhere.state.assign(2 * kLayers.elements(), 3.0f);
      state.set_memory(elsewhere, elsewhere.state.data());
    }
    state.reset();
    for (const float value : elsewhere.state) assert_true(value == 0.0f);  // of both copies
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // A pass writes the other copy; a failed one stops in the middle of the layers.
  void write_layers(uint32_t n, uint32_t n_layers) {
    hashes.resize(n_tokens + 1);
    for (uint32_t i = 0; i < n; ++i) hashes.push_back((hashes.back() + ++next_token) * 2654435761u | 1u);
    for (uint32_t l = 0; l < n_layers; ++l) {
      const LayerState layer = state.layer(l);
      for (uint64_t i = 0; i < uint64_t{kLayers.n_taps - 1} * kLayers.n_channels; ++i)
        layer.rows_after()[i] = value_of(hashes.back(), l, i);
      for (uint64_t i = 0; i < uint64_t{kLayers.n_heads} * kLayers.key_dim * kLayers.value_dim; ++i)
        layer.sums_after()[i] = value_of(hashes.back(), l, i);
    }
  }
  void pass(uint32_t n) {
    write_layers(n, kLayers.n_layers);
    state.seal(n_tokens, n_tokens + n);
    n_tokens += n;
  }
  void failed_pass(uint32_t n) {
    write_layers(n, 2);
    state.roll_back(n_tokens);
  }
  void steps(uint32_t n) {
    for (; n > 0; --n) pass(1);
  }
  void chunks(uint32_t n) {
    for (uint32_t done = 0; done < n;) {
      const uint32_t chunk = std::min({n - done, state.max_chunk(), 40u});
      pass(chunk);
      done += chunk;
    }
  }
  void prompt(uint32_t n) {
    state.begin_prompt();
    chunks(n);
    state.end_prompt();
  }
  void cancelled_prompt(uint32_t n) {
    const uint32_t before = n_tokens;
    state.begin_prompt();
    chunks(n);
    assert_true(state.can_cut(before, false).ok());
    state.roll_back(before);
    state.give_up_prompt();
    n_tokens = before;
  }
  // To the nearest place at or before n.
  void rewind(uint32_t n) {
    const uint32_t at = state.nearest(n);
    assert_true(at <= n && state.can_cut(at, false).ok());
    state.cut(at);
    n_tokens = std::min(n_tokens, at);
  }
  void check(const char* when) const {
    if (state.n_tokens() != n_tokens) fail_msg("%s: %u tokens, not %u", when, state.n_tokens(), n_tokens);
    for (uint32_t l = 0; l < kLayers.n_layers; ++l) {
      const LayerState layer = state.layer(l);
      for (uint64_t i = 0; i < uint64_t{kLayers.n_taps - 1} * kLayers.n_channels; ++i) {
        if (layer.rows_before()[i] != value_of(hashes[n_tokens], l, i))
          fail_msg("%s: row element %u of layer %u is not that of %u tokens", when, (unsigned)i, l, n_tokens);
      }
      for (uint64_t i = 0; i < uint64_t{kLayers.n_heads} * kLayers.key_dim * kLayers.value_dim; ++i) {
        if (layer.sums_before()[i] != value_of(hashes[n_tokens], l, i))
          fail_msg("%s: sum %u of layer %u is not that of %u tokens", when, (unsigned)i, l, n_tokens);
      }
    }
  }
  // All places that it can go back to, the present excepted.
  std::vector<uint32_t> places() const {
    std::vector<uint32_t> found;
    for (uint32_t n = n_tokens; n > 0;) {
      const uint32_t at = state.nearest(n - 1);
      if (at == 0) break;
      found.insert(found.begin(), at);
      n = at;
    }
    return found;
  }
};

void assert_places(const Session& s, const std::vector<uint32_t>& want, const char* when) {
  const std::vector<uint32_t> got = s.places();
  if (got == want) return;
  std::string text;
  for (uint32_t n : got) text += " " + std::to_string(n);
  fail_msg("%s: places%s", when, text.c_str());
}

bool is_zero(const std::vector<std::byte>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Nothing of a state is in it: what was used is zero, and the rest is as it came.
bool is_clear(const std::vector<std::byte>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0} || b == std::byte{0x5A}; });
}

void state__takes_what_it_measured(void**) {
  // 15 rows and 42 sums in multiples of 16 floats; twice, and once for each snapshot.
  const uint64_t bytes = uint64_t{3} * (16 + 48) * sizeof(float);
  const Session s(5);
  assert_int_equal(kLayers.elements() * sizeof(float), bytes);
  assert_int_equal(s.recurrent.size(), 2 * bytes);
  assert_int_equal(s.snapshots.size(), 5 * bytes);
  assert_true(s.rest.empty());
  const Session device(5, 16, true);
  assert_int_equal(device.recurrent.size(), 2 * bytes);
  assert_int_equal(device.rest.size(), bytes / 3);  // one layer at a time goes through the host
  // A model without such layers has none of it.
  RecurrentState none;
  Arena arena;
  Arenas all = Arenas::all_in(arena);
  none.lay_out(all);
  none.reset();
  none.seal(0, 100);
  none.begin_prompt();
  none.near_prompt_end();
  none.end_prompt();
  none.cut(3);
  assert_int_equal(arena.used(), 0);
  assert_false(none.is_on());
  assert_int_equal(none.nearest(7), 7);
  assert_int_equal(none.max_chunk(), UINT32_MAX);
}

void state__snapshots_at_multiples(void**) {
  Session s(8);
  s.chunks(40);  // 16, 16, 8
  assert_int_equal(s.state.max_chunk(), 8);
  assert_places(s, {16, 32}, "after 40");
  s.steps(8);
  assert_places(s, {16, 32}, "at 48, which is the present");
  assert_int_equal(s.state.nearest(48), 48);
  assert_int_equal(s.state.nearest(47), 32);
  assert_int_equal(s.state.nearest(15), 0);
  s.steps(1);
  assert_places(s, {16, 32, 48}, "after 49");
  s.failed_pass(3);
  s.check("after a pass that failed");
  assert_places(s, {16, 32, 48}, "after a pass that failed");
  // Between snapshots it cannot go; what it says is where it can.
  const Status status = s.state.can_cut(47, true);
  assert_int_equal(status.code(), WEIR_ERR_NOT_FOUND);
  assert_non_null(std::strstr(last_error_text(), "47 tokens"));
  assert_non_null(std::strstr(last_error_text(), "has 32"));
  assert_true(s.state.can_cut(49, false).ok());
  s.rewind(47);
  s.check("after a rewind to 32");
  assert_int_equal(s.n_tokens, 32);
  assert_places(s, {16}, "what is behind a rewind is gone");
  s.rewind(9);
  s.check("after a rewind to the beginning");
  assert_places(s, {}, "at the beginning");
}

// The one of three places leaves whose neighbours are the nearest to each other, by its distance from the end. At 64:
// 16 has 32 / 49, 32 has 32 / 33, 48 has 32 / 17. At 80: 32 has 48 / 49, 48 has 32 / 33, 64 has 32 / 17. At 96: 32 has
// 64 / 65, 64 has 48 / 33, 80 has 32 / 17.
void state__the_place_that_is_missed_least_leaves(void**) {
  Session s(3);
  s.steps(49);
  assert_places(s, {16, 32, 48}, "49");
  s.steps(16);
  assert_places(s, {32, 48, 64}, "65");
  s.steps(16);
  assert_places(s, {32, 64, 80}, "81");
  s.steps(16);
  assert_places(s, {64, 80, 96}, "97");
  // However long it gets, the last multiple is there, and the gaps grow with the distance.
  Session longer(6);
  longer.steps(16 * 300 + 1);
  const std::vector<uint32_t> places = longer.places();
  assert_int_equal(places.size(), 6);
  assert_int_equal(places.back(), 16 * 300);
  for (size_t i = 2; i < places.size(); ++i) assert_true(places[i - 1] - places[i - 2] >= places[i] - places[i - 1]);
}

// The answer may be as long as it likes: where its message began and ended stays.
void state__a_message_stays(void**) {
  for (uint32_t n_snapshots : {2u, 3u, 4u, 9u}) {
    Session s(n_snapshots);
    s.prompt(103);
    s.steps(16 * 50);
    assert_int_equal(s.state.nearest(103), 103);
    s.prompt(55);  // 903 to 958
    s.steps(16 * 50 + 3);
    assert_int_equal(s.state.nearest(958), 958);
    assert_int_equal(s.state.nearest(957) >= 903, true);
    assert_int_equal(s.state.nearest(903), 903);
    const uint32_t before = s.n_tokens;
    s.cancelled_prompt(200);
    s.check("a prompt that is taken back");
    assert_int_equal(s.n_tokens, before);
    assert_int_equal(s.state.nearest(958), 958);
    s.rewind(960);
    s.check("to the message's end");
    assert_int_equal(s.n_tokens, 958);
    s.rewind(920);
    s.check("to its beginning");
    assert_true(s.n_tokens >= 903 || n_snapshots == 2);  // whose place the cancelled prompt's beginning took
  }
  // One place: the last message's end, but while a prompt is read its beginning.
  Session s(1);
  s.prompt(33);
  s.steps(100);
  assert_places(s, {33}, "one place");
  s.state.begin_prompt();
  s.chunks(70);
  assert_places(s, {133}, "one place in a prompt");
  s.state.roll_back(133);
  s.state.give_up_prompt();
  s.n_tokens = 133;
  s.check("one place, taken back");
  s.prompt(10);
  s.steps(64);
  assert_places(s, {143}, "one place after a prompt");
}

// Pages that may leave: the message's end is where its last full page ended.
void state__near_the_end_of_a_prompt(void**) {
  for (uint32_t n_snapshots : {1u, 2u, 3u, 8u}) {
    Session s(n_snapshots);
    s.prompt(20);
    s.state.begin_prompt();
    s.pass(12);
    s.pass(16);
    s.state.near_prompt_end();  // 48
    s.pass(5);
    s.state.end_prompt();
    s.steps(400);
    // One place was the prompt's beginning until its end.
    assert_int_equal(s.state.nearest(53), n_snapshots == 1 ? 53 : 48);
    s.check("after steps");
    // A prompt of which a part stays ends where it stops.
    s.state.begin_prompt();
    s.pass(7);
    s.state.end_prompt();
    assert_int_equal(s.n_tokens, 460);
    s.steps(1);
    assert_int_equal(s.state.nearest(460), 460);
  }
}

// Any order of what a session does. With memory elsewhere the same places and values, but for what it looks like there.
void state__any_order_is_that_of_the_tokens(void**) {
  uint32_t seed = 1;
  const auto draw = [&seed](uint32_t n) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
  };
  for (uint32_t round = 0; round < 60; ++round) {
    const uint32_t n_snapshots = 1 + draw(6), every = 16 + draw(40);
    Session s(n_snapshots, every), device(n_snapshots, every, true);
    for (uint32_t i = 0; i < 60; ++i) {
      const uint32_t kind = draw(7), n = 1 + draw(90), to = draw(s.n_tokens + 1);
      const bool resets = kind == 6 && draw(9) == 0;
      for (Session* x : {&s, &device}) {
        const uint32_t before = x->n_tokens;
        if (kind == 0) x->prompt(n);
        if (kind == 1) x->cancelled_prompt(n);
        if (kind == 2) x->failed_pass(n);
        if (kind == 3) x->steps(n);
        if (kind == 4) x->chunks(n);
        if (kind == 5) x->rewind(to);
        if (resets) {
          x->state.reset();
          x->n_tokens = 0;
        }
        if (kind == 1 || kind == 2) assert_int_equal(x->n_tokens, before);
        x->check("in any order");
      }
      assert_int_equal(s.n_tokens, device.n_tokens);
      assert_true(s.places() == device.places());
      assert_true(s.places().size() <= n_snapshots);
    }
  }
}

void state__a_lost_device_has_no_snapshots(void**) {
  Session s(4, 16, true);
  s.prompt(10);
  s.elsewhere.refuses = true;
  s.steps(30);
  assert_places(s, {10}, "what could not be copied is no snapshot");
}

void state__reset_and_copies(void**) {
  Session s(4), fresh(4);
  s.prompt(60);
  s.steps(40);
  s.rewind(70);
  Session copy(4);
  copy.state.copy_from(s.state, s.n_tokens);
  copy.n_tokens = s.n_tokens;
  copy.hashes = s.hashes;
  copy.check("a copy");
  assert_true(copy.places() == s.places());
  s.steps(5);
  s.state.reset();
  s.n_tokens = 0;
  s.check("a reset");
  assert_true(is_zero(s.recurrent));
  // Places that nothing was ever in are not touched.
  const uint64_t one = kLayers.elements() * sizeof(float);
  assert_true(is_clear(s.snapshots));
  assert_true(fresh.snapshots == std::vector<std::byte>(4 * one, std::byte{0x5A}));
  copy.check("a copy of what is gone");
  copy.rewind(62);
  copy.check("a copy goes back");
  assert_int_equal(copy.n_tokens, 60);
  // The message's places came along.
  copy.steps(16 * 40);
  assert_int_equal(copy.state.nearest(60), 60);
}

struct File final : ByteSink, ByteSource {
  std::vector<uint8_t> bytes;
  Answer write(const void* data, uint64_t n, uint64_t) override {
    const auto* from = static_cast<const uint8_t*>(data);
    bytes.insert(bytes.end(), from, from + n);
    return {};
  }
  Answer read(void* data, uint64_t n, uint64_t at, uint64_t& n_read) override {
    n_read = std::min<uint64_t>(n, bytes.size() - std::min<uint64_t>(at, bytes.size()));
    if (n_read != 0) std::memcpy(data, bytes.data() + at, n_read);
    return {};
  }
};

Status run(Io& io, Session& s, uint32_t n_tokens) {
  io.n_tokens = n_tokens;
  WEIR_TRY(io.begin(kWholeVersion));
  WEIR_TRY(s.state.io(io));
  return io.finish();
}

File saved(Session& s, uint32_t n_tokens) {
  File file;
  Io io(static_cast<ByteSink&>(file));
  assert_true(run(io, s, n_tokens).ok());
  return file;
}

Status restore(File& file, Session& s, uint32_t n_tokens) {
  s.state.reset();
  s.n_tokens = 0;
  Io io(static_cast<ByteSource&>(file));
  const Status status = run(io, s, n_tokens);
  if (!status.ok()) s.state.reset();
  if (status.ok()) s.n_tokens = n_tokens;
  return status;
}

void state__saved_and_restored(void**) {
  for (const bool from_device : {false, true}) {
    for (const bool to_device : {false, true}) {
      Session s(4, 16, from_device), other(4, 16, to_device);
      s.prompt(60);
      s.steps(40);
      other.prompt(200);
      File file = saved(s, 100);
      assert_true(restore(file, other, 100).ok());
      other.hashes = s.hashes;
      other.next_token = s.next_token;
      other.check("restored");
      assert_true(other.places() == s.places());
      assert_true(saved(other, 100).bytes == file.bytes);
      // Saving changes nothing, nor does it forget what is to be wiped.
      s.rewind(40);
      (void)saved(s, s.n_tokens);
      s.state.reset();
      assert_true(is_clear(s.snapshots));
      assert_true(restore(file, s, 100).ok());
      for (Session* x : {&s, &other}) x->steps(16 * 30);
      assert_true(other.places() == s.places());
      other.rewind(60);
      other.check("restored and gone back");
      assert_int_equal(other.n_tokens, 60);
    }
  }
}

void state__damaged_bytes_leave_a_reset(void**) {
  Session s(3), other(3);
  s.prompt(60);
  s.steps(40);
  File file = saved(s, 100);
  const uint64_t bytes = kLayers.elements() * sizeof(float);
  // Behind the header of 24 bytes and the section's name: the state, the message, then a count before each snapshot.
  const uint64_t message = 24 + 4 + bytes, first = message + 8;
  struct Lie {
    uint64_t at;
    const char* text;
  };
  for (const Lie& lie :
       {Lie{message, "a message at 101 of 100"}, Lie{message + 4, "a message at 101 of 100"},
        Lie{first, "a snapshot of 101 tokens of 100"}, Lie{first + 4 + bytes, "a snapshot of 101 tokens of 100"}}) {
    File changed = file;
    changed.bytes[lie.at] = 101;
    assert_int_equal(restore(changed, other, 100).code(), WEIR_ERR_FORMAT);
    if (std::strstr(last_error_text(), lie.text) == nullptr) fail_msg("not \"%s\": %s", lie.text, last_error_text());
    other.check("after a lie");
    assert_places(other, {}, "after a lie");
    assert_true(is_zero(other.recurrent));
  }
  for (uint64_t n = 0; n < file.bytes.size(); n += 5) {  // cut off, and with a bit that is another one
    File changed = file;
    changed.bytes.resize(n);
    assert_false(restore(changed, other, 100).ok());
    changed = file;
    changed.bytes[n] ^= 4;
    assert_false(restore(changed, other, 100).ok());
    other.check("after damage");
    assert_true(is_zero(other.recurrent));
    assert_true(is_clear(other.snapshots));
  }
  assert_true(restore(file, other, 100).ok());
  other.hashes = s.hashes;
  other.check("the file itself");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(state__takes_what_it_measured),
      cmocka_unit_test(state__snapshots_at_multiples),
      cmocka_unit_test(state__the_place_that_is_missed_least_leaves),
      cmocka_unit_test(state__a_message_stays),
      cmocka_unit_test(state__near_the_end_of_a_prompt),
      cmocka_unit_test(state__any_order_is_that_of_the_tokens),
      cmocka_unit_test(state__a_lost_device_has_no_snapshots),
      cmocka_unit_test(state__reset_and_copies),
      cmocka_unit_test(state__saved_and_restored),
      cmocka_unit_test(state__damaged_bytes_leave_a_reset),
  };
  return cmocka_run_group_tests_name("kv_recurrent_state", tests, nullptr, nullptr);
}
