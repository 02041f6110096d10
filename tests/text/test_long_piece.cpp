// text: long pieces. Windows give what merging at once gives, for made-up merges of every kind, also where a symbol
// depends on what follows far behind it; and the memory for one long word stays small.
#include "text/long_piece.h"

#include <map>

#include "tests/text/text_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

using namespace weir;
using namespace weir_test;

namespace {

// Merges of tokens that are numbered; the letters 'a', 'b', ... are the tokens 0, 1, ...
struct Merges {
  struct Entry {
    uint32_t priority;
    weir_token merged;
  };
  std::map<std::pair<weir_token, weir_token>, Entry> entries;

  void apply(std::string_view text, MergeList& list) const {
    list.clear();
    for (size_t i = 0; i < text.size(); ++i) list.add(static_cast<uint32_t>(i), 1, static_cast<uint8_t>(text[i]) - 'a');
    list.run([this](const Symbol& left, const Symbol& right, uint32_t& priority) {
      const auto entry = entries.find({left.token, right.token});
      if (entry == entries.end()) return -1;
      priority = entry->second.priority;
      return entry->second.merged;
    });
  }
};

struct Result {
  std::vector<std::pair<size_t, weir_token>> symbols;  // length and token
  int n_undone = 0;
  Status status;
};

// By windows; `refused` is a token that emit does not take.
Result by_windows(const Merges& merges, std::string_view text, size_t window, weir_token refused = -1) {
  Result out;
  const auto merge = [&](std::string_view part, MergeList& list) { merges.apply(part, list); };
  const auto emit = [&](const Symbol& symbol, std::string_view) {
    if (symbol.token == refused) return Status(WEIR_ERR_FORMAT);
    out.symbols.emplace_back(symbol.n_bytes, symbol.token);
    return Status();
  };
  const auto undo = [&] {
    out.symbols.clear();
    ++out.n_undone;
  };
  out.status = LongPiece(merge, emit, undo, std::pmr::get_default_resource()).run(text, window);
  return out;
}

Result at_once(const Merges& merges, std::string_view text, weir_token refused = -1) {
  return by_windows(merges, text, text.size(), refused);
}

// Random merges of random tokens, and random texts of few letters.
void long_piece__windows_change_nothing(void**) {
  Random random(11);
  int n_undone = 0, n_refused = 0;
  for (int round = 0; round < 3000; ++round) {
    const uint32_t n_letters = 1 + random.below(4), n_merges = 1 + random.below(30);
    Merges merges;
    for (uint32_t i = 0; i < n_merges; ++i) {
      const auto token = [&] {
        const uint32_t drawn = random.below(n_letters + i);
        return static_cast<weir_token>(drawn < n_letters ? drawn : 100 + drawn - n_letters);
      };
      merges.entries[{token(), token()}] = {random.below(12), static_cast<weir_token>(100 + i)};
    }
    std::string text;
    for (uint32_t n = 1 + random.below(300); n > 0; --n) text += static_cast<char>('a' + random.below(n_letters));
    const weir_token refused = round % 5 == 0 ? static_cast<weir_token>(random.below(n_letters)) : -1;
    const Result wanted = at_once(merges, text, refused);
    n_refused += wanted.status.ok() ? 0 : 1;
    for (const size_t window : {4u, 9u, 16u, 50u, 128u}) {
      const Result got = by_windows(merges, text, window, refused);
      assert_int_equal(got.status.code(), wanted.status.code());
      if (wanted.status.ok()) assert_true(got.symbols == wanted.symbols);
      n_undone += got.n_undone;
    }
  }
  print_message("%d windows were too short, %d texts were refused\n", n_undone, n_refused);
  assert_true(n_undone > 100 && n_refused > 10);
}

// "abcdef..." with merges that are better the further right they are: whether "ab" or "bc" merges depends on the last
// letter, so no window but the whole will do.
void long_piece__a_chain_from_the_far_end(void**) {
  constexpr int kLetters = 90;
  Merges merges;
  std::string text;
  for (int i = 0; i < kLetters; ++i) text += static_cast<char>('a' + i);
  for (int i = 0; i + 1 < kLetters; ++i) {
    merges.entries[{i, i + 1}] = {static_cast<uint32_t>(kLetters - i), static_cast<weir_token>(1000 + i)};
  }
  for (const size_t n : {89u, 90u}) {
    const std::string_view part = std::string_view(text).substr(0, n);
    const Result wanted = at_once(merges, part), got = by_windows(merges, part, 16);
    assert_true(got.symbols == wanted.symbols);
    assert_int_equal(wanted.symbols.front().first, n % 2 == 0 ? 2 : 1);
  }
  assert_true(by_windows(merges, std::string_view(text).substr(0, 89), 16).n_undone > 0);
}

// A symbol that is refused is found with the windows that everything else needs: nothing is done again because of it.
void long_piece__an_error_needs_no_longer_windows(void**) {
  Merges merges;
  merges.entries[{0, 1}] = {1, 100};
  for (const size_t at : {0u, 150u, 299u}) {
    std::string text;
    while (text.size() < 300) text += "ab";
    text[at] = 'c';
    const Result got = by_windows(merges, text, 16, 2);
    assert_int_equal(got.status.code(), WEIR_ERR_FORMAT);
    assert_int_equal(got.n_undone, 0);
  }
}

// Words of real vocabularies, longer than some windows: the ids are those of merging in one window.
void long_piece__words_of_a_real_vocabulary(void**) {
  Random random(12);
  for (const char* name : {"gpt-2", "llama-spm"}) {
    const Opened vocab(vocab_path(name));
    for (const uint32_t n_letters : {1u, 2u, 5u, 26u}) {
      std::string word;
      while (word.size() < 5 * kWindowBytes) word += static_cast<char>('a' + random.below(n_letters));
      const Ids ids = encode(*vocab, word);
      assert_true(decode(*vocab, ids) == word);
      // A part that ends with a token has the tokens of the whole, and is short enough for one window.
      size_t n_ids = 0, n_bytes = 0;
      for (; n_bytes < kWindowBytes - 100; ++n_ids) n_bytes += vocab->decode(ids[n_ids], true, n_ids == 0).size();
      const Ids part = encode(*vocab, std::string_view(word).substr(0, n_bytes));
      assert_true(part == Ids(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(n_ids)));
    }
  }
}

// Peak bytes per byte of text; there were 72 when a word was one list of symbols.
void long_piece__memory_of_one_word(void**) {
  constexpr size_t kBytes = size_t{8} << 20;
  for (const char* name : {"gpt-2", "llama-spm"}) {
    const Opened vocab(vocab_path(name));
    Random random(13);
    for (const uint32_t n_letters : {1u, 26u}) {
      std::string word;
      while (word.size() < kBytes) word += static_cast<char>('a' + random.below(n_letters));
      HostMemory memory{AllocatorHooks()};
      std::pmr::vector<weir_token> ids(&memory);
      assert_true(vocab->encode(word, 0, ids).ok());
      const double bytes = static_cast<double>(memory.peak_bytes()) / kBytes;
      print_message("%s, words of %u letters: %.2f bytes for a byte, %.2f ids\n", name, n_letters, bytes,
                    static_cast<double>(ids.size()) / kBytes);
      assert_true(bytes < 7.25);
    }
  }
}

// The texts that take most: no two bytes are of one token, spaces are three bytes in SentencePiece's spelling, and a
// token stands for no byte at all.
void long_piece__memory_at_worst(void**) {
  constexpr size_t kBytes = size_t{4} << 20;
  const Opened spm(spm_parts().file()), bpe(byte_level_parts().file());
  for (const char unit : {' ', '\xFF', 'q', 'a'}) {
    for (const Opened* vocab : {&spm, &bpe}) {
      HostMemory memory{AllocatorHooks()};
      std::pmr::vector<weir_token> ids(&memory);
      assert_true((*vocab)->encode(std::string(kBytes, unit), 0, ids).ok());
      const double bytes = static_cast<double>(memory.peak_bytes()) / kBytes;
      print_message("0x%02X, %s: %.2f bytes for a byte\n", static_cast<uint8_t>(unit), (*vocab)->kind(), bytes);
      assert_true(bytes < 10);
    }
  }
}

// A byte that the vocabulary cannot spell makes the call fail, in no more memory than a good text takes.
void long_piece__memory_of_an_error(void**) {
  constexpr size_t kBytes = size_t{4} << 20;
  VocabParts bpe = byte_level_parts(), spm;
  bpe.tokens['q'] = "qq";
  spm.model = "llama";
  spm.add("a");  // a SentencePiece vocabulary of three tokens has an unknown one
  spm.add("\xE2\x96\x81");
  for (const VocabParts& parts : {bpe, spm}) {
    const Opened vocab(parts.file());
    assert_true(vocab.status().ok());
    for (const size_t at : {size_t{0}, kBytes / 2, kBytes - 1}) {
      std::string text(kBytes, 'a');
      text[at] = 'q';
      HostMemory memory{AllocatorHooks()};
      std::pmr::vector<weir_token> ids(&memory);
      assert_int_equal(vocab->encode(text, 0, ids).code(), WEIR_ERR_FORMAT);
      assert_non_null(strstr(last_error_text(), "0x71"));
      assert_true(ids.empty());
      const double bytes = static_cast<double>(memory.peak_bytes()) / kBytes;
      print_message("%s, byte %zu: %.2f bytes for a byte\n", vocab->kind(), at, bytes);
      assert_true(bytes < 10);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(long_piece__windows_change_nothing),
      cmocka_unit_test(long_piece__a_chain_from_the_far_end),
      cmocka_unit_test(long_piece__an_error_needs_no_longer_windows),
      cmocka_unit_test(long_piece__words_of_a_real_vocabulary),
      cmocka_unit_test(long_piece__memory_of_one_word),
      cmocka_unit_test(long_piece__memory_at_worst),
      cmocka_unit_test(long_piece__memory_of_an_error),
  };
  return cmocka_run_group_tests_name("text/long_piece", tests, nullptr, nullptr);
}
