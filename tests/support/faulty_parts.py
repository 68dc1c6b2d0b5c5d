"""Parts that raise what nobody catches, or return what nobody expects, for tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from command_lines import ScriptedMeasurer

from autotune.ir.workloads import Workload
from autotune.measure.measurer import Collecting
from autotune.plugins.importer import Importer
from autotune.sketches import CandidateBatch
from autotune.spaces import ScheduleLimits, SpaceContext
from autotune.store.records import Outcome
from autotune.targets import Target
from autotune.testing.reference_backend import ReferenceBackend
from autotune.testing.toy_space import ToySpace


class Bang(BaseException):
    """What no ``except Exception`` catches."""


class RaisingSpace(ToySpace):
    def __init__(self, context: SpaceContext) -> None:
        super().__init__(8)

    def sample(self, n: int, rng: np.random.Generator) -> CandidateBatch:
        raise Bang("sample")


class VerboseSpace(RaisingSpace):
    def sample(self, n: int, rng: np.random.Generator) -> CandidateBatch:
        raise Bang("bang " * 10_000)


class WordySpace(RaisingSpace):
    def count(self) -> Any:
        return "many"


class LeavingBackend(ReferenceBackend):
    def limits(self, target: Target) -> ScheduleLimits:
        raise SystemExit(0)


class NamelessBackend(ReferenceBackend):
    def compiler_version(self) -> Any:
        return None


class RaisingMeasurer(ScriptedMeasurer):
    def collect(self, collecting: Collecting) -> list[Outcome]:
        raise Bang("collect")


class CountingMeasurer(ScriptedMeasurer):
    def collect(self, collecting: Collecting) -> Any:
        return [1]


class RaisingReader(Importer):
    def read(self, program: object) -> list[Workload]:
        raise Bang("read")


class CountingReader(Importer):
    def read(self, program: object) -> Any:
        return 5


class EndingReader(Importer):
    def read(self, program: object) -> Sequence[Any]:  # type: ignore[override]
        os._exit(0)
