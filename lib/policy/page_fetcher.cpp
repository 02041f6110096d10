// Slots for the pages that attention asks for, and reading them; see page_fetcher.h. What was attended the longest ago
// leaves, and of what the same step attended the least important. In one pool of all layers, a layer that has not run
// in this step yet has attended its pages as lately as those that have; of equals leaves what is needed again last.
#include "policy/page_fetcher.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/clock.h"
#include "kv/page_copies.h"
#include "policy/policy.h"

namespace weir {

PageFetcher* PageFetcher::lay_out(uint32_t n_kv_heads, uint64_t page_bytes, uint32_t microbatch, Arena& arena) {
  auto* fetcher = arena.take<PageFetcher>(1);
  auto* streams = arena.take<Stream>(n_kv_heads);
  const size_t elements = page_bytes / sizeof(uint16_t), of_stream = size_t{2} * microbatch * elements;
  auto* pages = arena.take<uint16_t>(n_kv_heads * of_stream);
  if (fetcher == nullptr) return nullptr;
  new (fetcher) PageFetcher;
  fetcher->n_kv_heads_ = n_kv_heads;
  fetcher->microbatch_ = microbatch;
  fetcher->page_elements_ = elements;
  fetcher->streams_ = streams;
  for (uint32_t i = 0; i < n_kv_heads; ++i) streams[i].pages = pages + i * of_stream;
  return fetcher;
}

PageSource* PageFetcher::start(KvCache& kv, PageCopies& copies, uint32_t layer, uint32_t now, uint32_t n_front_rows) {
  kv_ = &kv;
  copies_ = &copies;
  layer_ = layer;
  now_ = now;
  n_front_rows_ = n_front_rows;
  for (uint32_t i = 0; i < n_kv_heads_; ++i) {
    Stream& s = streams_[i];
    s.n_coming = s.n_ahead = s.n_kept = s.parity = 0;
  }
  n_victims_ = next_victim_ = 0;
  return this;
}

bool PageFetcher::Victim::before(const Victim& other) const {
  if (age != other.age) return age > other.age;
  if (next_run != other.next_run) return next_run > other.next_run;
  if (score != other.score) return score < other.score;
  return stream != other.stream ? stream < other.stream : row < other.row;
}

bool PageFetcher::is_kept(uint32_t stream, uint32_t row) const {
  if (stream / n_kv_heads_ != layer_) return false;
  const Stream& s = streams_[stream % n_kv_heads_];
  return std::find(s.kept, s.kept + s.n_kept, row) != s.kept + s.n_kept;
}

// Adds a stream's pages to the list as far as they are among the first. Without one pool, `of_this_step` says whether
// those that this step has attended.
void PageFetcher::add_victims(uint32_t stream, bool of_this_step) {
  const StreamView v = kv_->stream(stream);
  const bool one_pool = kv_->is_in_pool(stream);
  const uint32_t layer = stream / n_kv_heads_;
  for (uint32_t row = n_front_rows_; row + 1 < v.n_pages; ++row) {
    if (v.slots[row] == kNoSlot || (v.flags[row] & kPageStays) != 0) continue;
    const bool attended = v.stamp[row] >= now_;
    if (!one_pool && attended != of_this_step) continue;
    // Layers behind this one have not run in this step, and this one has only for what it has attended.
    const bool has_run = layer < layer_ || attended;
    const uint32_t last_run = one_pool && !has_run ? now_ - 1 : now_;
    Victim victim = {stream, row, v.stamp[row], last_run - std::min(last_run, v.stamp[row]), 0, score_of(v, row)};
    if (one_pool && has_run) victim.next_run = kv_->shape().n_layers + layer - layer_;
    if (n_victims_ == kVictims && !victim.before(victims_[kVictims - 1])) continue;
    if (is_kept(stream, row)) continue;
    n_victims_ = std::min(n_victims_ + 1, kVictims);
    uint32_t at = n_victims_ - 1;
    for (; at > 0 && victim.before(victims_[at - 1]); --at) victims_[at] = victims_[at - 1];
    victims_[at] = victim;
  }
}

void PageFetcher::find_victims(uint32_t stream) {
  n_victims_ = next_victim_ = 0;
  victims_of_ = stream;
  if (kv_->is_in_pool(stream)) {
    for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
      if (kv_->is_in_pool(s)) add_victims(s, false);
    }
    return;
  }
  add_victims(stream, false);
  if (n_victims_ != 0) return;
  // The step asks for more pages than there are slots: what it has attended leaves.
  add_victims(stream, true);
  n_victims_ = std::min(n_victims_, 1u);  // the next page that is attended may be the next that leaves
}

// Frees a slot for a stream.
bool PageFetcher::evict_for(uint32_t stream) {
  if (!kv_->is_in_pool(stream) && victims_of_ != stream) n_victims_ = next_victim_ = 0;
  for (bool fresh : {false, true}) {
    if (fresh) find_victims(stream);
    while (next_victim_ < n_victims_) {
      const Victim& victim = victims_[next_victim_++];
      const StreamView v = kv_->stream(victim.stream);
      const bool is_there = v.slots[victim.row] != kNoSlot && v.stamp[victim.row] == victim.stamp;
      if (!is_there || is_kept(victim.stream, victim.row)) continue;
      kv_->evict(victim.stream, victim.row);
      return true;
    }
  }
  return false;
}

// Gives a cold page a slot. False: it is lost.
bool PageFetcher::begin_read(uint32_t kv_head, uint32_t row) {
  Stream& s = streams_[kv_head];
  const uint32_t stream = index(kv_head);
  if (kv_->stream(stream).is_lost(row)) return false;
  if (kv_->stream(stream).n_free == 0 && !evict_for(stream)) return false;
  Read& read = s.coming[s.n_coming++];
  read = {row, WEIR_OK, kv_->take_back(stream, row), nullptr, 0};
  for (uint32_t i = 0; i < s.n_ahead; ++i) {
    if (s.ahead[i].row == row && s.ahead[i].is_read)
      read = {row, s.ahead[i].status, read.to, s.ahead[i].to, s.ahead[i].ns};
  }
  return true;
}

uint32_t PageFetcher::want(uint32_t kv_head, uint32_t* rows, uint32_t n, const uint32_t* ahead, uint32_t n_ahead) {
  Stream& s = streams_[kv_head];
  const StreamView v = kv_->stream(index(kv_head));
  std::copy_n(rows, n, s.kept);
  std::copy_n(ahead, n_ahead, s.kept + n);
  s.n_kept = n + n_ahead;
  s.n_coming = 0;
  uint32_t n_left = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t row = rows[i];
    if (v.slots[row] == kNoSlot && !begin_read(kv_head, row)) continue;
    v.stamp[row] = now_;
    rows[n_left++] = row;
  }
  // What was read ahead stays where it is until it has been loaded.
  s.parity ^= 1;
  s.n_ahead = 0;
  for (uint32_t i = 0; i < n_ahead; ++i) {
    if (v.slots[ahead[i]] != kNoSlot || v.is_lost(ahead[i])) continue;
    s.ahead[s.n_ahead] = {ahead[i], WEIR_OK, page(s, s.n_ahead), false, 0};
    ++s.n_ahead;
  }
  return n_left;
}

uint32_t PageFetcher::load(uint32_t kv_head, uint32_t* rows, uint32_t n) {
  Stream& s = streams_[kv_head];
  for (uint32_t i = 0; i < s.n_coming; ++i) {
    Read& read = s.coming[i];
    const uint64_t started = now_ns();
    if (read.from == nullptr) {
      read.status = copies_->read_copy(index(kv_head), read.row, read.to).code();
    } else if (read.status == WEIR_OK) {
      std::memcpy(read.to, read.from, page_elements_ * sizeof(uint16_t));
    }
    if (read.status != WEIR_OK) n = static_cast<uint32_t>(std::remove(rows, rows + n, read.row) - rows);
    read.ns += now_ns() - started;
  }
  return n;
}

void PageFetcher::settle(uint32_t kv_head) {
  const Stream& s = streams_[kv_head];
  for (uint32_t i = 0; i < s.n_coming; ++i)
    copies_->took_back(index(kv_head), s.coming[i].row, s.coming[i].status, s.coming[i].ns);
}

void PageFetcher::read_ahead(uint32_t kv_head) {
  Stream& s = streams_[kv_head];
  for (uint32_t i = 0; i < s.n_ahead; ++i) {
    Ahead& read = s.ahead[i];
    const uint64_t started = now_ns();
    read.status = copies_->read_copy(index(kv_head), read.row, read.to).code();
    read.ns = now_ns() - started;
    read.is_read = true;
  }
}

}  // namespace weir
