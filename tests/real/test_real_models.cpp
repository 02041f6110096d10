// real: two models that people use, against numbers of an independent implementation on the same weights
// (tests/golden/real). Run by ./dev test --real; ./dev real-models fetches the files, and a test whose file is missing
// is skipped. WEIR_REAL_MODELS names another folder than its default.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/cli_test.h"
#include "tools/lab/eval_prediction.h"
#include "tools/weir/weir_cpp.h"

using namespace weir_cli;
using namespace weir_cli::test;
namespace fs = std::filesystem;

namespace {

struct RealModel {
  const char *golden, *file;
  double max_kl[2];  // mean KL to the reference in plain f32, and to that with K and V in bf16, nats
};
// A reference with K and V in bf16 is nearer, but no float32 arithmetic comes very near: noise in the last bits of a
// key moves some to the neighbouring bf16 number. For SmolLM2, numpy in float32 is 1.5e-5 away; with activations as
// 16-bit integers, which is how Weir multiplies, it is 3.4e-5 (tests/golden/real/README.md).
constexpr RealModel kSmolLm2 = {"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", {1e-4, 4e-5}};
constexpr RealModel kGemma3 = {"gemma3", "gemma-3-270m.Q4_K_M.gguf", {3e-4, 3e-5}};
constexpr double kMinTop1[2] = {0.98, 0.995};
constexpr double kNearTie = 0.05;           // nats, between tokens that may change places at a single position
constexpr double kPerplexityRange = 0.005;  // part of the reference's

fs::path real_folder() {
  if (const char* folder = std::getenv("WEIR_REAL_MODELS")) return folder;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return fs::path(cache) / "weir-models";
  const char* home = std::getenv("HOME");
  return fs::path(home != nullptr ? home : "") / ".cache" / "weir-models";
}

// The path of a file that was fetched; skips the test when it was not.
std::string real_file(const char* name) {
  const fs::path path = real_folder() / name;
  if (!fs::exists(path)) {
    print_message("%s is missing; ./dev real-models fetches it\n", path.c_str());
    skip();
  }
  return path.string();
}

// tests/golden/real/README.md describes the file. References: 0 plain, 1 with K and V in bf16.
struct Golden {
  uint32_t n_positions = 0, vocab_size = 0, n_listed = 0, n_prompt = 0, n_answer = 0;
  double nll[2] = {0, 0};  // of tokens 1 ... n_positions - 1
  std::vector<weir_token> tokens, prompt, answer;
  std::vector<float> weights;   // [n_listed] tokens that an entry stands for
  std::vector<int32_t> ids;     // [n_positions, n_listed]
  std::vector<float> log_p[2];  // [n_positions, n_listed]
};

template <class T>
void take(std::ifstream& file, T* values, size_t n) {
  file.read(reinterpret_cast<char*>(values), static_cast<std::streamsize>(n * sizeof(T)));
  assert_true(file.good());
}

Golden read_golden(const std::string& name) {
  std::ifstream file(WEIR_SOURCE_DIR "/tests/golden/real/" + name + ".golden", std::ios::binary);
  char magic[8];
  uint32_t reserved = 0;
  Golden g;
  take(file, magic, 8);
  assert_memory_equal(magic, "WEIRREAL", 8);
  for (uint32_t* field : {&g.n_positions, &g.vocab_size, &g.n_listed, &g.n_prompt, &g.n_answer, &reserved})
    take(file, field, 1);
  take(file, g.nll, 2);
  const auto take_all = [&](auto& values, size_t n) {
    values.resize(n);
    take(file, values.data(), n);
  };
  take_all(g.tokens, g.n_positions);
  take_all(g.prompt, g.n_prompt);
  take_all(g.answer, g.n_answer);
  take_all(g.weights, g.n_listed);
  take_all(g.ids, size_t{g.n_positions} * g.n_listed);
  for (std::vector<float>& log_p : g.log_p) take_all(log_p, g.ids.size());
  assert_int_equal(file.peek(), EOF);
  return g;
}

// KL(reference || p) at one position, estimated from the listed tokens: terms p log(p / q) - p + q, whose sum over the
// whole vocabulary is the divergence, and of which none is negative.
double divergence(const Golden& g, int reference, size_t position, const Prediction& own) {
  double sum = 0;
  for (size_t i = 0; i < g.n_listed; ++i) {
    const size_t at = position * g.n_listed + i;
    const double log_p = g.log_p[reference][at], log_q = own.log_p[static_cast<size_t>(g.ids[at])];
    sum += g.weights[i] * (std::exp(log_p) * (log_p - log_q) - std::exp(log_p) + std::exp(log_q));
  }
  return sum;
}

// How much less probable than the reference's best token this one is to the reference, nats; infinity when it is not
// among those that are listed.
double behind(const Golden& g, int reference, size_t position, size_t token) {
  double most = -INFINITY, own = -INFINITY;
  for (size_t at = position * g.n_listed; at < (position + 1) * g.n_listed; ++at) {
    const double log_p = g.log_p[reference][at];
    most = std::max(most, log_p);
    if (static_cast<size_t>(g.ids[at]) == token) own = log_p;
  }
  return most - own;
}

// Sums over positions, for both references.
struct Comparison {
  double kl[2] = {0, 0}, nll = 0;
  double max_behind = 0;  // of Weir's most probable tokens, to either reference
  size_t n_same[2] = {0, 0}, n = 0, n_next = 0;

  void add(const Golden& g, size_t position, const Prediction& own) {
    ++n;
    for (int r = 0; r < 2; ++r) {
      kl[r] += divergence(g, r, position, own);
      const double distance = behind(g, r, position, own.best);
      n_same[r] += distance == 0 ? 1 : 0;
      max_behind = std::max(max_behind, distance);
    }
    if (position + 1 == g.n_positions) return;
    nll -= own.log_p[static_cast<size_t>(g.tokens[position + 1])];
    ++n_next;
  }

  void check_bounds(const RealModel& model, const char* what) const {
    const char* const names[2] = {"plain", "K and V in bf16"};
    for (int r = 0; r < 2; ++r) {
      const double mean = kl[r] / static_cast<double>(n),
                   top1 = static_cast<double>(n_same[r]) / static_cast<double>(n);
      print_message("%s, %s, reference %s: KL %.3g, top-1 %.2f %% of %zu\n", model.golden, what, names[r], mean,
                    100 * top1, n);
      assert_true(mean < model.max_kl[r]);
      assert_true(top1 >= kMinTop1[r] || n < 200);  // a share of few positions says nothing; a tie is seen below
    }
    print_message("%s, %s: at most %.3f nats behind\n", model.golden, what, max_behind);
    assert_true(max_behind < kNearTie);
  }
};

SessionPtr dense_session(weir_model* model, uint32_t context) {
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.context_tokens = context;
  return create_session(model, options);
}

// Every position by decode steps, and every 32nd by a prompt that ends there.
void equals_its_reference(const RealModel& real) {
  const std::string path = real_file(real.file);
  const Golden g = read_golden(real.golden);
  const RuntimePtr runtime = create_runtime(0);
  const ModelPtr model = open_model(runtime.get(), path);
  assert_int_equal(model_info(model.get()).vocab_size, g.vocab_size);
  const SessionPtr session = dense_session(model.get(), g.n_positions);
  Comparison steps, prompts;
  for (size_t i = 0; i < g.n_positions; ++i) {
    if (i == 0) {
      prefill(session.get(), {g.tokens[0]});
    } else {
      assert_int_equal(weir_session_step(session.get(), g.tokens[i]), WEIR_OK);
    }
    steps.add(g, i, predict(session.get()));
  }
  steps.check_bounds(real, "steps");
  for (int r = 0; r < 2; ++r) {
    const auto n = static_cast<double>(steps.n_next);
    const double own = std::exp(steps.nll / n), reference = std::exp(g.nll[r] / n);
    print_message("%s: perplexity %.4f, of the reference %.4f\n", real.golden, own, reference);
    assert_true(std::abs(own / reference - 1) < kPerplexityRange);
  }
  for (size_t n = 32; n <= g.n_positions; n += 32) {
    assert_int_equal(weir_session_reset(session.get()), WEIR_OK);
    prefill(session.get(), {g.tokens.begin(), g.tokens.begin() + static_cast<std::ptrdiff_t>(n)});
    prompts.add(g, n - 1, predict(session.get()));
  }
  prompts.check_bounds(real, "prompts");
}

void real__smollm2_equals_its_reference(void**) { equals_its_reference(kSmolLm2); }
void real__gemma3_equals_its_reference(void**) { equals_its_reference(kGemma3); }

// The answer of the reference to a chat, token by token.
void real__smollm2_answers_as_its_reference(void**) {
  const std::string path = real_file(kSmolLm2.file);
  const Golden g = read_golden(kSmolLm2.golden);
  assert_true(g.n_answer >= 40);
  const RuntimePtr runtime = create_runtime(0);
  const ModelPtr model = open_model(runtime.get(), path);
  const std::vector<weir_token> prompt =
      tokenize_chat(model.get(), {{"user", "Why is the sky blue?"}}, WEIR_CHAT_ADD_ASSISTANT);
  assert_true(prompt == g.prompt);
  const SessionPtr session = dense_session(model.get(), 256);
  prefill(session.get(), prompt);
  std::vector<weir_token> answer;
  generate(session.get(), g.n_answer, WEIR_GENERATE_IGNORE_EOS, [&](const weir_token_event& event) {
    if (event.token >= 0) answer.push_back(event.token);
    return true;
  });
  print_message("%s\n", detokenize(model.get(), answer, 0).c_str());
  assert_true(answer == g.answer);
}

// A conversation as an application has it: its messages, and a session that is made to hold them.
struct Conversation {
  explicit Conversation(const weir_model* of) : model(of), session(dense_session(const_cast<weir_model*>(of), 2048)) {}

  // Asks, and answers with at most n tokens; the reason why the answer ended.
  int32_t turn(const std::string& question, uint32_t n, const std::vector<std::string>& stops = {}) {
    messages.push_back({"user", question});
    std::vector<weir_chat_message> views;
    for (const Message& message : messages) views.push_back(view_of(message));
    report = WEIR_PROMPT_REPORT_INIT;
    assert_int_equal(weir_session_prompt(session.get(), views.data(), views.size(), nullptr, nullptr, &report),
                     WEIR_OK);
    std::string answer;
    const weir_generate_result result = generate(
        session.get(), n, 0,
        [&](const weir_token_event& event) {
          answer.append(event.text, event.text_bytes);
          return true;
        },
        stops);
    print_message("> %s\n%s\n", question.c_str(), answer.c_str());
    messages.push_back({"assistant", answer});
    return result.stop;
  }

  const weir_model* model;
  SessionPtr session;
  std::vector<Message> messages;
  weir_prompt_report report = WEIR_PROMPT_REPORT_INIT;
};

// Nothing of old answers is read again, a stop string stops, and after an edit all is as if nothing else had been said.
void real__smollm2_holds_a_conversation(void**) {
  const std::string path = real_file(kSmolLm2.file);
  const RuntimePtr runtime = create_runtime(0);
  const ModelPtr model = open_model(runtime.get(), path);
  Conversation talk(model.get());
  assert_int_equal(talk.turn("What is the capital of France?", 40), WEIR_STOP_EOS);
  assert_true(contains(talk.messages.back().content, "Paris"));
  uint32_t n_held = session_stats(talk.session.get()).n_tokens;
  assert_int_equal(talk.turn("What is the capital of Italy?", 40, {" Rome", "Milan"}), WEIR_STOP_STRING);
  assert_int_equal(talk.report.n_kept, n_held);
  assert_int_equal(talk.report.n_forgotten, 0);
  assert_string_equal(talk.messages.back().content.c_str(), "The capital of Italy is");
  // What came behind the shown text is forgotten with the next turn.
  n_held = session_stats(talk.session.get()).n_tokens;
  talk.turn("Which city is older?", 60);
  assert_true(talk.report.n_kept <= n_held && talk.report.n_kept + 4 > n_held);
  n_held = session_stats(talk.session.get()).n_tokens;
  talk.turn("Thank you. What did I ask you first?", 60);
  assert_int_equal(talk.report.n_kept, n_held);
  // The second question anew.
  talk.messages.resize(2);
  talk.turn("What is the capital of Spain?", 40);
  assert_true(contains(talk.messages.back().content, "Madrid"));
  assert_true(talk.report.n_forgotten > 0 && talk.report.pages_missing == 0);
  Conversation fresh(model.get());
  fresh.messages.assign(talk.messages.begin(), talk.messages.begin() + 2);
  fresh.turn("What is the capital of Spain?", 40);
  assert_string_equal(fresh.messages.back().content.c_str(), talk.messages.back().content.c_str());
  // An answer that a program can read.
  const std::string schema =
      R"({"type": "object", "properties": {"country": {"enum": ["France", "Italy", "Spain"]},
          "capital": {"type": "string", "maxLength": 40}}, "required": ["country", "capital"],
          "additionalProperties": false})";
  weir_constraint* constraint = nullptr;
  assert_int_equal(
      weir_constraint_create(model.get(), WEIR_CONSTRAINT_JSON_SCHEMA, schema.data(), schema.size(), &constraint),
      WEIR_OK);
  assert_int_equal(weir_session_set_constraint(talk.session.get(), constraint, 0), WEIR_OK);
  weir_constraint_destroy(constraint);
  const int32_t stop = talk.turn("Say that again as JSON.", 120);
  assert_true(stop == WEIR_STOP_CONSTRAINT || stop == WEIR_STOP_EOS);
  const nlohmann::json said = nlohmann::json::parse(talk.messages.back().content);
  assert_int_equal(said.size(), 2);
  assert_true(said["country"].is_string() && said["capital"].is_string());
}

// What fills a conversation.
const char* const kQuestions[][2] = {
    {"What is the capital of France?",
     "The capital of France is Paris, a city on the river Seine that is known for its museums, its "
     "food and the Eiffel Tower."},
    {"How do bees make honey?",
     "Bees collect nectar from flowers, carry it to the hive, and store it in cells of wax, where "
     "water evaporates until it becomes honey."},
    {"Why is the sky blue?",
     "Sunlight is scattered by the molecules of the air, and blue light is scattered more strongly "
     "than red light, so that the sky looks blue."},
    {"How is bread baked?",
     "Flour, water, salt and yeast are mixed into a dough, which rises for some hours and is then "
     "baked in a hot oven until its crust is brown."},
    {"What is a glacier?",
     "A glacier is a large body of ice that forms where more snow falls than melts, and that flows "
     "slowly down a valley under its own weight."},
    {"Who was Isaac Newton?",
     "Isaac Newton was an English mathematician and physicist who described the laws of motion, "
     "gravity, and the nature of colours and light."},
    {"How do trains stay on rails?",
     "The wheels of a train are slightly conical and have flanges on the inner side, which keep them "
     "centred on the rails, even in curves."},
    {"What are clouds made of?",
     "Clouds are made of tiny droplets of water or crystals of ice that form when warm, moist air "
     "rises and cools in the atmosphere."},
    {"Why do leaves fall in autumn?",
     "Trees shed their leaves in autumn to save water and energy, as there is too little light and "
     "warmth in winter for them to work."},
    {"What is glass made of?",
     "Glass is made of sand, soda and limestone, which are melted together at a very high temperature "
     "and then cooled quickly."},
    {"How does a clock work?",
     "A clock counts the swings of a pendulum, a balance wheel or a quartz crystal, and turns them "
     "into the movement of its hands."},
    {"Why is the sea salty?",
     "Rivers carry small amounts of salt from rocks into the sea, and when water evaporates the salt "
     "stays behind, so that it has gathered."},
};

// The preset chat has half of dense's memory and a pool of 512 tokens, and knows what was said 2,300 tokens ago. Dense
// gives this model's answer only to a question that begins like the sentence, so it is asked like that.
void real__chat_remembers_its_beginning(void**) {
  const std::string path = real_file(kSmolLm2.file);
  const RuntimePtr runtime = create_runtime(0);
  const ModelPtr model = open_model(runtime.get(), path);
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT, whole = options;
  options.device = whole.device = WEIR_DEVICE_CPU;
  assert_int_equal(weir_session_options_preset("chat", &options), WEIR_OK);
  const weir_plan_info plan = make_plan(model.get(), options), dense = make_plan(model.get(), whole);
  assert_int_equal(plan.budget_tokens, 512);
  assert_true(plan.total_bytes <= dense.total_bytes / 2 && plan.context_tokens == dense.context_tokens);
  const SessionPtr session = create_session(model.get(), options);
  // Turns are prompts, and answers steps, as in a conversation.
  const auto turn = [&](std::vector<Message> messages, uint32_t flags, const std::string& answer) {
    prefill(session.get(), tokenize_chat(model.get(), messages, WEIR_CHAT_ADD_ASSISTANT | flags));
    for (const weir_token token : tokenize(model.get(), answer, 0))
      assert_int_equal(weir_session_step(session.get(), token), WEIR_OK);
  };
  turn({{"system", "You are a helpful assistant."}, {"user", "The secret code is BLUE-RIVER-77."}}, 0,
       "The secret code is BLUE-RIVER-77. I will remember it.");
  for (const char* begin : {"", "Please tell me: ", "I wonder: ", "Another question: "}) {
    for (size_t i = 0; i < std::size(kQuestions); ++i) {
      const char* const* about = kQuestions[i * 5 % std::size(kQuestions)];
      turn({{"user", std::string(begin) + about[0]}}, WEIR_CHAT_CONTINUE, about[1]);
    }
  }
  turn({{"user", "What is the secret code?"}}, WEIR_CHAT_CONTINUE, "The secret code is BLUE");
  const weir_session_stats stats = session_stats(session.get());
  assert_true(stats.n_tokens > 2300 && stats.pages_evicted > 0);
  std::string answer;
  generate(session.get(), 6, 0, [&](const weir_token_event& event) {
    answer.append(event.text, event.text_bytes);
    return true;
  });
  print_message("after %u tokens: BLUE%s\n", stats.n_tokens, answer.c_str());
  assert_true(answer.starts_with("-RIVER-7"));
}

double repeated_six_grams(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::string> all{std::istream_iterator<std::string>(words), {}};
  std::set<std::vector<std::string>> seen;
  size_t n = 0, n_repeated = 0;
  for (size_t i = 0; i + 6 <= all.size(); ++i, ++n) {
    const auto at = all.begin() + static_cast<std::ptrdiff_t>(i);
    n_repeated += seen.insert({at, at + 6}).second ? 0 : 1;
  }
  return n == 0 ? 0 : static_cast<double>(n_repeated) / static_cast<double>(n);
}

// The program's own defaults; with the most probable token each time most of such answers repeats itself.
void real__chat_does_not_repeat_itself(void**) {
  const std::string path = real_file(kSmolLm2.file);
  for (const char* question : {"Write a story about a lighthouse keeper.", "Explain how a bicycle stays upright.",
                               "List ten reasons to learn a language, each with an explanation."}) {
    const Output o =
        weir({"chat", path, "--seed", "1", "-n", "400", "--context", "1024"}, std::string(question) + "\n");
    assert_works(o);
    const double repeated = repeated_six_grams(o.out);
    print_message("%s: %.1f %% of 6-grams repeat\n", question, 100 * repeated);
    assert_true(o.out.size() > 200);
    assert_true(repeated <= 0.05);
  }
}

// The tokens of the golden files are the text's, so that tokenizers have not changed either.
void text_has_the_tokens(const RealModel& real) {
  const std::string path = real_file(real.file), text_path = real_file("opticks.txt");
  const Golden g = read_golden(real.golden);
  std::ifstream file(text_path, std::ios::binary);
  std::string text(8192, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  const RuntimePtr runtime = create_runtime(1);
  const ModelPtr model = open_model(runtime.get(), path, WEIR_MODEL_VOCAB_ONLY);
  std::vector<weir_token> tokens = tokenize(model.get(), text, 0);
  assert_true(tokens.size() > g.n_positions);
  tokens.resize(g.n_positions);
  weir_special_tokens special = WEIR_SPECIAL_TOKENS_INIT;
  assert_int_equal(weir_model_special_tokens(model.get(), &special), WEIR_OK);
  if (special.add_bos != 0) tokens[0] = special.bos;
  assert_true(tokens == g.tokens);
}

void real__texts_have_the_tokens_of_the_references(void**) {
  text_has_the_tokens(kSmolLm2);
  text_has_the_tokens(kGemma3);
}

void evaluates_a_text(const RealModel& real, double low, double high) {
  const std::string model = real_file(real.file), text = real_file("opticks.txt");
  const Output o = eval({"--text", text, "-m", model, "--out", (g_folder / real.golden).string(), "--windows", "1",
                         "--policies", "dense,raas,sink", "--budgets", "256,1024", "--forced-tokens", "64", "--json"});
  assert_works(o);
  const nlohmann::json j = nlohmann::json::parse(o.out);
  print_message("%s: perplexity of the first window %.3f\n", real.golden, j["perplexity"].get<double>());
  assert_int_equal(j["n_windows"].get<int>(), 1);
  assert_true(j["perplexity"] > low && j["perplexity"] < high);
  assert_int_equal(j["rows"].size(), 5);
  for (const auto& row : j["rows"]) {
    const bool holds_everything = row["budget"] != 256;
    assert_true((row["kl_mean"] == 0.0) == holds_everything);
    assert_true(row["perplexity"] > low && row["perplexity"] < high);
  }
}

// Far from what a wrong vocabulary or rotation gives, which is thousands.
void real__eval_reads_a_text(void**) {
  evaluates_a_text(kSmolLm2, 5, 100);
  evaluates_a_text(kGemma3, 5, 100);
}

// A fact, a text and the question: right with everything, wrong with a window, right with arkvale in the same bytes.
void real__demo_of_a_text(void**) {
  const std::string model = real_file(kSmolLm2.file);
  for (const char* text : {"opticks.txt", "jargon.txt"}) {
    const Output o = weir({"demo", "-m", model, "--text", real_file(text)});
    assert_works(o);
    assert_true(contains(o.out, "Weir                   right"));
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(real__smollm2_equals_its_reference),
      cmocka_unit_test(real__smollm2_answers_as_its_reference),
      cmocka_unit_test(real__smollm2_holds_a_conversation),
      cmocka_unit_test(real__chat_remembers_its_beginning),
      cmocka_unit_test(real__chat_does_not_repeat_itself),
      cmocka_unit_test(real__gemma3_equals_its_reference),
      cmocka_unit_test(real__texts_have_the_tokens_of_the_references),
      cmocka_unit_test(real__eval_reads_a_text),
      cmocka_unit_test(real__demo_of_a_text),
  };
  return cmocka_run_group_tests_name("real", tests, make_folder, remove_folder);
}
