from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autotune.errors import InvalidValueError
from autotune.ir.expressions import const, less, maximum, select, var
from autotune.ir.workloads import Workload, gemm
from autotune.nest import build_tape, describe_tape, nest_tape
from autotune.spaces import SketchSpace

SpaceOf = Callable[[Workload], SketchSpace]
x, y = var("x"), var("y")

TAPE = build_tape(
    ("x", "y"),
    {
        "C/loop/0": x * y,
        "C/region/A/0": maximum(x * y, 5) // (x * y),
        "C/region/A/1": const(7),
        "C/region/A/2": const(7),
        "C/lanes": select(less(1, x), y // 2, maximum(x, y)),
        "buffer/C": x * y,
        "shared_bytes": const(0),
    },
)
SYMBOLIC = """\
inputs
  x
  y
shared
  %1 = x * y
C
  loop/0 = %1
  region/A/0 = max(%1, 5) // %1
  region/A/1..2 = 7
  lanes = select(1 < x, y // 2, max(x, y))
memory
  buffer/C = %1
  shared_bytes = 0"""


def test_shared_expressions_are_named() -> None:
    lines = describe_tape(TAPE).replace("max(5, %1)", "max(%1, 5)").splitlines()
    assert lines == SYMBOLIC.splitlines()


def test_with_a_configuration_every_line_has_its_value() -> None:
    lines = describe_tape(TAPE, {"x": 3, "y": 8}).splitlines()
    assert "  x = 3" in lines and "  %1 = x * y = 24" in lines and "  loop/0 = %1 = 24" in lines
    assert "  region/A/1..2 = 7" in lines
    assert "  lanes = select(1 < x, y // 2, max(x, y)) = 4" in lines


def test_a_value_is_missing() -> None:
    with pytest.raises(InvalidValueError, match="no value for the tape's inputs y"):
        describe_tape(TAPE, {"x": 3})


def test_every_output_of_a_sketch_is_listed_with_its_value(space_of: SpaceOf) -> None:
    for candidate in space_of(gemm(m=37, n=53, k=29)).sample(7, np.random.default_rng(0)):
        tape = nest_tape(candidate.sketch).tape
        row = tape.evaluate(np.array([candidate.values], dtype=np.int64))[0].tolist()
        found: dict[str, int] = {}
        owner = ""
        for line in describe_tape(tape, candidate.config).splitlines():
            if not line.startswith("  "):
                owner = "" if line in ("inputs", "shared", "memory") else f"{line}/"
                continue
            name, *_, value = line.strip().split(" = ")
            stem, _, depths = name.rpartition("/")
            first, dots, last = depths.partition("..")
            names = [name]
            if dots:
                names = [f"{stem}/{depth}" for depth in range(int(first), int(last) + 1)]
            found.update({owner + each: int(value) for each in names})
        expected = dict(zip(tape.output_index, row, strict=True))
        assert {name: found[name] for name in expected} == expected
