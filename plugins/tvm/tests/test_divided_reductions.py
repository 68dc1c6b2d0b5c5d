"""Reductions that read at quotients and remainders: groups, fractional strides, shared factors."""

from __future__ import annotations

from typing import Any

import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.emit import module_for
from autotune_tvm.importer import import_module, text_of
from divided_reductions import (
    fractional_convolution,
    grouped_convolution,
    multiplied_channels,
    shared_factor,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.topi import nn
from tvm_programs import check_imported

from autotune.backends import BuildRequest
from autotune.ir.workloads import Workload
from autotune.targets import detect_cpu
from autotune.testing.programs import check_candidate, check_program, sample_candidates

BACKEND, TARGET = TVMBackend(), detect_cpu()


def fractional(draw: st.DrawFn) -> Workload:
    pair = st.tuples(st.integers(1, 4), st.integers(1, 4))
    extents = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    out = draw(st.sampled_from((3, 8, 16, 32)))
    return fractional_convolution(extents, draw(pair), draw(pair), draw(st.integers(1, 5)), out)


def grouped(draw: st.DrawFn) -> Workload:
    groups, inside = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    extent, stride = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    out = draw(st.sampled_from((1, 3, 4, 8, 16, 24)))
    return grouped_convolution(extent, groups, inside, out, stride)


def multiplied(draw: st.DrawFn) -> Workload:
    extent = draw(st.sampled_from((1, 5, 8, 16)))
    return multiplied_channels(extent, draw(st.integers(1, 5)), draw(st.integers(1, 4)))


def shared(draw: st.DrawFn) -> Workload:
    copies, columns = draw(st.integers(1, 4)), draw(st.sampled_from((5, 16, 23, 47)))
    batches, rows = copies * draw(st.integers(1, 3)), draw(st.integers(1, 9))
    return shared_factor(batches, copies, rows, columns, draw(st.sampled_from((3, 16, 24))))


@st.composite
def reductions(draw: st.DrawFn) -> Workload:
    return draw(st.sampled_from((fractional, grouped, multiplied, shared)))(draw)


@settings(max_examples=8)
@given(workload=reductions(), seed=st.integers(0, 99))
def test_random_reductions(workload: Workload, seed: int) -> None:
    """Written to TVM, imported again and scheduled: all compute what numpy does."""
    check_program(BACKEND, BuildRequest(workload, None, None, TARGET, 1))
    imported, module = import_module(module_for(workload))
    check_program(BACKEND, BuildRequest(imported, text_of(module), None, TARGET, 1))
    candidates = sample_candidates(BACKEND, imported, TARGET, seed=seed)
    candidate = candidates[seed % len(candidates)]
    check_candidate(BACKEND, candidate, TARGET, program=text_of(module))


def convolutions() -> dict[str, list[Any]]:
    """Of TVM's operator suite and library: arguments and result."""
    x, w = te.placeholder((1, 8, 7, 7), name="X"), te.placeholder((16, 2, 3, 3), name="W")
    multiplied = te.placeholder((8, 3, 3, 3), name="M")
    strides, padding = (2, 2), (1, 1)
    return {
        "groups": list(te_workload.conv2d_nhwc(1, 9, 9, 12, 32, 3, 2, 1, 1, 4)),
        "transposed": list(te_workload.conv2d_transpose_nhwc(1, 5, 4, 6, 16, 4, 2, 1)),
        "odd kernel": list(te_workload.conv2d_transpose_nhwc(1, 4, 4, 3, 8, 3, 2, 1)),
        "stride of 3": list(te_workload.conv2d_transpose_nhwc(1, 3, 4, 3, 20, 5, 3, 1)),
        "groups, channels first": [x, w, nn.group_conv2d_nchw(x, w, 1, 1, 1, 4, "float32")],
        "depthwise, multiplied": [
            *(x, multiplied),
            nn.depthwise_conv2d_nchw(x, multiplied, 1, 1, 1, "float32"),
        ],
        "transposed, in groups": [
            *(x, multiplied),
            nn.group_conv2d_transpose_nchw(x, multiplied, strides, padding, "float32", padding, 4),
        ],
    }


@pytest.mark.parametrize("name", convolutions())
def test_convolutions_of_tvm_are_imported(name: str) -> None:
    program = te.create_prim_func(convolutions()[name])
    check_imported(program, every=name in ("groups", "transposed, in groups"))


@pytest.mark.parametrize("taps", [4, 3])
def test_products_with_the_zeros_between_are_not_computed(taps: int) -> None:
    """In the unrolled tile, each result adds the products of its own phase alone."""
    workload = fractional_convolution((8, 8), (2, 2), (taps, taps), 6, 16)
    for candidate in sample_candidates(BACKEND, workload, TARGET):
        lowered = BACKEND.lower(BuildRequest(workload, None, candidate, TARGET, 1))
        text = str(lowered.program.module.script())
        parts = {name.removeprefix("Y."): value for name, value in candidate.config.items()}
        copies = parts["h.2"] * parts["w.2"] * parts["c.2"] * parts["k.1"]
        assert text.count("fmuladd") == copies * parts["a.1"] * parts["b.1"] // 4
        assert "% 2" not in text
