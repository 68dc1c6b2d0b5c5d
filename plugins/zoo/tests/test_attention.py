"""Attention of real networks, read from torch: one task each, whatever is around it."""

from __future__ import annotations

import autotune_zoo as zoo
import numpy as np
import pytest
import torch

from autotune.backends.native import NativeBackend
from autotune.ir.workloads import Workload
from autotune.networks.graph import evaluate
from autotune.networks.passes.fuse import fuse
from autotune.networks.passes.fuse_attention import fused
from autotune.networks.passes.merge_equal import merge_equal
from autotune.networks.passes.views import views
from autotune.networks.readers.torch import read_torch
from autotune.sketches import BoundLoop
from autotune.spaces import SketchSpace
from autotune.targets import preset

# torch.export uses what a later torch will not have.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

CPU = preset("skylake-avx512-4core")
WIDE = {"layers": 2, "width": 32, "heads": 2}


@pytest.mark.parametrize(
    ("name", "sizes", "queries", "is_causal"),
    [
        ("bert_base", {"sequence": 16, **WIDE, "vocabulary": 50}, (2, 16, 16), False),
        ("vit_b_16", {"image": 48, **WIDE, "classes": 10}, (2, 10, 16), False),
        ("gpt2", {"sequence": 16, **WIDE, "vocabulary": 50}, (2, 16, 16), True),
        (
            "llama_block",
            {"sequence": 16, "width": 64, "heads": 4, "groups": 2, "hidden": 64},
            (2, 2, 16, 16),
            True,
        ),
    ],
)
def test_all_layers_have_one_task(
    name: str, sizes: dict[str, int], queries: tuple[int, ...], is_causal: bool
) -> None:
    module, inputs = zoo.create(name, **sizes)
    graph = read_torch(module, inputs).graph
    for each in (merge_equal, views):
        graph, _ = each(graph, CPU)
    graph, count = fused(graph, lambda attention: True)
    graph, _ = fuse(graph, CPU)
    assert count == 2
    found = [it for it in graph.workloads if it.name.startswith("attention")]
    assert len({it.digest for it in found}) == 1
    assert found[0].inputs[0].shape == queries
    assert _has_bounded_loops(found[0]) == is_causal
    exponentials = [it for it in graph.workloads if "softmax" in it.name]
    assert not exponentials
    given = {it.name: x.numpy() for it, x in zip(graph.inputs, inputs, strict=True)}
    with torch.no_grad():
        want = module(*inputs)
    want = want[0] if isinstance(want, tuple) else want
    (got, *_) = evaluate(graph, given).values()
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-3, atol=1e-4)


def _has_bounded_loops(workload: Workload) -> bool:
    space = SketchSpace(workload, CPU, NativeBackend().limits(CPU))
    steps = [step for sketch in space.sketches() for step in sketch.steps]
    return any(isinstance(step, BoundLoop) for step in steps)
