// text: the look-up tables of a vocabulary withstand hostile files. The hash is the one it claims to be, every model
// has a key of its own, and files whose entries all collided under the hash without a key cost no more than others.
#include "core/notes.h"
#include "tests/text/text_test.h"
#include "text/bpe.h"
#include "text/keyed_hash.h"
#include "text/text_hash.h"

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

// The values of SipHash's authors for 2 and 4 rounds; those of CPython with PYTHONHASHSEED=0 for 1 and 3.
void keyed_hash__is_siphash(void**) {
  const HashKey counting = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u}, zero;
  const std::string bytes("\0\1\2\3\4\5\6\7\10\11\12\13\14\15\16", 15);
  assert_true((sip_hash<2, 4>("", counting) == 0x726fdb47dd0e0e31u));
  assert_true((sip_hash<2, 4>(bytes, counting) == 0xa129ca6149be45e5u));
  assert_true(keyed_hash("a", zero) == 0x407448d2b89b1813u);
  assert_true(keyed_hash("Weir", zero) == 0x2ef09d243b4833d7u);
  assert_true(keyed_hash("12345678", zero) == 0x3489982430560a87u);
  assert_true(keyed_hash("a text of more than two words", zero) == 0xc5004e0cfb6cea9au);
}

void keyed_hash__keys_differ(void**) {
  std::vector<std::pair<uint64_t, uint64_t>> seen;
  for (int i = 0; i < 100; ++i) {
    const HashKey key = random_hash_key();
    for (const auto& other : seen) assert_true(key.k0 != other.first && key.k1 != other.second);
    seen.emplace_back(key.k0, key.k1);
  }
}

// Texts of 16 bytes with the same text_hash: the second word undoes what the first one did.
std::vector<std::string> colliding_texts(size_t n) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t first = 0x4141414141410000u + i * 7919;
    const uint64_t second = text_hash_mix(text_hash_mix(kTextHashSeed, 16), first) ^ 0x1234567890abcdefu;
    std::string text(16, '\0');
    std::memcpy(text.data(), &first, 8);
    std::memcpy(text.data() + 8, &second, 8);
    texts.push_back(text);
  }
  assert_true(text_hash(texts.front()) == text_hash(texts.back()));
  return texts;
}

uint64_t vocab_collisions(const std::vector<std::string>& texts) {
  const Bytes bytes = GgufWriter()
                          .add_strings("tokenizer.ggml.tokens", texts)
                          .add_array("tokenizer.ggml.scores", GgufType::kF32, std::vector<float>(texts.size(), 0.0f))
                          .build();
  HostMemory memory{AllocatorHooks()};
  GgufFile file(&memory);
  assert_true(file.parse(bytes).ok());
  Vocab vocab(&memory);
  OpenProgress nobody;
  Notes notes(std::pmr::new_delete_resource());
  assert_true(vocab.read(file, TokenSpelling::kSentencePiece, random_hash_key(), nobody, notes).ok());
  for (size_t i = 0; i < texts.size(); i += 997) assert_int_equal(vocab.find(texts[i]), i);
  return vocab.n_collisions();
}

// Collisions grow linearly: four times as many entries pass about four times as many slots. If each entry passed all
// before it, there would be sixteen times as many, 200 million in the smaller file.
void keyed_hash__colliding_tokens_cost_what_others_do(void**) {
  const uint64_t few = vocab_collisions(colliding_texts(20000)), many = vocab_collisions(colliding_texts(80000));
  print_message("%llu slots passed by for 20,000 tokens, %llu for 80,000\n", static_cast<unsigned long long>(few),
                static_cast<unsigned long long>(many));
  assert_true(few < 2 * 20000 && many < 2 * 80000);
}

// A vocabulary of three-letter tokens and `n` merges of two of them, the pairs chosen so that all began in slot 0 of a
// table under the hash without a key.
uint64_t merge_collisions(uint32_t n) {
  constexpr uint32_t kParts = 6000;
  VocabParts parts;
  for (uint32_t i = 0; i < kParts; ++i) {
    const auto letter = [](uint32_t digit) { return static_cast<char>('a' + digit % 26); };
    parts.add(std::string{letter(i), letter(i / 26), letter(i / 676)});
  }
  const uint64_t mask = std::bit_ceil(uint64_t{n} * 3 / 2 + 2) - 1;
  for (uint32_t left = 0; left < kParts && parts.merges.size() < n; ++left) {
    for (uint32_t right = 0; right < kParts && parts.merges.size() < n; ++right) {
      if ((text_hash_mix(kTextHashSeed, uint64_t{left} << 32 | right) & mask) != 0) continue;
      parts.merges.push_back(parts.tokens[left] + " " + parts.tokens[right]);
      parts.add(parts.tokens[left] + parts.tokens[right]);
    }
  }
  assert_int_equal(parts.merges.size(), n);
  const Bytes bytes = parts.file();
  HostMemory memory{AllocatorHooks()};
  GgufFile file(&memory);
  assert_true(file.parse(bytes).ok());
  const HashKey key = random_hash_key();
  OpenProgress nobody;
  Notes notes(std::pmr::new_delete_resource());
  Vocab vocab(&memory);
  AddedTokens added(&memory);
  BpeMerges merges(&memory);
  assert_true(vocab.read(file, TokenSpelling::kByteLevel, key, nobody, notes).ok());
  assert_true(added.build(vocab, nobody).ok());
  assert_true(merges.read(file, vocab, added, key, nobody).ok());
  return merges.n_collisions();
}

void keyed_hash__colliding_merges_cost_what_others_do(void**) {
  const uint64_t few = merge_collisions(1000), many = merge_collisions(4000);
  print_message("%llu slots passed by for 1,000 merges, %llu for 4,000\n", static_cast<unsigned long long>(few),
                static_cast<unsigned long long>(many));
  assert_true(few < 8 * 1000 && many < 8 * 4000);
}

// Thousands of added tokens of one text are one for every look-up; the first of them counts, and without control tokens
// the first of the others.
void keyed_hash__added_tokens_of_one_text(void**) {
  VocabParts parts = byte_level_parts();
  std::vector<weir_token> first;
  for (const int32_t type : {3, 4, 3, 4}) first.push_back(parts.add("<same>", type));
  for (int i = 0; i < 20000; ++i) parts.add("<same>", i % 2 == 0 ? 3 : 4);
  const Opened t(parts.file());
  assert_true(t.status().ok());
  assert_true(encode(*t, "<same>", WEIR_TOKENIZE_SPECIAL) == Ids{first[0]});
  assert_true(encode(*t, "<same>", 0) == Ids{first[1]});
  assert_true(encode(*t, "<tool><same>", 0) == (Ids{262, first[1]}));
}

// The fingerprint has no key: a file gives the same number everywhere and always, for this one the following.
void keyed_hash__fingerprints_have_no_key(void**) {
  const Opened one(byte_level_parts().file()), two(byte_level_parts().file());
  assert_true(one->hash() == two->hash());
  assert_true(one->hash() == 0x2503aa834e5aa394u);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(keyed_hash__is_siphash),
      cmocka_unit_test(keyed_hash__keys_differ),
      cmocka_unit_test(keyed_hash__colliding_tokens_cost_what_others_do),
      cmocka_unit_test(keyed_hash__colliding_merges_cost_what_others_do),
      cmocka_unit_test(keyed_hash__added_tokens_of_one_text),
      cmocka_unit_test(keyed_hash__fingerprints_have_no_key),
  };
  return cmocka_run_group_tests_name("text/keyed_hash", tests, nullptr, nullptr);
}
