"""Runs Python, and every process that it starts, as on a processor without some instructions.

Usage: python scripts/hide_flags.py PREFIX,PREFIX [ARGUMENT ...]

PREFIX is how flags begin in /proc/cpuinfo, such as avx512,amx; the arguments are Python's, such as
-m pytest. Flags are hidden from detection alone: what asks the processor itself, as NumPy and the
native module do, goes on using all that there is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HIDING = Path(__file__).resolve().parents[1] / "tests" / "support" / "hidden_flags"


def main() -> None:
    """Replaces this process by one whose Python finds the module that hides flags."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    paths = (str(HIDING), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    prefixes = (sys.argv[1], os.environ.get("HIDDEN_PROCESSOR_FLAGS", ""))
    os.environ["HIDDEN_PROCESSOR_FLAGS"] = ",".join(filter(None, prefixes))
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])


if __name__ == "__main__":
    main()
