// Signals while something long runs: the handler only notes them, the loop looks and stops at a clean place.
#pragma once

namespace braid::sys {

void catch_interrupts();        // from now on Ctrl-C is noted instead of ending the process
void catch_requests_to_stop();  // Ctrl-C, SIGTERM, and SIGHUP unless the caller ignores it
int caught_signal();    // the first of them since the last clear, where a Ctrl-C gives way to the others; 0: none
bool asked_to_stop();   // was it SIGTERM or SIGHUP?
bool interrupted();     // was it Ctrl-C?
bool take_interrupt();  // was it Ctrl-C? If so it is forgotten
void clear_interrupt();

}  // namespace braid::sys
