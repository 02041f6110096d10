// Problems of the tiny reasoner as tokens, for tests that need the attention of a trained model. The source of the
// problems is compiled in here, because tests of the library's internals are not linked with the parts of the weir
// program.
#pragma once

#include <string>
#include <vector>

#include "tests/device/device_test.h"
#include "tools/lab/problems.cpp"

namespace weir::test {

struct ProblemTokens {
  std::string name;
  std::vector<weir_token> prompt;  // including the frame of the turn
  std::vector<weir_token> answer;  // the correct one
};

inline std::vector<weir_token> tokenized(const weir_model* model, const std::string& text) {
  uint64_t n = 0;
  weir_token* tokens = tokens_of(model, text.c_str(), &n);
  std::vector<weir_token> list(tokens, tokens + n);
  free(tokens);
  return list;
}

inline ProblemTokens problem_tokens(const weir_model* model, const weir_cli::ProblemOptions& options) {
  const weir_cli::Problem problem = weir_cli::make_problem(options);
  return {problem.id, tokenized(model, "<|im_start|>user\n" + problem.prompt + "<|im_end|>\n<|im_start|>assistant\n"),
          tokenized(model, problem.answer)};
}

}  // namespace weir::test
