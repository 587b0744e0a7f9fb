#!/usr/bin/env bash
# Under TSan: the team of threads, and the ops that share out work in the most ways: every row of theirs on teams of 1, 2
# and 3. Prints the seconds of each program.
set -euo pipefail
cd "$(dirname "$0")/.."
export TSAN_OPTIONS=halt_on_error=1:suppressions=$PWD/tests/tsan.supp BRAID_THREADS=3 BRAID_FIXTURES=''
programs=(sys core linear attention ssd experts router)
cmake --preset tsan >/dev/null
ninja -C build/tsan --quiet "${programs[@]/%/_test}"
for name in "${programs[@]}"; do
  begin=$SECONDS
  "$(find build/tsan/src -type f -name "${name}_test")" --gtest_brief=1
  echo "$name: $((SECONDS - begin)) s"
done
