"""Runs a command with the sanitizers' runtime loaded, for a native module built with them.

    python scripts/run_sanitized.py python -m pytest tests/fuzz

The module is built with ``-C cmake.define.AUTOTUNE_SANITIZE=ON``. Python itself is not, so the
runtime has to be in the process before it; the C++ library too, whose exceptions it intercepts.
Leaks are not looked for: the interpreter keeps much to its end.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

LIBRARIES = ("libasan.so", "libubsan.so", "libstdc++.so")


def runtime_libraries(compiler: list[str]) -> list[str]:
    """Paths of the runtime libraries of ``compiler``, which built the module."""
    found = []
    for name in LIBRARIES:
        command = [*compiler, f"-print-file-name={name}"]
        path = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        if not os.path.isabs(path):
            raise SystemExit(f"{shlex.join(compiler)} has no {name}: install its sanitizers")
        found.append(os.path.realpath(path))
    return found


def main() -> None:
    """Becomes the command."""
    command = sys.argv[1:]
    if not command:
        raise SystemExit(f"usage: {sys.argv[0]} COMMAND [ARGUMENT ...]")
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    os.environ["LD_PRELOAD"] = os.pathsep.join(runtime_libraries(compiler))
    os.environ["ASAN_OPTIONS"] = "detect_leaks=0:abort_on_error=1"
    os.environ["UBSAN_OPTIONS"] = "print_stacktrace=1:abort_on_error=1"
    # Memory of small objects from malloc, where it is watched.
    os.environ["PYTHONMALLOC"] = "malloc"
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
