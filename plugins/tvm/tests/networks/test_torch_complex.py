"""Complex numbers in models of torch become pairs of real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from autotune_tvm.networks.frontend import RelaxFrontend
from autotune_tvm.networks.sources.decompositions.complex_pairs import (
    first_inexpressible,
    is_complex,
    with_pairs,
)
from torch import nn

from autotune.errors import UnsupportedWorkload
from autotune.networks import LoadOptions
from autotune.networks.running import check_network
from autotune.targets import Target

BATCH, LENGTH, HEADS, WIDTH = 2, 5, 3, 8


class RotaryAttention(nn.Module):
    """Scores of attention with rotary embeddings in complex numbers, as Llama has them."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(HEADS * WIDTH, 2 * HEADS * WIDTH, bias=False)
        rates = 1.0 / 10000 ** (torch.arange(0, WIDTH, 2)[: WIDTH // 2].float() / WIDTH)
        angles = torch.outer(torch.arange(2 * LENGTH), rates)
        turns = torch.polar(torch.ones_like(angles), angles)
        self.register_buffer("turns", turns, persistent=False)

    def forward(self, x: Any) -> Any:
        batch, length, _ = x.shape
        turns = self.turns[:length].view(1, length, 1, WIDTH // 2)
        query, key = (it.view(batch, length, HEADS, WIDTH) for it in self.into(x).chunk(2, dim=-1))
        query, key = (self.turned(it, turns) for it in (query, key))
        return torch.einsum("bqhd,bkhd->bhqk", query, key).softmax(-1)

    @staticmethod
    def turned(x: Any, turns: Any) -> Any:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(3).type_as(x)


class Called(nn.Module):
    """A function of two complex tensors as a module with real inputs and outputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("weight", torch.randn(4, 3, dtype=torch.complex64))

    def forward(self, x: Any, y: Any) -> Any:
        found = self.function(torch.view_as_complex(x), torch.complex(y, 2 * y), self.weight)
        return tuple(torch.view_as_real(it) if it.is_complex() else it for it in found)


def arithmetic(x: Any, y: Any, weight: Any) -> Any:
    return (
        x + y,
        torch.sub(x, y, alpha=2),
        x * y,
        x * weight,
        x / y,
        x * 2.5,
        3 - x,
        x * (1 + 2j),
        y.real * x,
        x / y.imag,
        -x,
        x.conj() * y,
        torch.exp(x),
        x.abs(),
        x.angle(),
        torch.polar(x.abs(), y.real),
        x.to(torch.complex64).real,
    )


def views(x: Any, y: Any, weight: Any) -> Any:
    return (
        x.reshape(2, 6),
        x.view(-1)[3:7],
        x.unsqueeze(-1),
        x.unsqueeze(-2),
        x.unsqueeze(0).squeeze(0),
        x[:, -1],
        x[1],
        x[None].expand(2, 4, 3),
        x.transpose(-1, 0),
        x.t().contiguous(),
        x.permute(1, 0),
        x.repeat(2, 1),
        torch.cat([x, y], -1),
        x.flatten(),
        weight[torch.tensor([0, 2])],
        torch.index_select(x, -1, torch.tensor([2, 0])),
    )


def exported(module: nn.Module, *inputs: Any) -> Any:
    return torch.export.export(module.eval(), inputs)


@pytest.mark.parametrize("function", [arithmetic, views])
def test_pairs_compute_what_complex_numbers_do(function: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(4, 3, 2), torch.randn(4, 3)
    program = exported(Called(function), *inputs)
    assert first_inexpressible(program) is None
    real = with_pairs(program)
    assert not any(map(is_complex, real.graph.nodes))
    assert real.graph_signature.user_inputs == program.graph_signature.user_inputs
    for one, other in zip(real.module()(*inputs), program.module()(*inputs), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_program_keeps_its_own_complex_weights() -> None:
    program = exported(RotaryAttention(), torch.randn(BATCH, LENGTH, HEADS * WIDTH))
    with_pairs(program)
    assert [it.dtype for it in program.constants.values()] == [torch.complex64]


def test_rotary_embeddings_compute_what_torch_does(target: Target) -> None:
    torch.manual_seed(0)
    x = torch.randn(BATCH, LENGTH, HEADS * WIDTH)
    program = RelaxFrontend().load(RotaryAttention().eval(), (x,), LoadOptions(target, 1))
    assert [it.name for it in program.inputs] == ["x"]
    np.testing.assert_array_equal(program.example_inputs()[0], x)
    assert all(it.ok for it in check_network(program, program.build({}, target, 1)))


class Transformed(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.fft.rfft(x).abs()


class Returned(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.view_as_complex(x) * 2


class Taken(nn.Module):
    def forward(self, x: Any) -> Any:
        return (x * 2).abs()


@pytest.mark.parametrize(
    ("module", "x", "message"),
    [
        (Transformed(), torch.randn(4, 8), r"Transformed: node 'fft_rfft' \(fft_rfft.default\)"),
        (Returned(), torch.randn(4, 2), r"Returned: node 'mul' \(mul.Tensor\)"),
        (Taken(), torch.randn(4, dtype=torch.complex64), "Taken: node 'x'"),
    ],
)
def test_what_has_no_form_in_pairs_is_named(
    module: nn.Module, x: Any, message: str, target: Target
) -> None:
    with pytest.raises(UnsupportedWorkload, match=message) as caught:
        RelaxFrontend().load(module.eval(), (x,), LoadOptions(target, 1))
    assert "view_as_real" in str(caught.value) and "\n" not in str(caught.value)
