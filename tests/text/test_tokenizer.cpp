// text: Tokenizer on small vocabularies made in memory: merging, added tokens, begin and end, byte fallback, round
// trips.
#include "tests/text/text_test.h"

#include <map>

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

constexpr weir_token kHello = 259, kSpaceHello = 260, kImEnd = 261, kTool = 262, kTools = 263;

void assert_ids(const Tokenizer& tokenizer, std::string_view text, uint32_t flags, const Ids& wanted) {
  const Ids ids = encode(tokenizer, text, flags);
  std::string shown;
  for (const weir_token id : ids) shown += std::to_string(id) + " ";
  if (ids != wanted) fail_msg("\"%.*s\" gives %s", static_cast<int>(text.size()), text.data(), shown.c_str());
}

// ---- byte-level BPE ----

void bpe__merges_by_rank(void**) {
  const Opened t(byte_level_parts().file());
  assert_true(t.status().ok());
  assert_ids(*t, "", 0, {});
  assert_ids(*t, "hello", 0, {kHello});
  assert_ids(*t, "hello hello", 0, {kHello, kSpaceHello});
  assert_ids(*t, "hell", 0, {258});
  assert_ids(*t, "lll", 0, {256, 'l'});  // equal ranks: the leftmost pair first
  assert_ids(*t, "llll", 0, {256, 256});
  assert_ids(*t, " ello", 0, {' ', 'e', 256, 'o'});  // what was learned about "hello" is not used for other words
}

// What the merges say, done plainly: while some neighbours have a merge, the pair with the lowest rank is joined, the
// leftmost of equal ones. Of a merge that the list has twice, the first one counts.
void bpe__the_best_pair_first_the_leftmost_of_equals(void**) {
  using Pair = std::pair<std::string, std::string>;
  const std::vector<Pair> merges = {{"b", "c"},   {"a", "a"},  {"aa", "aa"}, {"c", "a"}, {"a", "b"},
                                    {"aa", "bc"}, {"b", "c"},  {"ab", "ca"}, {"b", "b"}, {"c", "c"},
                                    {"bb", "bb"}, {"a", "bc"}, {"aaa", "a"}, {"a", "aa"}};
  VocabParts parts = byte_level_parts();
  parts.merges.clear();
  std::map<std::string, weir_token> ids = {{"a", 'a'}, {"b", 'b'}, {"c", 'c'}};
  std::map<Pair, size_t> ranks;
  ids["aaa"] = parts.add("aaa");
  for (const Pair& merge : merges) {
    const std::string joined = merge.first + merge.second;
    if (ids.count(joined) == 0) ids[joined] = parts.add(joined);
    parts.merges.push_back(merge.first + " " + merge.second);
    ranks.emplace(merge, ranks.size());
  }
  const Opened t(parts.file());
  assert_true(t.status().ok());
  uint32_t state = 1;
  for (uint32_t n = 1; n <= 600; ++n) {
    std::vector<std::string> symbols;
    std::string text;
    for (uint32_t i = 0; i < 1 + n % 40; ++i) {
      state = state * 1664525u + 1013904223u;
      symbols.emplace_back(1, static_cast<char>('a' + (state >> 24) % 3));
      text += symbols.back();
    }
    for (;;) {
      size_t best = symbols.size(), best_rank = merges.size();
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = ranks.find({symbols[i], symbols[i + 1]});
        if (found != ranks.end() && found->second < best_rank) best = i, best_rank = found->second;
      }
      if (best == symbols.size()) break;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
    Ids wanted;
    for (const std::string& symbol : symbols) wanted.push_back(ids.at(symbol));
    assert_ids(*t, text, 0, wanted);
  }
}

// "abc" is a token that its merges do not reach: only Llama 3's kind of pre-tokenizer takes it all the same.
void bpe__a_whole_token_counts_only_where_the_model_says_so(void**) {
  VocabParts parts = byte_level_parts();
  const weir_token bc = parts.add("bc"), abc = parts.add("abc");
  parts.merges.push_back("b c");
  const Opened merged(parts.file());
  assert_ids(*merged, "abc", 0, {'a', bc});
  assert_ids(*merged, "abc", 0, {'a', bc});  // and from the cache
  parts.pre = "llama-bpe";
  const Opened whole(parts.file());
  assert_ids(*whole, "abc", 0, {abc});
}

void bpe__added_tokens(void**) {
  const Opened t(byte_level_parts().file());
  // User-defined ones always, the longest first; control ones when asked.
  assert_ids(*t, "<tool>", 0, {kTool});
  assert_ids(*t, "<tool>s<tool>hello", 0, {kTools, kTool, kHello});
  const Ids plain = encode(*t, "<|im_end|>");
  assert_int_equal(plain.size(), 10);
  assert_ids(*t, "<|im_end|>hello<tool><|im_end|>", WEIR_TOKENIZE_SPECIAL, {kImEnd, kHello, kTool, kImEnd});
  assert_ids(*t, "<|im_end", WEIR_TOKENIZE_SPECIAL, {'<', '|', 'i', 'm', '_', 'e', 'n', 'd'});
  assert_string_equal(decode(*t, {kHello, kImEnd, kTool}, true).c_str(), "hello<|im_end|><tool>");
  assert_string_equal(decode(*t, {kHello, kImEnd, kTool}, false).c_str(), "hello<tool>");
}

// A user-defined token whose text looks like a byte's letter (some vocabularies have such) is not that byte.
void bpe__an_added_letter_is_not_a_byte(void**) {
  VocabParts parts = byte_level_parts();
  parts.tokens[0xF8] = "[gone]";
  const weir_token letter = parts.add("\xC3\xB8", 4);
  const Opened t(parts.file());
  assert_true(t.status().ok());
  assert_ids(*t, "\xC3\xB8", 0, {letter});
  assert_string_equal(decode(*t, {letter}).c_str(), "\xC3\xB8");
  Ids ids;
  assert_int_equal(encode(*t, "hello \xF8", 0, ids).code(), WEIR_ERR_FORMAT);
  assert_non_null(std::strstr(last_error_text(), "0xF8"));
}

// Refused text leaves what was there; an unknown token takes the place of bytes that the vocabulary lacks.
void bpe__bytes_that_the_vocabulary_lacks(void**) {
  VocabParts parts = byte_level_parts();
  parts.tokens['z'] = "[gone]";
  const Opened t(parts.file());
  std::pmr::vector<weir_token> out = {7, 8};
  assert_int_equal(t->encode("hello z", 0, out).code(), WEIR_ERR_FORMAT);
  assert_int_equal(out.size(), 2);
  const weir_token unk = parts.add("<unk>", 2);
  parts.more.add_u32("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(unk));
  const Opened with_unk(parts.file());
  assert_ids(*with_unk, "hello z", 0, {kHello, ' ', unk});
  assert_string_equal(decode(*with_unk, {unk}, false).c_str(), "");
  assert_string_equal(decode(*with_unk, {unk}, true).c_str(), "<unk>");
}

void bpe__equal_texts_mean_the_first_token(void**) {
  VocabParts parts = byte_level_parts();
  parts.add("hello");
  const Opened t(parts.file());
  assert_true(t.status().ok());
  assert_ids(*t, "hello", 0, {kHello});
  assert_string_equal(decode(*t, {264}).c_str(), "hello");
}

void bpe__round_trip_of_any_bytes(void**) {
  const Opened small(byte_level_parts().file()), gpt2(vocab_path("gpt-2"));
  assert_true(gpt2.status().ok());
  Random random(1);
  for (int i = 0; i < 400; ++i) {
    const std::string text = i % 2 == 0 ? random.bytes(random.below(60)) : random.text(random.below(30));
    for (const Opened* t : {&small, &gpt2}) {
      const Ids ids = encode(**t, text);
      assert_true(text.empty() == ids.empty());
      const std::string back = decode(**t, ids);
      assert_int_equal(back.size(), text.size());
      assert_memory_equal(back.data(), text.data(), text.size());
    }
  }
}

// Long pieces: one word, one run of spaces, one run of digits, nothing but bytes that are no UTF-8.
void bpe__long_pieces(void**) {
  const Opened gpt2(vocab_path("gpt-2"));
  constexpr size_t kBytes = 200000;
  for (const char* unit : {"a", " ", "7", "\n", "\xFF", "'", "\xE3\x81\x82"}) {
    std::string text;
    while (text.size() < kBytes) text += unit;
    text += "x";
    const Ids ids = encode(*gpt2, text);
    assert_true(!ids.empty() && decode(*gpt2, ids) == text);
  }
}

// ---- SentencePiece ----

void spm__merges_by_score(void**) {
  const Opened t(spm_parts().file());
  assert_true(t.status().ok());
  assert_ids(*t, "", 0, {});
  assert_ids(*t, "a", 0, {259});   // with the space that is put before the text
  assert_ids(*t, "ab", 0, {260});  // _a scores best, then _ab
  assert_ids(*t, "bc", 0, {263, 262});
  assert_ids(*t, "abc", 0, {260, 266});
  assert_ids(*t, "a  a", 0, {259, 263, 259});
  assert_string_equal(decode(*t, encode(*t, " ab  bc")).c_str(), " ab  bc");
}

void spm__no_space_prefix(void**) {
  VocabParts parts = spm_parts();
  parts.more.add_bool("tokenizer.ggml.add_space_prefix", false);
  const Opened t(parts.file());
  assert_ids(*t, "ab", 0, {261});
  assert_ids(*t, " ab", 0, {260});
  assert_string_equal(decode(*t, encode(*t, " ab")).c_str(), " ab");
}

void spm__byte_fallback(void**) {
  const Opened t(spm_parts().file());
  assert_ids(*t, "\xC3\xA9", 0, {263, 267});
  assert_ids(*t, "\xC3\xA8\xFF", 0, {263, 3 + 0xC3, 3 + 0xA8, 3 + 0xFF});
  assert_ids(*t, "<0x41>", 0,
             {263, 3 + '<', 3 + '0', 3 + 'x', 3 + '4', 3 + '1', 3 + '>'});  // text that names a byte is not a byte
  assert_string_equal(decode(*t, {263, 3 + 0xC3, 3 + 0xA8}).c_str(), "\xC3\xA8");
}

void spm__unknown_token_without_byte_tokens(void**) {
  VocabParts parts = spm_parts();
  for (size_t i = 3; i < 259; ++i) parts.types[i] = 1;
  const Opened t(parts.file());
  assert_ids(*t, "a\xC3\xA8z", 0, {259, 0, 0});  // one for each character
}

void spm__markers_in_text_are_text(void**) {
  const Opened t(spm_parts().file());
  assert_ids(*t, "</s>", 0, {263, 3 + '<', 3 + '/', 3 + 's', 3 + '>'});
  assert_ids(*t, "</s>", WEIR_TOKENIZE_SPECIAL, {2});
  // Text after a token that was matched as a whole gets a space again, and loses it in decoding.
  assert_ids(*t, "<s>a<tool>a", WEIR_TOKENIZE_SPECIAL, {1, 259, 268, 259});
  assert_string_equal(decode(*t, {1, 259, 268, 259}, true).c_str(), "<s>a<tool>a");
  assert_string_equal(decode(*t, {1, 259, 268, 259}, false).c_str(), "a<tool>a");
}

// Where a token reaches over the start of a word, words are not tokenized one by one.
void spm__tokens_across_words(void**) {
  VocabParts parts = spm_parts();
  const weir_token across = parts.add("b\xE2\x96\x81", 1, 9.0f);
  const Opened t(parts.file());
  assert_ids(*t, "ab a", 0, {259, across, 264});
}

void spm__round_trip_of_any_bytes(void**) {
  const Opened small(spm_parts().file()), llama(vocab_path("llama-spm"));
  assert_true(llama.status().ok());
  Random random(2);
  for (int i = 0; i < 400; ++i) {
    std::string text = i % 2 == 0 ? random.bytes(random.below(60)) : random.text(random.below(30));
    for (size_t at = text.find("\xE2\x96\x81"); at != std::string::npos; at = text.find("\xE2\x96\x81"))
      text.erase(at, 3);
    for (const Opened* t : {&small, &llama}) {
      const std::string back = decode(**t, encode(**t, text));
      assert_int_equal(back.size(), text.size());
      assert_memory_equal(back.data(), text.data(), text.size());
    }
  }
}

// ---- begin, end ----

void special__begin_and_end(void**) {
  VocabParts parts = byte_level_parts();
  const Opened none(parts.file());
  assert_ids(*none, "hello", WEIR_TOKENIZE_BOS_EOS, {kHello});  // gpt-2 adds nothing by default
  assert_int_equal(none->special().bos, -1);
  assert_int_equal(none->special().eos, kImEnd);
  assert_int_equal(none->special().eot, -1);  // it is the end token
  parts.more.add_u32("tokenizer.ggml.bos_token_id", kTool);
  parts.pre = "llama-bpe";
  const Opened by_kind(parts.file());
  assert_ids(*by_kind, "hello", WEIR_TOKENIZE_BOS_EOS, {kTool, kHello});
  assert_ids(*by_kind, "hello", 0, {kHello});
  assert_ids(*by_kind, "", WEIR_TOKENIZE_BOS_EOS, {kTool});
  parts.more.add_bool("tokenizer.ggml.add_bos_token", false).add_bool("tokenizer.ggml.add_eos_token", true);
  const Opened by_keys(parts.file());
  assert_ids(*by_keys, "hello", WEIR_TOKENIZE_BOS_EOS, {kHello, kImEnd});
  assert_int_equal(by_keys->special().add_bos, 0);
  assert_int_equal(by_keys->special().add_eos, 1);
}

void special__ends_of_generation(void**) {
  VocabParts parts = byte_level_parts();
  const weir_token text_end = parts.add("<|endoftext|>", 3), turn = parts.add("<|eot_id|>", 3),
                   named = parts.add("[stop]", 3);
  const weir_token looks_so = parts.add("<|end|>", 1);
  parts.more.add_u32("tokenizer.ggml.eot_token_id", static_cast<uint32_t>(named));
  parts.more.add_u32("tokenizer.ggml.padding_token_id", static_cast<uint32_t>(text_end));
  const Opened t(parts.file());
  assert_int_equal(t->special().eot, named);
  assert_int_equal(t->special().pad, text_end);
  for (const weir_token id : {kImEnd, text_end, turn, named}) assert_true(t->is_end_of_generation(id));
  for (const weir_token id : {kHello, kTool, looks_so, weir_token{-1}, weir_token{1 << 20}})
    assert_false(t->is_end_of_generation(id));
}

void special__files_without_ids(void**) {
  VocabParts parts = byte_level_parts();
  parts.more = GgufWriter();
  const Opened bpe(parts.file()), spm(spm_parts().file());
  assert_int_equal(bpe->special().eos, -1);
  assert_int_equal(bpe->special().eot, kImEnd);  // found by its text
  assert_int_equal(spm->special().bos, 1);
  assert_int_equal(spm->special().add_bos, 1);
  assert_int_equal(spm->special().unk, 0);
}

// Files may lack the name of the pre-tokenizer and the types.
void special__old_files(void**) {
  VocabParts parts = byte_level_parts();
  GgufWriter w;
  w.add_string("tokenizer.ggml.model", "gpt2")
      .add_strings("tokenizer.ggml.tokens", parts.tokens)
      .add_strings("tokenizer.ggml.merges", parts.merges);
  const Opened t(w.build());
  assert_true(t.status().ok());
  assert_string_equal(t->kind(), "gpt2/default");
  assert_ids(*t, "hello", 0, {kHello});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(bpe__merges_by_rank),
      cmocka_unit_test(bpe__the_best_pair_first_the_leftmost_of_equals),
      cmocka_unit_test(bpe__a_whole_token_counts_only_where_the_model_says_so),
      cmocka_unit_test(bpe__added_tokens),
      cmocka_unit_test(bpe__an_added_letter_is_not_a_byte),
      cmocka_unit_test(bpe__bytes_that_the_vocabulary_lacks),
      cmocka_unit_test(bpe__equal_texts_mean_the_first_token),
      cmocka_unit_test(bpe__round_trip_of_any_bytes),
      cmocka_unit_test(bpe__long_pieces),
      cmocka_unit_test(spm__merges_by_score),
      cmocka_unit_test(spm__no_space_prefix),
      cmocka_unit_test(spm__byte_fallback),
      cmocka_unit_test(spm__unknown_token_without_byte_tokens),
      cmocka_unit_test(spm__markers_in_text_are_text),
      cmocka_unit_test(spm__tokens_across_words),
      cmocka_unit_test(spm__round_trip_of_any_bytes),
      cmocka_unit_test(special__begin_and_end),
      cmocka_unit_test(special__ends_of_generation),
      cmocka_unit_test(special__files_without_ids),
      cmocka_unit_test(special__old_files),
  };
  return cmocka_run_group_tests_name("text/tokenizer", tests, nullptr, nullptr);
}
