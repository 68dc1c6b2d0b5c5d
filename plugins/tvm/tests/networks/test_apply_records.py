"""Records in modules of Relax: the pass, and the pipeline that TVM finds by itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from autotune_tvm import relax_pipelines
from autotune_tvm.backend import TVMBackend
from autotune_tvm.networks.apply_records import ApplyRecords
from entry_points import installed_as_declared
from relax_records import PASSES, cuts, fused, stored
from tvm import relax, tirx

import autotune
from autotune.errors import DatabaseError
from autotune.tuning.api import run_tasks
from autotune.tuning.options import TuneOptions, checked_target
from autotune.tuning.programs import Task

SHAPES = {"x": (8, 32), "w": (32, 48), "b": (48,)}


def network(names: Mapping[str, str]) -> Any:
    """A linear layer with relu, then the sum of it and its exponential; calls not fused yet."""
    builder = relax.BlockBuilder()
    x, w, b = (
        relax.Var(names[name], relax.TensorType(shape, "float32"))
        for name, shape in SHAPES.items()
    )
    with builder.function("main", [x, w, b]):
        with builder.dataflow():
            hidden = builder.emit(relax.op.nn.relu(relax.op.add(relax.op.matmul(x, w), b)))
            out = builder.emit_output(relax.op.nn.softmax(hidden))
        builder.emit_func_output(out)
    return builder.finalize()


def outputs(module: Any) -> Any:
    """Compute the outputs of a module."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in SHAPES.values()]
    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    machine = relax.VirtualMachine(relax.build(module, target), tvm.cpu())
    return machine["main"](*(tvm.runtime.tensor(array) for array in arrays)).numpy()


def functions(module: Any) -> dict[str, Any]:
    return {
        variable.name_hint: function
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc)
    }


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the records of the first function of the network, under other names."""
    first = fused(network({"x": "lv3", "w": "lv4", "b": "lv5"}))
    (linear,) = [it for it in cuts(first, "tvm", checked_target("cpu", 1)) if "matmul" in it.name]
    path = tmp_path_factory.mktemp("records") / "records.db"
    return stored(path, [linear.record()])


def test_found_records_are_applied_and_the_rest_is_untouched(tuned: Path) -> None:
    module = fused(network({"x": "lv69", "w": "lv70", "b": "lv71"}))
    before = functions(module)
    after = functions(ApplyRecords(tuned, threads=1)(module))
    changed = [name for name in before if not before[name].same_as(after[name])]
    assert [("matmul" in name) for name in changed] == [True] and len(before) == 2
    assert after[changed[0]].attrs["tirx.is_scheduled"]
    scheduled = ApplyRecords(tuned, threads=1)(module)
    np.testing.assert_allclose(outputs(scheduled), outputs(module), rtol=1e-5, atol=1e-6)
    again = functions(ApplyRecords(tuned, threads=1)(scheduled))
    assert all(again[name].same_as(after_) for name, after_ in functions(scheduled).items())


@pytest.mark.needs("gcc")
def test_what_the_native_backend_tuned_becomes_kernels_or_tir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = fused(network({"x": "a", "w": "b", "b": "c"}))
    (linear,) = [name for name in functions(module) if "matmul" in name]
    path = tmp_path / "records.db"
    function = functions(module)[linear]
    task = Task(function, imported={"tvm": TVMBackend().import_program(function)})
    options = TuneOptions(database=path, trials=4, threads=1, backend=("native", "tvm"))
    (result,) = run_tasks([task], options, refused={}, fallen={})
    assert result.best is not None and result.backend == "native"
    wanted = outputs(module)
    kernels = ApplyRecords(path, threads=1)(module)
    assert functions(kernels).keys() == functions(module).keys() - {linear}
    np.testing.assert_allclose(outputs(kernels), wanted, rtol=1e-5, atol=1e-6)
    relax_pipelines.register()
    piped = relax.get_pipeline("autotune", database=path, threads=1)(
        network({"x": "a", "w": "b", "b": "c"})
    )
    np.testing.assert_allclose(outputs(piped), wanted, rtol=1e-5, atol=1e-6)
    assert len(functions(piped)) < len(functions(module))
    TVMBackend().export_records([result.best], "metaschedule", tmp_path / "exported")
    with tvm.target.Target({"kind": "llvm", "num-cores": 1}):
        by_tvm = PASSES.MetaScheduleApplyDatabase(str(tmp_path / "exported"))(module)
    assert functions(by_tvm)[linear].attrs["tirx.is_scheduled"]
    monkeypatch.setenv("CC", "/nowhere/cc")
    as_tir = ApplyRecords(path, threads=1, tir=True)(module)
    assert functions(as_tir)[linear].attrs["tirx.is_scheduled"]
    monkeypatch.delenv("CC")
    np.testing.assert_allclose(outputs(as_tir), wanted, rtol=1e-5, atol=1e-6)


def test_the_database_is_the_current_one(tuned: Path) -> None:
    module = fused(network({"x": "a", "w": "b", "b": "c"}))
    before = tuned.read_bytes()
    with autotune.database(tuned):
        apply = ApplyRecords(threads=1)
    assert any(it.attrs.get("tirx.is_scheduled") for it in functions(apply(module)).values())
    assert tuned.read_bytes() == before


def test_a_database_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"nothing\.db.*there is no such file"):
        ApplyRecords(tmp_path / "nothing.db", threads=1)
    relax_pipelines.register()
    with autotune.database(tmp_path / "nothing.db"), pytest.raises(DatabaseError, match="no such"):
        relax.get_pipeline("autotune")


def test_other_threads_have_other_records(tuned: Path) -> None:
    module = fused(network({"x": "a", "w": "b", "b": "c"}))
    applied = functions(ApplyRecords(tuned, threads=2)(module))
    assert not any(it.attrs.get("tirx.is_scheduled") for it in applied.values())


def test_the_pipeline_computes_the_same(tuned: Path) -> None:
    relax_pipelines.register()
    relax_pipelines.register()
    module = network({"x": "lv69", "w": "lv70", "b": "lv71"})
    made = relax.get_pipeline("autotune", database=tuned, threads=1)(module)
    marked = [it for it in functions(made).values() if it.attrs.get("tirx.is_scheduled")]
    assert marked
    np.testing.assert_allclose(outputs(made), outputs(fused(module)), rtol=1e-5, atol=1e-6)


FORMS: Mapping[str, Callable[[Any, Any], Any]] = {
    "tensor": lambda one, _: one,
    "tuple of one": lambda one, _: relax.Tuple([one]),
    "tuples": lambda one, other: relax.Tuple([one, relax.Tuple([other, one])]),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_pipeline_keeps_the_form_of_what_is_returned(tuned: Path, form: str) -> None:
    relax_pipelines.register()
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 32), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = FORMS[form](builder.emit(relax.op.exp(x)), builder.emit(relax.op.tanh(x)))
            out = builder.emit_output(found)
        builder.emit_func_output(out)
    module = builder.finalize()
    made = relax.get_pipeline("autotune", database=tuned, threads=1)(module)
    tvm.ir.assert_structural_equal(made["main"].ret_ty, module["main"].ret_ty)


def test_tvm_finds_the_pipeline_by_itself(tmp_path: Path) -> None:
    """Through the entry points that this distribution declares, without importing autotune."""
    script = (
        "import sys, tvm\n"
        "from tvm import relax\n"
        "print('autotune' in relax.pipeline.PIPELINE_MAP, 'autotune' in sys.modules)\n"
    )
    with installed_as_declared(tmp_path) as environment:
        done = subprocess.run(
            [sys.executable, "-W", "error::UserWarning", "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.stdout.split() == ["True", "False"], done.stderr


@pytest.mark.slow
def test_several_processes_apply_records_at_once(tuned: Path) -> None:
    script = (
        "import sys\n"
        "sys.path[:0] = sys.argv[2:]\n"
        "from test_apply_records import ApplyRecords, functions, fused, network\n"
        "module = fused(network({'x': 'p', 'w': 'q', 'b': 'r'}))\n"
        "found = functions(ApplyRecords(sys.argv[1], threads=1)(module)).values()\n"
        "print(sum(bool(it.attrs.get('tirx.is_scheduled')) for it in found))\n"
    )
    folders = [str(Path(__file__).parent), *filter(None, sys.path)]
    command = [sys.executable, "-c", script, str(tuned), *folders]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=300)[0].strip() for process in running] == ["1", "1"]
