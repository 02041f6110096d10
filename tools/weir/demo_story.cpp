// The stories of `weir demo`; see demo_story.h.
#include "demo_story.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "options.h"
#include "problems.h"

namespace weir_cli {
namespace {

// The window's first page always stays, so the secret begins behind it. Nine numbers also are few enough that the last
// lines of the chain, which the window has, are all that it needs.
constexpr int kLag = 9;
constexpr int kLineTokens = 19;  // of a chain line, at most about
constexpr int kFrameTokens = 60;

// The positions in which two token lists differ, from the first to behind the last, as positions of `a`.
std::pair<uint32_t, uint32_t> difference(const std::vector<weir_token>& a, const std::vector<weir_token>& b) {
  const size_t n = std::min(a.size(), b.size());
  size_t first = 0, behind = 0;
  while (first < n && a[first] == b[first]) ++first;
  while (behind < n - first && a[a.size() - 1 - behind] == b[b.size() - 1 - behind]) ++behind;
  return {static_cast<uint32_t>(first), static_cast<uint32_t>(std::max(a.size() - behind, first + 1))};
}

std::vector<weir_token> opening_of(const weir_model* model, const std::string& prompt) {
  return tokenize_chat(model, {{"user", prompt}}, WEIR_CHAT_ADD_ASSISTANT);
}

Problem chain_problem(const std::vector<int>& start, const ChainStep& first, int target) {
  const int n = static_cast<int>(start.size());
  return rule_problem(start, n - first.left, first.op, n - first.right, target);
}

}  // namespace

std::optional<Secret> parse_secret(const std::string& text) {
  std::string digits = text;
  digits.erase(std::remove(digits.begin(), digits.end(), ' '), digits.end());
  if (digits.size() != kSecretDigits ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  Secret secret;
  for (size_t i = 0; i < secret.size(); ++i) secret[i] = (digits[2 * i] - '0') * 10 + (digits[2 * i + 1] - '0');
  return secret;
}

std::string secret_text(const Secret& secret) {
  std::string text;
  for (int number : secret) text += (text.empty() ? "" : " ") + std::to_string(number);
  return text;
}

std::string drawn_secret(uint64_t seed) {
  ProblemOptions options;
  options.lag = kLag;
  options.seed = seed;
  const Problem drawn = make_problem(options);
  std::string digits;
  for (int i = kLag - kSecretNumbers; i < kLag; ++i)
    digits += format("%02d", drawn.steps[static_cast<size_t>(i)].value);
  return digits;
}

Story chain_story(const weir_model* model, int steps, uint64_t seed, const Secret& secret) {
  constexpr int kFirst = kLag - kSecretNumbers;
  ProblemOptions options;
  options.steps = steps;
  options.lag = kLag;
  options.seed = seed;
  const Problem drawn = make_problem(options);
  std::vector<int> start, other_start;
  for (int i = 0; i < kLag; ++i) {
    const int value = i < kFirst ? drawn.steps[static_cast<size_t>(i)].value : secret[static_cast<size_t>(i - kFirst)];
    start.push_back(value);
    other_start.push_back(i < kFirst ? value : (value + kModulus / 2) % kModulus);
  }
  const Problem problem = chain_problem(start, drawn.steps[kLag], drawn.target);
  const Problem other = chain_problem(other_start, drawn.steps[kLag], drawn.target);

  Story story;
  story.secret = secret_text(secret);
  story.told = "The model is told three numbers as x6, x7 and x8, thinks for " + std::to_string(steps) +
               " steps, and is then asked for them.";
  story.opening = opening_of(model, problem.prompt);
  std::tie(story.secret_first, story.secret_end) = difference(story.opening, opening_of(model, other.prompt));
  story.think_tokens = static_cast<uint32_t>(steps * kLineTokens + kFrameTokens);
  story.chance = 1;
  for (int i = 0; i < kSecretNumbers; ++i) {
    Question question;
    question.index = kFirst + i;
    question.text = "What was x" + std::to_string(question.index) + "?";
    question.tokens = tokenize_chat(model, {{"user", question.text}}, WEIR_CHAT_ADD_ASSISTANT | WEIR_CHAT_CONTINUE);
    question.wanted = std::to_string(secret[static_cast<size_t>(i)]);
    story.questions.push_back(std::move(question));
    story.chance /= kModulus;
  }
  return story;
}

Story text_story(const weir_model* model, const TextStory& told) {
  std::string text = told.text;
  if (const std::vector<weir_token> tokens = tokenize(model, text, 0); tokens.size() > told.max_tokens) {
    text = detokenize(model, {tokens.begin(), tokens.begin() + told.max_tokens}, 0);
    text.erase(std::min(text.find_last_of(" \n"), text.size()));  // no half of a character
  }
  const auto turns = [&](const std::string& fact, const std::string& question) {
    const std::vector<Message> messages = {{"user", fact},
                                           {"assistant", fact + " I will remember it."},
                                           {"user", text},
                                           {"assistant", "I have read it."},
                                           {"user", question}};
    return tokenize_chat(model, messages, WEIR_CHAT_ADD_ASSISTANT);
  };
  const std::vector<weir_token> all = turns(told.fact, told.question);
  Story story;
  story.secret = told.wanted;
  story.told = "The model is told a fact, reads a text, and is asked for the fact.";
  std::tie(story.secret_first, story.secret_end) = difference(all, turns("Nothing.", told.question));
  const auto question_at = static_cast<ptrdiff_t>(difference(all, turns(told.fact, "?")).first);
  story.opening.assign(all.begin(), all.begin() + question_at);
  Question question;
  question.text = told.question;
  question.tokens.assign(all.begin() + question_at, all.end());
  question.wanted = told.wanted;
  story.questions.push_back(std::move(question));
  return story;
}

bool is_right(const Question& question, const std::string& said) {
  if (question.index < 0) return said.find(question.wanted) != std::string::npos;
  FollowUp asked;
  asked.index = question.index;
  asked.question = question.text;
  asked.answer = "x" + std::to_string(question.index) + " = " + question.wanted + ".";
  return follow_up_is_right(asked, said);
}

std::string short_answer(const Question& question, const std::string& said) {
  if (question.index < 0) return said;
  const std::string name = "x" + std::to_string(question.index) + " = ";
  const size_t at = said.find(name);
  const std::string rest = at == std::string::npos ? "" : said.substr(at + name.size());
  const std::string digits = rest.substr(0, rest.find_first_not_of("0123456789"));
  return digits.empty() ? "?" : digits;
}

}  // namespace weir_cli
