// How well attention that learns from its past finds what matters: over the steps of a real text, the share of the best
// `top` tokens by exact logits that a head attends, and the share of the head's attention that these tokens have. The
// operation of the library is wrapped by the linker (tests/CMakeLists.txt).
//   bench_overlap -m MODEL -t TEXT [-p PROMPT_TOKENS] [-n STEPS] [-b BUDGET] [-o OPTION=VALUE]... [-j THREADS]
// Prints a JSON line: means over heads and steps; heads that only looked at their sinks are counted in `bypassed`.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "ops/ops.h"
#include "quant/half.h"
#include "tests/bench/session_bench.h"

namespace {

struct Counts {
  double overlap = 0.0, captured = 0.0, exact = 0.0, read = 0.0;
  uint64_t heads = 0, bypassed = 0, streams = 0;
};
Counts counts;

// Softmax over sinks and tokens of one head, in f32 products and f64 sums.
std::vector<double> weights_of(const weir::AttnHistoryArgs& a, uint32_t head) {
  const weir::KvView& kv = a.attn.kv;
  const uint32_t kv_head = head / (a.attn.n_heads / kv.n_kv_heads);
  std::vector<double> w(a.attn.pos + 1);
  for (uint32_t pos = 0; pos <= a.attn.pos; ++pos) {
    const auto keys = kv.stored_keys_of(kv_head, pos / weir::kPageTokens);
    float dot = 0.0f;
    for (uint32_t i = 0; i < kv.head_dim; ++i)
      dot += a.attn.q[head * kv.head_dim + i] * weir::load_element(keys, pos % weir::kPageTokens, i);
    w[pos] = weir::soft_capped(a.attn.scale * dot, a.attn.soft_cap);
  }
  const double high = *std::max_element(w.begin(), w.end());
  double sum = 0.0;
  for (double& x : w) sum += x = std::exp(x - high);
  for (double& x : w) x /= sum;
  return w;
}

void count_head(const weir::AttnHistoryArgs& a, uint32_t head, const std::vector<double>& w) {
  const uint32_t n_sink = a.rules.n_sink, n = a.attn.pos + 1 - n_sink;
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::nth_element(order.begin(), order.begin() + a.size.top - 1, order.end(),
                   [&](uint32_t x, uint32_t y) { return w[x + n_sink] > w[y + n_sink]; });
  const uint32_t* chosen = a.chosen + size_t{head} * a.history.capacity;
  uint32_t found = 0;
  double best = 0.0, got = 0.0;
  for (uint32_t i = 0; i < n_sink; ++i) best += w[i], got += w[i];
  for (uint32_t i = 0; i < a.size.top; ++i) {
    found += std::binary_search(chosen, chosen + a.n_chosen[head], order[i]) ? 1 : 0;
    best += w[order[i] + n_sink];
  }
  for (uint32_t i = 0; i < a.n_chosen[head]; ++i) got += w[chosen[i] + n_sink];
  counts.overlap += double(found) / a.size.top;
  counts.exact += best;
  counts.captured += got;
  ++counts.heads;
}

}  // namespace

extern "C" weir::Status __real__ZN4weir3cpu12attn_historyERNS_9OpContextERKNS_15AttnHistoryArgsE(
    weir::OpContext& cx, const weir::AttnHistoryArgs& a);

extern "C" weir::Status __wrap__ZN4weir3cpu12attn_historyERNS_9OpContextERKNS_15AttnHistoryArgsE(
    weir::OpContext& cx, const weir::AttnHistoryArgs& a) {
  weir::AttnHistoryArgs args = a;
  std::vector<uint32_t> chosen(size_t{a.attn.n_heads} * a.history.capacity), n_chosen(a.attn.n_heads);
  args.chosen = chosen.data();
  args.n_chosen = n_chosen.data();
  const weir::Status status = __real__ZN4weir3cpu12attn_historyERNS_9OpContextERKNS_15AttnHistoryArgsE(cx, args);
  for (uint32_t head = 0; status.ok() && head < a.attn.n_heads; ++head) {
    if (n_chosen[head] == 0) ++counts.bypassed;
    if (n_chosen[head] != 0) count_head(args, head, weights_of(args, head));
  }
  for (uint32_t i = 0; i < a.attn.kv.n_kv_heads; ++i, ++counts.streams)
    counts.read += double(a.n_read[i]) / (a.attn.pos + 1);
  return status;
}

int main(int argc, char** argv) {
  using session_bench::check;
  const char *model_path = nullptr, *text_path = nullptr;
  uint32_t n_prompt = 3968, n_steps = 128, budget = 0, threads = 1;
  std::vector<std::string> texts;
  session_bench::read_flags(argc, argv,
                            {{'m', &model_path},
                             {'t', &text_path},
                             {'p', nullptr, &n_prompt},
                             {'n', nullptr, &n_steps},
                             {'b', nullptr, &budget},
                             {'j', nullptr, &threads},
                             {'o', nullptr, nullptr, &texts}});
  std::ifstream file(text_path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  weir_runtime_options runtime_options = WEIR_RUNTIME_OPTIONS_INIT;
  runtime_options.n_threads = threads;
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  check(weir_runtime_create(&runtime_options, &runtime), "runtime");
  check(weir_model_open(runtime, model_path, nullptr, &model), "model");
  std::vector<weir_token> tokens(text.size() + 16);
  uint64_t n_tokens = 0;
  check(weir_tokenize(model, text.data(), text.size(), 0, tokens.data(), tokens.size(), &n_tokens), "tokenize");
  std::vector<weir_key_value> options;
  for (std::string& option : texts) {
    const size_t at = option.find('=');
    option[at] = '\0';
    options.push_back({option.c_str(), option.c_str() + at + 1});
  }
  weir_session_options o = WEIR_SESSION_OPTIONS_INIT;
  o.device = WEIR_DEVICE_CPU;
  o.context_tokens = n_prompt + n_steps + 16;
  o.policy = "lfps";
  o.policy_options = options.data();
  o.n_policy_options = static_cast<uint32_t>(options.size());
  o.budget_tokens = budget;
  weir_session* session = nullptr;
  check(weir_session_create(model, &o, &session), "create");
  check(weir_session_prefill(session, tokens.data(), n_prompt, nullptr, nullptr), "prefill");
  for (uint32_t i = 0; i < n_steps; ++i) check(weir_session_step(session, tokens[n_prompt + i]), "step");
  const double heads = std::max<double>(1.0, counts.heads);
  std::printf(
      "{\"prompt\": %u, \"steps\": %u, \"overlap\": %.4f, \"captured\": %.4f, \"captured_by_exact\": %.4f, "
      "\"keys_read_percent\": %.2f, \"bypassed\": %.4f}\n",
      n_prompt, n_steps, counts.overlap / heads, counts.captured / heads, counts.exact / heads,
      100.0 * counts.read / std::max<double>(1.0, counts.streams),
      double(counts.bypassed) / std::max<double>(1.0, counts.heads + counts.bypassed));
  weir_session_destroy(session);
  weir_model_close(model);
  weir_runtime_destroy(runtime);
  return 0;
}
