// KV memory of one session: a unified pool of (layer, KV head) pages, page tables, digests and counters, all laid out
// in one arena. It knows where tokens are and which pages are free; a policy decides which page leaves. Nothing here
// allocates.
//
// The table of a stream lists the resident pages in ascending order of position. Every stream sees every token, so
// pages begin at the same positions (multiples of 16) in all streams; which of them are still resident differs. Rows
// and slots are counted per stream: streams.h says how many of them which stream has.
//
// With recall rows do not leave: row = position / 16 in the streams that the budget rules, and a row whose page is not
// in the pool is cold. Where its copy is, lib/kv/page_copies.h knows.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

#include "core/memory.h"
#include "core/status.h"
#include "kv/attn_history.h"
#include "kv/copy_rings.h"
#include "kv/left_sums.h"
#include "kv/open_move.h"
#include "kv/page_codec.h"
#include "kv/page_events.h"
#include "kv/part.h"
#include "kv/streams.h"
#include "kv/tables.h"
#include "ops/types.h"

namespace weir {

class KvCache final : public Part {
 public:
  // Before lay_out(). The parts that go with the pages, where a session has them: `left` gets what slides out of
  // windows, `history` is here for those who have the tables. Both are laid out, reset, copied and cut by themselves.
  void set_shape(const KvShape& shape, LeftSums* left = nullptr, AttnHistory* history = nullptr);
  const char* name() const override { return "the pages"; }
  void lay_out(Arenas& arenas) override;
  void lay_out(const KvShape& shape, Arena& pages, Arena& digests, Arena& tables);  // all but the parts that go with it
  // All pages free, and wiped; also needed once after lay_out.
  void reset() override;
  // Sets the memory of pages and digests in use, and of a page on its way, to zero. What leaves is wiped at once, so no
  // page is left then; only digests of rows that are gone may be, with recall. Nothing where pages are elsewhere.
  void wipe_pages();

  // Makes this cache, which was just reset, equal to another one of the same shape, with its pages and events.
  void copy_from(const Part& other, uint32_t n_tokens) override;

  // Pages and digests are in device memory: nothing here may read or write them.
  void set_pages_elsewhere() { pages_elsewhere_ = true; }  // before reset()
  // Where evict() records; without a ring it records nothing.
  void set_events(const PageEventRing& ring) { events_ = ring; }
  const PageEventRing& events() const { return events_; }
  const KvTables& tables() const { return t_; }
  KvCounters counters() const;
  void set_counters(const KvCounters& counters);  // after a device changed the tables

  const KvShape& shape() const { return shape_; }
  uint32_t n_tokens() const { return n_tokens_; }
  KvView view(uint32_t layer) const;
  // What attention has learned in a layer that has a history.
  HistoryView history(uint32_t layer) const {
    return history_->view(shape_.n_global(layer) - shape_.n_global(shape_.history_from_layer));
  }
  bool has_learned() const { return history_ != nullptr && !history_->is_empty(); }
  StreamView stream(uint32_t index) const;  // index = layer * n_kv_heads + kv head
  const uint32_t* append_rows(uint32_t layer) const { return t_.append_row + shape_.first_stream(layer); }
  uint32_t* n_pages_of(uint32_t layer) const { return t_.n_pages + shape_.first_stream(layer); }
  // Metadata arrays of one layer, [n_kv_heads, capacity].
  uint32_t* stamps(uint32_t layer) const { return t_.stamp + row_base(layer); }
  float* last_scores(uint32_t layer) const { return t_.last_score + row_base(layer); }
  uint32_t* last_gaps(uint32_t layer) const {  // or null
    return t_.last_gap == nullptr ? nullptr : t_.last_gap + row_base(layer);
  }
  const uint32_t* flags(uint32_t layer) const { return t_.flags + row_base(layer); }
  // Index of a table row among those of all streams.
  size_t row_index(uint32_t stream, uint32_t row) const { return at(stream, row); }
  // With recall: [n_streams] rows, for whoever keeps the copies.
  uint32_t* row_per_stream() const { return row_per_stream_; }
  // With a store: room for a page, or for a block of one (max_block_bytes).
  uint16_t* spare_page() const { return spare_page_; }
  // Copies that are not in rows: with recall those of local layers, without it those of streams that let pages go.
  CopyRings& rings() { return rings_; }
  const CopyRings& rings() const { return rings_; }
  bool has_ring(uint32_t stream) const {
    return rings_.any() && (shape_.recalls() ? window(stream) != 0 : shape_.spec(stream).is_archived);
  }
  // Where the handle of a page's copy is; null: it cannot have one.
  uint32_t* copy_entry(uint32_t stream, uint32_t page) const {
    if (has_ring(stream)) return rings_.entry(shape_.spec(stream).number, page);
    return copies_ != nullptr ? copies_ + at(stream, page) : nullptr;
  }
  uint32_t copy_of(uint32_t stream, uint32_t page) const {  // kNoCopy: it has none
    const uint32_t* entry = copy_entry(stream, page);
    return entry != nullptr ? *entry : kNoCopy;
  }
  // Whether a stream has a row for a page; without recall it is in the pool then. The slot; kNoSlot: it is not there.
  bool holds(uint32_t stream, uint32_t page) const;
  uint32_t slot_of(uint32_t stream, uint32_t page) const;
  // Whether any page of a stream is cold. The budget rules the stream, and the cache has recall.
  bool has_cold(uint32_t stream) const { return resident(stream) != t_.n_pages[stream]; }

  // Whether each stream of the kind of this one (ruled by the budget, or with a window) can open so many pages.
  bool can_open(uint32_t stream, uint32_t n_pages) const {
    return n_free(stream) >= uint64_t{n_pages} * (is_in_pool(stream) ? n_ruled_ : 1);
  }
  // In one pool: resident pages of its streams and slots; and room for a row per stream, for whoever chooses what
  // leaves.
  uint32_t n_in_pool() const { return n_in_pool_; }
  uint32_t n_pool_slots() const { return n_ruled_ * shape_.recall_slots; }
  uint32_t* pool_rows() const { return pool_rows_; }
  bool is_in_pool(uint32_t stream) const { return shape_.one_pool && window(stream) == 0; }

  // Pages that a stream must open to take `n_tok` more tokens.
  uint32_t pages_to_open(uint32_t n_tok) const;

  // A prompt begins: until the next one, going back to here finds the page that takes tokens as it is now.
  void begin_prompt() {
    prompt_begin_ = n_tokens_;
    opened_[kCovered] = {};
  }

  // The next token comes in a decode step that a device does by itself.
  void open_next() { open_for(n_tokens_ + 1); }
  // Calls move(OpenMove) for what open pages on a device have to do first, in order, and forgets it.
  template <class Move>
  Status move_open_pages(const Move& move) {
    for (uint32_t i = 0; i < n_moves_; ++i) WEIR_TRY(move(moves_[i]));
    n_moves_ = 0;
    return {};
  }

  // Opens pages for n_tok tokens in every stream. Attention and appends see the tokens at once, n_tokens() only after
  // commit(). The caller has made room: every stream has pages_to_open(n_tok) free rows. New pages get `flags`; if
  // kPagePrompt is among them, an open page that takes some of the tokens gets them too. `now` is the stamp of new
  // pages.
  Status reserve(uint32_t n_tok, uint32_t flags, uint32_t now);
  void commit();
  // Drops the tokens that are reserved but not committed.
  void rollback() { truncate(n_tokens_); }
  // Drops tokens from position n_tokens on, including reserved ones. No page before that position may have been evicted
  // since they were written; with recall a last page that is cold and no longer full must come back
  // (PageCopies::cut).
  void truncate(uint32_t n_tokens);
  void cut(uint32_t n_tokens) override { truncate(n_tokens); }

  // Removes one page, or with recall makes it cold. Its slot becomes free, and the ring of events records it. A page
  // without a copy is lost.
  void evict(uint32_t stream, uint32_t row);
  // Frees the slot of a page and keeps its row. Gives it a slot again, of which the stream must have a free one, and
  // returns the memory that the page's bytes go to.
  void make_cold(uint32_t stream, uint32_t row);
  uint16_t* take_back(uint32_t stream, uint32_t row);
  // Puts a full page that left back into its row, or into a table with a free row; its bytes are in the stream's next
  // slot by then.
  void put_back(uint32_t stream, uint32_t page);
  uint32_t next_slot(uint32_t stream) const { return t_.free_slots[top_free(stream)]; }
  uint32_t row_of(uint32_t stream, uint32_t page) const;  // of a page that the stream holds
  // Counts copies of pages that left: new ones, those that are dropped for good, and those that nobody needs.
  void count_left(uint64_t n) { pages_cold_.fetch_add(n, std::memory_order_relaxed); }
  void count_dropped(uint64_t n);
  void count_forgotten(uint64_t n) { pages_cold_.fetch_sub(n, std::memory_order_relaxed); }
  // Counts a cold page that is lost, unpins it, and makes its digest worse than any other; where digests are elsewhere,
  // the device does that when it gets the tables.
  void lose(uint32_t stream, uint32_t row);

  // Positions that the stream sees, 0: all. In a stream with a window, slide() removes the pages that no token from
  // position `pos` on can see. They are neither evicted nor recorded: the model itself has done with them.
  uint32_t window(uint32_t stream) const { return t_.window[stream]; }
  // [n_kv_heads] the windows of a layer's streams; null where only the layer has one.
  const uint32_t* head_windows(uint32_t layer) const {
    const bool has = shape_.windows.any() && !shape_.is_local(layer);
    return has ? t_.window + shape_.first_stream(layer) : nullptr;
  }
  void slide(uint32_t stream, uint32_t pos);
  // The sums over what slide() removed from streams that have windows of their own and compensate.
  const LeftSums& left() const { return *left_; }
  bool compensates() const { return left_ != nullptr && left_->is_on(); }
  // The first page that a token at position `pos` sees in this stream, as position / 16.
  uint32_t first_page_seen(uint32_t stream, uint32_t pos) const {
    const uint32_t w = window(stream);
    return w == 0 || pos + 1 < w ? 0 : (pos + 1 - w) / kPageTokens;
  }
  // How many pages slide() would remove.
  uint32_t n_out_of_window(uint32_t stream, uint32_t pos) const;
  uint64_t pages_slid() const { return pages_slid_; }  // for the session's thread only

  // A conversation that was saved, into an empty cache. The columns first_pos, flags, stamp and scores of the first
  // n_pages rows of a stream have been filled, and checked against n_tokens: here the rows get their lengths, and those
  // with kPlaced among their flags get slots, of which the stream has enough; the others are cold. The number of tokens
  // is set last.
  static constexpr uint32_t kPlaced = 1u << 31;
  void place_rows(uint32_t stream, uint32_t n_pages, uint32_t n_tokens);
  void set_n_tokens(uint32_t n_tokens);

  // Flags of the open page (the same in all streams), 0 if there is none. The setter restores them in every stream.
  uint32_t open_page_flags() const { return t_.n_pages[0] == 0 ? 0 : t_.flags[at(0, t_.n_pages[0] - 1)]; }
  void set_open_page_flags(uint32_t flags);

  // Sets and clears flags of the pages that hold any of the positions [first, end), in all streams without a window.
  // Returns the number of pages; those that are lost are none.
  uint64_t set_flags(uint32_t first, uint32_t end, uint32_t set, uint32_t clear);
  // No stamp is above `step` afterwards.
  void limit_stamps(uint32_t step);

  // One page in the pool: its keys, with its values after them; for tests and tools.
  const uint16_t* page_keys(uint32_t slot) const { return pool_ + slot * page_elements(); }
  // The same to write to; null where pages are in device memory.
  uint16_t* page_data(uint32_t slot) { return pages_elsewhere_ ? nullptr : pool_ + slot * page_elements(); }
  // The open page of a stream for page `page`, in bf16; null where all pages are.
  uint16_t* open_data(uint32_t stream, uint32_t page) {
    return open_ == nullptr ? nullptr : open_ + (page % 2 * shape_.n_streams() + stream) * open_elements();
  }
  // Something else was written there, so nothing of it is left.
  void forget_open_rows(uint32_t page) { opened_[page % 2] = {}; }
  // Where the digest of a row is among the digests, and a digest, [digest_elements].
  size_t digest_index(uint32_t stream, uint32_t row) const {
    return shape_.recalls() ? at(stream, row) : t_.slots[at(stream, row)];
  }
  uint16_t* digest_data(size_t index) const {
    return digests_ + index * digest_elements(shape_.digest, shape_.head_dim);
  }
  // Computes a page's digest from its keys. Kinds that need whole pages give no digest to a page that is not full.
  void rebuild_digest(uint32_t stream, uint32_t row);

  // Counters, readable from any thread.
  uint64_t pages_resident() const { return pages_resident_.load(std::memory_order_relaxed); }
  uint64_t pages_resident_max() const { return pages_resident_max_.load(std::memory_order_relaxed); }
  uint64_t pages_evicted() const { return pages_evicted_.load(std::memory_order_relaxed); }
  // With recall: pages that are lost, and pages that have no slot but a copy.
  uint64_t pages_lost() const { return pages_lost_.load(std::memory_order_relaxed); }
  uint64_t pages_cold() const { return pages_cold_.load(std::memory_order_relaxed); }
  // Evicted pages with kPagePrompt; for the session's thread only.
  uint64_t prompt_pages_evicted() const { return prompt_pages_evicted_; }
  uint32_t n_tokens_any_thread() const { return n_tokens_published_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kNoPage = UINT32_MAX, kOpenPages = KvShape::kOpenPages, kCovered = 2;
  void order_slots();
  void clear_rest(uint32_t slot);
  // A layer's first row. Tables in device memory cannot be looked at.
  size_t row_base(uint32_t layer) const {
    return has_tables_ ? t_.row_begin[shape_.first_stream(layer)] : shape_.rows_before(layer);
  }
  size_t at(uint32_t stream, uint32_t row) const { return size_t{t_.row_begin[stream]} + row; }
  uint32_t capacity(uint32_t stream) const { return t_.row_begin[stream + 1] - t_.row_begin[stream]; }
  uint32_t n_slots_of(uint32_t stream) const {
    return is_in_pool(stream) ? shape_.recall_slots : t_.slot_begin[stream + 1] - t_.slot_begin[stream];
  }
  uint32_t resident(uint32_t stream) const {
    return t_.n_resident != nullptr ? t_.n_resident[stream] : t_.n_pages[stream];
  }
  uint32_t n_free(uint32_t stream) const {
    return is_in_pool(stream) ? n_pool_slots() - n_in_pool_ : n_slots_of(stream) - resident(stream);
  }
  // Index of the top of a stream's stack of free slots; the stack is not empty while the stream has a free slot. The
  // stack of the one pool is the last.
  size_t top_free(uint32_t stream) const {
    return is_in_pool(stream) ? size_t{n_slots_} - 1 - n_in_pool_
                              : size_t{t_.slot_begin[stream + 1]} - 1 - resident(stream);
  }
  void change_resident(uint32_t stream, int32_t change);
  void free_slot(uint32_t stream, uint32_t slot);  // after change_resident()
  void remove_row(uint32_t stream, uint32_t row);
  // Opens a row with a slot, which is returned, in the middle of a table; its length, flags and stamp are the caller's.
  uint32_t insert_row(uint32_t stream, uint32_t row, uint32_t first_pos);
  void copy_stream(const KvCache& other, uint32_t stream);
  size_t page_elements() const { return shape_.page_bytes() / sizeof(uint16_t); }
  void count_resident(int64_t change);
  size_t open_elements() const { return shape_.open_page_bytes() / sizeof(uint16_t); }
  void forget_open(uint32_t end);
  void open_for(uint32_t end);
  void reopen(uint32_t end);
  void copy_open(uint32_t from, uint32_t to);
  void note_move(const OpenMove& move);

  void record_event(uint32_t stream, size_t row);

  KvShape shape_;
  uint32_t n_ruled_ = 0, n_slots_ = 0;  // streams that are not local, and slots of all
  bool pages_elsewhere_ = false;
  bool has_tables_ = false;  // they say something
  PageEventRing events_;
  uint16_t* pool_ = nullptr;  // [n_slots, page_elements()]
  // [kOpenPages, n_streams, 2, kPageTokens, head_dim] bf16: two by the parity of their page, and the one that a prompt
  // has written over and needs if it is taken back. Null where all pages are in bf16.
  uint16_t* open_ = nullptr;
  struct OpenPage {
    uint32_t page = kNoPage, n_rows = 0;  // its first rows are there
    bool has(uint32_t other, uint32_t n) const { return page == other && n_rows >= n; }
  };
  OpenPage opened_[kOpenPages] = {};
  // Pages are elsewhere: what has not been done there. A chunk that is reserved adds a move, and so does a truncation;
  // after a rewind, or a prompt that failed, the tables are sent, and with them what is here.
  static constexpr uint32_t kMaxMoves = 4;
  OpenMove moves_[kMaxMoves];
  uint32_t n_moves_ = 0;
  uint32_t prompt_begin_ = 0;    // the third is the page that was open there
  uint16_t* digests_ = nullptr;  // [n_slots, or with recall n_rows, digest_elements] bf16, or null
  KvTables t_ = {};
#define WEIR_HOST_ROW(name, type, is_there, none) type* name##_ = nullptr;  // of all rows, or null
#include "kv/columns.inc"
  uint32_t* row_per_stream_ = nullptr;  // [n_streams]; null without recall
  uint32_t* pool_rows_ = nullptr;       // [n_streams]; null without one pool
  uint32_t n_in_pool_ = 0;
  uint16_t* spare_page_ = nullptr;  // null without a store
  CopyRings rings_;
  uint32_t n_tokens_ = 0;  // committed
  uint32_t n_reserved_ = 0;
  uint64_t prompt_pages_evicted_ = 0, pages_slid_ = 0;
  std::atomic<uint64_t> pages_resident_{0}, pages_resident_max_{0}, pages_evicted_{0}, pages_lost_{0}, pages_cold_{0};
  LeftSums* left_ = nullptr;
  AttnHistory* history_ = nullptr;
  std::atomic<uint32_t> n_tokens_published_{0};
};

// The way back from a reservation: unless it is committed, what was reserved is dropped when this ends, however that
// comes about, and `parts` forget what the pass left in them.
class KvReservation {
 public:
  explicit KvReservation(KvCache& kv, const PartList& parts = {}) : kv_(kv), parts_(parts) {}
  ~KvReservation() {
    if (committed_) return;
    kv_.rollback();
    parts_.roll_back(kv_.n_tokens());
  }
  KvReservation(const KvReservation&) = delete;
  KvReservation& operator=(const KvReservation&) = delete;
  void commit() {
    kv_.commit();
    committed_ = true;
  }

 private:
  KvCache& kv_;
  PartList parts_;
  bool committed_ = false;
};

}  // namespace weir
