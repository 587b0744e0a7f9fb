#include "report/line_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "sys/interrupt.h"

namespace braid::report {

TEST(LineReader, AnInterruptFromBeforeTheReadEndsItOnce) {
  const int empty = open("/dev/null", O_RDONLY);
  ASSERT_GE(dup2(empty, STDIN_FILENO), 0);
  close(empty);
  std::signal(SIGINT, SIG_DFL);  // which the caller may ignore
  sys::catch_interrupts();
  LineReader reader;
  std::raise(SIGINT);
  EXPECT_EQ(reader.read("").ending, LineReader::Ending::interrupt);
  EXPECT_EQ(reader.read("").ending, LineReader::Ending::end);
}

TEST(LineReader, ARequestToStopEndsEveryRead) {
  sys::catch_requests_to_stop();
  LineReader reader;
  std::raise(SIGTERM);
  std::raise(SIGINT);  // does not cancel it
  EXPECT_EQ(reader.read("").ending, LineReader::Ending::stop);
  EXPECT_FALSE(sys::take_interrupt());
  EXPECT_EQ(reader.read("").ending, LineReader::Ending::stop);
  sys::clear_interrupt();
}

}  // namespace braid::report
