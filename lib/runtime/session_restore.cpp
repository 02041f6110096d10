// Restores a session from a file that is not trusted. Sizes are those of the session's own plan; numbers of the file
// are compared with them. Everything is checked before it is used as an index, and until all of it is there the session
// has no tokens; whatever fails leaves it as after a reset.
#include <algorithm>
#include <cmath>
#include <cstdarg>

#include "core/c_format.h"
#include "core/utf8.h"
#include "policy/prompts.h"
#include "runtime/saved_session.h"
#include "runtime/session_entry.h"

namespace weir {
namespace {

constexpr uint32_t kKnownFlags = kPagePinned | kPagePrompt | kPageKept | kPageFirstPrompt;

}  // namespace

class Session::Restorer final : ByteSource {
 public:
  Restorer(Session& session, weir_read_fn fn, void* user)
      : s_(session),
        change_(session.tables_),
        kv_(*change_),
        shape_(kv_.shape()),
        memory_(session),
        fn_(fn),
        user_(user),
        in_(*this) {}

  Status run() {
    WEIR_TRY(in_.begin());
    for (const auto& [section, part] : kSectionParts<Restorer>) {
      if (!has_section(section, s_.policy_->needs())) continue;
      WEIR_TRY(in_.begin_section(section));
      WEIR_TRY((this->*part)());
      WEIR_TRY(in_.end_section());
      // What differs is told only once it is certain that the file says so.
      if (section == Section::kDescription) WEIR_TRY(compare_description());
    }
    WEIR_TRY(in_.finish());
    kv_.set_n_tokens(n_tokens_);
    s_.sampler_.restore(sampler_);
    s_.detokenizer_.restore(held_);
    s_.has_logits_ = has_logits_;
    return {};
  }

  Status description() {
    WEIR_TRY(in_.number(n_description_));
    return in_.array(std::span<char>(description_), n_description_, "bytes of description");
  }

  Status tokens() {
    const uint32_t most = s_.policy_->needs().context_tokens;
    WEIR_TRY(in_.number(n_tokens_));
    if (n_tokens_ > most) return damaged("%u tokens in a context of %u", n_tokens_, most);
    return in_.version() == kWholeVersion ? whole_record() : part_of_record();
  }

  Status logits() {
    const uint32_t vocab_size = s_.model_->config().vocab_size;
    uint32_t n = 0;
    WEIR_TRY(in_.number(n));
    if (n != 0 && n != vocab_size) return damaged("%u logits, not %u", n, vocab_size);
    if (n != 0 && n_tokens_ == 0) return damaged("logits of no token");
    has_logits_ = n != 0;
    return in_.array(std::span<float>(s_.step_.b.logits, vocab_size), n, "logits");
  }

  Status sampler() {
    weir_sampling_options& o = sampler_.options;
    WEIR_TRY(in_.number(o.top_k));
    WEIR_TRY(in_.number(o.temperature));
    WEIR_TRY(in_.number(o.top_p));
    WEIR_TRY(in_.number(o.min_p));
    WEIR_TRY(in_.number(o.repeat_penalty));
    WEIR_TRY(in_.number(o.repeat_last_n));
    WEIR_TRY(in_.number(o.seed));
    WEIR_TRY(in_.number(sampler_.random));
    WEIR_TRY(in_.number(sampler_.n_recent));
    if (!check_sampling(o, s_.model_->config().vocab_size).ok()) return damaged("sampling options that no session has");
    const std::span<weir_token> room = s_.sampler_.recent_room();
    WEIR_TRY(in_.array(room, sampler_.n_recent, "recent tokens"));
    return check_tokens(room.first(sampler_.n_recent));
  }

  Status text() {
    uint32_t first = 0;
    WEIR_TRY(in_.number(held_.n_bytes));
    WEIR_TRY(in_.number(first));
    WEIR_TRY(in_.array(std::span<char>(held_.bytes), sizeof(held_.bytes), "bytes of text"));
    held_.first = first == 1;
    const bool is_open = held_.n_bytes == 0 || (held_.n_bytes < sizeof(held_.bytes) &&
                                                utf8_step({held_.bytes, held_.n_bytes}).kind == Utf8Kind::kIncomplete);
    const bool has_rest = std::any_of(held_.bytes + std::min<size_t>(held_.n_bytes, sizeof(held_.bytes)),
                                      held_.bytes + sizeof(held_.bytes), [](char c) { return c != 0; });
    return first <= 1 && is_open && !has_rest ? Status() : damaged("no beginning of a character");
  }

  Status rows() {
    for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
      const StreamView v = kv_.stream(s);
      uint32_t n = 0;
      WEIR_TRY(in_.number(n));
#define WEIR_ROW(name, type, saved)                             \
  if (RowSaved::saved != RowSaved::kNever && v.name != nullptr) \
    WEIR_TRY(in_.array(std::span(v.name, v.capacity), n, "pages of a stream"));
#include "kv/columns.inc"
      WEIR_TRY(check_rows(s, v, n));
      kv_.place_rows(s, n, n_tokens_);
      if (kv_.left().has(s)) WEIR_TRY(left_sum(s));
    }
    return kept_flags();
  }

  Status digests() {
    const size_t n = digest_elements(shape_.digest, shape_.head_dim);
    for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
      const StreamView v = kv_.stream(s);
      for (uint32_t row = 0; row < v.n_pages; ++row) {
        if (!has_digest(shape_, s, v.len[row])) continue;
        WEIR_TRY(memory_.write(memory_.digest(s, row), n,
                               [&](std::span<uint16_t> part) { return in_.array(part, part.size(), "digests"); }));
      }
    }
    return {};
  }

  // A page that the file has in no row had left when it was saved.
  Status pages() {
    for (uint32_t page = 0; page < whole_pages(n_tokens_); ++page) {
      if (page < n_tokens_ / kPageTokens) s_.copies_.begin_page(page);
      for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
        if (kv_.holds(s, page)) {
          WEIR_TRY(row_page(s, page, kv_.row_of(s, page)));
        } else if (is_kept(s, page)) {
          WEIR_TRY(left_page(s, page));
        }
      }
    }
    return {};
  }

  Status history() {
    return for_each_history(s_, *s_.policy_, *s_.model_, [this](const HistoryView& v) {
      const HistoryShape& h = shape_.history;
      const uint32_t most = n_tokens_ - std::min(n_tokens_, h.n_sink);
      for (uint32_t kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
        uint32_t n_known = 0, n_summed = 0;
        float fill = 0.0f;
        WEIR_TRY(in_.number(n_known));
        WEIR_TRY(in_.number(n_summed));
        WEIR_TRY(in_.number(fill));
        if (n_known > most || n_summed > n_tokens_)
          return damaged("KV head %u knows %u and %u tokens of %u", kv_head, n_known, n_summed, n_tokens_);
        if (!(fill >= min_fill() && fill <= max_fill(h.group)))
          return damaged("KV head %u has lists of another length", kv_head);
        v.n_known[kv_head] = n_known;
        v.n_summed[kv_head] = n_summed;
        v.fill[kv_head] = fill;
        const size_t n = 2 * size_t{shape_.head_dim};
        WEIR_TRY(in_.array(std::span(v.sums + kv_head * n, n), n, "sums"));
        for (uint32_t head = kv_head * h.group; head < (kv_head + 1) * h.group; ++head)
          WEIR_TRY(tables(v, head, n_known));
      }
      return Status();
    });
  }

 private:
  // Weights are sorted by their bits, and their lists have room for what steps leave in them.
  Status tables(const HistoryView& v, uint32_t head, uint32_t n_known) {
    const auto is_weight = [](double x) { return std::isfinite(x) && !std::signbit(x); };
    HeadHistory& h = v.heads[head];
    double of_head[2];
    WEIR_TRY(in_.array(std::span<double>(of_head), 2, "scales"));
    h.scale = of_head[0];
    h.spread = static_cast<float>(of_head[1]);
    if (!(h.scale >= kMinHistoryScale && h.scale <= 1.0) || !is_weight(h.spread))
      return damaged("head %u has no scale", head);
    for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
      HistoryTable& t = h.table[kind];
      double sums[3];
      WEIR_TRY(in_.array(std::span<double>(sums), 3, "sums"));
      t.sum = sums[0];
      t.sum2 = sums[1];
      t.sum4 = sums[2];
      WEIR_TRY(in_.number(t.floor));
      const std::span<float> entries(v.entries_of(head, kind), n_known);
      WEIR_TRY(in_.array(entries, n_known, "weights"));
      const bool sound = t.floor >= 0.0f && std::all_of(entries.begin(), entries.end(), is_weight) &&
                         std::isfinite(t.sum) && std::isfinite(t.sum2) && std::isfinite(t.sum4);
      if (!sound) return damaged("head %u has weights that are none", head);
      if (!v.list_above(head, kind, n_known)) return damaged("head %u has more weights than a list takes", head);
    }
    return {};
  }

  Answer read(void* bytes, uint64_t n, uint64_t at, uint64_t& n_read) override {
    const weir_read_info info = {sizeof(weir_read_info), 0, at, n, bytes};
    return s_.call_outs_.call([&] { return fn_(user_, &info, &n_read); });
  }

  Status damaged(const char* format, ...) const __attribute__((format(printf, 2, 3))) {
    char what[128];
    va_list arguments;
    va_start(arguments, format);
    (void)c_vformat(what, sizeof(what), format, arguments);
    va_end(arguments);
    return fail(WEIR_ERR_FORMAT, "the saved session is damaged before byte %llu: %s",
                static_cast<unsigned long long>(in_.at()), what);
  }

  Status compare_description() const {
    NamedValues here;
    WEIR_TRY(s_.describe(here));
    return compare_named_values({description_, n_description_}, here.text());
  }

  Status whole_record() {
    weir_token part[256];
    for (uint32_t n = 0, n_part = 0; n < n_tokens_; n += n_part) {
      n_part = std::min<uint32_t>(n_tokens_ - n, std::size(part));
      WEIR_TRY(in_.array(std::span<weir_token>(part), n_part, "tokens"));
      WEIR_TRY(check_tokens(std::span<weir_token>(part).first(n_part)));
      s_.record_.put(n, part, n_part);
    }
    return {};
  }

  Status part_of_record() {
    uint32_t first = 0, n_front = 0;
    WEIR_TRY(in_.number(first));
    WEIR_TRY(in_.number(n_front));
    TokenRecord& record = s_.record_;
    if (first == 0 || n_front != record.front(n_tokens_).size() || !record.begin(n_tokens_, first))
      return damaged("tokens from %u on and the first %u, of %u", first, n_front, n_tokens_);
    for (const std::span<weir_token> room : {record.front_room(n_tokens_), record.room(n_tokens_)}) {
      WEIR_TRY(in_.array(room, room.size(), "tokens"));
      WEIR_TRY(check_tokens(room));
    }
    return {};
  }

  Status check_tokens(std::span<const weir_token> tokens) const {
    const uint32_t n = s_.model_->config().vocab_size;
    for (const weir_token token : tokens) {
      if (token < 0 || static_cast<uint32_t>(token) >= n) return damaged("token %d is not in 0..%u", token, n - 1);
    }
    return {};
  }

  // Positions ascend in whole pages below the number of tokens, a page that still takes tokens is there and in the
  // pool, and the pool has room. With recall no row is missing, and pins leave the slots that a step needs
  // (Policy::admit_pin). The pages of a window follow each other; there are none where a rewind went back behind it and
  // no token has come since.
  Status check_rows(uint32_t stream, const StreamView& v, uint32_t n) const {
    const bool is_complete = shape_.recalls() && !shape_.is_local(shape_.layer_of(stream));
    const uint32_t whole = n_tokens_ / kPageTokens, n_positions = whole_pages(n_tokens_);
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
        return damaged("row %u of stream %u is at position %u", row, stream, pos);
      if ((flags & ~kKnownFlags) != 0) return damaged("row %u of stream %u has flags 0x%x", row, stream, flags);
      if (!is_resident && !is_complete) return damaged("row %u of stream %u has no page", row, stream);
      n_resident += is_resident ? 1 : 0;
      n_pinned += (flags & kPageStays) != 0 ? 1 : 0;
      n_stay += (flags & kPageStays) != 0 || row < s_.policy_->n_front_rows() ? 1 : 0;
    }
    if (n_resident > v.n_free) return damaged("stream %u has %u pages for %u slots", stream, n_resident, v.n_free);
    if (is_complete && n != n_positions) return damaged("stream %u has %u rows, not %u", stream, n, n_positions);
    if (is_complete && n_pinned != 0 && n_stay + std::max(2u, s_.policy_->needs().min_unpinned) > v.n_slots)
      return damaged("stream %u has %u pinned pages for %u slots", stream, n_pinned, v.n_slots);
    const bool has_sinks = n >= std::min(front, n_positions);
    if (is_window && (!has_sinks || (n > front && v.first_pos[n - 1] != (n_positions - 1) * kPageTokens)))
      return damaged("stream %u has no page for %s", stream,
                     has_sinks ? "the last position" : "one of its first tokens");
    if (n_tokens_ % kPageTokens == 0) return {};
    const bool has_open = n != 0 && v.first_pos[n - 1] == whole * kPageTokens && (v.flags[n - 1] & kRowResident) != 0;
    return has_open ? Status() : damaged("stream %u has no page for its last tokens", stream);
  }

  // The sums of what has left a stream's own window: of tokens between its sinks and the pages of the window.
  Status left_sum(uint32_t stream) {
    const LeftSums& left = kv_.left();
    const std::span<float> values(left.values(stream), left.n_values());
    LeftSum& sum = left.of(stream);
    WEIR_TRY(in_.number(sum.n_tokens));
    WEIR_TRY(in_.number(sum.end));
    WEIR_TRY(in_.array(values, values.size(), "sums"));
    const StreamView v = kv_.stream(stream);
    const uint32_t front = shape_.spec(stream).front_pages, first = front * kPageTokens;
    // After a rewind to where the window had been, it may have no page yet.
    const uint32_t window = v.n_pages > front ? v.first_pos[front] : n_tokens_;
    const bool is_between = sum.end % kPageTokens == 0 && sum.end <= window && sum.n_tokens % kPageTokens == 0 &&
                            sum.n_tokens <= sum.end - std::min(sum.end, first);
    const bool is_finite = std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
    if (is_between && is_finite && (sum.n_tokens != 0 || sum.end == 0)) return {};
    return damaged("stream %u has sums of %u tokens up to %u", stream, sum.n_tokens, sum.end);
  }

  // Without recall: which of the pages whose copies follow were the prompt's.
  Status kept_flags() {
    const uint32_t whole = s_.setup_.max_archive_pages != 0 ? n_tokens_ / kPageTokens : 0;
    uint8_t flags[64];
    WEIR_TRY(in_.number(n_kept_));
    if (n_kept_ != 0 && n_kept_ != whole) return damaged("%u pages with copies, not %u", n_kept_, whole);
    for (uint32_t first = 0, n = 0; first < n_kept_; first += n) {
      n = std::min<uint32_t>(n_kept_ - first, sizeof(flags));
      WEIR_TRY(in_.array(std::span<uint8_t>(flags), n, "flags"));
      for (uint32_t i = 0; i < n; ++i) {
        if ((flags[i] & ~uint32_t{kPagePrompt}) != 0) return damaged("page %u had flags 0x%x", first + i, flags[i]);
      }
      for (uint32_t i = 0; i < n; ++i) kv_.rings().set_flag(first + i, flags[i], n_kept_);
    }
    return {};
  }

  // Whether this session keeps copies of what leaves the stream.
  bool is_archived(uint32_t stream) const { return shape_.spec(stream).is_archived; }

  // Whether the saved session, which may have had a store where this one has none, kept copies of the stream's pages.
  bool is_kept(uint32_t stream, uint32_t page) const {
    KvShape shape = shape_;
    shape.archive_pages = s_.setup_.max_archive_pages;
    return page < n_kept_ && shape.spec(stream).is_archived;
  }

  // Stores at `place` where a page was, if its kind is one of three: `first` and the two after it.
  static bool is_one_of(uint32_t kind, SavedPage first, SpillPlace& place) {
    const uint32_t i = kind - static_cast<uint32_t>(first);
    place = static_cast<SpillPlace>(i);
    return i <= static_cast<uint32_t>(SpillPlace::kFile);
  }

  Status row_page(uint32_t stream, uint32_t page, uint32_t row) {
    const StreamView v = kv_.stream(stream);
    const bool is_resident = v.slots[row] != kNoSlot, is_full = v.len[row] == kPageTokens;
    const bool may_have_copy = v.copies != nullptr && kv_.window(stream) == 0 && is_full;
    uint32_t kind = 0;
    SpillPlace place = SpillPlace::kRaw;
    WEIR_TRY(in_.number(kind));
    if (kind == static_cast<uint32_t>(SavedPage::kLost) && !is_resident) {
      s_.copies_.restore_without(stream, row);
      return {};
    }
    if (kind == static_cast<uint32_t>(SavedPage::kPool) && is_resident) {
      if (may_have_copy) s_.copies_.restore_without(stream, row);
      WEIR_TRY(pool_page(v, row));
      // Digests of such streams are not saved, since steps list their pages without. But policies score them.
      // On a device they are made when all pages are there.
      if (s_.machine_->kind() != Machine::Kind::kDevice && shape_.windows.has(stream) &&
          shape_.digest != DigestKind::kNone)
        kv_.rebuild_digest(stream, row);
      // The saved session had no store at all: what this one stores without recall begins with these pages.
      const bool begins = n_kept_ == 0 && is_full && is_archived(stream);
      if (!begins) return {};
      kv_.rings().set_flag(page, static_cast<uint8_t>(v.flags[row] & kPagePrompt), n_tokens_ / kPageTokens);
      return s_.copies_.keep(stream, page, place);
    }
    if (is_one_of(kind, SavedPage::kPoolRaw, place) && is_resident && is_full && is_kept(stream, page)) {
      WEIR_TRY(pool_page(v, row));
      return is_archived(stream) ? s_.copies_.keep(stream, page, place) : Status();
    }
    if (is_one_of(kind, SavedPage::kRaw, place) && may_have_copy) {
      uint32_t n = 0;
      WEIR_TRY(read_block(n));
      return check_block(stream, row, s_.copies_.put_block(stream, row, memory_.block().data(), n, place));
    }
    return damaged("page %u of stream %u is of kind %u", row, stream, kind);
  }

  // A page that left. Without a store nobody wants it.
  Status left_page(uint32_t stream, uint32_t page) {
    uint32_t kind = 0, n = 0;
    SpillPlace place = SpillPlace::kRaw;
    WEIR_TRY(in_.number(kind));
    const bool is_lost = kind == static_cast<uint32_t>(SavedPage::kLost);
    if (!is_lost && !is_one_of(kind, SavedPage::kRaw, place))
      return damaged("page %u of stream %u, which left, is of kind %u", page, stream, kind);
    if (!is_archived(stream)) return is_lost ? Status() : skip_block();
    if (is_lost) {
      s_.copies_.restore_without(stream, page);
      return {};
    }
    WEIR_TRY(read_block(n));
    return check_block(stream, page, s_.copies_.put_block(stream, page, memory_.block().data(), n, place));
  }

  Status pool_page(const StreamView& v, uint32_t row) {
    const uint64_t n = uint64_t{v.len[row]} * shape_.head_dim;
    for (uint16_t* rows : {memory_.keys(v.slots[row]), memory_.values(v.slots[row])}) {
      WEIR_TRY(memory_.write(
          rows, n, [&](std::span<uint16_t> part) { return in_.array(part, part.size(), "values of a page"); }));
    }
    return {};
  }

  // Reads a block into the memory for one; n: its bytes.
  Status read_block(uint32_t& n) {
    const std::span<std::byte> room = memory_.block();
    WEIR_TRY(in_.array(room, kBlockHeaderBytes, "bytes of a block"));
    const uint32_t stored = stored_bytes_of(room.data());
    WEIR_TRY(in_.array(room.subspan(kBlockHeaderBytes), stored, "bytes of a page"));
    n = kBlockHeaderBytes + stored;
    return {};
  }

  Status skip_block() {
    std::byte header[kBlockHeaderBytes];
    WEIR_TRY(in_.array(std::span<std::byte>(header), kBlockHeaderBytes, "bytes of a block"));
    return in_.skip(stored_bytes_of(header), shape_.page_bytes(), "bytes of a page");
  }

  // What the store says of a block that it got.
  Status check_block(uint32_t stream, uint32_t page, Status status) const {
    if (status.code() != WEIR_ERR_FORMAT) return status;
    return damaged("page %u of stream %u does not have its checksum", page, stream);
  }

  Session& s_;
  const PageTables::Change change_;
  KvCache& kv_;
  const KvShape& shape_;
  PageMemory memory_;
  weir_read_fn fn_;
  void* user_;
  SessionReader in_;
  char description_[NamedValues::kBytes];
  uint32_t n_description_ = 0;
  uint32_t n_tokens_ = 0;
  uint32_t n_kept_ = 0;  // without recall: pages whose copies follow, from the first on
  bool has_logits_ = false;
  Sampler::State sampler_;
  Detokenizer::Held held_;
};

Status Session::restore(weir_read_fn fn, void* user) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  forget();
  cancel_.clear();
  is_used_ = true;
  Status status = Restorer(*this, fn, user).run();
  if (status.ok()) status = machine_->end_restore();
  if (!status.ok()) forget();
  return status;
}

}  // namespace weir
