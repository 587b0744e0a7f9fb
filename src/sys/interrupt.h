// Ctrl-C while something long runs: the handler only notes it, the loop looks and stops at a clean place.
#pragma once

namespace braid::sys {

void catch_interrupts();  // from now on Ctrl-C is noted instead of ending the process
bool interrupted();       // was there one since the last clear?
void clear_interrupt();

}  // namespace braid::sys
