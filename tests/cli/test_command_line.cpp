// cli: what comes in on the command line, in prompts files and from model files: numbers are what they say or wrong
// usage, fields and names that are not known are told, and bytes of others never reach a terminal as they are. Mirrors
// tools/weir/{options,conversation,output,input,tokenize,info}.cpp. It starts the built program.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "tests/cli/cli_test.h"
#include "tools/weir/conversation.h"
#include "tools/weir/output.h"

using nlohmann::json;
using namespace weir_cli::test;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> kCommands = {"run",  "chat",    "demo", "bench",    "eval",     "calibrate",
                                            "plan", "devices", "info", "tokenize", "template", "serve"};

struct Option {
  std::string command, name, type;
  bool has_unit = false;
};

// Options whose value is not text, by the help of every command, so that a new one is found, too.
std::vector<Option> options_with_numbers() {
  const std::set<std::string> texts = {"DIGITS", "FILE", "TEXT",      "NAME",  "NAMES",  "DIR",
                                       "FOLDER", "TYPE", "KEY=VALUE", "TOKEN", "ADDRESS"};
  // Only here "LIST" means names, not numbers.
  const std::set<std::string> lists_of_names = {"--policies"};
  std::vector<Option> all;
  for (const std::string& command : kCommands) {
    const std::string help = weir({command, "--help"}).out;
    const std::regex line("^  (-[-,a-z0-9]+) ([A-Z,.=]+)( |$)");
    std::istringstream in(help);
    for (std::string text; std::getline(in, text);) {
      std::smatch found;
      if (!std::regex_search(text, found, line)) continue;
      const std::string names = found[1], name = names.substr(names.rfind(',') + 1), type = found[2];
      if (texts.count(type) != 0 || lists_of_names.count(name) != 0) continue;
      all.push_back({command, name, type, name.ends_with("-bytes")});
    }
  }
  return all;
}

// Each command with an option that is wrong, and nothing else that is.
Output with(const Option& option, const std::string& value) {
  std::vector<std::string> arguments = {option.command};
  if (option.command == "bench")
    arguments.insert(arguments.end(), {"--shape", "tiny"});
  else
    arguments.insert(arguments.end(), {"-m", kModel});
  if (option.command == "calibrate") arguments.insert(arguments.end(), {"--heads", "--text", "t", "-o", "o"});
  const std::string text = write_file("some.txt", "text");
  if (std::set<std::string>{"--windows", "--prompt-tokens", "--forced-tokens", "--seconds"}.count(option.name) != 0)
    arguments.insert(arguments.end(), {"--text", text});
  if (option.name == "--spill-file-bytes") arguments.insert(arguments.end(), {"--spill-file", "f"});
  if (option.command == "run") arguments.insert(arguments.end(), {"-p", "Hello"});
  arguments.insert(arguments.end(), {option.name, value});
  return weir(arguments);
}

void numbers__wrong_ones_are_status_2_with_option_and_range(void**) {
  const std::vector<Option> options = options_with_numbers();
  assert_true(options.size() > 60);
  const std::set<std::string> reals = {"T", "P", "R", "F"};
  const std::set<std::string> may_be_negative = {"--seed", "--presence-penalty", "--frequency-penalty"};
  for (const Option& option : options) {
    std::vector<std::string> wrong = {"+5", " 5", "0x10", "nan", "", "99999999999999999999999", "-5"};
    if (reals.count(option.type) == 0) wrong.insert(wrong.end(), {"1e9", "1.5"});
    if (may_be_negative.count(option.name) == 0) wrong.push_back("-1");
    for (const std::string& value : wrong) {
      const Output o = with(option, value);
      // A list of one number is split at its commas, so that the wrong part is named.
      if (o.status != 2 || !contains(o.err, option.name) ||
          (!contains(o.err, " to ") && !contains(o.err, "required") && !contains(o.err, "not allowed")) ||
          !o.out.empty()) {
        fail_msg("%s %s '%s': status %d, %s", option.command.c_str(), option.name.c_str(), value.c_str(), o.status,
                 o.err.c_str());
      }
    }
  }
}

json run_json(const std::vector<std::string>& more, const std::string& input = "", const std::string& model = kModel) {
  std::vector<std::string> arguments = {"run", "-m", model, "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Output o = weir(arguments, input);
  assert_works(o);
  return json::parse(o.out);
}

void numbers__right_ones_mean_what_they_say(void**) {
  assert_true(run_json({"-p", "Hello", "-n", "010"})["n_decode"] == 10);  // not base 8
  const auto kv_bytes = [](const char* budget) {
    const Output o = weir({"plan", "-m", kModel, "--policy", "raas", "--json", "--budget-bytes", budget});
    assert_works(o);
    return json::parse(o.out)["kv_bytes"].get<uint64_t>();
  };
  for (const char* same : {"4194304", "4096k", "4MiB", "4mb", "4M"}) assert_int_equal(kv_bytes(same), 4u << 20);
  const auto text = [](const char* seed) {
    return run_json({"-p", "Hello", "--temp", "3", "-n", "24", "--seed", seed})["text"].get<std::string>();
  };
  assert_string_equal(text("18446744073709551615").c_str(), text("18446744073709551615").c_str());
  for (const char* random : {"-1", "random"}) assert_string_not_equal(text(random).c_str(), text(random).c_str());
}

// A model of four layers, three of them recurrent, with 16,896 bytes of state.
void plan__shows_recurrent_layers(void**) {
  const std::string model = WEIR_SOURCE_DIR "/tests/golden/models/qwen35_f32.gguf";
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"plan", "-m", model, "--device", "cpu", "--context", "512"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return weir(arguments);
  };
  const Output usual = plan({"--json"}),
               given = plan({"--json", "--snapshot-bytes", "51200", "--snapshot-tokens", "64"});
  assert_works(usual);
  assert_works(given);
  const json u = json::parse(usual.out), g = json::parse(given.out);
  assert_int_equal(u["recurrent_bytes"].get<uint64_t>(), 2 * 16896);
  assert_int_equal(u["n_snapshots"].get<int>(), 4);
  assert_int_equal(u["snapshot_tokens"].get<int>(), 1024);
  assert_int_equal(g["n_snapshots"].get<int>(), 3);
  assert_int_equal(g["snapshot_bytes"].get<uint64_t>(), 3 * 16896);
  assert_int_equal(g["snapshot_tokens"].get<int>(), 64);
  assert_int_equal(u["total_bytes"].get<uint64_t>() - g["total_bytes"].get<uint64_t>(), 16896);
  assert_true(contains(plan({}).out, "4 of that state, at messages and every 1,024 tokens"));
  const Output less = plan({"--snapshot-bytes", "16KiB"});
  assert_int_equal(less.status, 1);
  assert_true(contains(less.err, "snapshot_budget_bytes") && contains(less.err, "16896"));
  assert_int_equal(plan({"--snapshot-tokens", "15"}).status, 2);
  // A token has pages in one layer: 2 KV heads of 64, K and V, 2 bytes each.
  const Output info = weir({"info", "-m", model});
  assert_true(contains(info.out, "512 B a token") && contains(info.out, "16.5 KiB of recurrent layers"));
  assert_int_equal(json::parse(weir({"info", "-m", model, "--json"}).out)["state_bytes"].get<int>(), 16896);
  assert_false(contains(weir({"plan", "-m", kModel}).out, "recurrent"));
  assert_false(contains(weir({"info", "-m", kModel, "--json"}).out, "state_bytes"));
}

void model__is_an_argument_of_every_command(void**) {
  for (const char* command : {"info", "plan"})
    assert_string_equal(weir({command, kModel}).out.c_str(), weir({command, "-m", kModel}).out.c_str());
  const std::string answer = weir({"run", "-m", kModel, "-p", "Hello"}).out;
  assert_string_equal(weir({"run", kModel, "-p", "Hello"}).out.c_str(), answer.c_str());
  assert_string_equal(weir({"run", "-p", "Hello", kModel}).out.c_str(), answer.c_str());
  assert_string_equal(weir({"chat", kModel, "--temp", "0"}, "Hello\n").out.c_str(), answer.c_str());
  assert_works(weir({"tokenize", kModel}, "text"));
  assert_fails(weir({"run", kModel, "-m", kModel, "-p", "Hello"}), 2, {"--model"});
  assert_fails(weir({"info"}), 2, {"--model is required"});
  for (const std::string& command : kCommands) {
    if (command != "devices") assert_true(contains(weir({command, "--help"}).out, "MODEL"));
  }
}

// The help of --policy and the default of eval are a list of the program; the library's is in its message.
void policies__are_all_in_the_help(void**) {
  const Output wrong = weir({"plan", "-m", kModel, "--policy", "none-such"});
  const std::string mark = "there are: ";
  const size_t at = wrong.err.find(mark);
  assert_true(at != std::string::npos);
  std::istringstream names(wrong.err.substr(at + mark.size(), wrong.err.find(" (", at) - at - mark.size()));
  std::vector<std::string> all;
  for (std::string name; names >> name;) all.push_back(name);
  assert_true(all == weir_cli::policy_names());
  std::string help = weir({"chat", "--help"}).out;
  help = std::regex_replace(help, std::regex("\\s+"), " ");
  for (const std::string& name : all) assert_true(contains(help, name));
  for (const char* preset : {"reason-fixed", "reason-recall", "stream", "longdoc"}) assert_true(contains(help, preset));
}

void prompts__fields_that_are_not_known_are_told(void**) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> lines = {
      {R"({"prompt":"hi","stop":[1]})", {"\"stop\"", "neither a text nor a list of texts"}},
      {R"({"prompt":"hi","stop":[""]})", {"\"stop\"", "a stop string is empty"}},
      {R"({"prompt":"hi","temperature":1})", {"\"temperature\" is no field of a line", "\"max_tokens\""}},
      {R"({"prompt":"hi","max_tokens":0})", {"\"max_tokens\" is not a whole number from 1 to"}},
      {R"({"prompt":"hi","max_tokens":-1})", {"\"max_tokens\" is not a whole number from 1 to"}},
      {R"({"prompt":"hi","max_tokens":1.5})", {"\"max_tokens\" is not a whole number from 1 to"}},
      {R"({"prompt":"hi","max_tokens":4294967296})", {"\"max_tokens\" is not a whole number from 1 to"}},
      {R"({"messages":[{"role":"user","content":"hi","name":"x"}]})", {"\"name\" is no field of a message"}}};
  std::string all;
  for (const auto& [line, parts] : lines) all += line + "\n";
  const Output o = weir({"run", "-m", kModel, "--prompts", "-", "--json"}, all);
  assert_status(o, 1);
  std::istringstream out(o.out);
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string line;
    assert_false(std::getline(out, line).fail());
    const json r = json::parse(line);
    for (const std::string& part : lines[i].second) assert_true(contains(r["error"].get<std::string>(), part));
    assert_true(contains(r["error"].get<std::string>(), "-:" + std::to_string(i + 1) + ":"));
    assert_true(r["n_decode"] == 0);
  }
}

// The stop string is not shown, and a line's own replace those of the command line.
void prompts__stop_strings(void**) {
  const std::string whole = json::parse(weir({"run", "-m", kModel, "-p", "Hello", "--json", "-n", "24"}).out)["text"];
  assert_true(whole.size() > 12);
  const std::string early = whole.substr(4, 3), late = whole.substr(9, 3);
  const auto begin = [&](const std::string& stop) { return whole.substr(0, whole.find(stop)); };
  const json line = {{"prompt", "Hello"}, {"stop", early}}, plain = {{"prompt", "Hello"}};
  const json list = {{"prompt", "Hello"}, {"stop", {"no such text", late}}},
             none = {{"prompt", "Hello"}, {"stop", json::array()}};
  const Output o = weir({"run", "-m", kModel, "--prompts", "-", "--json", "-n", "24", "--stop", late, "--stop", "~~~"},
                        line.dump() + "\n" + plain.dump() + "\n" + list.dump() + "\n" + none.dump() + "\n");
  assert_works(o);
  std::istringstream out(o.out);
  for (const std::string& stop : {early, late, late, std::string()}) {
    std::string text;
    assert_false(std::getline(out, text).fail());
    const json r = json::parse(text);
    assert_string_equal(r["text"].get<std::string>().c_str(), stop.empty() ? whole.c_str() : begin(stop).c_str());
    assert_true(stop.empty() ? r["stop"] != "stop" : r["stop"] == "stop" && r["stop_string"] == stop);
  }
  assert_fails(weir({"run", "-m", kModel, "-p", "Hello", "--stop", ""}), 2, {"--stop"});
  assert_fails(weir({"run", "-m", kModel, "-p", "Hello", "--stop", std::string(300, 'a')}), 2, {"300 bytes"});
  const Output text = weir({"run", "-m", kModel, "-p", "Hello", "-n", "24", "--stop", late});
  assert_works(text);
  const std::string shown = begin(late);
  assert_string_equal(text.out.c_str(), (shown + (shown.empty() || shown.back() == '\n' ? "" : "\n")).c_str());
}

// Answers obey a schema or a grammar, and a line's own schema replaces that of the command line, with its properties in
// the order of the line.
void prompts__constraints(void**) {
  const std::string plain = WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf";  // it has no thoughts
  const std::string yes = R"({"enum":["yes","yes!"]})";
  const Output o =
      weir({"run", "-m", plain, "--prompts", "-", "--json", "--raw", "-n", "400", "--json-schema", yes},
           R"({"prompt":"Hello"})"
           "\n"
           R"({"prompt":"Hello","json_schema":{"type":"object","properties":{"z":{"const":1},"a":{"const":2}},)"
           R"("required":["z","a"],"additionalProperties":false}})"
           "\n"
           R"({"prompt":"Hello","json_schema":{"uniqueItems":true}})"
           "\n");
  assert_status(o, 1);
  std::istringstream out(o.out);
  std::string lines[3];
  for (std::string& line : lines) assert_false(std::getline(out, line).fail());
  const std::string first = json::parse(lines[0])["text"];
  assert_true(first == "\"yes\"" || first == "\"yes!\"");
  assert_true(json::parse(lines[0])["stop"] == "constraint");
  const std::string second = json::parse(lines[1])["text"];
  assert_true(json::parse(second) == (json{{"z", 1}, {"a", 2}}));
  assert_true(second.find("\"z\"") < second.find("\"a\""));
  assert_true(contains(json::parse(lines[2])["error"].get<std::string>(), "\"uniqueItems\" is not supported"));
  const std::string grammar = write_file("grammar.gbnf", "root ::= \"<\" [a-c]{3} \">\"\n");
  const Output text = weir({"run", "-m", plain, "--raw", "-p", "Hello", "--grammar", grammar});
  assert_works(text);
  assert_int_equal(text.out.size(), 6);
  assert_true(text.out.front() == '<' && text.out[4] == '>');
  assert_fails(weir({"run", "-m", plain, "--raw", "-p", "Hello", "--grammar", "no-such-file"}), 1, {"no-such-file"});
  assert_fails(weir({"run", "-m", plain, "-p", "Hello", "--grammar", "x", "--json-schema", "{}"}), 2, {"--grammar"});
  assert_fails(weir({"run", "-m", plain, "--raw", "-p", "Hello", "--json-schema", "{\"type\": 3}"}), 1, {"#/type"});
}

void prompts__a_line_has_its_own_length(void**) {
  const std::string lines = R"({"prompt":"Hello","max_tokens":2})"
                            "\n"
                            R"({"prompt":"Hello"})"
                            "\n";
  const Output o = weir({"run", "-m", kModel, "--prompts", "-", "--json", "-n", "5"}, lines);
  assert_works(o);
  std::istringstream out(o.out);
  for (const int n : {2, 5}) {
    std::string line;
    assert_false(std::getline(out, line).fail());
    const json r = json::parse(line);
    assert_true(r["n_decode"] == n && r["stop"] == "length");
  }
}

void input__a_byte_order_mark_is_no_text(void**) {
  const std::string mark = "\xef\xbb\xbf";
  const std::string tokens = weir({"tokenize", "-m", kModel}, "Hello").out;
  assert_string_equal(weir({"tokenize", "-m", kModel}, mark + "Hello").out.c_str(), tokens.c_str());
  const json plain = run_json({"-n", "8"}, "Hello"), marked = run_json({"-n", "8"}, mark + "Hello");
  assert_true(plain["n_prompt"] == marked["n_prompt"] && plain["text"] == marked["text"]);
  const std::string line = json({{"prompt", "Hello"}, {"max_tokens", 8}}).dump() + "\n";
  assert_true(run_json({"--prompts", "-"}, mark + line)["text"] == plain["text"]);
  assert_true(run_json({"--prompts", write_file("marked.jsonl", mark + line)})["text"] == plain["text"]);
  assert_string_equal(weir({"chat", "-m", kModel, "--temp", "0"}, mark + "Hello\n").out.c_str(),
                      weir({"chat", "-m", kModel, "--temp", "0"}, "Hello\n").out.c_str());
}

// The model with other bytes in its file.
std::string model_with(const std::string& name, const std::string& old, const std::string& now) {
  std::string bytes = read_file(kModel);
  const size_t at = bytes.find(old);
  assert_true(at != std::string::npos && old.size() == now.size());
  bytes.replace(at, old.size(), now);
  return write_file(name, bytes);
}

void raw__the_file_decides_of_the_first_token(void**) {
  const std::string key = "tokenizer.ggml.add_bos_token";
  const std::string before = key + std::string("\x07\0\0\0\0", 5), after = key + std::string("\x07\0\0\0\1", 5);
  const std::string asks = model_with("asks.gguf", before, after);
  const auto n = [](const std::string& model, std::vector<std::string> more) {
    more.insert(more.begin(), {"--raw", "-n", "1"});
    return run_json(more, "", model)["n_prompt"].get<int>();
  };
  const int length = n(kModel, {"-p", "Hello there"});
  assert_int_equal(n(kModel, {"-p", "Hello there", "--no-bos"}), length);
  assert_int_equal(n(kModel, {"-p", "Hello there", "--bos"}), length + 1);
  assert_int_equal(n(asks, {"-p", "Hello there"}), length + 1);
  assert_int_equal(n(asks, {"-p", "Hello there", "--bos"}), length + 1);
  assert_int_equal(n(asks, {"-p", "Hello there", "--no-bos"}), length);
  // A text that begins with the token gets no second one.
  const weir_cli::RuntimePtr runtime = weir_cli::create_runtime(1);
  const weir_cli::ModelPtr model = weir_cli::open_model(runtime.get(), kModel, WEIR_MODEL_VOCAB_ONLY);
  weir_special_tokens special = WEIR_SPECIAL_TOKENS_INIT;
  assert_int_equal(weir_model_special_tokens(model.get(), &special), WEIR_OK);
  const std::string bos = weir_cli::detokenize(model.get(), {special.bos}, WEIR_DETOKENIZE_SPECIAL);
  assert_true(!bos.empty());
  for (const char* flag : {"--bos", "--no-bos"})
    assert_int_equal(n(asks, {"-p", bos + "Hello there", flag}), length + 1);
  assert_int_equal(n(asks, {"-p", bos + "Hello there"}), length + 1);
  const std::string ids = weir({"tokenize", "-m", asks, "--bos", "--parse-special"}, "Hello there").out;
  assert_string_equal(weir({"tokenize", "-m", asks, "--bos", "--parse-special"}, bos + "Hello there").out.c_str(),
                      ids.c_str());
  assert_fails(weir({"run", "-m", kModel, "-p", "Hello", "--bos"}), 2, {"--raw"});
  assert_fails(weir({"run", "-m", kModel, "-p", "Hello", "--raw", "--bos", "--no-bos"}), 2, {"--no-bos"});
}

// Bytes that a terminal would obey: C0, DEL, C1 in UTF-8, one that is no UTF-8, and an override of direction.
constexpr char kBad[] =
    "\x1b]0;x\x07\x7f\xc2\x9b"
    "31m\xe2\x80\xae\xff\x0d";

bool steers(const std::string& text, bool has_lines = true) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c < 0x20 && !(has_lines && c == '\n')) || c == 0x7f || c == 0xff) return true;
    if (c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0) return true;
    if (text.compare(i, 3, "\xe2\x80\xae") == 0) return true;
  }
  return false;
}

void terminal__bytes_of_files_are_escaped(void**) {
  const std::string license = "13.2M-parameter model trained on procedurally generated chain problems";
  const std::string bad = std::string(kBad) + license.substr(sizeof(kBad) - 1);
  const std::string model = model_with("bad.gguf", license, bad);
  const Output info = weir({"info", "-m", model}), as_json = weir({"info", "-m", model, "--json"});
  assert_works(info);
  assert_false(steers(info.out));
  assert_true(contains(info.out, "\\x1b]0;x\\x07\\x7f\\u009b31m\\u202e"));
  assert_works(as_json);
  assert_false(steers(as_json.out));
  assert_true(contains(json::parse(as_json.out)["metadata"]["general.description"].get<std::string>(),
                       "\xc2\x9b"
                       "31m"));
  // Messages that quote a prompts file, or the name of one.
  const std::string line = json({{"messages", {{{"role", std::string(kBad, 6)}, {"content", ""}}}}}).dump() + "\n";
  const Output role =
      weir({"run", "-m", kModel, "--prompts", "-"}, line + std::string("{\"\x1b]0;x\x07\": \xc2\x9b\n"));
  assert_status(role, 1);
  assert_false(steers(role.err));
  const Output name = weir({"run", "-m", kModel, "--prompts", std::string("no\x1b]0;x\x07") + "\xc2\x9b.jsonl"});
  assert_fails(name, 1, {"no\\x1b]0;x\\x07\\u009b.jsonl"});
  assert_false(steers(name.err));
  const Output unknown = weir({"run", "-m", kModel, std::string("--x\x1b[2J")});
  assert_status(unknown, 2);
  assert_false(steers(unknown.err));
  // An id is the user's, and JSON says it back.
  const Output id = weir({"run", "-m", kModel, "--prompts", "-", "--json", "-n", "1"},
                         json({{"id", "\x7f\xc2\x9b"}, {"prompt", "Hello"}}).dump() + "\n");
  assert_works(id);
  assert_false(steers(id.out));
  assert_true(json::parse(id.out)["id"] == "\x7f\xc2\x9b");
}

void terminal__text_is_escaped_character_by_character(void**) {
  using weir_cli::plain_json;
  using weir_cli::plain_line;
  using weir_cli::plain_text;
  assert_string_equal(plain_line("a\nb\tc\rd").c_str(), "a\\x0ab\\x09c\\x0dd");
  assert_string_equal(plain_text("a\nb\tc\rd").c_str(), "a\nb\tc\\x0dd");
  assert_string_equal(plain_line("\xc2\x85\xe2\x80\xa8\xe2\x81\xa6").c_str(), "\\u0085\\u2028\\u2066");
  assert_string_equal(plain_line("gr\xc3\xbcn \xd7\xa9 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac").c_str(),
                      "gr\xc3\xbcn \xd7\xa9 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac");
  // Not UTF-8: cut off, too long for what it says, surrogates, beyond the last one.
  for (const char* broken : {"\xc3", "\xe2\x80", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x9b"})
    assert_int_equal(plain_line(broken).find("\xef\xbf\xbd"), 0);
  assert_string_equal(plain_json("\"\x7f\xc2\x9b\"\n").c_str(), "\"\\u007f\\u009b\"\n");
}

// A cut answer is told, and its status is another one where nobody asked for the cut.
void cut__is_told_with_its_status(void**) {
  const Output context = weir({"run", "-m", kModel, "-p", "Hello", "--context", "16"});
  assert_status(context, 3);
  assert_true(contains(context.err, "the answer was cut: the context of 16 tokens is full"));
  const Output asked = weir({"run", "-m", kModel, "-p", "Hello", "-n", "3"});
  assert_status(asked, 0);
  assert_true(contains(asked.err, "the answer was cut: it has 3 tokens"));
  const std::vector<std::string> chat = {"chat", "-m", kModel, "--temp", "0"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = chat;
    all.insert(all.end(), more.begin(), more.end());
    return weir(all, "Hello\n");
  };
  const Output full = with({"--context", "16"}), short_one = with({"-n", "3"}), whole = with({});
  assert_status(full, 3);
  assert_true(contains(full.err, "the answer was cut: the context of 16 tokens is full"));
  assert_status(short_one, 0);
  assert_true(contains(short_one.err, "the answer was cut at 3 tokens"));
  assert_status(whole, 0);
  assert_string_equal(whole.err.c_str(), "");
  const Output lines = weir({"run", "-m", kModel, "--prompts", "-", "--context", "16"}, "{\"prompt\":\"Hello\"}\n");
  assert_status(lines, 3);
  assert_true(contains(lines.err, "-:1: the answer was cut"));
  assert_true(contains(weir({"--help"}).out, "3 an answer was cut"));
}

// A conversation samples, unless it is told not to; a single question does not.
void chat__samples_by_default(void**) {
  const auto chat = [](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"chat", "-m", kModel, "-n", "60"};
    all.insert(all.end(), more.begin(), more.end());
    const Output o = weir(all, "Tell me a long story about the river.\nAnd then?\nGo on.\n");
    assert_works(o);
    return o.out;
  };
  std::set<std::string> drawn;
  for (int i = 0; i < 4; ++i) drawn.insert(chat({}));
  assert_true(drawn.size() > 1);
  assert_string_equal(chat({"--seed", "4"}).c_str(), chat({"--seed", "4"}).c_str());
  assert_string_equal(chat({"--temp", "0"}).c_str(), chat({"--temp", "0"}).c_str());
  assert_string_equal(chat({"--temp", "0"}).c_str(),
                      chat({"--temp", "0", "--min-p", "0", "--repeat-penalty", "1", "--seed", "7"}).c_str());
  assert_string_equal(chat({"--seed", "4"}).c_str(),
                      chat({"--seed", "4", "--temp", "0.8", "--min-p", "0.05", "--repeat-penalty", "1.1"}).c_str());
}

void memory__that_is_not_there_has_a_way_out(void**) {
  const Output o = weir({"run", "-m", kModel, "-p", "Hello", "--context", "1000000000"});
  assert_fails(o, 1, {"--context", "--budget"});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(numbers__wrong_ones_are_status_2_with_option_and_range),
      cmocka_unit_test(numbers__right_ones_mean_what_they_say),
      cmocka_unit_test(plan__shows_recurrent_layers),
      cmocka_unit_test(model__is_an_argument_of_every_command),
      cmocka_unit_test(policies__are_all_in_the_help),
      cmocka_unit_test(prompts__fields_that_are_not_known_are_told),
      cmocka_unit_test(prompts__constraints),
      cmocka_unit_test(prompts__stop_strings),
      cmocka_unit_test(prompts__a_line_has_its_own_length),
      cmocka_unit_test(input__a_byte_order_mark_is_no_text),
      cmocka_unit_test(raw__the_file_decides_of_the_first_token),
      cmocka_unit_test(terminal__bytes_of_files_are_escaped),
      cmocka_unit_test(terminal__text_is_escaped_character_by_character),
      cmocka_unit_test(cut__is_told_with_its_status),
      cmocka_unit_test(chat__samples_by_default),
      cmocka_unit_test(memory__that_is_not_there_has_a_way_out),
  };
  return cmocka_run_group_tests_name("command_line", tests, make_folder, remove_folder);
}
