"""Models of ONNX as graphs.

model_file.py  from a path or an object to a checked model, its tensors and types
call.py        one call of an operator
operators      what operators compute
reader.py      from nodes to values, those that are functions of others, too
source.py      :func:`read_onnx`: inputs of fixed shapes, a graph, and a runtime to compare it with
"""

from __future__ import annotations

from autotune.imports import names_of_stub

__all__, __getattr__ = names_of_stub(__name__, __file__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
