// The profile: measured choices that override defaults, from a file (sys/env.h). One that `braid bench --tune` wrote
// has a line `machine = ...` with what it was measured on, and counts only there: another CPU, class, number of cores
// or version of Braid would make a default worse, not better. Lines written by hand without it count everywhere.
#pragma once
#include <map>
#include <string>

namespace braid::sys {

// The file that BRAID_PROFILE names, or the one in the default location, whether or not it exists; "" for none.
std::string profile_path();
// Its lines, that of the machine included. Nothing where there is no such file. Error for what is not a profile.
std::map<std::string, std::string> read_profile();
// Error where BRAID_PROFILE names a file that is missing, which only what writes one may do.
void need_named_profile();

// Of this machine under a cap of its instructions (BRAID_CPU): "AMD EPYC, avx512, 2 cores, braid 0.1.0".
std::string machine_line(const std::string& cpu_cap);
// Takes the line of the machine out of the choices. If it is another one's, the others go, too.
void keep_if_of(const std::string& machine, std::map<std::string, std::string>& choices);

// One line that says why the profile is ignored here; "" where it is not.
std::string profile_misfit();

}  // namespace braid::sys
