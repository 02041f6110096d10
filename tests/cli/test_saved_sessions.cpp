// cli: weir run and weir chat with --save and --resume: what was cut goes on as if it had not been, and errors name the
// file. Mirrors tools/weir/session_file.cpp. It starts the built program; the model is the embedded tiny reasoner.
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/cli_test.h"

using nlohmann::json;
using namespace weir_cli::test;
namespace fs = std::filesystem;

namespace {

constexpr char kPrompt[] = "Start: x0 = 97, x1 = 57, x2 = 60. Rule: x[n] = x[n-3] - x[n-1]. Work modulo 100. Find x13.";

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::string text_of(const Output& o) {
  assert_works(o);
  return json::parse(o.out)["text"];
}

std::string path_of(const char* name) { return (g_folder / name).string(); }

size_t n_files() {
  size_t n = 0;
  for (const auto& entry : fs::directory_iterator(g_folder)) n += entry.is_regular_file() ? 1u : 0u;
  return n;
}

// Two questions in one run, against two runs of which the second resumes the first.
void saved__a_second_question_has_the_answer_of_one_conversation(void**) {
  const std::string file = path_of("talk.session");
  const std::vector<std::vector<std::string>> settings = {
      {},
      {"--policy", "raas", "--budget", "256", "--max-prompt", "256"},
      {"--policy", "arkvale", "--budget", "256", "--spill-bytes", "2MiB"},
      {"--temp", "0.7", "--seed", "5", "--repeat-penalty", "1.1"},
  };
  for (const auto& flags : settings) {
    const std::string both = write_file(
        "both.jsonl",
        json({{"id", 1},
              {"messages", {{{"role", "user"}, {"content", kPrompt}}, {{"role", "user"}, {"content", "Find x14."}}}}})
            .dump());
    const Output whole = weir(with({"run", "-m", kModel, "--prompts", both, "--json", "-n", "150"}, flags));
    assert_works(whole);
    const json texts = json::parse(whole.out)["texts"];
    assert_int_equal(texts.size(), 2);
    const Output first = weir(with({"run", "-m", kModel, "-p", kPrompt, "--json", "-n", "150", "--save", file}, flags));
    assert_true(texts[0] == text_of(first));
    struct stat info = {};
    assert_int_equal(stat(file.c_str(), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    // Sampling is kept.
    const size_t n = flags.size() >= 2 && flags[0] == "--temp" ? 0 : flags.size();
    const std::vector<std::string> again(flags.begin(), flags.begin() + static_cast<std::ptrdiff_t>(n));
    const Output second =
        weir(with({"run", "-m", kModel, "-p", "Find x14.", "--json", "-n", "150", "--resume", file}, again));
    assert_string_equal(text_of(second).c_str(), texts[1].get<std::string>().c_str());
    const Output chat = weir(with({"chat", "-m", kModel, "-n", "150", "--resume", file}, again), "Find x14.\n");
    assert_works(chat);
    assert_true(contains(chat.out, texts[1].get<std::string>()));
  }
}

void saved__a_chat_goes_on(void**) {
  const std::string file = path_of("chat.session");
  const std::string question = std::string(kPrompt) + "\n";
  const Output whole = weir({"chat", "-m", kModel, "--temp", "0", "-n", "100"}, question + "Find x15.\n");
  const Output first = weir({"chat", "-m", kModel, "--temp", "0", "-n", "100", "--save", file}, question);
  const Output second = weir({"chat", "-m", kModel, "-n", "100", "--resume", file, "--save", file}, "Find x15.\n");
  assert_works(whole);
  assert_works(first);
  assert_works(second);
  assert_string_equal((first.out + second.out).c_str(), whole.out.c_str());
  assert_works(weir({"chat", "-m", kModel, "-n", "5", "--resume", file}, "Find x16.\n"));
}

void saved__errors_name_the_file(void**) {
  const std::string file = path_of("good.session"), bad = write_file("bad.session", "this is something else, and long");
  assert_works(weir({"run", "-m", kModel, "-p", kPrompt, "-n", "5", "--save", file}));
  const std::vector<std::string> run = {"run", "-m", kModel, "-p", "More.", "-n", "5"};
  assert_fails(weir(with(run, {"--resume", path_of("none.session")})), 1, {"none.session", "No such file"});
  assert_fails(weir(with(run, {"--resume", bad})), 1, {"bad.session", "no saved session", "WEIR_ERR_FORMAT"});
  assert_fails(weir(with(run, {"--resume", g_folder.string()})), 1, {"cannot resume from", "Is a directory"});
  const std::string bytes = read_file(file), cut = write_file("cut.session", bytes.substr(0, bytes.size() / 2));
  assert_fails(weir(with(run, {"--resume", cut})), 1,
               {"cut.session", "ends at byte " + std::to_string(bytes.size() / 2)});
  assert_fails(weir(with(run, {"--resume", file, "--policy", "quest"})), 1,
               {"good.session", "policy is dense in the saved session, quest in this one"});
  assert_fails(weir(with(run, {"--resume", file, "--context", "512"})), 1, {"context_tokens is "});
  assert_fails(weir(with(run, {"--resume", file, "--system", "Be brief."})), 2, {"--system"});
  assert_fails(weir({"run", "-m", kModel, "--prompts", "-", "--save", file}), 2, {"--prompts"});
  assert_fails(weir(with(run, {"--save", file, "--policy", "hybrid", "--budget", "128"})), 2, {"--max-prompt"});
}

// A file that cannot be written leaves the one that was there, and nothing beside it.
void saved__a_failed_save_leaves_the_old_file(void**) {
  const std::string file = path_of("kept.session");
  const std::vector<std::string> run = {"run", "-m", kModel, "-p", kPrompt, "-n", "5"};
  assert_works(weir(with(run, {"--save", file})));
  const std::string before = read_file(file);
  const size_t n_before = n_files();
  const Output nowhere = weir(with(run, {"--save", path_of("no/such/folder")}));
  assert_status(nowhere, 1);
  assert_true(contains(nowhere.err, "cannot save the session to") && contains(nowhere.err, "No such file"));
  // A folder of that name cannot be replaced.
  fs::create_directories(g_folder / "folder.session" / "inside");
  const Output folder = weir(with(run, {"--save", path_of("folder.session")}));
  assert_status(folder, 1);
  assert_true(contains(folder.err, "folder.session"));
  // The prompt does not fit: nothing is saved.
  assert_status(weir(with(run, {"--save", file, "--context", "16"})), 1);
  assert_true(read_file(file) == before);
  assert_int_equal(n_files(), n_before);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(saved__a_second_question_has_the_answer_of_one_conversation),
      cmocka_unit_test(saved__a_chat_goes_on),
      cmocka_unit_test(saved__errors_name_the_file),
      cmocka_unit_test(saved__a_failed_save_leaves_the_old_file),
  };
  return cmocka_run_group_tests_name("saved_sessions", tests, make_folder, remove_folder);
}
