// The driver's cache of compiled pipelines, kept in a file between processes (runtime/cache_file.h). Nothing here fails
// a session: without the file pipelines are compiled again.
#pragma once

#include "runtime/device_host.h"
#include "vulkan/device.h"

namespace weir::vulkan {

// What is read or written without the lock, and all that this needs: the cache may have another folder by then.
struct CacheFile {
  char folder[kMaxPathBytes] = "";
  char name[48] = "";
  CacheKey key;
  CacheBytes bytes;
  uint32_t n_pipelines = 0;  // that were made when it began

  Status read() { return read_cache_file(folder, name, key, bytes); }
  Status write() const { return write_cache_file(folder, name, key, bytes.data(), bytes.size()); }
};

// Under the lock, but for what CacheFile does. One file at a time is read or written; whoever comes meanwhile goes on
// without it.
class PipelineCache {
 public:
  // The folder of the file, from now on; null or "": none. It is read once the device is open.
  void use(const char* folder);
  // Reads what the folder has for the device, unless that was done. What was read from another folder stays, too.
  void load(const Device& d, uint32_t n_pipelines);
  // The same in parts: whether `file` is to be read, and what became of it.
  bool begin_load(const Device& d, uint32_t n_pipelines, CacheFile& file);
  void end_load(const Device& d, const CacheFile& file, const Status& read);
  // What the folder does not have, when there are more pipelines than before: whether `file` is to be written, and what
  // became of it. After a failure it is not written any more.
  bool begin_keep(const Device& d, uint32_t n_pipelines, CacheFile& file);
  void end_keep(const CacheFile& file, const Status& written);
  // What went wrong with any file; told once.
  Status tell();
  // Nothing may be being made.
  void close(const Device& d);
  // To make pipelines with; null: there is none.
  VkPipelineCache handle() const { return handle_; }

 private:
  void note(const Status& status);
  void begin(const Device& d, uint32_t n_pipelines, CacheFile& file);
  bool end(const CacheFile& file);
  Status merge(const Device& d, const CacheBytes& bytes);
  Status take(const Device& d, CacheFile& file) const;

  VkPipelineCache handle_ = VK_NULL_HANDLE;
  char folder_[kMaxPathBytes] = "";
  bool is_loaded_ = false, is_off_ = false;
  bool is_busy_ = false;         // a file is being read or written
  uint64_t kept_bytes_ = 0;      // of the driver's data in the file
  uint32_t n_kept_ = 0;          // pipelines that were made when the file was written
  weir_status noted_ = WEIR_OK;  // what went wrong and was not told
  char note_[kErrorBytes] = "";
};

}  // namespace weir::vulkan
