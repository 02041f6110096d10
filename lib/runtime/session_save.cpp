// Saves a session and restores one, from a file that is not trusted: a header, what the session belongs to, and then
// its parts, each of which describes its bytes for both directions. Nothing is allocated. docs/formats/session.md
// describes the bytes.
//
// Saving does not change the session. Restoring compares the numbers of the file with sizes of the session's own plan.
// Everything is checked before it is used as an index, and until all of it is there the session has no tokens; whatever
// fails leaves it as after a reset.
#include <algorithm>

#include "runtime/session_entry.h"

namespace weir {
namespace {

constexpr char kHex[] = "%016llx";

}  // namespace

// What is in the file besides the parts, and the application's callbacks.
class Session::File final : public ByteSink, public ByteSource {
 public:
  File(Session& session, weir_write_fn write_fn, weir_read_fn read_fn, void* user)
      : s_(session), write_(write_fn), read_(read_fn), user_(user) {}

  Status io(Io& io) {
    WEIR_TRY(io.begin(s_.record_.version()));
    WEIR_TRY(description_io(io));
    WEIR_TRY(s_.remembered_.list.io(io));
    return io.finish();
  }

 private:
  Status describe(NamedValues& out) const;
  Status description_io(Io& io) const;
  Answer write(const void* bytes, uint64_t n, uint64_t at) override {
    const weir_write_info info = {sizeof(weir_write_info), 0, at, n, bytes};
    return s_.call_outs_.call([&] { return write_(user_, &info); });
  }
  Answer read(void* bytes, uint64_t n, uint64_t at, uint64_t& n_read) override {
    const weir_read_info info = {sizeof(weir_read_info), 0, at, n, bytes};
    return s_.call_outs_.call([&] { return read_(user_, &info, &n_read); });
  }

  Session& s_;
  weir_write_fn write_;
  weir_read_fn read_;
  void* user_;
};

// What a saved session and the one that takes it must have in common.
Status Session::File::describe(NamedValues& out) const {
  const ModelConfig& c = s_.model_->config();
  const KvShape& shape = s_.kv_.shape();
  out.clear();
  out.add("architecture", "%s", c.arch->name);
  out.add("layers", "%u", c.n_layers);
  out.add("kv_heads", "%u", c.n_kv_heads);
  out.add("head_dim", "%u", c.head_dim);
  out.add("vocabulary", "%u", c.vocab_size);
  out.add("fingerprint", kHex, static_cast<unsigned long long>(s_.model_->fingerprint()));
  out.add("weights", kHex, static_cast<unsigned long long>(s_.model_->sampled_weights()));
  out.add("page_tokens", "%u", kPageTokens);
  out.add("window", "%u", shape.window);
  out.add("global_every", "%u", shape.global_every);
  if (s_.plan_.n_snapshots != 0) out.add("snapshots", "%u", s_.plan_.n_snapshots);
  out.add(s_.policy_storage_.effective);
  out.add("digest_kind", "%u", static_cast<uint32_t>(shape.digest));
  if (shape.format != KvFormat::kBf16) out.add("kv_format", "%s", kv_format_name(shape.format));
  out.add("prompt_scores", "%u", shape.prompt_scores ? 1u : 0u);
  return out.is_cut() ? fail(WEIR_ERR_INTERNAL, "the description of the session is too long") : Status();
}

Status Session::File::description_io(Io& io) const {
  NamedValues here;
  WEIR_TRY(describe(here));
  char text[NamedValues::kBytes];
  auto n = static_cast<uint32_t>(here.text().size());
  std::copy_n(here.text().data(), n, text);
  WEIR_TRY(io.section("DESC"));
  WEIR_TRY(io.value(n));
  WEIR_TRY(io.array(std::span(text), n, "bytes of description"));
  // What differs is told only once it is certain that the file says so.
  WEIR_TRY(io.end_section());
  return io.saves() ? Status() : compare_named_values({text, n}, here.text());
}

Status Session::save(weir_write_fn fn, void* user) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(host_tables());
  if (has_logits_) WEIR_TRY(machine_->fetch_logits());
  if (setup_.has_store()) store_.drain();  // what is compressed already does not depend on time
  File file(*this, fn, nullptr, user);
  Io io(static_cast<ByteSink&>(file));
  io.n_tokens = kv_.n_tokens();
  return file.io(io);
}

Status Session::restore(weir_read_fn fn, void* user) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  forget();
  cancel_.clear();
  is_used_ = true;
  const Sampler::State sampler = sampler_.state();
  File file(*this, nullptr, fn, user);
  Io io(static_cast<ByteSource&>(file));
  Status status;
  {
    const PageTables::Change kv = tables_.change();
    status = file.io(io);
    if (status.ok()) kv->set_n_tokens(io.n_tokens);
  }
  if (status.ok()) status = machine_->end_restore();
  if (!status.ok()) {
    sampler_.restore(sampler);
    forget();
  }
  return status;
}

}  // namespace weir
