"""Each pass: what it changes, and that the network computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from autotune_tvm.networks.graph import array_of
from autotune_tvm.networks.passes.boolean_operators import boolean_operators
from autotune_tvm.networks.passes.constant_operands import constant_operands
from autotune_tvm.networks.passes.fold_batch_norms import fold_batch_norms
from autotune_tvm.networks.passes.fold_constants import fold_constants
from autotune_tvm.networks.passes.fold_scales import fold_scales
from autotune_tvm.networks.passes.fuse import canonicalize, fuse, legalize, views
from autotune_tvm.networks.passes.half_factors import half_factors
from autotune_tvm.networks.passes.merge_equal import merge_equal
from autotune_tvm.networks.passes.merge_views import merge_views
from autotune_tvm.networks.passes.sink_views import sink_views
from autotune_tvm.networks.passes.split_transposed import split_transposed
from relax_networks import batch_norm, const, network, op, operators, run, weights
from tvm import relax

from autotune.targets import preset

Pass = Callable[[Any], tuple[Any, str]]


def changed(module: Any, *passes: Pass, tolerance: float = 1e-5) -> Any:
    """The module after some passes, which compute what it did."""
    after = module
    for each in passes:
        after, _ = each(after)
    rng = np.random.default_rng(0)
    inputs = [
        (rng.standard_normal(tuple(map(int, it.ty.shape))) * 2).astype(str(it.ty.dtype))
        for it in module["main"].params
    ]
    for want, got in zip(run(module, *inputs), run(after, *inputs), strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    return after


@pytest.mark.parametrize(
    ("convolution", "data", "kernel", "attributes"),
    [
        (op.nn.conv1d, (2, 4, 9), (8, 4, 3), {}),
        (op.nn.conv2d, (1, 4, 7, 7), (8, 4, 3, 3), {"padding": 1}),
        (op.nn.conv2d, (1, 4, 7, 7), (8, 2, 3, 3), {"groups": 2}),
        (op.nn.conv3d, (1, 4, 5, 5, 5), (8, 4, 3, 3, 3), {"strides": (2, 2, 2)}),
        (op.nn.conv2d_transpose, (1, 4, 5, 5), (4, 8, 4, 4), {"strides": (2, 2)}),
    ],
)
def test_a_batch_norm_goes_into_the_convolution_before_it(
    convolution: Any, data: tuple[int, ...], kernel: tuple[int, ...], attributes: Any
) -> None:
    def body(emit: Any, x: Any) -> Any:
        return emit(batch_norm(emit(convolution(x, const(weights(*kernel)), **attributes)), 8))

    after = changed(network([(data, "float32")], body), fold_batch_norms, fold_scales)
    assert len(operators(after)) == 2 and operators(after)[1] == "add"


def test_a_batch_norm_goes_into_a_product_and_its_bias() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(op.add(const(weights(6)), emit(op.matmul(x, const(weights(5, 6))))))
        return emit(batch_norm(y, 6))

    after = changed(network([((3, 5), "float32")], body), fold_batch_norms, fold_scales)
    assert operators(after) == ["matmul", "add"]


def test_factors_of_what_is_used_twice_stay() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(op.matmul(x, const(weights(5, 6))))
        return emit(op.add(emit(op.multiply(y, const(weights(6)))), y))

    after = changed(network([((3, 5), "float32")], body), fold_scales)
    assert operators(after) == ["matmul", "multiply", "add"]


@pytest.mark.parametrize(
    ("shape", "kernel", "attributes", "factor"),
    [
        # Rows, not columns.
        ((3, 5), (5, 6), None, (3, 1)),
        # Channels of both groups have one axis in these weights.
        ((1, 4, 5, 5), (4, 4, 3, 3), {"groups": 2}, (8, 1, 1)),
    ],
)
def test_factors_that_are_not_the_weights_own_stay(
    shape: Any, kernel: Any, attributes: Any, factor: Any
) -> None:
    def body(emit: Any, x: Any) -> Any:
        w = const(weights(*kernel))
        y = op.matmul(x, w) if attributes is None else op.nn.conv2d_transpose(x, w, **attributes)
        return emit(op.multiply(emit(y), const(weights(*factor))))

    after = changed(network([(shape, "float32")], body), fold_scales)
    assert operators(after)[-1] == "multiply"


def test_a_batch_norm_without_constant_statistics_is_left_to_tvm() -> None:
    def body(emit: Any, x: Any, mean: Any) -> Any:
        one = const(np.ones(4, np.float32))
        found = emit(op.nn.batch_norm(x, one, one, mean, one, axis=1, training=False))
        return emit(relax.TupleGetItem(found, 0))

    module = network([((2, 4, 3), "float32"), ((4,), "float32")], body)
    after = changed(module, fold_batch_norms)
    assert "nn.batch_norm" not in operators(after)


def test_a_causal_mask_becomes_a_constant() -> None:
    def body(emit: Any, x: Any) -> Any:
        row = emit(op.expand_dims(emit(op.arange(0, 6, 1, "int64")), 0))
        column = emit(op.expand_dims(emit(op.arange(0, 6, 1, "int64")), 1))
        full = emit(op.full((6, 6), relax.const(True, "bool"), "bool"))
        mask = emit(op.logical_and(emit(op.less_equal(row, column)), full))
        zero, low = relax.const(0.0, "float32"), relax.const(-1e9, "float32")
        return emit(op.add(x, emit(op.where(mask, zero, low))))

    after, note = fold_constants(network([((2, 6, 6), "float32")], body))
    assert operators(after) == ["add"] and note == "8 folded"
    (mask,) = [array_of(it) for it in after["main"].body.blocks[0].bindings[0].value.args[1:]]
    assert mask is not None and np.array_equal(mask == 0, np.tril(np.ones((6, 6), bool)))


def test_constants_that_would_grow_and_unknown_operators_stay() -> None:
    def body(emit: Any, x: Any) -> Any:
        large = emit(op.broadcast_to(const(weights(1, 1024)), (512, 1024)))
        odd = emit(op.nn.gelu(const(weights(1024))))
        return emit(op.add(emit(op.add(x, large)), odd))

    after, note = fold_constants(network([((512, 1024), "float32")], body))
    assert operators(after) == ["broadcast_to", "nn.gelu", "add", "add"]
    assert note == "constant, but not folded: broadcast_to x1, nn.gelu x1"


def test_views_that_follow_one_another_are_one() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(op.reshape(emit(op.expand_dims(x, 0)), (4, 6)))
        y = emit(op.permute_dims(emit(op.permute_dims(y, [1, 0])), [1, 0]))
        y = emit(op.reshape(y, (1, 1, 24)))
        # Only an axis of length one moves: no element does.
        return emit(op.permute_dims(y, [1, 2, 0]))

    after = changed(network([((2, 3, 4), "float32")], body), merge_views)
    assert operators(after) == ["reshape"]


def test_a_permutation_of_a_permutation_is_one() -> None:
    def body(emit: Any, x: Any) -> Any:
        return emit(op.permute_dims(emit(op.permute_dims(x, [2, 0, 1])), [0, 2, 1]))

    after = changed(network([((2, 3, 4), "float32")], body), merge_views)
    assert operators(after) == ["permute_dims"]


def test_epilogues_are_computed_before_their_reshape() -> None:
    def body(emit: Any, x: Any, rest: Any) -> Any:
        y = emit(op.reshape(emit(op.matmul(x, const(weights(8, 12)))), (2, 3, 12)))
        y = emit(op.add(y, const(weights(12))))
        y = emit(op.nn.gelu(emit(op.add(rest, y))))
        gamma, beta = const(weights(12)), const(weights(12, seed=1))
        return relax.Tuple([emit(op.nn.layer_norm(y, gamma, beta, axes=[-1]))])

    module = network([((6, 8), "float32"), ((2, 3, 12), "float32")], body)
    after = changed(module, sink_views)
    wanted = ["matmul", "add", "reshape", "add", "nn.gelu", "nn.layer_norm", "reshape"]
    assert operators(after) == wanted
    compiled = changed(module, sink_views, legalize, fuse, views)
    assert operators(compiled) == ["reshape", "call_tir", "call_tir", "reshape"]


def test_masks_of_attention_are_added_before_the_reshape_of_scores() -> None:
    def body(emit: Any, q: Any, k: Any) -> Any:
        scores = emit(op.reshape(emit(op.matmul(q, k)), (1, 3, 4, 4)))
        scores = emit(op.add(scores, const(weights(4, 4))))
        scores = emit(op.multiply(scores, const(weights(1, 3, 4, 1))))
        least = emit(op.max(scores, axis=[-1], keepdims=True))
        return emit(op.nn.softmax(emit(op.subtract(scores, least)), axis=-1))

    module = network([((3, 4, 5), "float32"), ((3, 5, 4), "float32")], body)
    after = changed(module, sink_views)
    wanted = ["matmul", "add", "multiply", "max", "subtract", "nn.softmax", "reshape"]
    assert operators(after) == wanted


def test_operands_along_a_part_of_mixed_axes_keep_the_reshape_before() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(op.reshape(emit(op.nn.relu(x)), (2, 3, 4)))
        return emit(op.add(y, const(weights(3, 1))))

    after = changed(network([((6, 4), "float32")], body), sink_views)
    assert operators(after) == ["nn.relu", "reshape", "add"]


def test_reductions_along_reshaped_axes_stay_behind() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(op.reshape(emit(op.nn.relu(x)), (2, 3, 4)))
        return emit(op.sum(y, axis=[1], keepdims=True))

    after = changed(network([((6, 4), "float32")], body), sink_views)
    assert operators(after) == ["nn.relu", "reshape", "sum"]


def test_booleans_are_compared_as_booleans() -> None:
    """LLVM refuses what TVM makes of the original: ``fcmp oeq i1``."""

    def body(emit: Any, x: Any, y: Any) -> Any:
        a, b = (emit(op.greater(it, relax.const(0.0, "float32"))) for it in (x, y))
        same, both = emit(op.equal(a, b)), emit(op.bitwise_and(a, b))
        return emit(op.where(emit(op.bitwise_or(same, both)), x, y))

    module = network([((4, 5), "float32")] * 2, body)
    with pytest.raises(Exception, match="FCmp"):
        run(module, weights(4, 5), weights(4, 5, seed=1))
    after, note = boolean_operators(module)
    assert note == "3 operators"
    x, y = weights(4, 5), weights(4, 5, seed=1)
    same = (x > 0) == (y > 0)
    (found,) = run(after, x, y)
    assert np.array_equal(found, np.where(same | ((x > 0) & (y > 0)), x, y))


def test_pure_views_are_no_calls() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(op.reshape(emit(op.matmul(x, const(weights(4, 6)))), (2, 9)))
        return emit(op.matmul(y, const(weights(9, 5))))

    after = changed(network([((3, 4), "float32")], body), canonicalize, legalize, fuse, views)
    assert operators(after) == ["call_tir", "reshape", "call_tir"]


def test_functions_of_one_structure_are_one() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(op.nn.relu(emit(op.matmul(x, const(weights(4, 4))))))
        return emit(op.nn.relu(emit(op.matmul(y, const(weights(4, 4, seed=1))))))

    module, _ = fuse(legalize(network([((3, 4), "float32")], body))[0])
    (variable,) = [it for it in module.get_global_vars() if it.name_hint != "main"]
    twin = module[variable.name_hint].with_attr("said", "differently")
    module.update_func(tvm.ir.GlobalVar("twin"), twin)
    again, note = merge_equal(module)
    assert note == "1 functions"
    assert len(again.get_global_vars()) == 2


@pytest.mark.parametrize(
    ("transposed", "data", "kernel", "attributes", "wanted"),
    [
        # That of DCGAN's layers.
        (op.nn.conv2d_transpose, (1, 3, 4, 5), (3, 2, 4, 4), {"strides": 2, "padding": 1}, 5),
        (op.nn.conv2d_transpose, (2, 3, 4, 5), (3, 2, 2, 2), {"strides": 2}, 4),
        (
            op.nn.conv2d_transpose,
            (1, 3, 4, 5),
            (3, 2, 3, 5),
            {"strides": (2, 3), "padding": (1, 2), "output_padding": (1, 2)},
            5,
        ),
        (op.nn.conv2d_transpose, (1, 3, 4, 5), (3, 2, 3, 3), {"padding": 1}, 4),
        (op.nn.conv1d_transpose, (2, 3, 7), (3, 2, 5), {"strides": 3, "padding": 2}, 5),
        # One element in space: a product of matrices.
        (op.nn.conv2d_transpose, (2, 3, 1, 1), (3, 2, 4, 4), {}, 3),
        (op.nn.conv2d_transpose, (2, 3, 1, 1), (3, 2, 4, 4), {"strides": 2, "padding": 1}, 3),
    ],
)
def test_transposed_convolutions_are_convolutions(
    transposed: Any, data: Any, kernel: Any, attributes: Any, wanted: int
) -> None:
    def body(emit: Any, x: Any) -> Any:
        return emit(transposed(x, const(weights(*kernel)), **attributes))

    after = changed(network([(data, "float32")], body), split_transposed)
    assert "transpose" not in " ".join(operators(after)) and len(operators(after)) == wanted


@pytest.mark.parametrize(
    "attributes", [{"groups": 3}, {"dilation": 2}, {"padding": 3, "output_padding": 0}]
)
def test_other_transposed_convolutions_stay(attributes: Any) -> None:
    def body(emit: Any, x: Any) -> Any:
        kernel = (3, 1, 3, 3) if "groups" in attributes else (3, 2, 3, 3)
        return emit(op.nn.conv2d_transpose(x, const(weights(*kernel)), **attributes))

    after, note = split_transposed(network([((1, 3, 6, 6), "float32")], body))
    assert operators(after) == ["nn.conv2d_transpose"] and note == ""


def test_tensors_of_one_number_become_the_number() -> None:
    def body(emit: Any, x: Any) -> Any:
        zeros = emit(op.zeros_like(x))
        fill = emit(op.full((4, 5), relax.const(0.5, "float32"), "float32"))
        return emit(op.maximum(emit(op.add(x, fill)), zeros))

    after = changed(network([((4, 5), "float32")], body), constant_operands)
    assert operators(after) == ["add", "maximum"]


def test_tensors_of_one_number_that_give_the_shape_stay() -> None:
    def body(emit: Any, x: Any) -> Any:
        return emit(op.add(x, emit(op.zeros((4, 5), "float32"))))

    after = changed(network([((5,), "float32")], body), constant_operands)
    assert operators(after) == ["zeros", "add"]


def test_powers_of_two_and_of_a_half_are_squares_and_roots() -> None:
    def body(emit: Any, x: Any) -> Any:
        square = emit(op.power(x, relax.const(2.0, "float32")))
        root = emit(op.power(square, relax.const(0.5, "float32")))
        return emit(op.power(root, relax.const(3.0, "float32")))

    after = changed(network([((4, 5), "float32")], body), constant_operands)
    assert operators(after) == ["multiply", "sqrt", "power"]


def test_an_index_that_is_known_is_a_slice() -> None:
    def body(emit: Any, x: Any) -> Any:
        return emit(op.take(x, relax.const(2, "int64"), axis=1))

    after = changed(network([((4, 5, 3), "float32")], body), constant_operands)
    assert operators(after) == ["strided_slice", "reshape"]


@pytest.mark.parametrize("convolve", [op.nn.conv1d, op.nn.conv2d, op.nn.conv3d])
def test_convolutions_of_halves_read_halves_on_devices(convolve: Any) -> None:
    rank = {op.nn.conv1d: 3, op.nn.conv2d: 4, op.nn.conv3d: 5}[convolve]
    data, kernel = (1, 4, 6, 6, 6)[:rank], (3, 4, 2, 2, 2)[:rank]

    def body(emit: Any, x: Any) -> Any:
        wide = emit(op.astype(x, "float32"))
        filters = emit(op.astype(const(weights(*kernel).astype("float16")), "float32"))
        return emit(convolve(wide, filters, out_dtype="float32"))

    before = network([(data, "float16")], body)
    after, note = half_factors(before, preset("h100"))
    assert note == "1 convolutions"
    assert operators(relax.transform.DeadCodeElimination()(after)) == [
        {3: "nn.conv1d", 4: "nn.conv2d", 5: "nn.conv3d"}[rank]
    ]
    x = weights(*data, seed=3).astype("float16")
    for one, other in zip(run(after, x), run(before, x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    same, note = half_factors(before, preset("avx2"))
    assert same is before and note == ""


def test_what_is_summed_otherwise_keeps_its_operands() -> None:
    def body(emit: Any, x: Any, y: Any) -> Any:
        wide = emit(op.astype(x, "float32"))
        kernel = const(weights(3, 4, 2, 2))
        mixed = emit(op.nn.conv2d(wide, kernel, out_dtype="float32"))
        narrow = emit(op.astype(y, "float16"))
        halves = const(weights(3, 4, 2, 2).astype("float16"))
        return emit(op.add(mixed, emit(op.astype(emit(op.nn.conv2d(narrow, halves)), "float32"))))

    module = network([((1, 4, 6, 6), "float16"), ((1, 4, 6, 6), "float32")], body)
    after, note = half_factors(module, preset("h100"))
    assert note == "" and operators(after) == operators(module)
