#include "apps/cli.h"

int main(int argc, char** argv) { return braid::apps::run_main(argc, argv); }
