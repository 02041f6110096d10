// cli: what the commands of weir chat do to a conversation, through a pipe; and what of the file's recommended sampling
// it takes.
#include <cstring>
#include <string>

#include "tests/cli/cli_test.h"
#include "tools/lab/problems.h"

using namespace weir_cli;
using namespace weir_cli::test;

namespace {

Output chat(const std::string& lines, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"chat", "-m", kModel, "--temp", "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return weir(arguments, lines);
}

std::string stats_line(const Output& o) {
  const size_t at = o.out.rfind("tokens   ");
  if (at == std::string::npos) fail_msg("no /stats in: %s", o.out.c_str());
  return o.out.substr(at, o.out.find('\n', at) - at);
}

// Whatever was said and taken back, the session has what it would have without that.
void assert_same_conversation(const std::string& lines, const std::string& wanted) {
  const Output a = chat(lines + "/stats\n"), b = chat(wanted + "/stats\n");
  assert_works(a);
  assert_works(b);
  assert_string_equal(stats_line(a).c_str(), stats_line(b).c_str());
}

void chat__turns_are_taken_back(void**) {
  const Problem first = short_problem();
  const FollowUp more = make_follow_up(first, 3);
  const std::string question = first.prompt + "\n", follow_up = more.question + "\n";
  const Output plain = chat(question + follow_up);
  assert_works(plain);
  // another answer to the same is the same one: the most probable tokens
  const Output again = chat(question + follow_up + "/regen\n");
  assert_works(again);
  assert_true(again.out.starts_with(plain.out));
  assert_true(again.out.ends_with(more.answer + "\n"));
  assert_true(again.out.size() > plain.out.size());
  assert_same_conversation(question + follow_up + "/regen\n", question + follow_up);
  assert_same_conversation("Hello\n" + question + "/rewind 2\n" + question + follow_up, question + follow_up);
  assert_same_conversation("Hello\n/edit 1 " + question + follow_up, question + follow_up);
  assert_same_conversation(question + "Hello\n/edit 2 " + follow_up, question + follow_up);
}

void chat__system_messages(void**) {
  const Output o = chat("/system Be brief.\nHello\n/stats\n/system\n/regen\n/stats\n");
  const Output with = weir({"chat", "-m", kModel, "--temp", "0", "--system", "Be brief."}, "Hello\n/stats\n");
  assert_works(o);
  assert_works(with);
  assert_true(contains(o.out, stats_line(with)));
  assert_string_equal(stats_line(o).c_str(), stats_line(chat("Hello\n/stats\n")).c_str());
  assert_true(contains(o.out, "There is no system message."));
}

void chat__settings(void**) {
  const Output o = chat(
      "/set temp 0.5\n/set top-k 40\n/set max-tokens 3\n/set seed 9\n/set\nHello\n/set temp x\n"
      "/set top-k 1.5\n/set temp 101\n/set\n");
  assert_status(o, 1);
  assert_true(contains(o.err, "temperature"));
  assert_true(contains(o.out, "temp 0.5, top-p 0, top-k 40, min-p 0, repeat-penalty 0, seed 9, max-tokens 3"));
  assert_true(contains(o.out, "/set temp wants a number.\n/set top-k wants a number.\n"));
  assert_true(o.out.rfind("temp 0.5, top-p 0, top-k 40") > o.out.find("wants a number"));
  assert_true(contains(o.err, "cut at 3 tokens"));
}

void chat__saves_and_loads(void**) {
  const Problem first = short_problem();
  const FollowUp more = make_follow_up(first, 3);
  const std::string file = (g_folder / "talk.weir").string();
  const std::string question = first.prompt + "\n", follow_up = more.question + "\n";
  assert_works(chat(question + "/save " + file + "\n"));
  const Output o = chat("Hello\n/load " + file + "\n" + follow_up + "/regen\n/system Hm.\n/edit 2 x\n");
  assert_works(o);
  assert_true(contains(o.out, more.answer + "\n"));
  assert_true(contains(o.out, "keeps its system message"));
  assert_true(contains(o.out, "from 1 to 1"));
  const Output nowhere = chat("/save\n/load\n/load " + (g_folder / "none").string() + "\n/save " +
                              (g_folder / "none" / "x").string() + "\nHello\n");
  assert_works(nowhere);
  assert_true(contains(nowhere.out, "wants a file") && contains(nowhere.out, "none") &&
              contains(nowhere.out, "Hello!"));
}

// What was taken back is not in the file.
void chat__saves_no_more_than_is_left(void**) {
  const std::string question = short_problem().prompt + "\n";
  const auto saved = [&](const std::string& lines) {
    const std::string file = (g_folder / "left.weir").string();
    assert_works(chat(lines + "/save " + file + "\n"));
    return stats_line(chat("/load " + file + "\n/stats\n"));
  };
  assert_string_equal(saved(question + "Hello\n/rewind\n").c_str(), saved(question).c_str());
  assert_string_equal(saved("Hello\n/rewind\n").c_str(), saved("").c_str());
}

// Also of a conversation from a file, which goes on as if nothing had been taken back.
void chat__saves_what_is_left_of_a_loaded_one(void**) {
  const Problem first = short_problem();
  const std::string more = make_follow_up(first, 3).question + "\n";
  const std::string file = (g_folder / "first.weir").string(), again = (g_folder / "again.weir").string();
  assert_works(chat(first.prompt + "\n/save " + file + "\n"));
  const auto saved = [&](const std::string& lines) {
    const Output o = chat("/load " + file + "\n" + lines + "/save " + again + "\n");
    assert_works(o);
    if (!contains(o.out, again + " has the conversation")) fail_msg("not saved: %s", o.out.c_str());
    return chat("/load " + again + "\n/stats\n" + more).out;
  };
  assert_string_equal(saved(more + "Hello\n/rewind\n").c_str(), saved(more).c_str());
  assert_string_equal(saved(more + "/rewind\n").c_str(), saved("").c_str());
}

// What /set says holds, whatever was in the file; what --resume brought is replaced as a whole.
void chat__settings_of_a_loaded_one(void**) {
  const std::string file = (g_folder / "warm.weir").string();
  assert_works(weir({"chat", "-m", kModel, "--temp", "0.7", "--seed", "1"}, "Hello\n/save " + file + "\n"));
  const Output o = chat("/set top-k 3\n/load " + file + "\n/set\n/set min-p 0.5\n/set\n");
  assert_works(o);
  const std::string wanted = "temp 0, top-p 0, top-k 3, min-p 0, ";
  assert_true(contains(o.out, wanted) && contains(o.out, "temp 0, top-p 0, top-k 3, min-p 0.5, "));
  // greedy again, as it was before the file came
  const std::string question = short_problem().prompt + "\n";
  assert_string_equal(chat("/load " + file + "\n" + question).out.c_str(),
                      chat("/load " + file + "\n" + question).out.c_str());
  const Output resumed = weir({"chat", "-m", kModel, "--resume", file}, "/set\n/set max-tokens 4\n/set top-k 3\n");
  assert_works(resumed);
  assert_true(contains(resumed.out, "that which was saved with the conversation; max-tokens 0"));
  assert_true(contains(resumed.out, "is replaced. temp 0.8, top-p 0, top-k 3, min-p 0.05, "));
  assert_int_equal(resumed.out.find("is replaced"), resumed.out.rfind("is replaced"));
}

// --var holds beside what /think says.
void chat__variables(void**) {
  const std::string model = model_with_template(
      "think.gguf",
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{{ who }}"
      "{% if enable_thinking is false %}no thought{% endif %}{% if add_generation_prompt %}<|im_start|>assistant\n"
      "{% endif %}");
  const auto tokens = [&](const std::string& lines, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"chat", "-m", model, "--temp", "0", "-n", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Output o = weir(arguments, lines + "Hello\n/stats\n");
    assert_works(o);
    return stats_line(o);
  };
  assert_string_not_equal(tokens("", {}).c_str(), tokens("", {"--var", "who=you"}).c_str());
  assert_string_not_equal(tokens("", {}).c_str(), tokens("/think off\n", {}).c_str());
  assert_string_equal(tokens("/think off\n", {}).c_str(), tokens("", {"--var", "enable_thinking=false"}).c_str());
  assert_string_equal(tokens("/think off\n", {"--var", "who=you"}).c_str(),
                      tokens("", {"--var", "enable_thinking=false", "--var", "who=you"}).c_str());
  assert_string_equal(tokens("/think on\n", {"--var", "enable_thinking=false"}).c_str(), tokens("", {}).c_str());
  // and behind a conversation from a file, whose end of the answer and question are all that is new
  const std::string file = (g_folder / "think.weir").string();
  assert_works(weir({"chat", "-m", model, "--temp", "0", "-n", "1"}, "Hello\n/save " + file + "\n"));
  assert_string_not_equal(tokens("/load " + file + "\n/think off\n", {}).c_str(),
                          tokens("/load " + file + "\n", {}).c_str());
}

void chat__commands_that_are_wrong(void**) {
  const Output o = chat(
      "/regen\n/edit\n/edit 1 x\n/rewind\n/think\n/think maybe\n/think off\n/nothing\nHello\n/edit 2 x\n"
      "/edit 1\n/rewind 2\n/rewind x\n/stats\n");
  assert_works(o);
  for (const char* part : {"There is no question", "/edit wants the number of a question, from 1 to 0",
                           "/rewind wants how many questions to forget, from 1 to 0", "/think wants on or off",
                           "has no switch for thoughts", "No command /nothing", "from 1 to 1", "/edit wants a text"}) {
    if (!contains(o.out, part)) fail_msg("\"%s\" is not in: %s", part, o.out.c_str());
  }
  assert_string_equal(stats_line(o).c_str(), stats_line(chat("Hello\n/stats\n")).c_str());
}

// The oldest turns make room for new ones.
void chat__a_full_context_goes_on(void**) {
  std::string lines;
  for (int i = 0; i < 12; ++i) lines += "Hello number " + std::to_string(i) + "\n";
  const Output o = chat(lines, {"--context", "192", "-n", "12"});
  assert_works(o);
  assert_true(contains(o.err, "oldest messages are left out"));
}

void append(std::string& out, const void* bytes, size_t n) { out.append(static_cast<const char*>(bytes), n); }

// The tiny model with more metadata, of a whole number of 32 bytes.
std::string model_with(const std::vector<std::pair<std::string, float>>& values) {
  std::string bytes = read_file(kModel), more;
  uint64_t n = 0;
  std::memcpy(&n, bytes.data() + 16, sizeof(n));
  const auto add_key = [&](const std::string& key, uint32_t type) {
    const uint64_t size = key.size();
    append(more, &size, sizeof(size));
    more += key;
    append(more, &type, sizeof(type));
    ++n;
  };
  for (const auto& [key, value] : values) {
    add_key(key, 6);
    append(more, &value, sizeof(value));
  }
  add_key("general.filler", 8);
  const uint64_t size = 32 - (more.size() + 8) % 32;
  append(more, &size, sizeof(size));
  more.append(size, ' ');
  std::memcpy(bytes.data() + 16, &n, sizeof(n));
  bytes.insert(24, more);
  return write_file("recommended.gguf", bytes);
}

void chat__takes_what_the_file_recommends(void**) {
  const std::string model = model_with({{"general.sampling.temp", 0.7f},
                                        {"general.sampling.top_p", 0.8f},
                                        {"general.sampling.top_k", 20.0f},
                                        {"general.sampling.penalty_repeat", 1.05f}});
  const auto settings = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"chat", "-m", model, "--seed", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Output o = weir(arguments, "/set\n");
    assert_works(o);
    return o.out.substr(0, o.out.find(", seed"));
  };
  assert_string_equal(settings({}).c_str(), "temp 0.7, top-p 0.8, top-k 20, min-p 0, repeat-penalty 1.05");
  assert_string_equal(settings({"--temp", "0.5", "--top-k", "0"}).c_str(),
                      "temp 0.5, top-p 0.8, top-k 0, min-p 0, repeat-penalty 1.05");
  assert_string_equal(settings({"--temp", "0"}).c_str(), "temp 0, top-p 0, top-k 0, min-p 0, repeat-penalty 0");
  model_with({{"general.sampling.temp", -1.0f}});  // no temperature: as if there were none
  assert_string_equal(settings({}).c_str(), "temp 0.8, top-p 0, top-k 0, min-p 0.05, repeat-penalty 1.1");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(chat__turns_are_taken_back),
      cmocka_unit_test(chat__system_messages),
      cmocka_unit_test(chat__settings),
      cmocka_unit_test(chat__saves_and_loads),
      cmocka_unit_test(chat__saves_no_more_than_is_left),
      cmocka_unit_test(chat__saves_what_is_left_of_a_loaded_one),
      cmocka_unit_test(chat__settings_of_a_loaded_one),
      cmocka_unit_test(chat__variables),
      cmocka_unit_test(chat__commands_that_are_wrong),
      cmocka_unit_test(chat__a_full_context_goes_on),
      cmocka_unit_test(chat__takes_what_the_file_recommends),
  };
  return cmocka_run_group_tests_name("cli", tests, make_folder, remove_folder);
}
