"""From an imported network to a module of compiled functions, pass by pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any

from tvm.ir import IRModule

from autotune.backends import BuildFailed
from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError
from autotune.networks import PassReport
from autotune.networks.kept_speedups import KeptSpeedups, user_file
from autotune.targets import Target
from autotune_tvm.compiler import brief, described_target
from autotune_tvm.networks.constants import mark_constants
from autotune_tvm.networks.graph import ENTRY
from autotune_tvm.networks.native_messages import without_messages
from autotune_tvm.networks.pass_names import PASS_NAMES
from autotune_tvm.networks.passes.constant_operands import constant_operands
from autotune_tvm.networks.passes.expected_costs import AFTERWARDS, remembering
from autotune_tvm.networks.passes.fold_batch_norms import fold_batch_norms
from autotune_tvm.networks.passes.fold_constants import fold_constants
from autotune_tvm.networks.passes.fold_scales import fold_scales
from autotune_tvm.networks.passes.fuse import canonicalize
from autotune_tvm.networks.passes.fuse_attention import fuse_attention
from autotune_tvm.networks.passes.half_factors import half_factors
from autotune_tvm.networks.passes.layouts import choose_layout
from autotune_tvm.networks.passes.split_transposed import split_transposed
from autotune_tvm.networks.passes.winograd import choose_winograd

__all__ = ["passes_for", "run_passes"]

Pass = Callable[[IRModule], tuple[IRModule, str]]


def passes_for(machine: Target) -> dict[str, Pass]:
    """By name, in order: from a module to another one and what was changed, in a few words.

    Args:
        machine: What the network is for, with as many cores as it has threads.
    """
    path = user_file()
    kept = None if path is None else KeptSpeedups(path)
    afterwards = remembering(AFTERWARDS)
    functions: tuple[Pass, ...] = (
        canonicalize,
        partial(half_factors, machine=machine),
        fold_batch_norms,
        fold_constants,
        fold_scales,
        split_transposed,
        constant_operands,
        partial(fuse_attention, machine=machine),
        partial(choose_layout, machine=machine, kept=kept, passes=afterwards),
        partial(choose_winograd, machine=machine, kept=kept),
        *afterwards,
    )
    return dict(zip(PASS_NAMES, functions, strict=True))


def run_passes(
    module: IRModule,
    machine: Target,
    threads: int,
    replaced: Mapping[str, Callable[[Any], Any] | None] | None = None,
    on_pass: Callable[[PassReport], None] = lambda report: None,
    clock: Callable[[], float] = perf_counter,
) -> tuple[IRModule, tuple[PassReport, ...]]:
    """Run all passes; functions then say which of their parameters are constants.

    Args:
        module: Has a function ``main``.
        machine: What the network is for.
        threads: How many threads it uses.
        replaced: By name of a pass: a function from module to module that takes its place, or
            None to leave it out.
        on_pass: Told of every pass once it is done.
        clock: Seconds.

    Raises:
        UnknownNameError: there is no pass of a name in ``replaced``.
        InvalidValueError: what replaces a pass returns no module with a function ``main``.
        BuildFailed: a pass failed; names it.
    """
    given = replaced or {}
    passes = passes_for(machine.with_cores(threads))
    for name in given:
        if name not in passes:
            raise UnknownNameError("pass", name, passes)
    target = described_target(machine, threads)
    reports = []
    for name, each in passes.items():
        begin = clock()
        note = "left out"
        try:
            with target, without_messages():
                if name not in given:
                    module, note = each(module)
                elif (instead := given[name]) is not None:
                    module, note = _checked(name, instead(module)), "replaced"
        except AutotuneError:
            raise
        except Exception as error:  # TVM raises whatever its passes raise
            raise BuildFailed(f"pass {name!r}: {brief(error)}") from error
        reports.append(PassReport(name, clock() - begin, note))
        on_pass(reports[-1])
    return mark_constants(module), tuple(reports)


def _checked(name: str, module: Any) -> IRModule:
    if not isinstance(module, IRModule) or not any(
        variable.name_hint == ENTRY for variable in module.get_global_vars()
    ):
        raise InvalidValueError(
            f"what replaces pass {name!r} returned {type(module).__name__}, not a module with a "
            f"function {ENTRY!r}"
        )
    return module
