// Signals during long operations: the handler only records them; the loop polls and stops at a clean point.
#pragma once

namespace braid::sys {

// Thrown out of a wait that a recorded signal ends.
struct Interrupted {};

void catch_interrupts();  // from now on Ctrl-C is recorded instead of ending the process, unless the caller ignores it
void catch_requests_to_stop();   // Ctrl-C, SIGTERM and SIGHUP; the first and the last unless the caller ignores them
void end_at_second_interrupt();  // from now on a second signal of those ends the process with 128 and its number: a
                                 // Ctrl-C at once (but after SIGHUP), others a second later, since one stop may be
                                 // told twice
int caught_signal();             // the first since the last clear, except that others replace a Ctrl-C; 0: none
bool asked_to_stop();            // was it SIGTERM or SIGHUP?
bool interrupted();              // was it Ctrl-C?
bool take_interrupt();           // was it Ctrl-C? If so, clears it
void clear_interrupt();

}  // namespace braid::sys
