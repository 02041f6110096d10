// The contract between the library and a device backend, which is a shared library of its own, loaded at run time
// (libweir_cuda.so). Both come from one tree of sources: they compare a number that the build makes of this header and
// of all that it includes or names (device_interface.h in the build folder, cmake/device_interface.cmake). The library
// keeps the sessions: it checks options, lays out memory and asks policies. The module copies, computes, and runs
// decode steps by the rules that the policy stated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>

#include "core/status.h"
#include "kv/device_recall.h"
#include "kv/open_move.h"
#include "kv/page_events.h"
#include "kv/step_state.h"
#include "models/buffers.h"
#include "ops/step_rules.h"
#include "ops/types.h"

namespace weir {

class Cancel;
class KvCache;
class RecurrentState;
class RopeTable;
struct Backend;
struct ModelConfig;
struct ModelWeights;
struct OpShapes;
struct PolicyNeeds;
struct TokenMassArgs;
struct Weight;

// The most sessions that DeviceModule::step_many takes at once: an SM's registers can hold a GEMV's sums for this many
// inputs.
inline constexpr uint32_t kMaxTogether = 8;

// Whole pages of the operating system.
inline constexpr uint64_t kStagingAlignment = 4096;

// What each layer of a step listed, and the masses of the pages, for sessions that can be traced; else null. A layer's
// rows begin where they would if each layer had the largest table. On the device the step's kernels work in these
// arrays.
struct TraceBuffers {
  float* page_mass = nullptr;    // [n_layers, n_heads, most pages]
  uint32_t* select = nullptr;    // the same shape
  uint32_t* n_select = nullptr;  // [n_layers, n_heads]
  bool* is_listed = nullptr;     // [n_layers] on the host: whether the layer has lists
};

// Host memory that the device copies from and to at full speed; planned and taken with the session.
struct DeviceStaging {
  std::byte* tables = nullptr;    // [table_bytes] the host's page tables, on which the library's policies work
  StepState* state = nullptr;     // the step's
  int32_t* tokens = nullptr;      // [max_tok] of a prompt chunk
  float* cos_sin = nullptr;       // [rotations of the model, max_tok, rope_dim] of a prompt chunk
  float* cos_sin_sink = nullptr;  // the same, or null
  double* angles = nullptr;       // [rotations of the model, rope_dim / 2]
  float* token_mass = nullptr;    // [n_kv_heads, most pages * kPageTokens] for prompt policies, or null
  float* logits = nullptr;        // [vocab_size]
  PageEventRing events;           // the host writes to it around prompts, the device in decode steps
  int32_t* top_ids = nullptr;     // [kMaxTopLogits]
  float* top_logits = nullptr;    // [kMaxTopLogits]
  uint32_t* mask = nullptr;       // [mask_words(vocab_size)]
  int32_t* asked = nullptr;       // [kMaxTopLogits]
  float* asked_logits = nullptr;  // [kMaxTopLogits]
  LogitPart* parts = nullptr;     // [kLogitParts]
  DeviceRecall recall;
  TraceBuffers trace;  // what a step did, after DeviceSession::get_trace
};

// The device's counterpart, besides pages, digests, tables and StepBuffers.
struct DeviceBuffers {
  std::byte* tables = nullptr;
  uint64_t table_bytes = 0;
  StepState* state = nullptr;
  int32_t* tokens = nullptr;
  double* angles = nullptr;
  uint32_t* counters = nullptr;  // [kCounters] of finished work, zero between kernels
  std::byte* module = nullptr;   // the bytes that the module asked for (session_device_bytes)
  uint32_t* mask = nullptr;      // [mask_words(vocab_size)]
  // With recall: the latest exchange of each stream, RecallEntry [n_streams, most] and RecallHead [n_streams]
  // (device/kernels/page_recall.h), and the output of one unit of a prompt's attention.
  uint32_t* journal = nullptr;
  float* unit_out = nullptr;      // [max_tok, n_heads, head_dim]
  uint32_t* raw_index = nullptr;  // [n_rows] a copy of DeviceRecall::raw_index, made when that has changed
  uint32_t* resident = nullptr;   // [n_streams, rows / 32 of the largest table] a bit for each page in the pool
  TraceBuffers trace;
  static constexpr uint32_t kCounters = 4096;
};

// Where the host finds pages that are not in the pool.
class RecallSource {
 public:
  // Reads a page's copy to `out` [page_bytes]; false: it cannot be read.
  virtual bool read(uint32_t stream, uint32_t row, std::byte* out) = 0;

 protected:
  ~RecallSource() = default;
};

struct DeviceSessionArgs {
  const ModelConfig* config = nullptr;
  const ModelWeights* weights = nullptr;  // pointers into device memory
  const RopeTable* rope = nullptr;
  const PolicyNeeds* needs = nullptr;
  StepRules rules;
  const KvCache* kv = nullptr;                // laid out over device memory; only its pointers are used
  const RecurrentState* recurrent = nullptr;  // the same
  StepBuffers b;
  OpContext cx;
  DeviceBuffers device;
  DeviceStaging host;
  RecallSource* recall = nullptr;  // with recall
};

// Called after a layer's attention over a prompt chunk; it may ask for DeviceSession::token_mass.
class ChunkObserver {
 public:
  virtual Status observe(uint32_t layer) = 0;

 protected:
  ~ChunkObserver() = default;
};

// With recall: loads a prompt's earlier pages unit by unit.
class ChunkPages {
 public:
  // Whether the layer is attended unit by unit, and the most rows of its streams. That depends on the number of rows
  // alone, unless one unit holds them all: units add up in an order of their own, and what a prompt gives must not
  // depend on which of its pages are cold.
  virtual bool in_units(uint32_t layer, uint32_t& n_rows) = 0;
  // Fills DeviceRecall::page_slots (UnitPage), unit_pos and unit_len with kSplitPages rows of each KV head from
  // first_row on; rows that do not exist have no tokens. `pages` of DeviceRecall takes what is not raw.
  virtual void load_unit(uint32_t layer, uint32_t first_row) = 0;

 protected:
  ~ChunkPages() = default;
};

struct DeviceChunk {
  uint32_t pos = 0, n_tok = 0;
  bool want_logits = false;
  bool sink_moved = false;  // some token's position for the sink pages is not its own, so that the second query differs
  ChunkObserver* observer = nullptr;  // null: nothing observes the chunk
  ChunkPages* pages = nullptr;        // with recall
  const Cancel* cancel = nullptr;
};

// What DeviceSession::top_logits copies to the staging memory.
struct LogitRequest {
  uint32_t n_best = 0;    // top_ids and top_logits: so many of the best, at most kMaxTopLogits and vocab_size
  bool masked = false;    // of tokens alone whose bit the mask has
  bool new_mask = false;  // which has changed since the latest call, or was not there then
  bool sums = false;      // parts: of all logits, whatever the mask
  uint32_t n_asked = 0;   // asked_logits: those of so many tokens in `asked`, at most kMaxTopLogits
};

// The device's half of a session. One thread at a time. After WEIR_ERR_DEVICE_LOST every call fails with it again.
class DeviceSession {
 public:
  virtual ~DeviceSession() = default;
  // Whether a call has failed with WEIR_ERR_DEVICE_LOST.
  virtual bool is_lost() const = 0;
  // The most rows that the next prompt chunk should have, 64 or more: fewer after a chunk that took long.
  virtual uint32_t max_rows() const = 0;
  // Page tables and state, host to device and back; both wait. With recall the digests of lost pages are spoilt, and
  // what steps have brought back is forgotten unless the next step repeats one that was late.
  virtual Status put_tables(bool repeats) = 0;
  virtual Status get_tables() = 0;
  // Copies an open page of every stream to another place, or makes it from a page in the pool. Waits.
  virtual Status move_open_page(const OpenMove& move) = 0;
  // Adds what windows have passed when position n_tokens is next to the sums of streams that compensate, on the device
  // and in the host's tables, which are equal otherwise. Waits.
  virtual Status add_left(uint32_t n_tokens) = 0;
  // A prompt chunk over reserved pages; tokens and rotations lie in the staging memory. Waits.
  virtual Status run_chunk(const DeviceChunk& chunk) = 0;
  // The op token_mass during a chunk: q and lse are device memory (StepBuffers), `mass` is host memory of a.kv's shape.
  // Waits.
  virtual Status token_mass(uint32_t layer, const TokenMassArgs& a) = 0;
  // One whole decode step: makes room, reserves, runs the forward pass, commits, finds the greedy token. Waits; the
  // staging state is up to date then. If its is_late is set, the step is not committed; some pages that were asked for
  // are not in the pool.
  virtual Status step(int32_t token) = 0;
  // With recall: copies the page with the tokens from position row * 16 on of all streams to DeviceRecall::pages, by
  // stream. Waits.
  virtual Status copy_row_out(uint32_t row) = 0;
  // Copies the first n of DeviceRecall::pages into the pool's slots page_slots, or from there. Waits.
  virtual Status copy_pages(uint32_t n, bool in) = 0;
  // Fills a table row of all streams with noise, makes its digests, and copies it out like copy_row_out; page_slots
  // [n_streams] are its slots (benchmarks). Waits.
  virtual Status fill_row(uint32_t row, uint64_t seed) = 0;
  // Copies what the latest step did to DeviceStaging::trace. Waits.
  virtual Status get_trace() = 0;
  // Copies the logits of the last token to the staging memory. Waits.
  virtual Status get_logits() = 0;
  // Copies what is asked for of the last token's logits to the staging memory: the best in descending order, the lower
  // id first of equals; NaN counts as -inf. Where fewer may be listed, the ids behind them are -1. Waits.
  virtual Status top_logits(const LogitRequest& request) = 0;
  // Fills the pages of every stream with noise and makes their digests (benchmarks). Waits.
  virtual Status fill_noise(uint64_t seed) = 0;
  // Makes the digests of all pages in the pool again. Waits.
  virtual Status rebuild_digests() = 0;
  // Makes the digests of the last pages again, after tokens were taken back. Waits.
  virtual Status rebuild_last_digests() = 0;
  // Seconds that the kernels of each part of a decode step take by themselves over all layers, indexed by kPart*, for
  // benchmarks. The token is appended, once or twice.
  virtual Status profile_step(int32_t token, double* seconds) = 0;
};

enum : uint32_t { kPartGemv, kPartScore, kPartSelect, kPartAttention, kPartOther, kParts };

enum class DeviceKind : uint32_t { kDiscrete, kIntegrated, kVirtual, kCpu };

struct DeviceInfo {
  char name[128];   // of the device
  char arch[64];    // what its kernels are made for, "sm_90"
  char driver[64];  // "CUDA 13.0"
  uint64_t total_bytes;
  uint64_t free_bytes;
  uint64_t max_bytes;          // that an allocation may have
  uint64_t max_staging_bytes;  // the same of staging memory
  uint32_t n_processors;
  uint32_t index;  // among the devices that the driver shows
  DeviceKind kind;
};

// A device that the driver shows.
struct ListedDevice {
  char name[256];
  char driver[128];
  char why_not[512];  // it cannot be used; empty: it can
  uint64_t total_bytes;
  DeviceKind kind;
};

inline constexpr uint32_t kMaxListed = 16;  // of a module's devices; further ones do not exist for the library

struct DeviceModule {
  uint32_t interface;      // kDeviceInterface of device_interface.h
  uint32_t session_bytes;  // host memory that a DeviceSession object takes
  const Backend* backend;  // ops over device memory
  // Finds the driver and its device `which`. WEIR_ERR_UNSUPPORTED says what is missing. A process has one device of
  // each module: it is open until the process ends, and others are refused.
  Status (*open)(uint32_t which);
  Status (*info)(DeviceInfo& info);
  const char* (*last_error)();
  // Raw device memory; the caller counts it. WEIR_ERR_OUT_OF_MEMORY when there is none left.
  Status (*allocate)(uint64_t bytes, void** out);
  Status (*release)(void* device);
  // Host memory that the device copies from and to directly, aligned to kStagingAlignment, taken from `memory`, or with
  // own_staging from the driver: the library counts it. Throws std::bad_alloc when `memory` does. Released with the
  // same arguments. A failed call leaves null at `out`.
  Status (*allocate_staging)(std::pmr::memory_resource& memory, uint64_t bytes, void** out);
  Status (*release_staging)(std::pmr::memory_resource& memory, void* staging, uint64_t bytes);
  bool own_staging;
  Status (*copy_in)(void* device, const void* host, uint64_t bytes);   // waits
  Status (*copy_out)(void* host, const void* device, uint64_t bytes);  // waits for everything before
  Status (*copy)(void* to, const void* from, uint64_t bytes);          // on the device; waits
  // The same after what was put into stream() before, without waiting; host memory is in use until wait(). With a copy
  // to the host the device begins, while the host does something else.
  Status (*enqueue_copy_in)(void* device, const void* host, uint64_t bytes);
  Status (*enqueue_copy_out)(void* host, const void* device, uint64_t bytes);
  Status (*wait)();                                             // for everything in stream()
  Status (*fill)(void* device, uint8_t value, uint64_t bytes);  // waits
  void* (*stream)();                                            // the module's queue for ops outside sessions
  // Bytes per second of a copy from device memory to device memory, bytes read and written counted, over `bytes` bytes.
  Status (*copy_rate)(void* from, void* to, uint64_t bytes, double* rate);
  // Whether the device's kernels can compute with this matrix, in the planes of quant/planes.h; the message says why
  // not.
  Status (*check_weight)(const Weight& weight);
  // Whether the kernels can run this model and these rules; the message says why not. With attention on the host there
  // are neither rules nor needs: its pages_per_stream is 0.
  Status (*check_session)(const ModelConfig& config, const PolicyNeeds& needs, const StepRules& rules);
  uint64_t (*session_device_bytes)(const OpShapes& shapes);  // DeviceBuffers::module
  // Builds the session in `place` (session_bytes, 64-byte aligned); the caller calls its destructor.
  Status (*create_session)(void* place, const DeviceSessionArgs& args, DeviceSession*& out);
  // Makes what step_many needs for these sessions in this order. This is where the driver may have no memory left. No
  // conversation changes, whether the call succeeds or not. None of the sessions may be lost. What is made stays until
  // sessions[0] is prepared at the head of other groups.
  Status (*prepare_many)(DeviceSession* const* sessions, uint32_t n);
  // One decode step of each of `n` different sessions over the same weights, 1..kMaxTogether, after prepare_many for
  // them: tokens[i] for sessions[i]. A GEMV reads its weights once, with CUDA for all sessions whose inputs fit into an
  // SM's shared memory together, with Vulkan if the type has integer GEMVs, as most of the model's weights then must,
  // and no session recalls pages. Waits; every staging state is up to date then. Only the device can fail, and that is
  // a failure of every session: WEIR_ERR_DEVICE_LOST.
  Status (*step_many)(DeviceSession* const* sessions, const int32_t* tokens, uint32_t n);
  // The index for open() of the device that `wanted` names: an index, or a part of its name; null: the best one.
  // WEIR_ERR_NOT_FOUND, and WEIR_ERR_INVALID_ARG where several have the name, list the devices. Null: the module has no
  // choice.
  Status (*choose)(const char* wanted, uint32_t& which);
  // The devices that the driver shows, [n] in the order of their indices, n up to kMaxListed; opens none. A failure
  // says why there are none.
  Status (*list)(ListedDevice* devices, uint32_t& n);
  // From now on, also for a device that is opened afterwards, pipelines are looked for in a file of this folder before
  // they are compiled. Null: the module keeps none.
  void (*use_cache)(const char* folder);
  // Writes that file if it lacks pipelines that were made since. A failure, also an earlier one of reading, is told
  // once, and says no more than that time was or will be lost; WEIR_ERR_NOT_FOUND: the file was of another driver.
  Status (*keep_cache)();
};

// The one function that a module exports; it returns null when the version differs.
using device_module_fn = const DeviceModule* (*)(uint32_t interface_version);
inline constexpr char kDeviceModuleSymbol[] = "weir_device_module";

}  // namespace weir
