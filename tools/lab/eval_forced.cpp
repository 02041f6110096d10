// weir eval --forced; see eval_forced.h.
#include "eval_forced.h"

#include <algorithm>

#include "eval_prediction.h"
#include "eval_results.h"
#include "eval_trace.h"
#include "terminal.h"

namespace weir_cli {
namespace {

constexpr size_t kMaxSessions = 8;    // of a group, besides the reference
constexpr uint64_t kTracedEvery = 4;  // steps; neighbours attend nearly the same pages
constexpr uint32_t kTopPages = 8;
constexpr uint32_t kFirstLayer = 2;  // the first layers attend evenly, so their top pages mean little

// The pages with the most mass of each (layer, query head) in one step of the reference.
class TopPages {
 public:
  explicit TopPages(const weir_model_info& info)
      : n_heads_(info.n_heads),
        first_layer_(info.n_layers > kFirstLayer ? kFirstLayer : 0),
        tops_(size_t{info.n_layers} * info.n_heads) {}

  static weir_status on_layer(void* user, const weir_trace_layer* layer) noexcept {
    static_cast<TopPages*>(user)->take(*layer);
    return WEIR_OK;
  }
  bool looks_at(uint32_t layer) const { return layer >= first_layer_; }
  const std::vector<uint32_t>& of(uint32_t layer, uint32_t head) const {
    return tops_[size_t{layer} * n_heads_ + head];
  }

 private:
  void take(const weir_trace_layer& layer) {
    if (!looks_at(layer.layer)) return;
    for (uint32_t head = 0; head < layer.n_heads; ++head) take_head(layer, head);
  }

  void take_head(const weir_trace_layer& layer, uint32_t head) {
    const HeadPages pages = head_pages(layer, head);
    order_.resize(pages.n_attended);
    for (uint32_t i = 0; i < pages.n_attended; ++i) order_[i] = i;
    const uint32_t k = std::min(kTopPages, pages.n_attended);
    std::partial_sort(order_.begin(), order_.begin() + k, order_.end(), [&](uint32_t a, uint32_t b) {
      return pages.mass[a] != pages.mass[b] ? pages.mass[a] > pages.mass[b] : a < b;
    });
    std::vector<uint32_t>& top = tops_[size_t{layer.layer} * n_heads_ + head];
    top.clear();
    const uint32_t* first_pos = layer.first_pos + size_t{pages.stream} * layer.capacity;
    for (uint32_t i = 0; i < k; ++i) top.push_back(first_pos[pages.row(order_[i])]);
  }

  uint32_t n_heads_, first_layer_;
  std::vector<std::vector<uint32_t>> tops_;  // [n_layers, n_heads] first positions
  std::vector<uint32_t> order_;
};

// How much of the true top pages a policy's session attends.
struct Recall {
  const TopPages* truth = nullptr;
  double sum = 0;
  uint64_t n = 0;

  static weir_status on_layer(void* user, const weir_trace_layer* layer) noexcept {
    static_cast<Recall*>(user)->compare(*layer);
    return WEIR_OK;
  }

  void compare(const weir_trace_layer& layer) {
    if (!truth->looks_at(layer.layer)) return;
    for (uint32_t head = 0; head < layer.n_heads; ++head) {
      const std::vector<uint32_t>& top = truth->of(layer.layer, head);
      const auto is_attended = [&](uint32_t first_pos) { return attends(layer, head, first_pos); };
      sum += static_cast<double>(std::count_if(top.begin(), top.end(), is_attended)) / static_cast<double>(top.size());
      ++n;
    }
  }

  // Pages are in ascending position.
  static bool attends(const weir_trace_layer& layer, uint32_t head, uint32_t first_pos) {
    const HeadPages pages = head_pages(layer, head);
    const uint32_t* table = layer.first_pos + size_t{pages.stream} * layer.capacity;
    uint32_t low = 0, high = pages.n_attended;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (table[pages.row(middle)] < first_pos) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < pages.n_attended && table[pages.row(low)] == first_pos;
  }
};

void step(weir_session* session, weir_token token, weir_trace_fn fn, void* user) {
  if (fn != nullptr) set_trace(session, fn, user);
  check(weir_session_step(session, token), "cannot feed the answer");
  if (fn != nullptr) set_trace(session, nullptr, nullptr);
}

// A policy's session next to the reference.
struct Lane {
  SessionPtr session;
  Recall recall;
  uint64_t n_same = 0;
  double kl = 0;

  void compare(const Prediction& truth) {
    const Prediction own = predict(session.get());
    n_same += own.best == truth.best ? 1 : 0;
    kl += kl_divergence(truth, own);
  }
};

// One problem: the reference and its lanes, in step.
class Comparison {
 public:
  Comparison(weir_model* model, const EvalSettings& settings, const EvalPoint& first)
      : model_(model),
        problem_(eval_problem(settings, first.family, first.problem)),
        prompt_(prompt_tokens(model, problem_, settings.question_as_decode)),
        answer_(answer_tokens(model, problem_)),
        is_traced_(can_trace()),
        top_pages_(attention_info(model)) {}

  ForcedRecord start_lane(const PolicyEntry& policy, const EvalPoint& point) {
    ForcedRecord record;
    record.family = point.family;
    record.id = problem_.id;
    record.label = policy.label;
    record.spec = policy.spec();
    record.budget = point.budget;
    Started started = start(policy, point.budget);
    record.is_refused = !started.session;
    record.message = started.refused;
    Lane& lane = lanes_.emplace_back();
    lane.session = std::move(started.session);
    lane.recall.truth = &top_pages_;
    return record;
  }

  void run() {
    PolicyEntry whole;
    whole.name = whole.label = "dense";
    const Started reference = start(whole, 0);
    if (!reference.session)
      throw std::runtime_error(problem_.id + ": no session with the whole history: " + reference.refused);
    compare(reference.session.get());
    for (size_t i = 0; i < answer_.size(); ++i) {
      if (interrupt_count() > 0) throw Interrupted();
      const bool trace = is_traced_ && i % kTracedEvery == 0;
      step(reference.session.get(), answer_[i], trace ? TopPages::on_layer : nullptr, &top_pages_);
      for (Lane& lane : lanes_) {
        if (lane.session) step(lane.session.get(), answer_[i], trace ? Recall::on_layer : nullptr, &lane.recall);
      }
      compare(reference.session.get());
    }
  }

  void finish(size_t index, ForcedRecord& record) const {
    const Lane& lane = lanes_[index];
    if (record.is_refused) return;
    record.n_positions = answer_.size() + 1;
    const auto n = static_cast<double>(record.n_positions);
    record.agreement = static_cast<double>(lane.n_same) / n;
    record.kl = lane.kl / n;
    if (lane.recall.n > 0) record.recall = lane.recall.sum / static_cast<double>(lane.recall.n);
  }

 private:
  Started start(const PolicyEntry& policy, uint32_t budget) {
    const SessionFlags flags =
        point_session(policy, budget, prompt_.prefill.size(), prompt_.question.size() + answer_.size());
    return start_session(model_, flags, is_traced_ ? WEIR_SESSION_TRACE : 0, prompt_);
  }

  void compare(weir_session* reference) {
    const Prediction truth = predict(reference);
    for (Lane& lane : lanes_) {
      if (lane.session) lane.compare(truth);
    }
  }

  weir_model* model_;
  Problem problem_;
  PromptTokens prompt_;
  std::vector<weir_token> answer_;
  bool is_traced_;
  TopPages top_pages_;
  std::vector<Lane> lanes_;
};

}  // namespace

nlohmann::ordered_json to_json(const ForcedRecord& r) {
  nlohmann::ordered_json line = head_to_json(r);
  if (r.is_refused) return line;
  line["n_positions"] = r.n_positions;
  line["agreement"] = r.agreement;
  line["kl"] = r.kl;
  line["recall"] = r.recall ? nlohmann::ordered_json(*r.recall) : nlohmann::ordered_json();
  return line;
}

std::vector<std::vector<EvalPoint>> forced_groups(const std::vector<EvalPoint>& points) {
  return point_groups(points, kMaxSessions);
}

std::vector<ForcedRecord> run_forced_group(weir_model* model, const EvalSettings& settings,
                                           const std::vector<EvalPoint>& group) {
  Comparison comparison(model, settings, group.at(0));
  std::vector<ForcedRecord> records;
  for (const EvalPoint& point : group) records.push_back(comparison.start_lane(settings.policies[point.policy], point));
  comparison.run();
  for (size_t i = 0; i < records.size(); ++i) comparison.finish(i, records[i]);
  return records;
}

}  // namespace weir_cli
