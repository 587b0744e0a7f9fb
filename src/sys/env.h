// Environment variables, read once at start and typed. Commands name theirs in the option tables (apps/cli.h); these
// concern the whole process.
//   BRAID_CPU=avx2|avx512|amx       caps the instructions used (sys/machine.h)
//   BRAID_THREADS=n                 size of the compute team
//   BRAID_VERBOSE=dispatch          prints which variant of an op was chosen, and why the others refused
//   BRAID_OP_<NAME>=<row>           forces one variant of one op (core/op.h)
//   BRAID_TINY=<folder>             the model that `tiny` names (io/model_path.h)
//   BRAID_POISON=1                  fills outputs with NaN before every op
//   BRAID_PROFILE=<file>            measured choices that override the default rows of ops; empty: none. If unset, the
//                                   file braid/profile in $XDG_CONFIG_HOME, else in ~/.config, if it exists
#pragma once
#include <map>
#include <string>
#include <string_view>

namespace braid::sys {

struct Env {
  std::string cpu;
  int threads = 0;  // 0: one per core
  bool verbose_dispatch = false;
  bool poison = false;
  std::map<std::string, std::string> forced_rows;   // op name in lower case -> row name
  std::map<std::string, std::string> profile_rows;  // the same from the profile
};

const Env& env();

// Lines `op_name = row_name`; `#` starts a comment. Anything else is an Error with `where` and the line.
std::map<std::string, std::string> parse_profile(std::string_view where, std::string_view text);

}  // namespace braid::sys
