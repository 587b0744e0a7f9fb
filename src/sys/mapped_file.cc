#include "sys/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "sys/error.h"

namespace braid::sys {

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(printable(path.string()), {.what = "cannot open the file", .got = std::strerror(errno)});
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    fail(printable(path.string()), {.what = "not a regular file", .expected = "a file, not a folder, pipe or device"});
  }
  size_ = static_cast<size_t>(info.st_size);
  if (size_ > 0) {
    void* data = mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
    const int status = errno;
    close(fd);
    if (data == MAP_FAILED)
      fail_environment(printable(path.string()), {.what = "cannot map the file", .got = std::strerror(status)});
    data_ = static_cast<const std::byte*>(data);
  } else {
    close(fd);
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::give_back(std::span<const std::byte> part) const {
  const auto begin = reinterpret_cast<uintptr_t>(data_), from = reinterpret_cast<uintptr_t>(part.data());
  if (!data_ || from < begin || from + part.size() > begin + size_) return;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), at = from - begin;  // a mapping begins with a page
  const size_t first = (at + page - 1) / page * page, last = (at + part.size()) / page * page;
  // The mapping is shared and read-only, so nothing is lost.
  if (first < last) madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace braid::sys
