#include "train/forked_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

#include "sys/check.h"
#include "sys/error.h"

namespace braid::train {
namespace {

constexpr const char* kWhere = "checkpoint.async";
constexpr char kDone = 'd';  // begins a message that is followed by seconds; others begin with the Fault of an Error
using Clock = std::chrono::steady_clock;

// Of what cannot be reported there is nobody left to tell.
void send(int to, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(to, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

// The copy: without the exit handlers and buffers of the process it was forked from.
[[noreturn]] void run_copy(pid_t parent, int to, Clock::time_point begin, sys::FunctionRef<void()> write) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  for (const int stop : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(stop, SIG_IGN);
  try {
    write();
    send(to, fmt::format("{}{}", kDone, std::chrono::duration<double>(Clock::now() - begin).count()));
  } catch (const Error& error) {
    send(to, fmt::format("{}{}", static_cast<char>(error.fault()), error.what()));
    _exit(1);
  } catch (const std::exception& error) {
    send(to, fmt::format("{}[{}] {}", static_cast<char>(Fault::environment), kWhere, error.what()));
    _exit(1);
  }
  _exit(0);
}

std::string all_of(int from) {
  std::string text;
  std::array<char, 4096> some;
  for (;;) {
    const ssize_t n = read(from, some.data(), some.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(some.data(), static_cast<size_t>(n));
  }
}

// The copy holds the pipe open until it ends.
bool has_ended(int from) {
  pollfd one{.fd = from, .events = POLLIN, .revents = 0};
  return poll(&one, 1, 0) > 0;
}

}  // namespace

ForkedWriter::~ForkedWriter() {
  try {
    finished(true);
  } catch (const Error&) {
  }
}

std::string ForkedWriter::start(sys::FunctionRef<void()> write) {
  CHECK(child_ == 0, "two copies would write at once");
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return std::strerror(errno);
  const auto begin = Clock::now();
  const pid_t own = getpid(), child = fork();
  if (child == 0) {
    close(ends[0]);
    run_copy(own, ends[1], begin, write);
  }
  const int problem = errno;
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return std::strerror(problem);
  }
  child_ = child;
  message_ = ends[0];
  return {};
}

std::optional<ForkedWriter::Ended> ForkedWriter::finished(bool wait) {
  if (child_ == 0 || (!wait && !has_ended(message_))) return std::nullopt;
  const std::string text = all_of(message_);
  close(message_);
  int status = 0;
  while (waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  child_ = 0;
  if (text.starts_with(kDone)) return Ended{.seconds = std::stod(text.substr(1))};
  if (!text.empty()) throw Error(static_cast<Fault>(text[0]), text.substr(1));
  return Ended{.lost = WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "it ended without a word"};
}

}  // namespace braid::train
