#include "sys/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace braid::sys {
namespace {

// A signal handler can only access static storage.
volatile std::sig_atomic_t& flag() {
  static volatile std::sig_atomic_t value = 0;
  return value;
}

// A later Ctrl-C does not replace a request to stop.
void record(int caught) {
  if (flag() == 0 || flag() == SIGINT) flag() = caught;
}

int64_t now() {  // ns
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}
std::atomic<int64_t>& first_at() {
  static std::atomic<int64_t> value = 0;
  return value;
}

void record_or_end(int caught) {
  constexpr int64_t kSecond = 1'000'000'000;
  const bool impatient = caught == SIGINT && flag() != SIGHUP;  // a closed pipe: its reader may have got this Ctrl-C
  const bool ends = flag() != 0 && (impatient || now() - first_at() >= kSecond);
  if (ends) _exit(128 + caught);
  if (flag() == 0) first_at() = now();
  record(caught);
}

void handle(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigaction(number, &action, nullptr);  // no SA_RESTART: a blocked read returns
}

void (*handler_of(int number))(int) {
  struct sigaction now {};
  sigaction(number, nullptr, &now);
  return now.sa_handler;
}

// A caller that ignores a signal wants the process to outlive it: nohup ignores SIGHUP, and a shell without job control
// SIGINT for what it starts with `&`, so that a Ctrl-C meant for another command does not reach it.
void record_unless_ignored(int number) {
  if (handler_of(number) != SIG_IGN) handle(number, record);
}

}  // namespace

void catch_interrupts() {
  flag() = 0;
  record_unless_ignored(SIGINT);
}

void catch_requests_to_stop() {
  catch_interrupts();
  handle(SIGTERM, record);
  record_unless_ignored(SIGHUP);
}

// The current operation may take minutes, and a wait for another rank an hour: a second signal means not to wait for
// it.
void end_at_second_interrupt() {
  first_at() = now();  // one may have been recorded just before
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    if (handler_of(number) == record) handle(number, record_or_end);
  }
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
