// The store's plan, its memory, and how it begins and ends.
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

#include "core/paths.h"
#include "core/random.h"
#include "kv/spill_store.h"

namespace weir {
namespace {

constexpr uint64_t kMaxCells = UINT32_MAX - 1;
constexpr uint32_t kMaxPages = 1u << 31, kMaxThreads = 256, kMaxQueued = 1u << 16;

using Number = unsigned long long;  // for messages

uint32_t n_encoders(const SpillOptions& o) { return o.n_workers + 1; }
uint64_t n_buffers(const SpillOptions& o) { return uint64_t{o.n_readers} + 2; }
uint64_t encoder_bytes(uint32_t page_bytes) { return align_up(PageEncoder::workspace_bytes(page_bytes), kCacheLine); }
uint64_t decoder_bytes(uint32_t page_bytes) { return align_up(PageDecoder::workspace_bytes(page_bytes), kCacheLine); }
uint64_t buffer_bytes(uint32_t page_bytes) { return align_up(max_block_bytes(page_bytes), kCacheLine); }
uint64_t n_runs(uint32_t page_bytes) { return SpillFile::cells_for(max_block_bytes(page_bytes)); }

// The longest path: the store keeps an absolute one, whose length depends on the current folder and the plan must not.
uint64_t path_bytes(const SpillOptions& o) { return o.file_bytes == 0 ? 0 : 4096; }

Status check_options(const SpillOptions& o) {
  if (!is_codec_page(o.page_bytes))
    return fail(WEIR_ERR_UNSUPPORTED, "pages of %u bytes cannot be spilled", o.page_bytes);
  if (o.max_pages == 0 || o.max_pages > kMaxPages)
    return fail(WEIR_ERR_INVALID_ARG, "a spill store for %u pages; 1 to %u are possible", o.max_pages, kMaxPages);
  if (o.n_workers > kMaxThreads || o.n_readers == 0 || o.n_readers > kMaxThreads || o.queue_pages > kMaxQueued ||
      (o.n_workers != 0 && o.queue_pages == 0)) {
    return fail(WEIR_ERR_INVALID_ARG, "a spill store with %u workers, %u readers and a queue of %u pages", o.n_workers,
                o.n_readers, o.queue_pages);
  }
  if (o.raw_bytes > o.budget_bytes) {
    return fail(WEIR_ERR_INVALID_ARG, "spill_raw_bytes %llu are part of spill_budget_bytes, which are only %llu",
                Number{o.raw_bytes}, Number{o.budget_bytes});
  }
  if (o.file_bytes != 0 && (o.file_path == nullptr || o.file_path[0] == '\0'))
    return fail(WEIR_ERR_INVALID_ARG, "spill_file_bytes without spill_path");
  return {};
}

}  // namespace

Status plan_spill(const SpillOptions& o, SpillPlan& plan) {
  WEIR_TRY(check_options(o));
  const uint64_t worst = SpillCells::cells_for(max_block_bytes(o.page_bytes)), worst_in_file = n_runs(o.page_bytes);
  const uint64_t n_raw = std::min<uint64_t>(o.raw_bytes / o.page_bytes, o.max_pages);
  const uint64_t n_cells =
      std::min({(o.budget_bytes - n_raw * o.page_bytes) / SpillCells::kCellBytes, o.max_pages * worst, kMaxCells});
  if (n_raw == 0 && n_cells < worst) {
    return fail(WEIR_ERR_BUDGET, "spill_budget_bytes %llu hold no page; one may need %llu bytes",
                Number{o.budget_bytes}, Number{worst * SpillCells::kCellBytes});
  }
  if (o.file_bytes != 0 && o.file_bytes < worst_in_file * SpillFile::kCellBytes) {
    return fail(WEIR_ERR_BUDGET, "spill_file_bytes %llu hold no page; one may need %llu bytes", Number{o.file_bytes},
                Number{worst_in_file * SpillFile::kCellBytes});
  }
  const uint64_t n_file_cells =
      std::min({o.file_bytes / SpillFile::kCellBytes, o.max_pages * worst_in_file, kMaxCells});
  plan.worst_cells = static_cast<uint32_t>(worst);
  plan.n_raw = static_cast<uint32_t>(n_raw);
  plan.n_cells = static_cast<uint32_t>(n_cells);
  plan.n_file_cells = static_cast<uint32_t>(n_file_cells);
  plan.queue_pages = o.n_workers == 0 ? 1 : o.queue_pages;
  plan.n_slots = plan.n_raw + 1 + (o.n_workers == 0 ? 0 : o.queue_pages + o.n_workers);
  // A page takes a raw slot, a cell or a cell of the file at least: no more can be there, whatever was asked for.
  plan.n_entries = static_cast<uint32_t>(std::min<uint64_t>(o.max_pages, n_raw + n_cells + n_file_cells)) + o.n_workers;
  SpillStore measured(nullptr, nullptr, nullptr);
  Arena arena;
  measured.lay_out(o, plan, arena);
  plan.host_bytes = arena.used();
  plan.slot_bytes = uint64_t{plan.n_slots} * o.page_bytes;
  plan.family_bytes = sizeof(SpillFamily);
  plan.file_bytes = n_file_cells * SpillFile::kCellBytes;
  return {};
}

void SpillStore::lay_out(const SpillOptions& o, const SpillPlan& plan, Arena& arena) {
  entries_ = arena.take<Entry>(plan.n_entries);
  free_slots_ = arena.take<uint32_t>(plan.n_slots);
  raw_ = arena.take<uint32_t>(plan.n_raw + 1);
  cell_memory_ = arena.take<std::byte>(uint64_t{plan.n_cells} * SpillCells::kCellBytes);
  file_links_ = arena.take<uint32_t>(plan.n_file_cells);
  workers_ = arena.take<Worker>(n_encoders(o));
  readers_ = arena.take<Reader>(n_buffers(o));
  encoder_memory_ = arena.take<std::byte>(n_encoders(o) * encoder_bytes(o.page_bytes));
  decoder_memory_ = arena.take<std::byte>(o.n_readers * decoder_bytes(o.page_bytes));
  block_memory_ = arena.take<std::byte>((n_encoders(o) + n_buffers(o)) * buffer_bytes(o.page_bytes));
  run_memory_ = arena.take<SpillFile::Run>(n_buffers(o) * n_runs(o.page_bytes));
  path_memory_ = arena.take<char>(path_bytes(o));
}

Status SpillStore::create(const SpillOptions& o) {
  WEIR_TRY(plan_spill(o, plan_));
  plan_page_bytes_ = o.page_bytes;
  max_pages_ = plan_.n_entries - o.n_workers;
  n_workers_ = o.n_workers;
  n_readers_ = o.n_readers;
  if (family_ == nullptr) family_ = make_in<SpillFamily>(*family_memory_, family_memory_);
  block_ = static_cast<std::byte*>(memory_->allocate(plan_.host_bytes, kCacheLine));
  slots_ = static_cast<std::byte*>(slot_memory_->allocate(plan_.slot_bytes, kCacheLine));
  Arena arena(block_, plan_.host_bytes);
  lay_out(o, plan_, arena);
  options_ = o;
  options_.file_path = path_bytes(o) == 0 ? nullptr : path_memory_;
  if (path_bytes(o) != 0) WEIR_TRY(absolute_path("spill_path", o.file_path, path_memory_, path_bytes(o)));
  init_lists();
  salt_ = random_number();
  join_family();
  WEIR_TRY(init_codecs());
  if (plan_.n_file_cells != 0) {
    const std::lock_guard turn(family_->opening);
    WEIR_TRY(file_.open(o.file_path, plan_.n_file_cells, file_links_, *o.file_calls));
  }
  return start_workers(o);
}

// All is free, and the lowest is used first.
void SpillStore::init_lists() {
  cells_.init(cell_memory_, plan_.n_cells);
  free_for_sure_ = plan_.n_cells;
  n_free_slots_ = 0;
  free_entry_ = kNoSpill;
  for (uint32_t i = plan_.n_slots; i > 0; --i) free_slots_[n_free_slots_++] = i - 1;
  for (uint32_t i = plan_.n_entries; i > 0; --i) {
    new (&entries_[i - 1]) Entry{};
    free_entry(i - 1);
  }
}

Status SpillStore::init_codecs() {
  std::byte* block = block_memory_;
  const auto next_block = [&] {
    std::byte* taken = block;
    block += buffer_bytes(plan_page_bytes_);
    return taken;
  };
  for (uint32_t i = 0; i <= n_workers_; ++i) {
    auto* w = new (&workers_[i]) Worker{this, {}, next_block(), {}};
    WEIR_TRY(
        w->encoder.init(plan_page_bytes_, encoder_memory_ + i * encoder_bytes(plan_page_bytes_), options_.compresses));
  }
  for (uint32_t i = 0; i < n_buffers(options_); ++i) {
    auto* r = new (&readers_[i]) Reader{{}, next_block(), run_memory_ + i * n_runs(plan_page_bytes_), free_reader_};
    if (i >= n_readers_) continue;  // it decodes nothing
    WEIR_TRY(r->decoder.init(plan_page_bytes_, decoder_memory_ + i * decoder_bytes(plan_page_bytes_)));
    free_reader_ = r;
  }
  has_codecs_ = true;
  return {};
}

Status SpillStore::start_workers(const SpillOptions& o) {
  // Signals are for the host's own threads: workers start with all of them blocked.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  while (n_started_ < n_workers_ && error == 0) {
    error = o.create_thread(&workers_[n_started_].thread, nullptr, worker_main, &workers_[n_started_]);
    if (error == 0) ++n_started_;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) return {};
  return fail(WEIR_ERR_OUT_OF_MEMORY, "worker %u of %u of the spill store could not be started: error %d",
              n_started_ + 1, n_workers_, error);
}

SpillStore::~SpillStore() {
  if (family_ != nullptr) {
    {
      const std::lock_guard lock(family_->mutex);
      stop_ = true;
    }
    job_.notify_all();
    for (uint32_t i = 0; i < n_started_; ++i) pthread_join(workers_[i].thread, nullptr);
    leave_family();
  }
  if (has_codecs_) {
    wipe();
    weir::wipe(encoder_memory_, n_encoders(options_) * encoder_bytes(plan_page_bytes_));
    weir::wipe(decoder_memory_, n_readers_ * decoder_bytes(plan_page_bytes_));
  }
  if (slots_ != nullptr) slot_memory_->deallocate(slots_, plan_.slot_bytes, kCacheLine);
  if (block_ != nullptr) memory_->deallocate(block_, plan_.host_bytes, kCacheLine);
}

}  // namespace weir
