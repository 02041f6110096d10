// text: real vocabularies give exactly the token ids of the reference tokenizers, for every pair in
// tests/golden/vocabs.
#include <filesystem>
#include <sstream>

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

constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";

std::vector<std::string> split_texts(const std::string& all) {
  std::vector<std::string> out;
  for (size_t at = 0;;) {
    const size_t end = all.find(kSeparator, at);
    if (at == all.size()) return out;  // a separator ends the last text
    out.push_back(all.substr(at, end == std::string::npos ? end : end - at));
    if (end == std::string::npos) return out;
    at = end + kSeparator.size();
  }
}

Ids ids_of_line(const std::string& line) {
  std::istringstream in(line);
  Ids out;
  for (weir_token id; in >> id;) out.push_back(id);
  return out;
}

std::string shown(const Ids& ids) {
  std::string out;
  for (const weir_token id : ids) out += " " + std::to_string(id);
  return out;
}

// Compares one pair; returns the number of texts.
size_t check_pair(const std::string& path) {
  const Opened vocab(path);
  if (!vocab.status().ok()) fail_msg("%s: %s", path.c_str(), last_error_text());
  const std::vector<std::string> texts = split_texts(read_file(path + ".inp"));
  std::istringstream expected(read_file(path + ".out"));
  std::string line;
  for (const std::string& text : texts) {
    if (!std::getline(expected, line)) fail_msg("%s.out is too short", path.c_str());
    Ids ids;
    if (!encode(*vocab, text, 0, ids).ok()) fail_msg("%s: \"%s\": %s", path.c_str(), text.c_str(), last_error_text());
    if (ids != ids_of_line(line))
      fail_msg("%s: \"%s\"\n got%s\nwant%s", path.c_str(), text.c_str(), shown(ids).c_str(), line.c_str());
    assert_string_equal(decode(*vocab, ids).c_str(), text.c_str());
  }
  assert_true(!std::getline(expected, line));
  return texts.size();
}

void vocab_pairs__ids_are_those_of_the_reference(void**) {
  size_t n_pairs = 0, n_texts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WEIR_SOURCE_DIR "/tests/golden/vocabs")) {
    if (entry.path().extension() != ".out") continue;
    std::filesystem::path path = entry.path();
    n_texts += check_pair(path.replace_extension("").string());
    ++n_pairs;
  }
  print_message("%zu texts of %zu vocabularies\n", n_texts, n_pairs);
  assert_true(n_pairs >= 5);
  assert_true(n_texts >= 5 * 40);
}

// A second encoding takes pieces that are whole tokens from a cache; it must not change anything.
void vocab_pairs__encoding_again_gives_the_same(void**) {
  for (const char* name : {"gpt-2", "deepseek-llm", "llama-spm"}) {
    const Opened vocab(vocab_path(name));
    assert_true(vocab.status().ok());
    const std::string text = read_file(vocab_path(name) + ".inp");
    const Ids first = encode(*vocab, text);
    assert_true(first.size() > 100);
    assert_true(encode(*vocab, text) == first);
  }
}

void vocab_pairs__tokens_are_described(void**) {
  const Opened gpt2(vocab_path("gpt-2")), spm(vocab_path("llama-spm")), phi3(vocab_path("phi-3"));
  assert_string_equal(gpt2->kind(), "gpt2/gpt-2");
  assert_string_equal(spm->kind(), "llama/default");
  assert_int_equal(gpt2->vocab_size(), 50257);
  weir_token_info info = WEIR_TOKEN_INFO_INIT;
  gpt2->token_info(50256, info);
  assert_string_equal(info.text, "<|endoftext|>");
  assert_int_equal(info.flags, WEIR_TOKEN_CONTROL | WEIR_TOKEN_END_OF_GENERATION);
  spm->token_info(3 + 0x0A, info);
  assert_string_equal(info.text, "<0x0A>");
  assert_int_equal(info.flags, WEIR_TOKEN_BYTE);
  spm->token_info(259, info);
  assert_string_equal(info.text, "\xE2\x96\x81\xE2\x96\x81");
  assert_true(info.score < 0.0f || info.score == 0.0f);
  assert_true(spm->special().add_bos == 1 && spm->special().bos == 1 && spm->special().eos == 2 &&
              spm->special().unk == 0);
  assert_true(gpt2->special().add_bos == 0 && gpt2->special().unk == -1);
  assert_int_equal(phi3->special().eos, 32000);
  assert_int_equal(phi3->special().eot, 32007);  // <|end|>
  assert_true(phi3->is_end_of_generation(32007) && phi3->is_end_of_generation(32000) &&
              !phi3->is_end_of_generation(32010));
}

// Phi-3's markers take the white space behind them, the plain SentencePiece vocabulary's do not.
void vocab_pairs__phi3_markers_take_the_space_behind(void**) {
  const Opened phi3(vocab_path("phi-3")), spm(vocab_path("llama-spm"));
  const Ids tight = encode(*phi3, "<|user|>Hi<|end|>", WEIR_TOKENIZE_SPECIAL);
  assert_true(tight.size() >= 3 && tight.front() == 32010 && tight.back() == 32007);
  assert_true(encode(*phi3, "<|user|>\n\t Hi<|end|>\n", WEIR_TOKENIZE_SPECIAL) == tight);
  assert_true(encode(*phi3, "<s>\nHi", WEIR_TOKENIZE_SPECIAL) != encode(*phi3, "<s>Hi", WEIR_TOKENIZE_SPECIAL));
  assert_true(encode(*spm, "</s>\nHi", WEIR_TOKENIZE_SPECIAL) != encode(*spm, "</s>Hi", WEIR_TOKENIZE_SPECIAL));
}

// The family is recognised by the name, of which only the beginning is searched: a file can give any length.
void vocab_pairs__phi3_is_named_early(void**) {
  for (const size_t n_before : {0u, 4091u, 4092u, 100000u}) {
    VocabParts parts = spm_parts();
    parts.more.add_string("general.name", std::string(n_before, 'x') + "Phi-3");
    const Opened vocab(parts.file());
    const bool takes_space = encode(*vocab, "<tool> a") == encode(*vocab, "<tool>a");
    assert_true(takes_space == (n_before + 5 <= 4096));
  }
}

void vocab_pairs__hashes_differ(void**) {
  const Opened a(vocab_path("gpt-2")), again(vocab_path("gpt-2")), b(vocab_path("falcon")), c(vocab_path("phi-3"));
  assert_true(a->hash() == again->hash());
  assert_true(a->hash() != b->hash() && b->hash() != c->hash() && a->hash() != c->hash());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(vocab_pairs__ids_are_those_of_the_reference),
      cmocka_unit_test(vocab_pairs__encoding_again_gives_the_same),
      cmocka_unit_test(vocab_pairs__tokens_are_described),
      cmocka_unit_test(vocab_pairs__phi3_markers_take_the_space_behind),
      cmocka_unit_test(vocab_pairs__phi3_is_named_early),
      cmocka_unit_test(vocab_pairs__hashes_differ),
  };
  return cmocka_run_group_tests_name("text/vocab_pairs", tests, nullptr, nullptr);
}
