// Store of sealed KV pages outside the pool: n_raw pages as they are ("raw"), the others compressed in host memory, and
// behind that optionally a file. It knows pages by handles; which page belongs to which session, what a page is worth
// and which one is dropped are the caller's business.
//
//   put -> raw slots -> queue, at most queue_pages -> cells -> file
//           ^                                          |       |
//           +------------------ make_raw --------------+-------+
//
// When a page needs a raw slot and all are taken, the page leaves that was wanted the longest ago (kv/spill_order.cpp),
// and goes through a bounded queue to background workers, which compress it (kv/page_codec.h) into cells
// (kv/spill_cells.h). When the cells are full, the oldest blocks move to the file, except those read since they were
// last considered, which get another round. A page that was read from cells or file can become raw again. A page can be
// read in any of these places, with the same result.
//
// Whether a put succeeds depends on the calls and the pages' bytes alone, never on the workers' progress: a page in the
// queue counts with the cells of the largest block until put takes it out of the queue, and pages leave it in order.
// Before put refuses, it has taken out all of them. If the page to take out is not compressed yet, put compresses with
// the workers, and waits if they have all that is left.
//
// A copy of a store (create_copy) has the same pages, and room of its own for all of them. Their bytes are shared until
// the store that has them would free them (kv/spill_family.h); nothing of this shows in what the functions return.
//
// Memory: everything is allocated by create(), the bytes are those of plan_spill(). Threads: all functions after
// create() may be called from several threads; puts take turns. Whoever holds a reference to a page may read it; puts
// of several threads give results that depend on their order.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <mutex>
#include <span>

#include "core/memory.h"
#include "core/status.h"
#include "kv/page_codec.h"
#include "kv/spill_cells.h"
#include "kv/spill_family.h"
#include "kv/spill_file.h"
#include "kv/tables.h"

namespace weir {

using SpillHandle = uint32_t;
inline constexpr SpillHandle kNoSpill = UINT32_MAX;

using CreateThreadFn = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

struct SpillOptions {
  uint32_t page_bytes = 0;          // as is_codec_page() wants them
  bool compresses = true;           // PageEncoder::init
  uint32_t max_pages = 0;           // held at one time
  uint64_t budget_bytes = 0;        // of raw slots and cells
  uint64_t raw_bytes = 0;           // of it, for raw slots; 0: every page is compressed at once
  const char* file_path = nullptr;  // relative to the current folder of create(), also for copies of the store
  uint64_t file_bytes = 0;          // 0: no file
  uint32_t n_workers = 0;           // background threads; 0: put compresses
  uint32_t queue_pages = 64;        // pages that may wait for workers, their memory is not part of the budget
  uint32_t n_readers = 1;           // reads of compressed pages at one time; more wait
  const FileCalls* file_calls = &kSystemFile;
  CreateThreadFn create_thread = pthread_create;
};

// Where a page lies, for files that keep it.
enum class SpillPlace : uint8_t { kRaw, kCells, kFile };

struct SpillPlan {
  uint32_t worst_cells = 0;  // of one page
  uint32_t n_raw = 0, n_cells = 0, n_file_cells = 0;
  uint32_t queue_pages = 0;   // 1 without workers
  uint32_t n_slots = 0;       // of a page each: n_raw, those of the queue, one a worker, and one for the newest page
  uint32_t n_entries = 0;     // of the table of pages
  uint64_t host_bytes = 0;    // from the first resource: table, cells, contexts, links of the file
  uint64_t slot_bytes = 0;    // from the second: all slots
  uint64_t family_bytes = 0;  // from the third; copies of a store have these together, and each counts them
  uint64_t file_bytes = 0;    // on disk
  uint64_t total_bytes() const { return host_bytes + slot_bytes + family_bytes; }
};

// Bytes of cells that hold any n_pages pages, whatever is in them.
constexpr uint64_t spill_worst_bytes(uint32_t page_bytes, uint64_t n_pages) {
  return n_pages * SpillCells::cells_for(max_block_bytes(page_bytes)) * SpillCells::kCellBytes;
}

// Checks the options and computes what create() takes. WEIR_ERR_BUDGET when not even one page fits, naming the bytes.
Status plan_spill(const SpillOptions& options, SpillPlan& plan);

struct SpillStats {
  uint64_t pages_spilled = 0;  // puts that succeeded
  uint64_t pages_dropped = 0;  // given up by drop(), or lost with the file
  uint64_t pages_held = 0, pages_raw = 0, pages_in_file = 0;
  uint64_t stored_bytes = 0;  // taken by the pages held: raw pages, cells and cells of the file
  uint64_t waits = 0;         // how often put or make_room found the workers behind and helped or waited
  uint64_t errors = 0;        // of the file, and blocks that were damaged
  uint64_t restored = 0;      // how often get gave a page that was compressed
};

class SpillStore {
 public:
  // `slot_memory` gives the memory of raw pages, so that a device can map it. `family_memory` outlives the store and
  // its copies, and gives what they have in common.
  SpillStore(std::pmr::memory_resource* memory, std::pmr::memory_resource* slot_memory,
             std::pmr::memory_resource* family_memory)
      : memory_(memory), slot_memory_(slot_memory), family_memory_(family_memory) {}
  // Ends the workers; pages in the queue are not waited for. Blocks that copies share are copied to one of them.
  ~SpillStore();
  SpillStore(const SpillStore&) = delete;
  SpillStore& operator=(const SpillStore&) = delete;

  // Once. Throws std::bad_alloc like the resources; after a failure the store can only be destroyed.
  Status create(const SpillOptions& options);
  // Once, instead of create(): a store with the options of `other` and all its pages, under the same handles with the
  // same references. From then on the same calls have the same results in both, on any threads. Waits until no page of
  // `other` is being compressed. Where both have a file, a fault of one's may cost pages of the other that it still
  // shares with it: they are lost (is_lost) and counted. WEIR_ERR_IO: the new file; `other` goes on as before.
  Status create_copy(SpillStore& other);
  const SpillPlan& plan() const { return plan_; }

  // Makes the next n_pages puts succeed if nobody else puts. WEIR_ERR_BUDGET when the store is full: the caller drops
  // pages and tries again, or gives up. May move blocks to the file.
  Status make_room(uint32_t n_pages);
  // Copies a page, [page_bytes]. WEIR_ERR_BUDGET as for make_room(1), nothing has changed then. `tag`: the page's place
  // in what set_raw_index() and set_stamps() got. `is_spare`: no step wants it, so it leaves the raw slots before all
  // that steps may want.
  Status put(uint32_t stream, uint32_t position, const void* page, SpillHandle& handle, uint32_t tag = 0,
             bool is_spare = false);
  // From now on index[tag] says where the copy of the page with that tag is: its raw slot, kCopyElsewhere or kNoCopy.
  // It changes only in calls of the functions here. `index` outlives the store; its owner fills it with kNoCopy. Raw
  // pages have their bytes in raw_slots() from then on: in a copy of a store, those that it had are copied now.
  void set_raw_index(uint32_t* index);
  const std::byte* raw_slots() const { return slots_; }

  // The order in which pages leave the raw slots (spill_order.cpp). stamps[tag] says when the page with that tag was
  // wanted last; the page of the least stamp leaves first, of equals that of the lower tag. Without stamps the page
  // that was put first does. `stamps` outlives the store. They are read in functions that need raw slots, and grow; if
  // some fell, stamps_fell() must be called before the next of these.
  void set_stamps(const uint32_t* stamps);
  void stamps_fell();
  // Whether the stamps may be read when n_pages more are put or made raw.
  bool needs_stamps(uint32_t n_pages) const;
  // Whether some pages are not raw.
  bool has_compressed() const;
  // The first i in [begin, n) of a page that is not raw and whose stamp, stamps[i], is at least `since`; n: there is
  // none. handles[i] may be kNoSpill.
  uint32_t find_compressed(const SpillHandle* handles, const uint32_t* stamps, uint32_t begin, uint32_t n,
                           uint32_t since) const;
  // Makes such a page raw again if it was wanted later than the one that leaves for it, and if that has room in cells.
  // `is_raw` says whether it is raw then. The errors are those of get().
  Status make_raw(SpillHandle handle, uint32_t stream, uint32_t position, bool& is_raw);
  // Restores the page that was put with this stream and position. WEIR_ERR_FORMAT: the block is damaged, or another
  // page's; WEIR_ERR_IO: the file failed and is given up; WEIR_ERR_NOT_FOUND: the page was lost with the file.
  // `out` holds anything then.
  Status get(SpillHandle handle, uint32_t stream, uint32_t position, void* out);

  // The same page as a block (page_codec.h), [max_block_bytes], which the store has checked; and back. Between the two
  // places should be the same, so that a store of the same size holds as much: put_block uses another one only when
  // there is no room. Blocks that were in memory are stored as they are; WEIR_ERR_FORMAT when one is damaged or another
  // page's.
  Status get_block(SpillHandle handle, uint32_t stream, uint32_t position, std::byte* block, uint32_t& block_bytes,
                   SpillPlace& place);
  // put_block also restores the page to `page` if that is not null; in WEIR_ERR_BUDGET, too.
  Status put_block(uint32_t stream, uint32_t position, const std::byte* block, uint32_t block_bytes, SpillPlace place,
                   void* page, SpillHandle& handle, uint32_t tag = 0);
  // For a page that is at hand: makes its block, [max_block_bytes], and returns the size; says where its copy lies,
  // false: it was lost.
  uint32_t make_block(uint32_t stream, uint32_t position, const void* page, std::byte* block);
  bool find_place(SpillHandle handle, SpillPlace& place) const;

  // References: put gives one, share adds one, release and drop take one away; the page is gone with its last one. drop
  // is for pages that somebody still might want, and counts them.
  void share(SpillHandle handle);
  void release(SpillHandle handle);
  void drop(SpillHandle handle);
  // The store's conversation is over: it ends all references and wipes the memory where pages were. What other stores
  // share with it they have from then on. The next conversation's checksums have another salt, so that no bytes of this
  // one, wherever they may lie, are taken for its pages. Counters go on; a file that was given up stays so.
  void clear();

  // The page's raw bytes, or null if it is elsewhere. They stay there until the next put, make_room or release. Not
  // checked against the checksum.
  const std::byte* raw_page(SpillHandle handle);
  bool is_lost(SpillHandle handle) const;  // with the file
  bool file_given_up() const;
  // How often pages were lost without being asked for: with the file, or as another store of the family lost its.
  uint32_t n_losses() const;
  void drain();  // waits until the queue is empty
  SpillStats stats() const;

  std::span<std::byte> cells_memory() { return cells_.memory(); }  // for tests
  uint32_t n_cells_taken() const;                                  // the same: how many have bytes of this store

 private:
  enum class Where : uint8_t {
    kFree,    // the entry is not used
    kRaw,     // in a slot
    kQueued,  // in a slot, waits for a worker
    kBusy,    // in a slot, a worker compresses it
    kGone,    // the same, but the last reference ended
    kDone,    // in cells, not yet taken out of the queue
    kCells,
    kMoving,  // the same, while the block is written to the file
    kFile,
    kLost,  // with the file, or by damage of the cells' links
  };
  // Pages are in one list or none: the queue; blocks in cells, those to move first in front. Raw pages are in a heap.
  struct Entry {
    uint64_t checksum;
    SpillStore* owner;  // of a raw page, or a block in cells or file: the store that has the bytes; null: this one
    uint32_t tag;
    uint32_t n_refs;
    uint32_t first, last;  // first: slot or first cell; last: last cell; of a block that another store has: nothing
    uint32_t block_bytes;
    uint32_t prev, next;  // of a raw page: prev is its place in the heap
    uint32_t stamp;       // of a raw page: as it was when its place in the heap was found, or less
    Where where;
    bool was_read;  // since the block was last considered for the file
    bool is_spare;
  };
  struct List {
    uint32_t first = kNoSpill, last = kNoSpill, n = 0;
  };
  struct Worker {
    SpillStore* store;
    PageEncoder encoder;
    std::byte* block;  // [max_block_bytes]
    pthread_t thread;
  };
  struct Reader {
    PageDecoder decoder;
    std::byte* block;
    SpillFile::Run* runs;
    Reader* next;
  };
  using Lock = std::unique_lock<std::mutex>;
  friend Status plan_spill(const SpillOptions& options, SpillPlan& plan);

  void lay_out(const SpillOptions& options, const SpillPlan& plan, Arena& arena);
  Status init_codecs();
  void init_lists();
  Status start_workers(const SpillOptions& options);
  void append(List& list, uint32_t index);
  void remove(List& list, uint32_t index);

  // Raw pages (spill_order.cpp).
  bool leaves_before(uint32_t a, uint32_t b) const;
  uint32_t stamp_of(uint32_t index) const;
  void place_raw(uint32_t at, uint32_t index);
  void raise_raw(uint32_t at, uint32_t index);
  void sink_raw(uint32_t at, uint32_t index);
  void add_to_raw(uint32_t index, uint32_t position);
  void remove_raw(uint32_t index);
  uint32_t next_to_leave();
  bool can_become_raw(Lock& lock, uint32_t index);
  std::byte* slot(uint32_t index) const { return slots_ + size_t{index} * plan_page_bytes_; }
  // The slot that the next page to put takes.
  uint32_t top_slot() {
    const uint32_t index = free_slots_[n_free_slots_ - 1];
    n_slots_used_ = std::max(n_slots_used_, index + 1);
    return index;
  }
  // As entries and blocks have it: with the salt. A saved block has the checksum without.
  uint64_t checksum_here(const void* page, uint32_t stream, uint32_t position) const {
    return page_checksum(page, plan_page_bytes_, stream, position) ^ salt_;
  }

  // Sharing (spill_family.cpp).
  void join_family();
  void leave_family();
  void copy_pages(SpillStore& other);
  const SpillStore& holder(uint32_t index) const {
    const SpillStore* owner = entries_[index].owner;
    return owner != nullptr ? *owner : *this;
  }
  const std::byte* raw_bytes(uint32_t index) const;
  bool get_from_cells(uint32_t index, std::byte* block) const;
  void hand_over(uint32_t index);
  bool take_over(uint32_t index);
  bool take_over_block(uint32_t index);
  void lose_shared(uint32_t index);
  uint32_t file_room() const { return file_.n_free() - n_reserved_in_file_; }

  bool is_page(SpillHandle handle) const {
    return handle < plan_.n_entries && entries_[handle].where != Where::kFree && entries_[handle].n_refs != 0;
  }
  Status make_room(Lock& lock, uint32_t n_pages);
  bool free_cells(Lock& lock, uint64_t n);
  void take_from_queue(Lock& lock);
  void retire(Lock& lock);
  bool move_to_file(Lock& lock, uint64_t wanted);
  bool write_to_file(Lock& lock, uint32_t index);
  bool put_in_cells(const std::byte* block, uint32_t block_bytes, uint32_t& first, uint32_t& last);
  void give_cells_back(Entry& entry);
  void give_file_cells_back(Entry& entry);
  void give_up_file();
  void do_job(Lock& lock, Worker& worker);
  uint32_t compress(Worker& worker, uint32_t index);
  void keep_block(uint32_t index, const std::byte* block, uint32_t block_bytes);
  void free_entry(uint32_t index);
  void free_place(uint32_t index);
  void end_reference(SpillHandle handle, bool is_drop);
  void end_page(uint32_t handle);
  void wipe();
  void lose(Entry& entry);
  void tell(const Entry& entry, uint32_t where) {
    if (raw_index_ != nullptr) raw_index_[entry.tag] = where;
  }
  SpillHandle add_raw(uint64_t checksum, uint32_t position, uint32_t tag, uint32_t slot, bool is_spare);
  bool add_to_cells(Lock& lock, uint64_t checksum, uint32_t tag, const std::byte* block, uint32_t block_bytes,
                    bool to_file, SpillHandle& handle);
  Reader& take_reader(Lock& lock);
  void give_reader(Reader& reader);
  Status read(Lock& lock, SpillHandle handle, uint32_t stream, uint32_t position, std::byte* out, Reader& reader);
  Status read_file(Lock& lock, SpillHandle handle, uint32_t stream, uint32_t position, Reader& reader);
  static void* worker_main(void* worker);

  std::pmr::memory_resource* memory_;
  std::pmr::memory_resource* slot_memory_;
  std::pmr::memory_resource* family_memory_;
  SpillFamily* family_ = nullptr;
  SpillStore* next_member_ = nullptr;  // of the family
  SpillOptions options_;
  SpillPlan plan_;
  uint32_t plan_page_bytes_ = 0, n_workers_ = 0, n_readers_ = 0, max_pages_ = 0, n_started_ = 0;
  std::byte* block_ = nullptr;  // of host_bytes; the next pointers lead into it
  Entry* entries_ = nullptr;
  uint32_t* free_slots_ = nullptr;  // a stack
  std::byte* cell_memory_ = nullptr;
  uint32_t* file_links_ = nullptr;
  std::byte* encoder_memory_ = nullptr;  // workspaces and buffers, one after the other
  std::byte* decoder_memory_ = nullptr;
  std::byte* block_memory_ = nullptr;
  SpillFile::Run* run_memory_ = nullptr;
  char* path_memory_ = nullptr;  // of the file, for a copy of the store
  Worker* workers_ = nullptr;    // [n_workers + 1], the last for the thread that puts
  Reader* readers_ = nullptr;    // [n_readers + 2], the last but one for writing to the file, the last for take_over
  std::byte* slots_ = nullptr;
  uint32_t* raw_index_ = nullptr;     // by tag; null: nobody wants to know
  const uint32_t* stamps_ = nullptr;  // by tag; null: pages leave the raw slots in the order of put

  std::mutex put_mutex_;  // puts take turns; taken before the family's mutex, which guards all that follows
  std::condition_variable job_, done_, reader_free_, guest_left_;
  SpillCells cells_;
  SpillFile file_;
  uint64_t salt_ = 0;          // of this conversation's checksums
  uint32_t n_slots_used_ = 0;  // slots from this one on hold nothing of it
  List queue_, in_cells_;
  uint32_t* raw_ = nullptr;  // [n_raw + 1] a heap: in front the page that leaves next, as far as stamps are known
  uint32_t n_raw_ = 0, n_puts_ = 0;
  bool stamps_fell_ = false;
  uint32_t next_job_ = kNoSpill;  // the first page of the queue that no worker has taken
  uint32_t free_entry_ = kNoSpill, n_free_slots_ = 0;
  // Cells that are free when every page in the queue needs worst_cells. Damage of links may take more than are free.
  int64_t free_for_sure_ = 0;
  uint32_t n_reserved_in_file_ = 0;  // cells of the file for blocks that another store has
  uint32_t n_guests_ = 0;            // stores that are reading this one's file, without the lock
  Reader* free_reader_ = nullptr;
  bool has_codecs_ = false, stop_ = false, file_failed_ = false;
  uint32_t n_losses_ = 0;
  SpillStats stats_;
};

}  // namespace weir
