// A program with a C++ runtime of its own, whose callback throws into a library that has another: the call fails, the
// exception is gone, and the program's runtime counts none that is under way.
// Usage: throwing MODEL [static: the program's runtime exports nothing, so that it goes on counting]
#include <weir/weir.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>

namespace {

int n_alive = 0, n_unwound = 0;

struct Thrown {
  std::string text = "longer than what a string has room for inside";
  Thrown() { ++n_alive; }
  Thrown(const Thrown& other) : text(other.text) { ++n_alive; }
  ~Thrown() { --n_alive; }
};
struct OnStack {
  ~OnStack() { ++n_unwound; }
};

weir_status throws(void*, const weir_progress_info*) {
  const OnStack guard;
  throw Thrown();
}

weir_status opens_another(void* runtime, const weir_progress_info*) {
  weir_model_options options = WEIR_MODEL_OPTIONS_INIT;
  weir_model* model = nullptr;
  options.progress = throws;
  (void)weir_model_open(static_cast<weir_runtime*>(runtime), "/no/such/file", &options, &model);
  throw std::runtime_error("from a callback that has called the library");
}

int failed(const char* what) {
  std::printf("%s: status %s, %d alive, %d unwound, %d uncaught\n", what, weir_last_error(), n_alive, n_unwound,
              std::uncaught_exceptions());
  return 1;
}

int run(weir_runtime* runtime, const char* path, bool counts) {
  constexpr int kTimes = 100;
  weir_model_options options = WEIR_MODEL_OPTIONS_INIT;
  for (int i = 0; i < kTimes; ++i) {
    weir_model* model = nullptr;
    options.progress = i % 2 == 0 ? throws : opens_another;
    options.progress_user = runtime;
    if (weir_model_open(runtime, path, &options, &model) != WEIR_ERR_CANCELLED) return failed("open");
    if (std::strstr(weir_last_error(), "the callback threw") == nullptr) return failed("text");
  }
  if (n_alive != 0 || n_unwound != kTimes / 2) return failed("objects");
  if (counts && std::uncaught_exceptions() != 0) return failed("count");
  try {
    throw Thrown();
  } catch (const Thrown& thrown) {
    if (n_alive != 1 || thrown.text.empty()) return failed("an exception of the program");
  }
  options.progress = nullptr;
  weir_model* model = nullptr;
  if (weir_model_open(runtime, path, &options, &model) != WEIR_OK) return failed("without a callback");
  weir_model_close(model);
  std::printf("%d exceptions of callbacks were refusals\n", kTimes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  weir_runtime* runtime = nullptr;
  if (argc < 2 || weir_runtime_create(nullptr, &runtime) != WEIR_OK) return 1;
  const int result = run(runtime, argv[1], argc < 3);
  weir_runtime_destroy(runtime);
  return result;
}
