// Reading a vocabulary: checked texts, types and scores, then the derived arrays.
#include "text/vocab.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/utf8.h"
#include "text/token_ids.h"
#include "text/tokenizer.h"

namespace weir {
namespace {

constexpr const char* kTokensKey = "tokenizer.ggml.tokens";
constexpr const char* kTypesKey = "tokenizer.ggml.token_type";
constexpr const char* kScoresKey = "tokenizer.ggml.scores";
constexpr size_t kMaxNoted = 64;  // bytes of a token in a line

// GPT-2's alphabet: bytes that are visible characters of Latin-1 stand for themselves, the others follow from U+0100
// on, in order.
struct ByteAlphabet {
  static constexpr uint32_t kCodes = 0x100 + 68;  // code points in use, of which 68 are beyond Latin-1
  std::array<uint16_t, 256> code_of{};
  std::array<int16_t, kCodes> byte_of{};

  constexpr ByteAlphabet() {
    byte_of.fill(-1);
    uint16_t next = 0x100;
    for (uint16_t byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      code_of[byte] = visible ? byte : next++;
      byte_of[code_of[byte]] = static_cast<int16_t>(byte);
    }
  }
};
constexpr ByteAlphabet kAlphabet;
static_assert(kAlphabet.byte_of[ByteAlphabet::kCodes - 1] == 0xAD);

// Writes the bytes of a byte-level text; false when it has a character outside of the alphabet.
bool spell_byte_level(std::string_view text, char* out, size_t& n_out) {
  n_out = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8Kind::kComplete) return false;
    const uint32_t code = utf8_code_point(text.substr(at), step.n_bytes);
    if (code >= ByteAlphabet::kCodes || kAlphabet.byte_of[code] < 0) return false;
    out[n_out++] = static_cast<char>(kAlphabet.byte_of[code]);
    at += step.n_bytes;
  }
  return true;
}

// Writes `text` with U+2581 as spaces; returns the length.
size_t spell_spaces(std::string_view text, char* out) {
  size_t n = 0;
  for (size_t at = 0; at < text.size();) {
    const bool space = text.substr(at, kSpaceMarkBytes) == kSpaceMark;
    out[n++] = space ? ' ' : text[at];
    at += space ? kSpaceMarkBytes : 1;
  }
  return n;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The byte of "<0xXX>", -1 for any other text.
int byte_of_text(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int high = hex_digit(text[3]), low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// Letters, digits and white space. Beyond ASCII everything counts as a letter except the punctuation of East Asian
// scripts, which has its own brackets and bars, and bytes that are not characters.
bool is_plain(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8Kind::kComplete) return false;
    const uint32_t code = utf8_code_point(text.substr(at), step.n_bytes);
    const bool letter = (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') || (code >= '0' && code <= '9');
    const bool space = code == ' ' || (code >= '\t' && code <= '\r');
    const bool other = code >= 0x80 && !(code >= 0x3000 && code <= 0x303F) && !(code >= 0xFE30 && code <= 0xFFEF);
    if (!letter && !space && !other) return false;
    at += step.n_bytes;
  }
  return true;
}

Status too_long(uint64_t index, size_t n_bytes) {
  return fail(WEIR_ERR_FORMAT, "%s[%llu]: a token of %zu bytes; the longest allowed has %zu", kTokensKey,
              static_cast<unsigned long long>(index), n_bytes, kMaxTokenBytes);
}

Status wrong_count(const char* key, uint64_t n, uint64_t n_tokens) {
  return fail(WEIR_ERR_FORMAT, "%s: %llu elements for %llu tokens", key, static_cast<unsigned long long>(n),
              static_cast<unsigned long long>(n_tokens));
}

}  // namespace

void append_byte_level(std::string_view bytes, std::pmr::string& out) {
  for (const char c : bytes) {
    const uint16_t code = kAlphabet.code_of[static_cast<uint8_t>(c)];
    if (code < 0x80) {
      out.push_back(static_cast<char>(code));
    } else {
      out.push_back(static_cast<char>(0xC0 | code >> 6));
      out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
    }
  }
}

bool Vocab::is_mark(weir_token token) const {
  const TokenType kind = type(token);
  if (kind != TokenType::kUserDefined) return kind == TokenType::kControl || kind == TokenType::kUnknown;
  return !is_plain(text(token));
}

Status Vocab::read(const GgufFile& file, TokenSpelling spelling, const HashKey& key, OpenProgress& progress,
                   Notes& notes) {
  key_ = key;
  const GgufValue* tokens = nullptr;
  WEIR_TRY(file.get_array(kTokensKey, GgufArray::kStrings, true, tokens));
  if (tokens->count == 0 || tokens->count > std::numeric_limits<int32_t>::max() ||
      tokens->data_bytes > std::numeric_limits<uint32_t>::max()) {
    return fail(WEIR_ERR_FORMAT, "%s: %llu tokens in %llu bytes", kTokensKey,
                static_cast<unsigned long long>(tokens->count), static_cast<unsigned long long>(tokens->data_bytes));
  }
  WEIR_TRY(read_texts(*tokens, progress));
  types_.assign(tokens->count, TokenType::kNormal);
  WEIR_TRY(read_types(file, spelling, notes));
  WEIR_TRY(take_ends(file, notes));
  if (spelling == TokenSpelling::kSentencePiece) WEIR_TRY(read_scores(file));
  WEIR_TRY(spell(spelling, progress));
  WEIR_TRY(index(spelling, progress));
  find_bytes(spelling);
  return {};
}

Status Vocab::read_texts(const GgufValue& tokens, OpenProgress& progress) {
  // A length takes eight bytes in the file and a NUL one here, so the file's size is a bound.
  text_.reserve(tokens.data_bytes - tokens.count * (sizeof(uint64_t) - 1));
  text_at_.reserve(tokens.count + 1);
  GgufStrings strings(tokens);
  for (uint64_t i = 0; strings.left() > 0; ++i) {
    const std::string_view text = strings.next();
    if (text.size() > kMaxTextBytes) return too_long(i, text.size());
    text_at_.push_back(static_cast<uint32_t>(text_.size()));
    text_.insert(text_.end(), text.begin(), text.end());
    text_.push_back('\0');
    WEIR_TRY(progress.step());
  }
  text_at_.push_back(static_cast<uint32_t>(text_.size()));
  return {};
}

Status Vocab::read_types(const GgufFile& file, TokenSpelling spelling, Notes& notes) {
  const GgufValue* types = nullptr;
  WEIR_TRY(file.get_array(kTypesKey, GgufArray::kIntegers, false, types));
  if (types == nullptr) {
    notes.warn("%s: the file has no such key; every token is taken for ordinary text, so that marks of turns are none",
               kTypesKey);
    // What every SentencePiece vocabulary begins with.
    if (spelling == TokenSpelling::kSentencePiece && size() > 2 && text(0) == "<unk>" && text(1) == "<s>" &&
        text(2) == "</s>") {
      types_[0] = TokenType::kUnknown;
      types_[1] = types_[2] = TokenType::kControl;
    }
    return {};
  }
  if (types->count != size()) return wrong_count(kTypesKey, types->count, size());
  for (uint32_t i = 0; i < size(); ++i) {
    const int64_t type = gguf_integer(*types, i);
    if (type < 0 || type > static_cast<int64_t>(TokenType::kByte)) {
      return fail(WEIR_ERR_FORMAT, "%s[%u]: %lld is not a token type", kTypesKey, i, static_cast<long long>(type));
    }
    types_[i] = static_cast<TokenType>(type);
  }
  return {};
}

// What the file names as an end is a control token, whatever its class: no text may become one. Except words that are
// ordinary text, without which a text that has them could not be written.
Status Vocab::take_ends(const GgufFile& file, Notes& notes) {
  std::string_view noted;  // one line for a key
  return each_end_id(file, [&](std::string_view key, int64_t id) {
    if (id < 0 || id >= size()) return;
    const auto token = static_cast<weir_token>(id);
    TokenType& kind = types_[static_cast<size_t>(id)];
    if (kind == TokenType::kControl || kind == TokenType::kUnknown) return;
    if (kind == TokenType::kUserDefined || (kind != TokenType::kByte && !is_plain(text(token)))) {
      kind = TokenType::kControl;
      return;
    }
    if (key == noted) return;
    noted = key;
    const std::string_view word = text(token).substr(0, kMaxNoted);
    notes.warn(
        "%.*s: token %d, %.*s, is ordinary text by its type (tokenizer.ggml.token_type); text that has it has an end",
        static_cast<int>(key.size()), key.data(), token, static_cast<int>(word.size()), word.data());
  });
}

Status Vocab::read_scores(const GgufFile& file) {
  const GgufValue* scores = nullptr;
  WEIR_TRY(file.get_array(kScoresKey, GgufArray::kFloats, true, scores));
  if (scores->count != size()) return wrong_count(kScoresKey, scores->count, size());
  scores_.resize(size());
  for (uint32_t i = 0; i < size(); ++i) {
    scores_[i] = static_cast<float>(gguf_number(*scores, i));
    if (std::isnan(scores_[i])) return fail(WEIR_ERR_FORMAT, "%s[%u] is not a number", kScoresKey, i);
  }
  return {};
}

Status Vocab::spell(TokenSpelling spelling, OpenProgress& progress) {
  bytes_.resize(text_.size());  // decoded text is never longer
  bytes_at_.reserve(size() + 1);
  size_t end = 0;
  for (uint32_t i = 0; i < size(); ++i) {
    const auto token = static_cast<weir_token>(i);
    const std::string_view stored = text(token);
    const bool raw = type(token) == TokenType::kControl || type(token) == TokenType::kUnknown;
    char* out = bytes_.data() + end;
    bytes_at_.push_back(static_cast<uint32_t>(end));
    size_t n = 0;
    if (spelling == TokenSpelling::kByteLevel) {
      if (raw || type(token) == TokenType::kUserDefined || !spell_byte_level(stored, out, n))
        n = stored.copy(out, stored.size());
    } else if (type(token) == TokenType::kByte && byte_of_text(stored) >= 0) {
      out[n++] = static_cast<char>(byte_of_text(stored));
    } else {
      n = raw ? stored.copy(out, stored.size()) : spell_spaces(stored, out);
    }
    if (n > kMaxTokenBytes) return too_long(i, n);
    end += n;
    WEIR_TRY(progress.step());
  }
  bytes_at_.push_back(static_cast<uint32_t>(end));
  return {};
}

Status Vocab::index(TokenSpelling spelling, OpenProgress& progress) {
  slots_.assign(std::bit_ceil(size_t{size()} * 3 / 2 + 1), Slot{0, -1});
  const size_t mask = slots_.size() - 1;
  for (uint32_t i = 0; i < size(); ++i) {
    WEIR_TRY(progress.step());
    const auto token = static_cast<weir_token>(i);
    const TokenType kind = type(token);
    const bool user = kind == TokenType::kUserDefined && spelling == TokenSpelling::kByteLevel;
    const bool byte =
        kind == TokenType::kByte && spelling == TokenSpelling::kSentencePiece;  // text such as "<0x0A>" is no byte
    if (is_mark(token) || user || byte || text(token).empty()) continue;
    const uint64_t hash = keyed_hash(text(token), key_);
    const auto high = static_cast<uint32_t>(hash >> 32);
    size_t at = hash & mask;
    for (; slots_[at].token >= 0; at = (at + 1) & mask) {
      if (slots_[at].hash == high && text(slots_[at].token) == text(token)) break;
      ++n_collisions_;
    }
    if (slots_[at].token < 0) slots_[at] = {high, token};
  }
  return {};
}

void Vocab::find_bytes(TokenSpelling spelling) {
  if (spelling == TokenSpelling::kByteLevel) {
    for (size_t byte = 0; byte < 256; ++byte) {
      char text[2];
      const uint16_t code = kAlphabet.code_of[byte];
      text[0] = static_cast<char>(code < 0x80 ? code : 0xC0 | code >> 6);
      text[1] = static_cast<char>(0x80 | (code & 0x3F));
      byte_tokens_[byte] = find({text, code < 0x80 ? size_t{1} : size_t{2}});
    }
    return;
  }
  for (weir_token& token : byte_tokens_) token = -1;
  for (uint32_t i = size(); i-- > 0;) {  // backwards, so that the first wins
    const auto token = static_cast<weir_token>(i);
    const int byte = type(token) == TokenType::kByte ? byte_of_text(text(token)) : -1;
    if (byte >= 0) byte_tokens_[byte] = token;
  }
}

weir_token Vocab::find(std::string_view wanted) const {
  const size_t mask = slots_.size() - 1;
  const uint64_t hash = keyed_hash(wanted, key_);
  const auto high = static_cast<uint32_t>(hash >> 32);
  for (size_t at = hash & mask; slots_[at].token >= 0; at = (at + 1) & mask) {
    if (slots_[at].hash == high && text(slots_[at].token) == wanted) return slots_[at].token;
  }
  return -1;
}

}  // namespace weir
