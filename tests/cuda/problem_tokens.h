// Problems of the tiny reasoner as tokens, for tests that want attention as trained models have it. The problems' source is compiled in here: tests of
// the library's internals are not linked with the weir program's parts.
#pragma once

#include <string>
#include <vector>

#include "samples/cli/problems.cpp"
#include "tests/cuda/cuda_test.h"

namespace weir::test {

struct ProblemTokens {
  std::string name;
  std::vector<weir_token> prompt;  // with the turn's frame
  std::vector<weir_token> answer;  // the right one
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
