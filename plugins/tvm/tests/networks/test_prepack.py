"""Weights that schedules pack are packed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from autotune_tvm.networks.apply import PREPACKED
from autotune_tvm.networks.graph import array_of
from autotune_tvm.networks.prepack import Packer
from relax_networks import const, network, op, run, two_layers, weights
from relax_records import constants, cuts, fused, with_sketch
from tvm import relax

from autotune.targets import Target

SHAPE = ((24, 24), "float32")


def packed(module: Any, sketch: str, target: Target, folder: Path) -> Any:
    """The module with a schedule, on one thread."""
    cut = fused(module)
    made = with_sketch(cut, sketch, "tvm", target.with_cores(1), folder)
    (name,) = (it.name for it in cuts(cut, "tvm", target))
    assert made[name].attrs["tirx.is_scheduled"] and PREPACKED not in made[name].attrs
    return made


@pytest.mark.parametrize("sketch", ["packed-root", "packed-root-rows", "packed-panel-outer"])
def test_weights_are_packed_when_the_schedule_is_applied(
    sketch: str, target: Target, tmp_path: Path
) -> None:
    module = packed(two_layers(), sketch, target, tmp_path)
    first, second = constants(module)
    assert first == second and first != SHAPE
    x = weights(24, 24, seed=5)
    wanted = x
    for seed in (0, 1):
        wanted = np.maximum(wanted @ weights(24, 24, seed=seed), 0)
    np.testing.assert_allclose(run(module, x)[0], wanted, rtol=1e-4, atol=1e-4)


def test_corrections_of_signed_bytes_are_packed_with_the_weights(
    target: Target, tmp_path: Path
) -> None:
    """Another parameter, between that of the packed weights and the result."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-128, 128, shape, np.int8) for shape in ((32, 24), (24, 48)))
    module = network(
        [(x.shape, "int8")],
        lambda emit, given: emit(op.matmul(given, const(w), out_dtype="int32")),
    )
    made = packed(module, "packed-root", target, tmp_path)
    assert (w.shape, "int8") not in constants(made)
    assert np.array_equal(run(made, x, target=target)[0], x.astype(np.int32) @ w)


def test_what_is_no_constant_is_packed_when_it_runs(target: Target, tmp_path: Path) -> None:
    module = network([SHAPE] * 2, lambda emit, x, y: emit(op.matmul(x, y)))
    (cut,) = cuts(fused(module), "tvm", target)
    assert "packed-panel" in cut.candidates()
    made = packed(module, "packed-root", target, tmp_path)
    assert constants(made) == []
    x, y = weights(24, 24, seed=1), weights(24, 24, seed=2)
    np.testing.assert_allclose(run(made, x, y)[0], x @ y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sketch", ["block-fusion", "block-fusion-wide"])
def test_vectors_of_several_lengths_are_kept_apart_in_any_pipeline(
    sketch: str, target: Target, tmp_path: Path
) -> None:
    """TVM's own passes let arrays share memory, and refuse what vectors then are."""
    shape = (32, 64)
    cut = fused(network([(shape, "float32")], lambda emit, x: emit(op.nn.softmax(x, axis=-1))))
    made = with_sketch(cut, sketch, "tvm", target.with_cores(1), tmp_path)
    x = weights(*shape)
    wanted = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    np.testing.assert_allclose(run(made, x)[0], wanted, rtol=1e-4, atol=1e-6)


def test_threads_have_registers_of_their_own_in_any_pipeline(
    target: Target, tmp_path: Path
) -> None:
    """TVM's own passes move what is allocated before a parallel loop out of what threads run."""
    module = network([SHAPE] * 2, lambda emit, x, y: emit(op.matmul(x, y)))
    made = packed(module, "packed-root", target, tmp_path)
    built = relax.build(made, tvm.target.Target({"kind": "llvm", "opt-level": 0}))
    call = relax.VirtualMachine(built, tvm.cpu())["main"]
    x, y = weights(24, 24, seed=1), weights(24, 24, seed=2)
    given = tvm.runtime.tensor(x), tvm.runtime.tensor(y)
    for _ in range(200):
        np.testing.assert_allclose(call(*given).numpy(), x @ y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sketch", ["direct", "plain-rows"])
def test_a_schedule_that_packs_nothing_leaves_weights(
    sketch: str, target: Target, tmp_path: Path
) -> None:
    assert constants(packed(two_layers(), sketch, target, tmp_path)) == [SHAPE] * 2


def test_what_is_constant_in_one_call_only_is_no_constant(target: Target, tmp_path: Path) -> None:
    def body(emit: Any, x: Any) -> Any:
        return emit(op.matmul(emit(op.matmul(x, const(weights(24, 24)))), x))

    made = packed(network([SHAPE], body), "packed-root", target, tmp_path)
    assert constants(made) == [SHAPE]
    x = weights(24, 24, seed=1)
    wanted = x @ weights(24, 24) @ x
    np.testing.assert_allclose(run(made, x)[0], wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_no_statement_writes_is_zero(dtype: str) -> None:
    packer = Packer(lambda operand, result: None, (((2, 4), dtype),), 1)
    (found,) = packer.packed(relax.const(np.ones((2, 4), np.float32)))
    assert str(found.value.dtype) == dtype
    assert not array_of(found).astype(np.float32).any()
