// Numbers of rows up to which a product on a CPU works in one way and beyond which in another. The ways of a class give
// the same bits (math_test, linear_test), so a threshold changes the time alone. The defaults are measured; a profile
// (sys/profile.h), which `braid bench --tune` writes, replaces them on one machine, BRAID_OP_<NAME>=N in one process.
// Sizes that are part of a class, as depths of blocks and spans of keys, are no thresholds.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace braid {

struct Thresholds {
  // math/panel.h, weights read in place: up to so many rows w streams by, a column or a few at a time over the whole
  // depth; for more in blocks that stay in L2. Kernels stream two rows at most.
  int64_t panel_stream_rows = 2;
  // math/panel.h: up to so many rows blocks of 48 rows of w, so that the next one, too, stays in L2; for more 144, so
  // that a row of x, which comes from L3, is reused often.
  int64_t panel_few_rows = 64;
  // linear_fwd on panels: up to so many rows tasks of 48 rows of w, which balance better; for more 144, as one stream.
  int64_t panel_task_rows = 4;
  // math/codes_a8.h: up to so many rows codes are read in place; for more they are unpacked into strips. No format
  // reads more than four in place (Codes::few_rows).
  int64_t codes_few_rows = 4;
  // linear_fwd in class codes_a8: up to so many rows two long tasks a thread, which keep what was prefetched; for more
  // tasks of 128 rows of w.
  int64_t codes_task_rows = 4;
};

struct Threshold {
  const char* name;
  int64_t Thresholds::*value;
  int64_t most;  // from 0 on; more would change nothing
  const char* below;
  const char* above;
};
std::span<const Threshold> threshold_table();

// The defaults with the choices named for them. Error naming `where` they are from and the choice for what is not a
// number in its range; names of others are skipped.
Thresholds thresholds_of(const std::map<std::string, std::string>& choices, Thresholds defaults = {},
                         const std::string& where = "BRAID_OP");

// Of this process: the profile, then BRAID_OP_<NAME>. The first call reads them.
const Thresholds& thresholds();

}  // namespace braid
