"""The benchmark of single operators: its rows, what they compute, what is made of the figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_scripts import benchmark_scripts

# Small shapes of every kind.
SMALL = {
    "conv1d": (1, 9, 3, 4, 3, 2, 1),
    "conv2d": (1, 8, 9, 4, 6, 3, 2, 1, 1, 2),
    "conv3d": (1, 4, 5, 6, 3, 4, 3, 2, 1),
    "conv2d_nchw": (1, 6, 7, 3, 4, 3, 1, 1),
    "conv2d_bn_relu": (1, 6, 7, 3, 4, 3, 2, 1),
    "depthwise": (1, 6, 7, 4, 3, 2, 1),
    "transposed_conv2d": (1, 4, 5, 3, 2, 4, 2, 1),
    "capsule_conv2d": (1, 5, 6, 3, 2, 3, 2, 1),
    "batch_matmul": (2, 5, 6, 7),
    "transposed_matmul": (2, 5, 3, 4),
    "norm": (2, 5, 6),
    "softmax": (5, 6),
    "layer_norm": (5, 6),
    "rms_norm": (5, 6),
    "attention": (2, 5, 4, 1),
    "gelu_mlp": (5, 6, 8),
    "max_pool": (1, 6, 7, 3, 3, 2, 1),
    "average_pool": (1, 6, 8, 3, 2, 2, 0),
    "argmax": (5, 6),
    "concat_transpose": (5, 6),
    "embedding": (9, 4, 5),
    "resize": (1, 4, 5, 3),
    "gemm_bf16": (8, 16, 32),
    "gemm_int8": (32, 16, 8),
}


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    with benchmark_scripts(
        "operators", "support.operator_rows", "support.operator_report"
    ) as found:
        yield found


def measured(scripts: Any, group: str = "SFM", threads: int = 1, **changes: Any) -> Any:
    _, rows, report = scripts
    row = next(row for row in rows.all_rows(1 << 20) if row.group == group)
    fields = {
        "described": {
            "inputs": [{"shape": [256, 256], "dtype": "float32"}],
            "outputs": [{"shape": [256, 256], "dtype": "float32"}],
        },
        "tuned": {"trials": 64},
        "metaschedule": {"trials": 64},
        "final": {
            "autotune": [1.0, 2.0],
            "metaschedule": [2.0, 4.0],
            "torch-eager": [1.5, 3.0],
            "torch-compile": [1.2, 2.4],
            "roofline": [1.2, 2.4],
        },
        "differences": {"autotune": 0.1},
    }
    return report.Measured(row, threads, **{**fields, **changes})


@pytest.mark.needs("tvm")
def test_rows_are_those_of_the_suite(scripts: Any) -> None:
    from tvm.s_tir.meta_schedule.testing.te_workload import CONFIGS as suite

    _, rows, _ = scripts
    found = {group: list(shapes) for group, (_, _, shapes) in rows.SUITE.items()}
    assert found == {name: shapes for name, (_, shapes) in suite.items() if name in found}
    assert set(suite) - set(found) == {"C2D_WIN_NHWC"}


def test_the_reduced_set_is_one_shape_of_eight_operators(scripts: Any) -> None:
    _, rows, _ = scripts
    quick = [row for row in rows.all_rows(1 << 20) if row.quick]
    assert [row.group for row in quick] == [
        g for g in (*rows.SUITE, *rows.OTHERS) if g in rows.QUICK
    ]
    assert len(quick) == 8
    with_theirs = [row for row in rows.all_rows(1) if rows.is_with_metaschedule(row, "one")]
    assert len(with_theirs) == len(rows.SUITE) + len(rows.OTHERS)


def test_large_rows_are_as_large_as_asked(scripts: Any) -> None:
    _, rows, _ = scripts
    large = [row for row in rows.all_rows(100 << 20) if row.family == rows.LARGE]
    assert {row.kind for row in large} == {kind for kind, _ in rows.IN_MEMORY.values()}
    for row in large:
        floats = np.prod(row.arguments) * rows.IN_MEMORY[row.group][1]
        assert 100 << 20 <= 4 * floats < 104 << 20


def test_arithmetic_is_that_of_the_products(scripts: Any) -> None:
    _, rows, _ = scripts
    found = {(row.group, row.position): row.flop for row in rows.all_rows(1 << 20)}
    assert found["GMM", 2] == 2 * 512**3
    assert found["C2D", 2] == 2 * 14 * 14 * 256 * 256 * 9
    assert found["DIL", 2] == 2 * 12 * 12 * 256 * 256 * 9
    assert found["GRP", 2] == found["C2D", 2] // 4
    assert found["DEP", 2] == 2 * 7 * 7 * 512 * 9
    assert found["SFM", 0] == 0


def test_every_process_draws_the_same_inputs(scripts: Any) -> None:
    _, rows, _ = scripts
    specs = [
        {"shape": [3, 2], "dtype": "float32"},
        {"shape": [100], "dtype": "int32", "below": 3},
        {"shape": [100], "dtype": "int8"},
    ]
    one, two = rows.draw(specs, 0), rows.draw(specs, 0)
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert set(one[1]) == {0, 1, 2} and one[2].min() < 0 and str(one[2].dtype) == "int8"


@pytest.mark.slow
@pytest.mark.needs("torch", "tvm")
def test_torch_computes_what_tvm_computes(scripts: Any) -> None:
    import torch
    import tvm

    operators, rows, report = scripts
    known = {row.kind: row for row in rows.all_rows(1 << 20) if row.family != rows.LARGE}
    assert set(SMALL) == set(known)
    with benchmark_scripts("support.operator_programs", "support.operator_torch") as (
        programs,
        in_torch,
    ):
        for kind, arguments in SMALL.items():
            given = known[kind]
            row = rows.Row(given.group, kind, arguments, given.family, 0)
            function = programs.program_of(row)
            specs = [
                {"shape": list(map(int, p.shape)), "dtype": str(p.dtype)} for p in function.params
            ]
            for position, below in row.bounds.items():
                specs[position]["below"] = below
            arrays = rows.draw(specs[:-1], 0)
            output = _of_tvm(tvm, function, arrays, specs)
            for name in report.Measured(row, 1).torch_variants.values():
                if name == in_torch.COMPILED:
                    continue
                tensors = [
                    torch.from_numpy(array).to(getattr(torch, spec["dtype"]))
                    for array, spec in zip(arrays, specs[:-1], strict=True)
                ]
                call, prepared, finish = in_torch.prepared(kind, arguments, tensors, name)
                wanted = finish(call(*prepared))
                wanted = wanted.float() if wanted.dtype == torch.bfloat16 else wanted
                epsilon = operators.EPSILON.get(row.dtype, 0.0)
                found = operators.difference(output, wanted.contiguous().numpy(), epsilon)
                assert found <= 1.0, (kind, name, found)


@pytest.mark.needs("torch")
def test_programs_are_compared_with_what_torch_computes_in_double(
    scripts: Any, tmp_path: Path
) -> None:
    _, rows, _ = scripts
    inputs = [{"shape": [1, 64, 64], "dtype": "float32"}]
    operator = {"operator": "norm", "arguments": [1, 64, 64], "variant": "eager", "threads": 1}
    output = tmp_path / "norm.npy"
    with benchmark_scripts("support.operator_serving") as (serving,):
        serving._torch({**operator, "inputs": inputs, "output": str(output)})
    (array,) = rows.draw(inputs, 0)
    found, exact = np.load(output), np.sqrt(np.sum(array.astype(np.float64) ** 2))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, [exact], rtol=1e-12)


def _of_tvm(tvm: Any, function: Any, arrays: Any, specs: Any) -> Any:
    import ml_dtypes

    given = [
        array.astype(ml_dtypes.bfloat16) if spec["dtype"] == "bfloat16" else array
        for array, spec in zip(arrays, specs, strict=False)
    ]
    built = tvm.compile(
        tvm.IRModule({"main": function}), target=tvm.target.Target({"kind": "llvm"})
    )
    tensors = [tvm.runtime.tensor(array) for array in given]
    output = tvm.runtime.empty(specs[-1]["shape"], specs[-1]["dtype"])
    built.mod["main"](*tensors, output)
    found = output.numpy()
    return found.astype(np.float32) if found.dtype.name == "bfloat16" else found


def test_differences_are_over_what_is_allowed(scripts: Any, tmp_path: Path) -> None:
    operators, _, _ = scripts
    reference = np.ones((4, 4), np.float32)
    allowed = 4 * 2**-11.5
    near = operators.difference(reference + np.float32(allowed / 2), reference, 2.0**-23)
    assert near == pytest.approx(0.5, rel=0.01)
    for wrong in (reference[:2], reference * np.nan):
        assert operators.difference(wrong, reference, 2.0**-23) == float("inf")
    integers = np.arange(4)
    assert operators.difference(integers, integers, 0.0) == 0.0
    assert operators.difference(integers + 1, integers, 0.0) == float("inf")
    np.save(tmp_path / "ours.npy", integers)
    np.save(tmp_path / "torch.npy", integers)
    paths = {name: tmp_path / f"{name}.npy" for name in ("ours", "torch", "none")}
    assert operators.differences(paths, "int8") == {"ours": 0.0}


def test_the_bars(scripts: Any) -> None:
    report = scripts[2]
    found = [measured(scripts), measured(scripts, "GMM"), measured(scripts, "NRM-memory")]
    bars = {bar.name: bar for bar in report.bars_of(found)}
    assert {name: bar.value for name, bar in bars.items()} == {
        "times MetaSchedule, geometric mean of 3": pytest.approx(2.0),
        "times MetaSchedule, the least": 2.0,
        "times torch, products and convolutions, geometric mean of 1": pytest.approx(1.2),
        "times torch, products and convolutions, the least": 1.2,
        "times torch-eager, what memory limits, geometric mean of 2": pytest.approx(1.5),
        "times torch-compile, what memory limits, geometric mean of 2": pytest.approx(1.2),
        "of the bandwidth of memory, the least": pytest.approx(0.8),
        "rows whose output is wrong": 0,
    }
    assert all(bar.holds for bar in bars.values())


def test_bars_of_rows_that_were_not_run_say_so(scripts: Any) -> None:
    bars = scripts[2].bars_of([measured(scripts, metaschedule=None)])
    shown = [str(bar) for bar in bars if not bar.applies]
    assert len(shown) == 5 and all(line.startswith("n/a  ") for line in shown)
    assert all(bar.holds for bar in bars)


def test_what_is_wrong_has_no_figure_and_breaks_a_bar(scripts: Any) -> None:
    wrong = measured(scripts, differences={"autotune": 3.0})
    assert wrong.beside_torch is None and "3 times" in wrong.problem
    bars = scripts[2].bars_of([wrong])
    assert [bar.name for bar in bars if not bar.holds and "wrong" in bar.name]


@pytest.mark.needs("report")
def test_the_roofline_is_drawn(scripts: Any, tmp_path: Path) -> None:
    rates = [
        {"what": "float32", "where": "registers", "rate": 1e11},
        {"what": "read", "where": "L1", "rate": 1e11},
        {"what": "read", "where": "memory", "rate": 1e10},
    ]
    with benchmark_scripts("support.operator_plot") as (plot,):
        plot.save_plot(tmp_path / "roof.svg", [measured(scripts, "GMM")], {1: rates})
    assert "GMM" in (tmp_path / "roof.svg").read_text()
