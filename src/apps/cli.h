// The command line: one table of subcommands, each in a file of its own that declares options and returns what to run.
// Every option is also an environment variable, BRAID_<LONG_NAME>; the flag wins. Only apps/ reads argv, prints for
// people, or ends the process. CLI11 stays inside cli.cc (it costs four seconds to compile).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace braid::apps {

// Options of one subcommand. `names` lists the spellings, short first, and may say what the value is: "-n,--tokens",
// "-f,--file FILE". The bound value holds the default, which the help page shows; numbers and choices are checked.
class Cli {
 public:
  struct State;
  explicit Cli(State& state) : state_(&state) {}
  void flag(const std::string& names, bool& value, const std::string& help);
  void option(const std::string& names, int64_t& value, const std::string& help);
  void option(const std::string& names, double& value, const std::string& help);
  void option(const std::string& names, std::string& value, const std::string& help);
  void option(const std::string& names, std::vector<int64_t>& value, const std::string& help);  // 1,2,3
  void choice(const std::string& names, std::string& value, const std::vector<std::string>& among,
              const std::string& help);
  void positional(const std::string& name, std::string& value, const std::string& help, bool required = true);
  void rest(const std::string& name, std::vector<std::string>& values, const std::string& help);
  // The default of the option that was declared last, where it is not the value of its variable.
  void says(const std::string& initial);
  // Options declared from here on are rare: --help lists their names alone, the man page describes them.
  void rare(bool on = true);
  // A word of what the command prints, below its options.
  void prints(const std::string& word, const std::string& meaning);
  // After parsing: was the option (long name, no dashes) set by flag or environment?
  bool given(const std::string& name) const;
  // Of every option, in the order of declaration: its long name with its dashes, and its text; empty where not given.
  std::vector<std::pair<std::string, std::string>> words() const;

 private:
  State* state_;
};

using Action = std::function<int()>;  // returns the exit code; may throw Error

struct Command {
  const char* name;  // one word, or two: "data synth"
  const char* summary;
  Action (*setup)(Cli& cli);
  const char* page;  // docs/<page>.md, which tells more
};

// The first word of a command of two; empty for the others.
std::string group_of(const Command& command);
bool names_group(const std::string& word);

extern const Command kCommands[];
extern const int kCommandCount;

// What commands of two words with one first word have in common: a line of `braid --help`. Others have a line each.
struct Group {
  const char* name;
  const char* summary;
};
extern const Group kGroups[];
extern const int kGroupCount;

// Parses, runs, and turns every Error into its one line and its exit code: 0, 1 bad input or environment, 2 a run that
// failed, 128 + N when it was stopped by signal N: 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.
int run_main(int argc, char** argv);

}  // namespace braid::apps
