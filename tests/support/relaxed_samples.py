"""Sketches of all built-in workloads with configurations, and points between these."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.nest import Tape, nest_tape
from autotune.nest.relaxed import RelaxedTape, Smoothing, param_bounds
from autotune.sketches import STEP_TYPES, Sketch
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import Target, preset

Values = NDArray[np.float64]

WORKLOADS = (
    gemm(m=64, n=96, k=32),
    gemm(m=37, n=53, k=29),
    batch_matmul(b=2, m=16, n=24, k=12),
    dense(m=13, n=31, k=17),
    conv2d(h=9, w=9, ci=4, co=20, pad=1, stride=2, bias=1, relu=1),
    depthwise_conv2d(h=12, w=12, c=8, pad=1),
    softmax(m=16, n=36),
    elementwise(m=7, n=48),
)
TARGETS = ("skylake-avx512-2core", "a100")


@frozen(eq=False, slots=False)
class Sample:
    """A sketch of a space with some of its configurations.

    Tests are collected by names, so that tape and configurations are made when they are needed.

    Attributes:
        name: Of workload and sketch, for test ids.
        sketch: The sketch.
        draw: Configurations of every sketch of the space, by the name of the sketch.
    """

    name: str
    sketch: Sketch
    draw: Callable[[], dict[str, NDArray[np.int64]]]

    @cached_property
    def tape(self) -> Tape:
        """The sketch's tape."""
        return nest_tape(self.sketch).tape

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Configurations drawn from the space, ``[n, params]``."""
        return self.draw()[self.sketch.name]

    def relaxed(self, smoothing: Smoothing | None = None, margin: float = 0.0) -> RelaxedTape:
        """The relaxed tape, with bounds wider by ``margin``, relatively; at 0 by it."""
        bounds = {
            name: (low - margin * max(low, 1), high + margin * max(high, 1))
            for name, (low, high) in param_bounds(self.sketch).items()
        }
        return RelaxedTape(self.tape, "relaxed", bounds, smoothing)

    def exact(self) -> RelaxedTape:
        """The exact tape."""
        return RelaxedTape(self.tape, "exact")

    def between(self, n: int, rng: np.random.Generator) -> Values:
        """``n`` points between configurations, geometrically, so that products are kept.

        Parameters that may be 0 go straight from one value to the other.
        """
        first, second = (self.rows[rng.integers(len(self.rows), size=n)] for _ in range(2))
        share = rng.uniform(0.02, 0.98, (n, 1))
        straight = (1 - share) * first + share * second
        positive = (self.rows > 0).all(axis=0)
        powers = np.exp2(
            (1 - share) * np.log2(np.maximum(first, 1)) + share * np.log2(np.maximum(second, 1))
        )
        # Rounding may lead beyond the bounds, where hard forms have other derivatives.
        low, high = np.array(list(param_bounds(self.sketch).values())).T
        return np.clip(np.where(positive, powers, straight), low, high)

    def moving(self) -> NDArray[np.bool_]:
        """Mark parameters that an instruction or output reads, not fixed ones, ``[params]``."""
        read = {slot for _, *operands in self.tape.instructions for slot in operands}
        read |= {slot for _, slot in self.tape.outputs}
        bounds = param_bounds(self.sketch)
        return np.array(
            [
                slot in read and bounds[name][0] < bounds[name][1]
                for slot, name in enumerate(self.tape.inputs)
            ]
        )

    def jacobian(self, tape: RelaxedTape, point: Values) -> Values:
        """Derivatives ``[outputs, params]`` at one point."""
        count = len(self.tape.outputs)
        return tape.vjp(np.tile(point, (count, 1)), np.eye(count))


@cache
def samples() -> tuple[Sample, ...]:
    """A for every sketch of every workload and target here."""
    return tuple(
        sample
        for target in TARGETS
        for workload in WORKLOADS
        for sample in samples_of(workload, preset(target))
    )


def samples_of(workload: Workload, target: Target) -> list[Sample]:
    """A for every sketch of the workload's space."""
    limits = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")
    space = SketchSpace(workload, target, limits)

    @cache
    def draw() -> dict[str, NDArray[np.int64]]:
        batch = space.sample(24 * len(space.sketches()), np.random.default_rng(7))
        return {sketch.name: rows for sketch, rows in batch.parts}

    shape = "x".join(str(value) for value in workload.parameters.values())
    return [
        Sample(f"{target.kind}-{workload.name}-{shape}-{sketch.name}", sketch, draw)
        for sketch in space.sketches()
    ]
