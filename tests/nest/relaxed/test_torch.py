"""Relaxed tapes in a torch graph."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from random_tapes import BOUNDS, INPUTS

from autotune.errors import InvalidValueError
from autotune.ir.expressions import less, maximum, minimum, select, var
from autotune.nest import build_tape
from autotune.nest.relaxed import RelaxedTape
from autotune.nest.relaxed.torch_function import relaxed_values

x, y, z = map(var, INPUTS)


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
