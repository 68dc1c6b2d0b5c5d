"""Tune a linalg function, and export the schedule for mlir-opt."""

from pathlib import Path

from autotune_mlir.backend import MLIRBackend
from torch_mlir import ir

import autotune

PROGRAM = """
func.func @matmul(%a: tensor<128x128xf32>, %b: tensor<128x128xf32>) -> tensor<128x128xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<128x128xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<128x128xf32>) -> tensor<128x128xf32>
  %c = linalg.matmul ins(%a, %b : tensor<128x128xf32>, tensor<128x128xf32>)
    outs(%start : tensor<128x128xf32>) -> tensor<128x128xf32>
  return %c : tensor<128x128xf32>
}
"""

with ir.Context():
    result = autotune.tune(ir.Module.parse(PROGRAM), backend="mlir", trials=16, database="mlir.db")
print(f"{result.best.latency * 1e6:.1f} us")

report = MLIRBackend().export_records([result.best], "transform-library", Path("tuned.mlir"))
print(*report.files)
print(report.usage)
