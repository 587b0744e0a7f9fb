// Version and build of this binary: printed by --version and stored with every benchmark.
#pragma once
#include <string>

namespace braid::apps {

struct Build {
  const char* version;   // "0.1.0"
  const char* commit;    // short hash, or "unknown" outside a git checkout
  const char* compiler;  // "g++ 12.2.0"
  bool cuda;             // the CUDA variants are in
};
Build build();

std::string version_text();  // three lines: version and build, CPU class, backends

}  // namespace braid::apps
