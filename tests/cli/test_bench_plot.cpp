// cli: the picture of stored benchmark results. Mirrors tools/lab/bench_plot.cpp.
#include "bench_plot.h"

#include <sstream>
#include <stdexcept>

#include "tests/cmocka_cpp.h"

namespace {

const char kLines[] = R"({"shape":"8b","type":"q8_0","policy":"dense","budget":0,"device":"cuda","gpu":"A GPU",)"
                      R"("rows":[{"depth":0,"tok_per_s":390},{"depth":32768,"tok_per_s":280}]}
{"shape":"8b","type":"q8_0","policy":"raas","budget":1024,"device":"cuda",)"
                      R"("rows":[{"depth":4096,"tok_per_s":375},{"depth":131072,"tok_per_s":376}]}
{"shape":"1b","type":"f16","policy":"sink","budget":512,"device":"cuda","rows":[{"depth":0,"tok_per_s":1}]}
)";

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

void draws_the_lines_of_a_shape(void**) {
  std::istringstream in(kLines);
  const std::string svg = weir_cli::bench_plot_svg(in, "8b");
  assert_true(has(svg, "<svg") && has(svg, "</svg>"));
  assert_true(has(svg, "dense") && has(svg, "raas 1024") && has(svg, "q8_0"));
  assert_false(has(svg, "sink"));
}

template <class F>
void expect_refusal(const F& run, const char* part) {
  std::string message;
  try {
    run();
  } catch (const std::runtime_error& error) {
    message = error.what();
  }
  if (!has(message, part)) fail_msg("\"%s\" does not say \"%s\"", message.c_str(), part);
}

void refuses_what_cannot_be_drawn(void**) {
  const auto draw = [](const std::string& text, const char* shape) {
    std::istringstream in(text);
    (void)weir_cli::bench_plot_svg(in, shape);
  };
  expect_refusal([&] { draw(kLines, "1b"); }, "no result of shape 1b");  // a single depth is no line
  expect_refusal([&] { draw("", "8b"); }, "no result of shape 8b");
  expect_refusal([&] { draw("{\"shape\":\"8b\"}\n", "8b"); }, "line 1 is no result");
  expect_refusal([&] { draw(std::string(kLines) + "nonsense\n", "8b"); }, "line 4 is no result");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(draws_the_lines_of_a_shape),
      cmocka_unit_test(refuses_what_cannot_be_drawn),
  };
  return cmocka_run_group_tests_name("cli/bench_plot", tests, nullptr, nullptr);
}
