"""Records of a program apply to every equal one, whatever Relax has numbered in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune_tvm.importer import import_module
from other_names import check_answers_from_records
from tvm import te


def layer(number: int, axes: str) -> Any:
    """A linear layer with bias and relu, its tensors and axes called by number."""
    names = [f"lv{number + offset}" for offset in range(5)]
    x, w, b = (
        te.placeholder(shape, "float32", name)
        for name, shape in zip(names, ((16, 24), (24, 32), (32,)), strict=False)
    )
    k = te.reduce_axis((0, 24), f"{axes}k")
    product = te.compute((16, 32), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), names[3])
    biased = te.compute((16, 32), lambda i, j: te.max(product[i, j] + b[j], 0.0), names[4])
    return te.create_prim_func([x, w, b, biased])


def test_what_was_tuned_as_lv3_is_applied_to_lv69(tmp_path: Path) -> None:
    first, second = layer(3, "v_"), layer(69, "ax")
    workload, _ = import_module(second)
    assert {tensor.name for tensor in workload.inputs} == {"lv69", "lv70", "lv71"}
    one, other = check_answers_from_records(first, second, workload, tmp_path, backend="tvm")
    assert "lv3" in one.workload.tensors and "lv3" not in other.workload.tensors
    assert "lv72" in str(other.require_best().candidate.config)
