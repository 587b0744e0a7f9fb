// Standard input, output and error.
#pragma once

namespace braid::sys {

// A closed one would give its number to the first file that is opened, which would then take the output. From now on
// writing to it fails instead. For the beginning of a program.
void occupy_standard_streams();

}  // namespace braid::sys
