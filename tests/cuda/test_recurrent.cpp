// cuda: the kernels of recurrent layers (cuda/recurrent), compiled for the host and run by blocks whose threads take
// turns (on_host/cuda/common/base.cuh), in the cases of the ops' own tests. No GPU is needed.
#include "tests/ops/delta_net_case.h"
#include "tests/ops/mamba2_case.h"
#include "tests/ops/short_conv_case.h"

#include "cuda/recurrent/finish.cuh"
#include "cuda/recurrent/scan.cuh"
#include "cuda/recurrent/short_conv.cuh"
#include "cuda/recurrent/step.cuh"

namespace weir::test {
namespace {

using namespace weir::cuda;

// Runs body(shared) as a block, with shared memory that nobody has written.
template <class Shared, class Body>
void run_block(uint32_t n_threads, const Body& body) {
  static HostBlock step(kStepThreads), scan(kScanThreads), finish(kFinishThreads);
  static Shared shared;
  std::memset(static_cast<void*>(&shared), 0xFF, sizeof(shared));
  HostBlock& block = n_threads == kStepThreads ? step : n_threads == kScanThreads ? scan : finish;
  const std::string error = block.run([&] { body(shared); });
  if (!error.empty()) fail_msg("%s", error.c_str());
}

template <bool kDelta, uint32_t kTaps>
void run_step(const RecurrentArgs& a) {
  for (uint32_t h = 0; h < a.n_heads; ++h)
    run_block<StepShared>(kStepThreads, [&](StepShared& s) { step_head<kDelta, kTaps>(a, h, s); });
}

template <bool kDelta, uint32_t kTaps, uint32_t kRowQuads>
void run_scan(const RecurrentArgs& a) {
  using Shared = ScanShared<kRowQuads>;
  for (uint32_t h = 0; h < a.n_heads; ++h) {
    for (uint32_t column = 0; column < a.value_dim; column += kScanColumns)
      run_block<Shared>(kScanThreads, [&](Shared& s) { scan_columns<kDelta, kTaps, kRowQuads>(a, h, column, s); });
  }
}

template <bool kDelta, uint32_t kTaps>
void run(const RecurrentArgs& a) {
  if (a.n_tok == 1) return run_step<kDelta, kTaps>(a);
  if (a.key_dim <= 64) return run_scan<kDelta, kTaps, 2>(a);
  return a.key_dim <= 128 ? run_scan<kDelta, kTaps, 4>(a) : run_scan<kDelta, kTaps, 8>(a);
}

template <bool kDelta>
void run(const RecurrentArgs& a) {
  return a.conv.n_taps == 4 ? run<kDelta, 4>(a) : run<kDelta, 0>(a);
}

Status delta_net(OpContext&, const DeltaNetArgs& op) {
  const RecurrentArgs a = recurrent_args(op);
  run<true>(a);
  if (a.n_tok == 1) return {};
  for (size_t first = 0; first < size_t{a.n_tok} * a.n_heads; first += kFinishWarps) {
    run_block<float>(kFinishThreads, [&](float&) {
      const size_t head = first + threadIdx.x / kWarp;
      if (head < size_t{a.n_tok} * a.n_heads) finish_delta_head(a, head);
    });
  }
  return {};
}

struct FinishShared {
  float sums[kFinishWarps];
};

Status mamba2(OpContext&, const Mamba2Args& op) {
  const RecurrentArgs a = recurrent_args(op);
  run<false>(a);
  for (uint32_t tok = 0; tok < a.n_tok; ++tok) {
    for (uint32_t group = 0; group < a.n_key_heads; ++group) {
      run_block<FinishShared>(kFinishThreads, [&](FinishShared& s) { finish_mamba_group(a, tok, group, s.sums); });
    }
  }
  return {};
}

Status short_conv(OpContext&, const ShortConvArgs& a) {
  for (uint32_t channel = 0; channel < a.conv.n_channels; ++channel) {
    for (uint32_t part = 0; part * kShortConvTokens < a.n_tok; ++part) {
      if (a.conv.n_taps == 3) short_conv_channel<3>(a, channel, part);
      if (a.conv.n_taps == 4) short_conv_channel<4>(a, channel, part);
      if (a.conv.n_taps != 3 && a.conv.n_taps != 4) short_conv_channel<0>(a, channel, part);
    }
  }
  return {};
}

const Backend& host_blocks() {
  static Backend backend = reference_backend();
  backend.device = WEIR_DEVICE_CUDA;
  backend.ops.delta_net = delta_net;
  backend.ops.mamba2 = mamba2;
  backend.ops.short_conv = short_conv;
  return backend;
}

// Compares all that a case computes with the reference, also in passes of five tokens, and of one.
template <class Case>
void check(const Case& c, const char* name, double max_nmse) {
  const std::vector<Output> want = run_at_once(reference_backend(), c);
  for (const uint32_t n : {c.n_tok(), 5u, 1u}) {
    if (n != c.n_tok() && (n > c.n_tok() || c.n_tok() > 10)) continue;
    const std::vector<Output> got = run_in_passes(host_blocks(), c, n);
    for (size_t i = 0; i < want.size(); ++i) {
      const std::string what = std::string(name) + " in passes of " + std::to_string(n) + ", " + want[i].name;
      assert_true(
          close_enough(what.c_str(), got[i].values.data(), want[i].values.data(), got[i].values.size(), max_nmse));
    }
  }
}

void recurrent__delta_net(void**) {
  for (DeltaSpec s : kDeltaSpecs) {
    if (!has_recurrent_kernels(s.key_dim, s.value_dim, s.n_taps)) continue;
    if (s.key_dim > 64) s.n_tok = std::min(s.n_tok, 20u);
    check(DeltaCase(s), s.name, kDeviceNmse);
  }
}

void recurrent__mamba2(void**) {
  for (MambaSpec s : kMambaSpecs) {
    if (!has_recurrent_kernels(s.key_dim, s.value_dim, s.n_taps)) continue;
    if (s.key_dim > 64) s.n_tok = std::min(s.n_tok, 20u);
    check(MambaCase(s), s.name, kDeviceNmse);
  }
}

void recurrent__short_conv(void**) {
  for (const ShortConvSpec& s : kShortConvSpecs) check(ShortConvCase(s), s.name, 1e-13);
}

// Sizes that the kernels would read past the end of, or that no number of theirs stands for.
void recurrent__sizes_are_limited(void**) {
  assert_true(has_recurrent_kernels(128, 128, 4) && has_recurrent_kernels(256, 256, 64));
  assert_true(has_recurrent_kernels(4, 4, 1));
  assert_false(has_recurrent_kernels(126, 128, 4) || has_recurrent_kernels(128, 130, 4));
  assert_false(has_recurrent_kernels(260, 128, 4) || has_recurrent_kernels(128, 260, 4));
  assert_false(has_recurrent_kernels(0, 128, 4) || has_recurrent_kernels(128, 0, 4));
  assert_false(has_recurrent_kernels(128, 128, 0) || has_recurrent_kernels(128, 128, 65));
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(recurrent__delta_net),
      cmocka_unit_test(recurrent__mamba2),
      cmocka_unit_test(recurrent__short_conv),
      cmocka_unit_test(recurrent__sizes_are_limited),
  };
  return cmocka_run_group_tests_name("cuda/recurrent", tests, nullptr, nullptr);
}
