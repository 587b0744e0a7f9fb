#include "sys/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "sys/check.h"

namespace braid::sys {
namespace {

size_t page() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}
size_t up(size_t n) { return (n + page() - 1) / page() * page(); }

}  // namespace

Pages::Pages(size_t bytes) : bytes_(std::max(page(), up(bytes))) {
  void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  madvise(p, bytes_, MADV_NOHUGEPAGE);  // part of a huge page could not be freed; failing changes nothing
  data_ = static_cast<std::byte*>(p);
}

Pages::~Pages() { munmap(data_, bytes_); }

void Pages::clear(size_t begin, size_t end) {
  CHECK(begin <= end && end <= bytes_, "bytes {} to {} of {}", begin, end, bytes_);
  const size_t first = std::min(end, up(begin)), last = std::max(first, end / page() * page());
  std::memset(data_ + begin, 0, first - begin);
  if (last > first) CHECK(madvise(data_ + first, last - first, MADV_DONTNEED) == 0, "{} bytes", last - first);
  std::memset(data_ + last, 0, end - last);
}

size_t Pages::resident() const {
  std::vector<unsigned char> in_memory(bytes_ / page());
  CHECK(mincore(data_, bytes_, in_memory.data()) == 0, "{} bytes", bytes_);
  return page() * static_cast<size_t>(std::count_if(in_memory.begin(), in_memory.end(), [](auto c) { return c & 1; }));
}

}  // namespace braid::sys
