#include "io/tensor_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "io/safetensors.h"
#include "sys/check.h"
#include "sys/error.h"
#include "sys/mapped_file.h"

namespace braid::io {
namespace fs = std::filesystem;

TensorFiles::TensorFiles(const fs::path& path) {
  std::error_code none;
  for (const fs::path& file : fs::is_directory(path, none) ? weight_files(path) : std::vector{path}) open_file(file);
}

TensorFiles::~TensorFiles() {
  for (const File& file : files_) close(file.fd);
}

void TensorFiles::open_file(const fs::path& path) {
  {
    const sys::MappedFile header(path);  // no page behind it is read
    for (const StoredTensor& t : parse_safetensors(header.bytes(), printable(path.string())))
      places_[t.name] = {files_.size(), t.view.data - header.bytes().data(), t.view.dtype, t.view.shape};
  }
  files_.push_back({path, open(path.c_str(), O_WRONLY | O_CLOEXEC)});
  if (files_.back().fd >= 0) return;
  const File file = files_.back();
  files_.pop_back();
  fail_at(file, "cannot be written");
}

const TensorFiles::Place& TensorFiles::need(std::string_view name) const {
  const auto found = places_.find(name);
  CHECK(found != places_.end(), "no tensor {} was laid out", name);
  return found->second;
}

void TensorFiles::write(const Place& tensor, int64_t at, std::span<const std::byte> bytes) {
  const File& file = files_[tensor.file];
  const int64_t begin = at * size_of(tensor.dtype), size = std::ssize(bytes);
  CHECK(at >= 0 && begin + size <= tensor.shape.count() * size_of(tensor.dtype), "{} bytes from {} on of {}", size, at,
        tensor.shape.count());
  for (int64_t done = 0; done < size;) {
    const ssize_t n = pwrite(file.fd, bytes.data() + done, static_cast<size_t>(size - done), tensor.at + begin + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_at(file, "cannot be written");
    done += n;
  }
}

void TensorFiles::flush() {
  for (const File& file : files_) {
    if (fsync(file.fd) != 0) fail_at(file, "cannot be flushed to the disk");
  }
}

void TensorFiles::fail_at(const File& file, const char* what) {
  fail_environment(printable(file.path.string()), {.what = what, .got = std::strerror(errno)});
}

}  // namespace braid::io
