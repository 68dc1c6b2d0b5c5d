"""Workloads of every builder, at random lengths, and the suite of backends that print loops."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.backends import Backend
from autotune.ir.workloads import (
    Workload,
    attention,
    batch_matmul,
    conv1d,
    conv2d,
    conv3d,
    cumsum,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.networks import graph as ops
from autotune.networks.passes.fuse import fuse
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace
from autotune.targets import Target, detect_cpu, preset
from autotune.testing.programs import check_candidate, sample_candidates


def channels_first(channels: int, image: int, taps: int, stride: int, pad: int) -> Workload:
    """A convolution of each channel with its bias, as networks have it before their layout.

    Of a window that moves by more than one, the last columns of a padded image may be read by
    nothing; the window may be larger than the image.
    """
    weights = np.ones((channels, 1, taps, taps), np.float32)
    window = ops.Window.of([taps] * 2, [stride] * 2, [pad] * 2)
    x = ops.input_value("x", (1, channels, image, image), "float32")
    bias = ops.input_value("bias", (channels, 1, 1), "float32")
    y = ops.convolution(x, ops.constant(weights), window, channels)
    graph = ops.Graph((x, bias), {"y": ops.binary("add", y, bias)})
    (workload,) = fuse(graph, preset("haswell-2core"))[0].workloads
    return workload


# Lengths that vectors and tiles divide, and others: prime, odd, 1, tall and flat.
SHORT = st.sampled_from((1, 2, 3, 5, 7, 8, 12, 13, 16))
LONG = st.sampled_from((1, 6, 8, 15, 16, 17, 24, 31, 32, 48, 64))
IMAGE = st.integers(3, 9)
FLAG = st.integers(0, 1)
FLOATS = st.sampled_from(("float32", "float16", "bfloat16", "float64"))
PRODUCTS = st.sampled_from(("float32", "float16", "bfloat16", "float64", "int8", "u8s8s32"))

BUILDERS: dict[str, st.SearchStrategy[Workload]] = {
    "gemm": st.builds(gemm, m=SHORT, n=LONG, k=LONG, dtype=PRODUCTS),
    "batch_matmul": st.builds(batch_matmul, b=SHORT, m=SHORT, n=LONG, k=SHORT),
    "dense": st.builds(dense, m=SHORT, n=LONG, k=LONG, bias=FLAG, relu=FLAG),
    "conv1d": st.builds(conv1d, w=IMAGE, ci=SHORT, co=LONG, pad=FLAG),
    "conv2d": st.builds(
        conv2d,
        h=IMAGE,
        w=IMAGE,
        ci=SHORT,
        co=SHORT,
        pad=FLAG,
        stride=st.integers(1, 2),
        bias=FLAG,
        relu=FLAG,
    ),
    "conv3d": st.builds(conv3d, d=IMAGE, h=IMAGE, w=IMAGE, ci=SHORT, co=SHORT, pad=FLAG),
    "depthwise": st.builds(depthwise_conv2d, h=IMAGE, w=IMAGE, c=LONG, pad=FLAG),
    "channels_first": st.builds(
        channels_first,
        channels=SHORT,
        image=IMAGE,
        taps=st.integers(1, 3),
        stride=st.integers(1, 3),
        pad=FLAG,
    ),
    "softmax": st.builds(softmax, m=SHORT, n=LONG, dtype=FLOATS),
    "elementwise": st.builds(elementwise, m=SHORT, n=LONG, dtype=FLOATS),
    "cumsum": st.builds(cumsum, m=SHORT, n=LONG),
    "attention": st.builds(attention, h=SHORT, n=SHORT, m=SHORT, d=SHORT),
    "causal": st.builds(attention, h=SHORT, n=SHORT, d=SHORT, causal=st.just(1)),
}

# Vectors of 4, 8 and 16 floats: this machine need not have them for their programs to run on it.
TARGETS = ("haswell-2core", "sapphirerapids-2core")


def examples(share: int) -> int:
    """A share of the examples of other properties: each compiles a program for every sketch."""
    return max(2, settings().max_examples // share)


def drawn(
    backend: Backend, workload: Workload, target: Target, seed: int, each: int = 1
) -> list[Candidate]:
    """Candidates of all sketches for a target, without instructions that this machine may lack."""
    limits = backend.limits(target)
    space = SketchSpace(workload, target, evolve(limits, steps=limits.steps - {"tensorize"}))
    count = each * len(space.sketches())
    return list(space.sample(count, np.random.default_rng(seed)))


class PrintedSuite:
    """Programs that are printed compute the reference; classes give the fixture ``backend``."""

    @pytest.mark.parametrize("name", BUILDERS)
    def test_every_sketch_computes_what_the_reference_does(
        self, backend: Backend, name: str
    ) -> None:
        @settings(max_examples=examples(15))
        @given(BUILDERS[name], st.sampled_from(TARGETS), st.integers(0, 2**16))
        def check(workload: Workload, machine: str, seed: int) -> None:
            candidates = drawn(backend, workload, preset(machine), seed)
            for candidate in {it.sketch.digest: it for it in candidates}.values():
                check_candidate(backend, candidate, detect_cpu())

        check()


class ParallelSuite:
    """Threads share parallel loops, and each has memory of its own."""

    threads: tuple[int, ...] = (2,)

    @pytest.mark.parametrize(
        "workload",
        [gemm(m=32, n=48, k=16), softmax(m=16, n=33), attention(h=2, n=16, d=8, causal=1)],
    )
    def test_parallel_loops_are_shared(self, backend: Backend, workload: Workload) -> None:
        target = detect_cpu()
        for candidate in sample_candidates(backend, workload, target):
            for threads in self.threads:
                check_candidate(backend, candidate, target, threads=threads)
