#include "sys/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace braid::sys {
namespace {

// A signal handler can only access static storage.
volatile std::sig_atomic_t& flag() {
  static volatile std::sig_atomic_t value = 0;
  return value;
}

void catch_signal(int number) {
  struct sigaction action {};
  // A later Ctrl-C does not replace a request to stop.
  action.sa_handler = [](int caught) {
    if (flag() == 0 || flag() == SIGINT) flag() = caught;
  };
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
  // nohup: the caller wants the process to outlive the terminal.
  struct sigaction before {};
  if (sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) catch_signal(SIGHUP);
}

// The current operation may take minutes: a second Ctrl-C means not to wait for it.
void end_at_second_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int caught) {
    if (flag() != 0) _exit(128 + caught);
    flag() = caught;
  };
  sigaction(SIGINT, &action, nullptr);
}

int caught_signal() { return flag(); }
bool asked_to_stop() { return flag() != 0 && flag() != SIGINT; }
bool interrupted() { return flag() == SIGINT; }
void clear_interrupt() { flag() = 0; }

bool take_interrupt() {
  if (!interrupted()) return false;
  clear_interrupt();
  return true;
}

}  // namespace braid::sys
