// cli: the weir program as a user runs it: flags, JSON, exit status, what goes to stdout and what to stderr. Mirrors
// tools/weir/{main,options,conversation,run,chat,plan,info,tokenize}.cpp and tools/lab/bench.cpp. It starts the built
// program and reads its output; the model is the embedded tiny reasoner.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/cli_test.h"
#include "tools/lab/problems.h"

using nlohmann::json;
using namespace weir_cli;
using namespace weir_cli::test;
namespace fs = std::filesystem;

namespace {

size_t line_count(const std::string& text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

// Every failure leaves nothing on stdout and one line on stderr.
void assert_fails(const Output& o, int status, const std::string& part) {
  assert_fails(o, status, std::vector<std::string>{part});
  assert_int_equal(line_count(o.err), 1);
}

std::vector<json> json_lines(const Output& o, int status = 0) {
  assert_status(o, status);
  std::vector<json> lines;
  std::istringstream in(o.out);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

json one_json(const Output& o) {
  const std::vector<json> lines = json_lines(o);
  assert_int_equal(lines.size(), 1);
  return lines.front();
}

std::set<std::string> keys(const json& object) {
  std::set<std::string> names;
  for (const auto& [key, value] : object.items()) names.insert(key);
  return names;
}

void run__json_has_exactly_the_promised_keys(void**) {
  const json r = one_json(weir({"run", "-m", kModel, "-p", short_problem().prompt, "--json"}));
  const std::set<std::string> top = {"id",     "text",          "texts",  "n_prompt", "n_decode", "stop",
                                     "policy", "budget_tokens", "memory", "pages",    "time"};
  const std::set<std::string> memory = {"plan_bytes", "kv_bytes", "peak_bytes", "allocs_while_decoding"};
  const std::set<std::string> pages = {"resident_max", "evicted", "spilled", "recalled", "dropped"};
  const std::set<std::string> time = {"prefill_s", "decode_s", "tok_per_s"};
  assert_true(keys(r) == top);
  assert_true(keys(r["memory"]) == memory);
  assert_true(keys(r["pages"]) == pages);
  assert_true(keys(r["time"]) == time);
  assert_int_equal(r["memory"]["allocs_while_decoding"].get<int>(), 0);
  assert_int_equal(r["memory"]["plan_bytes"].get<uint64_t>(), r["memory"]["peak_bytes"].get<uint64_t>());
  assert_string_equal(r["policy"].get<std::string>().c_str(), "dense");
}

void run__answers_with_its_thoughts_and_without_the_end_of_turn(void**) {
  const Problem problem = short_problem();
  const json r = one_json(weir({"run", "-m", kModel, "-p", problem.prompt, "--json"}));
  assert_string_equal(r["text"].get<std::string>().c_str(), problem.answer.c_str());
  assert_string_equal(r["stop"].get<std::string>().c_str(), "eos");
  assert_true(r["texts"] == json::array({problem.answer}));
}

void run__text_goes_to_stdout_alone(void**) {
  const Problem problem = short_problem();
  const Output o = weir({"run", "-m", kModel, "-p", problem.prompt});
  assert_works(o);
  assert_string_equal(o.out.c_str(), (problem.answer + "\n").c_str());
  assert_string_equal(o.err.c_str(), "");
}

void run__length_limit_stops(void**) {
  const json r = one_json(weir({"run", "-m", kModel, "-p", short_problem().prompt, "-n", "7", "--json"}));
  assert_int_equal(r["n_decode"].get<int>(), 7);
  assert_string_equal(r["stop"].get<std::string>().c_str(), "length");
}

void run__context_limit_stops(void**) {
  const json r = one_json(weir({"run", "-m", kModel, "-p", short_problem().prompt, "--context", "128", "--json"}));
  assert_int_equal(r["n_prompt"].get<int>() + r["n_decode"].get<int>(), 128);
  assert_string_equal(r["stop"].get<std::string>().c_str(), "context");
}

void run__raw_prompt_is_the_text_as_it_is(void**) {
  const Problem problem = short_problem();
  const std::string raw = "<|im_start|>user\n" + problem.prompt + "<|im_end|>\n<|im_start|>assistant\n";
  const json r = one_json(weir({"run", "-m", kModel, "--raw", "-p", raw, "--json"}));
  assert_string_equal(r["text"].get<std::string>().c_str(), problem.answer.c_str());
  const json with_bos = one_json(weir({"run", "-m", kModel, "--raw", "--bos", "-p", raw, "-n", "1", "--json"}));
  assert_int_equal(with_bos["n_prompt"].get<int>(), r["n_prompt"].get<int>() + 1);
}

void run__seed_decides_sampled_text(void**) {
  const auto sampled = [](const char* seed) {
    return one_json(
               weir({"run", "-m", kModel, "-p", "Hello", "--temp", "3", "--seed", seed, "-n", "24", "--json"}))["text"]
        .get<std::string>();
  };
  assert_string_equal(sampled("1").c_str(), sampled("1").c_str());
  assert_string_not_equal(sampled("1").c_str(), sampled("2").c_str());
}

void run__budget_bounds_the_memory(void**) {
  const std::vector<std::string> options = {"--policy", "raas", "--budget", "256"};
  ProblemOptions o;
  o.steps = 40;
  o.lag = 3;
  const Problem problem = make_problem(o);
  std::vector<std::string> run = {"run", "-m", kModel, "-p", problem.prompt, "--json"},
                           plan = {"plan", "-m", kModel, "--json"};
  run.insert(run.end(), options.begin(), options.end());
  plan.insert(plan.end(), options.begin(), options.end());
  const json r = one_json(weir(run)), p = one_json(weir(plan));
  assert_int_equal(r["budget_tokens"].get<int>(), 256);
  assert_true(r["n_prompt"].get<int>() + r["n_decode"].get<int>() > 512);
  assert_true(r["pages"]["evicted"].get<int>() > 0);
  assert_int_equal(r["memory"]["plan_bytes"].get<uint64_t>(), p["total_bytes"].get<uint64_t>());
  assert_int_equal(r["memory"]["kv_bytes"].get<uint64_t>(), p["kv_bytes"].get<uint64_t>());
}

void run__prompt_beyond_the_budget_fits_or_says_what_would(void**) {
  ProblemOptions o;
  o.family = "passkey";
  o.passkey_tokens = 400;
  const Problem problem = make_problem(o);
  const std::vector<std::string> run = {"run",      "-m",   kModel,     "-p", problem.prompt,
                                        "--policy", "raas", "--budget", "128"};
  std::vector<std::string> refused = run;
  refused.insert(refused.end(), {"--opt", "overflow=error"});
  assert_fails(weir(refused), 1, "WEIR_ERR_BUDGET");
  std::vector<std::string> compressed = run;  // the default: what the question looks at stays
  compressed.push_back("--json");
  const json c = one_json(weir(compressed));
  assert_true(c["pages"]["evicted"].get<int>() > 0);
  assert_int_equal(c["pages"]["resident_max"].get<int>(), 16 * 8);
  for (const char* overflow : {"overflow=hybrid", "overflow=compress"}) {
    std::vector<std::string> other = run;
    other.insert(other.end(), {"--opt", overflow, "--json"});
    one_json(weir(other));
  }
  std::vector<std::string> extended = run;
  extended.insert(extended.end(), {"--opt", "overflow=extend", "--json"});
  const json r = one_json(weir(extended));
  assert_true(answer_is_right(problem, r["text"].get<std::string>()));
}

void run__prompts_file_goes_on_after_bad_lines(void**) {
  const Problem problem = short_problem();
  const std::string good = json({{"id", "good"}, {"prompt", problem.prompt}}).dump();
  const std::string path =
      write_file("prompts.jsonl", good +
                                      "\n{\"id\": 7, \"prompt\"\n\n{\"id\": 8}\n{\"id\": [9], \"messages\": "
                                      "[{\"role\": \"king\", \"content\": \"\"}]}\n" +
                                      "{\"id\": \"long\", \"messages\": [{\"role\": \"user\", \"content\": \"" +
                                      std::string(4000, '7') + "\"}]}\n" + good + "\n");
  const Output o = weir({"run", "-m", kModel, "--prompts", path, "--json", "--context", "1024"});
  const std::vector<json> r = json_lines(o, 1);  // some lines failed, which is reported once
  assert_true(contains(o.err, "4 of the 6 prompts"));
  assert_int_equal(line_count(o.err), 1);
  assert_int_equal(r.size(), 6);
  for (size_t i : {0u, 5u}) {
    assert_string_equal(r[i]["id"].get<std::string>().c_str(), "good");
    assert_string_equal(r[i]["text"].get<std::string>().c_str(), problem.answer.c_str());
    assert_false(r[i].contains("error"));
  }
  assert_true(r[1]["id"].is_null());
  assert_true(contains(r[1]["error"].get<std::string>(), "prompts.jsonl:2: not valid JSON"));
  assert_int_equal(r[2]["id"].get<int>(), 8);
  assert_true(contains(r[2]["error"].get<std::string>(), "prompts.jsonl:4:"));
  assert_true(r[3]["id"] == json::array({9}));
  assert_true(contains(r[3]["error"].get<std::string>(), "king"));
  assert_string_equal(r[4]["stop"].get<std::string>().c_str(), "error");
  assert_true(contains(r[4]["error"].get<std::string>(), "WEIR_ERR_CONTEXT_FULL"));
}

// Exit status 0 means that every line was answered; without --json each failure has its line on stderr.
void run__prompts_from_standard_input(void**) {
  const std::string good = json({{"prompt", "Hello"}}).dump() + "\n";
  assert_int_equal(json_lines(weir({"run", "-m", kModel, "--prompts", "-", "--json"}, good + good)).size(), 2);
  assert_int_equal(json_lines(weir({"run", "-m", kModel, "--prompts", "-", "--json"}, "")).size(), 0);
  const Output o = weir({"run", "-m", kModel, "--prompts", "-"}, "x\n" + good + "{}\n");
  assert_status(o, 1);
  assert_true(contains(o.err, "-:1: not valid JSON") && contains(o.err, "-:3:"));
  assert_true(contains(o.err, "2 of the 3 prompts in - failed"));
  assert_int_equal(line_count(o.err), 3);
  assert_true(contains(o.out, "Hello!"));
}

// A prompt may come on standard input, which is also the way to give a lone "-".
void run__prompt_from_standard_input(void**) {
  const auto answer = [](const std::vector<std::string>& more, const std::string& input) {
    std::vector<std::string> arguments = {"run", "-m", kModel, "--json", "-n", "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const json r = one_json(weir(arguments, input));
    return r["n_prompt"].dump() + " " + r["text"].dump();
  };
  const std::string hello = answer({"-p", "Hello"}, "");
  assert_string_equal(answer({"-p", "-"}, "Hello").c_str(), hello.c_str());
  assert_string_equal(answer({"-p", "-"}, "Hello\n").c_str(), hello.c_str());
  assert_string_equal(answer({}, "Hello\n").c_str(), hello.c_str());
  assert_string_not_equal(answer({}, "Hello\n\n").c_str(), hello.c_str());
  assert_string_equal(answer({"-p", "Hello"}, "never read").c_str(), hello.c_str());
  const std::string path = write_file("dash.jsonl", json({{"prompt", "-"}}).dump() + "\n");
  assert_string_equal(answer({}, "-\n").c_str(), answer({"--prompts", path}, "").c_str());
  assert_fails(weir({"run", "-m", kModel, "-p", "-"}, ""), 1, "standard input is empty");
  assert_fails(weir({"run", "-m", kModel}, "\n"), 2, "standard input is empty");
}

// An output that cannot be written is reported with the system's message, whichever command writes.
void output__errors_are_told(void**) {
  const std::string good = json({{"prompt", "Hello"}}).dump() + "\n";
  const std::vector<std::vector<std::string>> commands = {
      {"run", "-m", kModel, "-p", "Hello"},
      {"run", "-m", kModel, "-p", "Hello", "--json"},
      {"run", "-m", kModel, "--prompts", "-", "--json"},
      {"chat", "-m", kModel},
      {"info", "-m", kModel},
      {"info", "-m", kModel, "--json"},
      {"plan", "-m", kModel},
      {"tokenize", "-m", kModel},
      {"demo", "-m", kModel, "--steps", "20", "--budget", "256", "--go-on", "0"},
      {"run", "--help"},
      {"--version"},
  };
  for (const std::vector<std::string>& command : commands) {
    const Output o = weir(command, good, "/dev/full");
    if (o.status != 1 || !contains(o.err, "standard output: No space left on device") || line_count(o.err) != 1) {
      fail_msg("%s %s: status %d, %s", command[0].c_str(), command.back().c_str(), o.status, o.err.c_str());
    }
  }
}

// The model without a template.
std::string model_without_template() {
  std::string bytes = read_file(kModel);
  const size_t at = bytes.find("tokenizer.chat_template");
  assert_true(at != std::string::npos);
  bytes[at] = 'T';
  return write_file("no-template.gguf", bytes);
}

void template__is_the_files_or_the_given_one(void**) {
  const std::string model = model_without_template();
  const Output own = weir({"run", "-m", kModel, "-p", "Hello"});
  assert_works(own);
  for (const char* command : {"run", "chat"})
    assert_fails(weir({command, "-m", model}, "Hello\n"), 1, {"no chat template", "--template gives one", "--raw"});
  for (const char* command : {"demo", "eval"})  // which have no such option
    assert_fails(weir({command, "-m", model}), 1, {"no chat template", "weir chat take one by --template", "--raw"});
  const std::string file = write_file("chatml.jinja",
                                      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + "
                                      "m.content + '<|im_end|>\\n' }}{% endfor %}"
                                      "{{ '<|im_start|>assistant\\n' if add_generation_prompt }}");
  for (const std::string& given : {std::string("chatml"), file}) {
    const Output run = weir({"run", "-m", model, "-p", "Hello", "--template", given}),
                 chat = weir({"chat", "-m", model, "--template", given, "--temp", "0"}, "Hello\n");
    assert_works(run);
    assert_string_equal(run.out.c_str(), own.out.c_str());
    assert_works(chat);
    assert_string_equal(chat.out.c_str(), own.out.c_str());
  }
  assert_fails(weir({"run", "-m", kModel, "-p", "x", "--template", "no-such"}), 1, "no-such");
  assert_fails(weir({"run", "-m", kModel, "-p", "x", "--raw", "--template", "chatml"}), 2, "--raw uses none");
  const Output text = weir({"template", "--template", "llama3"}, R"({"messages": [{"role": "user", "content": "q"}]})");
  assert_works(text);
  assert_true(contains(text.out, "<|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|>"));
  assert_string_equal(one_json(weir({"info", "-m", kModel, "--json"}))["chat_template"].get<std::string>().c_str(),
                      "jinja");
  assert_string_equal(one_json(weir({"info", "-m", model, "--json"}))["chat_template"].get<std::string>().c_str(), "");
}

void run__user_turns_are_one_conversation(void**) {
  const Problem problem = short_problem();
  const FollowUp follow_up = make_follow_up(problem, 3);
  const json turn1 = {{"role", "user"}, {"content", problem.prompt}},
             turn2 = {{"role", "user"}, {"content", follow_up.question}};
  const json said = {{"role", "assistant"}, {"content", problem.answer}};
  const std::string path =
      write_file("turns.jsonl", json({{"id", 1}, {"messages", {turn1, turn2}}}).dump() + "\n" +
                                    json({{"id", 2}, {"messages", {turn1, said, turn2}}}).dump() + "\n");
  const std::vector<json> r = json_lines(weir({"run", "-m", kModel, "--prompts", path, "--json"}));
  assert_int_equal(r.size(), 2);
  assert_int_equal(r[0]["texts"].size(), 2);
  assert_string_equal(r[0]["texts"][0].get<std::string>().c_str(), problem.answer.c_str());
  assert_true(follow_up_is_right(follow_up, r[0]["texts"][1].get<std::string>()));
  // The same history, given instead of generated: the same tokens, so the same last answer.
  assert_int_equal(r[1]["texts"].size(), 1);
  assert_true(r[1]["texts"][0] == r[0]["texts"][1]);
  assert_int_equal(r[0]["n_prompt"].get<int>() + r[0]["n_decode"].get<int>(),
                   r[1]["n_prompt"].get<int>() + r[1]["n_decode"].get<int>());
}

void run__wrong_usage_is_status_2(void**) {
  assert_fails(weir({}), 2, "subcommand");
  assert_fails(weir({"fly"}), 2, "fly");
  assert_fails(weir({"chatt"}), 2, "did you mean chat?");
  assert_fails(weir({"run", "-p", "Hello"}), 2, "--model");
  assert_fails(weir({"run", "-m", kModel}), 2, "--prompts");
  assert_fails(weir({"run", "--modell", "x", "-p", "a"}), 2, "--modell; did you mean --model?");
  assert_fails(weir({"run", "--modell=x", "-p", "a"}), 2, "--modell; did you mean --model?");
  assert_fails(weir({"run", "-m", kModel, "-p", "a", "more"}), 2, "more");
  assert_fails(weir({"run", "-m", kModel, "-p", "a", "--prompts", "b"}), 2, "--prompts");
  assert_fails(weir({"run", "-m", kModel, "-p", "a", "--wings"}), 2, "--wings");
  assert_fails(weir({"run", "-m", kModel, "-p", "a", "--temp", "-1"}), 2, "--temp");
  assert_fails(weir({"run", "-m", kModel, "-p", "a", "--budget", "many"}), 2, "--budget");
  assert_fails(weir({"run", "-m", kModel, "-p", "a", "--budget", "512", "--budget-bytes", "4MiB"}), 2, "--budget");
  assert_fails(weir({"run", "-m", kModel, "-p", "a", "--device", "abacus"}), 2, "--device");
  assert_fails(weir({"run", "-m", kModel, "-p", "a", "--opt", "r"}), 2, "key=value");
  assert_fails(weir({"run", "-m", kModel, "-p", "a", "--policy", "hoard"}), 2, "hoard");
  assert_fails(weir({"run", "-m", kModel, "-p", "a", "--policy", "raas", "--opt", "colour=red"}), 2, "colour");
  assert_fails(weir({"run", "-m", kModel, "-p", "a", "--preset", "fast"}), 2, "reason-fixed");
  assert_fails(weir({"run", "-m", kModel, "-p", "a", "--preset", "stream", "--policy", "raas"}), 2, "--preset");
  assert_fails(weir({"bench"}), 2, "--shape");
  assert_fails(weir({"demo", "--steps", "100000"}), 2, "--steps");
}

void run__failures_are_status_1_and_name_the_thing(void**) {
  assert_fails(weir({"run", "-m", "no/such.gguf", "-p", "a"}), 1, "no/such.gguf");
  assert_fails(weir({"run", "-m", write_file("junk.gguf", "this is no model"), "-p", "a"}), 1, "junk.gguf");
  assert_fails(weir({"run", "-m", kModel, "--prompts", "no/such.jsonl"}), 1, "no/such.jsonl");
  assert_fails(weir({"run", "-m", kModel, "-p", "a", "--policy", "raas", "--budget", "16"}), 1, "WEIR_ERR_BUDGET");
  assert_fails(weir({"run", "-m", kModel, "--raw", "-p", ""}), 1, "empty");
}

void help_and_version__are_status_0(void**) {
  const Output help = weir({"run", "--help"}), version = weir({"--version"});
  assert_works(help);
  assert_true(contains(help.out, "--budget-bytes"));
  const Output eval = weir({"eval", "--help"});
  assert_true(contains(eval.out, "required but for --plot-only and --draw"));
  assert_works(version);
  assert_int_equal(version.out.rfind("weir ", 0), 0);
}

void plan__pools_add_up_and_budgets_agree(void**) {
  const auto plan = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"plan", "-m", kModel, "--json", "--policy", "raas"});
    return one_json(weir(more));
  };
  const json p = plan({"--budget", "1024"});
  uint64_t sum = 0;
  for (const char* pool : {"kv", "digest", "table", "workspace", "sampler", "session", "staging", "spill", "library"}) {
    sum += p[std::string(pool) + "_bytes"].get<uint64_t>();
  }
  assert_int_equal(sum, p["total_bytes"].get<uint64_t>());
  assert_int_equal(p["kv_bytes"].get<uint64_t>(), 4u << 20);  // 1024 tokens of 4096 bytes
  assert_true(plan({"--budget-bytes", "4MiB"}) == p);
  assert_true(plan({"--budget-bytes", "4194304"}) == p);
  const std::vector<std::string> spilling = {"plan", "-m",        kModel, "--policy",      "arkvale", "--budget",
                                             "1024", "--context", "8192", "--spill-bytes", "1MiB"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), spilling.begin(), spilling.end());
    return weir(more);
  };
  const json spill = one_json(with({"--json", "--spill-file", "/nowhere/spill", "--spill-file-bytes", "4MiB"}));
  assert_int_equal(spill["spill_file_bytes"].get<uint64_t>(), 4u << 20);
  assert_true(spill["spill_bytes"].get<uint64_t>() > 1u << 20);
  assert_int_equal(p["spill_file_bytes"].get<uint64_t>(), 0);
  assert_true(contains(with({"--spill-file", "/nowhere/spill", "--spill-file-bytes", "4MiB"}).out, "spill file"));
  assert_int_equal(with({"--spill-file", "/nowhere/spill"}).status, 2);
  assert_int_equal(with({"--spill-file-bytes", "4MiB"}).status, 2);
  const Output table = weir({"plan", "-m", kModel});
  assert_works(table);
  assert_true(contains(table.out, "KV pages"));
}

void info__describes_the_file(void**) {
  const json i = one_json(weir({"info", "-m", kModel, "--json"}));
  assert_int_equal(i["n_layers"].get<int>(), 8);
  assert_int_equal(i["vocab_size"].get<int>(), 1664);
  assert_string_equal(i["weight_type"].get<std::string>().c_str(), "q8_0");
  assert_int_equal(i["tensors"].size(), 74);  // 9 of each layer, the embedding, the last norm
  assert_string_equal(i["metadata"]["general.architecture"].get<std::string>().c_str(), "llama");
  const Output table = weir({"info", "-m", kModel});
  assert_works(table);
  assert_true(contains(table.out, "blk.7.ffn_down.weight"));
}

// The content of the file is shown all the same, together with the reason why it cannot be run.
void info__of_a_file_that_cannot_run_is_status_1(void**) {
  const std::string vocab = WEIR_SOURCE_DIR "/tests/golden/vocabs/ggml-vocab-gpt-2.gguf";
  const Output table = weir({"info", "-m", vocab});
  assert_status(table, 1);
  assert_true(contains(table.out, "50,257 tokens") && contains(table.out, "tokenizer.ggml.merges"));
  assert_true(contains(table.err, "general.architecture"));
  assert_int_equal(line_count(table.err), 1);
  const std::vector<json> i = json_lines(weir({"info", "-m", vocab, "--json"}), 1);
  assert_int_equal(i.size(), 1);
  assert_int_equal(i[0]["vocab_size"].get<int>(), 50257);
  assert_true(contains(i[0]["note"].get<std::string>(), "general.architecture"));
}

// The file is described all the same, its path is in the message once, and the message says what to do.
void info__of_a_file_that_is_no_model(void**) {
  const auto number = [](uint64_t value, int n_bytes) {  // little endian
    std::string text;
    for (int i = 0; i < n_bytes; ++i) text += static_cast<char>(value >> (8 * i) & 255);
    return text;
  };
  const auto text = [&](const std::string& value) { return number(value.size(), 8) + value; };
  std::string bytes = "GGUF" + number(3, 4) + number(2, 8) + number(2, 8);
  bytes += text("general.type") + number(8, 4) + text("adapter") + text("adapter.type") + number(8, 4) + text("lora");
  bytes += text("blk.0.attn_q.weight.lora_a") + number(1, 4) + number(16, 8) + number(0, 4) + number(0, 8);
  bytes += text("blk.0.attn_q.weight.lora_b") + number(1, 4) + number(32, 8) + number(31, 4) + number(64, 8);
  bytes.resize(1024);
  const std::string path = write_file("adapter.gguf", bytes);
  const Output table = weir({"info", "-m", path});
  assert_status(table, 1);
  assert_true(contains(table.out, "adapter.type") && contains(table.out, "blk.0.attn_q.weight.lora_a"));
  assert_true(contains(table.out, "q4_0_4_4"));
  assert_true(table.err.find(path) != std::string::npos && table.err.find(path) == table.err.rfind(path));
  assert_int_equal(line_count(table.err), 1);
  const Output run = weir({"run", "-m", path, "-p", "hello"});
  assert_status(run, 1);
  assert_true(contains(run.err, "q4_0_4_4"));
}

// What was taken for granted is in `weir info`, and on stderr of what uses the model.
void info__of_a_file_that_lacks_a_key(void**) {
  std::string bytes = read_file(WEIR_SOURCE_DIR "/tests/golden/models/qwen2_f32.gguf");
  const std::string key = "tokenizer.ggml.pre";
  bytes.replace(bytes.find(key), key.size(), "tokenizer.ggml.prx");
  const std::string path = write_file("lacks.gguf", bytes);
  const Output table = weir({"info", "-m", path});
  assert_works(table);
  assert_true(contains(table.out, "warning        tokenizer.ggml.pre: the file has no such key"));
  assert_true(contains(table.out, "gpt2/qwen2"));
  assert_string_equal(table.err.c_str(), "");
  const json i = one_json(weir({"info", "-m", path, "--json"}));
  assert_int_equal(i["warnings"].size(), 1);
  const Output ids = weir({"tokenize", "-m", path}, "hello");
  assert_int_equal(ids.status, 0);
  assert_true(contains(ids.err, "warning: lacks.gguf: tokenizer.ggml.pre"));
  assert_false(one_json(weir({"info", "-m", kModel, "--json"})).contains("warnings"));
}

// A block that predicts tokens after the next one is counted.
void info__of_a_file_with_parts_that_are_not_used(void**) {
  const std::string path = WEIR_SOURCE_DIR "/tests/golden/models/glm4moe_f32.gguf";
  const Output table = weir({"info", "-m", path});
  assert_works(table);
  assert_true(contains(table.out, "not used       25 tensors ("));
  assert_true(contains(table.out, "layers         2, d_model 32"));
  const json i = one_json(weir({"info", "-m", path, "--json"}));
  assert_int_equal(i["unused"].size(), 1);
  assert_false(i.contains("defaults"));
}

void tokenize__special_text_only_when_asked(void**) {
  const Output plain = weir({"tokenize", "-m", kModel}, "<|im_end|>"),
               special = weir({"tokenize", "-m", kModel, "--parse-special"}, "<|im_end|>");
  assert_works(plain);
  assert_works(special);
  assert_false(contains(special.out, " "));  // one id
  assert_true(contains(plain.out, " "));
  assert_int_equal(line_count(plain.out), 1);
  const Output nothing = weir({"tokenize", "-m", kModel}, "");
  assert_string_equal(nothing.out.c_str(), "\n");
}

void chat__piped_keeps_history_and_writes_no_control_codes(void**) {
  const Problem problem = short_problem();
  const FollowUp follow_up = make_follow_up(problem, 3);
  const Output o = weir({"chat", "-m", kModel, "--temp", "0"},
                        problem.prompt + "\n" + follow_up.question + "\n/stats\n/reset\nHello\n/exit\nnever read\n");
  assert_works(o);
  assert_string_equal(o.err.c_str(), "");
  assert_int_equal(o.out.find('\x1b'), std::string::npos);
  assert_int_equal(o.out.find(problem.answer + "\n"), 0);
  assert_true(contains(o.out, follow_up.answer + "\n"));
  assert_true(contains(o.out, "allocations while decoding"));
  assert_true(contains(o.out, "Hello!"));
}

void chat__full_context_is_told_and_reset_helps(void**) {
  const Output o =
      weir({"chat", "-m", kModel, "--temp", "0", "--context", "64"}, std::string(400, '7') + "\n/reset\nHello\n");
  assert_status(o, 1);
  assert_true(contains(o.err, "WEIR_ERR_CONTEXT_FULL"));
  assert_true(contains(o.out, "Hello!"));
}

void bench__random_model_gives_rows_and_needs_raw(void**) {
  const std::string cache = (g_folder / "bench").string();
  // The JSON of a GPU has other keys.
  const std::vector<std::string> command = {"bench", "--device", "cpu",   "--shape", "tiny", "--cache-dir",
                                            cache,   "--depths", "0,100", "--n",     "5",    "--prefill",
                                            "32",    "--commit", "abc",   "--json"};
  const json b = one_json(weir(command));
  for (const char* key : {"device", "cpu_target", "threads", "shape", "type", "policy", "budget", "read_gbps", "rows",
                          "prefill", "load_ms", "version"}) {
    assert_true(b.contains(key));
  }
  assert_string_equal(b["commit"].get<std::string>().c_str(), "abc");
  assert_int_equal(b["rows"].size(), 2);
  assert_int_equal(b["rows"][1]["depth"].get<int>(), 100);
  assert_true(b["rows"][1]["kv_bytes"].get<uint64_t>() >= 100u * 4096);
  assert_true(b["rows"][0]["tok_per_s"].get<double>() > 0);
  const auto written = fs::last_write_time(fs::path(cache) / "tiny-q8_0.gguf");
  one_json(weir(command));
  assert_true(fs::last_write_time(fs::path(cache) / "tiny-q8_0.gguf") == written);  // used again

  assert_false(b.contains("sessions"));
  std::vector<std::string> several = command;
  several.insert(several.end(), {"--sessions", "3"});
  const json three = one_json(weir(several));
  assert_int_equal(three["sessions"].get<int>(), 3);
  assert_true(three["rows"][1]["kv_bytes"].get<uint64_t>() == 3 * b["rows"][1]["kv_bytes"].get<uint64_t>());

  const std::vector<std::string> spilling = {"bench",       "--device",  "cpu",      "--shape", "tiny",
                                             "--cache-dir", cache,       "--depths", "400",     "--n",
                                             "5",           "--prefill", "0",        "--spill"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), spilling.begin(), spilling.end());
    return weir(more);
  };
  const json s = one_json(with({"--json", "--policy", "arkvale", "--budget", "128"}))["rows"][0]["spill"];
  assert_true(s["recalls_per_stream_step"].get<double>() > 0 && s["recalls_per_stream_step"].get<double>() <= 8);
  assert_true(s["ratio"].get<double>() > 0.9 && s["ratio"].get<double>() < 2);
  assert_true(s["pages_cold"].get<uint64_t>() > 0 && s["stored_bytes"].get<uint64_t>() > 0);
  assert_true(s["pages_dropped"] == 0 && s["errors"] == 0 && s.contains("waits"));
  assert_true(contains(with({"--policy", "arkvale", "--budget", "128"}).out, "cold pages"));
  assert_fails(with({"--policy", "raas", "--budget", "128"}), 2, "--spill");
  assert_false(b["rows"][0].contains("spill"));

  const std::string model = (fs::path(cache) / "tiny-q8_0.gguf").string();
  assert_fails(weir({"run", "-m", model, "-p", "Hello"}), 1, "--raw");
  assert_works(weir({"run", "-m", model, "--raw", "-p", "Hello", "-n", "3"}));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(run__json_has_exactly_the_promised_keys),
      cmocka_unit_test(run__answers_with_its_thoughts_and_without_the_end_of_turn),
      cmocka_unit_test(run__text_goes_to_stdout_alone),
      cmocka_unit_test(run__length_limit_stops),
      cmocka_unit_test(run__context_limit_stops),
      cmocka_unit_test(run__raw_prompt_is_the_text_as_it_is),
      cmocka_unit_test(run__seed_decides_sampled_text),
      cmocka_unit_test(run__budget_bounds_the_memory),
      cmocka_unit_test(run__prompt_beyond_the_budget_fits_or_says_what_would),
      cmocka_unit_test(run__prompts_file_goes_on_after_bad_lines),
      cmocka_unit_test(run__prompts_from_standard_input),
      cmocka_unit_test(run__prompt_from_standard_input),
      cmocka_unit_test(output__errors_are_told),
      cmocka_unit_test(template__is_the_files_or_the_given_one),
      cmocka_unit_test(run__user_turns_are_one_conversation),
      cmocka_unit_test(run__wrong_usage_is_status_2),
      cmocka_unit_test(run__failures_are_status_1_and_name_the_thing),
      cmocka_unit_test(help_and_version__are_status_0),
      cmocka_unit_test(plan__pools_add_up_and_budgets_agree),
      cmocka_unit_test(info__describes_the_file),
      cmocka_unit_test(info__of_a_file_that_cannot_run_is_status_1),
      cmocka_unit_test(info__of_a_file_that_is_no_model),
      cmocka_unit_test(info__of_a_file_that_lacks_a_key),
      cmocka_unit_test(info__of_a_file_with_parts_that_are_not_used),
      cmocka_unit_test(tokenize__special_text_only_when_asked),
      cmocka_unit_test(chat__piped_keeps_history_and_writes_no_control_codes),
      cmocka_unit_test(chat__full_context_is_told_and_reset_helps),
      cmocka_unit_test(bench__random_model_gives_rows_and_needs_raw),
  };
  return cmocka_run_group_tests_name("weir_program", tests, make_folder, remove_folder);
}
