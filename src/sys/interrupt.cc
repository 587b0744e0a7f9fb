#include "sys/interrupt.h"

#include <csignal>

namespace braid::sys {
namespace {

// A signal handler can reach nothing but static storage.
volatile std::sig_atomic_t& flag() {
  static volatile std::sig_atomic_t value = 0;
  return value;
}

}  // namespace

void catch_interrupts() {
  flag() = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { flag() = 1; };
  sigaction(SIGINT, &action, nullptr);  // no SA_RESTART: a blocked read returns
}

bool interrupted() { return flag() != 0; }
void clear_interrupt() { flag() = 0; }

}  // namespace braid::sys
