"""Operators that TVM's translator lacks or reads otherwise, beside torch: many in one network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from autotune_tvm.networks.frontend import RelaxFrontend
from torch import nn

from autotune.errors import UnsupportedWorkload
from autotune.networks import LoadOptions
from autotune.networks.running import check_network
from autotune.targets import Target

functional = nn.functional


class Called(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def indexing(x: Any, image: Any, i: Any) -> Any:
    """Reads and writes at places that are known when it runs, some counted from the end."""
    changed = x.clone()
    changed[changed < 0] = 0
    changed[:, 1] = 5
    return (
        x[:, i[0]],
        x[i[:, :1] % 2, i],
        image[:, i[0], :, i[1]],
        image[:, i[0][:, None], i[1]],
        changed,
        x.index_add(1, i[0].abs(), x),
        x.index_put((torch.tensor([0, -1]), i[0, :2]), torch.tensor([7.0, 8.0])),
        x.scatter_add(1, i.abs(), x),
        x.scatter_reduce(1, i.abs(), x, "amax"),
        x.scatter_reduce(1, i.abs(), x, "mean", include_self=False),
        x.unfold(1, 3, 2),
        x.as_strided((2, 2), (1, 2)),
        functional.embedding_bag(i.abs(), torch.arange(20.0).view(5, 4), mode="mean"),
    )


def reductions(x: Any, image: Any, i: Any) -> Any:
    """Extremes with and without their places, products, and running ones."""
    return (
        x.amax(-1),
        x.amin((0, 1), keepdim=True),
        x.max(-1),
        x.min(0, keepdim=True),
        x.prod(-1),
        i.prod(0),
        (x > 0).any(-1),
        (x > 9).any(),
        x.cummax(-1),
        x.logcumsumexp(-1),
        (x > 0).cumsum(-1),
        torch.var_mean(x, -1),
        x.topk(3, sorted=False)[0].sum(-1),
        x.kthvalue(2, -1),
        torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), x, right=True),
        torch.cdist(x, x + 1),
        functional.max_pool2d(image, 3, 2, 1, return_indices=True),
        functional.max_unpool2d(*functional.max_pool2d(image, 2, return_indices=True), 2),
        functional.adaptive_max_pool2d(image, 3, return_indices=True),
        functional.avg_pool2d(image, 2, divisor_override=3),
        functional.group_norm(image, 2),
    )


def resampling(x: Any, image: Any, i: Any) -> Any:
    """To sizes that are no multiples, by factors that give none, and by grids."""
    theta = torch.tensor([[[0.7, 0.2, 0.1], [-0.3, 0.9, 0.0]]])
    grid = functional.affine_grid(theta, (1, 4, 5, 7), align_corners=False)
    resized = functional.interpolate
    line, volume = image[0, :, :2], image.view(1, 2, 2, 8, 8)
    return (
        resized(image, size=(11, 5)),
        resized(image, size=(4, 4)),
        resized(image, scale_factor=1.5),
        resized(image, scale_factor=1.3, mode="bilinear"),
        resized(image, size=(3, 5), mode="bilinear", antialias=True),
        resized(image, size=(3, 5), mode="bicubic", antialias=True),
        resized(image, size=(3, 5), mode="lanczos", antialias=True),
        resized(image, size=(1, 5), mode="bilinear", align_corners=True),
        resized(line, scale_factor=0.6, mode="linear"),
        resized(volume, size=(3, 5, 9), mode="nearest-exact"),
        functional.grid_sample(image, grid, align_corners=False),
    )


def arithmetic(x: Any, image: Any, i: Any) -> Any:
    """Operands of two types, and whole numbers."""
    return (
        i * 0.5,
        1.5 - i,
        (i > 0) + 1,
        i >= 0.5,
        torch.where(x > 0, x, i),
        torch.cat([x, i], 0),
        i.clamp(max=1.5),
        i.clamp(-1, 1),
        i / 2,
        i // 2,
        torch.div(i, 3, rounding_mode="trunc"),
        i << 1,
        functional.selu(x),
        torch.hypot(x, x + 1),
        torch.erfc(x),
        torch.exp2(x),
        torch.copysign(x, -x),
        torch.baddbmm(image[0], image[0], image[0], beta=0.5),
        functional.bilinear(x, x, torch.ones(3, 5, 5)),
    )


@pytest.mark.parametrize("function", [indexing, reductions, resampling, arithmetic])
def test_operators_compute_what_they_do_in_torch(
    function: Callable[..., Any], target: Target
) -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(2, 5), torch.randn(1, 4, 8, 8), torch.randint(-4, 4, (2, 5)))
    program = RelaxFrontend().load(Called(function).eval(), inputs, LoadOptions(target, 1))
    check_network(program, program.build({}, target, 1))


def of_halves(x: Any) -> Any:
    """Operators on halves that are computed in single precision."""
    values, places = x.sort(-1)
    return (
        values,
        places,
        x.topk(2),
        x.max(-1),
        x.argmin(-1),
        x.abs() ** 1.5,
        torch.isnan(x),
        torch.asinh(x),
        torch.atan2(x, x + 1).half(),
        torch.sinh(x.half()),
        functional.cosine_similarity(x, x + 1),
        functional.instance_norm(x[None]),
        functional.instance_norm(x[None].double()),
        functional.layer_norm(x.double(), (6,)),
    )


def test_halves_are_ordered_and_raised_to_powers(target: Target) -> None:
    inputs = (torch.randn(3, 6, generator=torch.Generator().manual_seed(1)).bfloat16(),)
    program = RelaxFrontend().load(Called(of_halves).eval(), inputs, LoadOptions(target, 1))
    check_network(program, program.build({}, target, 1))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x[x > 0], r"node 'index' .*: how much a mask selects .* torch.where$"),
        (torch.nonzero, r"does not know the operator of node 'nonzero'"),
        (lambda x: x.shape[0], "returns no tensor"),
    ],
)
def test_what_has_no_fixed_shape_is_named(
    function: Callable[..., Any], message: str, target: Target
) -> None:
    with pytest.raises(UnsupportedWorkload, match=message):
        RelaxFrontend().load(Called(function).eval(), (torch.ones(3, 3),), LoadOptions(target, 1))
