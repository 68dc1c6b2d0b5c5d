"""Small networks in Relax, with weights; needs TVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from autotune_tvm.compiler import tvm_target
from numpy.typing import NDArray
from tvm import relax

from autotune.targets import Target

Array = NDArray[Any]
op = relax.op


def weights(*shape: int, seed: int = 0) -> Array:
    """Normally distributed numbers."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def const(array: Array) -> Any:
    """A constant of the array's own type."""
    return relax.const(array, str(array.dtype))


def network(shapes: Sequence[tuple[tuple[int, ...], str]], body: Callable[..., Any]) -> Any:
    """A module whose ``main`` returns what ``body(emit, *inputs)`` does."""
    builder = relax.BlockBuilder()
    inputs = [
        relax.Var(f"x{i}", relax.TensorType(shape, dtype))
        for i, (shape, dtype) in enumerate(shapes)
    ]
    with builder.function("main", inputs):
        with builder.dataflow():
            output = builder.emit_output(body(builder.emit, *inputs))
        builder.emit_func_output(output)
    return builder.finalize()


def two_layers() -> Any:
    """Two calls of one function, with weights of their own."""

    def body(emit: Any, x: Any) -> Any:
        for seed in (0, 1):
            x = emit(op.nn.relu(emit(op.matmul(x, const(weights(24, 24, seed=seed))))))
        return x

    return network([((24, 24), "float32")], body)


def run(module: Any, *inputs: Array, target: Target | None = None) -> list[Array]:
    """Run a module with TVM alone, compiled for any processor or for one."""
    described = {"kind": "llvm"} if target is None else tvm_target(target, target.cores)
    # Passes on networks are compared, none of the programs that LLVM optimises: half the time.
    built = relax.build(module, tvm.target.Target({**described, "opt-level": 0}))
    found = relax.VirtualMachine(built, tvm.cpu())["main"](*map(tvm.runtime.tensor, inputs))
    found = [found] if hasattr(found, "numpy") else list(found)
    return [np.asarray(tensor.numpy()) for tensor in found]


def operators(module: Any) -> list[str]:
    """Names of the operators that ``main`` calls, in order."""
    bindings = [it for block in module["main"].body.blocks for it in block.bindings]
    calls = [it.value for it in bindings if isinstance(it.value, relax.Call)]
    return [str(call.op.name).removeprefix("relax.") for call in calls]


def batch_norm(x: Any, channels: int, axis: int = 1, seed: int = 0) -> Any:
    """The first output of a batch norm of inference with constant statistics."""
    gamma, beta, mean = (const(weights(channels, seed=seed + i)) for i in range(3))
    variance = const(np.abs(weights(channels, seed=seed + 3)) + np.float32(0.5))
    found = op.nn.batch_norm(x, gamma, beta, mean, variance, axis=axis, training=False)
    return relax.TupleGetItem(found, 0)


def small_network() -> Any:
    """Convolution, batch norm and relu, then a linear layer: tasks of several kinds."""

    def body(emit: Any, x: Any) -> Any:
        y = emit(op.nn.conv2d(x, const(weights(8, 3, 3, 3)), padding=1, strides=2))
        y = emit(op.nn.relu(emit(batch_norm(y, 8))))
        y = emit(op.reshape(y, (1, 8 * 6 * 6)))
        product = emit(op.matmul(y, const(weights(8 * 6 * 6, 16))))
        return emit(op.nn.gelu(emit(op.add(product, const(weights(16))))))

    return network([((1, 3, 12, 12), "float32")], body)
