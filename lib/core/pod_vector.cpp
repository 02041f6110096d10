// Arrays that grow; see pod_vector.h.
#include "core/pod_vector.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace weir {

void PodStorage::grow(size_t n, size_t element_bytes) {
  const size_t wanted = std::max<size_t>({n, size_t{capacity_} * 2, 8});
  if (wanted > UINT32_MAX) throw std::bad_alloc();
  void* larger = memory_->allocate(wanted * element_bytes, 8);
  if (size_ != 0) std::memcpy(larger, data_, size_ * element_bytes);
  release(element_bytes);
  data_ = larger;
  capacity_ = static_cast<uint32_t>(wanted);
}

void PodStorage::release(size_t element_bytes) {
  if (data_ != nullptr) memory_->deallocate(data_, capacity_ * element_bytes, 8);
  data_ = nullptr;
}

void PodStorage::exchange(PodStorage& other) {
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(capacity_, other.capacity_);
}

}  // namespace weir
