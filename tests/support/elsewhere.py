"""For scripts whose packages another Python may have."""
import os
import sys
from pathlib import Path


def restart_or_skip(error, variable, packages):
    """After an ImportError: the script again with the Python that `variable` names, or its end with the reason."""
    other = os.environ.get(variable)
    if other and os.path.realpath(sys.prefix) != os.path.realpath(Path(other).parent.parent):
        os.execv(other, [other, *sys.argv])
    # `./run test` lists lines that begin so: no skip is silently green.
    print(f"SKIPPED {Path(sys.argv[0]).stem}: {error}; {variable} names a Python with {packages}")
    sys.exit(0)
