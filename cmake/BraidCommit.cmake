# cmake -DOUT=<file> -DROOT=<checkout> -P BraidCommit.cmake: writes the header that names the commit.
execute_process(COMMAND git -C ${ROOT} rev-parse --short HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
file(WRITE ${OUT} "// Generated: the commit this was built from.\n#pragma once\n#define BRAID_COMMIT \"${commit}\"\n")
