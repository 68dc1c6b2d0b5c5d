"""Rows that are asked for while the one before is computed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.compiler import compile_module
from autotune_tvm.passes.statements import at, intrinsic_of, statements
from autotune_tvm.scheduled import scheduled_module
from row_norms import layer_norm, rms_norm, with_small_cache
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.sym import Analyzer
from tvm_ffi import structural_walk

from autotune.ir.expressions import const
from autotune.ir.workloads import Workload, softmax
from autotune.sketches import Candidate, Prefetch, Sketch
from autotune.spaces import SketchSpace
from autotune.targets import detect_cpu
from autotune.testing.programs import check_candidate, request_for

BACKEND = TVMBackend()
TARGET = with_small_cache(detect_cpu()).with_cores(1)
WORKLOADS = (softmax(m=48, n=256), rms_norm(48, 192), layer_norm(48, 64))


def candidates(workload: Workload, choice: int) -> list[Candidate]:
    """One of each sketch that has the choice."""
    found: dict[str, Candidate] = {}
    space = SketchSpace(workload, TARGET, BACKEND.limits(TARGET))
    for candidate in space.sample(200, np.random.default_rng(0)):
        if candidate.config.get("Y.prefetch") == choice and candidate.config["Y.i.0"] > 1:
            found.setdefault(candidate.sketch.name, candidate)
    assert len(found) > 1
    return list(found.values())


def calls(module: Any) -> list[Any]:
    return [
        it
        for it in statements(module["main"].body)
        if intrinsic_of(it).startswith("llvm.prefetch")
    ]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda it: it.name)
def test_the_same_is_computed(workload: Workload) -> None:
    for candidate in candidates(workload, 1)[:3]:
        check_candidate(BACKEND, candidate, TARGET)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda it: it.name)
def test_each_line_of_the_next_row_is_asked_for(workload: Workload) -> None:
    for candidate in candidates(workload, 1):
        (*asked, vector) = sequence(scheduled_module(request_for(candidate, TARGET)))
        realize = vector.body
        own = [item.var for item in realize.block.iter_vars]
        read = next(it for it in loaded(realize.block.body) if str(it.source.name) == "X")
        for line, call in enumerate(asked):
            assert intrinsic_of(call).startswith("llvm.prefetch")
            (load,) = loaded(call)
            values = [at(it, [vector.loop_var], [16 * line]) for it in realize.iter_values]
            place = [at(index, own, values) for index in read.indices]
            ahead = [a - b for a, b in zip(load.indices, place, strict=True)]
            assert [int(Analyzer().simplify(it)) for it in ahead] == [1, 0]
        assert len(asked) == math.ceil(int(vector.extent) / 16)


def test_only_where_it_is_chosen() -> None:
    for choice in (0, 1):
        candidate = candidates(WORKLOADS[0], choice)[0]
        request = request_for(candidate, TARGET)
        module = scheduled_module(request)
        assert bool(calls(module)) == bool(choice)
        built = compile_module(module, request.target, request.threads)
        assert ("prefetch" in str(built.inspect_source("asm"))) == bool(choice)


def test_single_elements_ask_as_well() -> None:
    """Of a row of a matrix without any other step: once for each element."""
    workload = softmax(m=8, n=16)
    steps = (Prefetch("E", "X", "E", "i.0", const(1)),)
    candidate = Candidate(Sketch("by-hand", workload, (), (), steps), ())
    check_candidate(BACKEND, candidate, TARGET)
    (call,) = calls(scheduled_module(request_for(candidate, TARGET)))
    assert str(loaded(call)[0].source.name) == "X"


def sequence(module: Any) -> list[Any]:
    """The prefetches of a vector, and the loop over its lanes."""
    (found,) = (
        list(it.seq)
        for it in statements(module["main"].body)
        if isinstance(it, tirx.SeqStmt) and intrinsic_of(it.seq[0]).startswith("llvm.prefetch")
    )
    return found


def loaded(node: Any) -> list[Any]:
    found: list[Any] = []
    structural_walk(node, (TensorLoad, found.append))
    return found
