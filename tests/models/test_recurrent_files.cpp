// models: files of models with recurrent layers that say what cannot be are refused with the key or the tensor by name,
// and nothing is computed with sizes that do not fit.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "models/model.h"
#include "tests/gguf/changed_file.h"
#include "tests/models/golden.h"

using namespace weir;
using weir_test::Bytes;
using weir_test::ChangedFile;
using weir_test::GgufWriter;

namespace {

std::string golden(const std::string& name) { return WEIR_GOLDEN_MODELS + name + ".gguf"; }

Status open(const ChangedFile& file) {
  Model model(std::pmr::new_delete_resource());
  return model.open(file.path(), 0, nullptr, nullptr);
}

void expect(const Status& status, weir_status code, const std::string& text, const std::string& what) {
  if (status.code() != code)
    fail_msg("%s: %s: %s", what.c_str(), weir_status_name(status.code()), status.ok() ? "" : last_error_text());
  if (code != WEIR_OK && std::strstr(last_error_text(), text.c_str()) == nullptr)
    fail_msg("%s: \"%s\" lacks \"%s\"", what.c_str(), last_error_text(), text.c_str());
}

// The model's file with one key that says something else.
Status open_with(const std::string& model, const std::string& key, uint32_t value) {
  GgufWriter writer;
  writer.add_u32(key, value);
  return open(ChangedFile(golden(model), writer,
                          [&](std::string_view name) { return name == key ? std::string() : std::string(name); }));
}

struct Number {
  const char *model, *key;
  uint32_t value;
  const char* text;  // besides the key
};

constexpr uint32_t k2To31 = 0x80000000u, kMost = 0xFFFFFFFFu;

const Number kNumbers[] = {
    {"qwen35_f32", "ssm.group_count", 0, "0 is not in 1..1024"},
    {"qwen35_f32", "ssm.group_count", 3, "3 does not divide the 4 heads of qwen35.ssm.time_step_rank"},
    {"qwen35_f32", "ssm.group_count", k2To31, "2147483648 is not in 1..1024"},
    {"qwen35_f32", "ssm.time_step_rank", 0, "0 is not in"},
    {"qwen35_f32", "ssm.time_step_rank", kMost, "is not in"},
    {"qwen35_f32", "ssm.conv_kernel", 0, "0 is not in 2..64"},
    {"qwen35_f32", "ssm.conv_kernel", 1, "1 is not in 2..64"},
    {"qwen35_f32", "ssm.conv_kernel", 65, "65 is not in 2..64"},
    {"qwen35_f32", "ssm.conv_kernel", kMost, "is not in 2..64"},
    {"qwen35_f32", "ssm.state_size", 0, "0 is not in 1..256"},
    {"qwen35_f32", "ssm.state_size", 257, "257 is not in 1..256"},
    {"qwen35_f32", "ssm.state_size", k2To31, "is not in 1..256"},
    {"qwen35_f32", "ssm.inner_size", 0, "0 is not in"},
    {"qwen35_f32", "ssm.inner_size", 65, "65 is not"},
    {"qwen35_f32", "ssm.inner_size", kMost, "is not"},
    {"qwen35_f32", "full_attention_interval", 0, "0 is not in 1..4"},
    {"qwen35_f32", "full_attention_interval", 5, "5 is not in 1..4"},
    {"qwen35_f32", "full_attention_interval", kMost, "is not in 1..4"},
    {"nemotron_h_f32", "ssm.group_count", 0, "0 is not in"},
    {"nemotron_h_f32", "ssm.group_count", 1023, "does not divide"},
    {"nemotron_h_f32", "ssm.group_count", k2To31, "is not in"},
    {"nemotron_h_f32", "ssm.conv_kernel", 0, "0 is not in 2..64"},
    {"nemotron_h_f32", "ssm.conv_kernel", 1, "1 is not in 2..64"},
    {"nemotron_h_f32", "ssm.conv_kernel", 65, "65 is not in 2..64"},
    {"nemotron_h_f32", "ssm.state_size", 0, "0 is not in"},
    {"nemotron_h_f32", "ssm.state_size", k2To31, "is not in"},
    {"nemotron_h_f32", "ssm.inner_size", 1, "1"},
    {"nemotron_h_f32", "ssm.inner_size", kMost, "is not in"},
    {"nemotron_h_f32", "ssm.time_step_rank", 0, "0 is not in"},
    {"lfm2_f32", "shortconv.l_cache", 0, "0 is not in 2..64"},
    {"lfm2_f32", "shortconv.l_cache", 1, "1 is not in 2..64"},
    {"lfm2_f32", "shortconv.l_cache", 65, "65 is not in 2..64"},
    {"lfm2_f32", "shortconv.l_cache", k2To31, "is not in 2..64"},
};

std::string architecture_of(const std::string& model) { return model.substr(0, model.rfind('_')); }

void recurrent_files__numbers(void**) {
  for (const Number& n : kNumbers) {
    const std::string key = architecture_of(n.model) + "." + n.key;
    const std::string what = std::string(n.model) + ", " + key + " = " + std::to_string(n.value);
    const Status status = open_with(n.model, key, n.value);
    expect(status, WEIR_ERR_FORMAT, key, what);
    expect(status, WEIR_ERR_FORMAT, n.text, what);
  }
}

// A size that could be, but not with these tensors: their shape says so.
void recurrent_files__sizes_that_tensors_do_not_have(void**) {
  expect(open_with("qwen35_f32", "qwen35.ssm.conv_kernel", 5), WEIR_ERR_FORMAT, "blk.0.ssm_conv1d.weight", "5 taps");
  expect(open_with("qwen35_f32", "qwen35.ssm.group_count", 4), WEIR_ERR_FORMAT, "blk.0.attn_qkv.weight", "4 groups");
  expect(open_with("nemotron_h_f32", "nemotron_h.ssm.conv_kernel", 5), WEIR_ERR_FORMAT, "ssm_conv1d.weight", "5 taps");
  expect(open_with("lfm2_f32", "lfm2.shortconv.l_cache", 5), WEIR_ERR_FORMAT, "shortconv.conv.weight", "5 taps");
  // Every second layer has attention: then the first one has no tensors for it.
  expect(open_with("qwen35_f32", "qwen35.full_attention_interval", 2), WEIR_ERR_FORMAT, "blk.1.", "interval 2");
}

// A model without any recurrent layer is none of these, and one without attention has no pages.
void recurrent_files__every_layer_the_same(void**) {
  expect(open_with("qwen35_f32", "qwen35.full_attention_interval", 1), WEIR_ERR_FORMAT, "blk.0.", "all have attention");
  GgufWriter none;
  none.add_array("lfm2.attention.head_count_kv", GgufType::kU32, std::vector<uint32_t>(64, 0));
  const ChangedFile file(golden("lfm2_f32"), none, [](std::string_view name) {
    return name == "lfm2.attention.head_count_kv" ? std::string() : std::string(name);
  });
  Model model(std::pmr::new_delete_resource());
  assert_false(model.open(file.path(), 0, nullptr, nullptr).ok());
}

std::vector<std::string> tensors_with(const std::string& model, const char* part) {
  GgufFile file(std::pmr::new_delete_resource());
  assert_true(file.open(golden(model).c_str()).ok());
  std::vector<std::string> names;
  for (const GgufTensor& t : file.tensors()) {
    if (t.name.find(part) != std::string_view::npos) names.emplace_back(t.name);
  }
  assert_false(names.empty());
  return names;
}

// Without any one of them.
void recurrent_files__missing_tensors(void**) {
  struct Part {
    const char *model, *part;
  };
  for (const Part& p : {Part{"qwen35_f32", "blk.1.ssm_"}, Part{"qwen35_f32", "blk.0.attn_gate"},
                        Part{"nemotron_h_f32", ".ssm_"}, Part{"lfm2_f32", "blk.0.shortconv"}}) {
    for (const std::string& name : tensors_with(p.model, p.part)) {
      const ChangedFile file(golden(p.model), {}, nullptr, [&](std::string_view t) { return t != name; });
      const Status status = open(file);
      if (status.ok() && name.find("conv1d.bias") != std::string::npos) continue;  // not every model has it
      expect(status, WEIR_ERR_FORMAT, name, "without " + name);
    }
  }
}

// A rate that is not a number would spoil the state of every token after it.
void recurrent_files__rates_that_are_no_numbers(void**) {
  for (const char* model : {"qwen35_f32", "nemotron_h_f32"}) {
    for (const char* part : {"ssm_a", "ssm_dt.bias"}) {
      const std::string name = tensors_with(model, part).back();
      GgufFile from(std::pmr::new_delete_resource());
      assert_true(from.open(golden(model).c_str()).ok());
      for (const GgufTensor& t : from.tensors()) {
        if (t.name != name) continue;
        for (const float value : {std::nanf(""), INFINITY, -INFINITY}) {
          Bytes data(t.data, t.data + t.bytes);
          std::memcpy(data.data() + t.bytes - sizeof(value), &value, sizeof(value));
          GgufWriter writer;
          if (t.n_dims == 1) writer.add_tensor(t.name, {t.dims[0]}, t.type_id, data);
          if (t.n_dims == 2) writer.add_tensor(t.name, {t.dims[0], t.dims[1]}, t.type_id, data);
          const ChangedFile file(golden(model), writer, nullptr, [&](std::string_view other) { return other != name; });
          expect(open(file), WEIR_ERR_FORMAT, name, name + " that is no number");
        }
      }
    }
  }
}

// Any of the keys' bytes as something else: a status, or a model; never more.
void recurrent_files__changed_bytes(void**) {
  for (const char* model : {"qwen35_f32", "nemotron_h_f32", "lfm2_f32"}) {
    std::ifstream in(golden(model), std::ios::binary);
    const std::vector<char> whole((std::istreambuf_iterator<char>(in)), {});
    // Where the keys of recurrent layers are: from the first to behind the last one's value.
    const std::string text(whole.begin(), whole.end());
    std::vector<size_t> places;
    for (const char* key : {".ssm.", ".shortconv.", "full_attention_interval", "head_count_kv"}) {
      for (size_t at = text.find(key); at != std::string::npos && at < 20000; at = text.find(key, at + 1)) {
        for (size_t i = 0; i < 48; ++i) places.push_back(at + i);
      }
    }
    assert_true(places.size() > 90);
    uint32_t seed = 1, n_refused = 0;
    for (const size_t place : places) {
      for (int i = 0; i < 3; ++i) {
        seed = seed * 1664525u + 1013904223u;
        Bytes changed(whole.begin(), whole.end());
        changed[place] = static_cast<uint8_t>(i == 0 ? 0xFF : seed >> 24);
        n_refused += open(ChangedFile(changed)).ok() ? 0u : 1u;
      }
    }
    assert_true(n_refused > places.size());
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(recurrent_files__numbers),
      cmocka_unit_test(recurrent_files__sizes_that_tensors_do_not_have),
      cmocka_unit_test(recurrent_files__every_layer_the_same),
      cmocka_unit_test(recurrent_files__missing_tensors),
      cmocka_unit_test(recurrent_files__rates_that_are_no_numbers),
      cmocka_unit_test(recurrent_files__changed_bytes),
  };
  return cmocka_run_group_tests_name("models_recurrent_files", tests, nullptr, nullptr);
}
