from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from written import written

import autotune
from autotune.backends import ImportedProgram
from autotune.cli.models import timed_and_saved
from autotune.cli.progress import NetworkState
from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedWorkload
from autotune.ir.workloads import Stage, Workload
from autotune.ir.workloads.builders import gemm
from autotune.measure.pool import WorkerPool
from autotune.measure.workers import Workers
from autotune.models.host.model_host import ModelProcess
from autotune.networks.api import ModelOptions, build_recorded, coverage_table, model_tasks
from autotune.networks.model_result import OUTSIDE, LatencyGap, ModelResult, largest_gaps
from autotune.networks.running import WrongOutputs
from autotune.networks.source import Source
from autotune.report import formats
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.multi_level_tiling import MultiLevelTilingRule
from autotune.store.records import Outcome
from autotune.store.sqlite import open_database
from autotune.testing.reference_backend import REFERENCE_BACKEND, ReferenceBackend
from autotune.testing.reference_frontend import (
    REFERENCE_FRONTEND,
    ReferenceFrontend,
    ReferenceLayer,
    ReferenceModel,
    three_layers,
)
from autotune.tuning.events import Event, NetworkLoaded, PassFinished, WarningRaised
from autotune.tuning.options import TuneOptions
from autotune.tuning.resolve import is_probably_answered

READING = ModelOptions(frontend=REFERENCE_FRONTEND)
OPTIONS: dict[str, Any] = {
    "trials": 12,
    "round_size": 4,
    "threads": 1,
    "parts": {"strategy": "random"},
}


def gathered_sums(n: int) -> Workload:
    """A product whose factor is read where numbers of floats say."""
    product = "X[i, int32(floor(float32(k) * 0.5))] * W[k, j]"
    return written("X[n, n], W[n, n]", f"Y[i:n, j:n; k:n] += {product}", name="gathered", n=n)


@pytest.fixture(scope="module", autouse=True)
def _no_rule_for_gathers() -> Iterator[None]:
    """Every workload of these tests has sketches otherwise."""
    apply = MultiLevelTilingRule.apply

    def refusing(rule: MultiLevelTilingRule, draft: SketchDraft, stage: Stage) -> Any:
        return None if stage.gathers else apply(rule, draft, stage)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MultiLevelTilingRule, "apply", refusing)
        yield


def four_layers() -> ReferenceModel:
    model, _ = three_layers()
    return evolve(
        model,
        name="four_layers",
        layers=(
            *model.layers,
            ReferenceLayer("copy", model.layers[1].workload, view=True),
            ReferenceLayer("gathered", gathered_sums(16)),
        ),
    )


def tuned(path: Path, model: object = None, **options: Any) -> ModelResult:
    return autotune.tune_model(
        four_layers() if model is None else model,
        frontend=REFERENCE_FRONTEND,
        database=path / "records.db",
        **{**OPTIONS, **options},
    )


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return []


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory, events: list[Event]) -> ModelResult:
    return tuned(tmp_path_factory.mktemp("tuned"), listeners=[events.append])


def test_equal_tasks_are_one_and_refused_ones_get_no_budget(result: ModelResult) -> None:
    found = {task.name: task for task in result.tasks}
    assert list(found) == ["first", "scale", "copy", "gathered"]
    assert found["first"].task.names == ("first", "second")
    assert [task.task.occurrences for task in result.tasks] == [2, 1, 1, 1]
    assert found["first"].trials + found["scale"].trials == result.trials == 12
    assert found["copy"].run_by == "view" and found["gathered"].run_by == "default schedule"
    assert found["copy"].trials == found["gathered"].trials == 0
    assert found["first"].run_by == "tuned" and not found["first"].reason
    assert found["gathered"].reason.startswith("no sketch rule applies to stage 'Y'")
    # Records are found by the name that tables show.
    with open_database(result.database, read_only=True) as database:
        recorded = {record.candidate.sketch.workload.name for record in database.records()}
    assert recorded == {"first", "scale"}


def test_the_estimate_is_the_sum_over_occurrences(result: ModelResult) -> None:
    first, scale, copy, gathered = result.tasks
    assert first.latency and scale.latency
    assert result.latency == pytest.approx(2 * first.latency + scale.latency)
    assert result.untimed == ("gathered",) and gathered.total is None and copy.total == 0.0
    assert first.untuned and result.speedup and result.speedup > 1


def test_the_network_is_built_from_the_records(result: ModelResult) -> None:
    compiled = result.build()
    (inputs,) = result.network.example_inputs()
    (wanted,) = result.network.reference([inputs]) or ()
    np.testing.assert_allclose(compiled(inputs)[0], wanted, rtol=1e-4)
    timed = result.timed(compiled)
    assert timed.timing is not None and not timed.untimed
    assert timed.latency == pytest.approx(timed.timing.latency, rel=0.5)


def test_a_network_that_takes_all_the_time_is_timed_once(
    result: ModelResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = result.build()
    asked: list[int] = []

    def slow(inputs: object, repeats: int) -> tuple[float, ...]:
        asked.append(repeats)
        return (10.0,) * repeats

    monkeypatch.setattr(type(compiled), "time_calls", lambda _, *given: slow(*given))
    timing = result.timed(compiled, most_seconds=2.0).timing
    assert asked == [1]
    assert timing is not None and (timing.latency, timing.calls) == (10.0, 1)


def test_a_task_that_is_slower_in_the_network_is_named(
    result: ModelResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = result.build()
    first = result.tasks[0].total
    assert first is not None and not result.gaps
    calls = {"first": 5.0, "second": 4.0, "scale": 1e-9, "gathered": 1e-9}
    monkeypatch.setattr(type(compiled), "profile", lambda *_: calls)
    monkeypatch.setattr(type(compiled), "time_calls", lambda _, given, n: (9.5,) * n)
    timed = result.timed(compiled)
    gap = {"part": "first", "estimated": first, "measured": 9.0}
    assert timed.to_json()["gaps"] == [gap]
    (note,) = (note for note in timed.table().notes if "differ most" in note)
    assert note.endswith(f": first ({formats.seconds(first)} -> 9.00 s)")


def test_the_json_form_is_whole(result: ModelResult) -> None:
    data = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert (data["schema"], data["version"]) == ("autotune.model_result", 1)
    shares = [task["flop_share"] for task in data["tasks"]]
    assert sum(shares) == pytest.approx(1.0)
    first = data["tasks"][0]
    assert first["occurrences"] == 2 and first["total"] == pytest.approx(2 * first["latency"])
    assert first["result"]["best"]["latency"] == first["latency"]
    assert data["latency"] == result.latency and data["untimed"] == ["gathered"]


def test_the_table_says_what_each_task_is_run_by(result: ModelResult) -> None:
    table = result.table()
    rows = {row["task"]: row for row in table.to_json()}
    assert rows["first"]["run by"] == "tuned" and rows["copy"]["run by"] == "view"
    assert rows["gathered"]["run by"].startswith("default schedule: ")
    # Nothing but naive loop nests was timed, which nobody would have used.
    assert (
        table.title == f"four_layers: {formats.seconds(result.latency)} estimated from its tasks"
    )
    assert any("tuned: 2 of 3 tasks" in note for note in table.notes)
    assert str(result.database) in table.notes[-1]


def test_a_headline_compares_with_the_schedules_of_the_compiler(result: ModelResult) -> None:
    tasks = []
    for task in result.tasks:
        if task.result is not None:
            known = [evolve(it, name="TVM's default schedule") for it in task.result.baselines]
            task = evolve(task, result=evolve(task.result, baselines=tuple(known)))
        tasks.append(task)
    title = evolve(result, tasks=tuple(tasks)).table().title
    assert title.endswith(f"{formats.ratio(result.speedup)} the speed of TVM's default schedule")


def test_long_names_keep_their_ends_in_tables(result: ModelResult) -> None:
    first, *others = result.tasks
    names = [f"fused_{'multiply_' * 30}{number}" for number in (1, 2)]
    tasks = [evolve(first, task=evolve(first.task, name=name)) for name in names]
    table = evolve(result, tasks=(*tasks, *others)).table()
    shown = [row["task"] for row in table.to_json()]
    assert max(map(len, shown)) == 56 and len(set(shown)) == len(shown)
    assert {name[-1] for name in shown if "..." in name} == {"1", "2"}
    assert "scale" in shown


def test_the_same_call_is_answered(result: ModelResult) -> None:
    again = tuned(Path(result.database).parent)
    assert again.from_records and again.chosen == result.chosen


def test_a_smaller_run_is_continued(result: ModelResult, tmp_path: Path) -> None:
    shutil.copy(result.database, tmp_path / "records.db")
    assert tuned(tmp_path, trials=13).trials == 13
    with autotune.open_database(tmp_path / "records.db") as database:
        assert database.count() == 13 and len(database.runs()) == 1


@pytest.mark.parametrize(("trials", "of_scale"), [(1, 0), (5, 1)])
def test_every_task_has_a_candidate_before_any_has_many(
    tmp_path: Path, trials: int, of_scale: int
) -> None:
    model, _ = three_layers()
    scale, product = model.layers[1], model.layers[0]
    events: list[Event] = []
    result = tuned(
        tmp_path,
        evolve(model, layers=(scale, product)),
        trials=trials,
        parts={"strategy": "random", "task_scheduler": "gradient"},
        listeners=[events.append],
    )
    small, large = result.tasks
    assert (small.name, small.trials, large.trials) == ("scale", of_scale, trials - of_scale)
    warnings = [it.message for it in events if isinstance(it, WarningRaised)]
    if of_scale:
        assert not warnings and small.run_by != "default schedule"
    else:
        assert small.run_by == "default schedule" and "no trials" in small.reason
        assert "1 trials are less than one for each of 2 programs" in warnings[0]


def test_a_weight_counts_in_place_of_calls(tmp_path: Path) -> None:
    parts = {"strategy": "random", "task_scheduler": "gradient"}
    heavy = tuned(tmp_path, weights={"scale": 1e6}, parts=parts, trials=1)
    product, scale, *_ = heavy.tasks
    assert (product.trials, scale.trials) == (0, 1)
    assert product.task.occurrences == 2 and heavy.latency < 1.0
    with pytest.raises(UnknownNameError, match="unknown task 'scael'.*Did you mean 'scale'"):
        tuned(tmp_path, weights={"scael": 2.0})


def test_events_tell_the_network_and_its_totals(result: ModelResult, events: list[Event]) -> None:
    assert [it.name for it in events if isinstance(it, PassFinished)] == ["check", "number"]
    (loaded,) = (it for it in events if isinstance(it, NetworkLoaded))
    assert [(it.name, it.occurrences, it.tunable) for it in loaded.tasks] == [
        ("first", 2, True),
        ("scale", 1, True),
        ("copy", 1, False),
        ("gathered", 1, True),
    ]
    warned = [it for it in events if isinstance(it, WarningRaised)]
    assert [it.task for it in warned if "not tuned" in it.message] == ["gathered"]
    totals = NetworkState()
    for event in events:
        totals.update(event)
    assert totals.trials == 12 and totals.unknown == 0
    assert totals.latency == pytest.approx(result.latency)
    assert list(totals.shares())[0] in ("first", "scale")


def test_a_network_is_built_from_records_alone(result: ModelResult, tmp_path: Path) -> None:
    options = TuneOptions(database=result.database, threads=1)
    recorded = build_recorded(Source(four_layers(), None, "four"), READING, options)
    assert recorded.chosen == result.chosen and recorded.speedup is None
    model, inputs = three_layers()
    network = autotune.build_model(
        model, inputs, frontend=REFERENCE_FRONTEND, database=result.database, threads=1
    )
    network.save(tmp_path / "network.so")
    saved = json.loads((tmp_path / "network.so").read_text())["records"]
    assert saved["first"] == saved["second"] == result.tasks[0].record.name  # type: ignore[union-attr]


def test_coverage_counts_calls_and_flop() -> None:
    coverage = model_tasks(Source(four_layers(), None, "four"), READING, TuneOptions(threads=1))
    table = coverage_table(coverage)
    rows = {row["task"]: row for row in table.to_json()}
    assert rows["first"]["calls"] == "2" and rows["first"]["tuned"] == "by space sketch"
    assert rows["copy"]["tuned"].startswith("no: a view")
    assert rows["gathered"]["tuned"].startswith("no: ") and rows["gathered"]["sketches"] == "-"
    assert "2 of 3 tasks, 3 of 4 calls" in table.notes[0]
    assert "100 %" not in table.notes[0]


def test_workers_start_before_the_network_is_read_and_its_programs_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    made: list[Workers] = []
    imported: list[object] = []
    start, read = Workers.start, ReferenceFrontend.load
    imports = ReferenceBackend.import_program

    def started(workers: Workers) -> None:
        if not workers.is_running:
            order.append("started")
            made.append(workers)
        start(workers)

    def loaded(*given: Any) -> Any:
        order.append("read")
        return read(*given)

    def counted(backend: ReferenceBackend, program: object) -> ImportedProgram:
        imported.append(program)
        return imports(backend, program)

    monkeypatch.setattr(Workers, "start", started)
    monkeypatch.setattr(ReferenceBackend, "import_program", counted)
    monkeypatch.setattr(ReferenceFrontend, "load", loaded)
    assert tuned(tmp_path, trials=1).trials == 1
    assert order == ["started", "read"]
    # Each program once: two of them are equal, and one is a view.
    assert len(imported) == len(four_layers().layers) - 1
    with pytest.raises(UnsupportedWorkload):
        tuned(tmp_path, evolve(three_layers()[0], unsupported="scale"), trials=3)
    assert order == ["started", "read"] * 2
    assert not any(workers.is_running for workers in made)


def test_no_process_is_started_for_what_records_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def note(owner: type, name: str) -> None:
        method = getattr(owner, name)

        def noted(self: Any, *given: Any) -> Any:
            order.append(f"{owner.__name__}.{name}")
            return method(self, *given)

        monkeypatch.setattr(owner, name, noted)

    note(WorkerPool, "start")
    note(ModelProcess, "start")
    note(ReferenceFrontend, "load")
    parts = {"strategy": "evolutionary", "cost_model": "gbdt"}
    ordinary = ["ModelProcess.start", "WorkerPool.start", "ReferenceFrontend.load"]
    late = ["ReferenceFrontend.load", "WorkerPool.start", "ModelProcess.start"]
    assert tuned(tmp_path, trials=2, parts=parts).trials == 2
    assert order == ordinary
    order.clear()
    assert tuned(tmp_path, trials=2, parts=parts).from_records
    assert order == ["ReferenceFrontend.load"]
    key = Source(four_layers(), None, "ReferenceModel").key
    for options in ({}, {"trials": 3}, {"seed": 1}, {"fresh": True}):
        given = {**OPTIONS, "trials": 2, "parts": parts, **options}
        asked = TuneOptions(database=tmp_path / "records.db", backend=REFERENCE_BACKEND, **given)
        assert is_probably_answered(asked, key) == (not options)
    # Another network that looks like it: what is needed is started once that is known.
    order.clear()
    changed = evolve(four_layers(), layers=four_layers().layers[:1])
    assert tuned(tmp_path, changed, trials=2, parts=parts).trials == 2
    assert order == late


def test_what_is_not_the_model_is_refused_before_the_budget_is_spent(tmp_path: Path) -> None:
    model, _ = three_layers()
    faulty = evolve(
        model,
        layers=(
            evolve(
                model.layers[0],
                script=json.dumps(
                    {"faults": [{"fault": "wrong", "phase": "verify", "candidate": "baseline"}]}
                ),
            ),
            *model.layers[1:],
        ),
    )
    with pytest.raises(WrongOutputs, match="three_layers computes .* after import: output 'C'"):
        tuned(tmp_path, faulty)
    with autotune.open_database(tmp_path / "records.db") as database:
        assert not database.runs()
    assert tuned(tmp_path, faulty, check=False, trials=1).trials == 1


def test_an_option_that_the_space_does_not_have_is_no_refusal(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="search space 'sketch' has no option 'rulse'"):
        tuned(tmp_path, parts={"search_space": {"rulse": 1}})


def test_a_node_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    model = evolve(three_layers()[0], unsupported="scale")
    with pytest.raises(UnsupportedWorkload, match="node 'scale': .*write it with other operators"):
        tuned(tmp_path, model)


def test_passes_can_be_left_out_and_replaced(tmp_path: Path) -> None:
    result = tuned(tmp_path, passes={"check": None}, trials=1)
    assert [report.name for report in result.network.passes] == ["number"]
    with pytest.raises(UnknownNameError, match="unknown pass 'chek'.*Did you mean 'check'"):
        tuned(tmp_path, passes={"chek": None})


@pytest.mark.parametrize("model", [5, [1, 2], gemm(m=4, n=4, k=4)])
def test_what_is_no_model_is_refused(tmp_path: Path, model: object) -> None:
    with pytest.raises(InvalidValueError, match="no model that can be read.*a reference model"):
        tuned(tmp_path, model)


def test_the_backend_is_that_of_the_network(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="name no backend"):
        tuned(tmp_path, backend="autotune.testing.reference_backend:ReferenceBackendWithDefault")


class CountingNetwork:
    """Counts how often a compiled network is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, result: ModelResult) -> None:
        self.calls: list[str] = []
        kind = type(result.build(check=False))
        for name in ("__call__", "time_calls", "profile"):
            monkeypatch.setattr(kind, name, self._counted(name, getattr(kind, name)))

    def _counted(self, name: str, method: Any) -> Any:
        def counted(network: Any, *given: Any) -> Any:
            self.calls.append(name)
            return method(network, *given)

        return counted


@pytest.mark.parametrize(
    ("seconds", "skipped", "called"),
    [
        (1.0, (), {"__call__", "time_calls", "profile"}),
        (10.0, ("timed",), {"__call__"}),
        (50.0, ("checked", "timed"), set()),
    ],
)
def test_a_network_is_called_only_as_often_as_there_is_time(
    result: ModelResult,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    skipped: tuple[str, ...],
    called: set[str],
) -> None:
    monkeypatch.setattr(ModelResult, "expected", property(lambda _: seconds))
    network = CountingNetwork(monkeypatch, result)
    found = timed_and_saved(result, None, True, 2.0, lambda: 20.0)
    assert found.skipped == skipped and set(network.calls) == called
    assert found.to_json()["skipped"] == list(skipped)
    notes = " ".join(found.table().notes)
    assert ("for want of time" in notes) == bool(skipped)
    assert ("not checked" in notes) == ("checked" in skipped)


def test_time_is_kept_for_writing_the_weights(
    result: ModelResult, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ModelResult, "expected", property(lambda _: 10.0))
    monkeypatch.setattr(type(result.network), "weight_bytes", 4 * 10**9)
    monkeypatch.setattr(type(result.build(check=False)), "save", lambda *_: ())
    assert timed_and_saved(result, None, True, 2.0, lambda: 60.0).skipped == ()
    found = timed_and_saved(result, str(tmp_path / "library"), True, 2.0, lambda: 60.0)
    assert found.skipped == ("checked",)


def test_a_network_for_a_device_that_is_not_here_is_built_and_not_called(
    result: ModelResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = CountingNetwork(monkeypatch, result)
    kind = type(result.build(check=False))
    monkeypatch.setattr(kind, "lacks", property(lambda _: "there is no such device"))
    found = timed_and_saved(result, None, True)
    assert found.skipped == ("checked", "timed")
    assert not network.calls
    notes = " ".join(found.table().notes)
    assert "not checked and not timed: there is no such device" in notes
    assert "for want of time" not in notes


def test_it_is_said_that_a_model_does_not_run_here(
    result: ModelResult, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    timed_and_saved(result, None, True)
    assert not capsys.readouterr().err
    monkeypatch.setattr(type(result.network), "reference", lambda _self, _inputs: None)
    assert timed_and_saved(result, None, True).skipped == ()
    assert "not compared: the model itself does not run here" in capsys.readouterr().err


def test_a_task_that_nobody_timed_is_expected_to_take_its_flop(result: ModelResult) -> None:
    first, *_ = result.tasks
    assert first.expected == first.total
    untimed = evolve(first, record=None, result=None)
    assert untimed.expected == pytest.approx(2 * first.task.flop / 1e9)
    cut_off = Outcome("timeout", exceeds=0.5)
    assert first.result is not None
    known = evolve(first.result.baselines[0], outcome=cut_off)
    slow = evolve(untimed, result=evolve(first.result, baselines=(known,)))
    assert slow.expected == 1.0


SLOWED = LatencyGap("slowed", 0.1, 2.4)
SLOWER = LatencyGap("slower", 1.0, 1.8)
SAME = LatencyGap("same", 2.0, 2.0)
FASTER = LatencyGap("faster", 3.0, 2.0)


@pytest.mark.parametrize(
    ("tasks", "estimated", "measured", "parts"),
    [
        ((SAME, SLOWED), 10.0, 11.0, []),  # off by a tenth
        ((SAME, SLOWED), 2.1, 4.5, ["slowed"]),
        # Half of the difference is not most of it.
        ((SAME, SLOWER, SLOWED), 3.1, 7.7, ["slowed", OUTSIDE]),
        ((SAME, FASTER), 5.0, 4.0, ["faster"]),
        ((SLOWED, FASTER), 3.1, 4.5, ["slowed"]),
        ((SAME,), 2.0, 3.0, [OUTSIDE]),
        # What instrumented calls take longer than the median is no time outside.
        ((SAME, SLOWED), 2.1, 4.0, ["slowed"]),
        ((), 0.0, 1.0, [OUTSIDE]),
        ((SAME,), 2.0, 1.5, []),
    ],
)
def test_most_of_the_difference_is_explained(
    tasks: tuple[LatencyGap, ...], estimated: float, measured: float, parts: list[str]
) -> None:
    found = largest_gaps(tasks, estimated, measured)
    assert [gap.part for gap in found] == parts
