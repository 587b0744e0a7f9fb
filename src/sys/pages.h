// Pages: zeros at an address that never changes. Memory is allocated when a page is written and freed when it is
// cleared: for arrays that are read through fixed views but are in use only in part.
#pragma once
#include <cstddef>

namespace braid::sys {

class Pages {
 public:
  // std::bad_alloc when there is no room for the addresses.
  explicit Pages(size_t bytes);
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages();

  std::byte* data() { return data_; }
  // Bytes [begin, end) become zeros; pages that lie within are freed.
  void clear(size_t begin, size_t end);
  // Bytes of the pages that have memory, or were read.
  size_t resident() const;

 private:
  std::byte* data_;
  size_t bytes_;  // whole pages
};

}  // namespace braid::sys
