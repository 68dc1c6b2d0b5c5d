"""Lets the studies import what the benchmarks have: both are scripts and no packages."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
