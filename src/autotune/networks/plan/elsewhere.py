"""Networks for processors that this process does not run on: they are built, and saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attrs import evolve

from autotune.backends import BuildFailed
from autotune.backends.native.exports import machine_of
from autotune.backends.native.machine_code import compile_library, compile_text, load_object
from autotune.errors import UnsupportedTarget
from autotune.networks.frontend import CompiledNetwork
from autotune.networks.graph import Graph
from autotune.networks.plan.cpu_network import Save
from autotune.networks.plan.loading import BuiltPlan, packed_constants
from autotune.networks.plan.native_program import NativeProgram
from autotune.networks.plan.plan import Plan
from autotune.networks.plan.planning import plan_of
from autotune.sketches import Candidate
from autotune.targets import Target, detect_cpu
from autotune.targets.processors import missing_features

__all__ = ["ElsewhereNetwork", "compile_elsewhere", "lacks_here", "printed_for"]

_HERE = "x86_64-unknown-linux-gnu"


class ElsewhereNetwork(CompiledNetwork):
    """A network as machine code for another processor.

    Args:
        built: The network.
        lacks: Why it cannot be called here, in one line.
        save: Writes what runs there.
    """

    saves_state = True

    def __init__(self, built: BuiltPlan, lacks: str, save: Save) -> None:
        self._built = built
        self._lacks = lacks
        self._save = save

    @property
    def lacks(self) -> str:
        """Why it cannot be called here."""
        return self._lacks

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Raises UnsupportedTarget: it runs elsewhere."""
        raise UnsupportedTarget(self._lacks)

    def save(self, path: Path | str) -> tuple[str, ...]:
        """Write what runs elsewhere.

        Raises:
            InvalidValueError: the file cannot be written.
            BuildFailed: there is no C compiler for that processor.
        """
        return self._save(self._built, Path(path))

    def time_calls(self, inputs: Sequence[Any], repeats: int) -> tuple[float, ...]:
        """Raises UnsupportedTarget: it runs elsewhere."""
        raise UnsupportedTarget(self._lacks)

    def profile(self, inputs: Sequence[Any]) -> dict[str, float]:
        """Raises UnsupportedTarget: it runs elsewhere."""
        raise UnsupportedTarget(self._lacks)


def lacks_here(target: Target) -> str:
    """Why a network for a CPU does not run in this process, in one line; "" where it does.

    Raises:
        UnsupportedTarget: it is no CPU of x86-64 or AArch64.
    """
    machine = machine_of(target)
    if not machine.is_x86:
        return f"a network for {machine.name} runs on {machine.architecture}, which this is not"
    lacking = missing_features(target.features, detect_cpu().features)
    if lacking:
        return f"a network for {machine.name} needs {', '.join(lacking)}, which this machine lacks"
    return ""


def printed_for(target: Target) -> Target:
    """The CPU of x86-64 whose schedules a CPU is given: one with the same registers and caches.

    Programs are printed alike for all architectures, but for instructions by name.

    Raises:
        UnsupportedTarget: it is no CPU of x86-64 or AArch64.
    """
    if machine_of(target).is_x86:
        return target
    return evolve(target, processor="x86-64", features=())


def compile_elsewhere(
    graph: Graph,
    candidates: Mapping[str, Candidate | None],
    target: Target,
    threads: int,
    save: Save,
    names: Mapping[str, str] = MappingProxyType({}),
) -> ElsewhereNetwork:
    """Compile a graph for a CPU that may be another one than that of this machine.

    Args:
        graph: The network.
        candidates: As of :func:`~autotune.networks.plan.cpu_network.compile_network`.
        target: The CPU, of x86-64 or AArch64.
        threads: How many the network uses.
        save: Writes what runs there.
        names: Of the workloads' tasks, by digest.

    Raises:
        UnsupportedTarget: it is neither.
        UnsupportedWorkload: a workload has an element type that is not known.
        InvalidSchedule: a schedule is of another workload, or cannot be printed; names the task.
        BuildFailed: LLVM rejects a program; names the task.
    """
    plan = plan_of(graph, candidates, printed_for(target), threads, names)
    objects = {}
    for key, program in plan.programs.items():
        try:
            objects[key] = _object(program, target)
        except BuildFailed as error:
            raise BuildFailed(f"task {plan.tasks[key]!r}: {error}") from error
    constants = packed_constants(plan, _packers(plan))
    without = tuple(evolve(it, array=None) for it in plan.constants)
    built = BuiltPlan(evolve(plan, constants=without), objects, constants)
    return ElsewhereNetwork(built, lacks_here(target), save)


def _object(program: NativeProgram, target: Target) -> bytes:
    machine = machine_of(target)
    if machine.is_x86:
        return compile_text(program.text, target)
    entries = program.layout.entries
    return compile_library([program.text], machine.triple, machine.tuned_for, entries)


def _packers(plan: Plan[NativeProgram]) -> dict[str, Any]:
    """Packers of constants, as machine code of this process without the rest of each program."""
    entries: dict[str, set[str]] = {}
    for it in plan.packings:
        entries.setdefault(it.program, set()).add(it.entry)
    return {
        key: load_object(
            compile_library([plan.programs[key].text], _HERE, "x86-64", wanted), wanted
        )
        for key, wanted in entries.items()
    }
