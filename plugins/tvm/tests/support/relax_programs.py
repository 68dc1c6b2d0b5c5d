"""Programs as Relax makes them; needs TVM."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax


def relax_module() -> Any:
    """A module whose ``main`` calls one function: convolution, bias and relu, fused."""
    builder = relax.BlockBuilder()
    shapes = {"x": (1, 16, 15, 8), "w": (3, 3, 8, 24), "b": (24,)}
    x, w, b = (relax.Var(n, relax.TensorType(s, "float32")) for n, s in shapes.items())
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    with builder.function("main", [x, w, b]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, w, padding=1, strides=2, **layouts))
            out = builder.emit_output(relax.op.nn.relu(relax.op.add(y, b)))
        builder.emit_func_output(out)
    passes = relax.transform
    return tvm.transform.Sequential(
        [
            passes.LegalizeOps(),
            passes.AnnotateTIROpPattern(),
            passes.FuseOps(),
            passes.FuseTIR(),
        ]
    )(builder.finalize())


def relax_convolution() -> Any:
    """Return that function with 64-bit loops and names of its own."""
    functions = relax_module().functions_items()
    (function,) = [f for _, f in functions if isinstance(f, tvm.tirx.PrimFunc)]
    return function
