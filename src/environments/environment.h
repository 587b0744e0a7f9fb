// Environments of reinforcement learning: each poses problems, by a level of difficulty, and gives answers to them a
// reward that a program computes. Built-in ones are a table (built_in.cc); any other is a command that reads and writes
// lines of JSON (command.h). No problem of theirs is among those that evaluate models/tiny (synth/holdout.h).
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/synth/draw.h"

namespace braid::environments {

struct Problem {
  nlohmann::ordered_json messages;  // of a chat, to which the answer is the assistant's next turn
  nlohmann::ordered_json tools{};   // an array; null: none
  nlohmann::ordered_json secret{};  // what only the judge knows
};

struct Answer {
  std::string text;  // without thinking, tool calls as the model writes them
  bool cut = false;  // by the limit of tokens
};

constexpr double kRewardMax = 1e9;  // of its size: squares of rewards are added up

struct Verdict {
  double reward = 0;    // 1: right
  std::string error{};  // of the environment, not of the answer, which has no reward then; empty: none
};

class Environment {
 public:
  virtual ~Environment() = default;
  virtual int64_t levels() const = 0;  // from 0, the easiest
  // A function of `draw` and the level. Error (a failed run) where a command gives none. This and judge() may throw
  // sys::Interrupted.
  virtual Problem problem(synth::Draw& draw, int64_t level) = 0;
  virtual Verdict judge(const Problem& problem, const Answer& answer) = 0;
};

// Names of the built-in ones.
std::vector<std::string> names();

// A built-in environment by its name, or `command:` and a line for /bin/sh, of which no reply takes longer than
// `seconds`. Error, naming `where`, for any other name.
std::unique_ptr<Environment> make(const std::string& name, double seconds, const std::string& where);

}  // namespace braid::environments
