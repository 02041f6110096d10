// What tests of the weir program share: a folder for the files of a run, starting the program, and checks of how it
// ended, which print what it wrote to stderr when they fail. make_folder and remove_folder are the setup and teardown
// of a group; a test that starts the program or writes files needs both.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cmocka_cpp.h"
#include "tools/lab/problems.h"

namespace weir_cli::test {

inline constexpr char kModel[] = WEIR_SOURCE_DIR "/samples/models/weir-tiny-reasoner-q8_0.gguf";
inline std::filesystem::path g_folder;  // of this run, absolute

inline int make_folder(void**) {
  const auto temporary = std::filesystem::absolute(std::filesystem::temp_directory_path());
  g_folder = temporary / ("weir-test-" + std::to_string(getpid()));
  return std::filesystem::create_directories(g_folder) ? 0 : -1;
}

inline int remove_folder(void**) {
  std::filesystem::remove_all(g_folder);
  return 0;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Writes a file of the folder, or one with an absolute path, and returns its path.
inline std::string write_file(const std::filesystem::path& name, const std::string& text) {
  std::ofstream(g_folder / name, std::ios::binary) << text;
  return (g_folder / name).string();
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// How the program ended, and what it wrote.
struct Output {
  int status = -1;  // -1: by a signal
  std::string out, err;
};

// `text` as one word of a shell's command line.
inline std::string shell_word(const std::string& text) {
  std::string word = "'";
  for (char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

// Runs the program with `arguments`, each taken as it is. Its standard output goes to `device` when that is not empty.
inline Output weir(const std::vector<std::string>& arguments, const std::string& input = "",
                   const std::string& device = "") {
  const std::string in = write_file("stdin", input), err = (g_folder / "stderr").string(),
                    out = device.empty() ? (g_folder / "stdout").string() : device;
  std::string command = shell_word(WEIR_PROGRAM);
  for (const std::string& argument : arguments) command += " " + shell_word(argument);
  command += " <" + shell_word(in) + " >" + shell_word(out) + " 2>" + shell_word(err);
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, device.empty() ? read_file(out) : "", read_file(err)};
}

inline Output eval(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "eval");
  return weir(arguments);
}

inline void assert_status(const Output& o, int status) {
  if (o.status != status) print_error("status %d, not %d: %s\n", o.status, status, o.err.c_str());
  assert_int_equal(o.status, status);
}

inline void assert_works(const Output& o) { assert_status(o, 0); }

// A failure names each of `parts` on stderr, and leaves nothing on stdout.
inline void assert_fails(const Output& o, int status, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (!contains(o.err, part)) print_error("expected \"%s\" in: %s\n", part.c_str(), o.err.c_str());
    assert_true(contains(o.err, part));
  }
  assert_status(o, status);
  assert_string_equal(o.out.c_str(), "");
}

// The tiny model with another chat template, as a file of the folder; returns its path.
inline std::string model_with_template(const std::string& name, const std::string& text) {
  std::string bytes = read_file(kModel), more;
  bytes[bytes.find("tokenizer.chat_template")] = 'T';
  const auto number = [&](uint64_t value, int n_bytes) {  // little endian
    for (int i = 0; i < n_bytes; ++i) more += static_cast<char>(value >> (8 * i) & 255);
  };
  const auto add = [&](const std::string& key, const std::string& value) {
    number(key.size(), 8);
    more += key;
    number(8, 4);  // a text
    number(value.size(), 8);
    more += value;
  };
  add("tokenizer.chat_template", text);
  const std::string filler = "general.filler";  // tensors stay where multiples of 32 are
  add(filler, std::string(32 - (more.size() + 8 + filler.size() + 4 + 8) % 32, ' '));
  bytes[16] = static_cast<char>(bytes[16] + 2);  // keys
  bytes.insert(24, more);
  return write_file(name, bytes);
}

inline Problem short_problem() {
  ProblemOptions o;
  o.steps = 8;
  o.lag = 3;
  o.seed = 5;
  return make_problem(o);
}

}  // namespace weir_cli::test
