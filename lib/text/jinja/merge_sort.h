// A stable sort whose memory comes from the vector's own resource; that of the standard library takes its buffer from
// the global heap. Bounded also where the order contradicts itself.
#pragma once

#include <algorithm>
#include <memory_resource>
#include <vector>

namespace weir::jinja {

template <class T, class Less>
void merge_sort(std::pmr::vector<T>& items, const Less& less) {
  std::pmr::vector<T> merged(items, items.get_allocator());
  const size_t n = items.size();
  for (size_t width = 1; width < n; width *= 2) {
    for (size_t first = 0; first < n; first += 2 * width) {
      const size_t middle = std::min(first + width, n), end = std::min(first + 2 * width, n);
      for (size_t to = first, a = first, b = middle; to < end; ++to) {
        const bool takes_second = b < end && (a == middle || less(items[b], items[a]));
        merged[to] = items[takes_second ? b++ : a++];
      }
    }
    items.swap(merged);
  }
}

}  // namespace weir::jinja
