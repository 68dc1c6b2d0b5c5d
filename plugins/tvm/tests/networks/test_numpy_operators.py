"""The table of numpy functions against TVM, operator by operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from autotune_tvm.networks.graph import array_of, operator_of
from autotune_tvm.networks.numpy_operators import OPERATORS
from autotune_tvm.networks.passes.fold_constants import fold_constants
from relax_networks import const, network, op, operators, run, weights
from tvm import relax, tirx

X = weights(4, 6)
Y = weights(4, 6, seed=1)
POSITIVE = np.abs(X) + np.float32(0.25)
WHOLE = np.arange(-12, 12, dtype=np.int32).reshape(4, 6)
DIVISORS = np.array([1, 2, 3, -4, 5, -7], np.int32)
BITS = X > 0
INDICES = np.array([[3, 0], [2, 2]], np.int64)

UNARY = (
    op.abs,
    op.ceil,
    op.cos,
    op.erf,
    op.exp,
    op.floor,
    op.isfinite,
    op.isinf,
    op.isnan,
    op.negative,
    op.nn.relu,
    op.round,
    op.sigmoid,
    op.sign,
    op.sin,
    op.square,
    op.tanh,
    op.trunc,
)
BINARY = (
    op.add,
    op.divide,
    op.equal,
    op.greater,
    op.greater_equal,
    op.less,
    op.less_equal,
    op.maximum,
    op.minimum,
    op.multiply,
    op.not_equal,
    op.subtract,
)

CASES: dict[str, Any] = {
    **{each.__name__: each(const(X)) for each in UNARY},
    **{each.__name__: each(const(X), const(Y)) for each in BINARY},
    **{name: getattr(op, name)(const(POSITIVE)) for name in ("log", "rsqrt", "sqrt")},
    **{
        name: getattr(op, name)(const(BITS), const(Y > 0))
        for name in ("logical_and", "logical_or", "logical_xor")
    },
    **{
        name: getattr(op, name)(const(WHOLE), const(DIVISORS))
        for name in (
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "floor_divide",
            "floor_mod",
        )
    },
    "divide of whole numbers": op.divide(const(WHOLE), const(DIVISORS)),
    "equal of NaN": op.equal(const(X), const(X * np.float32(np.nan))),
    "power": op.power(const(POSITIVE), const(Y)),
    "logical_not": op.logical_not(const(BITS)),
    "bitwise_not": op.bitwise_not(const(WHOLE)),
    "where": op.where(const(BITS), const(X), const(Y)),
    "clip": op.clip(const(X), -0.5, 0.5),
    "matmul": op.matmul(const(X), const(weights(6, 3))),
    "matmul of batches": op.matmul(const(weights(2, 4, 6)), const(weights(6, 3))),
    "arange": op.arange(3, 20, 2, "int64"),
    "astype": op.astype(const(X * 4), "int32"),
    "astype to bool": op.astype(const(WHOLE), "bool"),
    "astype to half": op.astype(const(X), "float16"),
    "broadcast_to": op.broadcast_to(const(X), (2, 4, 6)),
    "concat": op.concat([const(X), const(Y)], 1),
    "cumsum": op.cumsum(const(WHOLE), 1),
    "cumsum exclusive": op.cumsum(const(WHOLE), 0, exclusive=True),
    "cumprod": op.cumprod(const(X), 1),
    "expand_dims": op.expand_dims(const(X), [0, -1]),
    "flatten": op.flatten(const(X)),
    "flip": op.flip(const(X), 1),
    "full": op.full((2, 3), relax.const(7, "int64"), "int64"),
    "full_like": op.full_like(const(X), relax.const(2.5, "float32")),
    "gather_elements": op.gather_elements(const(X), const(np.abs(WHOLE.astype(np.int64)) % 4), 0),
    "index_tensor": op.index_tensor(const(X), [const(INDICES), const(INDICES)]),
    "one_hot": op.one_hot(const(INDICES), tirx.const(2, "int32"), tirx.const(-1, "int32"), 4, -1),
    "ones": op.ones((2, 3), "float16"),
    "ones_like": op.ones_like(const(X)),
    "permute_dims": op.permute_dims(const(weights(2, 3, 4)), [2, 0, 1]),
    "permute_dims reversed": op.permute_dims(const(weights(2, 3, 4))),
    "repeat": op.repeat(const(X), 2, 1),
    "repeat of all": op.repeat(const(X), 3),
    "reshape": op.reshape(const(X), (3, 8)),
    "squeeze": op.squeeze(const(weights(1, 4, 1)), [0]),
    "stack": op.stack([const(X), const(Y)], 1),
    "strided_slice": op.strided_slice(const(X), [1], [1], [6], [2]),
    "strided_slice from the end": op.strided_slice(const(X), [0, 1], [-3, 0], [4, -1], [1, 2]),
    "take": op.take(const(X), const(INDICES), 0),
    "take of all": op.take(const(X.reshape(-1)), const(INDICES), 0, mode="clip"),
    "tile": op.tile(const(X), (2, 1, 3)),
    "tril": op.tril(const(X), -1),
    "triu": op.triu(const(X), 1),
    "zeros": op.zeros((2,), "int8"),
    "zeros_like": op.zeros_like(const(WHOLE)),
    **{
        f"{name} of {kind}": getattr(op, name)(const(X), **attributes)
        for name in ("max", "mean", "min", "prod", "sum")
        for kind, attributes in (
            ("an axis", {"axis": [1], "keepdims": True}),
            ("all", {}),
        )
    },
    "split": op.split(const(X), 2, 1),
    "split at": op.split(const(X), [1, 3], 0),
}


def test_every_operator_has_a_case() -> None:
    assert {operator_of(call) for call in CASES.values()} == set(OPERATORS)


@pytest.fixture(scope="module")
def from_tvm() -> dict[str, Any]:
    """What TVM computes: all cases in one program, which is compiled once."""
    call_of = list(CASES.values())

    def body(emit: Any) -> Any:
        return emit(relax.Tuple([emit(call) for call in call_of]))

    built = relax.build(network([], body), tvm.target.Target({"kind": "llvm", "opt-level": 0}))
    found = relax.VirtualMachine(built, tvm.cpu())["main"]()
    return dict(zip(CASES, found, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_numpy_computes_what_tvm_does(case: str, from_tvm: dict[str, Any]) -> None:
    module = network([], lambda emit: emit(CASES[case]))
    folded, note = fold_constants(module)
    assert note == "1 folded" and not operators(folded)
    result = folded["main"].body.blocks[0].bindings[-1].value
    wanted = from_tvm[case]
    pairs = (
        [(result, wanted)] if hasattr(wanted, "numpy") else zip(result.fields, wanted, strict=True)
    )
    for constant, want in pairs:
        got = array_of(constant)
        assert got is not None and got.dtype == want.numpy().dtype
        np.testing.assert_allclose(got, want.numpy(), rtol=2e-6, atol=2e-6)


def test_indices_out_of_bounds_and_slices_backwards_are_left_to_tvm() -> None:
    wrong = const(np.array([9]))
    for call in (
        op.take(const(X), wrong, 0),
        op.strided_slice(const(X), [0], [3], [0], [-1]),
    ):
        folded, note = fold_constants(network([], lambda emit, call=call: emit(call)))
        assert operators(folded) and "not folded" in note
    assert run(folded)
