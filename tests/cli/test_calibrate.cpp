// cli: weir calibrate. The head file that it writes has the model's shape and scores from 0 to 1, is the same every
// time, and a session takes it; what is wrong is told and leaves no file.
#include "tests/cli/cli_test.h"

using namespace weir_cli::test;

namespace {

// Some hundred different words.
std::string words() {
  std::string text;
  for (int i = 0; i < 40; ++i) {
    for (const char* word : {"apple", "river", "stone", "window", "garden", "letter", "music", "paper"})
      text += std::string(word) + std::to_string(i) + (i % 7 == 0 ? ". " : " ");
  }
  return text;
}

std::vector<std::string> command(const std::string& text, const std::string& out,
                                 const std::vector<std::string>& more = {}) {
  std::vector<std::string> all = {"calibrate", "--heads", "-m", kModel, "--text", text, "-o", out, "--tokens", "64"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// A table of numbers from 0 to 1, some of which are not 0.
std::vector<double> scores(std::istringstream& in, size_t n) {
  std::vector<double> all(n);
  double sum = 0;
  for (double& score : all) {
    assert_false((in >> score).fail());
    assert_true(score >= 0 && score <= 1);
    sum += score;
  }
  assert_true(sum > 0);
  return all;
}

void calibrate__writes_a_head_file(void**) {
  const std::string text = write_file("words.txt", words()), a = (g_folder / "a.tsv").string(),
                    b = (g_folder / "b.tsv").string();
  assert_works(weir(command(text, a)));
  const std::string file = read_file(a);
  std::istringstream in(file);
  std::string name;
  uint32_t value = 0, n_layers = 0, n_kv_heads = 0;
  const std::vector<std::pair<const char*, uint32_t>> head = {{"weir-heads", 2}, {"layers", 0}, {"kv_heads", 0},
                                                              {"head_dim", 64},  {"sinks", 64}, {"recent", 256}};
  for (const auto& [want_name, want] : head) {
    in >> name >> value;
    assert_string_equal(name.c_str(), want_name);
    if (want != 0) assert_int_equal(value, want);
    if (name == "layers") n_layers = value;
    if (name == "kv_heads") n_kv_heads = value;
  }
  const std::vector<double> both = scores(in, n_layers * n_kv_heads);
  in >> name;
  assert_string_equal(name.c_str(), "echo");
  const std::vector<double> echo = scores(in, n_layers * n_kv_heads);
  in >> name;
  assert_string_equal(name.c_str(), "induction");
  const std::vector<double> induction = scores(in, n_layers * n_kv_heads);
  assert_true((in >> name).fail());
  // The two tests are not the same one, nor the sum of them.
  assert_true(echo != induction && echo != both && induction != both);
  // Nothing but the text and the options decides.
  assert_works(weir(command(text, b, {"--threads", "1"})));
  assert_true(read_file(b) == file);
  assert_works(weir(command(text, b, {"--sinks", "5", "--recent", "77"})));
  assert_true(contains(read_file(b), "sinks\t5\nrecent\t77\n"));
  assert_works(weir(
      {"plan", "-m", kModel, "--policy", "raas", "--budget", "256", "--opt", "heads=duo", "--opt", "heads_file=" + a}));
  for (const char* heads : {"heads=duo", "heads=razor"})
    assert_works(weir({"run", "-m", kModel, "-p", "2 + 3", "-n", "4", "--opt", heads, "--opt", "heads_file=" + a}));
}

// Heads are those of the layers with attention, one of this model's four.
void calibrate__recurrent_layers_have_no_heads(void**) {
  const std::string model = WEIR_SOURCE_DIR "/tests/golden/models/qwen35_f32.gguf";
  std::string signs;  // its tokens are bytes
  for (char c = '!'; c < '~'; ++c) signs += c;
  const std::string text = write_file("signs.txt", signs), heads = (g_folder / "recurrent.tsv").string();
  assert_works(weir({"calibrate", "-m", model, "--heads", "--text", text, "--tokens", "64", "-o", heads}));
  assert_true(contains(read_file(heads), "layers\t1\nkv_heads\t2\n"));
  assert_works(weir({"plan", "-m", model, "--device", "cpu", "--policy", "raas", "--budget", "256", "--opt",
                     "heads=duo", "--opt", "heads_file=" + heads}));
}

void calibrate__says_what_is_wrong(void**) {
  const std::string text = write_file("words.txt", words()), few = write_file("few.txt", "a b c"),
                    out = (g_folder / "none.tsv").string();
  assert_fails(weir({"calibrate", "-m", kModel, "--text", text, "-o", out}), 2, {"--heads"});
  assert_fails(weir(command(few, out)), 1, {"few.txt", "different tokens", "64", "--tokens"});
  assert_fails(weir(command((g_folder / "missing.txt").string(), out)), 1, {"missing.txt"});
  assert_fails(weir(command(text, out, {"--recent", "0"})), 2, {"--recent"});
  assert_false(std::filesystem::exists(out));
  assert_fails(weir(command(text, (g_folder / "no" / "folder.tsv").string())), 1, {"folder.tsv"});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(calibrate__writes_a_head_file),
      cmocka_unit_test(calibrate__recurrent_layers_have_no_heads),
      cmocka_unit_test(calibrate__says_what_is_wrong),
  };
  return cmocka_run_group_tests_name("cli_calibrate", tests, make_folder, remove_folder);
}
