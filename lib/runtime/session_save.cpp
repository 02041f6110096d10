// Saves a session: what later steps depend on, section by section, straight from where it lies. Nothing is allocated,
// and the session does not change. docs/formats/session.md describes the bytes.
#include <algorithm>

#include "runtime/saved_session.h"
#include "runtime/session_entry.h"

namespace weir {
namespace {

constexpr char kHex[] = "%016llx";

}  // namespace

// What a saved session and the one that takes it must have in common.
Status Session::describe(NamedValues& out) const {
  const ModelConfig& c = model_->config();
  const KvShape& shape = kv_.shape();
  out.clear();
  out.add("architecture", "%s", c.arch->name);
  out.add("layers", "%u", c.n_layers);
  out.add("kv_heads", "%u", c.n_kv_heads);
  out.add("head_dim", "%u", c.head_dim);
  out.add("vocabulary", "%u", c.vocab_size);
  out.add("fingerprint", kHex, static_cast<unsigned long long>(model_->fingerprint()));
  out.add("weights", kHex, static_cast<unsigned long long>(model_->sampled_weights()));
  out.add("page_tokens", "%u", kPageTokens);
  out.add("window", "%u", shape.window);
  out.add("global_every", "%u", shape.global_every);
  out.add(policy_storage_.effective);
  out.add("digest_kind", "%u", static_cast<uint32_t>(shape.digest));
  out.add("prompt_scores", "%u", shape.prompt_scores ? 1u : 0u);
  return out.is_cut() ? fail(WEIR_ERR_INTERNAL, "the description of the session is too long") : Status();
}

class Session::Saver final : ByteSink {
 public:
  Saver(Session& session, weir_write_fn fn, void* user)
      : s_(session), kv_(session.kv_), shape_(kv_.shape()), memory_(session), fn_(fn), user_(user), out_(*this) {}

  Status run() {
    WEIR_TRY(out_.begin(s_.record_.first() == 0 ? kWholeVersion : kSessionVersion));
    for (const auto& [section, part] : kSectionParts<Saver>) {
      if (!has_section(section, s_.policy_->needs())) continue;
      WEIR_TRY(out_.begin_section(section));
      WEIR_TRY((this->*part)());
      WEIR_TRY(out_.end_section());
    }
    return out_.finish();
  }

  Status description() {
    NamedValues values;
    WEIR_TRY(s_.describe(values));
    const std::string_view text = values.text();
    WEIR_TRY(out_.number(static_cast<uint32_t>(text.size())));
    return out_.bytes(text.data(), text.size());
  }

  Status tokens() {
    WEIR_TRY(out_.number(kv_.n_tokens()));
    const TokenRecord& record = s_.record_;
    if (record.first() != 0) {
      WEIR_TRY(out_.number(record.first()));
      const std::span<const weir_token> front = record.front(kv_.n_tokens());
      WEIR_TRY(out_.number(static_cast<uint32_t>(front.size())));
      WEIR_TRY(out_.array(front));
    }
    return out_.array(record.view(kv_.n_tokens()));
  }

  Status logits() {
    const uint32_t n = s_.has_logits_ ? s_.model_->config().vocab_size : 0;
    WEIR_TRY(out_.number(n));
    return out_.array(std::span<const float>(s_.step_.b.logits, n));
  }

  Status sampler() {
    const Sampler::State state = s_.sampler_.state();
    const weir_sampling_options& o = state.options;
    WEIR_TRY(out_.number(o.top_k));
    WEIR_TRY(out_.number(o.temperature));
    WEIR_TRY(out_.number(o.top_p));
    WEIR_TRY(out_.number(o.min_p));
    WEIR_TRY(out_.number(o.repeat_penalty));
    WEIR_TRY(out_.number(o.repeat_last_n));
    WEIR_TRY(out_.number(o.seed));
    WEIR_TRY(out_.number(state.random));
    WEIR_TRY(out_.number(state.n_recent));
    for (uint32_t i = 0; i < state.n_recent; ++i) WEIR_TRY(out_.number(s_.sampler_.recent(i)));
    return {};
  }

  Status text() {
    const Detokenizer::Held& held = s_.detokenizer_.held();
    char bytes[sizeof(held.bytes)] = {};
    std::copy_n(held.bytes, held.n_bytes, bytes);
    WEIR_TRY(out_.number(held.n_bytes));
    WEIR_TRY(out_.number(held.first ? 1u : 0u));
    return out_.bytes(bytes, sizeof(bytes));
  }

  Status rows() {
    for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
      const StreamView v = kv_.stream(s);
      const uint32_t first = first_row(s), n = v.n_pages - first;
      WEIR_TRY(out_.number(n));
#define WEIR_ROW(name, type, saved) WEIR_TRY(column<RowSaved::saved>(v, v.name, first));
#include "kv/columns.inc"
      if (kv_.left().has(s)) WEIR_TRY(left_sum(s));
    }
    const uint32_t n_kept = shape_.archive_pages != 0 ? kv_.n_tokens() / kPageTokens : 0;
    WEIR_TRY(out_.number(n_kept));
    uint8_t flags[64];
    for (uint32_t first = 0, n = 0; first < n_kept; first += n) {
      n = std::min<uint32_t>(n_kept - first, sizeof(flags));
      for (uint32_t i = 0; i < n; ++i) flags[i] = kv_.rings().flag(first + i);
      WEIR_TRY(out_.array(std::span<const uint8_t>(flags, n)));
    }
    return {};
  }

  Status digests() {
    const size_t n = digest_elements(shape_.digest, shape_.head_dim);
    for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
      const StreamView v = kv_.stream(s);
      for (uint32_t row = 0; row < v.n_pages; ++row) {
        if (!has_digest(shape_, s, v.len[row])) continue;
        WEIR_TRY(
            memory_.read(memory_.digest(s, row), n, [&](std::span<const uint16_t> part) { return out_.array(part); }));
      }
    }
    return {};
  }

  // Page by page, the order in which the store got its copies.
  Status pages() {
    for (uint32_t page = 0; page < whole_pages(kv_.n_tokens()); ++page) {
      for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
        if (kv_.holds(s, page)) {
          const uint32_t row = kv_.row_of(s, page);
          if (row >= first_row(s)) WEIR_TRY(row_page(s, page, row));
        } else if (shape_.spec(s).is_archived) {
          WEIR_TRY(left_page(s, page));
        }
      }
    }
    return {};
  }

  // Lists are not saved: they are the entries above the floors.
  Status history() {
    return for_each_history(s_, *s_.policy_, *s_.model_, [this](const HistoryView& v) {
      const uint32_t group = shape_.history.group;
      for (uint32_t kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
        WEIR_TRY(out_.number(v.n_known[kv_head]));
        WEIR_TRY(out_.number(v.n_summed[kv_head]));
        WEIR_TRY(out_.number(v.fill[kv_head]));
        const size_t n = 2 * size_t{shape_.head_dim};
        WEIR_TRY(out_.array(std::span<const double>(v.sums + kv_head * n, n)));
        for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
          WEIR_TRY(tables(v, head, v.n_known[kv_head]));
      }
      return Status();
    });
  }

 private:
  // Null: no column.
  template <RowSaved kSaved, class T>
  Status column(const StreamView& v, const T* values, uint32_t first) {
    if (kSaved == RowSaved::kNever || values == nullptr) return {};
    if constexpr (kSaved != RowSaved::kWithPlace) {
      return out_.array(std::span<const T>(values + first, v.n_pages - first));
    } else {
      for (uint32_t row = first; row < v.n_pages; ++row)
        WEIR_TRY(out_.number(values[row] | (v.slots[row] != kNoSlot ? kRowResident : 0u)));
      return {};
    }
  }

  Status tables(const HistoryView& v, uint32_t head, uint32_t n_known) {
    const double of_head[] = {v.heads[head].scale, v.heads[head].spread};
    WEIR_TRY(out_.array(std::span<const double>(of_head)));
    for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
      const HistoryTable& t = v.heads[head].table[kind];
      const double sums[] = {t.sum, t.sum2, t.sum4};
      WEIR_TRY(out_.array(std::span<const double>(sums)));
      WEIR_TRY(out_.number(t.floor));
      WEIR_TRY(out_.array(std::span<const float>(v.entries_of(head, kind), n_known)));
    }
    return {};
  }

  Answer write(const void* bytes, uint64_t n, uint64_t at) override {
    const weir_write_info info = {sizeof(weir_write_info), 0, at, n, bytes};
    return s_.call_outs_.call([&] { return fn_(user_, &info); });
  }

  // Pages that have left a local layer's window are not saved.
  uint32_t first_row(uint32_t stream) const {
    if (kv_.left().has(stream)) return 0;  // they are not in the sums
    return shape_.spec(stream).front_pages != 0 ? 0 : kv_.n_out_of_window(stream, kv_.n_tokens());
  }

  // What has left a window of the stream's own.
  Status left_sum(uint32_t stream) {
    const LeftSums& left = kv_.left();
    WEIR_TRY(out_.number(left.of(stream).n_tokens));
    WEIR_TRY(out_.number(left.of(stream).end));
    return out_.array(std::span<const float>(left.values(stream), left.n_values()));
  }

  Status kind(SavedPage first, SpillPlace place = SpillPlace::kRaw) {
    return out_.number(static_cast<uint32_t>(first) + static_cast<uint32_t>(place));
  }

  Status left_page(uint32_t stream, uint32_t page) {
    const std::span<std::byte> block = memory_.block();
    uint32_t n = 0;
    SpillPlace place = SpillPlace::kRaw;
    if (!s_.copies_.get_block(stream, page, block.data(), n, place)) return kind(SavedPage::kLost);
    WEIR_TRY(kind(SavedPage::kRaw, place));
    return out_.bytes(block.data(), n);
  }

  Status row_page(uint32_t stream, uint32_t page, uint32_t row) {
    const StreamView v = kv_.stream(stream);
    SpillPlace place = SpillPlace::kRaw;
    if (v.copies != nullptr && v.copies[row] != kNoCopy) {
      const std::span<std::byte> block = memory_.block();
      uint32_t n = 0;
      const PageTables::Change losing = s_.tables_.change();  // if the copy proves to be damaged
      if (s_.copies_.get_block(stream, row, block.data(), n, place)) {
        WEIR_TRY(kind(SavedPage::kRaw, place));
        return out_.bytes(block.data(), n);
      }
    }
    if (v.slots[row] == kNoSlot) return kind(SavedPage::kLost);
    if (shape_.archive_pages != 0 && s_.copies_.find_place(stream, page, place)) {
      WEIR_TRY(kind(SavedPage::kPoolRaw, place));
    } else {
      WEIR_TRY(kind(SavedPage::kPool));
    }
    const uint64_t n = uint64_t{v.len[row]} * shape_.head_dim;
    for (const uint16_t* rows : {memory_.keys(v.slots[row]), memory_.values(v.slots[row])}) {
      WEIR_TRY(memory_.read(rows, n, [&](std::span<const uint16_t> part) { return out_.array(part); }));
    }
    return {};
  }

  Session& s_;
  const KvCache& kv_;
  const KvShape& shape_;
  PageMemory memory_;
  weir_write_fn fn_;
  void* user_;
  SessionWriter out_;
};

Status Session::save(weir_write_fn fn, void* user) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(host_tables());
  if (has_logits_) WEIR_TRY(machine_->fetch_logits());
  if (setup_.has_store()) store_.drain();  // what is compressed already does not depend on time
  return Saver(*this, fn, user).run();
}

}  // namespace weir
