// api: files that are no model are called what they are, with what to do; and every GGUF file can be described.
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gguf/gguf.h"
#include "tests/api/api_test.h"
#include "tests/chat_message.h"
#include "tests/gguf/changed_file.h"
#include "tests/gguf/gguf_writer.h"

namespace {

using weir::GgufType;
using weir_test::Bytes;
using weir_test::ChangedFile;
using weir_test::GgufWriter;

struct Runtime {
  Runtime() { assert_ok(weir_runtime_create(nullptr, &runtime)); }
  ~Runtime() { weir_runtime_destroy(runtime); }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  weir_model* open(const char* path, uint32_t flags, weir_status expected) const {
    weir_model_options options = WEIR_MODEL_OPTIONS_INIT;
    options.flags = flags;
    weir_model* model = nullptr;
    const weir_status status = weir_model_open(runtime, path, &options, &model);
    if (status != expected) fail_msg("%s: \"%s\"", weir_status_name(status), weir_last_error());
    return model;
  }
  void refuses(const ChangedFile& file, weir_status status, const std::vector<const char*>& parts) const {
    assert_null(open(file.path(), 0, status));
    const std::string text = weir_last_error();
    for (const char* part : parts) {
      if (text.find(part) == std::string::npos) fail_msg("\"%s\" is not in \"%s\"", part, text.c_str());
    }
    assert_true(text.find(file.path()) == 0 && text.rfind(file.path()) == 0);  // once
  }
  weir_runtime* runtime = nullptr;
};

// Any GGUF file is described by its keys and tensors; nothing else can be asked of it.
void assert_described(const Runtime& r, const ChangedFile& file, uint32_t n_keys, uint32_t n_tensors) {
  weir_model* model = r.open(file.path(), WEIR_MODEL_DESCRIBE_ONLY, WEIR_OK);
  weir_model_info info = WEIR_MODEL_INFO_INIT;
  assert_ok(weir_model_get_info(model, &info));
  assert_int_equal(info.n_tensors, n_tensors);
  assert_int_equal(weir_model_metadata_count(model), n_keys);
  for (uint32_t i = 0; i < n_tensors; ++i) {
    weir_tensor_info t = WEIR_TENSOR_INFO_INIT;
    assert_ok(weir_model_tensor_info(model, i, &t));
    assert_true(t.type[0] != '\0');
  }
  weir_special_tokens special = WEIR_SPECIAL_TOKENS_INIT;
  weir_token_info token = WEIR_TOKEN_INFO_INIT;
  weir_detokenizer* detokenizer = nullptr;
  weir_session* session = nullptr;
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  const weir_chat_message message = weir_test::chat_message("user", "hi");
  char text[16];
  uint64_t n = 0;
  weir_token tokens[4] = {0, 0, 0, 0};
  // One status for all of them, which says that it is not the file's fault.
  const std::function<weir_status()> calls[] = {
      [&] { return weir_tokenize(model, "hi", 2, 0, tokens, 4, &n); },
      [&] { return weir_tokenize_with(model, "hi", 2, nullptr, tokens, 4, &n); },
      [&] { return weir_detokenize(model, tokens, 1, 0, text, 16, &n); },
      [&] { return weir_token_get_info(model, 0, &token); },
      [&] { return weir_model_special_tokens(model, &special); },
      [&] { return weir_detokenizer_create(model, 0, &detokenizer); },
      [&] { return weir_chat_render(model, &message, 1, 0, text, 16, &n); },
      [&] { return weir_chat_tokenize(model, &message, 1, nullptr, tokens, 4, &n); },
      [&] { return weir_session_create(model, nullptr, &session); },
      [&] { return weir_plan(model, nullptr, &plan); },
  };
  for (const auto& call : calls) assert_error(call(), WEIR_ERR_STATE, "WEIR_MODEL_DESCRIBE_ONLY");
  assert_null(detokenizer);
  assert_null(session);
  weir_model_close(model);
}

void other_files__of_gguf(void**) {
  const Runtime r;
  const Bytes data(64);
  GgufWriter adapter, projector, old_projector, matrix, vector;
  adapter.add_string("general.type", "adapter").add_string("general.architecture", "llama");
  adapter.add_string("adapter.type", "lora").add_f32("adapter.lora.alpha", 16.0f);
  adapter.add_tensor("blk.0.attn_q.weight.lora_a", {2, 8}, 0, data);
  projector.add_string("general.type", "mmproj").add_string("general.architecture", "clip");
  projector.add_tensor("v.blk.0.attn_q.weight", {2, 8}, 0, data);
  old_projector.add_string("general.architecture", "clip").add_bool("clip.has_vision_encoder", true);
  matrix.add_string("general.type", "imatrix").add_strings("imatrix.datasets", {"a.txt"});
  matrix.add_tensor("blk.0.attn_q.weight.in_sum2", {2, 8}, 0, data);
  vector.add_string("general.architecture", "controlvector");
  const struct {
    const GgufWriter* file;
    uint32_t n_keys, n_tensors;
    std::vector<const char*> parts;
  } cases[] = {{&adapter, 4, 1, {"LoRA adapter", "merge"}},
               {&projector, 2, 1, {"mmproj", "language model"}},
               {&old_projector, 2, 0, {"mmproj", "language model"}},
               {&matrix, 2, 1, {"importance matrix", "open the model"}},
               {&vector, 1, 0, {"control vector", "open the model"}}};
  for (const auto& c : cases) {
    const ChangedFile file(c.file->build());
    r.refuses(file, WEIR_ERR_UNSUPPORTED, c.parts);
    assert_null(r.open(file.path(), WEIR_MODEL_VOCAB_ONLY, WEIR_ERR_UNSUPPORTED));
    assert_described(r, file, c.n_keys, c.n_tensors);
  }
  const ChangedFile nothing(GgufWriter().build());
  r.refuses(nothing, WEIR_ERR_FORMAT, {"general.architecture"});
  assert_described(r, nothing, 0, 0);
  // A vocabulary without weights.
  const ChangedFile vocab(WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf", {}, nullptr,
                          [](std::string_view) { return false; });
  r.refuses(vocab, WEIR_ERR_FORMAT, {"vocabulary", "no weights", "WEIR_MODEL_VOCAB_ONLY"});
}

// Types that the format has given up and ones that come later: refused by name, and described.
void other_files__of_unknown_types(void**) {
  const Runtime r;
  const struct {
    uint32_t type;
    std::vector<const char*> parts;
  } cases[] = {{4, {"unknown tensor type 4: q4_2", "q4_0"}},
               {31, {"unknown tensor type 31: q4_0_4_4", "given up", "get the model as q4_0"}},
               {33, {"q4_0_8_8", "q4_0"}},
               {36, {"iq4_nl_4_4", "iq4_nl"}},
               {38, {"iq4_nl_8_8", "iq4_nl"}},
               {99, {"unknown tensor type 99", "newer"}}};
  for (const auto& c : cases) {
    GgufWriter w;
    w.add_string("general.architecture", "llama");
    w.add_tensor("a.weight", {2, 32}, c.type, Bytes(64)).add_tensor("b.weight", {16}, 0, Bytes(64));
    const ChangedFile file(w.build());
    r.refuses(file, WEIR_ERR_UNSUPPORTED, c.parts);
    assert_described(r, file, 1, 2);
  }
}

// Files of other formats, by their first bytes.
void other_files__of_other_formats(void**) {
  const Runtime r;
  const std::string header = R"({"model.embed_tokens.weight":{"dtype":"BF16","shape":[8,8],"data_offsets":[0,128]}})";
  std::string safetensors(8, '\0');
  const uint64_t n = header.size();
  std::memcpy(safetensors.data(), &n, sizeof(n));
  safetensors += header + std::string(128, '\0');
  const struct {
    std::string bytes;
    std::vector<const char*> parts;
  } cases[] = {{safetensors, {"safetensors", "convert"}},
               {std::string("PK\x03\x04", 4) + "archive/data.pkl", {"PyTorch", "convert"}},
               {std::string("\x80\x02}q", 4) + "stuff", {"PyTorch", "convert"}},
               {"tjgg\x03 old", {"ggjt", "predates GGUF"}},
               {"lmgg old old", {"GGML", "predates GGUF"}},
               {"algg old old", {"LoRA adapter", "no model"}},
               {"version https://git-lfs.github.com/spec/v1\n", {"Git LFS", "git lfs pull"}},
               {"<!DOCTYPE html><html>", {"web page"}},
               {R"({"architectures": ["LlamaForCausalLM"]})", {"JSON"}},
               {"\x1f\x8b\x08 gzip", {"gzip", "unpack"}},
               {"nothing that is known", {"not a GGUF file: it starts with the bytes 6e 6f 74 68"}}};
  for (const auto& c : cases) {
    const ChangedFile file(Bytes(c.bytes.begin(), c.bytes.end()));
    r.refuses(file, WEIR_ERR_FORMAT, {"not a GGUF file"});
    r.refuses(file, WEIR_ERR_FORMAT, c.parts);
    assert_null(r.open(file.path(), WEIR_MODEL_DESCRIBE_ONLY, WEIR_ERR_FORMAT));
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(other_files__of_gguf),
      cmocka_unit_test(other_files__of_unknown_types),
      cmocka_unit_test(other_files__of_other_formats),
  };
  return cmocka_run_group_tests_name("api/other_files", tests, nullptr, nullptr);
}
