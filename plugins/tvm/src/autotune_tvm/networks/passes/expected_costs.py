"""What the draft model expects forms of a network to take, without compiling them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from attrs import define, field, frozen
from tvm.ir import IRModule
from tvm_ffi import structural_hash

from autotune.errors import AutotuneError
from autotune.ir.workloads import Workload
from autotune.models.pruning import PSA
from autotune.plugins import Context
from autotune.spaces import SketchSpace
from autotune.targets import Target
from autotune_tvm.backend import TVMBackend
from autotune_tvm.importer import import_module
from autotune_tvm.networks.constants import mark_constants
from autotune_tvm.networks.graph import tensor_calls
from autotune_tvm.networks.passes.boolean_operators import boolean_operators
from autotune_tvm.networks.passes.fuse import fuse, legalize, views
from autotune_tvm.networks.passes.merge_equal import merge_equal
from autotune_tvm.networks.passes.merge_views import merge_views
from autotune_tvm.networks.passes.sink_views import sink_views

__all__ = ["AFTERWARDS", "Costs", "Passes", "Programs", "cost_key", "remembering"]

Passes = Sequence[Callable[[IRModule], tuple[IRModule, str]]]

AFTERWARDS: Passes = (
    *(merge_views, sink_views, boolean_operators),
    *(legalize, fuse, views, merge_equal),
)
"""The passes that cut a network into programs once its layouts are chosen."""

_SAMPLES = 128
"""Configurations of a program that are scored; the best of them stands for it."""


def cost_key(question: str, module: IRModule, machine: Target) -> str:
    """All that what is expected of a network depends on; the values of weights do not.

    Args:
        question: Who asks for what, with a version.
        module: The network.
        machine: What it runs on.
    """
    versions = (
        question,
        *(f"{part.name} {part.version}" for part in (SketchSpace, PSA, TVMBackend)),
        TVMBackend().compiler_version(),
    )
    graph = structural_hash(module, skip_tensor_content=True) & (2**64 - 1)
    return "; ".join((f"graph {graph:016x}", f"target {machine.fingerprint}", *versions))


def remembering(passes: Passes) -> Passes:
    """The same passes, of which none runs again on a module that it has just seen.

    The form of a network that is chosen was cut into programs to choose it. They hold the last
    modules of two forms: keep them no longer than a network is prepared.
    """
    return [lru_cache(maxsize=2)(each) for each in passes]


@define(eq=False)
class Programs:
    """What a network is cut into.

    Attributes:
        reductions: Digests of programs that reduce, by call.
        moves: Digests of the others, with their numbers of calls.
        refused: Calls of programs that cannot be imported.
        workloads: By digest.
    """

    reductions: list[str] = field(factory=list)
    moves: Counter[str] = field(factory=Counter)
    refused: int = 0
    workloads: dict[str, Workload] = field(factory=dict)

    @classmethod
    def of(cls, module: IRModule, passes: Passes = AFTERWARDS) -> Programs:
        """Those that passes make of a network of operators; the target is the current one."""
        for each in passes:
            module, _ = each(module)
        module = mark_constants(module)
        found = cls()
        imported: dict[str, Workload | None] = {}
        for name, _ in tensor_calls(module):
            if name not in imported:
                imported[name] = _imported(module[name])
            found._add(imported[name])
        return found

    def _add(self, workload: Workload | None) -> None:
        if workload is None:
            self.refused += 1
            return
        self.workloads[workload.digest] = workload
        if any(stage.reduce_axes for stage in workload.stages):
            self.reductions.append(workload.digest)
        else:
            self.moves[workload.digest] += 1


def _imported(function: object) -> Workload | None:
    try:
        return import_module(function)[0]
    except AutotuneError:
        return None


@frozen(eq=False)
class Costs:
    """What the draft model expects of programs, each scored once.

    Attributes:
        machine: What they run on.
    """

    machine: Target
    known: dict[str, float] = field(factory=dict)

    def of(self, workload: Workload) -> float:
        """One over the best score of a few configurations; infinite where there are none."""
        if workload.digest not in self.known:
            self.known[workload.digest] = self._scored(workload)
        return self.known[workload.digest]

    def _scored(self, workload: Workload) -> float:
        try:
            space = SketchSpace(workload, self.machine, TVMBackend().limits(self.machine))
        except AutotuneError:
            return np.inf
        batch = space.sample(_SAMPLES, np.random.default_rng(0))
        scores = PSA(Context(target=self.machine, workload=workload)).score(batch)
        best = float(scores.max(initial=-np.inf))
        return 1 / best if best > 0 else np.inf
