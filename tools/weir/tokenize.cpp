// weir tokenize: the text on stdin as token ids on one line. Works with vocabulary-only files too.
#include <CLI/CLI.hpp>
#include <memory>

#include "commands.h"
#include "input.h"
#include "options.h"
#include "output.h"

namespace weir_cli {
namespace {

struct TokenizeFlags {
  std::string model;
  bool parse_special = false;
  bool bos = false;
};

int run_tokenize(const TokenizeFlags& flags) {
  const RuntimePtr runtime = create_runtime(1);
  const ModelPtr model = open_model(runtime.get(), flags.model, WEIR_MODEL_VOCAB_ONLY);
  const uint32_t how = (flags.parse_special ? static_cast<uint32_t>(WEIR_TOKENIZE_SPECIAL) : 0u) |
                       (flags.bos ? static_cast<uint32_t>(WEIR_TOKENIZE_BOS_EOS) : 0u);
  std::string line;
  std::vector<weir_token> tokens = tokenize(model.get(), read_stdin(), how);
  weir_special_tokens special = WEIR_SPECIAL_TOKENS_INIT;
  check(weir_model_special_tokens(model.get(), &special), "cannot read the special tokens");
  // A text that begins with the token itself needs no second one.
  if (flags.bos && tokens.size() > 1 && special.bos >= 0 && tokens[0] == special.bos && tokens[1] == special.bos)
    tokens.erase(tokens.begin());
  for (weir_token token : tokens) {
    if (!line.empty()) line += ' ';
    line += std::to_string(token);
  }
  put_line(line);
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& program, Action& action) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* app = program.add_subcommand("tokenize", "Text from stdin to token ids on one line");
  add_model_flag(*app, flags->model)->required();
  app->add_flag("--parse-special", flags->parse_special,
                "Text such as <|im_end|> becomes the special token of that name");
  app->add_flag("--bos", flags->bos, "Add the begin and end tokens that the file asks for");
  app->callback([flags, &action] { action = [flags] { return run_tokenize(*flags); }; });
}

}  // namespace weir_cli
