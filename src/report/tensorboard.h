// TensorBoard's event files, written as TensorBoard reads them, without its libraries:
//   file    records of  u64 length | u32 masked CRC-32C of the length | payload | u32 masked CRC-32C of the payload
//   mask    rotate right by 15, plus 0xa282ead8
//   payload protobuf Event{1: double wall_time, 2: int64 step, 3: "brain.Event:2" (first record),
//                          5: Summary{1: Value{1: tag, 2: float simple_value}, ...}}
// as in TensorFlow's core/lib/io/record_writer and core/util/event.proto.
// A resumed run writes its own file; TensorBoard joins the files of a folder by step.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace braid::report {

uint32_t crc32c(std::string_view bytes);

class EventFile {
 public:
  // Makes `folder` and in it events.out.tfevents.<seconds>.<host>.<pid>. Error if it cannot.
  explicit EventFile(const std::filesystem::path& folder);
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  ~EventFile();

  void scalars(int64_t step, double wall_time, std::span<const std::pair<std::string, float>> values);
  const std::filesystem::path& path() const { return path_; }

 private:
  void record(std::string_view payload);

  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace braid::report
