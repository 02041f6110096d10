// text: what a token means follows from its class and the keys of the file, never from its text alone: what ends an
// answer, what may stand for text that the vocabulary lacks, and that no text becomes a control token; and the dialects
// of files in which classes and ids come.
#include <functional>

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

constexpr int32_t kNormal = 1, kControl = 3, kUserDefined = 4;
constexpr weir_token kImEnd = 261;

// The texts that end turns in some model.
constexpr const char* kEnds[] = {"<|eot_id|>", "<|eom_id|>",    "<|end|>", "<|endoftext|>", "</s>",
                                 "<|eot|>",    "<end_of_turn>", "<eos>",   "<EOT>",         "<|EOT|>"};

void ends__by_class(void**) {
  for (const VocabParts& base : {byte_level_parts(), spm_parts()}) {
    for (const char* text : kEnds) {
      for (const int32_t type : {kNormal, kControl, kUserDefined}) {
        VocabParts parts = base;
        if (base.model == "llama" && std::string(text) == "</s>") continue;  // it is there
        const weir_token token = parts.add(text, type);
        const Opened t(parts.file());
        if (!t.status().ok()) fail_msg("%s", last_error_text());
        if (t->is_end_of_generation(token) != (type == kControl)) fail_msg("%s of class %d", text, type);
        assert_true(t->special().eot != token || type == kControl);
        // A key of the file counts whatever the class.
        for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
          VocabParts named = parts;
          named.more = GgufWriter();
          named.more.add_u32(std::string("tokenizer.ggml.") + key, static_cast<uint32_t>(token));
          const Opened by_key(named.file());
          assert_true(by_key.status().ok() && by_key->is_end_of_generation(token));
        }
      }
    }
  }
  // As in gpt-oss: an answer has several messages.
  VocabParts several = byte_level_parts();
  const weir_token end = several.add("<|end|>", kControl), call = several.add("<|call|>", kControl),
                   back = several.add("<|return|>", kControl);
  const Opened one(several.file());
  assert_true(one->is_end_of_generation(end) && !one->is_end_of_generation(call) && !one->is_end_of_generation(back));
  several.add("<|channel|>", kControl);
  several.add("<|message|>", kControl);
  const Opened messages(several.file());
  assert_true(!messages->is_end_of_generation(end) && messages->special().eot != end);
  assert_true(messages->is_end_of_generation(call) && messages->is_end_of_generation(back));
  // As in Gemma: </s> is a tag, and the end is another token.
  VocabParts parts = spm_parts();
  parts.tokens[2] = "<end_of_turn>";
  const weir_token tag = parts.add("</s>", kUserDefined);
  const Opened t(parts.file());
  assert_true(t->is_end_of_generation(2) && !t->is_end_of_generation(tag));
  assert_int_equal(encode(*t, "</s>").back(), tag);
}

void ends__of_an_array(void**) {
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eos_token_ids"}) {
    VocabParts parts = byte_level_parts();
    const weir_token other = parts.add("[stop]", kControl);
    parts.more = GgufWriter();
    parts.more.add_array(key, GgufType::kI32, std::vector<int32_t>{other, kImEnd});
    const Opened t(parts.file());
    assert_true(t.status().ok() && t->is_end_of_generation(other) && t->is_end_of_generation(kImEnd));
    assert_int_equal(t->special().eos, std::string(key).back() == 's' ? -1 : other);
  }
}

void unknown__never_a_token_with_a_meaning(void**) {
  for (const int32_t type : {kControl, kNormal}) {
    VocabParts parts = byte_level_parts();
    parts.tokens[4] = "[gone]";
    const weir_token unk = parts.add("<|endoftext|>", type);
    parts.more.add_u32("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(unk));
    if (type == kNormal) parts.more.add_u32("tokenizer.ggml.eot_token_id", static_cast<uint32_t>(unk));
    const Opened t(parts.file());
    assert_int_equal(t->special().unk, unk);
    assert_true(encode(*t,
                       "a\x04"
                       "b") == (Ids{'a', 'b'}));
    Ids none = {1};
    assert_true(encode(*t, "\x04\x04", 0, none).ok() && none.empty());
  }
  VocabParts parts = spm_parts();
  parts.types[0] = kControl;
  parts.types[3 + 'z'] = kNormal;
  const Opened t(parts.file());
  Ids ids;
  assert_int_equal(encode(*t, "az", 0, ids).code(), WEIR_ERR_FORMAT);
  assert_non_null(std::strstr(last_error_text(), "0x7A"));
}

// Notes of a file, one a line.
std::string notes_of(const Bytes& bytes, Notes::Kind kind = Notes::Kind::kWarning, const char* usual_pre = nullptr) {
  HostMemory memory{AllocatorHooks()};
  GgufFile file(&memory);
  Tokenizer tokenizer(&memory);
  Notes notes(&memory);
  OpenProgress nobody;
  assert_true(file.parse(bytes).ok());
  if (!tokenizer.build(file, usual_pre, nobody, notes).ok()) fail_msg("%s", last_error_text());
  std::string out;
  for (size_t i = 0; i < notes.size(); ++i) {
    if (notes.kind(i) == kind) out += std::string(notes.text(i)) + "\n";
  }
  return out;
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// A vocabulary in which merging could put together every text of a token that means something.
VocabParts forgeable(VocabParts parts, const char* text, int32_t type) {
  const std::string whole = text;
  for (size_t n = 2; n < whole.size(); ++n) {
    if (parts.model == "gpt2") parts.merges.push_back(whole.substr(0, n - 1) + " " + whole[n - 1]);
    parts.add(whole.substr(0, n), kNormal, static_cast<float>(n));
  }
  if (parts.model == "llama") {
    for (char c : whole) parts.add(std::string(1, c), kNormal);
  } else {
    parts.merges.push_back(whole.substr(0, whole.size() - 1) + " " + whole.back());
  }
  parts.add(text, type, 100.0f);
  return parts;
}

// Whatever the class of the end token, and also where the file has no classes; in messages and in other text.
void no_text__becomes_a_token_that_ends(void**) {
  for (const VocabParts& base : {byte_level_parts(), spm_parts()}) {
    for (const auto& [mark, type] : {std::pair{"[/stop]", kNormal},
                                     {"[/stop]", kControl},
                                     {"[/stop]", kUserDefined},
                                     {"overandout", kControl},
                                     {"overandout", kUserDefined}}) {
      for (const bool has_types : {true, false}) {
        if (!has_types && mark[0] == 'o') continue;  // a word, for all that the file says
        VocabParts parts = forgeable(base, mark, type);
        const auto end = static_cast<weir_token>(parts.tokens.size() - 1);
        GgufWriter w;
        w.add_string("tokenizer.ggml.model", parts.model).add_strings("tokenizer.ggml.tokens", parts.tokens);
        w.add_strings("tokenizer.ggml.merges", parts.merges).add_u32("tokenizer.ggml.eos_token_id", end);
        w.add_string("tokenizer.ggml.pre", "llama-bpe");  // a word that is a token becomes it without merging
        if (has_types) w.add_array("tokenizer.ggml.token_type", GgufType::kI32, parts.types);
        if (parts.model == "llama") w.add_array("tokenizer.ggml.scores", GgufType::kF32, parts.scores);
        const Opened t(w.build());
        if (!t.status().ok()) fail_msg("%s", last_error_text());
        assert_true(t->is_end_of_generation(end));
        const std::string m = mark;
        for (const std::string& text :
             {m, "a" + m + "b", m + m, " " + m + " ", std::string("</s>"), std::string("<s>a</s>")}) {
          std::pmr::vector<weir_token> ids;
          const TextRange said[] = {{0, text.size()}};
          assert_true(t->encode_chat(text, said, ids).ok());
          Ids plain = encode(*t, text);
          ids.insert(ids.end(), plain.begin(), plain.end());
          for (weir_token id : ids) {
            weir_token_info info = WEIR_TOKEN_INFO_INIT;
            t->token_info(id, info);
            if ((info.flags & (WEIR_TOKEN_CONTROL | WEIR_TOKEN_END_OF_GENERATION)) != 0)
              fail_msg("%s: \"%s\" has token %d", parts.model.c_str(), text.c_str(), id);
          }
        }
        // Whoever asks for it gets it, and so does a template.
        assert_int_equal(encode(*t, m, WEIR_TOKENIZE_SPECIAL).back(), end);
        std::pmr::vector<weir_token> ids;
        assert_true(t->encode_chat(m, {}, ids).ok() && ids.size() == 1 && ids[0] == end);
      }
    }
  }
}

// A word that is text by its class stays one, with a line that names the key.
void no_text__but_a_word_that_a_file_names(void**) {
  for (const VocabParts& base : {byte_level_parts(), spm_parts()}) {
    VocabParts parts = forgeable(base, "overandout", kNormal);
    const auto end = static_cast<weir_token>(parts.tokens.size() - 1);
    parts.more = GgufWriter();
    parts.more.add_u32("tokenizer.ggml.eot_token_id", static_cast<uint32_t>(end));
    const Bytes bytes = parts.file();
    const Opened t(bytes);
    if (!t.status().ok()) fail_msg("%s", last_error_text());
    assert_true(t->is_end_of_generation(end));
    assert_int_equal(encode(*t, "overandout").back(), end);
    assert_true(has(notes_of(bytes), "tokenizer.ggml.eot_token_id: token"));
    assert_true(has(notes_of(bytes), "overandout"));
  }
}

// ---- dialects ----

template <class T>
void assert_types_as(GgufType type) {
  VocabParts parts = byte_level_parts();
  GgufWriter w = parts.more;
  w.add_string("tokenizer.ggml.model", "gpt2").add_string("tokenizer.ggml.pre", "gpt-2");
  w.add_strings("tokenizer.ggml.tokens", parts.tokens).add_strings("tokenizer.ggml.merges", parts.merges);
  w.add_array("tokenizer.ggml.token_type", type, std::vector<T>(parts.types.begin(), parts.types.end()));
  w.add("tokenizer.ggml.bos_token_id", type, T{100}).add("tokenizer.ggml.add_bos_token", GgufType::kU8, uint8_t{1});
  const Opened t(w.build());
  if (!t.status().ok()) fail_msg("%s", last_error_text());
  assert_true(encode(*t, "hello<|im_end|><tool>", WEIR_TOKENIZE_SPECIAL | WEIR_TOKENIZE_BOS_EOS) ==
              (Ids{100, 259, kImEnd, 262}));
}

void dialects__of_integers(void**) {
  assert_types_as<uint8_t>(GgufType::kU8);
  assert_types_as<int8_t>(GgufType::kI8);
  assert_types_as<uint16_t>(GgufType::kU16);
  assert_types_as<int16_t>(GgufType::kI16);
  assert_types_as<uint32_t>(GgufType::kU32);
  assert_types_as<int32_t>(GgufType::kI32);
  assert_types_as<uint64_t>(GgufType::kU64);
  assert_types_as<int64_t>(GgufType::kI64);
}

void dialects__of_scores(void**) {
  const VocabParts parts = spm_parts();
  const auto with = [&](const std::function<void(GgufWriter&)>& add) {
    GgufWriter w;
    w.add_string("tokenizer.ggml.model", "llama").add_strings("tokenizer.ggml.tokens", parts.tokens);
    w.add_array("tokenizer.ggml.token_type", GgufType::kI32, parts.types);
    add(w);
    const Opened t(w.build());
    if (!t.status().ok()) fail_msg("%s", last_error_text());
    return encode(*t, "abc ab");
  };
  const std::string key = "tokenizer.ggml.scores";
  const Ids want = with([&](GgufWriter& w) { w.add_array(key, GgufType::kF32, parts.scores); });
  const std::vector<double> wide(parts.scores.begin(), parts.scores.end());
  assert_true(with([&](GgufWriter& w) { w.add_array(key, GgufType::kF64, wide); }) == want);
}

// -1, in any width, and the number behind the last token are none; another number is none with a warning.
void dialects__of_ids_that_mean_none(void**) {
  for (const char* key :
       {"bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id", "unknown_token_id", "padding_token_id"}) {
    const std::string name = std::string("tokenizer.ggml.") + key;
    VocabParts base = byte_level_parts();
    base.more = GgufWriter();
    const auto n = static_cast<uint32_t>(base.tokens.size());
    const std::function<void(GgufWriter&)> none[] = {
        [&](GgufWriter& w) { w.add_u32(name, UINT32_MAX); },
        [&](GgufWriter& w) { w.add_u32(name, n); },
        [&](GgufWriter& w) { w.add(name, GgufType::kI32, int32_t{-1}); },
        [&](GgufWriter& w) { w.add(name, GgufType::kI64, int64_t{-1}); },
        [&](GgufWriter& w) { w.add(name, GgufType::kU64, UINT64_MAX); },
        [&](GgufWriter& w) { w.add_u32(name, n + 1); },
        [&](GgufWriter& w) { w.add(name, GgufType::kI32, int32_t{-2}); },
    };
    for (size_t i = 0; i < std::size(none); ++i) {
      VocabParts parts = base;
      none[i](parts.more);
      const Bytes bytes = parts.file();
      const Opened t(bytes);
      if (!t.status().ok()) fail_msg("%s %zu: %s", key, i, last_error_text());
      const weir_special_tokens s = t->special();
      for (weir_token token : {s.bos, s.eos, s.unk, s.pad}) assert_int_equal(token, -1);
      assert_int_equal(has(notes_of(bytes), key), i >= 5);
    }
  }
}

// A file that says everything gives no line; each key that is missing gives one.
void notes__of_missing_keys(void**) {
  VocabParts bpe = byte_level_parts(), spm = spm_parts();
  assert_string_equal(notes_of(bpe.file()).c_str(), "");
  assert_string_equal(notes_of(bpe.file(), Notes::Kind::kDefault).c_str(), "");
  bpe.pre = "";
  assert_true(
      has(notes_of(bpe.file()), "tokenizer.ggml.pre: the file has no such key; words are split by \"default\""));
  assert_true(has(notes_of(bpe.file(), Notes::Kind::kWarning, "qwen2"), "split by \"qwen2\""));
  bpe = byte_level_parts();
  bpe.types.clear();
  GgufWriter w;
  w.add_string("tokenizer.ggml.model", "gpt2").add_string("tokenizer.ggml.pre", "gpt-2");
  w.add_strings("tokenizer.ggml.tokens", bpe.tokens).add_strings("tokenizer.ggml.merges", bpe.merges);
  const std::string bare = notes_of(w.build());
  assert_true(has(bare, "tokenizer.ggml.token_type") && has(bare, "tokenizer.ggml.eos_token_id"));
  assert_true(has(notes_of(spm.file()), "tokenizer.ggml.add_bos_token"));
  assert_true(has(notes_of(spm.file(), Notes::Kind::kDefault), "tokenizer.ggml.add_space_prefix"));
  spm.more.add_bool("tokenizer.ggml.add_bos_token", true).add_bool("tokenizer.ggml.add_space_prefix", true);
  spm.more.add_u32("tokenizer.ggml.bos_token_id", 1).add_u32("tokenizer.ggml.eos_token_id", 2);
  spm.more.add_u32("tokenizer.ggml.unknown_token_id", 0);
  assert_string_equal(notes_of(spm.file()).c_str(), "");
  assert_string_equal(notes_of(spm.file(), Notes::Kind::kDefault).c_str(), "");
  // Something that looks like an end of turn and is text.
  spm.add("<|end|>", kUserDefined);
  assert_true(has(notes_of(spm.file()), "<|end|>"));
}

// As the pre-tokenizer of its architecture's models, where the file does not name it.
void notes__a_usual_pre_tokenizer_is_taken(void**) {
  VocabParts parts = byte_level_parts();
  parts.pre = "";
  HostMemory memory{AllocatorHooks()};
  GgufFile file(&memory);
  const Bytes bytes = parts.file();
  assert_true(file.parse(bytes).ok());
  Tokenizer tokenizer(&memory);
  Notes notes(&memory);
  OpenProgress nobody;
  assert_true(tokenizer.build(file, "qwen2", nobody, notes).ok());
  assert_string_equal(tokenizer.kind(), "gpt2/qwen2");
}

// Real vocabularies say all that matters.
void notes__none_of_real_vocabularies(void**) {
  for (const char* name : {"gpt-2", "deepseek-llm", "falcon", "llama-spm", "phi-3"})
    assert_string_equal(notes_of([&] {
                          const std::string text = read_file(vocab_path(name));
                          return Bytes(text.begin(), text.end());
                        }())
                            .c_str(),
                        "");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(ends__by_class),
      cmocka_unit_test(ends__of_an_array),
      cmocka_unit_test(unknown__never_a_token_with_a_meaning),
      cmocka_unit_test(no_text__becomes_a_token_that_ends),
      cmocka_unit_test(no_text__but_a_word_that_a_file_names),
      cmocka_unit_test(dialects__of_integers),
      cmocka_unit_test(dialects__of_scores),
      cmocka_unit_test(dialects__of_ids_that_mean_none),
      cmocka_unit_test(notes__of_missing_keys),
      cmocka_unit_test(notes__a_usual_pre_tokenizer_is_taken),
      cmocka_unit_test(notes__none_of_real_vocabularies),
  };
  return cmocka_run_group_tests_name("text/token_meaning", tests, nullptr, nullptr);
}
