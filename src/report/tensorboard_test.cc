// Records are read back by the format's definition, and the checksum is the published one.
#include "report/tensorboard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "support/folder.h"
#include "sys/read.h"

namespace braid::report {
namespace {

uint32_t unmasked(uint32_t value) { return std::rotl(value - 0xa282ead8u, 15); }

// Payloads of all records; fails the test if a checksum is wrong.
std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> list;
  for (size_t at = 0; at < file.size();) {
    uint64_t length = 0;
    uint32_t head = 0, tail = 0;
    std::memcpy(&length, &file[at], 8);
    std::memcpy(&head, &file[at + 8], 4);
    EXPECT_EQ(unmasked(head), crc32c(file.substr(at, 8)));
    list.push_back(file.substr(at + 12, length));
    std::memcpy(&tail, &file[at + 12 + length], 4);
    EXPECT_EQ(unmasked(tail), crc32c(list.back()));
    at += 16 + length;
  }
  return list;
}

TEST(Tensorboard, Crc32c) { EXPECT_EQ(crc32c("123456789"), 0xe3069283u); }  // RFC 3720's check value

TEST(Tensorboard, RecordsOfScalars) {
  const support::Folder folder;
  const std::pair<std::string, float> values[] = {{"loss", 2.5f}, {"lr", 1e-3f}};
  std::filesystem::path path;
  {
    EventFile file(folder.path()), other(folder.path());
    EXPECT_NE(file.path(), other.path());
    file.scalars(300, 1.5, values);
    path = file.path();
  }
  EXPECT_NE(path.filename().string().find("tfevents"), std::string::npos);
  const auto records = records_of(sys::read_file(path));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].substr(9), std::string("\x1a\x0d") + "brain.Event:2");
  const std::string loss("\x0a\x04loss\x15\x00\x00\x20\x40", 11), step("\x10\xac\x02", 3);
  EXPECT_EQ(records[1].substr(9, 3), step);
  EXPECT_NE(records[1].find(std::string("\x0a\x0b", 2) + loss), std::string::npos);
}

}  // namespace
}  // namespace braid::report
