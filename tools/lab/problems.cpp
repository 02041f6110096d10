// Makes, solves and judges the problems of problems.h.
//
// The order of the random draws is part of the format: the same seed must go on giving the same problem, because
// results are compared between releases. Add new draws at the end of a function, or with a new family.
#include "problems.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace weir_cli {
namespace {

// splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
class Rng {
 public:
  // The name is mixed in, so that families differ for one seed.
  Rng(uint64_t seed, const std::string& family) : state_(seed) {
    for (char c : family) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // 0..n-1. The bias of at most n / 2^32 does not matter here.
  int below(int n) { return static_cast<int>(((next() >> 32) * static_cast<uint64_t>(n)) >> 32); }
  int between(int low, int high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  uint64_t state_;
};

constexpr int kMaxSteps = 990;
constexpr int kMinPasskey = 10000, kMaxPasskey = 99999;
constexpr char kThinkStart[] = "<think>\n";
constexpr char kThinkEnd[] = "</think>";

struct Filler {
  const char* text;
  int n_tokens;  // in the tiny reasoner's vocabulary
};
constexpr Filler kFiller[] = {
    {"The grass is green.", 5},   {"The sky is blue.", 5},       {"The sun is yellow.", 5}, {"Here we go.", 4},
    {"There and back again.", 5}, {"The river is wide.", 5},     {"The road is long.", 5},  {"Birds fly south.", 4},
    {"The night is quiet.", 5},   {"Snow falls on the hill.", 6}};
constexpr int kFillerCount = static_cast<int>(sizeof(kFiller) / sizeof(kFiller[0]));
constexpr int kFillerUsed = 5;
// Tokens of a pass-key prompt without its filler: chat frame 8, first line 18, the key's line 19, question 6.
constexpr int kPasskeyFrameTokens = 51;

std::string x(int index) { return "x" + std::to_string(index); }

std::string equation(int index, int value) { return x(index) + " = " + std::to_string(value); }

int apply(char op, int left, int right) {
  const int value = op == '+' ? left + right : op == '-' ? left - right : left * right;
  return (value % kModulus + kModulus) % kModulus;
}

// Fills in the value of every step that has operands; they have smaller indices.
void solve(std::vector<ChainStep>& steps) {
  for (ChainStep& s : steps) {
    if (s.left < 0) continue;
    s.value = apply(s.op, steps[static_cast<size_t>(s.left)].value, steps[static_cast<size_t>(s.right)].value);
  }
}

std::string operation(const std::string& left, char op, const std::string& right) {
  return left + " " + op + " " + right;
}

// The right side of a fact, and of the first half of a chain line: "x35 + x21", or "34" for a given value.
std::string formula(const ChainStep& s) {
  return s.left < 0 ? std::to_string(s.value) : operation(x(s.left), s.op, x(s.right));
}

// "x38 = x35 + x21 = 42 + 17 = 59." or "x3 = 34."
std::string chain_line(const std::vector<ChainStep>& steps, int index) {
  const ChainStep& s = steps[static_cast<size_t>(index)];
  if (s.left < 0) return equation(index, s.value) + ".";
  const int left = steps[static_cast<size_t>(s.left)].value;
  const int right = steps[static_cast<size_t>(s.right)].value;
  return x(index) + " = " + formula(s) + " = " + operation(std::to_string(left), s.op, std::to_string(right)) + " = " +
         std::to_string(s.value) + ".";
}

// Solves the chain and completes the problem: the end of the prompt, and the expected texts.
void finish_chain(Problem& p) {
  solve(p.steps);
  p.prompt += " Work modulo " + std::to_string(kModulus) + ".";
  p.question_at = p.prompt.size();
  p.prompt += " Find " + x(p.target);
  p.final_answer = equation(p.target, p.steps[static_cast<size_t>(p.target)].value);
  if (p.early >= 0) {
    p.prompt += " and " + x(p.early);
    p.final_answer += ", " + equation(p.early, p.steps[static_cast<size_t>(p.early)].value);
  }
  p.prompt += ".";
  p.final_answer += ".";
  p.answer = kThinkStart;
  for (int i = p.first_line; i <= p.target; ++i) p.answer += chain_line(p.steps, i) + "\n";
  p.answer += std::string(kThinkEnd) + "\n" + p.final_answer;
}

// "Start: x0 = 97, x1 = 57." and the given steps.
Problem started(const std::vector<int>& start, int target, int early) {
  Problem p;
  p.steps.resize(static_cast<size_t>(target) + 1);
  p.first_line = static_cast<int>(start.size());
  p.target = target;
  p.early = early;
  p.prompt = "Start: ";
  for (size_t i = 0; i < start.size(); ++i) {
    p.steps[i].value = start[i];
    p.prompt += (i == 0 ? "" : ", ") + equation(static_cast<int>(i), start[i]);
  }
  p.prompt += ".";
  return p;
}

std::vector<int> draw_values(Rng& rng, int n) {
  std::vector<int> values(static_cast<size_t>(n));
  for (int& v : values) v = rng.below(kModulus);
  return values;
}

char draw_op(Rng& rng, const ProblemOptions& o) {
  const char drawn = rng.chance(50) ? '+' : '-';
  return o.op != 0 ? o.op : drawn;
}

Problem draw_rule(Rng& rng, const ProblemOptions& o) {
  const int most = std::min(40, kMaxIndex + 1 - o.steps);
  const int drawn = rng.between(2, most);
  const int lag = o.lag != 0 ? o.lag : drawn;
  const int smaller = rng.between(1, lag - 1);
  const char op = draw_op(rng, o);
  const std::vector<int> start = draw_values(rng, lag);
  // An early value: one of the first tenth of the chain's own lines.
  const int early = lag + rng.below(std::max(1, o.steps / 10));
  return rule_problem(start, lag, op, smaller, lag + o.steps - 1, o.family == "early" ? early : -1);
}

Problem draw_base(Rng& rng, const ProblemOptions& o) {
  const int drawn_lag = rng.between(1, 4);
  const int lag = o.lag != 0 ? o.lag : drawn_lag;
  const std::vector<int>& distances = milestone_distances();
  const int drawn_every = distances[static_cast<size_t>(rng.below(static_cast<int>(distances.size())))];
  const int every = o.every != 0 ? o.every : drawn_every;
  const char op = draw_op(rng, o);
  return base_problem(draw_values(rng, lag), lag, op, every, lag + o.steps - 1);
}

// The two values that x<n> is made of in a mixed chain: mostly among the last 12, sometimes from anywhere before.
int mixed_operand(Rng& rng, int n) { return rng.chance(70) ? rng.between(std::max(0, n - 12), n - 1) : rng.below(n); }

Problem draw_facts(Rng& rng, const ProblemOptions& o) {
  constexpr char kOps[] = {'+', '-', '*'};
  const bool with_hubs = o.family == "hubs";
  std::vector<int> hubs(static_cast<size_t>(rng.between(2, 4)));
  const int n_hubs = static_cast<int>(hubs.size());
  for (int i = 0; i < n_hubs; ++i) hubs[static_cast<size_t>(i)] = i % 2;  // x0 and x1, until they are replaced
  int hub_end = rng.between(6, 40);                                       // the step at which a hub is replaced next

  std::vector<ChainStep> steps(static_cast<size_t>(o.steps));
  for (int n = 0; n < o.steps; ++n) {
    ChainStep& s = steps[static_cast<size_t>(n)];
    if (n == hub_end) {
      hubs[static_cast<size_t>(rng.below(n_hubs))] = n - 1;
      hub_end += rng.between(6, 40);
    }
    // The last value, which is asked for, is never a given one: the prompt would say the answer.
    if (n < 2 || (rng.chance(5) && n + 1 < o.steps)) {
      s.value = rng.below(kModulus);
      continue;
    }
    s.op = kOps[rng.below(3)];
    s.left = with_hubs ? rng.between(std::max(0, n - 3), n - 1) : mixed_operand(rng, n);
    s.right = with_hubs ? hubs[static_cast<size_t>(rng.below(n_hubs))] : mixed_operand(rng, n);
  }
  std::vector<int> order(steps.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  for (size_t i = order.size() - 1; i > 0; --i) {
    std::swap(order[i], order[static_cast<size_t>(rng.below(static_cast<int>(i) + 1))]);
  }
  return facts_problem(std::move(steps), order, o.steps - 1);
}

// `n_tokens` of filler, rounded down to whole sentences but at least one; *next is where in the round it goes on.
std::string filler_text(const std::vector<int>& round, size_t* next, int n_tokens) {
  std::string text;
  for (;;) {
    const Filler& f = kFiller[round[*next % round.size()]];
    if (!text.empty() && f.n_tokens > n_tokens) return text;
    text += (text.empty() ? "" : " ") + std::string(f.text);
    n_tokens -= f.n_tokens;
    ++*next;
  }
}

Problem draw_passkey(Rng& rng, const ProblemOptions& o) {
  Problem p;
  p.passkey = std::to_string(rng.between(kMinPasskey, kMaxPasskey));
  std::vector<int> round;
  while (static_cast<int>(round.size()) < kFillerUsed) {
    const int i = rng.below(kFillerCount);
    if (std::find(round.begin(), round.end(), i) == round.end()) round.push_back(i);
  }
  const int drawn_depth = rng.below(1001);
  const int depth = o.passkey_depth < 0 ? drawn_depth : static_cast<int>(o.passkey_depth * 1000.0 + 0.5);  // 1/1000
  const int filler_tokens = o.passkey_tokens - kPasskeyFrameTokens;
  const int before = static_cast<int>(static_cast<int64_t>(filler_tokens) * depth / 1000);
  size_t next = 0;
  p.prompt = "A pass key is hidden in this long text. Find it and keep it in mind.\n";
  p.prompt += filler_text(round, &next, before);
  p.prompt += "\nThe pass key is " + p.passkey + ". Remember it. " + p.passkey + " is the pass key.\n";
  next = 0;
  p.prompt += filler_text(round, &next, filler_tokens - before);
  p.question_at = p.prompt.size();
  p.prompt += "\nWhat is the pass key?";
  p.final_answer = "The pass key is " + p.passkey + ".";
  p.answer = p.final_answer;
  return p;
}

// Rule problems and what is made of them.
bool has_window(const std::string& family) { return family == "rule" || family == "early" || family == "followup"; }

std::string problem_id(const ProblemOptions& o, const Problem& p) {
  std::string id = o.family;
  if (o.family == "passkey") {
    id += "-t" + std::to_string(o.passkey_tokens);
  } else {
    id += "-s" + std::to_string(o.steps);
    if (has_window(o.family) || o.family == "base") id += "-l" + std::to_string(p.first_line);
    if (o.every != 0) id += "-m" + std::to_string(o.every);
  }
  return id + "-seed" + std::to_string(o.seed);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// The digits of `text` from `at` on; empty when there are none.
std::string digits_at(const std::string& text, size_t at) {
  size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  return text.substr(at, end - at);
}

// Whether `text` says "x<index> = <value>" at least once, and never "x<index> = " with another number.
bool states_value(const std::string& text, int index, int value) {
  const std::string name = x(index) + " = ";
  bool found = false;
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    if (at > 0 && is_word(text[at - 1])) continue;
    if (digits_at(text, at + name.size()) != std::to_string(value)) return false;
    found = true;
  }
  return found;
}

// Whether `number` is in `text` and no other number is.
bool states_only_number(const std::string& text, const std::string& number) {
  bool found = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!is_digit(text[at])) continue;
    const std::string digits = digits_at(text, at);
    if (digits != number) return false;
    found = true;
    at += digits.size() - 1;
  }
  return found;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// The text between <think> and </think>; either may be missing.
std::string think_text(const std::string& text) {
  const size_t start = text.find("<think>");
  const size_t from = start == std::string::npos ? 0 : start + 7;
  const size_t end = text.find(kThinkEnd, from);
  return text.substr(from, end == std::string::npos ? std::string::npos : end - from);
}

// What follows the last </think>; the whole text when there is none.
std::string after_think(const std::string& text) {
  const size_t end = text.rfind(kThinkEnd);
  return end == std::string::npos ? text : text.substr(end + sizeof(kThinkEnd) - 1);
}

// Lines are matched by the index they start with, so one that was left out costs one error, not all that follow.
int count_wrong_lines(const Problem& p, const std::string& model_text) {
  std::vector<bool> seen(static_cast<size_t>(p.target) + 1, false);
  int n_wrong = 0;
  for (const std::string& line : lines_of(think_text(model_text))) {
    const std::string digits = line[0] == 'x' ? digits_at(line, 1) : "";
    const int index = digits.empty() || digits.size() > 4 ? -1 : std::stoi(digits);
    if (index < p.first_line || index > p.target || seen[static_cast<size_t>(index)]) {
      ++n_wrong;
      continue;
    }
    seen[static_cast<size_t>(index)] = true;
    if (line != chain_line(p.steps, index)) ++n_wrong;
  }
  for (int i = p.first_line; i <= p.target; ++i) n_wrong += seen[static_cast<size_t>(i)] ? 0 : 1;
  return n_wrong;
}

std::string out_of_range(const char* field, int value, int low, int high) {
  return std::string(field) + " is " + std::to_string(value) + ", must be " + std::to_string(low) + ".." +
         std::to_string(high);
}

}  // namespace

const std::vector<std::string>& problem_families() {
  static const std::vector<std::string> kFamilies = {"rule", "base", "facts", "hubs", "passkey", "early", "followup"};
  return kFamilies;
}

const std::vector<int>& milestone_distances() {
  static const std::vector<int> kDistances = {5, 8, 10, 12, 15, 16, 20, 24, 25, 30, 40, 50, 60, 64, 80, 100};
  return kDistances;
}

double chance_level(const std::string& family) {
  if (family == "passkey") return 1.0 / (kMaxPasskey - kMinPasskey + 1);
  constexpr double kOneValue = 1.0 / kModulus;
  return family == "early" || family == "followup" ? kOneValue * kOneValue : kOneValue;
}

std::string check_problem_options(const ProblemOptions& o) {
  const std::vector<std::string>& all = problem_families();
  if (std::find(all.begin(), all.end(), o.family) == all.end()) {
    return "family is \"" + o.family + "\", must be rule, base, facts, hubs, passkey, early or followup";
  }
  if (o.family == "passkey") {
    if (o.passkey_tokens < 100 || o.passkey_tokens > 1000000) {
      return out_of_range("passkey_tokens", o.passkey_tokens, 100, 1000000);
    }
    return o.passkey_depth <= 1.0 ? "" : "passkey_depth must be at most 1";  // also refuses a NaN
  }
  // The first two values of a mixed chain are given, and the last one is not.
  const int min_steps = o.family == "facts" || o.family == "hubs" ? 3 : 2;
  if (o.steps < min_steps || o.steps > kMaxSteps) return out_of_range("steps", o.steps, min_steps, kMaxSteps);
  if (o.op != 0 && o.op != '+' && o.op != '-' && o.op != '*') return "op must be '+', '-', '*' or 0";
  const bool window = has_window(o.family);
  const int least = window ? 2 : 1;
  const int most = window ? 40 : 4;
  if (window || o.family == "base") {
    if (o.lag != 0 && (o.lag < least || o.lag > most)) return out_of_range("lag", o.lag, least, most);
    if (o.lag + o.steps - 1 > kMaxIndex) return "lag and steps together are more than " + std::to_string(kMaxIndex + 1);
  }
  if (o.family == "base" && o.every != 0 && (o.every < 2 || o.every > 500)) {
    return out_of_range("every", o.every, 2, 500);
  }
  return "";
}

Problem make_problem(const ProblemOptions& options) {
  const std::string wrong = check_problem_options(options);
  if (!wrong.empty()) throw std::invalid_argument(wrong);
  Rng rng(options.seed, options.family);
  Problem p;
  if (options.family == "passkey") {
    p = draw_passkey(rng, options);
  } else if (options.family == "base") {
    p = draw_base(rng, options);
  } else if (options.family == "facts" || options.family == "hubs") {
    p = draw_facts(rng, options);
  } else {
    p = draw_rule(rng, options);
  }
  if (options.family == "followup") p.follow_up = make_follow_up(p, options.seed);
  p.family = options.family;
  p.id = problem_id(options, p);
  return p;
}

Problem rule_problem(const std::vector<int>& start, int lag_left, char op, int lag_right, int target, int early) {
  Problem p = started(start, target, early);
  p.family = early < 0 ? "rule" : "early";
  for (int n = p.first_line; n <= target; ++n) p.steps[static_cast<size_t>(n)] = {n - lag_left, n - lag_right, op, 0};
  const std::string left = "x[n-" + std::to_string(lag_left) + "]";
  const std::string right = "x[n-" + std::to_string(lag_right) + "]";
  p.prompt += " Rule: x[n] = " + operation(left, op, right) + ".";
  finish_chain(p);
  return p;
}

Problem base_problem(const std::vector<int>& start, int lag, char op, int every, int target, int early) {
  Problem p = started(start, target, early);
  p.family = "base";
  for (int n = p.first_line; n <= target; ++n) {
    p.steps[static_cast<size_t>(n)] = {n - lag, every * ((n - 1) / every), op, 0};
  }
  p.prompt += " Rule: x[n] = " + operation("x[n-" + std::to_string(lag) + "]", op, "x[k]") +
              ", with k the last multiple of " + std::to_string(every) + " before n.";
  finish_chain(p);
  return p;
}

Problem facts_problem(std::vector<ChainStep> steps, const std::vector<int>& order, int target) {
  Problem p;
  p.family = "facts";
  p.steps = std::move(steps);
  p.target = target;
  p.prompt = "Facts: ";
  for (size_t i = 0; i < order.size(); ++i) {
    p.prompt += (i == 0 ? "" : "; ") + x(order[i]) + " = " + formula(p.steps[static_cast<size_t>(order[i])]);
  }
  p.prompt += ".";
  finish_chain(p);
  return p;
}

FollowUp make_follow_up(const Problem& problem, uint64_t seed) {
  FollowUp f;
  if (problem.steps.empty()) return f;
  Rng rng(seed, "follow-up");
  const int n_lines = problem.target - problem.first_line + 1;
  f.index = problem.first_line + rng.below(std::max(1, n_lines / 2));
  f.question = "What was " + x(f.index) + "?";
  f.answer = equation(f.index, problem.steps[static_cast<size_t>(f.index)].value) + ".";
  return f;
}

bool answer_is_right(const Problem& problem, const std::string& model_text, int* n_wrong_lines) {
  if (problem.steps.empty()) {
    if (n_wrong_lines != nullptr) *n_wrong_lines = 0;
    return states_only_number(after_think(model_text), problem.passkey);
  }
  if (n_wrong_lines != nullptr) *n_wrong_lines = count_wrong_lines(problem, model_text);
  if (model_text.find(kThinkEnd) == std::string::npos) return false;
  const std::string said = after_think(model_text);
  const auto states = [&](int index) {
    return index < 0 || states_value(said, index, problem.steps[static_cast<size_t>(index)].value);
  };
  return states(problem.target) && states(problem.early);
}

bool follow_up_is_right(const FollowUp& follow_up, const std::string& model_text) {
  if (follow_up.index < 0) return false;
  const std::string value = digits_at(follow_up.answer, x(follow_up.index).size() + 3);
  return states_value(after_think(model_text), follow_up.index, std::stoi(value));
}

}  // namespace weir_cli
