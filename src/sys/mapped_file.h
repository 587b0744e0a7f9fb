// A file mapped read-only. It yields bytes, never writable ones; pages come in when they are touched.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

namespace braid::sys {

class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);  // Error when it cannot be opened or is no regular file
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace braid::sys
