// cli: the files that the program writes. Links are followed, pipes and devices are written and stay what they are, a
// path that cannot be written is told before the first token, and a command that fails leaves nothing. Mirrors
// tools/weir/out_file.cpp and the folder of tools/lab/bench_model.cpp. It starts the built program; all nodes are
// made in the folder of the run.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include <set>
#include <thread>

#include "tests/cli/cli_test.h"
#include "tools/lab/bench_model.h"
#include "tools/weir/out_file.h"

using namespace weir_cli::test;
namespace fs = std::filesystem;

namespace {

std::string path_of(const std::string& name) { return (g_folder / name).string(); }

// Words that calibrate needs, of which there are enough.
std::string words_file() {
  std::string text;
  for (int i = 0; i < 40; ++i) {
    for (const char* word : {"apple", "river", "stone", "window", "garden", "letter", "music", "paper"})
      text += word + std::to_string(i) + " ";
  }
  return write_file("words.txt", text);
}

std::string bench_results() {
  return write_file("bench.jsonl", R"({"device":"cpu","shape":"1b","type":"q8_0","policy":"dense","budget":0,)"
                                   R"("rows":[{"depth":0,"tok_per_s":4},{"depth":100,"tok_per_s":3}]})"
                                   "\n");
}

// Every command that writes a file, with the path to come at the end.
std::vector<std::vector<std::string>> writers() {
  return {{"run", "-m", kModel, "-p", "Hello", "-n", "3", "--save"},
          {"chat", "-m", kModel, "-n", "3", "--save"},
          {"calibrate", "-m", kModel, "--heads", "--tokens", "64", "--text", words_file(), "-o"},
          {"demo", "-m", kModel, "--steps", "20", "--budget", "256", "--go-on", "0", "--csv"},
          {"bench", "--shape", "1b", "--results", bench_results(), "--plot"}};
}

Output write_to(std::vector<std::string> command, const std::string& path) {
  command.push_back(path);
  return weir(command, "Hello\n");
}

struct stat node(const std::string& path) {
  struct stat info = {};
  assert_int_equal(lstat(path.c_str(), &info), 0);
  return info;
}

std::set<std::string> names(const fs::path& folder = g_folder) {
  std::set<std::string> all;
  for (const auto& entry : fs::directory_iterator(folder)) all.insert(entry.path().filename().string());
  for (const char* of_the_run : {"stdin", "stdout", "stderr"}) all.erase(of_the_run);
  return all;
}

void out_file__a_pipe_gets_what_a_file_would_have(void**) {
  for (const std::vector<std::string>& command : writers()) {
    const std::string file = path_of("plain"), pipe = path_of("pipe");
    assert_works(write_to(command, file));
    assert_int_equal(mkfifo(pipe.c_str(), 0600), 0);
    std::string read;
    std::thread reader([&] { read = read_file(pipe); });
    const Output o = write_to(command, pipe);
    reader.join();
    assert_works(o);
    assert_true(S_ISFIFO(node(pipe).st_mode));
    // Times differ, and so do the salt and the digests of a saved conversation.
    assert_int_equal(read.substr(0, 4) == read_file(file).substr(0, 4), 1);
    if (command[0] == "calibrate" || command[0] == "bench") assert_true(read == read_file(file));
    if (command[0] == "run") {
      const std::string copy = write_file("copy", read);
      assert_works(weir({"run", "-m", kModel, "-p", "More.", "-n", "3", "--resume", copy}));
      fs::remove(copy);
    }
    fs::remove(pipe);
    fs::remove(file);
  }
}

void out_file__a_link_is_followed(void**) {
  fs::create_directories(g_folder / "behind");
  for (const std::vector<std::string>& command : writers()) {
    const std::string target = path_of("behind/target"), link = path_of("link");
    fs::create_symlink("middle", link);
    fs::create_symlink("behind/target", path_of("middle"));
    assert_works(write_to(command, link));  // to a file that is not there yet
    assert_true(S_ISLNK(node(link).st_mode) && S_ISLNK(node(path_of("middle")).st_mode));
    assert_true(S_ISREG(node(target).st_mode) && node(target).st_size > 100);
    write_file("behind/target", "old");
    fs::permissions(target, fs::perms(0640));
    const auto before = node(target);
    assert_works(write_to(command, link));
    assert_true(S_ISLNK(node(link).st_mode));
    assert_true(node(target).st_size > 100 && (node(target).st_mode & 07777) == 0640);
    assert_true(node(target).st_ino != before.st_ino);  // in one step
    assert_int_equal(names(g_folder / "behind").size(), 1);
    for (const std::string& path : {target, link, path_of("middle")}) fs::remove(path);
  }
  fs::create_symlink("loop", path_of("loop"));
  assert_fails(write_to(writers()[0], path_of("loop")), 1, {"loop", "Too many levels of symbolic links"});
  fs::remove(path_of("loop"));
}

// A device like /dev/null, and one like /dev/full, of this folder's own. Making them needs rights.
void out_file__a_device_is_written(void**) {
  const std::string null = path_of("null"), full = path_of("full");
  if (mknod(null.c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0 ||
      mknod(full.c_str(), S_IFCHR | 0666, makedev(1, 7)) != 0)
    skip();
  const int opened = open(null.c_str(), O_WRONLY);
  if (opened < 0) skip();  // a file system without devices
  close(opened);
  for (const std::vector<std::string>& command : writers()) {
    assert_works(write_to(command, null));
    assert_true(S_ISCHR(node(null).st_mode));
    const Output o = write_to(command, full);
    assert_status(o, 1);
    assert_true(contains(o.err, full + ": No space left on device"));
    assert_true(S_ISCHR(node(full).st_mode));
  }
  fs::remove(null);
  fs::remove(full);
}

void out_file__a_socket_is_refused_and_stays(void**) {
  const std::string path = path_of("socket");
  const int handle = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  assert_true(path.size() < sizeof(address.sun_path));
  path.copy(address.sun_path, path.size());
  assert_int_equal(bind(handle, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  for (const std::vector<std::string>& command : writers()) {
    assert_fails(write_to(command, path), 1, {path, "No such device or address"});
    assert_true(S_ISSOCK(node(path).st_mode));
  }
  close(handle);
  fs::remove(path);
}

// Before the first token: nothing is on standard output, and nothing new in the folder.
void out_file__bad_paths_are_told_before_the_work(void**) {
  fs::create_directories(g_folder / "folder");
  write_file("a-file", "");
  std::vector<std::vector<std::string>> commands = writers();
  commands.push_back({"eval", "-m", kModel, "--families", "rule", "--policies", "dense", "-n", "1", "--trace"});
  const std::set<std::string> before = names();
  for (const std::vector<std::string>& command : commands) {
    assert_fails(write_to(command, path_of("no/such")), 1, {"no/such: No such file or directory"});
    assert_fails(write_to(command, path_of("folder")), 1, {"folder: Is a directory"});
    assert_fails(write_to(command, path_of("a-file/x")), 1, {"a-file/x: Not a directory"});
    assert_fails(write_to(command, path_of(std::string(300, 'x'))), 1, {"File name too long"});
    assert_fails(write_to(command, ""), 2, {command.back() == "-o" ? "--out" : command.back(), "empty"});
    assert_true(names() == before);
  }
  // The pictures of a trace, and the tables of an evaluation.
  fs::create_directories(g_folder / "t.svg");
  commands.back().push_back(path_of("t"));
  assert_fails(weir(commands.back()), 1, {"t.svg: Is a directory"});
  assert_false(fs::exists(g_folder / "t"));
  const std::vector<std::pair<std::string, std::vector<std::string>>> tables = {
      {"memory.svg", {}}, {"kl.svg", {"--forced"}}, {"text-kl.svg", {"--text", words_file(), "--windows", "0"}}};
  for (const auto& [file, more] : tables) {
    fs::create_directories(g_folder / "results" / file);
    std::vector<std::string> command = {"eval", "-m", kModel, "--policies", "dense", "--out", path_of("results")};
    command.insert(command.end(), more.begin(), more.end());
    if (file == "text-kl.svg") command.insert(command.end(), {"--prompt-tokens", "16", "--forced-tokens", "16"});
    assert_fails(weir(command), 1, {file + ": Is a directory"});
    fs::remove_all(g_folder / "results");
  }
}

// A limit on the size of files ends no program, and no part of the conversation stays.
void out_file__a_limit_on_file_sizes_is_an_error(void**) {
  const std::string file = path_of("limited"), err = path_of("limited.err");
  write_file("limited", "as it was");
  const std::set<std::string> before = names();
  const std::string command = "ulimit -f 8; " + shell_word(WEIR_PROGRAM) + " run -m " + shell_word(kModel) +
                              " -p Hello -n 30 --save " + shell_word(file) + " 2>" + shell_word(err) + " >/dev/null";
  const int status = std::system(command.c_str());
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
  assert_true(contains(read_file(err), file + ": File too large"));
  fs::remove(err);
  assert_string_equal(read_file(file).c_str(), "as it was");
  assert_true(names() == before);
  fs::remove(file);
}

// What a program that is killed at any time leaves: nothing beside the old file.
void out_file__without_a_commit_nothing_is_there(void**) {
  const std::string file = path_of("kept");
  write_file("kept", "as it was");
  const std::set<std::string> before = names();
  {
    weir_cli::OutFile out(file);
    out.write("new");
    assert_true(names() == before);  // the file has no name yet, or is gone with the object
  }
  assert_true(names() == before);
  assert_string_equal(read_file(file).c_str(), "as it was");
  {
    weir_cli::OutFile out(file, weir_cli::OutFile::kPrivate);
    out.write("new");
    out.commit();
  }
  assert_string_equal(read_file(file).c_str(), "new");
  assert_true(names() == before);
  fs::remove(file);
}

std::string model_in(const std::string& folder) {
  return weir_cli::bench_model_file(weir_cli::model_shape("tiny"), "q8_0", folder);
}

// Nothing of a folder that others share is believed or written through.
void bench__planted_files_are_not_used(void**) {
  const std::string folder = path_of("cache"), victim = path_of("victim"), model = model_in(folder);
  assert_int_equal(node(folder).st_mode & 0777, 0700);
  const std::string good = read_file(model);
  assert_int_equal(names(folder).size(), 1);
  // A file of the right size with something else in it.
  std::string other = good;
  other.replace(other.find("random tiny"), 11, "RANDOM tiny");
  std::ofstream(model, std::ios::binary) << other;
  assert_true(model_in(folder) == model && read_file(model) == good);
  // Links with the name of the file, and of the unfinished one of former versions.
  for (const std::string& planted : {model, model + ".part"}) {
    for (const std::string& content : {std::string("precious"), good}) {
      write_file("victim", content);
      fs::remove(model);
      fs::remove(planted);
      fs::create_symlink(victim, planted);
      assert_true(model_in(folder) == model && read_file(model) == good);
      assert_true(read_file(victim) == content && S_ISREG(node(model).st_mode));
    }
    fs::remove(planted);
  }
  // A second name of somebody's file.
  write_file("victim", good);
  fs::remove(model);
  fs::create_hard_link(victim, model);
  assert_true(model_in(folder) == model && node(model).st_ino != node(victim).st_ino);
  // A pipe, which would block whoever opens it.
  fs::remove(model);
  assert_int_equal(mkfifo(model.c_str(), 0600), 0);
  assert_true(model_in(folder) == model && S_ISREG(node(model).st_mode));
  // A file that others can write.
  fs::permissions(model, fs::perms(0666));
  assert_true(model_in(folder) == model && (node(model).st_mode & 0777) == 0600);
  // A folder that others can write, and one where they cannot replace what is another's.
  fs::permissions(folder, fs::perms(0777));
  std::string message;
  try {
    (void)model_in(folder);
  } catch (const std::runtime_error& e) {
    message = e.what();
  }
  for (const char* part : {folder.c_str(), "other users can write", "--cache-dir"})
    assert_true(contains(message, part));
  fs::permissions(folder, fs::perms(01777));
  assert_true(model_in(folder) == model);
  fs::remove(victim);
}

// Without --cache-dir: in the user's cache, whatever is in the folder of temporary files.
void bench__default_folder_is_the_users(void**) {
  const std::string shared = path_of("tmp"), cache = path_of("xdg");
  fs::create_directories(shared + "/weir-bench");
  const std::string victim = write_file("victim", "precious");
  for (const char* name : {"tiny-q8_0.gguf", "tiny-q8_0.gguf.part"})
    fs::create_symlink(victim, shared + "/weir-bench/" + name);
  // Without a session that fits, nothing is measured, but the file is made.
  const auto bench = [] { return weir({"bench", "--shape", "tiny", "--policy", "raas", "--budget", "16"}).status; };
  setenv("TMPDIR", shared.c_str(), 1);
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  assert_true(bench() == 1 && fs::exists(cache + "/weir-bench/tiny-q8_0.gguf"));
  unsetenv("XDG_CACHE_HOME");
  const std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  setenv("HOME", path_of("home").c_str(), 1);
  assert_true(bench() == 1 && fs::exists(path_of("home/.cache/weir-bench/tiny-q8_0.gguf")));
  unsetenv("HOME");
  const std::string own = shared + "/weir-bench-" + std::to_string(geteuid());
  assert_true(bench() == 1 && fs::exists(own + "/tiny-q8_0.gguf"));
  assert_int_equal(node(own).st_mode & 0777, 0700);
  if (!home.empty()) setenv("HOME", home.c_str(), 1);
  unsetenv("TMPDIR");
  assert_string_equal(read_file(victim).c_str(), "precious");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(out_file__a_pipe_gets_what_a_file_would_have),
      cmocka_unit_test(out_file__a_link_is_followed),
      cmocka_unit_test(out_file__a_device_is_written),
      cmocka_unit_test(out_file__a_socket_is_refused_and_stays),
      cmocka_unit_test(out_file__bad_paths_are_told_before_the_work),
      cmocka_unit_test(out_file__a_limit_on_file_sizes_is_an_error),
      cmocka_unit_test(out_file__without_a_commit_nothing_is_there),
      cmocka_unit_test(bench__planted_files_are_not_used),
      cmocka_unit_test(bench__default_folder_is_the_users),
  };
  return cmocka_run_group_tests_name("out_files", tests, make_folder, remove_folder);
}
