#include "vulkan/pipeline_cache.h"

#include <cstdio>
#include <cstring>

namespace weir::vulkan {

void PipelineCache::use(const char* folder) {
  if (folder == nullptr) folder = "";
  if (std::strcmp(folder, folder_) == 0) return;
  std::snprintf(folder_, sizeof(folder_), "%s", folder);
  is_loaded_ = is_off_ = false;
}

// One file for each kind of device: a newer driver's takes the place of the older one's.
void PipelineCache::begin(const Device& d, uint32_t n_pipelines, CacheFile& file) {
  is_busy_ = true;
  std::snprintf(file.folder, sizeof(file.folder), "%s", folder_);
  std::snprintf(file.name, sizeof(file.name), "vulkan-%04x-%04x.pipelines", d.cache_key.vendor, d.cache_key.device);
  file.key = d.cache_key;
  file.n_pipelines = n_pipelines;
}

// Whether the file is still that of the folder.
bool PipelineCache::end(const CacheFile& file) {
  is_busy_ = false;
  return std::strcmp(file.folder, folder_) == 0;
}

void PipelineCache::note(const Status& status) {
  if (status.ok() || noted_ != WEIR_OK) return;
  noted_ = status.code();
  std::snprintf(note_, sizeof(note_), "%s", last_error_text());
}

// Without bytes: an empty one.
Status PipelineCache::merge(const Device& d, const CacheBytes& bytes) {
  VkPipelineCacheCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
  info.initialDataSize = bytes.size();
  info.pInitialData = bytes.data();
  VkPipelineCache read = VK_NULL_HANDLE;
  WEIR_VK_TRY(d.vk.vkCreatePipelineCache(d.device, &info, nullptr, &read), "making a cache of pipelines");
  if (handle_ == VK_NULL_HANDLE) {
    handle_ = read;
    return {};
  }
  const VkResult result = d.vk.vkMergePipelineCaches(d.device, handle_, 1, &read);
  d.vk.vkDestroyPipelineCache(d.device, read, nullptr);
  return vulkan_status(result, "joining caches of pipelines");
}

void PipelineCache::load(const Device& d, uint32_t n_pipelines) {
  CacheFile file;
  if (begin_load(d, n_pipelines, file)) end_load(d, file, file.read());
}

bool PipelineCache::begin_load(const Device& d, uint32_t n_pipelines, CacheFile& file) {
  if (is_loaded_ || is_busy_ || folder_[0] == '\0') return false;
  is_loaded_ = true;
  begin(d, n_pipelines, file);
  return true;
}

void PipelineCache::end_load(const Device& d, const CacheFile& file, const Status& read) {
  if (!end(file)) return;
  note(read);
  is_off_ = read.code() == WEIR_ERR_IO;               // nothing may be written there either
  const bool has_others = handle_ != VK_NULL_HANDLE;  // which this folder lacks
  const Status merged = merge(d, file.bytes);
  note(merged);
  kept_bytes_ = merged.ok() ? file.bytes.size() : 0;
  n_kept_ = has_others ? 0 : file.n_pipelines;
}

// The driver's data, if the file has less: it only grows, and of the same size it is the same.
Status PipelineCache::take(const Device& d, CacheFile& file) const {
  size_t n = 0;
  WEIR_VK_TRY(d.vk.vkGetPipelineCacheData(d.device, handle_, &n, nullptr),
              "asking for the size of a cache of pipelines");
  if (n == kept_bytes_ || n == 0) return {};
  if (n > kMaxCacheBytes) {
    return fail(WEIR_ERR_IO, "cache of pipelines %.300s/%s: %zu bytes, at most %llu are kept", file.folder, file.name,
                n, static_cast<unsigned long long>(kMaxCacheBytes));
  }
  WEIR_TRY(file.bytes.take(n));
  const VkResult result = d.vk.vkGetPipelineCacheData(d.device, handle_, &n, file.bytes.data());
  if (result == VK_SUCCESS) return {};
  file.bytes.release();
  return vulkan_status(result, "reading a cache of pipelines");
}

bool PipelineCache::begin_keep(const Device& d, uint32_t n_pipelines, CacheFile& file) {
  if (handle_ == VK_NULL_HANDLE || !is_loaded_ || is_busy_ || is_off_ || n_pipelines == n_kept_) return false;
  n_kept_ = n_pipelines;
  begin(d, n_pipelines, file);
  const Status taken = take(d, file);
  if (taken.ok() && file.bytes.size() != 0) return true;
  is_busy_ = false;
  note(taken);
  is_off_ = !taken.ok();
  return false;
}

void PipelineCache::end_keep(const CacheFile& file, const Status& written) {
  note(written);
  if (!end(file)) return;
  if (written.ok()) {
    kept_bytes_ = file.bytes.size();
  } else {
    is_off_ = true;
  }
}

Status PipelineCache::tell() {
  if (noted_ == WEIR_OK) return {};
  const Status status = fail(noted_, "%s", note_);
  noted_ = WEIR_OK;
  return status;
}

void PipelineCache::close(const Device& d) {
  if (handle_ != VK_NULL_HANDLE) d.vk.vkDestroyPipelineCache(d.device, handle_, nullptr);
  handle_ = VK_NULL_HANDLE;
  is_loaded_ = false;
}

}  // namespace weir::vulkan
