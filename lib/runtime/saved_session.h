// What saving and restoring share: the memory of pages and digests, on the processor or on a device.
#pragma once

#include <algorithm>
#include <span>

#include "kv/page_codec.h"
#include "models/attend.h"
#include "runtime/session.h"
#include "runtime/session_file.h"

namespace weir {

// Calls f(view) for the tables of each layer whose attention learns from its past, until one fails.
template <class F>
Status for_each_history(const Session& session, const Policy& policy, const Model& model, F&& f) {
  const PolicyNeeds& needs = policy.needs();
  for (uint32_t layer = needs.history_from_layer; needs.history.group != 0 && layer < model.config().n_layers;
       ++layer) {
    if (is_ruled(model.weights().layers[layer].attention)) WEIR_TRY(f(session.kv().history(layer)));
  }
  return {};
}

// The sections between header and end, in the order of the file, and the functions of `Who` that write or read what is
// in them.
template <class Who>
struct SectionPart {
  Section section;
  Status (Who::*part)();
};
template <class Who>
inline constexpr SectionPart<Who> kSectionParts[] = {
    {Section::kDescription, &Who::description}, {Section::kTokens, &Who::tokens}, {Section::kLogits, &Who::logits},
    {Section::kSampler, &Who::sampler},         {Section::kText, &Who::text},     {Section::kRows, &Who::rows},
    {Section::kDigests, &Who::digests},         {Section::kPages, &Who::pages},   {Section::kHistory, &Who::history},
};
// Whether a session has a section. Sessions have been saved without the last one since before there was one.
inline bool has_section(Section section, const PolicyNeeds& needs) {
  return section != Section::kHistory || needs.history.group != 0;
}

// Pages and digests of a session. On a device they pass through staging memory that is otherwise used while prompts are
// read.
class Session::PageMemory {
 public:
  explicit PageMemory(Session& session) : s_(session), kv_(session.machine_->page_cache()) {}

  uint16_t* keys(uint32_t slot) const { return kv_.page_data(slot); }
  uint16_t* values(uint32_t slot) const { return kv_.page_data(slot) + size_t{kPageTokens} * kv_.shape().head_dim; }
  uint16_t* digest(uint32_t stream, uint32_t row) const { return kv_.digest_data(s_.kv_.digest_index(stream, row)); }
  // Room for the largest block, with a store; in host memory.
  std::span<std::byte> block() const {
    return {reinterpret_cast<std::byte*>(s_.kv_.spare_page()),
            max_block_bytes(static_cast<uint32_t>(kv_.shape().page_bytes()))};
  }

  // Calls use(std::span<const uint16_t>) for the n elements at `from`, piece by piece.
  template <class Use>
  Status read(const uint16_t* from, uint64_t n, const Use& use) const {
    const Machine& machine = *s_.machine_;
    const std::span<uint16_t> room = machine.piece_room();
    if (room.empty()) return use(std::span<const uint16_t>(from, n));
    for (uint64_t done = 0; done < n; done += room.size()) {
      const std::span<uint16_t> part = room.first(std::min<uint64_t>(room.size(), n - done));
      WEIR_TRY(machine.copy_out(part.data(), from + done, part.size_bytes()));
      WEIR_TRY(use(std::span<const uint16_t>(part)));
    }
    return {};
  }
  // Calls fill(std::span<uint16_t>) for the n elements at `to`, piece by piece.
  template <class Fill>
  Status write(uint16_t* to, uint64_t n, const Fill& fill) const {
    const Machine& machine = *s_.machine_;
    const std::span<uint16_t> room = machine.piece_room();
    if (room.empty()) return fill(std::span<uint16_t>(to, n));
    for (uint64_t done = 0; done < n; done += room.size()) {
      const std::span<uint16_t> part = room.first(std::min<uint64_t>(room.size(), n - done));
      WEIR_TRY(fill(part));
      WEIR_TRY(machine.copy_in(to + done, part.data(), part.size_bytes()));
    }
    return {};
  }

 private:
  Session& s_;
  KvCache& kv_;
};

// Whether a page with this many tokens has a digest that anything reads.
inline bool has_digest(const KvShape& shape, uint32_t stream, uint32_t len) {
  if (shape.digest == DigestKind::kNone || shape.spec(stream).window != 0) return false;
  return len == kPageTokens || shape.digest == DigestKind::kMinMax;
}

}  // namespace weir
