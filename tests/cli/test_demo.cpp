// cli: weir demo tells its story, right, wrong, right within the budget, says so by its exit status, and asks for a
// secret on a terminal alone, which it leaves as it was. Mirrors tools/weir/demo*.cpp. Most stories here are short
// ones, which hold as the one of --fast does.
#include "tests/cli/terminal_process.h"
#include "tools/weir/demo_pages.h"
#include "tools/weir/demo_story.h"
#include "tools/weir/demo_svg.h"

using namespace weir_cli::test;
using weir_cli::demo_svg;
using weir_cli::DemoPicture;
using weir_cli::parse_secret;
using weir_cli::secret_text;

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBudgetBytes = 256 * 4096;

std::vector<std::string> short_story(const std::vector<std::string>& more = {}) {
  std::vector<std::string> command = {"demo", "-m", kModel, "--steps", "20", "--budget", "256", "--go-on", "0"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

// What the table says of a lane: its answers and "right" or "wrong".
std::string row_of(const std::string& out, const std::string& lane) {
  const size_t table = out.find("KV in memory");
  assert_true(table != std::string::npos);
  const size_t at = out.find("\n" + lane + " ", table);
  assert_true(at != std::string::npos);
  std::string row = out.substr(at + 1, out.find('\n', at + 1) - at - 1);
  return row;
}

void assert_story(const Output& o, const std::string& secret) {
  assert_works(o);
  assert_true(contains(row_of(o.out, "everything"), secret + " ") && contains(row_of(o.out, "everything"), "right"));
  assert_true(contains(row_of(o.out, "window"), "wrong"));
  assert_true(contains(row_of(o.out, "Weir"), secret + " ") && contains(row_of(o.out, "Weir"), "right"));
  assert_true(contains(o.out, "allocations while decoding 0\n"));
}

// Tags are closed in their order, and nothing is in a text or a value that must be written otherwise.
void assert_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  size_t at = 0;
  while ((at = xml.find('<', at)) != std::string::npos) {
    const size_t end = xml.find('>', at);
    assert_true(end != std::string::npos);
    const std::string tag = xml.substr(at + 1, end - at - 1);
    assert_true(tag.find('<') == std::string::npos);
    assert_int_equal(std::count(tag.begin(), tag.end(), '"') % 2, 0);
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      assert_false(open.empty());
      assert_string_equal(tag.c_str() + 1, open.back().c_str());
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end;
  }
  assert_true(open.empty());
  for (size_t amp = 0; (amp = xml.find('&', amp)) != std::string::npos; ++amp)
    assert_true(xml.find(';', amp) - amp <= 5);
}

// ---- parts

void secret__six_digits(void**) {
  assert_string_equal(secret_text(*parse_secret("481207")).c_str(), "48 12 7");
  assert_string_equal(secret_text(*parse_secret(" 00 00 99 ")).c_str(), "0 0 99");
  for (const char* wrong : {"", "12345", "1234567", "12a456", "-12345", "12.345"})
    assert_false(parse_secret(wrong).has_value());
}

void picture__is_well_formed_and_says_all(void**) {
  DemoPicture picture;
  picture.headline = "You have <4 MiB> & more";
  picture.secret = "1 2 3";
  picture.mark_bytes = 4 << 20;
  picture.lanes = {{"everything", "all", "1 2 3", 30 << 20, 0, true},
                   {"window", "little", "? ? \"", 4 << 20, 0, false},
                   {"Weir", "what is wanted", "1 2 3", 4 << 20, 9 << 20, true}};
  picture.pages.resize(100);
  picture.pages[3] = {0.5, false, true, true};
  picture.pages[4].is_lost = true;
  const std::string svg = demo_svg(picture);
  assert_well_formed(svg);
  assert_true(contains(svg, "prefers-color-scheme:dark"));
  assert_true(contains(svg, "everything: 30.0 MiB, right. window: 4.0 MiB, wrong. Weir: 4.0 MiB, right."));
  assert_true(contains(svg, "4.0 MiB in memory, 9.0 MiB on disk"));
  assert_true(contains(svg, "class=\"back\"") && contains(svg, "class=\"lost\""));
}

// ---- the program

void demo__right_wrong_right_within_the_budget(void**) {
  const std::string svg = (g_folder / "demo.svg").string(), csv = (g_folder / "demo.csv").string(),
                    folder = (g_folder / "store").string();
  fs::create_directory(folder);
  std::vector<std::string> command =
      short_story({"--secret", "481207", "--svg", svg, "--csv", csv, "--folder", folder});
  command[8] = "700";  // of --go-on
  const Output o = weir(command);
  assert_story(o, "48 12 7");
  assert_int_equal(o.out.find('\x1b'), std::string::npos);
  assert_true(contains(o.out, "You have 1.0 MiB for keys and values. At 100,000 tokens the model wants 390.6 MiB."));
  assert_true(contains(o.out, "700 tokens in 1.0 MiB"));
  assert_true(contains(o.out, "weir demo -m MODEL.gguf --text FILE.txt\n"));
  assert_true(fs::is_empty(folder));  // its file had no name

  const std::string picture = read_file(svg);
  assert_well_formed(picture);
  const size_t first = picture.find("✓ right"), second = picture.find("✗ wrong", first),
               third = picture.find("✓ right", second);
  assert_true(first != std::string::npos && second != std::string::npos && third != std::string::npos);

  std::istringstream rows(read_file(csv));
  std::string row;
  std::getline(rows, row);
  assert_string_equal(row.c_str(), "lane,tokens,kv_bytes,file_bytes");
  uint64_t most_of_everything = 0;
  int n_rows = 0;
  for (; std::getline(rows, row); ++n_rows) {
    char lane[16] = "";
    unsigned tokens = 0;
    unsigned long long kv_bytes = 0, file_bytes = 0;
    assert_int_equal(std::sscanf(row.c_str(), "%15[^,],%u,%llu,%llu", lane, &tokens, &kv_bytes, &file_bytes), 4);
    if (std::string(lane) == "everything")
      most_of_everything = std::max<uint64_t>(most_of_everything, kv_bytes);
    else
      assert_true(kv_bytes <= kBudgetBytes);
    assert_true(file_bytes == 0 || std::string(lane) == "Weir");
  }
  assert_true(n_rows >= 15 && most_of_everything > 2 * kBudgetBytes * 9 / 10);
}

void demo__any_secret(void**) {
#ifdef WEIR_INTERNAL_SANITIZED
  const std::vector<std::pair<const char*, const char*>> secrets = {{"000000", "0 0 0"}};  // ten times as slow
#else
  const std::vector<std::pair<const char*, const char*>> secrets = {
      {"000000", "0 0 0"}, {"999999", "99 99 99"}, {"010203", "1 2 3"}, {"100090", "10 0 90"}};
#endif
  for (const auto& [digits, numbers] : secrets) assert_story(weir(short_story({"--secret", digits})), numbers);
}

void demo__fast(void**) {
#ifndef WEIR_INTERNAL_SANITIZED
  const Output o = weir({"demo", "-m", kModel, "--fast", "--go-on", "3000", "--secret", "771230"});
  assert_story(o, "77 12 30");
  assert_true(contains(o.out, "You have 4.0 MiB"));
#endif
}

void demo__a_story_that_does_not_hold_is_status_1(void**) {
  const std::string svg = (g_folder / "none.svg").string();
  const Output o = weir({"demo", "-m", kModel, "--steps", "20", "--go-on", "0", "--svg", svg});
  assert_status(o, 1);
  assert_true(contains(o.err, "the window's answer is right") && contains(o.err, "everything fits the budget"));
  assert_false(fs::exists(svg));
}

void demo__wrong_usage_is_status_2(void**) {
  for (const char* secret : {"", "12345", "1234567", "12a456", "-12345"})
    assert_fails(weir(short_story({"--secret", secret})), 2, {"--secret", "6 digits"});
  assert_fails(weir({"demo", "-m", kModel, "--steps", "19"}), 2, {"--steps"});
  assert_fails(weir({"demo", "-m", kModel, "--steps", "801"}), 2, {"--steps"});
  assert_fails(weir({"demo", "-m", kModel, "--fact", "a"}), 2, {"--text"});
  assert_fails(weir({"demo", "-m", kModel, "--text", kModel, "--fact", "a"}), 2, {"--question"});
  assert_fails(weir({"demo", "-m", kModel, "--text", kModel, "--steps", "30"}), 2, {"--tokens"});
  assert_fails(weir({"demo", "reason", "-m", kModel, "--seconds", "0"}), 2, {"--seconds"});
}

void demo__failures_are_status_1_and_name_the_thing(void**) {
  const Output o = weir(short_story({"--folder", (g_folder / "nowhere").string()}));
  assert_status(o, 1);
  assert_true(contains(o.err, "nowhere") && contains(o.err, "--folder"));
  assert_fails(weir({"demo", "-m", kModel, "--text", (g_folder / "no.txt").string()}), 1, {"no.txt"});
  std::string bytes = read_file(kModel);
  const std::string name = "Weir Tiny Reasoner";
  bytes.replace(bytes.find(name), name.size(), "Other Small Models");
  const std::string other = write_file("other.gguf", bytes);
  assert_fails(weir({"demo", "-m", other}), 1, {"Other Small Models", "--text FILE"});
  assert_fails(weir({"demo", "reason", "-m", other}), 1, {"Other Small Models", "weir eval"});
  fs::remove(other);
}

void demo_reason__a_table_in_bounded_time(void**) {
#ifndef WEIR_INTERNAL_SANITIZED
  const Output o = weir({"demo", "reason", "-m", kModel, "--fast", "--most", "60", "--seconds", "90"});
  assert_works(o);
  assert_true(contains(o.out, "everything") && contains(o.out, "raas") && contains(o.out, "arkvale"));
  assert_true(contains(o.out, "\n   60") && contains(o.out, "wrong"));
  assert_true(contains(o.out, "2 problems: the window has"));
#endif
  const auto start = std::chrono::steady_clock::now();
  const Output late = weir({"demo", "reason", "-m", kModel, "--seconds", "1"});
  assert_true(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
  assert_true(contains(late.out, "problems in the time"));
}

// ---- on a terminal

class Terminal : public TerminalProcess {
 public:
  explicit Terminal(const std::vector<std::string>& arguments)
      : TerminalProcess(30, 100, {{"LC_ALL", "C.UTF-8"}}, command(arguments)) {}

  int wait_for_exit() {
    const int status = wait_for_end();
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // No colour either.
  void assert_restored() const {
    assert_keys_restored();
    assert_true(text_.rfind("\x1b[0m") >= text_.rfind("\x1b[31m") || text_.rfind("\x1b[31m") == std::string::npos);
  }

 private:
  static std::vector<std::string> command(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), WEIR_PROGRAM);
    return arguments;
  }
};

void demo_terminal__a_typed_secret(void**) {
  Terminal terminal(short_story());
  terminal.wait_for("Your secret, six digits");
  terminal.type("12\r");
  terminal.wait_for("six digits, such as");
  terminal.type(
      "99481\x7f\x7f\x7f\x7f\x7f"
      "481207\r");
  terminal.wait_for("The secret is 48 12 7.");
  terminal.wait_for("What was x6?");
  terminal.wait_for("KV in memory");
  assert_int_equal(terminal.wait_for_exit(), 0);
  terminal.assert_restored();
  assert_true(contains(terminal.text(), "┃") && contains(terminal.text(), "the secret: "));
  assert_true(contains(terminal.text(), "x budget") || contains(terminal.text(), "x the budget"));
}

void demo_terminal__the_default_after_a_time(void**) {
  Terminal terminal(short_story());
  terminal.wait_for("in 5 s)");
  terminal.wait_for("in 2 s)");
  terminal.wait_for("The secret is 35 40 19.");
  terminal.wait_for("KV in memory");
  assert_int_equal(terminal.wait_for_exit(), 0);
  terminal.assert_restored();
}

void demo_terminal__ctrl_c_leaves_it_whole(void**) {
  {
    Terminal terminal(short_story());
    terminal.wait_for("Your secret, six digits");
    terminal.type("\x03");
    assert_int_equal(terminal.wait_for_exit(), 1);
    assert_true(contains(terminal.text(), "cancelled"));
    terminal.assert_restored();
  }
  Terminal terminal({"demo", "-m", kModel, "--secret", "123456"});
  terminal.wait_for("thinking");
  terminal.type("\x03");
  assert_int_equal(terminal.wait_for_exit(), 1);
  assert_true(contains(terminal.text(), "cancelled"));
  terminal.assert_restored();
}

// Going on is the one part that may be ended: all that was claimed until then holds.
void demo_terminal__ctrl_c_ends_going_on(void**) {
  std::vector<std::string> command = short_story({"--secret", "123456"});
  command[8] = "100000";
  Terminal terminal(command);
  terminal.wait_for("Ctrl-C ends it");
  terminal.type("\x03");
  terminal.wait_for("allocations while decoding 0");
  assert_int_equal(terminal.wait_for_exit(), 0);
  terminal.assert_restored();
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(secret__six_digits),
      cmocka_unit_test(picture__is_well_formed_and_says_all),
      cmocka_unit_test(demo__right_wrong_right_within_the_budget),
      cmocka_unit_test(demo__any_secret),
      cmocka_unit_test(demo__fast),
      cmocka_unit_test(demo__a_story_that_does_not_hold_is_status_1),
      cmocka_unit_test(demo__wrong_usage_is_status_2),
      cmocka_unit_test(demo__failures_are_status_1_and_name_the_thing),
      cmocka_unit_test(demo_reason__a_table_in_bounded_time),
      cmocka_unit_test(demo_terminal__a_typed_secret),
      cmocka_unit_test(demo_terminal__the_default_after_a_time),
      cmocka_unit_test(demo_terminal__ctrl_c_leaves_it_whole),
      cmocka_unit_test(demo_terminal__ctrl_c_ends_going_on),
  };
  return cmocka_run_group_tests_name("cli/demo", tests, make_folder, remove_folder);
}
