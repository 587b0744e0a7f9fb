// An environment that is another program: a line of JSON to its standard input, a line of JSON back.
//
//   {"problem": {"seed": 17, "level": 0}}    -> {"prompt": "2 + 3 ="}, or {"messages": [...], "tools": [...]}; with any
//                                               "secret", which comes back with the answer
//   {"judge": {"messages": [...], "secret": ..., "answer": "5", "cut": false}}    -> {"reward": 1}
//
// Equal seeds should give equal problems, or a run that is resumed has other ones. A program may end after a reply: it
// is started again for the next line. One that ends over a line that it has read, is silent for too long, writes what
// is not a reply or more than one line for a question has failed: it is stopped with all that it started, and started
// again for the next line.
#pragma once
#include <sys/types.h>

#include <string>

#include "environments/environment.h"

namespace braid::environments {

class Command final : public Environment {
 public:
  // Run by /bin/sh when first asked. `seconds`: for a reply, the start of the program included.
  Command(std::string command, double seconds) : command_(std::move(command)), seconds_(seconds) {}
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  ~Command() override { stop(); }

  int64_t levels() const override { return 1; }
  Problem problem(synth::Draw& draw, int64_t level) override;
  Verdict judge(const Problem& problem, const Answer& answer) override;

 private:
  struct Reply {
    nlohmann::ordered_json object{};
    std::string error{};
  };
  Reply ask(const nlohmann::ordered_json& line);
  std::string exchange(const std::string& line, std::string& reply);
  bool has_unasked() const;
  void start();
  void stop();

  std::string command_;
  double seconds_;
  pid_t child_ = -1;
  int socket_ = -1;
  std::string read_;  // after the last reply
};

}  // namespace braid::environments
