from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from python_processes import run_python

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.expressions import const, var
from autotune.ir.workloads import Workload, dense, gemm
from autotune.sketches import (
    STEP_TYPES,
    AtLeast,
    AtMost,
    Constraint,
    Factor,
    OneOf,
    ProductEquals,
    Sketch,
    Unroll,
)
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import preset

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "sketch.json").read_text())
LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")
WORKLOAD = dense(m=37, n=48, k=20)


def sketches(workload: Workload = WORKLOAD) -> tuple[Sketch, ...]:
    return SketchSpace(workload, preset("skylake-avx512-4core"), LIMITS).sketches()


def test_the_golden_file_is_still_what_is_made() -> None:
    made = next(sketch for sketch in sketches() if sketch.name == GOLDEN["sketch"]["name"])
    assert made.to_json() == GOLDEN["sketch"]
    assert (made.digest, made.spelling) == (GOLDEN["digest"], GOLDEN["spelling"])


def test_the_golden_file_is_still_understood() -> None:
    sketch = Sketch.from_json(GOLDEN["sketch"], WORKLOAD)
    assert (sketch.digest, sketch.spelling) == (GOLDEN["digest"], GOLDEN["spelling"])
    assert sketch.to_json() == GOLDEN["sketch"]
    assert sketch in sketches()


def test_json_round_trip() -> None:
    for sketch in sketches():
        data = json.loads(json.dumps(sketch.to_json()))
        restored = Sketch.from_json(data, WORKLOAD)
        assert restored == sketch and restored.digest == sketch.digest
        assert restored.param_names == tuple(param.name for param in sketch.params)


def test_sketches_differ_in_their_digests() -> None:
    digests = [s.digest for s in (*sketches(), *sketches(gemm(m=37, n=48, k=20)))]
    assert len(set(digests)) == len(digests)


def test_the_digest_says_what_program_a_configuration_means() -> None:
    sketch = sketches()[0]
    same = attrs.evolve(sketch, name="other", constraints=())
    assert same.digest == sketch.digest
    more = attrs.evolve(sketch, steps=(*sketch.steps, Unroll("Y", ())))
    assert more.digest != sketch.digest
    reordered = attrs.evolve(sketch, params=sketch.params[::-1])
    assert reordered.digest != sketch.digest
    elsewhere = attrs.evolve(sketch, workload=dense(m=37, n=48, k=21))
    assert elsewhere.digest != sketch.digest


@pytest.mark.parametrize("key", ["name", "params", "constraints", "steps"])
@pytest.mark.parametrize("value", [None, 3, ["x"]], ids=str)
def test_malformed_json_is_refused(key: str, value: Any) -> None:
    missing = {name: item for name, item in GOLDEN["sketch"].items() if name != key}
    with pytest.raises(InvalidValueError, match="not a sketch"):
        Sketch.from_json(missing, WORKLOAD)
    if key != "name":
        with pytest.raises(InvalidValueError):
            Sketch.from_json({**GOLDEN["sketch"], key: value}, WORKLOAD)


@pytest.mark.parametrize(
    "constraint",
    [
        ProductEquals(("a", "z"), const(4)),
        ProductEquals(("a",), var("z")),
        AtMost(var("a") * var("z"), 3, "x"),
        AtLeast(var("z"), 3, "x"),
        OneOf(var("z") + 1, (3,), "x"),
    ],
    ids=repr,
)
def test_constraints_are_about_parameters(constraint: Constraint) -> None:
    with pytest.raises(UnknownNameError, match="a constraint of sketch 'made' 'z'; available: a"):
        Sketch("made", WORKLOAD, (Factor("a"),), (constraint,), ())


_PRINT_DIGESTS = """
import json
import numpy as np
from autotune.nest import nest_tape
from autotune.sketches import STEP_TYPES
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import preset
from autotune.ir.workloads import conv2d, softmax
limits = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")
for workload in (conv2d(h=9, w=9, ci=4, co=40, pad=1, bias=1, relu=1), softmax(m=8, n=33)):
    space = SketchSpace(workload, preset("skylake-avx512-4core"), limits)
    print(workload.digest, space.count())
    for sketch in space.sketches():
        print(sketch.digest, nest_tape(sketch).tape.digest, json.dumps(sketch.to_json()))
    rng = np.random.default_rng(0)
    sample = space.sample(30, rng)
    near = space.neighbours(sample, rng)
    print(*(candidate.digest for batch in (sample, near) for candidate in batch))
"""


def test_every_process_gets_the_same_digests_and_candidates() -> None:
    outputs = [run_python("-c", _PRINT_DIGESTS, PYTHONHASHSEED=seed) for seed in ("1", "2", "3")]
    assert outputs[0] == outputs[1] == outputs[2]
    assert len(outputs[0].splitlines()) > 6
