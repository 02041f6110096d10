// Models and sessions of a runtime whose device is host_module.cpp.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/api/api_test.h"

namespace host_models {

using Options = std::vector<weir_key_value>;

struct Close {
  void operator()(weir_session* session) const { weir_session_destroy(session); }
};
using Session = std::unique_ptr<weir_session, Close>;

// Where the test module is; tests/mutation/run has others.
inline const char* module_folder() {
  const char* other = std::getenv("WEIR_TEST_HOST_MODULE");
  return other != nullptr ? other : WEIR_HOST_MODULE;
}

inline weir_runtime_options runtime_options(const char* folder) {
  weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
  options.n_threads = 1;
  options.backend_dir = folder;
  return options;
}

struct Models {
  explicit Models(const char* path) : Models(path, runtime_options(module_folder())) {}
  Models(const char* path, const weir_runtime_options& options) {
    assert_ok(weir_runtime_create(&options, &runtime));
    assert_ok(weir_model_open(runtime, path, nullptr, &model));
  }
  ~Models() {
    weir_model_close(model);
    weir_runtime_destroy(runtime);
  }
  Models(const Models&) = delete;
  Models& operator=(const Models&) = delete;
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
};

// A reproducible token of the small models in tests/golden.
inline weir_token token(uint32_t i) { return static_cast<weir_token>(i * 2654435761u % 199 + 20); }

}  // namespace host_models
