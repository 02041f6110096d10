// Problems whose answers can be checked exactly: the arithmetic chains and pass keys of the tiny reasoner's training.
//
// Makes a problem from a seed, solves it (so the whole expected text is known, character by character) and judges what
// a model said. It knows nothing of models, tokens or sessions; the caller wraps `prompt` in a chat template.
// The same options give the same text on every platform and compiler: the random numbers are made here (splitmix64),
// never by <random>, whose distributions differ between standard libraries.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weir_cli {

// All chain arithmetic is modulo this, so every value is 0..99.
inline constexpr int kModulus = 100;
// The largest index of a chain value: every number up to 999 is one token of the tiny reasoner.
inline constexpr int kMaxIndex = 999;

struct ProblemOptions {
  // One of problem_families():
  //   rule     a sliding window: x[n] = x[n-a] OP x[n-b]
  //   base     milestones: x[n] = x[n-a] OP x[k], with k the last multiple of `every` before n
  //   facts    a shuffled prompt; a line needs two earlier values, mostly recent ones, some from anywhere; a value now
  //            and then is given, but never the one that is asked for
  //   hubs     the same, but a line needs a recent value and one of a few hub values that are replaced now and then
  //   passkey  a number hidden in filler text
  //   early    a rule problem that asks for an early value again at the end
  //   followup a rule problem, and when it is answered, a second turn that asks for a value of its first half
  std::string family = "rule";
  int steps = 120;  // chain lines to write, 2..990, of facts and hubs at least 3 (a chain's last index is at
                    // most kMaxIndex)
  int lag = 0;      // rule, early, followup: the larger lag, 2..40; base: the lag, 1..4; also the number of start
                    // values; 0: drawn
  int every = 0;    // base: M, the distance of the milestones, 2..500; 0: drawn from milestone_distances()
  char op = 0;      // rule, early, followup, base: '+', '-' or '*'; 0: '+' or '-' (a chain of '*' alone sinks to 0)
  int passkey_tokens = 1000;  // passkey: length of the whole prompt in the tiny reasoner's tokens, 100..1000000
  double passkey_depth = -1;  // passkey: where the key is, 0 start .. 1 end; below 0: drawn
  uint64_t seed = 1;
};

// How one chain value is made. A given value has no operands.
struct ChainStep {
  int left = -1;   // index of the left operand, -1 when the value is given
  int right = -1;  // index of the right operand
  char op = '+';   // '+', '-' or '*'
  int value = 0;   // 0..99
};

// A second user turn about the same conversation, and what a right answer to it is.
struct FollowUp {
  int index = -1;        // the value asked for, -1 when there is no such turn, or the problem has no chain
  std::string question;  // "What was x7?"
  std::string answer;    // "x7 = 23."
};

struct Problem {
  std::string id;          // made of the options, without spaces: "rule-s120-l12-seed7"
  std::string family;      // as in ProblemOptions
  std::string prompt;      // the user turn
  size_t question_at = 0;  // byte of `prompt` where its question starts; what is before it does not tell what is asked
  std::string answer;      // the whole expected assistant turn, think block included, without the end-of-turn token
  std::string final_answer;  // what comes after </think>: "x13 = 14." or "The pass key is 86834."

  // Chains only; steps is empty for a pass key.
  std::vector<ChainStep> steps;  // steps[i] makes x<i>; start values and given facts included
  int first_line = 0;            // index of the first value that the chain writes a line for
  int target = -1;               // index of the value that is asked for
  int early = -1;                // index of the value that is asked for again at the end, or -1

  std::string passkey;  // pass key only: its five digits

  FollowUp follow_up;  // followup only
};

// Every family, in the order of ProblemOptions::family.
const std::vector<std::string>& problem_families();

// The milestone distances that the tiny reasoner was trained on, ascending. It gets other ones wrong.
const std::vector<int>& milestone_distances();

// How often an answer to a problem of the family is right whose values are guessed, each as likely as any other: one of
// kModulus, two of them for early and followup, a pass key of five digits. 0..1.
double chance_level(const std::string& family);

// What is wrong with `options`, in one line that names the field; empty when nothing is.
std::string check_problem_options(const ProblemOptions& options);

// The problem that `options` describe. Throws std::invalid_argument, with the line of check_problem_options, when they
// are wrong.
Problem make_problem(const ProblemOptions& options);

// A question about a value from the first half of the chain.
FollowUp make_follow_up(const Problem& problem, uint64_t seed);

// Whether the final answer in `model_text` is right: what follows </think> names each value asked for and never with
// another number. Without </think> a chain has no answer yet. When `n_wrong_lines` is not null it gets the number of
// chain lines that are missing, differ from the expected text in any character, or should not be there; an answer that
// is right without any is strictly right.
bool answer_is_right(const Problem& problem, const std::string& model_text, int* n_wrong_lines = nullptr);

// The same for the answer to a follow-up question; a text with a think block is judged by what follows it.
bool follow_up_is_right(const FollowUp& follow_up, const std::string& model_text);

// Problems from given numbers, where make_problem draws them. The arguments must be in range: lags 1..start.size(),
// start not empty, target >= start.size(), early below target or -1.
Problem rule_problem(const std::vector<int>& start, int lag_left, char op, int lag_right, int target, int early = -1);
Problem base_problem(const std::vector<int>& start, int lag, char op, int every, int target, int early = -1);
// `order` is the order of the facts in the prompt: a permutation of 0..steps.size()-1. Only given steps need
// their values; an operand's index is below that of its step.
Problem facts_problem(std::vector<ChainStep> steps, const std::vector<int>& order, int target);

}  // namespace weir_cli
