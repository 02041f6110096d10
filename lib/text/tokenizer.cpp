// Building a tokenizer from a file, and text to tokens.
#include "text/tokenizer.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <limits>

#include "core/memory.h"
#include "core/utf8.h"
#include "text/long_piece.h"
#include "text/text_hash.h"
#include "text/tokenizer_impl.h"

namespace weir {
namespace {

enum Whole : uint8_t { kWholeUnknown, kWholeYes, kWholeNo };

// Tokens that were appended are taken back unless the call ends well, also when an allocation throws.
class AppendGuard {
 public:
  explicit AppendGuard(std::pmr::vector<weir_token>& out) : out_(out), size_(out.size()) {}
  ~AppendGuard() {
    if (!kept_) out_.resize(size_);
  }
  AppendGuard(const AppendGuard&) = delete;
  AppendGuard& operator=(const AppendGuard&) = delete;
  void keep() { kept_ = true; }

 private:
  std::pmr::vector<weir_token>& out_;
  size_t size_;
  bool kept_ = false;
};

using Which = AddedTokens::Which;

// Ordinary text has about one token in four bytes. For long text the ids take most of the memory.
void reserve_ids(size_t n_bytes, std::pmr::vector<weir_token>& out) {
  // A vector doubles, and 16 more leave room for the few that belong to no byte.
  if (n_bytes > kWindowBytes) out.reserve(out.size() + n_bytes / 4 + 16);
}

// Length of the white space at the front of `text`, as ASCII has it.
size_t leading_space(std::string_view text) {
  const size_t n = text.find_first_not_of(" \t\n\v\f\r");
  return n == std::string_view::npos ? text.size() : n;
}

void hash_array(const GgufFile& file, std::string_view key, uint64_t& hash) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return;
  hash = text_hash({reinterpret_cast<const char*>(value->data), value->data_bytes}, text_hash_mix(hash, value->count));
}

}  // namespace

Tokenizer::~Tokenizer() { destroy_in(*memory_, impl_); }

Status Tokenizer::build(const GgufFile& file) {
  OpenProgress nobody;
  Notes unread(memory_);
  return build(file, nullptr, nobody, unread);
}

Status Tokenizer::build(const GgufFile& file, const char* usual_pre, OpenProgress& progress, Notes& notes) {
  if (impl_ != nullptr) return fail(WEIR_ERR_STATE, "the tokenizer is built already");
  struct Holder {  // gives the half-built object back on every way out but the last
    std::pmr::memory_resource& memory;
    TokenizerImpl* impl;
    ~Holder() { destroy_in(memory, impl); }
  } holder = {*memory_, make_in<TokenizerImpl>(*memory_, memory_)};
  WEIR_TRY(holder.impl->read_model(file, usual_pre, memory_, progress, notes));
  WEIR_TRY(holder.impl->read_special(file, notes));
  holder.impl->read_hash(file);
  impl_ = holder.impl;
  holder.impl = nullptr;
  return {};
}

Status TokenizerImpl::read_model(const GgufFile& file, const char* usual_pre, std::pmr::memory_resource* memory,
                                 OpenProgress& progress, Notes& notes) {
  constexpr const char* kPre = "tokenizer.ggml.pre";
  std::string_view model, pre_name;
  WEIR_TRY(file.get_string("tokenizer.ggml.model", model));
  WEIR_TRY(file.get_string(kPre, pre_name, ""));
  is_spm = model == "llama";
  if (!is_spm && model != "gpt2") {
    return fail(WEIR_ERR_UNSUPPORTED, "tokenizer.ggml.model: this version does not know the tokenizer \"%.*s\"",
                static_cast<int>(model.size() < 64 ? model.size() : 64), model.data());
  }
  if (!is_spm && pre_name.empty()) {
    pre_name = usual_pre != nullptr ? usual_pre : "default";
    if (usual_pre != nullptr) {
      notes.warn("%s: the file has no such key; words are split by \"%s\", as in other models of this architecture",
                 kPre, usual_pre);
    } else {
      notes.warn("%s: the file has no such key; words are split by \"default\", and the model may have learned others",
                 kPre);
    }
  }
  if (!is_spm) WEIR_TRY(pre.build(pre_name, memory));
  const HashKey key = random_hash_key();
  WEIR_TRY(vocab.read(file, is_spm ? TokenSpelling::kSentencePiece : TokenSpelling::kByteLevel, key, progress, notes));
  WEIR_TRY(added.build(vocab, progress));
  if (is_spm) {
    WEIR_TRY(spm.build(vocab, progress));
    constexpr const char* kSpacePrefix = "tokenizer.ggml.add_space_prefix";
    WEIR_TRY(file.get_bool(kSpacePrefix, space_prefix, true));
    if (file.find(kSpacePrefix) == nullptr)
      notes.take_default("%s: the file has no such key; a space is put before text", kSpacePrefix);
  } else {
    WEIR_TRY(merges.read(file, vocab, added, key, progress));
  }
  whole.assign(vocab.size(), kWholeUnknown);
  // The pre-tokenizer of a SentencePiece model has no effect; files say "default" there.
  std::snprintf(kind, sizeof(kind), "%s/%s", is_spm ? "llama" : "gpt2", is_spm ? "default" : pre.name());
  return {};
}

void TokenizerImpl::read_hash(const GgufFile& file) {
  hash = kTextHashSeed;
  hash_array(file, "tokenizer.ggml.tokens", hash);
  hash_array(file, "tokenizer.ggml.token_type", hash);
  hash_array(file, is_spm ? "tokenizer.ggml.scores" : "tokenizer.ggml.merges", hash);
}

uint32_t Tokenizer::vocab_size() const { return impl_->vocab.size(); }
const char* Tokenizer::kind() const { return impl_->kind; }
weir_special_tokens Tokenizer::special() const { return impl_->special; }
uint64_t Tokenizer::hash() const { return impl_->hash; }

bool Tokenizer::is_end_of_generation(weir_token token) const {
  const auto i = static_cast<size_t>(token);
  return i < impl_->token_flags.size() && (impl_->token_flags[i] & WEIR_TOKEN_END_OF_GENERATION) != 0;
}

std::span<const weir_token> Tokenizer::ends() const { return impl_->ends; }

void Tokenizer::token_info(weir_token token, weir_token_info& info) const {
  const std::string_view text = impl_->vocab.text(token);
  info.flags = impl_->token_flags[static_cast<size_t>(token)] & kTokenInfoMask;
  info.text = text.data();
  info.text_bytes = text.size();
  info.score = impl_->vocab.score(token);
  info.reserved = 0;
  const std::string_view bytes = impl_->vocab.bytes(token);
  info.bytes = bytes.data();
  info.n_bytes = bytes.size();
}

bool Tokenizer::is_mark(weir_token token) const { return impl_->vocab.is_mark(token); }

weir_token Tokenizer::find_mark(std::string_view text) const {
  const weir_token token = impl_->added.find(text);
  return token >= 0 && is_mark(token) ? token : -1;
}

Status Tokenizer::encode(std::string_view text, uint32_t flags, std::pmr::vector<weir_token>& out,
                         OpenProgress progress) const {
  const TokenizerImpl& t = *impl_;
  const bool ends = (flags & WEIR_TOKENIZE_BOS_EOS) != 0, special = (flags & WEIR_TOKENIZE_SPECIAL) != 0;
  progress.set_total(text.size());
  WEIR_TRY(progress.tell(0));
  AppendGuard guard(out);
  reserve_ids(text.size(), out);
  EncodeCall call(t.is_spm ? nullptr : &t.pre, out, out.get_allocator().resource(), progress);
  if (ends && t.special.add_bos != 0) out.push_back(t.special.bos);
  WEIR_TRY(t.encode_mixed(text, special ? Which::kAll : Which::kUserDefined, {}, call));
  if (ends && t.special.add_eos != 0) out.push_back(t.special.eos);
  WEIR_TRY(progress.complete());
  guard.keep();
  return {};
}

Status Tokenizer::encode_chat(std::string_view text, std::span<const TextRange> said, std::pmr::vector<weir_token>& out,
                              OpenProgress progress) const {
  const TokenizerImpl& t = *impl_;
  progress.set_total(text.size());
  WEIR_TRY(progress.tell(0));
  std::pmr::memory_resource* memory = out.get_allocator().resource();
  AppendGuard guard(out);
  reserve_ids(text.size(), out);
  EncodeCall call(t.is_spm ? nullptr : &t.pre, out, memory, progress);
  std::pmr::vector<AddedTokens::Match> marks(memory);
  std::pmr::vector<weir_token> written(memory);
  WEIR_TRY(t.find_marks(text, said, marks, written, progress));
  size_t at = 0;
  for (const AddedTokens::Match& mark : marks) {
    if (at < mark.begin) WEIR_TRY(t.encode_mixed(text.substr(at, mark.begin - at), Which::kPlain, written, call));
    out.push_back(mark.token);
    WEIR_TRY(progress.work(mark.end - mark.begin, mark.end - mark.begin));
    at = mark.end + t.taken_behind(mark.token, text.substr(mark.end));
  }
  WEIR_TRY(t.encode_mixed(text.substr(at), Which::kPlain, written, call));
  WEIR_TRY(progress.complete());
  guard.keep();
  return {};
}

// Finds the marks in template text, which is the text outside of `said`: all added tokens there, except plain tokens of
// white space. `written` are the plain ones among the marks; they are not recognised in messages then.
Status TokenizerImpl::find_marks(std::string_view text, std::span<const TextRange> said,
                                 std::pmr::vector<AddedTokens::Match>& marks, std::pmr::vector<weir_token>& written,
                                 OpenProgress& progress) const {
  for (size_t i = 0, at = 0; i <= said.size(); ++i) {
    const size_t end = i < said.size() ? said[i].begin : text.size();
    WEIR_TRY(progress.work(end - at, 0));
    AddedTokens::Match match = {};
    while (added.next(text.substr(0, end), at, Which::kAll, match)) {
      at = match.end;
      const std::string_view mark = vocab.text(match.token);
      if (leading_space(mark) == mark.size()) continue;
      marks.push_back(match);
      if (!vocab.is_mark(match.token)) written.push_back(match.token);
    }
    if (i < said.size()) at = said[i].end;
  }
  std::sort(written.begin(), written.end());
  return {};
}

Status TokenizerImpl::encode_mixed(std::string_view text, AddedTokens::Which which, std::span<const weir_token> except,
                                   EncodeCall& call) const {
  for (size_t at = 0; at < text.size();) {
    AddedTokens::Match match = {-1, text.size(), text.size()};
    const bool found = added.next(text, at, which, match, except);
    WEIR_TRY(encode_plain(text.substr(at, match.begin - at), call));
    at = match.end;
    if (!found) break;
    call.out.push_back(match.token);
    at += taken_behind(match.token, text.substr(at));
  }
  return {};
}

Status TokenizerImpl::encode_plain(std::string_view text, EncodeCall& call) const {
  if (text.empty()) return {};
  return is_spm ? encode_spm(text, call) : encode_bpe(text, call);
}

size_t TokenizerImpl::taken_behind(weir_token token, std::string_view text) const {
  return (token_flags[static_cast<size_t>(token)] & kTokenRstrip) != 0 ? leading_space(text) : 0;
}

Status TokenizerImpl::encode_bpe(std::string_view text, EncodeCall& call) const {
  struct Context {
    const TokenizerImpl& t;
    EncodeCall& call;
  } context = {*this, call};
  const auto encode = [](void* user, std::string_view piece) {
    const auto& c = *static_cast<Context*>(user);
    if (piece.size() > kWindowBytes) return c.t.encode_long(piece, c.call);
    WEIR_TRY(c.call.progress.work(piece.size(), piece.size()));
    c.call.spelled.clear();
    append_byte_level(piece, c.call.spelled);
    return c.t.encode_piece(piece, c.call.spelled, c.call);
  };
  return call.splitter->split(text, encode, &context);
}

Status TokenizerImpl::encode_spm(std::string_view text, EncodeCall& call) const {
  const auto n_spaces = static_cast<size_t>(std::count(text.begin(), text.end(), ' '));
  call.spelled.clear();
  call.spelled.reserve(text.size() + n_spaces * (kSpaceMarkBytes - 1) + kSpaceMarkBytes);
  if (space_prefix) call.spelled.append(kSpaceMark);
  for (const char c : text) {
    if (c == ' ') {
      call.spelled.append(kSpaceMark);
    } else {
      call.spelled.push_back(c);
    }
  }
  if (call.spelled.size() > std::numeric_limits<uint32_t>::max()) {
    return fail(WEIR_ERR_INVALID_ARG, "a text of %zu bytes is too long", text.size());
  }
  for (std::string_view left = call.spelled; !left.empty();) {
    const std::string_view word = left.substr(0, spm.word_bytes(left));
    if (word.size() > kWindowBytes) {
      WEIR_TRY(encode_long(word, call));
    } else {
      WEIR_TRY(call.progress.work(word.size(), word.size()));
      WEIR_TRY(encode_piece(word, word, call));
    }
    left.remove_prefix(word.size());
  }
  return {};
}

// Appends the tokens of a piece, given as what is merged and as the vocabulary spells it.
Status TokenizerImpl::encode_piece(std::string_view piece, std::string_view spelled, EncodeCall& call) const {
  const weir_token token = vocab.find(spelled);
  if (token >= 0) {
    const std::atomic_ref<uint8_t> cached(whole[static_cast<size_t>(token)]);
    if ((pre.flags() & kPreWholeTokenFirst) != 0 || cached.load(std::memory_order_relaxed) == kWholeYes) {
      call.out.push_back(token);
      return {};
    }
  }
  merge(piece, call.list);
  if (token >= 0) {
    const Whole answer = call.list.single() == token ? kWholeYes : kWholeNo;
    std::atomic_ref<uint8_t>(whole[static_cast<size_t>(token)]).store(answer, std::memory_order_relaxed);
  }
  Status status;
  call.list.for_each([&](const Symbol& symbol) {
    if (status.ok()) status = encode_symbol(symbol, piece, call);
  });
  return status;
}

// The same for a piece that is longer than any token, in memory that does not grow with the piece.
Status TokenizerImpl::encode_long(std::string_view piece, EncodeCall& call) const {
  const size_t start = call.out.size();
  const auto merge_text = [&](std::string_view text, MergeList& list) { merge(text, list); };
  const auto emit = [&](const Symbol& symbol, std::string_view text) {
    WEIR_TRY(call.progress.work(symbol.n_bytes, 0));
    return encode_symbol(symbol, text, call);
  };
  const auto undo = [&] { call.out.resize(start); };
  WEIR_TRY(LongPiece(merge_text, emit, undo, call.out.get_allocator().resource()).run(piece));
  return call.progress.work(0, piece.size());
}

void TokenizerImpl::merge(std::string_view piece, MergeList& list) const {
  if (is_spm) {
    spm.apply(piece, list);
  } else {
    merges.apply(piece, vocab, list);
  }
}

Status TokenizerImpl::encode_symbol(const Symbol& symbol, std::string_view text, EncodeCall& call) const {
  if (symbol.token < 0) return encode_bytes(text.substr(symbol.begin, symbol.n_bytes), call);
  call.out.push_back(symbol.token);
  return {};
}

// A stretch of text that is not a token: its bytes, or the unknown token. One that means something never stands in:
// what a byte-level vocabulary with such an unknown token lacks are bytes that are in hardly any text, such as control
// characters, and these are left out.
Status TokenizerImpl::encode_bytes(std::string_view text, EncodeCall& call) const {
  const size_t start = call.out.size();
  for (const char c : text) {
    const weir_token token = vocab.find_byte(static_cast<uint8_t>(c));
    if (token >= 0) {
      call.out.push_back(token);
      continue;
    }
    if (stand_in < 0 && special.unk >= 0 && !is_spm) continue;
    if (stand_in < 0) {
      return fail(WEIR_ERR_FORMAT,
                  "the vocabulary has neither a token for the byte 0x%02X of the text nor an unknown token to stand in",
                  static_cast<uint8_t>(c));
    }
    call.out.resize(start);  // one for the whole character
    call.out.push_back(stand_in);
    break;
  }
  return {};
}

}  // namespace weir
