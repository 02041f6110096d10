// Fuzzes lib/text/tokenizer: a GGUF file as a vocabulary, or any text through vocabularies of both kinds and every
// pre-tokenizer, checking that decoding gives the text back and that the stream of it is valid UTF-8. Input: "GGUF..."
// is a file. Else byte 0 chooses the vocabulary, byte 1 the flags, the rest is the text.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>

#include "core/utf8.h"
#include "tests/text/text_test.h"

using namespace weir;
using namespace weir_test;

namespace {

#define WEIR_PRE_PATTERNS(List, ...)
#define WEIR_PRE_TOKENIZER(name, List, flags) name,
constexpr const char* kPreNames[] = {
#include "text/pre_tokenizers.inc"
};
#undef WEIR_PRE_PATTERNS
#undef WEIR_PRE_TOKENIZER

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

// A byte-level vocabulary whose merges are made up, so that pieces of all kinds merge now and then.
Bytes made_up(const char* pre) {
  VocabParts parts = byte_level_parts();
  parts.pre = pre;
  std::vector<std::string> known;
  for (const uint8_t byte : std::string_view("  aabct\n\n\t's1200.,\xC3\xA9\xE3\x81\x82\xFF"))
    known.push_back(byte_letter(byte));
  Random random(5);
  for (int i = 0; i < 400; ++i) {
    const std::string &left = known[random.below(static_cast<uint32_t>(known.size()))],
                      &right = known[random.below(static_cast<uint32_t>(known.size()))];
    if (left.size() + right.size() > 24) continue;
    parts.merges.push_back(left + " " + right);
    known.push_back(left + right);
    parts.add(known.back());
  }
  return parts.file();
}

const Opened& vocabulary(size_t number) {
  static std::map<size_t, std::unique_ptr<Opened>> opened;
  auto& slot = opened[number];
  if (slot == nullptr) {
    if (number < std::size(kPreNames)) slot = std::make_unique<Opened>(made_up(kPreNames[number]));
    if (number == std::size(kPreNames)) slot = std::make_unique<Opened>(spm_parts().file());
    if (number == std::size(kPreNames) + 1) slot = std::make_unique<Opened>(vocab_path("gpt-2"));
    if (number == std::size(kPreNames) + 2) slot = std::make_unique<Opened>(vocab_path("llama-spm"));
    require(slot->status().ok(), "the vocabulary opens");
  }
  return *slot;
}
constexpr size_t kVocabularies = std::size(kPreNames) + 3;

std::string stream(const Tokenizer& tokenizer, const Ids& ids) {
  Detokenizer detokenizer;
  detokenizer.reset(&tokenizer, true);
  std::string out;
  for (const weir_token id : ids) out += detokenizer.push(id);
  return out += detokenizer.flush();
}

// SentencePiece cannot tell U+2581 from a space.
void without_space_marks(std::string& text) {
  for (size_t at = text.find("\xE2\x96\x81"); at != std::string::npos; at = text.find("\xE2\x96\x81", at))
    text.replace(at, 3, " ");
}

void run_text(const Opened& vocab, uint32_t flags, std::string text) {
  Ids ids, again;
  require(encode(*vocab, text, flags, ids).ok(), "any text has tokens");
  require(encode(*vocab, text, flags, again).ok() && again == ids, "a second encoding gives the same tokens");
  for (const weir_token id : ids)
    require(id >= 0 && static_cast<uint32_t>(id) < vocab->vocab_size(), "tokens are in the vocabulary");
  if ((flags & WEIR_TOKENIZE_BOS_EOS) != 0) return;
  const std::string back = decode(*vocab, ids), streamed = stream(*vocab, ids);
  if (std::string_view(vocab->kind()).substr(0, 5) == "llama") without_space_marks(text);
  require(back == text, "the tokens stand for the text");
  require(utf8_valid_prefix(streamed) == streamed.size(), "the stream is valid UTF-8");
  if (utf8_valid_prefix(text) == text.size()) require(streamed == text, "the stream of valid text is the text");
}

void run_file(const uint8_t* data, size_t size) {
  const Opened vocab(Bytes(data, data + size));
  if (!vocab.status().ok()) return;
  require(std::strlen(vocab->kind()) > 0 && vocab->vocab_size() > 0, "an opened vocabulary has a kind and tokens");
  for (const char* text : {"", "hello  world's\n\n\t123 \xC3\xA9\xFF<|im_end|><s></s>", "\xE2\x96\x81 a"}) {
    Ids ids;
    if (!encode(*vocab, text, WEIR_TOKENIZE_SPECIAL | WEIR_TOKENIZE_BOS_EOS, ids).ok()) continue;
    const std::string streamed = stream(*vocab, ids);
    require(utf8_valid_prefix(streamed) == streamed.size(), "the stream is valid UTF-8");
  }
  for (uint32_t i = 0; i < vocab->vocab_size(); i += 1 + vocab->vocab_size() / 64) {
    weir_token_info info = WEIR_TOKEN_INFO_INIT;
    vocab->token_info(static_cast<weir_token>(i), info);
    require(info.text[info.text_bytes] == '\0', "texts end with a NUL");
    require(vocab->decode(static_cast<weir_token>(i), true, false).size() <= kMaxTokenBytes, "tokens are short");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size >= 4 && std::memcmp(data, "GGUF", 4) == 0) {
    run_file(data, size);
  } else if (size >= 2) {
    run_text(vocabulary(data[0] % kVocabularies), data[1] & 3u,
             std::string(reinterpret_cast<const char*>(data + 2), size - 2));
  }
  return 0;
}
