// kv: the page codec gives back every bit, never needs more than the page, and takes nothing else for a page.
#include <malloc.h>

#include <memory>
#include <vector>

#include "kv/page_codec.h"
#include "kv/spill_cells.h"
#include "tests/cmocka_cpp.h"
#include "tests/kv/model_pages.h"
#include "tests/kv/page_makers.h"

namespace {

using namespace weir;
using namespace page_makers;

constexpr uint32_t kSizes[] = {256, 320, 4096, 8192, 16384, 32768};

// An aligned block of exactly n bytes, so that AddressSanitizer sees a byte beyond it.
struct Workspace {
  explicit Workspace(uint64_t n)
      : bytes(static_cast<std::byte*>(std::aligned_alloc(64, (n + 63) / 64 * 64)), &std::free) {}
  std::unique_ptr<std::byte, void (*)(void*)> bytes;
};

struct Codec {
  explicit Codec(uint32_t page_bytes)
      : n(page_bytes), one(PageEncoder::workspace_bytes(n)), two(PageDecoder::workspace_bytes(n)) {
    assert_true(encoder.init(n, one.bytes.get()).ok());
    assert_true(decoder.init(n, two.bytes.get()).ok());
  }
  Bytes encode(const Bytes& page) {
    Bytes out(n);
    out.resize(encoder.encode(page.data(), out.data()));
    return out;
  }
  Bytes block(const Bytes& page, uint32_t stream, uint32_t position) {
    Bytes out(max_block_bytes(n));
    const uint32_t stored = encoder.encode(page.data(), out.data() + kBlockHeaderBytes);
    write_block_header(page_checksum(page.data(), n, stream, position), stored, out.data());
    out.resize(kBlockHeaderBytes + stored);
    return out;
  }
  bool takes(const Bytes& block, uint32_t stream, uint32_t position) {
    Bytes out(n);
    return decoder.decode_block(block.data(), block.size(), stream, position, out.data());
  }
  // The size of the page's stored form, which must give the page back.
  size_t round_trip(const Bytes& page) {
    const Bytes stored = encode(page);
    assert_true(stored.size() <= n);
    Bytes back(n);
    assert_true(decoder.decode(stored.data(), stored.size(), back.data()));
    assert_memory_equal(back.data(), page.data(), n);
    return stored.size();
  }

  uint32_t n;
  Workspace one, two;
  PageEncoder encoder;
  PageDecoder decoder;
};

void page_codec__all_bit_patterns_return(void**) {
  for (uint32_t page_bytes : kSizes) {
    Codec codec(page_bytes);
    const uint32_t n = page_bytes / 2;
    // In order, and in two orders that make neighbours differ.
    for (uint32_t step : {1u, 129u, 40503u}) {
      for (uint32_t first = 0; first < 65536; first += n) {
        std::vector<uint16_t> values(n);
        for (uint32_t i = 0; i < n; ++i) values[i] = static_cast<uint16_t>((first + i) * step);
        codec.round_trip(page_of(values));
      }
    }
  }
}

void page_codec__noise_is_stored_as_it_is(void**) {
  for (uint32_t page_bytes : kSizes) {
    Codec codec(page_bytes);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Bytes page = random_page(page_bytes, seed);
      assert_int_equal(codec.round_trip(page), page_bytes);
      assert_memory_equal(codec.encode(page).data(), page.data(), page_bytes);
    }
  }
}

void page_codec__pages_of_models_shrink(void**) {
  for (uint32_t page_bytes : {4096u, 8192u, 32768u}) {
    Codec codec(page_bytes);
    size_t stored = 0;
    for (uint64_t seed = 0; seed < 50; ++seed) stored += codec.round_trip(model_page(page_bytes, seed));
    assert_true(static_cast<double>(stored) * 1.40 <= 50.0 * page_bytes);
  }
}

// Keys and values as the embedded model makes them; beside the bare ratio the one with checksums, cells and links.
void page_codec__the_embedded_model_s_pages_shrink(void**) {
  const std::string model = std::string(WEIR_SOURCE_DIR) + "/samples/models/weir-tiny-reasoner-q8_0.gguf";
  uint32_t page_bytes = 0;
#ifdef WEIR_INTERNAL_SANITIZED
  const uint64_t n_tokens = 120;
#else
  const uint64_t n_tokens = 1200;
#endif
  const std::vector<std::byte> pages = model_pages::read(model.c_str(), model_pages::sums(), n_tokens, page_bytes);
  assert_int_equal(page_bytes, 4096);
  assert_true(pages.size() > 100 * page_bytes);
  Codec codec(page_bytes);
  uint64_t stored = 0, cells = 0;
  for (auto at = pages.begin(); at != pages.end(); at += page_bytes) {
    const size_t n = codec.round_trip(Bytes(at, at + page_bytes));
    stored += n;
    cells += SpillCells::cells_for(kBlockHeaderBytes + n);
  }
  const auto raw = static_cast<double>(pages.size());
  assert_true(raw >= 1.44 * static_cast<double>(stored));
  assert_true(raw >= 1.33 * static_cast<double>(cells * SpillCells::kCellBytes));
}

void page_codec__one_value_alone_takes_half_a_page(void**) {
  for (uint32_t page_bytes : kSizes) {
    Codec codec(page_bytes);
    for (uint16_t value : {0x0000, 0x3F80, 0x7FC0, 0xFFFF})
      assert_true(codec.round_trip(page_of(std::vector<uint16_t>(page_bytes / 2, value))) <= page_bytes / 2 + 32);
  }
}

void page_codec__the_same_page_gives_the_same_bytes(void**) {
  Codec one(4096), other(4096);
  for (uint64_t seed = 0; seed < 30; ++seed) one.encode(seed % 2 == 0 ? random_page(4096, seed) : Bytes(4096));
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Bytes page = model_page(4096, seed);
    assert_true(one.encode(page) == other.encode(page));
  }
}

// A few bits of a Zstandard frame mean nothing here (of the window's size, for one): a page may come back in spite of
// them, but no other page.
void page_codec__no_flipped_bit_gives_another_page(void**) {
  Codec codec(1024);
  Bytes out(1024);
  for (const Bytes& page : {model_page(1024, 3), random_page(1024, 4)}) {
    Bytes block = codec.block(page, 5, 160);
    int n_harmless = 0;
    for (size_t bit = 0; bit < block.size() * 8; ++bit) {
      block[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      if (codec.decoder.decode_block(block.data(), block.size(), 5, 160, out.data())) {
        assert_true(out == page);
        ++n_harmless;
      }
      block[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    }
    assert_true(n_harmless <= (block.size() == max_block_bytes(1024) ? 0 : 12));
    assert_true(codec.takes(block, 5, 160));
  }
}

void page_codec__no_other_length_is_taken(void**) {
  Codec codec(4096);
  const Bytes whole = codec.block(model_page(4096, 1), 0, 0);
  for (size_t n = 0; n < whole.size(); ++n)
    assert_false(codec.takes(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n)), 0, 0));
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  assert_false(codec.takes(longer, 0, 0));
  longer.resize(100000);
  assert_false(codec.takes(longer, 0, 0));
  // The same with a header that names the cut length.
  for (size_t n = kBlockHeaderBytes; n < whole.size(); ++n) {
    Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n));
    const auto stored = static_cast<uint32_t>(n - kBlockHeaderBytes);
    std::memcpy(cut.data() + 8, &stored, 4);
    assert_false(codec.takes(cut, 0, 0));
  }
}

// A frame of another page size is whole and sound, but gives too few or too many exponents.
void page_codec__a_frame_of_another_size_is_no_page(void**) {
  Codec codec(1024);
  Bytes out(1024);
  codec.round_trip(model_page(1024, 1));
  for (uint32_t other : {512u, 960u, 1088u, 2048u}) {
    Codec wrong(other);
    Bytes stored = wrong.encode(model_page(other, 2));
    stored.resize(stored.size() - other / 2 + 512);
    assert_true(stored.size() < 1024);
    assert_false(codec.decoder.decode(stored.data(), stored.size(), out.data()));
  }
}

void page_codec__a_page_is_not_taken_for_another(void**) {
  Codec codec(4096);
  const Bytes block = codec.block(model_page(4096, 1), 7, 320);
  assert_true(codec.takes(block, 7, 320));
  for (const auto& [stream, position] : {std::pair{7u, 336u}, {6u, 320u}, {320u, 7u}, {7u, 0u}, {0u, 320u}})
    assert_false(codec.takes(block, stream, position));
}

// A decoder that failed works on; what it decodes does not depend on what came before.
void page_codec__garbage_does_no_harm(void**) {
  Codec codec(512);
  const Bytes page = model_page(512, 9), good = codec.encode(page);
  uint64_t state = 99;
  for (int i = 0; i < 20000; ++i) {
    Bytes bad = good;
    for (uint64_t k = 1 + next_random(state) % 4; k > 0; --k)
      bad[next_random(state) % bad.size()] = static_cast<std::byte>(next_random(state));
    if (i % 3 == 0) bad = random_page(static_cast<uint32_t>(next_random(state) % 600), state);
    Bytes exact(bad.begin(), bad.end()), out(512);
    codec.decoder.decode(exact.data(), exact.size(), out.data());
  }
  assert_int_equal(codec.round_trip(page), good.size());
}

// Zstandard has all its memory from the workspace.
void page_codec__takes_no_heap_memory(void**) {
#if defined(WEIR_INTERNAL_SANITIZED) || !defined(__GLIBC__)
  skip();
#else
  Codec codec(32768);
  const Bytes page = model_page(32768, 1);
  Bytes block(max_block_bytes(32768)), out(32768), noise = random_page(32768, 2);
  const struct mallinfo2 before = mallinfo2();
  for (int i = 0; i < 100; ++i) {
    const uint32_t stored = codec.encoder.encode(page.data(), block.data());
    assert_true(codec.decoder.decode(block.data(), stored, out.data()));
    codec.decoder.decode(noise.data(), 20000, out.data());
    codec.encoder.encode(noise.data(), block.data());
  }
  const struct mallinfo2 after = mallinfo2();
  assert_int_equal(after.uordblks, before.uordblks);
  assert_int_equal(after.arena + after.hblkhd, before.arena + before.hblkhd);
#endif
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(page_codec__all_bit_patterns_return),
      cmocka_unit_test(page_codec__noise_is_stored_as_it_is),
      cmocka_unit_test(page_codec__pages_of_models_shrink),
      cmocka_unit_test(page_codec__the_embedded_model_s_pages_shrink),
      cmocka_unit_test(page_codec__one_value_alone_takes_half_a_page),
      cmocka_unit_test(page_codec__the_same_page_gives_the_same_bytes),
      cmocka_unit_test(page_codec__no_flipped_bit_gives_another_page),
      cmocka_unit_test(page_codec__no_other_length_is_taken),
      cmocka_unit_test(page_codec__a_frame_of_another_size_is_no_page),
      cmocka_unit_test(page_codec__a_page_is_not_taken_for_another),
      cmocka_unit_test(page_codec__garbage_does_no_harm),
      cmocka_unit_test(page_codec__takes_no_heap_memory),
  };
  return cmocka_run_group_tests_name("kv/test_page_codec", tests, nullptr, nullptr);
}
