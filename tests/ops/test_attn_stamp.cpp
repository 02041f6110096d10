// ops: attn_stamp. Mirrors lib/ops/attn_stamp_ref.cpp; on a GPU the attention kernel does the stamping
// (cuda/attn/attn_decode.cu).
#include "tests/ops/attn_case.h"

namespace weir::test {
namespace {

constexpr uint32_t kOldStamp = 3;
constexpr float kNearest = 1e-4f;  // masses this near to alpha could fall on either side of it

struct Spec {
  KvShapeSpec kv;
  uint32_t group;
  StampRule rule;
  float r, alpha;
  bool bent = false;  // with sinks and a soft cap
};

struct Result {
  std::vector<float> out, mass, stamp, score;
};

class StampCase {
 public:
  StampCase(const Spec& s, uint64_t seed) : spec_(s), attn_(attn_spec(s), seed) {
    // Large queries, so that some masses are above any threshold and most are below.
    for (float& x : attn_.q) x *= 4.0f;
    const size_t n_rows = size_t{s.kv.n_kv_heads} * attn_.kv.capacity();
    Random random(s.kv.n_pages);
    flags_.resize(n_rows);
    for (uint32_t& f : flags_) f = random.below(4) == 0 ? kPagePinned | kPagePrompt : 0u;
    stamp_.assign(n_rows, kOldStamp);
    score_.assign(n_rows, -1.0f);
  }

  Result run(const Backend& backend) {
    AttnStampArgs a = {};
    a.attn = attn_.args();
    a.stamp.weight = a.attn.page_mass;
    a.stamp.stamp = stamp_.data();
    a.stamp.last_score = score_.data();
    a.stamp.flags = flags_.data();
    a.stamp.n_pages = a.attn.kv.n_pages;
    a.stamp.capacity = a.attn.kv.capacity;
    a.stamp.n_heads = a.attn.n_heads;
    a.stamp.n_kv_heads = spec_.kv.n_kv_heads;
    a.stamp.now = a.attn.pos + 1;
    a.stamp.rule = spec_.rule;
    a.stamp.r = spec_.r;
    a.stamp.alpha = spec_.alpha;
    Machine machine(backend, attn_.shapes());
    machine.check(backend.ops.attn_stamp(machine.cx(), a));
    return {attn_.out, attn_.mass, std::vector<float>(stamp_.begin(), stamp_.end()), score_};
  }

 private:
  static AttnSpec attn_spec(const Spec& s) {
    AttnSpec spec;
    spec.kv = s.kv;
    spec.n_heads = s.kv.n_kv_heads * s.group;
    spec.page_mass = true;
    spec.sinks = s.bent;
    spec.soft_cap = s.bent ? 3.0f : 0.0f;
    return spec;
  }

  Spec spec_;
  AttnCase attn_;
  std::vector<uint32_t> flags_, stamp_;
  std::vector<float> score_;
};

// The first seed for which all masses are clearly above or below alpha, so that stamps can be compared exactly.
uint64_t seed_of(const Spec& s) {
  for (uint64_t seed = 1;; ++seed) {
    const std::vector<float> score = StampCase(s, seed).run(reference_backend()).score;
    const auto is_near = [&](float w) { return std::fabs(w - s.alpha) < kNearest; };
    if (s.rule != StampRule::kAlpha || std::none_of(score.begin(), score.end(), is_near)) return seed;
  }
}

std::vector<Output> run_spec(const Backend& backend, const Spec& s, uint64_t seed) {
  const Result got = StampCase(s, seed).run(backend);
  return {{"out", got.out}, {"mass", got.mass}, {"stamp", got.stamp}, {"last_score", got.score}};
}

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  const auto add = [&](const std::string& name, const Spec& s) {
    list.push_back({"attn_stamp__" + name, [s, seed = seed_of(s)](const Backend& b) { return run_spec(b, s, seed); },
                    1e-11, "order of f32 sums, logits up to 20", kCudaLargeLogitsNmse, kCudaAttnReason});
  };
  for (uint32_t d : {24u, 64u, 80u, 128u, 256u}) {
    for (uint32_t group : {1u, 3u, 4u, 8u, 12u}) {
      if (d != 64 && d != 128 && group != 4) continue;
      for (uint32_t pages : {1u, 5u, 33u, 300u}) {
        KvShapeSpec kv;
        kv.n_kv_heads = 2;
        kv.head_dim = d;
        kv.n_pages = pages;
        kv.last_len = 1 + pages % kPageTokens;
        kv.gaps = pages > 4;
        const std::string tail =
            "d" + std::to_string(d) + "_g" + std::to_string(group) + "_" + std::to_string(pages) + "_pages";
        add("alpha_0.2_" + tail, {kv, group, StampRule::kAlpha, 0.0f, 0.2f});
        if (d == 64) add("alpha_0.9_" + tail, {kv, group, StampRule::kAlpha, 0.0f, 0.9f});
        if (group == 4) add("sinks_and_soft_cap_" + tail, {kv, group, StampRule::kAlpha, 0.0f, 0.1f, true});
        if (d == 64 && group == 3) add("top_r_" + tail, {kv, group, StampRule::kTopR, 0.5f, 0.0f});
      }
    }
  }
  return list;
}

// Each case has stamped and unstamped pages; otherwise it could not detect missing stamps.
void some_pages_are_stamped(void**) {
  KvShapeSpec kv;
  kv.n_kv_heads = 3;
  kv.n_pages = 150;
  const Result got = StampCase({kv, 4, StampRule::kAlpha, 0.0f, 0.1f}, 1).run(reference_backend());
  const auto n_old = static_cast<size_t>(std::count(got.stamp.begin(), got.stamp.end(), float{kOldStamp}));
  const size_t n_unused = size_t{kv.n_kv_heads} * kv.spare_rows;
  assert_true(got.stamp.size() - n_old > 2 * size_t{kv.n_kv_heads});  // more than the open pages
  assert_true(n_old > n_unused + got.stamp.size() / 2);
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/attn_stamp", cases(), {}, {cmocka_unit_test(some_pages_are_stamped)});
}
