// What a session attends, step by step: the experimental trace of the library, and recordings of it in files.
// The file format is in docs/eval.md. A recording holds every layer, stream and query head, so that one run serves many
// pictures.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "out_file.h"
#include "weir/experimental.h"
#include "weir_cpp.h"

namespace weir_cli {

// Whether the loaded library can trace.
bool can_trace();

// Begins, or with nullptr ends, tracing. The session was created with WEIR_SESSION_TRACE. Throws Error.
void set_trace(weir_session* session, weir_trace_fn fn, void* user);

// Where a query head finds its pages in a layer's arrays.
struct HeadPages {
  uint32_t stream = 0;  // its KV head
  uint32_t n_attended = 0;
  const uint32_t* rows = nullptr;  // rows of the stream's table; nullptr: 0 .. n_attended - 1
  const float* mass = nullptr;     // of each attended page

  uint32_t row(uint32_t i) const { return rows != nullptr ? rows[i] : i; }
};
HeadPages head_pages(const weir_trace_layer& layer, uint32_t head);

struct TraceHeader {
  uint32_t n_layers = 0, n_heads = 0, n_kv_heads = 0;
  uint32_t page_tokens = 0;
  uint32_t n_prompt = 0;    // tokens that were prefilled before the first step
  std::string description;  // UTF-8, one line
};

// One layer of one step, with storage of its own.
struct TraceBlock {
  struct Stream {
    std::vector<uint32_t> first_pos, flags, stamp;  // of each resident page
    std::vector<float> score;
    std::vector<uint32_t> victims;  // first positions that were there a step before and are not now
  };
  struct List {
    bool is_all = false;         // every resident page; rows is empty
    std::vector<uint32_t> rows;  // ascending
  };
  uint32_t step = 0;  // from 0
  uint32_t layer = 0;
  uint32_t n_tokens = 0;                 // positions, the step's token included
  std::vector<Stream> streams;           // by KV head
  std::vector<List> lists;               // as many as streams, or one per query head
  std::vector<std::vector<float>> mass;  // by query head: of each page of its list

  const List& list_of(uint32_t head) const { return lists[head * lists.size() / mass.size()]; }
  uint32_t stream_of(uint32_t head) const { return static_cast<uint32_t>(head * streams.size() / mass.size()); }
};

// Records a session's steps to a file.
class TraceRecorder {
 public:
  // Throws std::runtime_error naming the file when it cannot be written.
  explicit TraceRecorder(const std::string& path);

  // Writes the header and begins tracing; the prompt is in the session.
  void begin(weir_session* session, const TraceHeader& header);
  // Throws what went wrong while tracing.
  void check() const;
  // The same, and when the file could not be written; without this call there is none.
  void finish();
  uint32_t n_steps() const { return n_steps_; }

 private:
  static weir_status on_layer(void* user, const weir_trace_layer* layer) noexcept;
  void record(const weir_trace_layer& layer);
  void write(const std::string& bytes);

  OutFile file_;
  std::string waiting_;  // written when it has grown to some size
  uint32_t n_steps_ = 0;
  std::vector<std::vector<std::vector<uint32_t>>> before_;  // [layer][stream]: first positions at the step before
  std::exception_ptr thrown_;
};

// Reads a recording; `on_block` sees every block in order. A torn last block is ignored. Throws std::runtime_error
// naming the file when it is not a recording or contradicts itself.
TraceHeader read_trace(const std::string& path,
                       const std::function<void(const TraceHeader&, const TraceBlock&)>& on_block);

}  // namespace weir_cli
