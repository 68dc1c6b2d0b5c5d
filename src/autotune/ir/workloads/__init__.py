"""Workloads, their reference semantics, and builders for common operators."""

from __future__ import annotations

from autotune.ir.workloads.builders import (
    attention,
    batch_matmul,
    conv1d,
    conv2d,
    conv3d,
    cumsum,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.ir.workloads.inputs import draw_example, random_inputs
from autotune.ir.workloads.padding import Padding, padding_of_stage
from autotune.ir.workloads.reference import reference_outputs
from autotune.ir.workloads.similarity import WorkloadForm, structure_of, without_numbers
from autotune.ir.workloads.tensor import Tensor
from autotune.ir.workloads.workload import Axis, Stage, Workload

__all__ = [
    "Axis",
    "Padding",
    "Stage",
    "Tensor",
    "Workload",
    "WorkloadForm",
    "attention",
    "batch_matmul",
    "conv1d",
    "conv2d",
    "conv3d",
    "cumsum",
    "dense",
    "depthwise_conv2d",
    "elementwise",
    "gemm",
    "padding_of_stage",
    "draw_example",
    "random_inputs",
    "reference_outputs",
    "softmax",
    "structure_of",
    "without_numbers",
]
