// The program: everything it does is in the library, so that tests and the C API can call it.
#include "apps/cli.h"

int main(int argc, char** argv) { return braid::apps::run_main(argc, argv); }
