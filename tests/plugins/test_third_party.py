"""Distributions as third parties would write them: each is named on the command line."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from toy_parts import TOY_SPACE

from autotune.backends import Backend
from autotune.cli.app import run
from autotune.errors import (
    InvalidValueError,
    PluginError,
    UnknownNameError,
    UnsupportedWorkload,
)
from autotune.ir.workloads import Workload, gemm, random_inputs, reference_outputs, softmax
from autotune.measure.validation import expectations, mismatch
from autotune.nest import derive_nest
from autotune.plugins.importer import import_workload
from autotune.plugins.manager import DISABLE_VARIABLE, manager
from autotune.plugins.parts import create_part
from autotune.sketches import STEP_CLASSES, Candidate, OpenStep, names_used
from autotune.spaces import ScheduleLimits, SearchSpace, SpaceContext
from autotune.store.sqlite import open_database
from autotune.targets import Target, preset
from autotune.testing.reference_backend import REFERENCE_BACKEND, ReferenceBackend
from autotune.tuning.api import tune_tasks
from autotune.tuning.programs import Task

ROOT = Path(__file__).parents[2]
Install = Callable[..., None]
Tune = Callable[..., dict[str, Any]]


def sources_of(name: str) -> Path:
    """The sources of a distribution by its package: of the tests, or shown in the docs."""
    shown = ROOT / "docs" / "examples" / name.replace("_", "-") / "src"
    return shown if shown.exists() else ROOT / "tests" / "third_party" / name / "src"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs distributions by name: their sources, and what their wheels would say of them."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    names: list[str] = []

    def installed(*given: str) -> None:
        for name in given:
            info = site / f"{name}-0.1.0.dist-info"
            info.mkdir()
            entry = f"[autotune]\n{name.removeprefix('autotune_')} = {name}.plugin\n"
            (info / "entry_points.txt").write_text(entry)
            (info / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n"
            )
            monkeypatch.syspath_prepend(str(sources_of(name)))
            names.append(name)
        importlib.invalidate_caches()
        manager.cache_clear()

    yield installed
    manager.cache_clear()
    for module in [module for module in sys.modules if module.split(".")[0] in names]:
        if not module.startswith("autotune_npu"):  # a step is known as long as its class
            del sys.modules[module]


@pytest.fixture
def tune(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tune:
    """Runs ``autotune tune`` in this process; returns the result file."""

    def tuned(*arguments: str, database: str = "") -> dict[str, Any]:
        path, usual = tmp_path / "result.json", str(tmp_path / "records.db")
        given = ["tune", *arguments, "--backend", REFERENCE_BACKEND, "--threads", "1"]
        given += ["--trials", "6", "--quiet", "--json", str(path)]
        status = run([*given, "--database", database or usual])
        assert status == 0, capsys.readouterr().err
        result: dict[str, Any] = json.loads(path.read_text())
        return result

    return tuned


GEMM = ("gemm", "--shape", "m=8,n=8,k=8")
SCRIPTED = ("--measurer", "scripted", "--cost-model", "random")


def test_marked_and_unmarked_functions_bring_parts(install: Install, tune: Tune) -> None:
    install("autotune_hill_climb", "autotune_scripted")
    result = tune(*GEMM, *SCRIPTED, "--strategy", "hill-climb", "--space", TOY_SPACE)
    assert result["strategy"] == "hill-climb"
    assert result["protocol"].endswith("+scripted")
    marked, unmarked = (
        manager().get_plugin(name)
        for name in ("autotune_hill_climb:hill_climb", "autotune_scripted:scripted")
    )
    assert hasattr(marked.autotune_parts, "autotune_impl")
    assert not hasattr(unmarked.autotune_parts, "autotune_impl")


EXAMPLES = {
    "autotune_hill_climb": ("--strategy", "hill-climb"),
    "autotune_least_traffic": ("--pruning-model", "least-traffic"),
    "autotune_nearest": ("--cost-model", "nearest"),
    "autotune_powers_of_two": ("--space", "powers-of-two"),
}


@pytest.mark.parametrize(("example", "swap"), EXAMPLES.items(), ids=EXAMPLES)
def test_an_example_is_swapped_in_by_name(
    install: Install,
    tune: Tune,
    monkeypatch: pytest.MonkeyPatch,
    example: str,
    swap: tuple[str, str],
) -> None:
    install(example, "autotune_scripted")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # of the models' process
    usual = ("gemm", "--shape", "m=64,n=64,k=64", *SCRIPTED, "--round-size", "2")
    before, after = tune(*usual), tune(*usual, *swap)
    for result in (before, after):
        assert result["outcomes"]["ok"] == 6
    assert before["run"]["id"] != after["run"]["id"]
    assert [best for *_, best in before["history"]] != [best for *_, best in after["history"]]


def test_an_example_of_a_scheduler_is_swapped_in_by_name(install: Install, tmp_path: Path) -> None:
    install("autotune_slowest_first", "autotune_scripted")
    tasks = [Task(gemm(m=n, n=8, k=8), name=str(n)) for n in (8, 32)]
    trials = {}
    for scheduler in ("round-robin", "slowest-first"):
        parts = {"task_scheduler": scheduler, "measurer": "scripted", "cost_model": "random"}
        results = tune_tasks(
            tasks,
            parts=parts,
            backend=REFERENCE_BACKEND,
            threads=1,
            trials=16,
            round_size=2,
            database=str(tmp_path / scheduler),
        )
        trials[scheduler] = [result.trials for result in results]
    assert trials["round-robin"] == [8, 8]
    small, large = trials["slowest-first"]
    assert 2 <= small < 8 < large and small + large == 16


def test_a_rule_takes_part_where_the_space_names_it(install: Install, tune: Tune) -> None:
    install("autotune_strips", "autotune_scripted")
    named, usual = tune(*GEMM, *SCRIPTED, "--space", "sketch+strips"), tune(*GEMM, *SCRIPTED)
    assert named["space"] != usual["space"]
    assert named["best"]["sketch"]["name"] == "strips"


def test_sketches_of_a_rule_are_shown_and_explained(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install("autotune_strips")
    space = (*GEMM, "--backend", REFERENCE_BACKEND, "--space", "sketch+strips")
    assert run(["show", *space, "--sketch", "strips"]) == 0
    assert "parallel" in capsys.readouterr().out
    assert run(["show", *space, "--sketch", "direct"]) == 2
    assert "available: strips" in capsys.readouterr().err
    config = tmp_path / "config.json"
    given = {"C.i.strips": 4, "C.i.rows": 2}
    config.write_text(json.dumps({"sketch": "strips", "config": given}))
    assert run(["explain", *space, "--config", str(config), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["candidate"]["config"] == given


def test_what_is_installed_changes_no_other_run(install: Install, tune: Tune) -> None:
    install("autotune_scripted")
    before = tune(*GEMM, *SCRIPTED)
    install("autotune_strips", "autotune_npu", "autotune_hill_climb")
    after = tune(*GEMM, *SCRIPTED)
    assert after["run"]["from_records"] and after["run"]["id"] == before["run"]["id"]


def test_a_kind_of_target_a_step_and_an_importer(
    install: Install, tune: Tune, tmp_path: Path
) -> None:
    install("autotune_npu", "autotune_scripted")
    program = tmp_path / "products.txt"
    program.write_text("small 8 8 16\nlarge 16 32 16\n")
    arguments = (str(program), "--importer", "sizes", "--function", "large", *SCRIPTED)
    result = tune(*arguments, "--target", "tiny-npu", "--space", "sketch+npu")
    assert result["target"]["kind"] == "npu"
    assert result["task"]["workload"]["name"] == "large"
    steps = [step["step"] for step in result["best"]["sketch"]["steps"]]
    assert steps == ["innermost", "strip"]


def npu_space(workload: Workload, limits: ScheduleLimits) -> SearchSpace:
    context = SpaceContext(workload=workload, target=preset("haswell"), limits=limits)
    space: SearchSpace = create_part("search_space", "sketch+npu", context)
    return space


def test_steps_have_an_effect_on_the_nest_and_on_every_backend(install: Install) -> None:
    install("autotune_npu")
    workload = gemm(m=8, n=4, k=6)
    limits = ReferenceBackend().limits(preset("haswell"))
    (sketch,) = npu_space(workload, limits).sketches()
    assert names_used(sketch) == {"innermost", "tile", "parallel"}
    statement = max(derive_nest(sketch).statements, key=lambda each: len(each.loops))
    loops = [(loop.name.partition(".")[2], loop.kind) for loop in statement.loops]
    assert loops == [
        ("i.0", "parallel"),
        ("i.1", "serial"),
        ("j.0", "serial"),
        ("k.0", "serial"),
        ("j.1", "serial"),
    ]
    (candidate,) = npu_space(workload, limits).sample(1, np.random.default_rng(0))
    again = Candidate.from_json(json.loads(json.dumps(candidate.to_json())), workload)
    assert again == candidate and again.digest == candidate.digest


def test_an_element_type_is_tuned_stored_and_read_back(
    install: Install, tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("autotune_npu")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # of the workers
    arguments = (*GEMM, "--dtype", "tf32", "--cost-model", "random")
    first = tune(*arguments)
    assert first["task"]["workload"]["inputs"][0] == ["A", [8, 8], "tf32"]
    assert first["outcomes"]["ok"] == first["trials"]
    again = tune(*arguments)
    assert again["run"]["from_records"] and again["best"] == first["best"]
    assert tune(*GEMM, "--cost-model", "random")["run"]["id"] != first["run"]["id"]


def test_an_element_type_decides_how_results_are_judged(install: Install) -> None:
    install("autotune_npu")
    rounded = []
    for dtype in ("tf32", "float32"):
        workload = gemm(m=8, n=4, k=6, dtype=dtype)
        inputs = random_inputs(workload, np.random.default_rng(0))
        (right,) = reference_outputs(workload, inputs).values()
        assert right.dtype == np.float32 and workload.tensors["C"].bytes == 8 * 4 * 4
        expected = expectations(workload, [right])
        rounded.append(mismatch(expected, [right * np.float32(1 + 2**-10)]))
        assert mismatch(expected, [right * np.float32(1.5)]) is not None
    assert rounded[0] is None and rounded[1] is not None


def test_an_element_type_is_refused_by_whom_it_is_foreign_to(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("autotune_npu")
    workload = gemm(m=8, n=4, k=6, dtype="tf32")
    with pytest.raises(UnsupportedWorkload, match="'reference' does not know dtype 'tf32'"):
        Backend.check_workload(ReferenceBackend(), workload)
    assert softmax(m=2, n=3, dtype="tf32").dtypes == {"tf32"}
    data = workload.to_json()
    monkeypatch.setenv(DISABLE_VARIABLE, "npu")
    manager.cache_clear()
    for kind in ("tf32", "os:getcwd"):
        text = json.dumps(data).replace("tf32", kind)
        with pytest.raises(
            InvalidValueError, match=f"'A': unknown dtype {kind!r}; .*'npu' is disabled"
        ):
            Workload.from_json(json.loads(text))


def test_a_backend_that_lacks_a_step_is_not_offered_it(install: Install) -> None:
    install("autotune_npu")
    reading = ScheduleLimits(frozenset({"tile", "parallel"}), 1 << 16, 512, "this test")
    importlib.import_module("autotune_npu.steps")
    assert reading.missing(["innermost", "tile"]) == ("innermost",)
    assert evolve(reading, runs_nests=True).missing(["innermost", "tile"]) == ()


def test_an_opaque_step_is_of_the_backends_that_it_names() -> None:
    class Whole(OpenStep):
        name = "third_party_whole"
        opaque = True
        backends = frozenset({"theirs"})

    printing = ScheduleLimits(frozenset({"tile"}), 1 << 16, 512, "this test", runs_nests=True)
    assert printing.missing([Whole.name]) == (Whole.name,)
    assert evolve(printing, backend="theirs").missing([Whole.name]) == ()


STEPS_OF_INTERFACE_2 = {
    "replay": {"replay": lambda _step, _backend, _state, _config: None},
    "backends": {"backends": frozenset({"tvm"})},
}


@pytest.mark.parametrize("had", STEPS_OF_INTERFACE_2.values(), ids=STEPS_OF_INTERFACE_2)
def test_a_step_that_is_replayed_says_what_to_change(had: dict[str, object]) -> None:
    with pytest.raises(PluginError, match="'third_party_old'.*derive.* is enough now") as caught:
        type("Old", (OpenStep,), {"name": "third_party_old", "__module__": __name__, **had})
    assert "\n" not in str(caught.value) and "third_party_old" not in STEP_CLASSES


def test_a_distribution_for_the_interface_before_is_refused_in_one_line(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("autotune_replayed", "autotune_strips")
    status = run(["tune", *GEMM, "--backend", REFERENCE_BACKEND, "--space", "sketch+replayed"])
    (line,) = capsys.readouterr().err.splitlines()
    assert status == 2
    assert "'replayed' is quarantined (written for plugin interface 2" in line
    assert "since 3, a step has `replay` and `backends` only where it is `opaque`" in line
    assert "since 4, each kind of part is made from a context of its own" in line
    assert "set AUTOTUNE_API_VERSION = 4" in line
    assert "strips" in manager().names("sketch_rule")


ON_COMPILERS = [
    pytest.param(name, marks=(pytest.mark.needs(name), pytest.mark.slow))
    for name in ("tvm", "mlir")
]


@pytest.mark.parametrize("backend", ["native", *ON_COMPILERS])
def test_steps_are_tuned_with_every_backend_that_prints(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    install("autotune_npu")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # of the workers
    (result,) = tune_tasks(
        [Task(gemm(m=8, n=12, k=6), name="small")],
        parts={"search_space": "sketch+npu", "cost_model": "random"},
        backend=backend,
        threads=1,
        trials=3,
        round_size=3,
        database=str(tmp_path / "records.db"),
    )
    assert result.outcomes["ok"] == result.trials == 3


def test_programs_of_an_importer(install: Install, tmp_path: Path) -> None:
    install("autotune_npu")
    program = tmp_path / "products.txt"
    program.write_text("small 8 8 16\nlarge 16 32 16\n")
    assert import_workload("sizes", program, "small").parameters["k"] == 16
    with pytest.raises(InvalidValueError, match="several functions: name one of small, large"):
        import_workload("sizes", program)
    with pytest.raises(UnknownNameError, match="Did you mean 'small'"):
        import_workload("sizes", program, "smal")
    with pytest.raises(UnknownNameError, match="unknown importer 'size'"):
        import_workload("size", program)


def test_a_database_is_named_before_its_path(tmp_path: Path) -> None:
    with open_database(f"sqlite:{tmp_path / 'one.db'}"):
        assert (tmp_path / "one.db").exists()


def test_a_name_of_no_database_makes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownNameError, match=r"'sqlit'.*Did you mean 'sqlite'.*'./sqlit:a.db'"):
        open_database("sqlit:a.db")
    assert not list(tmp_path.iterdir())
    with open_database("./sqlit:a.db"):
        pass
    with open_database("sqlit:a.db", read_only=True) as there:
        assert not list(there.runs())


def test_kinds_of_targets_are_open_to_plugins() -> None:
    assert Target("npu", "some").kind == "npu"
    for wrong in ("CPU", "cdua", "two words", ""):
        with pytest.raises(UnknownNameError, match="unknown kind of target"):
            Target(wrong, "some")
