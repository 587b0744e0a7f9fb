#include "comm/processes.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>

#include "sys/error.h"

namespace braid::comm {

struct Processes::Failure {
  std::atomic<int> state{0};  // 1: is being written, 2: is there
  char why[4000] = {};
};

Processes::Processes() {
  void* memory = mmap(nullptr, sizeof(Failure), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail_environment("comm", {.what = "no shared memory", .got = std::strerror(errno)});
  failure_ = new (memory) Failure;
}

Processes::~Processes() { munmap(failure_, sizeof(Failure)); }

void Processes::fail_with(const std::string& why) {
  int none = 0;
  if (!failure_->state.compare_exchange_strong(none, 1)) return;
  std::strncpy(failure_->why, why.c_str(), sizeof(failure_->why) - 1);
  failure_->state.store(2);
  wake_();
}

void Processes::note_ended(bool wait) {
  for (size_t i = 0; i < children_.size(); ++i) {
    int status = 0;
    if (children_[i] == 0 || waitpid(children_[i], &status, wait ? 0 : WNOHANG) != children_[i]) continue;
    children_[i] = 0;
    if (WIFSIGNALED(status))
      fail_with(fmt::format("rank {} was killed by signal {}{}", i + 1, WTERMSIG(status),
                            WTERMSIG(status) == SIGKILL ? ", as by a system that is out of memory" : ""));
    else if (WEXITSTATUS(status) != 0)
      fail_with(fmt::format("rank {} ended with exit code {}", i + 1, WEXITSTATUS(status)));
  }
}

void Processes::look() {
  note_ended(false);
  if (failure_->state.load() == 2)
    fail_environment("comm", {.what = fmt::format("rank {} cannot go on", rank_), .got = failure_->why});
}

void Processes::run_child(int rank, pid_t parent, const std::function<void(int rank)>& body,
                          const std::function<void()>& wake) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before that
  rank_ = rank;
  children_.clear();
  wake_ = wake;
  int code = 0;
  try {
    body(rank);
  } catch (const std::exception& e) {
    fail_with(fmt::format("rank {} ended: {}", rank, e.what()));
    code = 1;
  }
  _exit(code);  // without the exit handlers of the process it was forked from
}

void Processes::run(int size, const std::function<void(int rank)>& body, const std::function<void()>& wake) {
  wake_ = wake;
  const pid_t own = getpid();
  for (int rank = 1; rank < size; ++rank) {
    const pid_t id = fork();
    if (id == 0) run_child(rank, own, body, wake);
    if (id < 0) fail_with(fmt::format("rank {} could not be started: {}", rank, std::strerror(errno)));
    if (id > 0) children_.push_back(id);
  }
  std::exception_ptr error;
  try {
    body(0);
  } catch (const std::exception& e) {
    error = std::current_exception();
    fail_with(fmt::format("rank 0 ended: {}", e.what()));
  }
  note_ended(true);
  if (error) std::rethrow_exception(error);
  if (failure_->state.load() == 2) fail_environment("comm", {.what = failure_->why});
}

}  // namespace braid::comm
