"""Small models of ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper, numpy_helper


def graph_of(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[str, Sequence[int | str]]],
    outputs: Mapping[str, tuple[str, Sequence[int | str]]],
    constants: Mapping[str, Any] | None = None,
) -> Any:
    """A ``GraphProto``; types are names of numpy."""

    def declared(values: Mapping[str, tuple[str, Sequence[int | str]]]) -> list[Any]:
        return [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape)
            )
            for name, (dtype, shape) in values.items()
        ]

    tensors = [
        numpy_helper.from_array(np.asarray(array), name)
        for name, array in (constants or {}).items()
    ]
    return helper.make_graph(nodes, "g", declared(inputs), declared(outputs), tensors)


def model_of(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[str, Sequence[int | str]]],
    outputs: Mapping[str, tuple[str, Sequence[int | str]]],
    constants: Mapping[str, Any] | None = None,
    opset: int = 17,
    domains: Sequence[str] = (),
    functions: Sequence[Any] = (),
) -> Any:
    """A ``ModelProto`` of one graph; as :func:`graph_of`."""
    return helper.make_model(
        graph_of(nodes, inputs, outputs, constants),
        opset_imports=[
            helper.make_opsetid("", opset),
            *(helper.make_opsetid(domain, 1) for domain in domains),
        ],
        ir_version=10,
        functions=functions,
    )
