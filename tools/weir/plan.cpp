// weir plan: the exact bytes of every pool of a session, before anything is allocated.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "conversation.h"
#include "output.h"

namespace weir_cli {
namespace {

struct PlanFlags {
  std::string model;
  bool json = false;
  SessionFlags session;
};

void print_json(const weir_plan_info& p, const SessionFlags& flags) {
  const nlohmann::ordered_json out = {
      {"policy", flags.policy},
      {"kv", flags.kv},
      {"context_tokens", p.context_tokens},
      {"budget_tokens", p.budget_tokens},
      {"page_tokens", p.page_tokens},
      {"pages_per_stream", p.pages_per_stream},
      {"n_streams", p.n_streams},
      {"n_window_streams", p.n_window_streams},
      {"window_pages_per_stream", p.window_pages_per_stream},
      {"window_kv_bytes", p.window_kv_bytes},
      {"n_head_streams", p.n_head_streams},
      {"head_pages_per_stream", p.head_pages_per_stream},
      {"head_kv_bytes", p.head_kv_bytes},
      {"page_bytes", p.page_bytes},
      {"weights_bytes", p.weights_bytes},
      {"kv_bytes", p.kv_bytes},
      {"digest_bytes", p.digest_bytes},
      {"table_bytes", p.table_bytes},
      {"workspace_bytes", p.workspace_bytes},
      {"sampler_bytes", p.sampler_bytes},
      {"session_bytes", p.session_bytes},
      {"staging_bytes", p.staging_bytes},
      {"spill_bytes", p.spill_bytes},
      {"spill_raw_bytes", p.spill_raw_bytes},
      {"spill_compressed_bytes", p.spill_compressed_bytes},
      {"spill_file_bytes", p.spill_file_bytes},
      {"spill_tokens", p.spill_tokens},
      {"recurrent_bytes", p.recurrent_bytes},
      {"snapshot_bytes", p.snapshot_bytes},
      {"n_snapshots", p.n_snapshots},
      {"snapshot_tokens", p.snapshot_tokens},
      {"library_bytes", p.library_bytes},
      {"total_bytes", p.total_bytes},
      {"device", device_name(p.device)},
      {"device_bytes", p.device_bytes},
      {"device_weights_bytes", p.device_weights_bytes},
  };
  put_line(dump_json(out));
}

void print_row(const char* name, uint64_t bytes, const std::string& note) {
  put_format("%-12s %16s %12s%s%s\n", name, grouped(bytes).c_str(), human_bytes(bytes).c_str(),
             note.empty() ? "" : "   ", note.c_str());
}

// What the store holds whatever is in the pages, and that it may hold more.
std::string spill_note(const weir_plan_info& p) {
  if (p.spill_bytes == 0) return "";
  if (p.spill_tokens >= p.context_tokens) return "pages outside the pool, of the whole context";
  return "pages outside the pool, of " + grouped(p.spill_tokens) +
         " tokens at least; what is wanted the longest ago is"
         " dropped";
}

void print_table(const weir_plan_info& p, const SessionFlags& flags) {
  put_format("policy %s, context %s tokens, KV budget %s tokens a stream\n", flags.policy.c_str(),
             grouped(p.context_tokens).c_str(), grouped(p.budget_tokens).c_str());
  put_format("%s streams x %s pages x %s bytes (%u tokens a page)\n",
             grouped(p.n_streams - p.n_window_streams - p.n_head_streams).c_str(), grouped(p.pages_per_stream).c_str(),
             grouped(p.page_bytes).c_str(), p.page_tokens);
  if (p.n_window_streams > 0)
    put_format("%s streams x %s pages: layers with a sliding window, whatever the budget\n",
               grouped(p.n_window_streams).c_str(), grouped(p.window_pages_per_stream).c_str());
  if (p.n_head_streams > 0)
    put_format("%s streams x %s pages: streaming heads, whatever the budget\n", grouped(p.n_head_streams).c_str(),
               grouped(p.head_pages_per_stream).c_str());
  put_line("");
  put_format("%-12s %16s\n", "pool", "bytes");
  print_row("KV pages", p.kv_bytes, flags.kv == "bf16" ? "" : "keys and values in " + flags.kv);
  if (p.n_window_streams > 0) print_row("  of windows", p.window_kv_bytes, "of the KV pages");
  if (p.n_head_streams > 0) print_row("  of heads", p.head_kv_bytes, "of the KV pages");
  print_row("digests", p.digest_bytes, "");
  print_row("tables", p.table_bytes, "page tables, stamps, scores");
  print_row("workspace", p.workspace_bytes, "activations, logits");
  print_row("sampler", p.sampler_bytes, "");
  print_row("session", p.session_bytes, "");
  print_row("staging", p.staging_bytes, "");
  print_row("spill", p.spill_bytes, spill_note(p));
  if (p.spill_bytes > 0) {
    print_row("  raw", p.spill_raw_bytes, "of the spill: pages as they are");
    print_row("  compressed", p.spill_compressed_bytes, "of the spill: pages that were wanted the longest ago");
  }
  if (p.recurrent_bytes > 0) {
    print_row("state", p.recurrent_bytes, "of recurrent layers, whatever the context");
    print_row("snapshots", p.snapshot_bytes,
              std::to_string(p.n_snapshots) + " of that state, at messages and every " + grouped(p.snapshot_tokens) +
                  " tokens");
  }
  print_row("libraries", p.library_bytes, "");
  print_row("total", p.total_bytes, "allocated when the session is created");
  if (p.device_bytes > 0) {
    print_row("on the GPU", p.device_bytes,
              p.recurrent_bytes > 0 ? "of the total: pages, digests, tables, state, workspace"
                                    : "of the total: pages, digests, tables, workspace");
    print_row("GPU weights", p.device_weights_bytes, "shared by all sessions, beside the total");
  }
  if (p.spill_file_bytes > 0) print_row("spill file", p.spill_file_bytes, "on the disk, beside the total");
  print_row("weights", p.weights_bytes, "mapped from the file, shared by all sessions");
}

int run_plan(const PlanFlags& flags) {
  SessionOptions options(flags.session);
  const RuntimePtr runtime = create_runtime(flags.session.threads, flags.session.device);
  const ModelPtr model = open_model(runtime.get(), flags.model);
  const weir_plan_info plan = checked_plan(model.get(), options.get());
  if (flags.json)
    print_json(plan, flags.session);
  else
    print_table(plan, flags.session);
  return 0;
}

}  // namespace

void add_plan(CLI::App& program, Action& action) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* app =
      program.add_subcommand("plan", "The exact memory of a session, pool by pool; allocates nothing of it");
  add_model_flag(*app, flags->model)->required();
  app->add_flag("--json", flags->json, "One JSON line instead of a table");
  add_session_flags(*app, flags->session);
  app->callback([flags, &action] { action = [flags] { return run_plan(*flags); }; });
}

}  // namespace weir_cli
