// Human-readable numbers: three significant digits and a unit. Files and memory in powers of 1024, counts of
// parameters, tokens and operations in powers of 1000.
#pragma once
#include <cstdint>
#include <string>

namespace braid::report {

std::string bytes(int64_t n);                                  // "512 B", "7.45 GiB"
std::string count(double n);                                   // "640", "124 M", "31.6 B": parameters, tokens
std::string counted(int64_t n, const char* noun);              // "1 thread", "2 threads"
std::string rate(double n, double seconds, const char* unit);  // "41.2 tokens/s", "5.10 G op/s"; "-" for no time
std::string duration(double seconds);  // "850 us", "12.3 ms", "4.20 s", "3 min 05 s", "2 h 07 min"

}  // namespace braid::report
