// cli: what weir run tells about probabilities, and the flags that change which token is drawn.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/cli_test.h"
#include "tools/lab/problems.h"

using nlohmann::json;
using namespace weir_cli;
using namespace weir_cli::test;

namespace {

json answer(std::vector<std::string> flags) {
  std::vector<std::string> all = {"run", "-m", kModel, "-p", short_problem().prompt, "--json"};
  all.insert(all.end(), flags.begin(), flags.end());
  const Output o = weir(all);
  assert_works(o);
  return json::parse(o.out);
}

// A list per answer, an object per token; greedily the token is the first of the best, and the texts make the answer.
void sampling_flags__logprobs(void**) {
  const json plain = answer({"-n", "12"}), told = answer({"-n", "12", "--logprobs", "3"});
  assert_false(plain.contains("logprobs"));
  assert_true(told["text"] == plain["text"]);
  assert_int_equal(told["logprobs"].size(), 1);
  const json& tokens = told["logprobs"][0];
  assert_int_equal(tokens.size(), 12);
  std::string text;
  for (const json& token : tokens) {
    text += token["text"].get<std::string>();
    const json& top = token["top"];
    assert_int_equal(top.size(), 3);
    assert_true(top[0]["id"] == token["id"] && top[0]["logprob"] == token["logprob"]);
    double sum = 0;
    for (size_t i = 0; i < 3; ++i) {
      sum += std::exp(top[i]["logprob"].get<double>());
      assert_true(i == 0 || top[i]["logprob"].get<double>() <= top[i - 1]["logprob"].get<double>());
    }
    assert_true(sum > 0 && sum < 1.0001);
  }
  assert_string_equal(text.c_str(), plain["text"].get<std::string>().c_str());
}

void sampling_flags__bias_and_penalties(void**) {
  const json told = answer({"-n", "4", "--logprobs", "2"});
  const auto id_of = [](const json& token) { return std::to_string(token["id"].get<int>()); };
  const json first = told["logprobs"][0][0], second = first["top"][1];
  const auto first_with = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"-n", "1", "--logprobs", "1"});
    return id_of(answer(flags)["logprobs"][0][0]);
  };
  assert_string_equal(first_with({"--logit-bias", id_of(first) + "=-100"}).c_str(), id_of(second).c_str());
  assert_string_equal(first_with({"--logit-bias", id_of(second) + "=100"}).c_str(), id_of(second).c_str());
  assert_string_equal(first_with({"--logit-bias", "40=-1.5", "--logit-bias", id_of(second) + "=100"}).c_str(),
                      id_of(second).c_str());
  // Raised by far, a token comes each time unless it wears itself out.
  const auto count = [](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"-n", "30", "--logprobs", "1", "--logit-bias", "40=50"});
    const json tokens = answer(flags)["logprobs"][0];
    return std::count_if(tokens.begin(), tokens.end(), [](const json& token) { return token["id"] == 40; });
  };
  assert_int_equal(count({}), 30);
  assert_int_equal(count({"--presence-penalty", "2"}), 30);  // once is not enough
  const auto n_worn = count({"--frequency-penalty", "2"});
  assert_true(n_worn > 5 && n_worn < 30);
  const std::vector<std::string> plain = {"--temp", "3", "--seed", "1", "-n", "40"};
  std::vector<std::string> penalised = plain;
  penalised.insert(penalised.end(), {"--presence-penalty", "2"});
  assert_true(answer(plain)["text"] == answer(plain)["text"] && answer(plain)["text"] != answer(penalised)["text"]);
}

void sampling_flags__min_tokens(void**) {
  const json whole = answer({});
  assert_string_equal(whole["stop"].get<std::string>().c_str(), "eos");
  const auto n = whole["n_decode"].get<uint32_t>();
  const json more = answer({"--min-tokens", std::to_string(n + 5), "-n", std::to_string(n + 9)});
  assert_true(more["n_decode"].get<uint32_t>() >= n + 5);
  assert_true(more["text"].get<std::string>().starts_with(whole["text"].get<std::string>()));
}

void sampling_flags__bad_ones(void**) {
  const std::vector<std::string> run = {"run", "-m", kModel, "-p", "x"};
  const auto fails = [&](std::vector<std::string> flags, int status, const std::string& part) {
    std::vector<std::string> all = run;
    all.insert(all.end(), flags.begin(), flags.end());
    assert_fails(weir(all), status, {part});
  };
  fails({"--logprobs", "3"}, 2, "--logprobs needs --json");
  fails({"--json", "--logprobs", "65"}, 2, "--logprobs");
  fails({"--presence-penalty", "2.1"}, 2, "--presence-penalty");
  fails({"--frequency-penalty", "nan"}, 2, "--frequency-penalty");
  for (const char* bias : {"40", "=1", "40=", "40=101", "-1=1", "4 0=1", "40=1x", "x=1", "40=nan"})
    fails({"--logit-bias", bias}, 2, "--logit-bias");
  fails({"--logit-bias", "99999999=1"}, 1, "token 99999999 is not in 0..");
  fails({"--min-tokens", "-1"}, 2, "--min-tokens");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sampling_flags__logprobs),
      cmocka_unit_test(sampling_flags__bias_and_penalties),
      cmocka_unit_test(sampling_flags__min_tokens),
      cmocka_unit_test(sampling_flags__bad_ones),
  };
  return cmocka_run_group_tests_name("cli/test_sampling_flags", tests, nullptr, nullptr);
}
