from __future__ import annotations

from attrs import evolve

from autotune.ir.workloads import Workload
from autotune.networks.graph import Value, Window, convolution, input_value, matmul
from autotune.networks.graph_program import task_names


def _of(value: Value, name: str = "") -> Workload:
    assert value.node is not None and isinstance(value.node.operation, Workload)
    return evolve(value.node.operation, name=name or value.node.operation.name)


def test_names_say_operators_and_windows_and_are_all_different() -> None:
    image = input_value("x", (1, 4, 8, 8), "float32")
    square = input_value("s", (4, 4), "float32")
    convolutions = [
        _of(
            convolution(
                image,
                input_value("w", (4, 4, *window), "float32"),
                Window(window, *[(1, 1), (0, 0), (0, 0), (1, 1)]),
            ),
            "convolution+add+max+min",
        )
        for window in ((3, 5), (1, 1), (3, 5))
    ]
    product = _of(matmul(square, square))
    long = evolve(product, name="+".join(["matmul", *["another"] * 9]))
    numbered = evolve(product, name="matmul+2")
    assert task_names([*convolutions, product, numbered, product, long]) == [
        "conv2d_3x5_add_clip",
        "conv2d_1x1_add_clip",
        "conv2d_3x5_add_clip_2",
        "matmul",
        "matmul_2",
        "matmul_3",
        "matmul_another_another_another_another",
    ]
