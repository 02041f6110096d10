// The driver's cache of compiled pipelines, kept in a file between processes (runtime/cache_file.h). Nothing here fails
// a session: without the file pipelines are compiled again.
#pragma once

#include "runtime/device_host.h"
#include "vulkan/device.h"

namespace weir::vulkan {

class PipelineCache {
 public:
  // The folder of the file, from now on; null or "": none. It is read once the device is open.
  void use(const char* folder);
  // Reads what the folder has for the device, unless that was done. What was read from another folder stays, too.
  void load(const Device& d, uint32_t n_pipelines);
  // Writes what the folder does not have, when there are more pipelines than before. A failure, also one of load(), is
  // told once, and the file is not written any more.
  Status keep(const Device& d, uint32_t n_pipelines);
  // Nothing may be being made.
  void close(const Device& d);
  // To make pipelines with; null: there is none.
  VkPipelineCache handle() const { return handle_; }

 private:
  void note(Status status);
  Status merge(const Device& d, const CacheBytes& bytes);
  Status write(const Device& d);
  const char* name(const Device& d);

  VkPipelineCache handle_ = VK_NULL_HANDLE;
  char folder_[kMaxPathBytes] = "";
  char name_[48] = "";
  bool is_loaded_ = false, is_off_ = false;
  uint64_t kept_bytes_ = 0;      // of the driver's data in the file
  uint32_t n_kept_ = 0;          // pipelines that were made when the file was written
  weir_status noted_ = WEIR_OK;  // what went wrong and was not told
  char note_[kErrorBytes] = "";
};

}  // namespace weir::vulkan
