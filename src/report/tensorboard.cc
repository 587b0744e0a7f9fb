#include "report/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "sys/error.h"

namespace braid::report {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82f63b78u : 0u);  // Castagnoli, reflected
    table[i] = value;
  }
  return table;
}

template <class Num>
void put(std::string& out, Num value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));  // x86 is little-endian, like the format
}

uint32_t masked(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8u; }

void varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
// Fields of protobuf: key = number << 3 | kind, kind 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
void bytes_field(std::string& out, int number, std::string_view bytes) {
  varint(out, static_cast<uint64_t>(number) << 3 | 2);
  varint(out, bytes.size());
  out += bytes;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = make_table();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {"localhost"};
  const auto now = static_cast<double>(std::time(nullptr));
  for (int i = 0; fd_ < 0; ++i) {  // a run may be resumed within its first second
    path_ = folder / fmt::format("events.out.tfevents.{:.0f}.{}.{}.{}", now, host.data(), getpid(), i);
    fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST)
      fail_environment(printable(path_.string()), {.what = "cannot be written", .got = std::strerror(errno)});
  }
  std::string event = "\x09";
  put(event, now);
  bytes_field(event, 3, "brain.Event:2");
  record(event);
}

EventFile::~EventFile() { close(fd_); }

void EventFile::scalars(int64_t step, double wall_time, std::span<const std::pair<std::string, float>> values) {
  std::string summary;
  for (const auto& [tag, number] : values) {
    std::string value;
    bytes_field(value, 1, tag);
    value += '\x15';
    put(value, number);
    bytes_field(summary, 1, value);
  }
  std::string event = "\x09";
  put(event, wall_time);
  event += '\x10';
  varint(event, static_cast<uint64_t>(step));
  bytes_field(event, 5, summary);
  record(event);
}

// One write per record: a process that dies leaves whole records, and a reader sees each as soon as it is written.
void EventFile::record(std::string_view payload) {
  std::string out;
  put(out, static_cast<uint64_t>(payload.size()));
  put(out, masked(out));
  out += payload;
  put(out, masked(payload));
  if (write(fd_, out.data(), out.size()) != std::ssize(out))
    fail_environment(printable(path_.string()), {.what = "cannot be written", .got = std::strerror(errno)});
}

}  // namespace braid::report
