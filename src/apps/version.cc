// commit.h is generated in the build folder, again whenever HEAD moves (CMakeLists.txt here).
#include "apps/version.h"

#include <fmt/format.h>

#include "apps/commit.h"
#include "core/has_cuda.h"
#include "sys/machine.h"

namespace braid::apps {

#ifdef __clang__
#define BRAID_COMPILER "clang " __clang_version__
#else
#define BRAID_COMPILER "g++ " __VERSION__
#endif

Build build() { return {BRAID_VERSION, BRAID_COMMIT, BRAID_COMPILER, kHasCuda}; }

std::string version_text() {
  const Build b = build();
  const sys::Machine& m = sys::machine();
  return fmt::format("braid {} (commit {}, {})\ncpu       {}, class {}\nbackends  cpu yes, cuda {}\n", b.version,
                     b.commit, b.compiler, m.cpu_name, sys::name_of(m.cpu_class), b.cuda ? "yes" : "no");
}

}  // namespace braid::apps
