// What the lanes of `weir demo` are told and asked: a secret at the start, much in between, the questions, and whether
// an answer to one is right.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "weir_cpp.h"

namespace weir_cli {

inline constexpr int kSecretNumbers = 3, kSecretDigits = 6;
// Three numbers of two digits each.
using Secret = std::array<int, kSecretNumbers>;

// "481207", perhaps with spaces; none where it is anything else.
std::optional<Secret> parse_secret(const std::string& text);
std::string secret_text(const Secret& secret);  // "48 12 7"

struct Question {
  std::string text;
  std::vector<weir_token> tokens;  // what each lane is given for it
  std::string wanted;              // what a right answer says
  int index = -1;                  // of the value that is asked for; -1: the answer contains `wanted`
};

struct Story {
  std::string told;                           // what happens with the secret, in a sentence
  std::string secret;                         // as it is shown
  std::vector<weir_token> opening;            // what is read first
  uint32_t secret_first = 0, secret_end = 0;  // of its tokens, those of the secret
  uint32_t think_tokens = 0;                  // most tokens of thought before the questions; 0: none
  std::vector<Question> questions;
  double chance = 0;  // that an answer is right which is guessed
};

// The digits of a secret for those who give none.
std::string drawn_secret(uint64_t seed);

// A chain of `steps` lines that begins with nine numbers, of which the last three are the secret; the others and the
// rule are drawn by `seed`.
Story chain_story(const weir_model* model, int steps, uint64_t seed, const Secret& secret);

struct TextStory {
  std::string fact, question, wanted;
  std::string text;
  uint32_t max_tokens = 0;  // of the text
};
// A fact in a first turn; in the next one a text and a question about the fact.
Story text_story(const weir_model* model, const TextStory& told);

bool is_right(const Question& question, const std::string& said);
// What was answered, in few words: the number of a chain's value.
std::string short_answer(const Question& question, const std::string& said);

}  // namespace weir_cli
