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
const char* PipelineCache::name(const Device& d) {
  std::snprintf(name_, sizeof(name_), "vulkan-%04x-%04x.pipelines", d.cache_key.vendor, d.cache_key.device);
  return name_;
}

void PipelineCache::note(Status status) {
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
  if (is_loaded_ || folder_[0] == '\0') return;
  is_loaded_ = true;
  const bool has_others = handle_ != VK_NULL_HANDLE;  // which this folder lacks
  CacheBytes bytes;
  const Status read = read_cache_file(folder_, name(d), d.cache_key, bytes);
  note(read);
  is_off_ = read.code() == WEIR_ERR_IO;  // nothing may be written there either
  const Status merged = merge(d, bytes);
  note(merged);
  kept_bytes_ = merged.ok() ? bytes.size() : 0;
  n_kept_ = has_others ? 0 : n_pipelines;
}

// The driver's data only grows: of the same size, they are the same.
Status PipelineCache::write(const Device& d) {
  size_t n = 0;
  WEIR_VK_TRY(d.vk.vkGetPipelineCacheData(d.device, handle_, &n, nullptr),
              "asking for the size of a cache of pipelines");
  if (n == kept_bytes_ || n == 0) return {};
  if (n > kMostCacheBytes) {
    return fail(WEIR_ERR_IO, "cache of pipelines %.300s/%s: %zu bytes, at most %llu are kept", folder_, name(d), n,
                static_cast<unsigned long long>(kMostCacheBytes));
  }
  CacheBytes bytes;
  WEIR_TRY(bytes.take(n));
  WEIR_VK_TRY(d.vk.vkGetPipelineCacheData(d.device, handle_, &n, bytes.data()), "reading a cache of pipelines");
  WEIR_TRY(write_cache_file(folder_, name(d), d.cache_key, bytes.data(), n));
  kept_bytes_ = n;
  return {};
}

Status PipelineCache::keep(const Device& d, uint32_t n_pipelines) {
  if (handle_ != VK_NULL_HANDLE && folder_[0] != '\0' && !is_off_ && n_pipelines != n_kept_) {
    n_kept_ = n_pipelines;
    const Status written = write(d);
    note(written);
    is_off_ = !written.ok();
  }
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
