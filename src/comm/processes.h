// Ranks as processes that this one forks: rank 0 is the caller. The first failure of any of them is written to memory
// that they share, so that the others end, too, and the caller throws it.
#pragma once
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace braid::comm {

class Processes {
 public:
  Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes();

  // Runs body(rank) in `size` processes and waits for all. Call it where no other thread runs. `wake` is called after a
  // failure, for those that sleep. Error: the first failure.
  void run(int size, const std::function<void(int rank)>& body, const std::function<void()>& wake);

  // By a rank that waits. Error when another failed; rank 0 finds out whether one died.
  void look();

 private:
  struct Failure;
  [[noreturn]] void run_child(int rank, pid_t parent, const std::function<void(int rank)>& body,
                              const std::function<void()>& wake);
  void note_ended(bool wait);
  void fail_with(const std::string& why);

  Failure* failure_;  // shared
  int rank_ = 0;
  std::vector<pid_t> children_;  // of rank 0: of ranks 1, 2, ...; 0 when it was waited for
  std::function<void()> wake_;
};

}  // namespace braid::comm
