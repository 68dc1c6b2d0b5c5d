"""A database that TVM's own tuner wrote, as records of the trace space, and everything else."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from autotune_tvm.backend import TVMBackend
from autotune_tvm.metaschedule import FILES
from autotune_tvm.trace import recorded
from autotune_tvm.trace.space import TraceSpace
from tvm import te, topi
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule

import autotune
from autotune.backends import BuildRequest, ForeignSchedule
from autotune.cli.app import run
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.sketches import CandidateBatch
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.store.sqlite import open_database
from autotune.targets import Target, preset
from autotune.testing.programs import check_program

DATA = Path(__file__).parent / "data"
"""Records that `tuned_by_tvm` wrote for `layer` and `rows`, six trials each."""

MACHINE = preset("haswell-2core")
FORMAT = "metaschedule"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the database, which a test may spoil."""
    return Path(shutil.copytree(DATA, tmp_path / "theirs"))


@pytest.fixture(scope="module")
def found() -> tuple[ForeignSchedule, ...]:
    read = recorded.read_database(DATA, MACHINE)
    assert read.refused == ()
    return read.schedules


def test_every_schedule_is_one_of_the_space(found: tuple[ForeignSchedule, ...]) -> None:
    lines = (DATA / FILES[1]).read_text().splitlines()
    assert len(found) == len(lines) == 12
    spaces: dict[str, TraceSpace] = {}
    for schedule, line in zip(found, lines, strict=True):
        seconds = json.loads(line)[1][1]
        assert schedule.samples == tuple(seconds) and schedule.threads == 2
        assert schedule.latency == pytest.approx(sum(seconds) / 3)
        workload = schedule.candidate.sketch.workload
        if workload.digest not in spaces:
            spaces[workload.digest] = TraceSpace(workload, schedule.program, MACHINE, 2)
        space = spaces[workload.digest]
        assert space.contains(CandidateBatch.of([schedule.candidate])).all()
        assert schedule.space == f"{space.name}-{space.version}"
    assert len(spaces) == 2


def test_what_is_read_is_what_can_be_written_and_read_again(
    found: tuple[ForeignSchedule, ...], backend: TVMBackend, tmp_path: Path
) -> None:
    key = MeasureKey(MACHINE.fingerprint, "tvm", "2", backend.compiler_version(), 2, "warm-3")
    about = MACHINE.to_json()
    records = [
        Record(
            *("theirs", number, it.candidate, key, about, it.space),
            Outcome("ok", it.latency, it.samples),
            0.0,
            program=it.program,
        )
        for number, it in enumerate(found)
    ]
    written = backend.export_records(records, FORMAT, tmp_path / "ours")
    assert written.refused == () and written.exported == len(found)
    again = backend.import_records(FORMAT, tmp_path / "ours", MACHINE)
    assert again.refused == () and again.schedules == found


def test_schedules_compute_what_the_programs_do(
    found: tuple[ForeignSchedule, ...], backend: TVMBackend, target: Target
) -> None:
    fastest = {it.program: it for it in sorted(found, key=lambda it: -it.latency)}
    assert len(fastest) == 2
    for program, it in fastest.items():
        workload = it.candidate.sketch.workload
        check_program(backend, BuildRequest(workload, program, it.candidate, target, 2))


def spoilt(folder: Path, change: Callable[[Any], Any], file: str = FILES[1]) -> str:
    """Say why the first of two records is left out after a change of its line or program."""
    lines = (folder / FILES[1]).read_text().splitlines()[:2]
    (folder / FILES[1]).write_text("\n".join([*lines, ""]))
    first, *others = (folder / file).read_text().splitlines()
    changed = change(json.loads(first))
    text = changed if isinstance(changed, str) else json.dumps(changed)
    (folder / file).write_text("\n".join([text, *others]) + "\n")
    read = recorded.read_database(folder, MACHINE)
    where, reason = read.refused[0]
    assert where == "line 1" and "\n" not in reason
    assert len(read.schedules) == 2 - len(read.refused)
    assert len(read.refused) == (1 if file == FILES[1] else 2)
    return reason


def traced(change: Callable[[list[Any], list[Any]], None]) -> Callable[[Any], Any]:
    """A change of a record's instructions and decisions."""

    def made(line: Any) -> Any:
        change(*line[1][0])
        return line

    return made


def entry(position: int, value: Any) -> Callable[[Any], Any]:
    """A record with another trace, seconds, target or arguments."""

    def made(line: Any) -> Any:
        line[1][position] = value
        return line

    return made


def on(**changes: Any) -> Callable[[Any], Any]:
    """A record of another target."""

    def made(line: Any) -> Any:
        line[1][2] = {**line[1][2], **changes}
        return line

    return made


def inserted(kind: str, at: int | None = None) -> Callable[[Any], Any]:
    """An instruction more, behind the trace or within it."""

    def change(instructions: list[Any], _: list[Any]) -> None:
        place = len(instructions) if at is None else at
        instructions.insert(place, [kind, ["b0"], [], []])

    return traced(change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _: "{", "not JSON: "),
        (lambda _: "[" * 100_000, "not JSON: "),
        (
            lambda line: json.dumps(line).replace("[1e", "[NaN, 1e").replace('"num', 'NaN,"n'),
            "JSON",
        ),
        (lambda _: {}, "not a record of MetaSchedule"),
        (lambda line: [line[0], line[1][:3]], "not a record of MetaSchedule"),
        (lambda line: [2, line[1]], "it is of program 2, and database_workload.json has 2"),
        (lambda line: [-1, line[1]], "it is of program -1"),
        (lambda line: [1, line[1]], "its arguments are not those of program 1"),
        (entry(1, None), "it was not timed"),
        (entry(1, [1e10]), "its candidate failed there"),
        (entry(1, [0.0]), "its seconds are no numbers above 0"),
        (entry(2, None), "not a record of MetaSchedule"),
        (on(kind="cuda"), "its target is of kind 'cuda'; taken are those of kind 'llvm'"),
        (on(**{"num-cores": 0}), "on how many cores it ran"),
        (on(mcpu="skylake-avx512"), "'skylake-avx512', and target 'haswell-2core' lacks avx512bw"),
        (on(mcpu="rm -rf"), "'rm -rf', no processor of LLVM's"),
        (on(mattr=["+avx512f"]), "lacks avx512f"),
        (on(mattr=["x\n"]), "no list of features"),
        (inserted("Tensorize", 0), "instruction 0 of the trace is 'Tensorize', of no kind"),
        (inserted("TransformLayout"), "is 'TransformLayout' there and 'nothing' here"),
        (traced(lambda _, decided: decided.pop()), "cannot decide null"),
        (traced(lambda _, decided: decided[0].__setitem__(1, [3, 1])), r"cannot decide \[3, 1\]"),
        (
            traced(lambda _, decided: decided[0].__setitem__(1, [7, 1, 1, 1])),
            "decides what TVM's rules do not draw|TVM decides otherwise|did something else",
        ),
    ],
)
def test_a_record_that_cannot_be_taken_is_named(
    change: Callable[[Any], Any], said: str, folder: Path
) -> None:
    reason = spoilt(folder, change)
    assert re.search(said, reason), reason


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _: "{", "its program, line 1: not JSON: "),
        (lambda _: ["1"], "not a program of MetaSchedule"),
        (lambda line: [line[0], "%%"], "its text is not encoded as MetaSchedule does"),
        (
            lambda line: [line[0], base64.b64encode(b"\2" + b"\0" * 7 + b"{}").decode()],
            "not a TVM program",
        ),
    ],
)
def test_records_of_a_program_that_cannot_be_read_are_named(
    change: Callable[[Any], Any], said: str, folder: Path
) -> None:
    assert said in spoilt(folder, change, FILES[0])


def test_a_line_that_is_too_long_is_not_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "MOST_BYTES", 1 << 16)
    assert spoilt(folder, lambda _: "[" + " " * (1 << 17)) == "it is longer than 65536 bytes"


@pytest.mark.parametrize("name", FILES)
def test_both_files_are_needed(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(InvalidValueError, match=f"no database of MetaSchedule: .* {name!r}"):
        recorded.read_database(folder, MACHINE)


def test_a_gpu_has_no_such_schedules() -> None:
    with pytest.raises(UnsupportedTarget, match="for CPUs only; target 'a100'"):
        recorded.read_database(DATA, preset("a100"))


def test_the_command_adds_what_is_missing_and_says_what_is_left_out(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = (folder / FILES[1]).read_text().splitlines()
    failed = [json.dumps(entry(1, [1e10])(json.loads(line))) for line in lines[:2]]
    (folder / FILES[1]).write_text("\n".join([*failed, *lines, ""]))
    database = folder.parent / "records.db"
    command = ("records", "import", str(folder), "--format", FORMAT, "--target", "haswell-2core")
    assert run((*command, "--database", str(database))) == 1
    said = capfd.readouterr()
    assert f"12 records added to {database}, 0 were there already, 2 left out" in said.out
    assert said.err == "autotune: line 1 and 1 more are left out: its candidate failed there\n"
    with open_database(database, read_only=True) as opened:
        records = list(opened.records())
    (run_id,) = {it.run_id for it in records}
    assert run_id.startswith("metaschedule-") and all(it.outcome.imported for it in records)
    assert [it.trial for it in records] == list(range(12))
    assert {it.key.target for it in records} == {MACHINE.fingerprint}


@pytest.mark.long
def test_what_tvm_has_tuned_now_is_taken_written_taken_again_and_used(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    theirs, ours, database = tmp_path / "theirs", tmp_path / "ours", tmp_path / "records.db"
    theirs.mkdir()
    tuned_by_tvm({"layer": layer(), "rows": rows()}, theirs, 4)
    capfd.readouterr()

    def command(*arguments: str, to: Path = database) -> str:
        assert run(("records", *arguments, "--format", FORMAT, "--database", str(to))) == 0
        return capfd.readouterr().out

    assert command("import", str(theirs)).startswith("8 records added")
    assert command("export", str(ours)) == f"8 records written to {ours}\n"
    assert command("import", str(ours)).startswith("0 records added to")
    other = tmp_path / "other.db"
    assert command("import", str(ours), to=other).startswith("8 records added")
    records = []
    for path in (database, other):
        with open_database(path, read_only=True) as opened:
            records.append([{**it.to_json(), "created": 0} for it in opened.records()])
    assert records[0] == records[1]
    result = autotune.tune(
        layer(),
        backend="tvm",
        threads=2,
        trials=1,
        database=database,
        parts={"search_space": "trace", "strategy": "random"},
    )
    with open_database(database, read_only=True) as opened:
        workload = result.workload.digest
        claims = [it for it in opened.records() if it.outcome.imported]
    own = [it for it in claims if it.candidate.sketch.workload.digest == workload]
    claimed = min(own, key=lambda it: it.latency or 0.0)
    assert result.fastest is not None
    assert result.fastest.candidate.digest == claimed.candidate.digest
    assert not result.fastest.outcome.imported and result.outcomes["ok"] == 1


def layer() -> Any:
    """A product of matrices with relu."""
    x, w = te.placeholder((32, 24), "float32", "x"), te.placeholder((24, 48), "float32", "w")
    return te.create_prim_func([x, w, topi.nn.relu(topi.matmul(x, w))])


def rows() -> Any:
    """A softmax, whose rules choose where blocks are computed."""
    x = te.placeholder((8, 24), "float32", "x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


@derived_object
class _Builder(meta_schedule.builder.PyBuilder):  # type: ignore[misc]
    """Compiles in this process; what it made is found by its number."""

    def __init__(self) -> None:
        super().__init__()
        self.built: list[Any] = []

    def build(self, build_inputs: list[Any]) -> list[Any]:
        results = []
        for each in build_inputs:
            results.append(meta_schedule.builder.BuilderResult(str(len(self.built)), None))
            self.built.append(tvm.compile(each.mod, target=each.target).jit())
        return results


@derived_object
class _Future(meta_schedule.runner.PyRunnerFuture):  # type: ignore[misc]
    def __init__(self, seconds: list[float]) -> None:
        super().__init__()
        self.seconds = seconds

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return meta_schedule.runner.RunnerResult(self.seconds, None)


@derived_object
class _Runner(meta_schedule.runner.PyRunner):  # type: ignore[misc]
    """Times in this process, three times each."""

    def __init__(self, built: list[Any]) -> None:
        super().__init__()
        self.built = built

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        return [_Future(self._timed(each)) for each in runner_inputs]

    def _timed(self, each: Any) -> list[float]:
        function = self.built[int(each.artifact_path)]
        arguments = [
            tvm.runtime.tensor(np.ones([*map(int, info.shape)], str(info.dtype)))
            for info in each.args_info
        ]
        timed = function.time_evaluator("main", tvm.cpu(), number=1, repeat=3)(*arguments)
        return [float(seconds) for seconds in timed.results]


def tuned_by_tvm(functions: dict[str, Any], folder: Path, trials: int) -> None:
    """Let TVM tune functions for two cores, so many trials each, and write its database."""
    builder = _Builder()
    named = {name: it.with_attr("global_symbol", name) for name, it in functions.items()}
    meta_schedule.tune_tir(
        tvm.IRModule(named),
        target=tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}),
        work_dir=str(folder),
        max_trials_global=trials * len(functions),
        max_trials_per_task=trials,
        num_trials_per_iter=trials,
        num_tuning_cores=1,
        cost_model="random",
        builder=builder,
        runner=_Runner(builder.built),
        # The usual ones also remove the files that a builder has made: here there are none.
        measure_callbacks=[meta_schedule.measure_callback.AddToDatabase()],
        seed=1,
    )
