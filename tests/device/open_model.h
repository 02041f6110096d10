// A random model's file, opened on a GPU.
#pragma once

#include <cstdio>
#include <string>

#include "tests/device/device_test.h"
#include "tests/device/random_model.h"

namespace weir::test {

struct OpenModel {
  explicit OpenModel(const RandomModel& m) : path(write_random_model(m)) {
    weir_runtime_options options = gpu_runtime_options();
    options.n_threads = 0;  // all; the prompts are long
    assert_ok(weir_runtime_create(&options, &f.runtime));
    assert_ok(weir_model_open(f.runtime, path.c_str(), nullptr, &f.model));
    bend(f.model, m);
  }
  ~OpenModel() {
    close_gpu_fixture(&f);
    std::remove(path.c_str());
  }
  OpenModel(const OpenModel&) = delete;
  OpenModel& operator=(const OpenModel&) = delete;

  std::string path;
  fixture f = {nullptr, nullptr};
};

}  // namespace weir::test
