"""Native values and derivatives against torch's own, and relaxed tapes in a torch graph."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.relaxed_torch import Reader
from random_tapes import BOUNDS, INPUTS, points, relaxable, tapes
from relaxed_samples import Sample, samples

from autotune.errors import InvalidValueError
from autotune.ir.expressions import less, maximum, minimum, select, var
from autotune.nest import Tape, build_tape
from autotune.nest.relaxed import FELIX, RelaxedTape, Smoothing, param_bounds
from autotune.nest.relaxed.torch_function import relaxed_values

SMOOTHINGS = (Smoothing(), FELIX, Smoothing(0.5, 0.3, True))
x, y, z = map(var, INPUTS)


def both_ways(tape: RelaxedTape, at: Any, weights: Any, bounds: Any) -> tuple[Any, Any, Any, Any]:
    """Native values and gradient, torch's values and gradient."""
    smoothing = tape.smoothing
    reader = Reader(
        tape.mode == "relaxed", smoothing.temperature, smoothing.epsilon, smoothing.half_step
    )
    variable = torch.tensor(at, requires_grad=True)
    values = reader.values(tape.tape, variable, bounds)
    gradient = np.zeros_like(at)
    if values.requires_grad:
        (found,) = torch.autograd.grad(
            (values * torch.from_numpy(weights)).sum(), variable, allow_unused=True
        )
        gradient = gradient if found is None else found.numpy()
    return tape.values(at), tape.vjp(at, weights), values.detach().numpy(), gradient


@pytest.mark.parametrize("smoothing", SMOOTHINGS[:2], ids=["usual", "felix"])
@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.name)
def test_every_sketch_agrees_with_torch(sample: Sample, smoothing: Smoothing) -> None:
    rng = np.random.default_rng(3)
    at = np.concatenate([sample.between(12, rng), sample.rows[:12].astype(np.float64)])
    weights = rng.normal(size=(len(at), len(sample.tape.outputs)))
    bounds = param_bounds(sample.sketch)
    for tape in (sample.relaxed(smoothing), sample.exact()):
        # Outputs reach from 1 to billions: each counts as much as the others.
        scaled = weights / np.maximum(np.abs(tape.values(at)), 1)
        values, gradient, expected, derivative = both_ways(tape, at, scaled, bounds)
        np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(gradient, derivative, rtol=1e-9, atol=1e-9)


def size(tape: Tape, at: Any) -> Any:
    """The largest magnitude of anything computed on the way, for each point, ``[n, 1]``."""
    count = len(tape.inputs) + len(tape.constants) + len(tape.instructions)
    every = Tape(
        tape.inputs,
        tape.constants,
        tape.instructions,
        tuple((str(slot), slot) for slot in range(count)),
    )
    found = relaxable(every)
    assert found is not None
    return np.abs(found.values(at)).max(axis=1, keepdims=True)


@given(tapes(), points(), st.sampled_from(SMOOTHINGS))
def test_any_relaxed_tape_agrees_with_torch(tape: Tape, at: Any, smoothing: Smoothing) -> None:
    relaxed = relaxable(tape, smoothing=smoothing)
    assume(relaxed is not None)
    assert relaxed is not None
    weights = np.random.default_rng(0).normal(size=(len(at), len(tape.outputs)))
    values, gradient, expected, derivative = both_ways(relaxed, at, weights, BOUNDS)
    assume(np.isfinite(derivative).all())
    # What cancels is as accurate as what it was made of.
    scale = np.maximum(size(tape, at), 1)
    assume((scale < 1e9).all())
    assert (np.abs(values - expected) <= 1e-9 * scale).all()
    steep = np.maximum(np.abs(derivative).max(axis=1, keepdims=True), scale)
    assert (np.abs(gradient - derivative) <= 1e-9 * steep * scale).all()


@given(tapes(), points())
def test_any_exact_tape_agrees_with_torch(tape: Tape, at: Any) -> None:
    exact = RelaxedTape(tape, "exact")
    weights = np.random.default_rng(0).normal(size=(len(at), len(tape.outputs)))
    try:
        exact.values(at)
    except InvalidValueError:
        assume(False)
    values, gradient, expected, derivative = both_ways(exact, at, weights, BOUNDS)
    np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(gradient, derivative, rtol=1e-9, atol=1e-9)


CURVED = build_tape(
    INPUTS,
    {
        "a": select(less(x, y), x * y, minimum(x, y) + 1),
        "b": maximum(x, z) // (y + 1),
        "c": x,
    },
)


def test_gradients_flow_through_a_graph() -> None:
    """Against torch's numerical check, with nodes before and after."""
    tape = RelaxedTape(CURVED, "relaxed", BOUNDS)

    def loss(theta: Any) -> Any:
        return torch.log2(1 + relaxed_values(tape, torch.exp2(theta))).sum(dim=1)

    theta = torch.tensor([[1.0, 2.0, 0.5], [3.0, 1.0, 1.2]], dtype=torch.float64)
    assert torch.autograd.gradcheck(loss, theta.requires_grad_())


def test_it_is_one_node_of_a_graph() -> None:
    tape = RelaxedTape(CURVED, "relaxed", BOUNDS)
    at = torch.ones((4, 3), dtype=torch.float64, requires_grad=True)
    found = relaxed_values(tape, at, threads=2)
    assert found.shape == (4, 3) and found.dtype == torch.float64
    assert "RelaxedValues" in type(found.grad_fn).__name__
    ((node, _),) = found.grad_fn.next_functions[:1]
    assert "AccumulateGrad" in type(node).__name__
    assert not relaxed_values(tape, at.detach()).requires_grad


@pytest.mark.parametrize("power", [1, 2])
def test_there_is_no_second_derivative(power: int) -> None:
    tape = RelaxedTape(CURVED, "relaxed", BOUNDS)
    at = torch.ones((4, 3), dtype=torch.float64, requires_grad=True)
    loss = (relaxed_values(tape, at) ** power).sum()
    (gradient,) = torch.autograd.grad(loss, at, create_graph=True)
    with pytest.raises(InvalidValueError, match="once, not twice"):
        (gradient.sum() + at.sum()).backward()


def test_bad_tensors_are_refused() -> None:
    tape = RelaxedTape(CURVED, "relaxed", BOUNDS)
    with pytest.raises(InvalidValueError, match=r"not of torch\.float32"):
        relaxed_values(tape, torch.ones((2, 3)))
    with pytest.raises(InvalidValueError, match="points are on meta"):
        relaxed_values(tape, torch.ones((2, 3), dtype=torch.float64, device="meta"))
    with pytest.raises(InvalidValueError, match="takes points"):
        relaxed_values(tape, torch.ones((2, 4), dtype=torch.float64))
    with pytest.raises(InvalidValueError, match="'y' is 99"):
        relaxed_values(tape, torch.tensor([[1.0, 99.0, 1.0]], dtype=torch.float64))


def test_the_core_does_not_import_torch() -> None:
    code = "import sys, autotune, autotune.nest.relaxed; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
