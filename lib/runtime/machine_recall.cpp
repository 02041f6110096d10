// Recall in sessions on a device. The host copies pages out when they are sealed, answers when a step asks for a page
// whose copy is not raw, repeats steps for which it was too late, and loads cold pages for prompts.
#include <algorithm>
#include <new>

#include "core/clock.h"
#include "runtime/machine_device.h"
#include "runtime/staging.h"

namespace weir {

// How often a step may be repeated before the session gives up: each time pages were brought into the pool for it.
constexpr uint32_t kMaxRepeats = 1024;

void* SlotMemory::do_allocate(size_t bytes, size_t alignment) {
  if (module == nullptr) return memory_.allocate(bytes, alignment);
  void* block = nullptr;
  failed = take_staging(*module, memory_, bytes, &block);
  if (failed.ok()) return block;
  throw std::bad_alloc();
}

void SlotMemory::do_deallocate(void* ptr, size_t bytes, size_t alignment) {
  if (module == nullptr) return memory_.deallocate(ptr, bytes, alignment);
  give_staging_back(*module, memory_, ptr, bytes);
}

bool DeviceMachine::Pages::read(uint32_t stream, uint32_t row, std::byte* out) {
  const uint64_t started = now_ns();
  const bool is_read = m_.w_.copies.read_copy(stream, row, out).ok();
  m_.w_.copies.add_recall_ns(now_ns() - started);
  return is_read;
}

std::byte* DeviceMachine::Pages::buffer() { return m_.staging_.recall.pages; }

bool DeviceMachine::Pages::write(uint32_t slot) {
  m_.staging_.recall.page_slots[0] = slot;
  return m_.device_->copy_pages(1, true).ok();
}

bool DeviceMachine::Pages::read(uint32_t slot) {
  m_.staging_.recall.page_slots[0] = slot;
  return m_.device_->copy_pages(1, false).ok();
}

bool DeviceMachine::Pages::in_units(uint32_t layer, uint32_t& n_rows) {
  const uint32_t n_heads = m_.kv().shape().n_kv_heads;
  bool any = false;
  n_rows = 0;
  for (uint32_t stream = layer * n_heads; stream < (layer + 1) * n_heads; ++stream) {
    any = any || m_.kv().has_cold(stream);
    n_rows = std::max(n_rows, m_.kv().stream(stream).n_pages);
  }
  return any || n_rows > kSplitPages;
}

// As the host's tables have them: they are current while a prompt is read.
void DeviceMachine::Pages::load_unit(uint32_t layer, uint32_t first_row) {
  const DeviceRecall& r = m_.staging_.recall;
  const uint32_t n_heads = m_.kv().shape().n_kv_heads;
  for (uint32_t head = 0; head < n_heads; ++head) {
    const uint32_t stream = layer * n_heads + head;
    const StreamView v = m_.kv().stream(stream);
    for (uint32_t i = 0; i < kSplitPages; ++i) {
      const uint32_t at = head * kSplitPages + i, row = first_row + i;
      const uint32_t page = row < v.n_pages ? find_page(stream, v, row, at) : UnitPage::at(UnitPage::kLostPage, 0);
      r.page_slots[at] = page;
      r.unit_pos[at] = row * kPageTokens;
      r.unit_len[at] = page == UnitPage::at(UnitPage::kLostPage, 0) ? 0 : v.len[row];
    }
  }
}

// `at`: where a page that is not raw goes.
uint32_t DeviceMachine::Pages::find_page(uint32_t stream, const StreamView& v, uint32_t row, uint32_t at) {
  if (v.slots[row] != kNoSlot) return UnitPage::at(UnitPage::kInPool, v.slots[row]);
  const DeviceRecall& r = m_.staging_.recall;
  const uint32_t raw = r.raw_index[m_.kv().row_index(stream, row)];
  if (raw < kCopyElsewhere) return UnitPage::at(UnitPage::kRaw, raw);
  auto* const out = reinterpret_cast<uint16_t*>(r.pages + at * m_.kv().shape().page_bytes());
  return m_.w_.copies.read(stream, row, out) ? UnitPage::at(UnitPage::kStaged, at)
                                             : UnitPage::at(UnitPage::kLostPage, 0);
}

Status DeviceMachine::start_recall(SpillStore* other, DeviceSessionArgs& args) {
  DeviceRecall& r = staging_.recall;
  std::fill_n(r.raw_index, r.n_rows, kNoCopy);
  w_.slot_memory.module = module_;
  r.late_ns = w_.devices.recall_late_ns();
  WEIR_TRY(create_store(other));
  w_.store.set_raw_index(r.raw_index);
  r.raw_pages = w_.store.raw_slots();
  args.recall = &pages_;
  return {};
}

// Copies what the tokens from position `first` on sealed. The device's tables have the latest slots.
Status DeviceMachine::seal_on_device(uint32_t first) {
  const uint32_t end = kv().n_tokens() / kPageTokens;
  if (!kv().shape().recalls() || first / kPageTokens == end) return {};
  const bool needs_stamps = w_.copies.needs_stamps(end - first / kPageTokens);
  if (needs_stamps) WEIR_TRY(fetch_tables());
  for (uint32_t row = first / kPageTokens; row < end; ++row) WEIR_TRY(seal_row(row));
  if (needs_stamps && w_.copies.make_raw_again()) (void)w_.tables.change();
  return {};
}

Status DeviceMachine::seal_row(uint32_t row) {
  const auto n_ruled = static_cast<uint32_t>(kv().shape().n_streams() - kv().shape().n_local_streams());
  const auto* const pages = reinterpret_cast<const uint16_t*>(staging_.recall.pages);
  WEIR_TRY(told(device_->copy_row_out(row)));
  if (!w_.copies.needs_tables() && w_.store.make_room(n_ruled).ok()) {
    w_.copies.seal_row(row, pages);
    return {};
  }
  WEIR_TRY(fetch_tables());
  const PageTables::Change dropping = w_.tables.change();  // copies, as the tables decide
  w_.copies.seal_row(row, pages);
  return {};
}

Status DeviceMachine::prepare_copies(uint32_t n_tok) {
  if (!w_.copies.is_strict() || !w_.copies.needs_tables()) return Machine::prepare_copies(n_tok);
  WEIR_TRY(fetch_tables());
  const PageTables::Change dropping = w_.tables.change();
  return Machine::prepare_copies(n_tok);
}

// A step, repeated while the pages that it asks for come too late.
Status DeviceMachine::step_until_in_time(weir_token token) {
  for (uint32_t i = 0; i < kMaxRepeats; ++i) {
    WEIR_TRY(told(device_->step(token)));
    if (staging_.state->is_late == 0) return {};
    WEIR_TRY(repair_late_step());
  }
  return fail(WEIR_ERR_INTERNAL, "the pages that a step needs came too late %u times", kMaxRepeats);
}

// Takes back the token of a step that was late, and brings the pages that it asked for into the slots that the device
// has given them. Pages that cannot be read are lost.
Status DeviceMachine::repair_late_step() {
  WEIR_TRY(fetch_tables());
  WEIR_TRY(bring_asked_pages());
  WEIR_TRY(told(put_tables(true)));
  WEIR_TRY(told(device_->rebuild_last_digests()));
  w_.tables.leave_to_device();
  return w_.copies.failure();
}

Status DeviceMachine::bring_asked_pages() {
  const DeviceRecall& r = staging_.recall;
  const PageTables::Change tables = w_.tables.change();
  w_.parts.list.roll_back(kv().n_tokens());
  uint32_t n = 0;
  for (uint32_t head = 0; head < kv().shape().n_kv_heads; ++head) {
    const RecallPost post = r.posts[head];
    if (post.ticket == 0) continue;
    const uint32_t stream = post.layer * kv().shape().n_kv_heads + head;
    for (uint32_t i = 0; i < post.n; ++i) {
      const uint32_t row = r.rows[size_t{head} * r.most + i];
      if (row == kNoAskedRow || kv().stream(stream).slots[row] == kNoSlot) continue;
      const Status status = w_.copies.read_copy(stream, row, r.pages + n * kv().shape().page_bytes());
      if (status.ok()) {
        r.page_slots[n++] = kv().stream(stream).slots[row];
      } else {
        w_.copies.cannot_read(stream, row, status);
      }
    }
  }
  return told(device_->copy_pages(n, true));
}

}  // namespace weir
