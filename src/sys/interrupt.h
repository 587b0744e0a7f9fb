// Signals while something long runs: the handler only notes them, the loop looks and stops at a clean place.
#pragma once

namespace braid::sys {

void catch_interrupts();        // from now on Ctrl-C is noted instead of ending the process
void catch_requests_to_stop();  // Ctrl-C and SIGTERM
int caught_signal();            // SIGINT or SIGTERM since the last clear; 0: none
bool interrupted();             // was it Ctrl-C?
bool take_interrupt();          // was it Ctrl-C? If so it is forgotten
void clear_interrupt();

}  // namespace braid::sys
