// Page tables, digests and pages in a saved session: the sections ROWS, DIGS and PAGE. The pages that a store has are
// written as it has them, in the order in which it got them. On a device pages and digests pass through staging memory
// that is otherwise used while prompts are read.
#include <algorithm>

#include "kv/page_codec.h"
#include "models/attend.h"
#include "policy/prompts.h"
#include "runtime/session.h"

namespace weir {
namespace {

constexpr uint32_t kKnownFlags = kPagePinned | kPagePrompt | kPageKept | kPageFirstPrompt;
// In the flags of a row: the page is in the pool.
constexpr uint32_t kRowResident = KvCache::kPlaced;

// What stands before a page's bytes.
enum class SavedPage : uint32_t {
  kLost = 0,  // nothing follows
  kPool = 1,  // in the pool alone: the keys and the values of its tokens
  kRaw = 2,   // this and the next two: a block, which the store had raw, compressed in memory, or in its file
  kCells = 3,
  kFile = 4,
  kPoolRaw = 5,  // this and the next two: as kPool, of a page that the store also has, in these places
  kPoolCells = 6,
  kPoolFile = 7,
};

// The kind of a page whose copy was in this place, where `first` is the first of three kinds; and the other way round.
SavedPage kind_of(SavedPage first, SpillPlace place) {
  return static_cast<SavedPage>(static_cast<uint32_t>(first) + static_cast<uint32_t>(place));
}
bool is_one_of(SavedPage kind, SavedPage first, SpillPlace& place) {
  const uint32_t i = static_cast<uint32_t>(kind) - static_cast<uint32_t>(first);
  place = static_cast<SpillPlace>(i);
  return i <= static_cast<uint32_t>(SpillPlace::kFile);
}

// Whether a page with this many tokens has a digest that anything reads.
bool has_digest(const KvShape& shape, uint32_t stream, uint32_t len) {
  if (shape.digest == DigestKind::kNone || shape.spec(stream).window != 0) return false;
  return len == kPageTokens || shape.digest == DigestKind::kMinMax;
}

}  // namespace

class CopiesPart::Pages {
 public:
  Pages(Session& session, KvCache& kv, Io& io)
      : s_(session), kv_(kv), memory_(session.machine_->page_cache()), shape_(kv_.shape()), io_(io) {}

  Status rows() {
    WEIR_TRY(io_.section("ROWS"));
    for (uint32_t s = 0; s < shape_.n_streams(); ++s) WEIR_TRY(stream_rows(s));
    return kept_flags();
  }

  Status digests() {
    WEIR_TRY(io_.section("DIGS"));
    const size_t n = digest_elements(shape_.digest, shape_.head_dim);
    for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
      const StreamView v = kv_.stream(s);
      for (uint32_t row = 0; row < v.n_pages; ++row) {
        if (has_digest(shape_, s, v.len[row])) WEIR_TRY(values(memory_.digest_data(kv_.digest_index(s, row)), n));
      }
    }
    return {};
  }

  // Page by page. A page that the file has in no row had left when it was saved.
  Status pages() {
    WEIR_TRY(io_.section("PAGE"));
    for (uint32_t page = 0; page < whole_pages(io_.n_tokens); ++page) {
      if (io_.restores() && page < io_.n_tokens / kPageTokens) s_.copies_.begin_page(page);
      for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
        if (kv_.holds(s, page)) {
          const uint32_t row = kv_.row_of(s, page);
          if (row < first_row(s)) continue;
          WEIR_TRY(io_.saves() ? save_row(s, page, row) : restore_row(s, page, row));
        } else if (is_kept(s, page)) {
          WEIR_TRY(io_.saves() ? save_left(s, page) : restore_left(s, page));
        }
      }
    }
    return {};
  }

 private:
  // --- tables ------------------------------------------------------------------------------------------------------

  // Pages that have left a local layer's window are not saved, so that the file has none.
  uint32_t first_row(uint32_t stream) const {
    if (io_.restores() || (kv_.compensates() && kv_.left().has(stream))) return 0;  // they are not in the sums
    return shape_.spec(stream).front_pages != 0 ? 0 : kv_.n_out_of_window(stream, kv_.n_tokens());
  }

  // Rows from `first` on; of a column that is not there nothing.
  template <class T>
  Status column(RowSaved saved, const StreamView& v, T* values, uint32_t first, uint32_t n) {
    if (saved == RowSaved::kNever || values == nullptr) return {};
    for (uint32_t row = first; saved == RowSaved::kWithPlace && io_.saves() && row < first + n; ++row) {
      uint32_t flags = v.flags[row] | (v.slots[row] != kNoSlot ? kRowResident : 0u);
      WEIR_TRY(io_.value(flags));
    }
    if (saved == RowSaved::kWithPlace && io_.saves()) return {};
    return io_.array(std::span(values, v.capacity).subspan(first), n, "pages of a stream");
  }

  Status stream_rows(uint32_t stream) {
    const StreamView v = kv_.stream(stream);
    const uint32_t first = first_row(stream);
    uint32_t n = v.n_pages - first;
    WEIR_TRY(io_.value(n));
#define WEIR_ROW(name, type, saved) WEIR_TRY(column(RowSaved::saved, v, v.name, first, n));
#include "kv/columns.inc"
    if (io_.restores()) {
      WEIR_TRY(check_rows(stream, v, n));
      kv_.place_rows(stream, n, io_.n_tokens);
    }
    if (!kv_.compensates() || !kv_.left().has(stream)) return {};
    // After a rewind to where the window had been, it may have no page yet.
    const uint32_t front = shape_.spec(stream).front_pages;
    const uint32_t window = kv_.stream(stream).n_pages > front ? v.first_pos[front] : io_.n_tokens;
    return kv_.left().stream_io(io_, stream, front, window);
  }

  // Positions ascend in whole pages below the number of tokens, a page that still takes tokens is there and in the
  // pool, and the pool has room. With recall no row is missing, and pins leave the slots that a step needs
  // (Policy::admit_pin). The pages of a window follow each other; there are none where a rewind went back behind it and
  // no token has come since.
  Status check_rows(uint32_t stream, const StreamView& v, uint32_t n) const {
    const bool is_complete = shape_.recalls() && !shape_.is_local(shape_.layer_of(stream));
    const uint32_t whole = io_.n_tokens / kPageTokens, n_positions = whole_pages(io_.n_tokens);
    const bool is_window = kv_.window(stream) != 0;
    const uint32_t front = shape_.spec(stream).front_pages;
    uint32_t n_resident = 0, n_pinned = 0, n_stay = 0;
    for (uint32_t row = 0; row < n; ++row) {
      const uint32_t pos = v.first_pos[row], flags = v.flags[row] & ~kRowResident;
      const bool is_resident = (v.flags[row] & kRowResident) != 0;
      // Between the sinks of a stream and its window pages may be missing.
      const bool follows = row < front    ? pos == row * kPageTokens
                           : row == front ? row == 0 || pos > v.first_pos[row - 1]
                                          : pos == v.first_pos[row - 1] + kPageTokens;
      const bool ascends = is_window ? follows : row == 0 || pos > v.first_pos[row - 1];
      if (pos % kPageTokens != 0 || pos / kPageTokens >= n_positions || !ascends)
        return io_.damaged("row %u of stream %u is at position %u", row, stream, pos);
      if ((flags & ~kKnownFlags) != 0) return io_.damaged("row %u of stream %u has flags 0x%x", row, stream, flags);
      if (!is_resident && !is_complete) return io_.damaged("row %u of stream %u has no page", row, stream);
      n_resident += is_resident ? 1 : 0;
      n_pinned += (flags & kPageStays) != 0 ? 1 : 0;
      n_stay += (flags & kPageStays) != 0 || row < s_.policy_->n_front_rows() ? 1 : 0;
    }
    if (n_resident > v.n_free) return io_.damaged("stream %u has %u pages for %u slots", stream, n_resident, v.n_free);
    if (is_complete && n != n_positions) return io_.damaged("stream %u has %u rows, not %u", stream, n, n_positions);
    if (is_complete && n_pinned != 0 && n_stay + std::max(2u, s_.policy_->needs().min_unpinned) > v.n_slots)
      return io_.damaged("stream %u has %u pinned pages for %u slots", stream, n_pinned, v.n_slots);
    const bool has_sinks = n >= std::min(front, n_positions);
    if (is_window && (!has_sinks || (n > front && v.first_pos[n - 1] != (n_positions - 1) * kPageTokens)))
      return io_.damaged("stream %u has no page for %s", stream,
                         has_sinks ? "the last position" : "one of its first tokens");
    if (io_.n_tokens % kPageTokens == 0) return {};
    const bool has_open = n != 0 && v.first_pos[n - 1] == whole * kPageTokens && (v.flags[n - 1] & kRowResident) != 0;
    return has_open ? Status() : io_.damaged("stream %u has no page for its last tokens", stream);
  }

  // Without recall: which of the pages whose copies follow were the prompt's. A session without a store, which may
  // take them, reads over them.
  Status kept_flags() {
    const uint32_t n_whole = io_.n_tokens / kPageTokens;
    n_kept_ = shape_.archive_pages != 0 ? n_whole : 0;
    WEIR_TRY(io_.value(n_kept_));
    const uint32_t n_may_be = s_.setup_.max_archive_pages != 0 ? n_whole : 0;
    if (io_.restores() && n_kept_ != 0 && n_kept_ != n_may_be)
      return io_.damaged("%u pages with copies, not %u", n_kept_, n_may_be);
    uint8_t flags[64];
    for (uint32_t first = 0, n = 0; first < n_kept_; first += n) {
      n = std::min<uint32_t>(n_kept_ - first, sizeof(flags));
      for (uint32_t i = 0; io_.saves() && i < n; ++i) flags[i] = kv_.rings().flag(first + i);
      WEIR_TRY(io_.array(std::span(flags), n, "flags"));
      for (uint32_t i = 0; io_.restores() && i < n; ++i) {
        if ((flags[i] & ~uint32_t{kPagePrompt}) != 0) return io_.damaged("page %u had flags 0x%x", first + i, flags[i]);
        kv_.rings().set_flag(first + i, flags[i], n_kept_);
      }
    }
    return {};
  }

  // --- pages -------------------------------------------------------------------------------------------------------

  // Whether this session keeps copies of what leaves the stream.
  bool is_archived(uint32_t stream) const { return shape_.spec(stream).is_archived; }

  // Whether the saved session, which may have had a store where this one has none, kept copies of the stream's pages.
  bool is_kept(uint32_t stream, uint32_t page) const {
    if (io_.saves()) return is_archived(stream);
    KvShape shape = shape_;
    shape.archive_pages = s_.setup_.max_archive_pages;
    return page < n_kept_ && shape.spec(stream).is_archived;
  }

  Status kind_io(SavedPage& kind) {
    auto number = static_cast<uint32_t>(kind);
    WEIR_TRY(io_.value(number));
    kind = static_cast<SavedPage>(number);
    return {};
  }
  Status save_kind(SavedPage kind) { return kind_io(kind); }
  Status save_block(SpillPlace place, uint32_t n) {
    WEIR_TRY(save_kind(kind_of(SavedPage::kRaw, place)));
    return io_.array(block().first(n));
  }

  Status save_left(uint32_t stream, uint32_t page) {
    uint32_t n = 0;
    SpillPlace place = SpillPlace::kRaw;
    if (!s_.copies_.get_block(stream, page, block().data(), n, place)) return save_kind(SavedPage::kLost);
    return save_block(place, n);
  }

  Status save_row(uint32_t stream, uint32_t page, uint32_t row) {
    const StreamView v = kv_.stream(stream);
    uint32_t n = 0;
    SpillPlace place = SpillPlace::kRaw;
    if (v.copies != nullptr && v.copies[row] != kNoCopy) {
      const PageTables::Change losing = s_.tables_.change();  // if the copy proves to be damaged
      if (s_.copies_.get_block(stream, row, block().data(), n, place)) return save_block(place, n);
    }
    if (v.slots[row] == kNoSlot) return save_kind(SavedPage::kLost);
    const bool has_copy = shape_.archive_pages != 0 && s_.copies_.find_place(stream, page, place);
    WEIR_TRY(save_kind(has_copy ? kind_of(SavedPage::kPoolRaw, place) : SavedPage::kPool));
    return page_values(stream, v, row);
  }

  Status restore_row(uint32_t stream, uint32_t page, uint32_t row) {
    const StreamView v = kv_.stream(stream);
    const bool is_resident = v.slots[row] != kNoSlot, is_full = v.len[row] == kPageTokens;
    const bool may_have_copy = v.copies != nullptr && kv_.window(stream) == 0 && is_full;
    SavedPage kind = SavedPage::kLost;
    SpillPlace place = SpillPlace::kRaw;
    WEIR_TRY(kind_io(kind));
    if (kind == SavedPage::kLost && !is_resident) {
      s_.copies_.restore_without(stream, row);
      return {};
    }
    if (kind == SavedPage::kPool && is_resident) {
      if (may_have_copy) s_.copies_.restore_without(stream, row);
      WEIR_TRY(page_values(stream, v, row));
      // Digests of such streams are not saved, since steps list their pages without. But policies score them.
      // On a device they are made when all pages are there.
      if (s_.machine_->kind() != Machine::Kind::kDevice && shape_.windows.has(stream) &&
          shape_.digest != DigestKind::kNone)
        kv_.rebuild_digest(stream, row);
      // The saved session had no store at all: what this one stores without recall begins with these pages.
      const bool begins = n_kept_ == 0 && is_full && is_archived(stream);
      if (!begins) return {};
      kv_.rings().set_flag(page, static_cast<uint8_t>(v.flags[row] & kPagePrompt), io_.n_tokens / kPageTokens);
      return s_.copies_.keep(stream, page, place);
    }
    if (is_one_of(kind, SavedPage::kPoolRaw, place) && is_resident && is_full && is_kept(stream, page)) {
      WEIR_TRY(page_values(stream, v, row));
      return is_archived(stream) ? s_.copies_.keep(stream, page, place) : Status();
    }
    if (is_one_of(kind, SavedPage::kRaw, place) && may_have_copy) {
      uint32_t n = 0;
      WEIR_TRY(restore_block(n));
      return check_block(stream, row, s_.copies_.put_block(stream, row, block().data(), n, place));
    }
    return io_.damaged("page %u of stream %u is of kind %u", row, stream, static_cast<uint32_t>(kind));
  }

  // A page that left. Without a store nobody wants it.
  Status restore_left(uint32_t stream, uint32_t page) {
    uint32_t n = 0;
    SavedPage kind = SavedPage::kLost;
    SpillPlace place = SpillPlace::kRaw;
    WEIR_TRY(kind_io(kind));
    const bool is_lost = kind == SavedPage::kLost;
    if (!is_lost && !is_one_of(kind, SavedPage::kRaw, place)) {
      return io_.damaged("page %u of stream %u, which left, is of kind %u", page, stream, static_cast<uint32_t>(kind));
    }
    if (!is_archived(stream)) return is_lost ? Status() : skip_block();
    if (is_lost) {
      s_.copies_.restore_without(stream, page);
      return {};
    }
    WEIR_TRY(restore_block(n));
    return check_block(stream, page, s_.copies_.put_block(stream, page, block().data(), n, place));
  }

  // Room for the largest block, with a store; in host memory.
  std::span<std::byte> block() const {
    return {reinterpret_cast<std::byte*>(kv_.spare_page()),
            max_block_bytes(static_cast<uint32_t>(shape_.page_bytes()))};
  }

  // Reads a block into the memory for one; n: its bytes.
  Status restore_block(uint32_t& n) {
    WEIR_TRY(io_.array(block(), kBlockHeaderBytes, "bytes of a block"));
    const uint32_t stored = stored_bytes_of(block().data());
    WEIR_TRY(io_.array(block().subspan(kBlockHeaderBytes), stored, "bytes of a page"));
    n = kBlockHeaderBytes + stored;
    return {};
  }

  Status skip_block() {
    std::byte header[kBlockHeaderBytes];
    WEIR_TRY(io_.array(std::span(header)));
    return io_.pass_over(stored_bytes_of(header), shape_.page_bytes(), "bytes of a page");
  }

  // What the store says of a block that it got.
  Status check_block(uint32_t stream, uint32_t page, Status status) const {
    if (status.code() != WEIR_ERR_FORMAT) return status;
    return io_.damaged("page %u of stream %u does not have its checksum", page, stream);
  }

  // Keys and values of the tokens of a page in the pool.
  Status page_values(uint32_t stream, const StreamView& v, uint32_t row) {
    uint16_t* const page = memory_.page_data(v.slots[row]);
    WEIR_TRY(page_values(shape_.format, page, v.len[row]));
    uint16_t* const open = memory_.open_data(stream, v.first_pos[row] / kPageTokens);
    return open == nullptr || v.len[row] == kPageTokens ? Status() : page_values(KvFormat::kBf16, open, v.len[row]);
  }
  Status page_values(KvFormat format, uint16_t* page, uint32_t len) {
    WEIR_TRY(part_values(keys_in(format, page, shape_.head_dim), len));
    return part_values(values_in(format, page, shape_.head_dim), len);
  }
  Status part_values(const PagePart<uint16_t>& part, uint64_t n_tokens) {
    WEIR_TRY(values(part.codes(0), n_tokens * row_code_bytes(part.format, part.head_dim) / sizeof(uint16_t)));
    return values(part.scales(0), part_scales(part.format, part.head_dim, n_tokens));
  }

  // The n elements at `at`, on a device piece by piece.
  Status values(uint16_t* at, uint64_t n) {
    const Machine& machine = *s_.machine_;
    const std::span<uint16_t> room = machine.piece_room();
    if (room.empty()) return io_.array(std::span(at, n));
    for (uint64_t done = 0; done < n; done += room.size()) {
      const std::span<uint16_t> part = room.first(std::min<uint64_t>(room.size(), n - done));
      if (io_.saves()) WEIR_TRY(machine.copy_out(part.data(), at + done, part.size_bytes()));
      WEIR_TRY(io_.array(part));
      if (io_.restores()) WEIR_TRY(machine.copy_in(at + done, part.data(), part.size_bytes()));
    }
    return {};
  }

  Session& s_;
  KvCache& kv_;
  KvCache& memory_;  // the tables of where pages and digests are
  const KvShape& shape_;
  Io& io_;
  uint32_t n_kept_ = 0;  // without recall: pages whose copies follow, from the first on
};

Status CopiesPart::io(Io& io) {
  Pages pages(s_, *kv_, io);
  WEIR_TRY(pages.rows());
  WEIR_TRY(pages.digests());
  return pages.pages();
}

}  // namespace weir
