// BigVector: a vector that uses huge pages once it is large. Weights, gradients and moments are read from end to end
// and tile by tile; on 4 KiB pages a step of GPT-2 124M misses the TLB at every row of a tile.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

namespace braid::sys {

template <class T>
struct HugePageAllocator {
  using value_type = T;
  static constexpr size_t kHuge = size_t{2} << 20;  // bytes of a huge page; smaller vectors use normal pages

  HugePageAllocator() = default;
  template <class U>
  HugePageAllocator(const HugePageAllocator<U>&) {}

  T* allocate(size_t n) {
    if (n > PTRDIFF_MAX / sizeof(T)) throw std::bad_array_new_length();
    const size_t align = n * sizeof(T) < kHuge ? (alignof(T) < 64 ? 64 : alignof(T)) : kHuge;
    const size_t bytes = (n * sizeof(T) + align - 1) / align * align;
    void* p = std::aligned_alloc(align, bytes);
    if (!p) throw std::bad_alloc();
    if (align == kHuge) madvise(p, bytes, MADV_HUGEPAGE);  // a hint: without huge pages nothing changes
    return static_cast<T*>(p);
  }
  void deallocate(T* p, size_t) { std::free(p); }
  template <class U>
  bool operator==(const HugePageAllocator<U>&) const {
    return true;
  }
};

template <class T>
using BigVector = std::vector<T, HugePageAllocator<T>>;

}  // namespace braid::sys
