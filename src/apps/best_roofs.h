// The roofs that a measurement is compared with: those of the CPU's class where the table knows this machine
// (sys/best_known.h), otherwise the best that this machine has shown, kept in $XDG_CACHE_HOME/braid/roofs.json
// (~/.cache/braid/roofs.json).
#pragma once
#include "sys/roofs.h"

namespace braid::apps {

struct BestRoofs {
  sys::Roofs roofs;      // zeros: nothing is known yet
  bool of_class = true;  // from the table
};

// Reads the file at the first call for so many threads; the result does not change after.
const BestRoofs& best_roofs(int threads);

// Keeps the higher of each roof and what the file holds, for machines that the table lacks. A file that cannot be
// written is left as it is.
void remember_roofs(const sys::Roofs& measured);

// Neither far below nor, for a class, above what is known.
bool off(double measured, double best, bool of_class);

}  // namespace braid::apps
