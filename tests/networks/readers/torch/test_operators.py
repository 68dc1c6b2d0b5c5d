"""Operators beside torch: many in one network, and laws for any sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch_models import Called, check_read, computed

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import Loop
from autotune.networks.readers.torch import read_torch

functional = nn.functional
extents = st.integers(1, 9)
few = settings(max_examples=5, deadline=None)


def numbers(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


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
        x.index_put((i[0, :2] % 2,), x, accumulate=True),
        image.index_put((torch.tensor([0]), i[0, :1], i[1, :1]), x[0, :1], accumulate=True),
        x.scatter_add(1, i.abs(), x),
        x.scatter_reduce(1, i.abs(), x, "amax"),
        x.scatter_reduce(1, i.abs(), x, "mean", include_self=False),
        x.masked_scatter(x > 0, x.abs()),
        x.take(i + 5),
        x.gather(1, i.abs()),
        x.unfold(1, 3, 2),
        x.as_strided((2, 2), (1, 2)),
        x.t().as_strided((2, 2), (1, 2)),
        x.repeat_interleave(2, 1),
        x.roll(2, 1),
        image.diagonal(0, 2, 3),
        torch.diag_embed(x, 1, 0, 2),
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
        x.median(-1),
        torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), x, right=True),
        torch.cdist(x, x + 1),
        functional.max_pool2d(image, 3, 2, 1, return_indices=True),
        functional.max_unpool2d(*functional.max_pool2d(image, 2, return_indices=True), 2),
        functional.adaptive_max_pool2d(image, 3, return_indices=True),
        functional.adaptive_avg_pool2d(image, (3, 5)),
        functional.avg_pool2d(image, 2, divisor_override=3),
        functional.avg_pool2d(image, 3, 2, 1, ceil_mode=True, count_include_pad=False),
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
        resized(image, scale_factor=1.3, mode="bicubic"),
        resized(image, size=(3, 5), mode="bilinear", antialias=True),
        resized(image, size=(3, 5), mode="bicubic", antialias=True),
        resized(image, size=(3, 13), mode="lanczos", antialias=True),
        resized(image, size=(1, 5), mode="bilinear", align_corners=True),
        resized(line, scale_factor=0.6, mode="linear"),
        resized(volume, size=(3, 5, 9), mode="nearest-exact"),
        resized(volume, size=(3, 5, 9), mode="trilinear"),
        functional.pad(image, (-1, 1, -2, 1), mode="circular"),
        functional.grid_sample(image, grid, align_corners=False),
        functional.grid_sample(image, grid, "nearest", "reflection", align_corners=True),
        functional.grid_sample(image, grid, "bicubic", "border", align_corners=True),
    )


def arithmetic(x: Any, image: Any, i: Any) -> Any:
    """Operands of two types, and whole numbers."""
    return (
        i * 0.5,
        1.5 - i,
        (i > 0) + 1,
        torch.add(i > 0, i < 0, alpha=False),
        i >= 0.5,
        torch.where(x > 0, x, i),
        torch.cat([x, i], 0),
        i.clamp(max=1.5),
        i.clamp(-1, 1),
        i / 2,
        i // 2,
        x // 0.7,
        x % 0.7,
        torch.fmod(i, 3),
        torch.div(i, 3, rounding_mode="trunc"),
        i << 1,
        i ^ 3,
        i**3,
        x.double() + i.to(torch.int8),
        functional.selu(x),
        torch.hypot(x, x + 1),
        torch.erfc(x),
        torch.exp2(x),
        torch.copysign(x, -x),
        torch.baddbmm(image[0], image[0], image[0], beta=0.5),
        functional.bilinear(x, x, torch.ones(3, 5, 5)),
    )


@pytest.mark.parametrize("function", [indexing, reductions, resampling, arithmetic])
def test_operators_compute_what_they_do_in_torch(function: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(2, 5), torch.randn(1, 4, 8, 8), torch.randint(-4, 4, (2, 5)))
    check_read(Called(function).eval(), inputs)


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
        x.sum(-1),
        x.mean(),
        torch.isnan(x),
        torch.asinh(x),
        torch.atan2(x, x + 1).half(),
        torch.sinh(x.half()),
        functional.instance_norm(x[None]),
        functional.layer_norm(x.double(), (6,)),
    )


def test_halves_are_ordered_and_raised_to_powers() -> None:
    inputs = (numbers(3, 6).bfloat16(),)
    check_read(Called(of_halves).eval(), inputs, rtol=2**-7, atol=2**-7)


def of_nan(x: Any) -> Any:
    """Functions that let NaN through, or say that it is there."""
    return (
        x.relu(),
        functional.relu6(x),
        functional.hardswish(x),
        functional.leaky_relu(x),
        functional.elu(x),
        x.clamp(-1, 1),
        x.clamp(min=torch.tensor(math.nan)),
        torch.maximum(x, x.flip(-1)),
        torch.fmax(x, x.flip(-1)),
        x.sign(),
        x.max(-1),
        x.argmin(-1),
        x.sort(-1),
        x.cummin(-1),
        x.median(-1),
        x.softmax(-1),
        x.nan_to_num(),
        x.isinf(),
        x.isfinite(),
        functional.max_pool1d(x, 3, 1),
        functional.max_pool2d(x[None], 2, return_indices=True),
    )


def test_not_a_number_is_computed_with_as_in_torch() -> None:
    rows = [
        [1.0, math.nan, -2.0, math.inf],
        [-math.inf, 3.0, 0.0, -0.0],
        [math.nan, 2.5, math.nan, 1.0],
    ]
    check_read(Called(of_nan).eval(), (torch.tensor(rows),))


def several(*parts: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Four cases, which are read as one network: it takes longest to trace it."""
    return st.lists(st.tuples(*parts), min_size=4, max_size=4)


@few
@given(several(extents, extents, st.floats(0.4, 2.5), st.floats(0.4, 2.5)))
def test_nearest_neighbours(drawn: list[tuple[int, int, float, float]]) -> None:
    kept = [it for it in drawn if int(it[0] * it[2]) and int(it[1] * it[3])]
    resized = functional.interpolate

    def all_resized(*images: Any) -> Any:
        return [
            (resized(x, scale_factor=tuple(factors)), resized(x, size=(height, 7)))
            for x, (height, _, *factors) in zip(images, kept, strict=True)
        ]

    if kept:
        images = [numbers(1, 2, height, width) for height, width, _, _ in kept]
        check_read(Called(all_resized), images, rtol=0, atol=0)


@few
@given(
    several(
        st.lists(st.integers(0, 4), min_size=1, max_size=5),
        st.sampled_from(["sum", "mean", "max"]),
        st.booleans(),
        st.sampled_from([None, 0]),
    )
)
def test_bags(drawn: list[tuple[list[int], str, bool, int | None]]) -> None:
    """Empty bags, too, and rows that count for nothing."""
    table, kept = numbers(4, 3), [it for it in drawn if sum(it[0])]

    def bags(*given: Any) -> Any:
        return [
            functional.embedding_bag(
                indices, table, offsets, mode=mode, include_last_offset=last, padding_idx=padding
            )
            for indices, offsets, (_, mode, last, padding) in zip(
                given[::2], given[1::2], kept, strict=True
            )
        ]

    inputs: list[Any] = []
    for lengths, _, last, _ in kept:
        begins = [sum(lengths[:i]) for i in range(len(lengths) + last)]
        inputs += [torch.arange(sum(lengths)) % 4, torch.tensor(begins)]
    if kept:
        check_read(Called(bags), inputs)


@few
@given(
    several(
        st.sampled_from(["sum", "prod", "mean", "amax", "amin"]),
        st.booleans(),
        st.lists(st.integers(0, 4), min_size=1, max_size=6),
    )
)
def test_scatters(drawn: list[tuple[str, bool, list[int]]]) -> None:
    def scattered(x: Any, *given: Any) -> Any:
        return [
            x.scatter_reduce(0, index, source, reduce, include_self=own)
            for index, source, (reduce, own, _) in zip(given[::2], given[1::2], drawn, strict=True)
        ]

    parts = [(torch.tensor(places), numbers(len(places))) for *_, places in drawn]
    check_read(Called(scattered), (numbers(5), *(it for part in parts for it in part)))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("batch_first", [False, True])
def test_recurrences_are_loops_of_one_step(kind: Any, batch_first: bool) -> None:
    torch.manual_seed(0)
    model = kind(3, 4, 2, bidirectional=True, batch_first=batch_first).eval()
    network = check_read(model, (torch.randn(5, 2, 3),))
    loops = [it.operation for it in network.graph.nodes if isinstance(it.operation, Loop)]
    assert [it.trips for it in loops] == [2 if batch_first else 5] * 4


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
def test_a_cell_with_a_projection_and_without_bias() -> None:
    torch.manual_seed(0)
    model = nn.LSTM(3, 4, bias=False, proj_size=2)
    check_read(model, (torch.randn(5, 2, 3),))
    check_read(nn.GRU(3, 4, bias=False), (torch.randn(5, 2, 3), torch.randn(1, 2, 4)))


@pytest.mark.parametrize("masked", ["", "truths", "numbers", "input"])
def test_attention_leaves_zeros_where_a_mask_leaves_nothing(masked: str) -> None:
    kept = torch.tensor([[True, True, False], [False] * 3, [True] * 3, [False, True, False]])
    floats = torch.where(kept, 0.0, -math.inf)

    def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        known = {"truths": kept, "numbers": floats}.get(masked, mask)
        return functional.scaled_dot_product_attention(q, k, v, known)

    parts = [numbers(2, 2, it, 5) for it in (4, 3, 3)]
    check_read(Called(attention), [*parts, *([kept] if masked == "input" else [])])


@pytest.mark.parametrize("kind", ["efficient", "flash", "cudnn"])
def test_kernels_of_gpus_are_attention(kind: str) -> None:
    """Torch names them so where it captures a graph there; gradients need more than the result."""
    kernel = getattr(torch.ops.aten, f"_scaled_dot_product_{kind}_attention").default
    parts = [numbers(2, 3, 4, 8), numbers(2, 3, 5, 8), numbers(2, 3, 5, 8)]
    mask = None if kind == "flash" else numbers(2, 3, 4, 5)
    more = () if kind == "flash" else (mask, False)

    def attention(place: int) -> Any:
        return Called(
            lambda q, k, v: kernel(q, k, v, *more, 0.0, kind == "cudnn", scale=0.3)[place]
        )

    kept = torch.ones(4, 5).tril().log() if kind == "cudnn" else torch.zeros(4, 5)
    bias = kept if mask is None else mask + kept
    wanted = functional.scaled_dot_product_attention(*parts, attn_mask=bias, scale=0.3)
    (found,) = computed(read_torch(attention(0), parts), parts)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(UnsupportedWorkload, match=f"result 1 of node '.*{kind}_attention"):
        read_torch(attention(1), parts)


def test_heads_share_keys() -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    check_read(Called(attention), [numbers(2, it, 6, 8) for it in (4, 2, 2)])


def test_gradients_are_read() -> None:
    """Graphs that a compiler of forward and backward is given."""
    aten: Any = torch.ops.aten

    def backward(image: Any, weight: Any, gradient: Any) -> Any:
        ours = (image, weight, [3], [2, 2], [1, 1], [1, 1], False, [0, 0], 1)
        found = aten.convolution_backward.default(gradient, *ours, [True, True, True])
        pooled, places = aten.max_pool2d_with_indices.default(image, [3, 3], [2, 2], [1, 1])
        return (
            found,
            aten.max_pool2d_with_indices_backward.default(
                pooled, image, [3, 3], [2, 2], [1, 1], [1, 1], False, places
            ),
            aten.avg_pool2d_backward.default(
                pooled, image, [3, 3], [2, 2], [1, 1], False, False, None
            ),
            aten._adaptive_avg_pool2d_backward.default(pooled, image),
        )

    inputs = numbers(2, 2, 7, 8), numbers(3, 2, 3, 3), numbers(2, 3, 4, 4)
    check_read(Called(backward), inputs)


def test_a_branch_and_a_scan_are_graphs_of_the_graph() -> None:
    def branches(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))

    for sign in (1, -1):
        check_read(Called(branches), (sign * torch.ones(3),))


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_loop_that_counts_is_a_loop_of_as_many_steps(trips: int) -> None:
    weights = numbers(3, 3)

    def counted(x: Any, more: Any) -> Any:
        def step(count: Any, x: Any) -> Any:
            return count + 1, torch.tanh(x @ weights) + count + more

        start = torch.zeros((), dtype=torch.int64)
        return while_loop(lambda count, x: count < trips, step, (start, x))[1]

    inputs = numbers(2, 3), numbers(2, 3)
    check_read(Called(counted), inputs)
    nodes = read_torch(Called(counted), inputs).graph.nodes
    assert [it.operation.trips for it in nodes if isinstance(it.operation, Loop)] == [trips][
        :trips
    ]


def _waits(x: Any) -> Any:
    return while_loop(lambda x: x.sum() < 100, lambda x: (x + 1,), (x,))[0]


def _masks(x: Any) -> Any:
    return x[x > 0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_masks, r"node 'index' \(index.Tensor\): .*torch.where"),
        (_waits, r"node 'while_loop' .*use a loop of a fixed number of steps"),
        (torch.nonzero, r"node 'nonzero' .*shape that depends on data"),
        (lambda x: torch.linalg.svd(x)[1], r"node 'linalg_svd' .*not supported"),
        (lambda x: x.shape[0], "returns no tensor"),
        (lambda x: torch.fft.rfft(x), "returns complex numbers"),
    ],
)
def test_what_is_not_supported_is_named(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(UnsupportedWorkload, match=message) as caught:
        read_torch(Called(function).eval(), (torch.ones(3, 3),))
    assert "\n" not in str(caught.value)
