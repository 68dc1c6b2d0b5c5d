"""Models of ONNX as graphs.

model_file.py  from a path or an object to a checked model
tensors.py     tensors and types
call.py        one call of an operator
functions.py   operators that are functions of others
operators      what operators compute
reader.py      from nodes to values
network.py     :func:`read_onnx`: inputs of fixed shapes, and a graph
"""

from __future__ import annotations

from autotune.networks.readers.onnx.network import OnnxNetwork, read_onnx

__all__ = ["OnnxNetwork", "read_onnx"]
