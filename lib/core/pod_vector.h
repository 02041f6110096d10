// An array that grows, of plain data, in memory of a resource. Its growth is one function for all types, which keeps
// what is built of many kinds of them small.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <type_traits>

namespace weir {

class PodStorage {
 protected:
  explicit PodStorage(std::pmr::memory_resource* memory) : memory_(memory) {}
  PodStorage(const PodStorage&) = delete;
  PodStorage& operator=(const PodStorage&) = delete;
  // Room for `n` elements in all; new bytes are not set.
  void grow(size_t n, size_t element_bytes);
  void release(size_t element_bytes);
  void exchange(PodStorage& other);

  std::pmr::memory_resource* memory_;
  void* data_ = nullptr;
  uint32_t size_ = 0, capacity_ = 0;
};

template <class T>
class PodVector : private PodStorage {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8);

 public:
  explicit PodVector(std::pmr::memory_resource* memory) : PodStorage(memory) {}
  ~PodVector() { release(sizeof(T)); }

  uint32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return static_cast<T*>(data_); }
  const T* data() const { return static_cast<const T*>(data_); }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T& back() { return data()[size_ - 1]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  std::span<const T> part(uint32_t first, uint32_t n) const { return {data() + first, n}; }
  uint32_t capacity() const { return capacity_; }
  uint64_t capacity_bytes() const { return uint64_t{capacity_} * sizeof(T); }

  std::pmr::memory_resource* memory() const { return memory_; }

  void clear() { size_ = 0; }
  void swap(PodVector& other) { exchange(other); }  // of the same memory
  void reserve(uint32_t n) {
    if (n > capacity_) grow(n, sizeof(T));
  }
  void push_back(T value) {  // by value: it may be an element
    if (size_ == capacity_) grow(size_t{size_} + 1, sizeof(T));
    data()[size_++] = value;
  }
  void pop_back() { --size_; }
  void resize(uint32_t n, T value = {}) {
    if (n > capacity_) grow(n, sizeof(T));
    while (size_ < n) data()[size_++] = value;
    size_ = n;
  }
  void append(const T* from, uint32_t n) {
    if (size_ + n > capacity_) grow(size_t{size_} + n, sizeof(T));
    for (uint32_t i = 0; i < n; ++i) data()[size_++] = from[i];
  }
};

}  // namespace weir
