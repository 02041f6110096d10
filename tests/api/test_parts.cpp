// api: a model in several files: the parts beside the one that is opened are found, answers are those of the model in
// one file, and what is missing or belongs to another model is named.
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "gguf/gguf.h"
#include "tests/api/api_test.h"
#include "tests/gguf/gguf_writer.h"

namespace {

using weir::GgufFile;
using weir::GgufType;
using weir::GgufValue;
using weir_test::Bytes;
using weir_test::GgufWriter;
namespace fs = std::filesystem;

constexpr char kWhole[] = WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf";

struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "weir_parts_XXXXXX").string();
    assert_non_null(mkdtemp(name.data()));
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string part(uint32_t number, uint32_t count, const char* name = "model") const {
    char text[64];
    std::snprintf(text, sizeof(text), "%s-%05u-of-%05u.gguf", name, number, count);
    return (path / text).string();
  }
  fs::path path;
};

using Change = std::function<void(uint32_t part, GgufWriter& writer)>;

// The tensors of `whole` in `count` files of equal numbers; the keys are in the first.
void split(const std::string& whole, const Folder& to, uint32_t count, const Change& change = nullptr) {
  GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.open(whole.c_str()).ok());
  const auto tensors = file.tensors();
  for (uint32_t part = 0; part < count; ++part) {
    GgufWriter w;
    if (part == 0) {
      for (const GgufValue& value : file.values()) w.add_value(value.key, value);
    }
    w.add("split.no", GgufType::kU16, static_cast<uint16_t>(part));
    w.add("split.count", GgufType::kU16, static_cast<uint16_t>(count));
    w.add("split.tensors.count", GgufType::kI32, static_cast<int32_t>(tensors.size()));
    for (size_t i = tensors.size() * part / count; i < tensors.size() * (part + 1) / count; ++i) {
      const Bytes data(tensors[i].data, tensors[i].data + tensors[i].bytes);
      if (tensors[i].n_dims == 1) w.add_tensor(tensors[i].name, {tensors[i].dims[0]}, tensors[i].type_id, data);
      if (tensors[i].n_dims == 2)
        w.add_tensor(tensors[i].name, {tensors[i].dims[0], tensors[i].dims[1]}, tensors[i].type_id, data);
    }
    if (change) change(part, w);
    assert_true(weir_test::save(to.part(part + 1, count).c_str(), w.build()));
  }
}

struct Progress {
  std::vector<weir_progress_info> calls;
  static weir_status note(void* user, const weir_progress_info* info) {
    static_cast<Progress*>(user)->calls.push_back(*info);
    return WEIR_OK;
  }
};

struct Runtime {
  Runtime() { assert_ok(weir_runtime_create(nullptr, &runtime)); }
  ~Runtime() { weir_runtime_destroy(runtime); }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  weir_status open(const std::string& path, uint32_t flags, weir_model** model, Progress* progress = nullptr) const {
    weir_model_options options = WEIR_MODEL_OPTIONS_INIT;
    options.flags = flags;
    if (progress != nullptr) options.progress = Progress::note;
    options.progress_user = progress;
    return weir_model_open(runtime, path.c_str(), &options, model);
  }
  uint64_t bytes() const {
    weir_memory_counters counters = WEIR_MEMORY_COUNTERS_INIT;
    assert_ok(weir_runtime_memory(runtime, &counters));
    return counters.bytes;
  }
  weir_runtime* runtime = nullptr;
};

weir_model_info info_of(const weir_model* model) {
  weir_model_info info = WEIR_MODEL_INFO_INIT;
  assert_ok(weir_model_get_info(model, &info));
  return info;
}

std::vector<float> logits_of(weir_model* model, uint32_t vocab_size) {
  weir_session* session = nullptr;
  assert_ok(weir_session_create(model, nullptr, &session));
  std::vector<weir_token> tokens;
  for (weir_token i = 0; i < 40; ++i) tokens.push_back((i * 37 + 5) % 250);
  const float* logits = nullptr;
  assert_ok(weir_session_prefill(session, tokens.data(), tokens.size(), nullptr, nullptr));
  assert_ok(weir_session_step(session, 7));
  uint32_t n_logits = 0;
  assert_ok(weir_session_logits(session, &logits, &n_logits));
  assert_int_equal(n_logits, vocab_size);
  const std::vector<float> out(logits, logits + vocab_size);
  weir_session_destroy(session);
  return out;
}

// By any part, mapped or copied, everything is as in one file.
void parts__give_the_model_of_one_file(void**) {
  const Runtime r;
  weir_model* whole = nullptr;
  assert_ok(r.open(kWhole, 0, &whole));
  const weir_model_info want = info_of(whole);
  assert_int_equal(want.n_parts, 1);
  const std::vector<float> logits = logits_of(whole, want.vocab_size);
  const uint64_t before = r.bytes();
  for (const uint32_t count : {2u, 3u, 21u}) {
    const Folder folder;
    split(kWhole, folder, count);
    uint64_t file_bytes = 0;
    for (uint32_t i = 1; i <= count; ++i) file_bytes += fs::file_size(folder.part(i, count));
    for (const uint32_t by : {1u, 2u, count}) {
      for (const uint32_t flags : {0u, uint32_t{WEIR_MODEL_COPY}, uint32_t{WEIR_MODEL_PREFETCH}}) {
        weir_model* model = nullptr;
        Progress progress;
        assert_ok(r.open(folder.part(by, count), flags, &model, &progress));
        const weir_model_info got = info_of(model);
        assert_int_equal(got.n_parts, count);
        assert_int_equal(got.n_tensors, want.n_tensors);
        assert_int_equal(got.n_params, want.n_params);
        assert_int_equal(got.weights_bytes, want.weights_bytes);
        assert_int_equal(got.fingerprint, want.fingerprint);
        assert_int_equal(got.file_bytes, file_bytes);
        assert_int_equal(got.copied_bytes, flags == WEIR_MODEL_COPY ? file_bytes : 0);
        assert_true(logits_of(model, got.vocab_size) == logits);
        uint64_t done = 0;
        for (const weir_progress_info& p : progress.calls) {
          assert_true(p.total == file_bytes && p.done >= done && p.done <= p.total);
          done = p.done;
        }
        assert_int_equal(done, file_bytes);
        uint32_t last = 0;
        for (uint32_t i = 0; i < got.n_tensors; ++i) {
          weir_tensor_info t = WEIR_TENSOR_INFO_INIT;
          assert_ok(weir_model_tensor_info(model, i, &t));
          assert_true(t.part >= last && t.part < count);
          assert_true(t.file_offset + t.bytes <= fs::file_size(folder.part(t.part + 1, count)));
          last = t.part;
        }
        assert_int_equal(last, count - 1);
        weir_model_close(model);
        assert_int_equal(r.bytes(), before);
      }
    }
  }
  weir_model_close(whole);
}

void assert_refused(const Runtime& r, const std::string& path, weir_status status,
                    const std::vector<std::string>& parts, uint32_t flags = 0) {
  weir_model* model = nullptr;
  const uint64_t before = r.bytes();
  const weir_status got = r.open(path, flags, &model);
  const std::string text = weir_last_error();
  if (got != status) fail_msg("%s: %s \"%s\"", path.c_str(), weir_status_name(got), text.c_str());
  for (const std::string& part : parts) {
    if (text.find(part) == std::string::npos) fail_msg("\"%s\" is not in \"%s\"", part.c_str(), text.c_str());
  }
  const std::string folder = fs::path(path).parent_path().string();
  assert_true(text.find(folder) == text.rfind(folder));  // a path once a message
  assert_null(model);
  assert_int_equal(r.bytes(), before);
}

void parts__that_are_missing_are_named(void**) {
  const Runtime r;
  const Folder folder;
  split(kWhole, folder, 3);
  fs::remove(folder.part(2, 3));
  for (const uint32_t by : {1u, 3u}) {
    assert_refused(r, folder.part(by, 3), WEIR_ERR_IO, {"3 files", "model-00002-of-00003.gguf"});
    assert_refused(r, folder.part(by, 3), WEIR_ERR_IO, {"model-00002-of-00003.gguf"}, WEIR_MODEL_COPY);
  }
  fs::remove(folder.part(3, 3));
  assert_refused(r, folder.part(1, 3), WEIR_ERR_IO, {"2 are missing", "model-00002-of-00003.gguf, model-00003-of"});
  // The vocabulary is in the first.
  weir_model* model = nullptr;
  assert_ok(r.open(folder.part(1, 3), WEIR_MODEL_VOCAB_ONLY, &model));
  assert_int_equal(info_of(model).vocab_size, 272);
  weir_model_close(model);
  // Many, and a name that says nothing.
  const Folder many;
  split(kWhole, many, 21);
  for (uint32_t i = 2; i <= 21; ++i) fs::remove(many.part(i, 21));
  assert_refused(r, many.part(1, 21), WEIR_ERR_IO, {"20 are missing", "model-00005-of-00021.gguf, ..."});
  fs::rename(folder.part(1, 3), folder.path / "renamed.gguf");
  assert_refused(r, (folder.path / "renamed.gguf").string(), WEIR_ERR_FORMAT, {"part 1 of 3", "-00001-of-00003.gguf"});
}

void parts__of_another_model_are_refused(void**) {
  const Runtime r;
  const Folder folder, other;
  split(kWhole, folder, 3);
  const auto with = [&](const Change& change) {
    split(kWhole, other, 3, change);
    fs::copy_file(other.part(2, 3), folder.part(2, 3), fs::copy_options::overwrite_existing);
  };
  // A key that both have, another number of tensors, the same part twice, one that is no part.
  with([](uint32_t part, GgufWriter& w) {
    if (part == 1) w.add_string("general.name", "another");
  });
  assert_refused(r, folder.part(1, 3), WEIR_ERR_FORMAT, {"model-00002-of-00003.gguf", "general.name", "another model"});
  with([](uint32_t part, GgufWriter& w) {
    if (part == 1) w.add_tensor("blk.7.extra.weight", {4}, 0, Bytes(16));
  });
  assert_refused(r, folder.part(3, 3), WEIR_ERR_FORMAT, {"split.tensors.count"});
  with([](uint32_t part, GgufWriter& w) {
    if (part == 1) w.add_tensor("output_norm.weight", {32}, 0, Bytes(128));
  });
  assert_refused(r, folder.part(1, 3), WEIR_ERR_FORMAT, {"output_norm.weight", "both"});
  fs::copy_file(folder.part(3, 3), folder.part(2, 3), fs::copy_options::overwrite_existing);
  assert_refused(r, folder.part(1, 3), WEIR_ERR_FORMAT, {"model-00002-of-00003.gguf", "part 3 of 3"});
  fs::copy_file(kWhole, folder.part(2, 3), fs::copy_options::overwrite_existing);
  assert_refused(r, folder.part(1, 3), WEIR_ERR_FORMAT, {"model-00002-of-00003.gguf", "part 1 of 1"});
  std::ofstream(folder.part(2, 3)) << "no file of any use";
  assert_refused(r, folder.part(1, 3), WEIR_ERR_FORMAT, {"model-00002-of-00003.gguf", "not a GGUF file"});
}

// A file that is only called so, and numbers that no file has.
void parts__names_and_keys(void**) {
  const Runtime r;
  const Folder folder;
  weir_model* model = nullptr;
  for (const uint32_t number : {1u, 2u}) {
    fs::copy_file(kWhole, folder.part(number, 3), fs::copy_options::overwrite_existing);
    for (const uint32_t flags : {0u, uint32_t{WEIR_MODEL_COPY}}) {
      assert_ok(r.open(folder.part(number, 3), flags, &model));
      assert_int_equal(info_of(model).n_parts, 1);
      assert_int_equal(info_of(model).copied_bytes, flags == 0 ? 0 : fs::file_size(kWhole));
      weir_model_close(model);
    }
  }
  split(kWhole, folder, 1);
  assert_ok(r.open(folder.part(1, 1), 0, &model));
  assert_int_equal(info_of(model).n_parts, 1);
  weir_model_close(model);
  for (const auto& [number, count] : {std::pair{3u, 3u}, {0u, 65535u}, {7u, 2u}}) {
    const Folder odd;
    GgufWriter w;
    w.add_u32("split.no", number).add_u32("split.count", count);
    assert_true(weir_test::save(odd.part(1, 3).c_str(), w.build()));
    assert_refused(r, odd.part(1, 3), WEIR_ERR_FORMAT, {"split.no", "split.count"});
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(parts__give_the_model_of_one_file),
      cmocka_unit_test(parts__that_are_missing_are_named),
      cmocka_unit_test(parts__of_another_model_are_refused),
      cmocka_unit_test(parts__names_and_keys),
  };
  return cmocka_run_group_tests_name("api/parts", tests, nullptr, nullptr);
}
