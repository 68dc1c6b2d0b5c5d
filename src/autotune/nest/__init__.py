"""The symbolic loop nest of a sketch, and the tape it is flattened into."""

from __future__ import annotations

from autotune.nest.derive import derive_nest
from autotune.nest.describe import describe, describe_tape
from autotune.nest.flattening import (
    NestTape,
    dominant_statement,
    nest_tape,
    sketch_quantities,
)
from autotune.nest.loop_nest import ELEMENT, Access, Buffer, Loop, LoopNest, Statement
from autotune.nest.tape import Tape, build_tape
from autotune.nest.tensorized import layout_conflict

__all__ = [
    "ELEMENT",
    "Access",
    "Buffer",
    "Loop",
    "LoopNest",
    "NestTape",
    "Statement",
    "Tape",
    "build_tape",
    "derive_nest",
    "describe",
    "describe_tape",
    "dominant_statement",
    "layout_conflict",
    "nest_tape",
    "sketch_quantities",
]
