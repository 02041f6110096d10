// What the tests of lib/text share: opening vocabularies, making small ones in memory, and short forms of encoding. Not
// a part of the library. Include after the library's headers, before cmocka.
#pragma once

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/memory.h"
#include "gguf/gguf.h"
#include "tests/gguf/gguf_writer.h"
#include "text/tokenizer.h"

namespace weir_test {

using Ids = std::vector<weir_token>;

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::string vocab_path(std::string_view name) {
  return std::string(WEIR_SOURCE_DIR "/tests/golden/vocabs/ggml-vocab-").append(name).append(".gguf");
}

// UTF-8 of a code point.
inline std::string utf8(uint32_t code) {
  const auto tail = [code](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | code >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | code >> 18), tail(12), tail(6), tail(0)};
}

// The character that stands for a byte in byte-level vocabularies.
inline std::string byte_letter(uint8_t byte) {
  const auto visible = [](uint32_t b) { return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD); };
  if (visible(byte)) return utf8(byte);
  uint32_t code = 0x100;
  for (uint32_t b = 0; b < byte; ++b) code += visible(b) ? 0 : 1;
  return utf8(code);
}

// The parts of a vocabulary file, to be changed by a test before it is opened.
struct VocabParts {
  std::string model = "gpt2", pre = "gpt-2";
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<float> scores;
  std::vector<std::string> merges;
  GgufWriter more;  // further keys

  weir_token add(std::string_view text, int32_t type = 1, float score = 0.0f) {
    tokens.emplace_back(text);
    types.push_back(type);
    scores.push_back(score);
    return static_cast<weir_token>(tokens.size() - 1);
  }

  Bytes file() const {
    GgufWriter w = more;
    w.add_string("tokenizer.ggml.model", model).add_string("tokenizer.ggml.pre", pre);
    w.add_strings("tokenizer.ggml.tokens", tokens).add_array("tokenizer.ggml.token_type", weir::GgufType::kI32, types);
    if (model == "llama") w.add_array("tokenizer.ggml.scores", weir::GgufType::kF32, scores);
    if (model == "gpt2") w.add_strings("tokenizer.ggml.merges", merges);
    return w.build();
  }
};

// 256 bytes; the words "hello" and " hello" by merges; one control and two user-defined tokens. Ids 0..255 are the
// bytes.
inline VocabParts byte_level_parts() {
  VocabParts parts;
  for (int byte = 0; byte < 256; ++byte) parts.add(byte_letter(static_cast<uint8_t>(byte)));
  const std::string space = byte_letter(' ');
  for (const std::string& merge :
       {std::string("l l"), std::string("h e"), std::string("he ll"), std::string("hell o"), space + " hello"}) {
    parts.merges.push_back(merge);
    std::string joined = merge;
    joined.erase(joined.find(' '), 1);
    parts.add(joined);
  }
  parts.add("<|im_end|>", 3);  // 261
  parts.add("<tool>", 4);      // 262
  parts.add("<tool>s", 4);     // 263
  parts.more.add_u32("tokenizer.ggml.eos_token_id", 261);
  return parts;
}

// <unk> <s> </s>, 256 bytes (3..258), a few words with scores, one user-defined token.
inline VocabParts spm_parts() {
  VocabParts parts;
  parts.model = "llama";
  parts.pre = "default";
  parts.add("<unk>", 2);
  parts.add("<s>", 3);
  parts.add("</s>", 3);
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte);
    parts.add(text, 6);
  }
  float score = -1.0f;
  for (const char* word : {"\xE2\x96\x81"
                           "a",
                           "\xE2\x96\x81"
                           "ab",
                           "ab", "bc", "\xE2\x96\x81", "a", "b", "c", "\xC3\xA9"}) {
    parts.add(word, 1, score);  // 259..267
    score -= 1.0f;
  }
  parts.add("<tool>", 4);  // 268
  return parts;
}

// A file and the tokenizer built from it.
class Opened {
 public:
  explicit Opened(const std::string& path) : file_(&memory_), tokenizer_(&memory_) {
    status_ = file_.open(path.c_str());
    if (status_.ok()) status_ = tokenizer_.build(file_);
  }
  explicit Opened(Bytes bytes) : bytes_(std::move(bytes)), file_(&memory_), tokenizer_(&memory_) {
    status_ = file_.parse(bytes_);
    if (status_.ok()) status_ = tokenizer_.build(file_);
  }

  weir::Status status() const { return status_; }
  weir::HostMemory& memory() { return memory_; }
  const weir::Tokenizer& operator*() const { return tokenizer_; }
  const weir::Tokenizer* operator->() const { return &tokenizer_; }

 private:
  Bytes bytes_;
  weir::HostMemory memory_{weir::AllocatorHooks()};
  weir::GgufFile file_;
  weir::Tokenizer tokenizer_;
  weir::Status status_;
};

inline weir::Status encode(const weir::Tokenizer& tokenizer, std::string_view text, uint32_t flags, Ids& out) {
  std::pmr::vector<weir_token> tokens;
  const weir::Status status = tokenizer.encode(text, flags, tokens);
  out.assign(tokens.begin(), tokens.end());
  return status;
}

// Empty when the tokenizer refuses, which no test expects of an Ids with something in it.
inline Ids encode(const weir::Tokenizer& tokenizer, std::string_view text, uint32_t flags = 0) {
  Ids out;
  return encode(tokenizer, text, flags, out).ok() ? out : Ids();
}

inline std::string decode(const weir::Tokenizer& tokenizer, const Ids& ids, bool special = true) {
  std::string out;
  bool first = true;
  for (const weir_token id : ids) {
    out += tokenizer.decode(id, special, first);
    first = tokenizer.starts_text_after(id);
  }
  return out;
}

// The same numbers on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint32_t below(uint32_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>((state_ >> 33) % n);
  }
  std::string bytes(size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out.push_back(static_cast<char>(below(256)));
    return out;
  }
  // Characters of many scripts, white space, digits, apostrophes, now and then any code point.
  std::string text(size_t n) {
    static constexpr uint32_t kPools[][2] = {
        {'a', 'z'},       {'A', 'Z'},     {'0', '9'},     {' ', ' '},         {'\t', '\r'},       {'!', '/'},
        {0xA0, 0xFF},     {0x300, 0x36F}, {0x400, 0x4FF}, {0x4E00, 0x4FFF},   {0x1F600, 0x1F64F}, {0x2000, 0x206F},
        {0xAC00, 0xACFF}, {0x660, 0x669}, {0x20, 0xD7FF}, {0xE000, 0x10FFFF}, {'\'', '\''}};
    std::string out;
    for (size_t i = 0; i < n; ++i) {
      const auto& pool = kPools[below(std::size(kPools))];
      for (uint32_t k = below(4) + 1; k > 0; --k) out += utf8(pool[0] + below(pool[1] - pool[0] + 1));
    }
    return out;
  }

 private:
  uint64_t state_;
};

}  // namespace weir_test
