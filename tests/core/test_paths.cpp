// core: paths stay what they were when the current folder changes, and the folder of code is known without trusting a
// program's first argument.
#include "core/paths.h"

#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/cmocka_cpp.h"

using namespace weir;

namespace {

std::string absolute(const char* path, size_t size, weir_status expected = WEIR_OK) {
  std::string out(size, '#');
  assert_int_equal(absolute_path("thing", path, out.data(), size).code(), expected);
  return out.c_str();
}

void paths__absolute(void**) {
  char here[PATH_MAX];
  assert_non_null(getcwd(here, sizeof(here)));
  const std::string folder = here;
  assert_string_equal(absolute("/a/../b", 8).c_str(), "/a/../b");
  absolute("/a/../b", 7, WEIR_ERR_INVALID_ARG);
  assert_non_null(std::strstr(last_error_text(), "thing: 7 bytes, at most 6"));
  assert_true(absolute("a/b", PATH_MAX) == folder + "/a/b");
  assert_true(absolute("a/b", folder.size() + 5) == folder + "/a/b");
  for (size_t size = 1; size < folder.size() + 5; ++size) {
    absolute("a/b", size, WEIR_ERR_INVALID_ARG);
    assert_non_null(std::strstr(last_error_text(), "thing: "));
    assert_non_null(std::strstr(last_error_text(), "the current folder"));
  }
  assert_int_equal(chdir("/"), 0);
  assert_string_equal(absolute("a", PATH_MAX).c_str(), "/a");
  char gone[] = "/tmp/weir-gone-XXXXXX";
  assert_non_null(mkdtemp(gone));
  assert_int_equal(chdir(gone), 0);
  assert_int_equal(rmdir(gone), 0);
  absolute("a", PATH_MAX, WEIR_ERR_IO);
  assert_non_null(std::strstr(last_error_text(), "no path any more"));
  assert_string_equal(absolute("/a", PATH_MAX).c_str(), "/a");
  assert_int_equal(chdir(here), 0);
}

std::string own_folder() {
  char out[PATH_MAX] = "";
  return folder_of_code(reinterpret_cast<const void*>(&own_folder), out, sizeof(out)).ok() ? out : "";
}

std::string own_file() {
  char path[PATH_MAX] = "";
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
  assert_true(n > 0);
  return {path, static_cast<size_t>(n)};
}

// What own_folder() says in this program when it is started with another first argument, from another folder.
std::string started_as(const char* name) {
  const std::string file = own_file();
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    char first[64], second[] = "--folder";
    std::snprintf(first, sizeof(first), "%s", name);
    char* const arguments[] = {first, second, nullptr};
    if (chdir("/") == 0) execv(file.c_str(), arguments);
    _exit(1);
  }
  close(ends[1]);
  char text[PATH_MAX] = "";
  size_t n = 0;
  for (ssize_t part = 1; part > 0; n += static_cast<size_t>(part)) part = read(ends[0], text + n, sizeof(text) - n - 1);
  close(ends[0]);
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  return text;
}

void paths__folder_of_code(void**) {
  const std::string file = own_file(), folder = file.substr(0, file.rfind('/') + 1);
  assert_true(own_folder() == folder);
  for (const char* name : {"weir", "./weir", "tmp/weir", "/tmp/weir", ""})
    assert_string_equal(started_as(name).c_str(), folder.c_str());
  char out[PATH_MAX] = "#";
  const auto of = [&](size_t size) {
    return folder_of_code(reinterpret_cast<const void*>(&own_folder), out, size).code();
  };
  assert_int_equal(of(folder.size() + 1), WEIR_OK);
  assert_int_equal(of(folder.size()), WEIR_ERR_UNSUPPORTED);
  assert_string_equal(out, "");
  const int on_stack = 0;
  assert_int_equal(folder_of_code(&on_stack, out, sizeof(out)).code(), WEIR_ERR_UNSUPPORTED);
  assert_non_null(std::strstr(last_error_text(), "set backend_dir"));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--folder") == 0) {
    std::fputs(own_folder().c_str(), stdout);
    return 0;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(paths__absolute),
      cmocka_unit_test(paths__folder_of_code),
  };
  return cmocka_run_group_tests_name("core/test_paths", tests, nullptr, nullptr);
}
