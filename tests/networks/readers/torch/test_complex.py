"""Complex numbers inside of a model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_models import Called, check_read

from autotune.errors import UnsupportedWorkload
from autotune.networks.readers.torch import read_torch


class Rotary(torch.nn.Module):
    """Positions as angles, held as complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(6.0), 10.0 ** -torch.arange(4.0))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: Any) -> Any:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        turned = torch.view_as_real(pairs * self.turns[: x.shape[-2]]).flatten(-2)
        return turned.type_as(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotary_embeddings(dtype: Any) -> None:
    bound = 1e-5 if dtype == torch.float32 else 2**-7
    check_read(Rotary(), (torch.randn(2, 3, 5, 8).to(dtype),), bound, bound)


def _arithmetic(x: Any, y: Any) -> Any:
    z = torch.complex(x, y)
    w = (z * z.conj() + 2j * z - z / (z + 3)) * 0.5
    moved = torch.cat([w.t().reshape(-1)[1:], w[0].flip(0)])
    return (
        torch.view_as_real(w),
        moved.real,
        moved.imag,
        z.abs(),
        z.angle(),
        z.exp().real,
        (-z).sum(-1).imag,
        z.to(torch.complex128).real,
        (z @ z.mT).real,
    )


def test_arithmetic_and_what_moves_elements() -> None:
    torch.manual_seed(0)
    check_read(Called(_arithmetic), (torch.randn(3, 4), torch.randn(3, 4)))


def _spectra(x: Any, n: int) -> Any:
    half = torch.fft.rfft(x)
    return (
        half.abs(),
        torch.fft.irfft(half * half, n=n),
        torch.fft.fft2(x, norm="ortho").real,
        torch.view_as_real(torch.fft.ifft(torch.fft.fft(x))),
        torch.fft.irfft2(torch.fft.rfft2(x, norm="forward"), s=x.shape[-2:]),
    )


@pytest.mark.parametrize("length", [1, 6, 7])
def test_fourier_transforms_are_products(length: int) -> None:
    x = torch.randn(2, 3, length, generator=torch.Generator().manual_seed(0))
    check_read(Called(lambda it: _spectra(it, length)), (x,), atol=1e-4)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: torch.complex(x, x), "Called returns complex numbers; .*view_as_real"),
        (lambda x: torch.complex(x, x).prod().real, "operator of complex numbers is not supp"),
        (lambda x: torch.complex(x, x).tanh().real, "operator of complex numbers is not supp"),
    ],
)
def test_what_pairs_do_not_express_is_named(function: Any, message: str) -> None:
    with pytest.raises(UnsupportedWorkload, match=message):
        read_torch(Called(function), (torch.ones(3),))


def test_complex_inputs_are_refused() -> None:
    with pytest.raises(UnsupportedWorkload, match="complex64 are not supported"):
        read_torch(Called(lambda x: x.real + 1), (torch.ones(3, dtype=torch.complex64),))
