// What all requests are answered with: the model, the sessions, and what the command line says.
#pragma once

#include <cstdint>
#include <string>

#include "options.h"
#include "server/pool.h"
#include "weir_cpp.h"

namespace weir_server {

struct Context {
  weir_cli::RuntimePtr runtime;
  weir_cli::ModelPtr model;
  std::string id, file;  // of the model, as clients name it
  weir_model_info info = WEIR_MODEL_INFO_INIT;
  weir_chat_info chat = WEIR_CHAT_INFO_INIT;
  bool has_template = false;
  weir_cli::SamplingFlags sampling;  // where a request says nothing
  weir_cli::ChatSettings settings;
  uint32_t thinking_budget = 0;
  std::string thinking_close;
  int64_t started = 0;      // Unix seconds
  std::string save_folder;  // "": none
  std::unique_ptr<Pool> pool;
};

}  // namespace weir_server
