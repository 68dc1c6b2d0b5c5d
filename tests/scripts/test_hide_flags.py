"""Processors with fewer instructions than this one: what processes find of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from autotune.targets import detect_cpu

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "hide_flags.py"


def output(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True)
    return done.stdout


def test_flags_are_hidden_from_all_processes() -> None:
    here = set(detect_cpu().features)
    asking = "from autotune.targets import detect_cpu; print(*detect_cpu().features)"
    starting = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {asking!r}])"
    found = output(str(SCRIPT), "sse4_,avx512", "-c", starting).split()
    hidden = {it for it in here if it.startswith(("sse4.", "avx512"))}
    assert hidden and set(found) == here - hidden


def test_without_flags_it_says_how_it_is_used() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 1 and "Usage: python scripts/hide_flags.py" in done.stderr
