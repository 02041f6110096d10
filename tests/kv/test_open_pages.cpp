// kv: the pages that take tokens, in bf16 beside a pool in fewer bits (KvCache::open_for, reopen). Rows are written
// here as an append writes them.
#include <algorithm>
#include <cmath>

#include "ops/page_digest.h"
#include "tests/kv/cache_case.h"

namespace weir::test {
namespace {

constexpr uint32_t kDim = 32, kStreams = 4;

constexpr KvFormat kFormats[] = {KvFormat::kQ8, KvFormat::kK4V4};  // by rows, and by channels

KvShape small_shape(KvFormat format) {
  KvShape shape = {.n_layers = 2, .n_kv_heads = 2, .head_dim = kDim, .pages_per_stream = 20};
  shape.digest = DigestKind::kMinMax;
  shape.format = format;
  return shape;
}

// What a token's key and value are; `version` differs between conversations. Not of 8 bits.
float element(uint32_t stream, uint32_t pos, uint32_t i, uint32_t version, bool value) {
  return static_cast<float>((stream * 7 + pos * 31 + i * 13 + version * 5 + (value ? 3 : 0)) % 97) * 0.731f - 20.0f;
}

struct Conversation : Cache {
  explicit Conversation(KvFormat format) : Cache(small_shape(format)), format_(format) {
    std::fill(pages.begin(), pages.end(), std::byte{0xAB});  // memory comes as it is
  }

  // A pass over tokens that is committed, or taken back.
  void pass(uint32_t n, bool commits = true, uint32_t version = 0) {
    const uint32_t first = kv.n_tokens();
    assert_true(kv.reserve(n, 0, first + n).ok());
    for (uint32_t s = 0; s < kStreams; ++s) {
      for (uint32_t pos = first; pos < first + n; ++pos) write(s, pos, first, version);
    }
    commits ? kv.commit() : kv.rollback();
  }
  void steps(uint32_t n, uint32_t version = 0) {
    for (uint32_t i = 0; i < n; ++i) pass(1, true, version);
  }
  // A token of a pass that began at `first`.
  void write(uint32_t stream, uint32_t pos, uint32_t first, uint32_t version) {
    const KvView v = kv.view(stream / 2);
    const uint32_t row = pos / kPageTokens, t = pos % kPageTokens;
    float key[kDim], value[kDim];
    for (uint32_t i = 0; i < kDim; ++i) {
      key[i] = element(stream, pos, i, version, false);
      value[i] = element(stream, pos, i, version, true);
    }
    uint16_t* const page = v.pool + v.slots[size_t{stream % 2} * v.capacity + row] * v.page_elements();
    const auto keys = keys_in(format_, page, kDim);
    if (is_by_channel(keys.format)) {
      uint16_t rows[kPageTokens * kDim];
      std::copy_n(v.open_page(stream % 2, row), kPageTokens * kDim, rows);
      for (uint32_t p = std::max(first, row * kPageTokens); p <= pos; ++p) {
        for (uint32_t i = 0; i < kDim; ++i)
          rows[p % kPageTokens * kDim + i] = f32_to_bf16(element(stream, p, i, version, false));
      }
      store_by_channel(keys, rows, t + 1);
    } else {
      store_row(keys, t, key);
    }
    store_row(values_in(format_, page, kDim), t, value);
    if (!v.is_open(stream % 2, row)) return;
    uint16_t* const open = v.open_page(stream % 2, row);
    store_row(keys_in(KvFormat::kBf16, open, kDim), t, key);
    store_row(values_in(KvFormat::kBf16, open, kDim), t, value);
  }
  // The stored keys of the page that takes tokens, of all streams.
  std::vector<float> stored_keys() {
    std::vector<float> all;
    for (uint32_t s = 0; s < kStreams; ++s) {
      const KvView v = kv.view(s / 2);
      for (uint32_t t = 0; t < kv.n_tokens() % kPageTokens; ++t) {
        for (uint32_t i = 0; i < kDim; ++i)
          all.push_back(load_element(v.stored_keys_of(s % 2, kv.n_tokens() / kPageTokens), t, i));
      }
    }
    return all;
  }
  // Whether attention sees all rows of the last page as they were, or as they were rounded; each row is one of both.
  bool is_exact(uint32_t version = 0) {
    bool exact = true;
    const uint32_t row = kv.n_tokens() / kPageTokens;
    for (uint32_t s = 0; s < kStreams; ++s) {
      const KvView v = kv.view(s / 2);
      for (uint32_t t = 0; t < kv.n_tokens() % kPageTokens; ++t) {
        for (uint32_t i = 0; i < kDim; ++i) {
          const float seen = load_element(v.keys_of(s % 2, row), t, i),
                      was = bf16_to_f32(f32_to_bf16(element(s, row * kPageTokens + t, i, version, false))),
                      stored = bf16_to_f32(f32_to_bf16(load_element(v.stored_keys_of(s % 2, row), t, i)));
          // By channels what was rounded once is rounded again, with the rows that are left: half a step.
          const float room = is_by_channel(key_format(format_)) ? 2.6f : 0.0f;
          assert_true(seen == was || std::fabs(seen - stored) <= room);
          exact = exact && seen == was;
        }
      }
    }
    return exact;
  }

 private:
  KvFormat format_;
};

void steps_and_rewinds(void**) {
  for (const KvFormat format : kFormats) {
    for (uint32_t back = 1; back < 40; ++back) {
      Conversation c(format);
      c.steps(60);
      assert_true(c.is_exact());
      c.kv.truncate(60 - back);
      // Pages 3 (48..59) and 2 (32..47) are as they were, older ones are what they were rounded to.
      const uint32_t end = 60 - back;
      if (end % kPageTokens != 0) assert_int_equal(c.is_exact(), end > 32);
      c.steps(20);
      c.kv.truncate(end);
      if (end % kPageTokens != 0 && end > 32) assert_true(c.is_exact() || (60 - back + 20) / 16 > end / 16 + 1);
    }
  }
}

// Wherever a prompt begins and its chunks end: taken back, it leaves the page that was open as it was.
void prompts_taken_back(void**) {
  for (const KvFormat format : kFormats) {
    for (uint32_t begin = 33; begin < 66; ++begin) {
      for (uint32_t chunk = 2; chunk < 50; chunk += 3) {
        Conversation c(format);
        c.steps(begin);
        const std::vector<float> stored = c.stored_keys();
        c.kv.begin_prompt();
        c.pass(chunk, true, 1);
        c.pass(chunk, false, 2);
        c.pass(chunk, true, 3);
        c.kv.truncate(begin);
        assert_true(c.is_exact());
        assert_true(c.stored_keys() == stored);
        c.steps(3);
        assert_true(begin % kPageTokens >= 13 || c.is_exact());
      }
    }
  }
}

// A step of a device that was announced and did not come: its row is none.
void a_step_that_did_not_come(void**) {
  for (const KvFormat format : kFormats) {
    for (uint32_t begin = 33; begin < 50; ++begin) {
      Conversation c(format);
      c.steps(begin);
      c.kv.open_next();
      c.kv.begin_prompt();
      c.pass(20, true, 1);
      c.kv.truncate(begin + 1);
      (void)c.is_exact(1);  // each row is one of both
    }
  }
}

// Rows of an older conversation at the same place are none.
void older_rows(void**) {
  for (const KvFormat format : kFormats) {
    for (uint32_t back : {32u, 20u}) {
      Conversation c(format);
      c.steps(60);
      c.kv.truncate(back);
      c.kv.begin_prompt();
      c.pass(60 - back, true, 1);
      c.kv.truncate(41);
      assert_false(c.is_exact(1));  // and none of version 0
    }
  }
}

void copies(void**) {
  for (const KvFormat format : kFormats) {
    Conversation c(format), fork(format);
    c.steps(60);
    fork.kv.copy_from(c.kv, 60);
    assert_true(fork.is_exact());
    assert_true(fork.stored_keys() == c.stored_keys());
    fork.kv.truncate(41);
    assert_true(fork.is_exact());
  }
}

// Behind a rewind a digest is that of the keys that are left, as they are stored then.
void digests_after_rewinds(void**) {
  for (const KvFormat format : kFormats) {
    for (uint32_t end = 17; end < 60; ++end) {
      Conversation c(format);
      c.steps(60);
      c.kv.truncate(end);
      for (uint32_t s = 0; s < kStreams && end % kPageTokens != 0; ++s) {
        uint16_t want[2 * kDim];
        const KvView v = c.kv.view(s / 2);
        const uint32_t row = end / kPageTokens;
        digest_page(DigestKind::kMinMax, v.stored_keys_of(s % 2, row), end % kPageTokens, want);
        assert_memory_equal(v.digest_of(s % 2, row), want, sizeof(want));
      }
    }
  }
}

// Pages are stored, hashed and saved whole: what fills them up to a line is 0, whatever was in the memory.
void pages_end_in_zeros(void**) {
  Conversation c(KvFormat::kK4V4);
  c.steps(30);
  c.kv.begin_prompt();
  c.pass(40);
  const size_t used = kv_page_used_bytes(KvFormat::kK4V4, kDim), all = kv_page_bytes(KvFormat::kK4V4, kDim);
  assert_int_equal(all - used, 32);
  for (uint32_t s = 0; s < kStreams; ++s) {
    for (uint32_t page = 0; page < 5; ++page) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(c.kv.page_keys(c.kv.slot_of(s, page)));
      for (size_t i = used; i < all; ++i) assert_int_equal(bytes[i], 0);
    }
  }
}

const CMUnitTest tests[] = {
    {"open_pages__steps_and_rewinds", steps_and_rewinds, nullptr, nullptr, nullptr},
    {"open_pages__prompts_taken_back", prompts_taken_back, nullptr, nullptr, nullptr},
    {"open_pages__a_step_that_did_not_come", a_step_that_did_not_come, nullptr, nullptr, nullptr},
    {"open_pages__older_rows", older_rows, nullptr, nullptr, nullptr},
    {"open_pages__copies", copies, nullptr, nullptr, nullptr},
    {"open_pages__digests_after_rewinds", digests_after_rewinds, nullptr, nullptr, nullptr},
    {"open_pages__pages_end_in_zeros", pages_end_in_zeros, nullptr, nullptr, nullptr},
};

}  // namespace
}  // namespace weir::test

int main() { return cmocka_run_group_tests_name("kv/open_pages", weir::test::tests, nullptr, nullptr); }
