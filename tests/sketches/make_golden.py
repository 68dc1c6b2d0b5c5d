"""Writes ``sketch.json``: ``python make_golden.py``.

The file is what databases hold: when it changes, old records have to stay readable.
"""

from __future__ import annotations

import json
from pathlib import Path

from autotune.ir.workloads import dense
from autotune.sketches import Sketch
from autotune.sketches.steps import STEP_TYPES
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import preset


def golden_sketch() -> Sketch:
    """A sketch with padded extents, packed operands and a fused epilogue."""
    limits = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")
    space = SketchSpace(dense(m=37, n=48, k=20), preset("skylake-avx512-4core"), limits)
    return next(sketch for sketch in space.sketches() if sketch.name == "packed-root-rows")


if __name__ == "__main__":
    sketch = golden_sketch()
    data = {
        "digest": sketch.digest,
        "spelling": sketch.spelling,
        "sketch": sketch.to_json(),
    }
    path = Path(__file__).parent / "sketch.json"
    path.write_text(json.dumps(data, indent=1) + "\n")
