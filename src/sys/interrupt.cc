#include "sys/interrupt.h"

#include <csignal>

namespace braid::sys {
namespace {

// A signal handler can reach nothing but static storage.
volatile std::sig_atomic_t& flag() {
  static volatile std::sig_atomic_t value = 0;
  return value;
}

void catch_signal(int number) {
  struct sigaction action {};
  action.sa_handler = [](int caught) { flag() = caught; };
  sigaction(number, &action, nullptr);  // no SA_RESTART: a blocked read returns
}

}  // namespace

void catch_interrupts() {
  flag() = 0;
  catch_signal(SIGINT);
}

void catch_requests_to_stop() {
  catch_interrupts();
  catch_signal(SIGTERM);
}

int caught_signal() { return flag(); }
bool interrupted() { return flag() == SIGINT; }
void clear_interrupt() { flag() = 0; }

bool take_interrupt() {
  if (!interrupted()) return false;
  clear_interrupt();
  return true;
}

}  // namespace braid::sys
