#!/bin/sh
# Names what this machine lacks for building autotune, with the command that installs it.
# Debian and Ubuntu split Python into packages: a python3 without venv or headers is common there.
# Usage: scripts/check_system.sh [PYTHON]
set -u
python=${1:-python3}

if ! command -v "$python" >/dev/null 2>&1; then
    echo "error: $python was not found. Install Python 3.10 or later:" >&2
    echo "    sudo apt-get install python3 python3-venv python3-dev g++" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "error: $("$python" --version) is too old: autotune needs Python 3.10 or later." >&2
    echo "    Name another one with: make PYTHON=/path/to/python3" >&2
    exit 1
fi

missing=
"$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3-venv"
"$python" -c '
import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
' || missing="$missing python3-dev"
if [ -n "${CXX:-}" ]; then
    # CXX may hold a launcher or options as well: "ccache g++".
    command -v "${CXX%% *}" >/dev/null 2>&1 || missing="$missing g++"
else
    command -v g++ >/dev/null 2>&1 || command -v c++ >/dev/null 2>&1 ||
        command -v clang++ >/dev/null 2>&1 || missing="$missing g++"
fi
if [ -n "$missing" ]; then
    echo "error: this machine lacks:$missing. On Debian or Ubuntu:" >&2
    echo "    sudo apt-get install$missing" >&2
    exit 1
fi
