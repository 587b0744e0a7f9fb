// A file mapped read-only. Its bytes are never writable; pages are loaded when touched.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

namespace braid::sys {

class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);  // Error when it cannot be opened or is not a regular file
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Pages that lie within `part` are no longer counted as this process's memory; they are read again if touched. Bytes
  // of others are left alone.
  void give_back(std::span<const std::byte> part) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace braid::sys
