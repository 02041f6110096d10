// The parts of a session (kv/part.h), and their order, which is that of a saved session (docs/formats/session.md).
#pragma once

#include <span>

#include "kv/event_part.h"
#include "kv/kv_cache.h"
#include "kv/recurrent_state.h"
#include "runtime/sampler.h"
#include "runtime/token_record.h"

namespace weir {

class PageCopies;
class Session;
struct SessionSetup;

// These three have their values in the session itself.
class LogitsPart final : public Part {
 public:
  explicit LogitsPart(Session& session) : s_(session) {}
  const char* name() const override { return "the logits"; }
  void lay_out(Arenas& /*arenas*/) override {}  // where steps compute them
  void reset() override;
  void copy_from(const Part& other, uint32_t n_tokens) override;
  void cut(uint32_t n_tokens) override;
  void roll_back(uint32_t /*n_tokens*/) override {}  // whoever fails knows whether they have suffered
  Status io(Io& io) override;

 private:
  Session& s_;
};

// What is known of the text that the latest tokens make: detokenizer, mask, and what was drawn.
class TextPart final : public Part {
 public:
  explicit TextPart(Session& session) : s_(session) {}
  const char* name() const override { return "the text"; }
  void lay_out(Arenas& /*arenas*/) override {}
  void reset() override;
  void copy_from(const Part& other, uint32_t n_tokens) override;
  void cut(uint32_t n_tokens) override;              // with the sampler's recent tokens
  void roll_back(uint32_t /*n_tokens*/) override {}  // it has seen nothing of them
  Status io(Io& io) override;

 private:
  Session& s_;
};

// The copies of pages in a store, and the bytes of tables, digests and pages, wherever they are.
class CopiesPart final : public Part {
 public:
  explicit CopiesPart(Session& session) : s_(session) {}
  void set_tables(KvCache& kv) { kv_ = &kv; }  // which whoever restores or resets holds to change
  const char* name() const override { return "the copies of pages"; }
  void lay_out(Arenas& /*arenas*/) override {}  // a store takes its own
  void reset() override;
  void copy_from(const Part& other, uint32_t n_tokens) override;
  void cut(uint32_t /*n_tokens*/) override {}  // ahead of all others, because reading a page may fail
  void seal(uint32_t first, uint32_t end) override;
  Status io(Io& io) override;  // the pages, too

 private:
  class Pages;
  Session& s_;
  KvCache* kv_ = nullptr;
};

// The tables of a session on a device, where the device has them; those in the list are the host's.
struct DeviceTables {
  KvCache kv;
  LeftSums left;
  RecurrentState recurrent;
};

// The list, and the parts of it that need nothing of a session but its setup.
struct SessionParts {
  TokenRecord record;
  Sampler sampler;
  LeftSums left;
  EventPart events;
  AttnHistory history;
  RecurrentState recurrent;
  PartList list;

  // What `setup` describes. A session adds those that have their values in it; a plan needs none of these.
  struct Own {
    Part *logits = nullptr, *text = nullptr, *copies = nullptr;
  };
  void set_up(const SessionSetup& setup, KvCache& kv, const Own& own, std::span<Part* const> more);
};

// After pages could not be read, fewer tokens may be left than the state of recurrent layers has: then the conversation
// ends at a snapshot.
void end_at_snapshot(SessionParts& parts, PageCopies& copies, KvCache& kv);

}  // namespace weir
