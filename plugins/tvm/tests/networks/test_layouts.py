"""Tensors of convolutions with the channels last: what is changed, and which form is chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from autotune_tvm.networks import pipeline
from autotune_tvm.networks.passes import layouts
from autotune_tvm.networks.passes.channels_last import channels_last, force_channels_last
from autotune_tvm.networks.passes.layouts import choose_layout, expected_speedup
from autotune_tvm.networks.passes.merge_views import merge_views
from relax_networks import batch_norm, const, network, op, operators, run, weights
from thinning import thinned
from tvm import relax

from autotune.targets import Target

Body = Callable[[Any, Any], Any]


def converted(module: Any) -> list[str]:
    """The operators of the network with the channels last, which computes the same."""
    after, _ = channels_last(module)
    after, _ = merge_views(after)
    rng = np.random.default_rng(0)
    inputs = [
        rng.standard_normal(tuple(map(int, it.ty.shape))).astype(np.float32)
        for it in module["main"].params
    ]
    for want, got in zip(run(module, *inputs), run(after, *inputs), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    return operators(after)


def conv(emit: Any, x: Any, *kernel: int, seed: int = 0, **attributes: Any) -> Any:
    """A convolution with a bias."""
    rank = len(kernel) - 2
    convolution = getattr(op.nn, f"conv{rank}d")
    y = emit(convolution(x, const(weights(*kernel, seed=seed)), **attributes))
    return emit(op.add(y, const(weights(kernel[0], *[1] * rank, seed=seed + 1))))


@pytest.mark.parametrize(
    ("data", "kernel", "attributes"),
    [
        ((2, 4, 9), (8, 4, 3), {"strides": 2}),
        ((1, 4, 7, 6), (8, 4, 3, 3), {"padding": (1, 0, 2, 1)}),
        ((1, 4, 7, 7), (8, 2, 3, 3), {"groups": 2, "dilation": 2}),
        ((1, 4, 7, 7), (4, 1, 3, 3), {"groups": 4}),
        ((1, 4, 7, 7), (8, 4, 1, 1), {"strides": 2}),
        ((1, 4, 4, 5, 5), (8, 4, 2, 3, 3), {"strides": (1, 2, 2)}),
    ],
)
def test_permutations_are_left_at_the_borders(data: Any, kernel: Any, attributes: Any) -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(op.clip(conv(emit, x, *kernel, **attributes), 0, 6))
        return conv(emit, y, 5, kernel[0], *[2] * (len(kernel) - 2))

    found = converted(network([(data, "float32")], body))
    name = f"nn.conv{len(kernel) - 2}d"
    assert found == ["permute_dims", name, "add", "clip", name, "add", "permute_dims"]


def test_convolutions_of_one_element_are_products() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(op.nn.relu(conv(emit, x, 8, 4, 1, 1)))
        return emit(op.add(conv(emit, y, 8, 8, 1, 1, seed=2), y))

    found = converted(network([((2, 4, 3, 5), "float32")], body))
    assert found.count("matmul") == 2 and found.count("permute_dims") == 2
    assert "nn.conv2d" not in found


def pooled(emit: Any, y: Any) -> Any:
    y = emit(op.nn.max_pool2d(y, 2, 2))
    y = emit(op.nn.avg_pool2d(y, 2, 1, padding=1, count_include_pad=True))
    return emit(op.nn.adaptive_avg_pool2d(y, (2, 2)))


def joined(emit: Any, y: Any) -> Any:
    both = emit(op.concat([y, emit(op.nn.relu(y))], 1))
    left, right = (emit(relax.TupleGetItem(emit(op.split(both, 2, 1)), i)) for i in (0, 1))
    return emit(op.multiply(left, emit(op.strided_slice(right, [2], [0], [8]))))


def excited(emit: Any, y: Any) -> Any:
    scale = emit(op.mean(y, [2, 3], keepdims=True))
    scale = emit(op.sigmoid(conv(emit, scale, 6, 6, 1, 1, seed=7)))
    return emit(op.multiply(scale, y))


def normalised(emit: Any, y: Any) -> Any:
    y = emit(op.nn.pad(y, [0, 0, 1, 0, 0, 2, 1, 1]))
    y = emit(op.nn.softmax(y, 1))
    return emit(op.strided_slice(y, [1, 2], [1, 0], [7, 8]))


def shuffled(emit: Any, y: Any) -> Any:
    y = emit(op.reshape(y, (1, 2, 3, 8, 8)))
    y = emit(op.permute_dims(y, [0, 2, 1, 3, 4]))
    return emit(op.reshape(y, (1, 6, 8, 8)))


def resized(emit: Any, y: Any) -> Any:
    return emit(op.image.resize2d(y, (5, 5), layout="NCHW", method="linear"))


@pytest.mark.parametrize(
    ("between", "permutations"),
    thinned(
        [(pooled, 1), (joined, 2), (excited, 2), (normalised, 2), (shuffled, 3), (resized, 2)], 3
    ),
)
def test_what_is_between_convolutions_is_computed_as_it_is_stored(
    between: Body, permutations: int
) -> None:
    def body(emit: Any, x: Any) -> Any:
        y = between(emit, conv(emit, x, 6, 3, 3, 3, padding=1))
        return conv(emit, y, 4, 6, 1, 1, strides=2, seed=3)

    found = converted(network([((1, 3, 8, 8), "float32")], body))
    assert found.count("permute_dims") == permutations


def test_pixels_are_shuffled_by_one_permutation() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = conv(emit, x, 8, 3, 3, 3, padding=1)
        y = emit(op.reshape(y, (1, 2, 2, 2, 5, 5)))
        y = emit(op.reshape(emit(op.permute_dims(y, [0, 1, 4, 2, 5, 3])), (1, 2, 10, 10)))
        return conv(emit, y, 4, 2, 3, 3)

    assert converted(network([((1, 3, 5, 5), "float32")], body)).count("permute_dims") == 3


def test_a_flattened_image_needs_no_permutation() -> None:
    """The patches of a vision transformer: channels are the last axis of the tokens."""

    def body(emit: Any, x: Any) -> Any:
        y = conv(emit, x, 8, 3, 4, 4, strides=4)
        y = emit(op.permute_dims(emit(op.reshape(y, (1, 8, 9))), [0, 2, 1]))
        return emit(op.add(y, const(weights(1, 9, 8))))

    assert converted(network([((1, 3, 12, 12), "float32")], body)).count("permute_dims") == 1


def test_other_operators_get_the_order_of_the_model() -> None:
    def body(emit: Any, x: Any, other: Any) -> Any:
        y = conv(emit, x, 6, 3, 3, 3)
        y = emit(op.add(emit(batch_norm(emit(op.add(y, other)), 6)), other))
        return emit(op.matmul(emit(op.cumsum(y, 1)), const(weights(4, 2))))

    found = converted(network([((1, 3, 6, 6), "float32"), ((1, 6, 4, 4), "float32")], body))
    assert "nn.batch_norm" in found and "nn.conv2d" in found


def test_networks_without_convolutions_stay(target: Target) -> None:
    def body(emit: Any, x: Any, kernel: Any) -> Any:
        return emit(op.nn.relu(emit(op.nn.conv2d(x, kernel))))

    shapes = [((1, 3, 6, 6), "float32"), ((4, 3, 3, 3), "float32")]
    module = network(shapes, body)
    assert channels_last(module)[0] is module  # the weights are no constants
    assert choose_layout(module, target)[0] is module


def residual(channels: int) -> Any:
    """A bottleneck of a residual network."""

    def body(emit: Any, x: Any) -> Any:
        y = emit(op.nn.relu(conv(emit, x, channels, channels, 1, 1)))
        y = emit(op.nn.relu(conv(emit, y, channels, channels, 3, 3, seed=3, padding=1)))
        return emit(op.add(conv(emit, y, channels, channels, 1, 1, seed=5), y))

    return network([((1, channels, 14, 14), "float32")], body)


def test_the_form_that_is_expected_to_be_faster_is_chosen(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = residual(32)
    after, _ = channels_last(module)
    speedup = expected_speedup(module, after, target)
    assert speedup is not None and speedup == expected_speedup(module, after, target)
    assert expected_speedup(after, module, target) == pytest.approx(1 / speedup)
    for told, changes in ((1.5, True), (1.01, False), (0.5, False), (None, False)):
        monkeypatch.setattr(layouts, "expected_speedup", lambda *_, told=told: told)
        chosen, note = choose_layout(module, target)
        assert (chosen is not module) == changes
        assert "3 convolutions" in note


def test_the_chosen_form_is_not_cut_again(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()

    def counted(each: Any) -> Any:
        def run_pass(module: Any) -> Any:
            calls[each.__name__] += 1
            return each(module)

        return run_pass

    passes = list(map(counted, pipeline.AFTERWARDS))
    monkeypatch.setattr(pipeline, "AFTERWARDS", passes)
    monkeypatch.setattr(pipeline, "user_file", lambda: None)
    module, _ = pipeline.run_passes(residual(32), target, target.cores)
    assert set(calls.values()) == {2} and len(calls) == len(passes)
    plain, _ = pipeline.run_passes(
        residual(32), target, target.cores, {"layouts": lambda it: chosen_form(it, target)}
    )
    assert set(calls.values()) == {3}
    tvm.ir.assert_structural_equal(module, plain)


def chosen_form(module: Any, target: Target) -> Any:
    return choose_layout(module, target)[0]


def test_permutations_count(target: Target) -> None:
    def form(permuted: bool) -> Any:
        def body(emit: Any, x: Any) -> Any:
            x = emit(op.permute_dims(x, [0, 2, 1])) if permuted else x
            return emit(op.matmul(emit(op.nn.relu(x)), const(weights(64, 8))))

        return network([((64, 64, 64), "float32")], body)

    speedup = expected_speedup(form(False), form(True), target)
    assert speedup is not None and speedup < 1


def test_the_pass_is_replaceable_by_either_form(target: Target) -> None:
    module = residual(32)
    for given, products in ((None, 0), (force_channels_last, 2)):
        after, reports = pipeline.run_passes(module, target, 1, {"layouts": given})
        names = [str(variable.name_hint) for variable in after.get_global_vars()]
        assert sum("matmul" in name for name in names) == products
        assert [it.name for it in reports] == list(pipeline.PASS_NAMES)
