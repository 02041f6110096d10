// weir eval --trace and --draw; see eval_trace_command.h.
#include "eval_trace_command.h"

#include "eval_results.h"
#include "eval_run.h"
#include "eval_trace.h"
#include "eval_waterfall.h"
#include "output.h"
#include "png_write.h"
#include "terminal.h"

namespace weir_cli {
namespace {

EvalPoint only_point(const EvalSettings& settings) {
  const bool needs_budget = !settings.policies.empty() && !settings.policies[0].is_dense();
  if (settings.families.size() != 1 || settings.policies.size() != 1 ||
      (needs_budget && settings.budgets.size() != 1)) {
    throw UsageError("--trace records one run: give one of --families, one of --policies and one of --budgets");
  }
  return {settings.families[0], 0, 0, needs_budget ? settings.budgets[0] : 0};
}

// The pictures of a recording, before the work that they come from.
void try_pictures(const std::string& path) {
  try_out_file(path + ".svg");
  if (can_write_png()) try_out_file(path + ".png");
}

void draw(const std::string& path, const TraceFlags& flags) {
  const Waterfall picture = read_waterfall(path, flags.layer, flags.head);
  write_text_file(path + ".svg", waterfall_svg(picture));
  put_format("%s.svg: %d steps, %d pages, %zu evictions\n", path.c_str(), picture.n_steps, picture.n_pages,
             picture.evictions.size());
  if (!can_write_png()) {
    tell("no " + path + ".png, because this build has no libpng");
    return;
  }
  const PixelImage pixels = waterfall_pixels(picture);
  write_png(path + ".png", pixels.width, pixels.height, pixels.rgb);
  put_format("%s.png: %u x %u\n", path.c_str(), pixels.width, pixels.height);
}

}  // namespace

int record_trace_command(const TraceFlags& flags, const std::string& model_path, const EvalSettings& settings) {
  const EvalPoint point = only_point(settings);
  if (!can_trace()) throw std::runtime_error("this library has no weir_session_trace, so there is nothing to record");
  catch_interrupts();
  TraceRecorder recorder(flags.file);
  try_pictures(flags.file);
  const RuntimePtr runtime = create_runtime(1);
  const ModelPtr model = open_model(runtime.get(), model_path);
  const weir_model_info info = attention_info(model.get());
  const PolicyEntry& policy = settings.policies[point.policy];
  TraceHeader header;
  header.n_layers = info.n_layers;
  header.n_heads = info.n_heads;
  header.n_kv_heads = info.n_kv_heads;
  header.page_tokens = kPageTokens;
  header.description = eval_problem(settings, point.family, point.problem).id + ", " + policy.label +
                       (point.budget != 0 ? " " + std::to_string(point.budget) : "");
  const auto on_prefilled = [&](weir_session* session) {
    header.n_prompt = static_cast<uint32_t>(session_stats(session).n_prompt);
    recorder.begin(session, header);
  };
  RunRecord record;
  try {
    record = run_point(model.get(), settings, point, on_prefilled, WEIR_SESSION_TRACE);
  } catch (const std::exception&) {
    recorder.check();  // what failed in the recording itself is the cause of the rest
    throw;
  }
  if (record.is_refused) throw std::runtime_error(header.description + ": refused: " + record.message);
  recorder.finish();
  put_format("%s: %s, answer %s, %u steps recorded\n", flags.file.c_str(), header.description.c_str(),
             record.is_right ? "right" : "wrong", recorder.n_steps());
  draw(flags.file, flags);
  return 0;
}

int draw_trace_command(const TraceFlags& flags) {
  try_pictures(flags.draw);
  draw(flags.draw, flags);
  return 0;
}

}  // namespace weir_cli
