// weir info: what is in a model file: facts, metadata, tensors. A file that this version cannot run is still described,
// and the exit status is then 1.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "conversation.h"
#include "output.h"
#include "terminal.h"

namespace weir_cli {
namespace {

using Json = nlohmann::ordered_json;

struct InfoFlags {
  std::string model;
  bool json = false;
};

// What the library took for granted, and what it does not use: lines of its log that begin with the file's name.
struct Taken {
  std::string name;  // with ": "
  std::vector<std::string> warnings, defaults, unused;
};

weir_status keep_line(void* user, const weir_log_info* line) {
  auto& taken = *static_cast<Taken*>(user);
  const std::string text = line->message;
  if (text.compare(0, taken.name.size(), taken.name) != 0) return WEIR_OK;
  static const std::string kUnused = "not used: ";
  const std::string what = text.substr(taken.name.size());
  if (what.compare(0, kUnused.size(), kUnused) == 0) {
    taken.unused.push_back(what.substr(kUnused.size()));
  } else {
    (line->level <= WEIR_LOG_WARNING ? taken.warnings : taken.defaults).push_back(what);
  }
  return WEIR_OK;
}

struct File {
  std::unique_ptr<Taken> taken;  // the runtime has its address
  RuntimePtr runtime;
  ModelPtr model;
  std::string note;  // why the model cannot be run, or empty
};

// As a model; else for what it says of itself, its vocabulary included if there is one that is known.
File open_file(const std::string& path) {
  File file;
  file.taken = std::make_unique<Taken>();
  file.taken->name = path.substr(path.rfind('/') + 1) + ": ";
  file.runtime = create_runtime(1, {}, keep_line, file.taken.get(), WEIR_LOG_INFO);
  try {
    file.model = open_model(file.runtime.get(), path);
  } catch (const Error& e) {
    // A part of a model whose other parts are missing is WEIR_ERR_IO, and can be described.
    if (e.status() != WEIR_ERR_UNSUPPORTED && e.status() != WEIR_ERR_FORMAT && e.status() != WEIR_ERR_IO) throw;
    file.note = e.what();  // the first message is the one that matters
  }
  for (const uint32_t flags : {WEIR_MODEL_VOCAB_ONLY, WEIR_MODEL_DESCRIBE_ONLY}) {
    try {
      if (file.model == nullptr) file.model = open_model(file.runtime.get(), path, flags);
    } catch (const Error&) {
      if (flags == WEIR_MODEL_DESCRIBE_ONLY) throw std::runtime_error(file.note);
    }
  }
  return file;
}

std::string dims_text(const weir_tensor_info& t) {
  std::string text;
  for (uint32_t d = 0; d < t.n_dims; ++d) text += (d == 0 ? "" : " x ") + std::to_string(t.dims[d]);
  return text;
}

weir_tensor_info tensor_info(const weir_model* model, uint32_t index) {
  weir_tensor_info t = WEIR_TENSOR_INFO_INIT;
  check(weir_model_tensor_info(model, index, &t), "cannot describe tensor " + std::to_string(index));
  return t;
}

std::pair<std::string, std::string> metadata(const weir_model* model, uint32_t index) {
  const char* key = nullptr;
  uint64_t n_bytes = 0;
  std::string value(256, '\0');
  weir_status status = weir_model_metadata(model, index, &key, value.data(), value.size(), &n_bytes);
  if (status == WEIR_ERR_BUFFER_TOO_SMALL) {
    value.resize(n_bytes + 1);
    status = weir_model_metadata(model, index, &key, value.data(), value.size(), &n_bytes);
  }
  check(status, "cannot read metadata " + std::to_string(index));
  value.resize(n_bytes);
  return {key, value};
}

// What a token adds to a session on the processor that keeps all, and what recurrent layers take whatever is said.
struct Memory {
  uint64_t token_bytes = 0, state_bytes = 0;
};

Memory memory_of(const weir_model* model, const weir_model_info& i) {
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  options.device = WEIR_DEVICE_CPU;
  if (weir_plan(model, &options, &plan) != WEIR_OK)
    return {4ull * i.n_layers * i.n_kv_heads * i.head_dim, 0};  // K and V of 2 bytes
  return {plan.page_bytes / plan.page_tokens * plan.n_streams, plan.recurrent_bytes / 2};
}

void print_json(const File& file, const weir_model_info& info) {
  Json out = {{"architecture", info.architecture},
              {"name", info.name},
              {"weight_type", info.weight_type},
              {"tokenizer", info.tokenizer},
              {"chat_template", info.chat_template},
              {"n_layers", info.n_layers},
              {"n_heads", info.n_heads},
              {"n_kv_heads", info.n_kv_heads},
              {"head_dim", info.head_dim},
              {"d_model", info.d_model},
              {"d_ff", info.d_ff},
              {"vocab_size", info.vocab_size},
              {"context_tokens", info.context_tokens},
              {"n_params", info.n_params},
              {"weights_bytes", info.weights_bytes},
              {"file_bytes", info.file_bytes},
              {"fingerprint", format("%016llx", static_cast<unsigned long long>(info.fingerprint))}};
  const Memory memory = memory_of(file.model.get(), info);
  if (memory.state_bytes > 0) out["state_bytes"] = memory.state_bytes;
  if (info.n_parts > 1) out["n_parts"] = info.n_parts;
  if (!file.note.empty()) out["note"] = file.note;
  if (!file.taken->warnings.empty()) out["warnings"] = file.taken->warnings;
  if (!file.taken->defaults.empty()) out["defaults"] = file.taken->defaults;
  if (!file.taken->unused.empty()) out["unused"] = file.taken->unused;
  Json& values = out["metadata"] = Json::object();
  for (uint32_t i = 0; i < weir_model_metadata_count(file.model.get()); ++i) {
    const auto [key, value] = metadata(file.model.get(), i);
    values[key] = value;
  }
  Json& tensors = out["tensors"] = Json::array();
  for (uint32_t i = 0; i < info.n_tensors; ++i) {
    const weir_tensor_info t = tensor_info(file.model.get(), i);
    Json dims = Json::array();
    for (uint32_t d = 0; d < t.n_dims; ++d) dims.push_back(t.dims[d]);
    tensors.push_back(
        {{"name", t.name}, {"type", t.type}, {"dims", dims}, {"bytes", t.bytes}, {"file_offset", t.file_offset}});
    if (info.n_parts > 1) tensors.back()["part"] = t.part;
  }
  put_line(dump_json(out));
}

void print_fact(const char* name, const std::string& value) {
  if (!value.empty()) put_format("%-14s %s\n", name, plain_line(value).c_str());
}

// Metadata is shown on one line each; a template of a thousand characters is cut.
std::string one_line(const std::string& value, int columns) {
  std::string flat;
  for (char c : value) flat += c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : std::string(1, c);
  flat = plain_line(flat);
  return display_width(flat) <= columns ? flat : cut_to_width(flat, columns - 3) + "...";
}

void print_facts(const weir_model* model, const weir_model_info& i) {
  print_fact("name", i.name);
  print_fact("architecture", i.architecture);
  if (i.n_layers > 0) {
    print_fact("layers", format("%u, d_model %u, d_ff %u", i.n_layers, i.d_model, i.d_ff));
    print_fact("heads", format("%u query, %u KV, head_dim %u", i.n_heads, i.n_kv_heads, i.head_dim));
    print_fact("context", grouped(i.context_tokens) + " tokens");
    const Memory memory = memory_of(model, i);
    print_fact("KV", human_bytes(memory.token_bytes) + " a token");
    if (memory.state_bytes > 0) print_fact("state", human_bytes(memory.state_bytes) + " of recurrent layers, in all");
  }
  if (i.vocab_size > 0) print_fact("vocabulary", grouped(i.vocab_size) + " tokens, " + i.tokenizer);
  print_fact("chat template", i.chat_template[0] == '\0' ? "none" : i.chat_template);
  if (i.n_params > 0)
    print_fact("weights", grouped(i.n_params) + ", " + i.weight_type + ", " + human_bytes(i.weights_bytes));
  print_fact("file", human_bytes(i.file_bytes) + (i.n_parts > 1 ? format(" in %u parts", i.n_parts) : ""));
  print_fact("fingerprint", format("%016llx", static_cast<unsigned long long>(i.fingerprint)));
}

void print_tables(const File& file, const weir_model_info& info) {
  print_facts(file.model.get(), info);
  if (!file.note.empty()) print_fact("note", file.note);
  for (const std::string& line : file.taken->warnings) print_fact("warning", line);
  for (const std::string& line : file.taken->defaults) print_fact("default", line);
  for (const std::string& line : file.taken->unused) print_fact("not used", line);
  const uint32_t n_values = weir_model_metadata_count(file.model.get());
  put_format("\nmetadata (%u)\n", n_values);
  for (uint32_t i = 0; i < n_values; ++i) {
    const auto [key, value] = metadata(file.model.get(), i);
    put_format("  %-42s %s\n", plain_line(key).c_str(), one_line(value, 60).c_str());
  }
  put_format("\ntensors (%u)\n", info.n_tensors);
  for (uint32_t i = 0; i < info.n_tensors; ++i) {
    const weir_tensor_info t = tensor_info(file.model.get(), i);
    put_format("  %-34s %-5s %-16s %10s\n", plain_line(t.name).c_str(), t.type, dims_text(t).c_str(),
               human_bytes(t.bytes).c_str());
  }
}

}  // namespace

void add_info(CLI::App& program, Action& action) {
  auto flags = std::make_shared<InfoFlags>();
  CLI::App* app = program.add_subcommand("info", "What is in a model file");
  add_model_flag(*app, flags->model)->required();
  app->add_flag("--json", flags->json, "One JSON line, nothing shortened");
  app->callback([flags, &action] {
    action = [flags] {
      const File file = open_file(flags->model);
      const weir_model_info info = model_info(file.model.get());
      if (flags->json)
        print_json(file, info);
      else
        print_tables(file, info);
      flush_output();
      if (!file.note.empty()) throw std::runtime_error(file.note);
      return 0;
    };
  });
}

}  // namespace weir_cli
