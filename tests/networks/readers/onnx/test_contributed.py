"""Operators of com.microsoft, beside onnxruntime, which defines them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from attrs import field, frozen
from numpy.typing import NDArray
from onnx import helper
from onnx_models import model_of

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import evaluate
from autotune.networks.readers.onnx import read_onnx

Array = NDArray[Any]
MICROSOFT = "com.microsoft"


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def small(*shape: int, seed: int = 0, dtype: str = "uint8") -> Array:
    """Bytes; of signed ones those that onnxruntime's sums of 16 bits hold on every processor."""
    low, high = (-63, 63) if dtype == "int8" else (0, 255)
    return np.random.default_rng(seed).integers(low, high, shape, dtype, True)


def one(value: float, dtype: str = "float32") -> Array:
    return np.array(value, dtype)


def whole(*numbers: int, dtype: str = "int32") -> Array:
    return np.array(numbers, dtype)


SCALES = one(0.02), one(120, "uint8")


@frozen
class Case:
    """A node with arrays for its inputs, None for those that are left out.

    Attributes:
        kind: The operator.
        inputs: Arrays in order; the first ``given`` are inputs of the model.
        attributes: Of the node.
        outputs: How many outputs are compared; "" among them for those that are not.
        given: How many inputs are not constant.
        step: Largest difference: one step of bytes, where sums are rounded in another order.
    """

    kind: str
    inputs: Sequence[Array | None]
    attributes: Mapping[str, Any] = field(factory=dict)
    outputs: Sequence[str] = ("y",)
    given: int = 1
    step: float = 1e-4


A, B = small(2, 3, 4, seed=1), small(3, 4, seed=2)
X = floats(2, 3, 8)
# Of several rows its threads quantise some each.
LONE = floats(6, 1, 8)
HEADS: dict[str, Any] = {"num_heads": 2}
WEIGHTS, BIAS = 0.3 * floats(8, 24, seed=4), floats(24, seed=5)
Q, K, V = (floats(2, length, 8, seed=length) for length in (3, 5, 5))
PAST = floats(2, 2, 4, 4, seed=6), floats(2, 2, 4, 4, seed=7)
CACHES = floats(10, 2, seed=8), floats(10, 2, seed=9)
IDS = whole(*range(6)).reshape(2, 3)
TABLES = [floats(9, 8, seed=1), floats(5, 8, seed=2), floats(2, 8, seed=3)]
POOL: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [1, 2], "pads": [1, 0, 0, 1]}
IMAGE = small(1, 2, 5, 6, seed=3)

KEYS = tuple(floats(2, 3, 32, seed=it) for it in (1, 2))
OLD = tuple(floats(2, 2, 5, 16, seed=it) for it in (3, 4))
TURNS = tuple(floats(12, 8, seed=it) for it in (5, 6))
PROMPT, NEXT = ((whole(*[total - 1] * 2), one(total, "int32")) for total in (3, 6))
ONE, ONE_KEYS = floats(2, 1, 64), tuple(it[:, :1] for it in KEYS)
MORE, MORE_OLD = (whole(7), one(8, "int32")), tuple(it[:1] for it in OLD)
TURNED = {"do_rotary": 1}
GROUPED: Any = [
    ((floats(2, 3, 64), *KEYS), None, PROMPT, {}),
    ((ONE, *ONE_KEYS), OLD, NEXT, {"scale": 0.3, "softcap": 2.0}),
    ((ONE, *ONE_KEYS), OLD, (*NEXT, *TURNS), TURNED),
    ((floats(1, 3, 64), *(it[:1] for it in KEYS)), MORE_OLD, MORE, {"local_window_size": 3}),
    (
        (floats(2, 3, 128), None, None),
        None,
        (*PROMPT, *TURNS),
        {**TURNED, "rotary_interleaved": 1},
    ),
]

CASES = [
    Case(
        "QLinearAdd",
        (A, *SCALES, B, one(0.05), one(90, "uint8"), one(0.06), one(3, "uint8")),
        step=1,
    ),
    Case("QLinearMul", (A, *SCALES, B, one(0.05), one(90, "uint8"), one(0.1), one(99, "uint8"))),
    Case(
        "QLinearConcat",
        (one(0.1), one(9, "uint8"), A, *SCALES, small(2, 3, 2), one(0.3), one(7, "uint8")),
        {"axis": 2},
        given=0,
    ),
    Case(
        "QLinearWhere",
        (B > 99, B, *SCALES, A, one(0.05), one(90, "uint8"), one(0.06), one(3, "uint8")),
    ),
    Case("QLinearSigmoid", (A, *SCALES, one(1 / 256), one(0, "uint8"))),
    Case("QLinearLeakyRelu", (A, *SCALES, one(0.03), one(40, "uint8")), {"alpha": 0.1}),
    Case("QLinearSoftmax", (A, *SCALES, one(1 / 256), one(0, "uint8")), {"opset": 13, "axis": -1}),
    Case("QLinearSoftmax", (A, *SCALES, one(1 / 256), one(0, "uint8")), {"opset": 11, "axis": 1}),
    Case("QLinearAveragePool", (IMAGE, *SCALES, one(0.01), one(100, "uint8")), POOL, step=1),
    Case("QLinearGlobalAveragePool", (IMAGE, *SCALES, one(0.01), one(100, "uint8")), step=1),
    Case(
        "QLinearGlobalAveragePool",
        (small(1, 5, 6, 2), *SCALES, one(0.01), one(100, "uint8")),
        {"channels_last": 1},
        step=1,
    ),
    Case(
        "QGemm",
        (
            *(small(3, 4), *SCALES, small(5, 4, seed=1, dtype="int8")),
            *(0.01 * np.arange(1, 6, dtype=np.float32), np.zeros(5, np.int8)),
            *(whole(*range(-200, 300, 100)), one(0.5), one(100, "uint8")),
        ),
        {"transB": 1, "alpha": 2.0},
        step=1,
    ),
    Case("QGemm", (small(3, 4), *SCALES, small(4, 5), one(0.1), one(3, "uint8"))),
    Case(
        "MatMulIntegerToFloat",
        (A, small(4, 5), one(0.1), one(0.2), one(3, "uint8"), one(5, "uint8"), floats(5)),
    ),
    Case("DynamicQuantizeMatMul", (X, small(8, 5), one(0.2), one(5, "uint8"), floats(5))),
    Case("DynamicQuantizeMatMul", (X, small(8, 5, dtype="int8"), 0.01 * np.ones(5, np.float32))),
    Case(
        "DynamicQuantizeLSTM",
        (
            *(LONE, small(1, 8, 16, dtype="int8"), small(1, 4, 16, dtype="int8"), floats(1, 32)),
            *(None, floats(1, 1, 4), floats(1, 1, 4, seed=1), floats(1, 12, seed=2)),
            *(whole(0.01, dtype="float32"), whole(0, dtype="int8")) * 2,
        ),
        {"hidden_size": 4},
        outputs=("y", "h", "c"),
    ),
    Case(
        "DynamicQuantizeLSTM",
        (
            *(LONE, small(2, 8, 16), small(2, 4, 16, seed=1), None, None),
            *(None, None, None),
            *(whole(0.01, 0.02, dtype="float32"), whole(120, 130, dtype="uint8")) * 2,
        ),
        {"hidden_size": 4, "direction": "bidirectional"},
    ),
    Case("FusedMatMul", (X, floats(2, 5, 8)), {"transB": 1, "alpha": 0.5}),
    Case("FusedMatMul", (X, floats(2, 3, 5)), {"transA": 1}),
    Case("Gelu", (X,)),
    Case("BiasGelu", (X, floats(8))),
    Case("FastGelu", (X,)),
    Case("FastGelu", (X, floats(8)), step=1e-3),
    Case("QuickGelu", (X,), {"alpha": 1.5}),
    Case(
        "SkipLayerNormalization",
        (X, floats(2, 3, 8, seed=1), floats(8), floats(8, seed=1), floats(8, seed=2)),
        {"epsilon": 1e-5},
        ("y", "", "", "sum"),
        given=2,
    ),
    Case("SkipLayerNormalization", (X, floats(2, 3, 8, seed=1), floats(8)), given=2),
    Case(
        "SkipSimplifiedLayerNormalization",
        (X, floats(2, 3, 8, seed=1), floats(8), floats(8, seed=2)),
        {"epsilon": 1e-5},
        ("y", "", "", "sum"),
        given=2,
    ),
    Case(
        "EmbedLayerNormalization",
        (IDS, IDS % 2, *TABLES, floats(8), floats(8, seed=1), (IDS > 1).astype(np.int32)),
        {},
        ("y", "count"),
        given=2,
    ),
    Case(
        "EmbedLayerNormalization",
        (IDS, None, *TABLES[:2], None, floats(8), floats(8, seed=1), None, IDS % 5),
        {"epsilon": 1e-3},
        ("y", "count"),
    ),
    Case(
        "Attention",
        (X, WEIGHTS, BIAS, whole(1, 1, 0, 1, 1, 1).reshape(2, 3)),
        HEADS,
    ),
    Case("Attention", (X, WEIGHTS, BIAS, whole(2, 3)), HEADS),
    Case("Attention", (X, WEIGHTS, BIAS), {**HEADS, "unidirectional": 1, "scale": 0.3}),
    Case(
        "Attention",
        (X, 0.3 * floats(8, 28), floats(28)),
        {**HEADS, "qkv_hidden_sizes": [8, 8, 12]},
    ),
    Case(
        "Attention",
        (X, WEIGHTS, BIAS, None, floats(2, 2, 2, 4, 4)),
        {**HEADS, "unidirectional": 1},
        ("y", "present"),
    ),
    Case(
        "QAttention",
        (
            *(small(2, 3, 8), small(8, 24, dtype="int8", seed=1), BIAS, one(0.02), one(0.01)),
            *(whole(2, 3), one(120, "uint8"), one(0, "int8")),
        ),
        HEADS,
    ),
    Case("MultiHeadAttention", (Q, K, V, BIAS), HEADS, given=3),
    Case(
        "MultiHeadAttention",
        (Q, K, V, None, whole(1, 1, 0, 1, 1, 0, 1, 1, 1, 1).reshape(2, 5), floats(1, 2, 3, 5)),
        {**HEADS, "scale": 0.4},
        given=3,
    ),
    Case(
        "MultiHeadAttention",
        (Q, floats(2, 3, 8, seed=1), floats(2, 3, 8, seed=2), None, None, None, *PAST),
        {**HEADS, "unidirectional": 1},
        ("y", "key", "value"),
        given=3,
    ),
    Case("MultiHeadAttention", (Q, *PAST), HEADS, given=3),
    *(
        Case(
            "GroupQueryAttention",
            (*given, None if past is None else past[0], None if past is None else past[1], *told),
            {"num_heads": 4, "kv_num_heads": 2, **more},
            ("y", "key", "value"),
            given=1,
        )
        for given, past, told, more in GROUPED
    ),
    *(
        Case(
            "MatMulNBits",
            (
                floats(3, 40),
                small(6, -(-40 // 16), 16 * bits // 8),
                floats(6 * 3, seed=1),
                small(6 * -(-3 * bits // 8), seed=2) if zero else None,
            ),
            {"N": 6, "K": 40, "bits": bits, "block_size": 16},
        )
        for bits, zero in ((4, False), (4, True), (8, True))
    ),
    Case("RotaryEmbedding", (X, whole(3, dtype="int64"), *CACHES)),
    Case(
        "RotaryEmbedding",
        (floats(2, 2, 3, 4), IDS.astype(np.int64), *CACHES),
        {"interleaved": 1},
    ),
    Case(
        "RotaryEmbedding",
        (floats(2, 3, 16), IDS.astype(np.int64), *CACHES),
        {"num_heads": 2, "rotary_embedding_dim": 4},
    ),
]


def model(case: Case) -> Any:
    names = [f"x{at}" if it is not None else "" for at, it in enumerate(case.inputs)]
    named = {name: it for name, it in zip(names, case.inputs, strict=True) if it is not None}
    given = {name: (it.dtype.name, it.shape) for name, it in [*named.items()][: case.given]}
    constants = {name: it for name, it in named.items() if name not in given}
    node = helper.make_node(
        case.kind, names, case.outputs, name="n", domain=MICROSOFT, **case.attributes
    )
    outputs = {name: ("float32", ["?"]) for name in case.outputs if name}
    return model_of([node], given, outputs, constants, domains=[MICROSOFT])


def wanted(case: Case) -> list[Array]:
    from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions

    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.x64quantprecision", "1")
    made = model(case)
    for value in made.graph.output:
        value.ClearField("type")
    session = InferenceSession(made.SerializeToString(), options)
    given = {f"x{at}": case.inputs[at] for at in range(case.given)}
    return [np.asarray(it) for it in session.run(None, given)]


@pytest.mark.needs("onnxruntime")
@pytest.mark.parametrize("case", CASES, ids=lambda it: it.kind)
def test_what_it_computes(case: Case) -> None:
    network = read_onnx(model(case))
    given = {f"x{at}": np.asarray(case.inputs[at]) for at in range(case.given)}
    found = evaluate(network.graph, given)
    right = wanted(case)
    assert len(found) == len(right) == len([it for it in case.outputs if it])
    for array, other in zip(found.values(), right, strict=True):
        assert (array.dtype, array.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(
            array.astype(np.float64), other.astype(np.float64), rtol=1e-4, atol=case.step
        )


def test_what_is_not_supported_is_named() -> None:
    case = Case("Attention", (X, WEIGHTS, BIAS, whole(1, 2, 3, 4)), HEADS)
    with pytest.raises(UnsupportedWorkload, match=r"Attention 'n': a mask of shape \[4\] is not"):
        read_onnx(model(case))
    case = Case(
        "GroupQueryAttention",
        (floats(2, 3, 64), *KEYS, *OLD, whole(3, 4), one(8, "int32")),
        {"num_heads": 4, "kv_num_heads": 2},
        ("y", "key", "value"),
    )
    with pytest.raises(UnsupportedWorkload, match=r"sequences of \[4, 5\] tokens with keys of 8"):
        read_onnx(model(case))
    case = Case("FusedConv", (floats(1, 2, 4, 4), floats(2, 2, 3, 3)))
    with pytest.raises(UnsupportedWorkload, match="optimised by onnxruntime for itself"):
        read_onnx(model(case))
