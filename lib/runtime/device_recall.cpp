// Recall in sessions on a device. Pages leave and come back in the device's own steps; the host copies pages out when
// they are sealed, answers when a step asks for a page whose copy is not raw, repeats steps for which it was too late,
// and loads cold pages for prompts.
#include <algorithm>
#include <new>

#include "runtime/session.h"
#include "runtime/staging.h"

namespace weir {

// How often a step may be repeated before the session gives up: each time pages were brought into the pool for it.
constexpr uint32_t kMaxRepeats = 1024;

void* Session::SlotMemory::do_allocate(size_t bytes, size_t alignment) {
  if (module == nullptr) return memory_.allocate(bytes, alignment);
  void* block = nullptr;
  failed = take_staging(*module, memory_, bytes, &block);
  if (failed.ok()) return block;
  throw std::bad_alloc();
}

void Session::SlotMemory::do_deallocate(void* ptr, size_t bytes, size_t alignment) {
  if (module == nullptr) return memory_.deallocate(ptr, bytes, alignment);
  give_staging_back(*module, memory_, ptr, bytes);
}

bool Session::DevicePages::read(uint32_t stream, uint32_t row, std::byte* out) {
  const uint64_t started = now_ns();
  const bool is_read = s_.cold_.read_copy(stream, row, out).ok();
  s_.cold_.add_recall_ns(now_ns() - started);
  return is_read;
}

std::byte* Session::DevicePages::buffer() { return s_.staging_.recall.pages; }

bool Session::DevicePages::write(uint32_t slot) {
  s_.staging_.recall.page_slots[0] = slot;
  return s_.device_->copy_pages(1, true).ok();
}

bool Session::DevicePages::read(uint32_t slot) {
  s_.staging_.recall.page_slots[0] = slot;
  return s_.device_->copy_pages(1, false).ok();
}

bool Session::DevicePages::in_units(uint32_t layer, uint32_t& n_rows) {
  const uint32_t n_heads = s_.kv_.shape().n_kv_heads;
  bool any = false;
  n_rows = 0;
  for (uint32_t stream = layer * n_heads; stream < (layer + 1) * n_heads; ++stream) {
    any = any || s_.kv_.has_cold(stream);
    n_rows = std::max(n_rows, s_.kv_.stream(stream).n_pages);
  }
  return any || n_rows > kSplitPages;
}

// As the host's tables have them: they are current while a prompt is read.
void Session::DevicePages::load_unit(uint32_t layer, uint32_t first_row) {
  const DeviceRecall& r = s_.staging_.recall;
  const uint32_t n_heads = s_.kv_.shape().n_kv_heads;
  for (uint32_t head = 0; head < n_heads; ++head) {
    const uint32_t stream = layer * n_heads + head;
    const StreamView v = s_.kv_.stream(stream);
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
uint32_t Session::DevicePages::find_page(uint32_t stream, const StreamView& v, uint32_t row, uint32_t at) {
  if (v.slots[row] != kNoSlot) return UnitPage::at(UnitPage::kInPool, v.slots[row]);
  const DeviceRecall& r = s_.staging_.recall;
  const uint32_t raw = r.raw_index[s_.kv_.row_index(stream, row)];
  if (raw < kCopyElsewhere) return UnitPage::at(UnitPage::kRaw, raw);
  auto* const out = reinterpret_cast<uint16_t*>(r.pages + at * s_.kv_.shape().page_bytes());
  return s_.cold_.read(stream, row, out) ? UnitPage::at(UnitPage::kStaged, at) : UnitPage::at(UnitPage::kLostPage, 0);
}

// Copies what the tokens from position `first` on sealed. The device's tables have the latest slots.
Status Session::seal_on_device(uint32_t first) {
  const uint32_t end = kv_.n_tokens() / kPageTokens;
  const auto n_ruled = static_cast<uint32_t>(kv_.shape().n_streams() - kv_.shape().n_local_streams());
  if (first / kPageTokens == end) return {};
  const bool needs_stamps = cold_.needs_stamps(end - first / kPageTokens);
  if (needs_stamps) WEIR_TRY(host_tables());
  for (uint32_t row = first / kPageTokens; row < end; ++row) {
    WEIR_TRY(from_module(*module_, device_->copy_row_out(row)));
    const auto* const pages = reinterpret_cast<const uint16_t*>(staging_.recall.pages);
    if (cold_.needs_tables() || !store_.make_room(n_ruled).ok()) {  // copies will be dropped, which the tables decide
      WEIR_TRY(host_tables());
      const PageTables::Change dropping = tables_.change();
      cold_.seal_row(row, pages);
    } else {
      cold_.seal_row(row, pages);
    }
  }
  if (needs_stamps && cold_.make_raw_again()) (void)tables_.change();
  return {};
}

// Fills the last page of every stream with noise, and leaves the pages in the staging memory.
Status Session::fill_row_on_device() {
  const uint32_t n_streams = kv_.shape().n_streams();
  for (uint32_t s = 0; s < n_streams; ++s) {
    const StreamView v = kv_.stream(s);
    staging_.recall.page_slots[s] = v.slots[v.n_pages - 1];
  }
  const uint32_t row = kv_.n_tokens() / kPageTokens;
  return from_module(*module_, device_->fill_row(row, uint64_t{row + 1} << 40));
}

// Strict stores: room for the copies of the pages that n_tok more tokens fill.
Status Session::prepare_copies(uint32_t n_tok) {
  if (!cold_.is_strict()) return {};
  if (device_ == nullptr || !cold_.needs_tables()) return cold_.prepare(n_tok);
  WEIR_TRY(host_tables());
  const PageTables::Change dropping = tables_.change();
  return cold_.prepare(n_tok);
}

// A step, repeated while the pages that it asks for come too late.
Status Session::step_on_device(weir_token token) {
  for (uint32_t i = 0; i < kMaxRepeats; ++i) {
    WEIR_TRY(from_module(*module_, device_->step(token)));
    if (staging_.state->is_late == 0) return {};
    WEIR_TRY(repair_late_step());
  }
  return fail(WEIR_ERR_INTERNAL, "the pages that a step needs came too late %u times", kMaxRepeats);
}

// Takes back the token of a step that was late, and brings the pages that it asked for into the slots that the device
// has given them. Pages that cannot be read are lost.
Status Session::repair_late_step() {
  WEIR_TRY(host_tables());
  WEIR_TRY(bring_asked_pages());
  WEIR_TRY(from_module(*module_, put_device_tables(true)));
  WEIR_TRY(from_module(*module_, device_->rebuild_last_digests()));
  tables_.leave_to_device();
  return cold_.failure();
}

Status Session::bring_asked_pages() {
  const DeviceRecall& r = staging_.recall;
  const PageTables::Change kv = tables_.change();
  kv->truncate(kv_.n_tokens());
  uint32_t n = 0;
  for (uint32_t head = 0; head < kv_.shape().n_kv_heads; ++head) {
    const RecallPost post = r.posts[head];
    if (post.ticket == 0) continue;
    const uint32_t stream = post.layer * kv_.shape().n_kv_heads + head;
    for (uint32_t i = 0; i < post.n; ++i) {
      const uint32_t row = r.rows[size_t{head} * r.most + i];
      if (row == kNoAskedRow || kv_.stream(stream).slots[row] == kNoSlot) continue;
      const Status status = cold_.read_copy(stream, row, r.pages + n * kv_.shape().page_bytes());
      if (status.ok()) {
        r.page_slots[n++] = kv_.stream(stream).slots[row];
      } else {
        cold_.cannot_read(stream, row, status);
      }
    }
  }
  return from_module(*module_, device_->copy_pages(n, true));
}

}  // namespace weir
