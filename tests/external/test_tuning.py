"""Tuning external programs: each fault is an outcome, and nothing is lost by an interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from process_facts import becomes_true
from python_processes import start_python

import autotune
from autotune.errors import AutotuneError, InvalidValueError
from autotune.external import ExternalResult, program_of, recorded_configuration, tune_external
from autotune.external.backend import ExternalBackend
from autotune.external.given import given_program, note_given
from autotune.external.measurer import make_external_measurer
from autotune.measure import MeasurerContext, SharedWorkers
from autotune.measure.workers import WorkerSetup
from autotune.process.errors import TimeIsOver, WorkerStartFailed
from autotune.process.interrupts import TuningInterrupted
from autotune.store.database import RecordFilter
from autotune.store.records import Record
from autotune.store.sqlite import open_database
from autotune.targets import detect_cpu

GRID: dict[str, Any] = {
    "parts": {"strategy": "grid"},
    "threads": 1,
    "protocol": autotune.MeasureProtocol.named("quick"),
}
# What a configuration takes is what it prints: no test depends on a clock.
PRINTS = 'echo "$3" > "$2"; echo "took $1 ms"'


def spec(**changes: Any) -> dict[str, Any]:
    """A program that says how long it takes, by a shell."""
    return {
        "name": "printer",
        "parameters": {"n": {"values": [5, 3, 4], "default": 5}},
        "run": {
            "command": ["sh", "-c", PRINTS, "sh", "{n}", "{output}", "1"],
            "timeout": 20,
            "repeats": 1,
        },
        "read": {"pattern": "took (\\S+) ms"},
        "unit": "ms",
        **changes,
    }


def records(folder: Path) -> list[Record]:
    with open_database(str(folder / "a.db")) as database:
        return list(database.records(RecordFilter()))


def tune(folder: Path, made: dict[str, Any], **options: Any) -> ExternalResult:
    program = program_of(made, folder)
    return tune_external(program, database=str(folder / "a.db"), **{**GRID, **options})


def test_the_best_configuration_is_found_and_recorded(tmp_path: Path) -> None:
    found = tune(tmp_path, spec(), trials=3)
    assert found.config == {"n": 3}
    assert found.latency == pytest.approx(0.003) and found.value == pytest.approx(3.0)
    assert found.trials == 3 and found.result.speedup == pytest.approx(5 / 3)
    assert found.to_json()["configuration"] == {"values": {"n": 3}, "value": 3.0, "unit": "ms"}
    measured = {r.latency: recorded_configuration(r) for r in records(tmp_path)}
    assert measured == {0.003: {"n": 3}, 0.004: {"n": 4}, 0.005: {"n": 5}}
    again = tune(tmp_path, spec(), trials=3)
    assert again.result.from_records and again.config == {"n": 3}
    # Another number of repeats is another run, which the same records answer.
    longer = tune(tmp_path, spec(run={**spec()["run"], "repeats": 5}), trials=3)
    assert longer.result.cached == 3 and longer.run_id != found.run_id


def test_without_a_gain_the_default_is_kept(tmp_path: Path) -> None:
    made = spec(parameters={"n": {"values": [4, 3], "default": 3}})
    found = tune(tmp_path, made, trials=2)
    assert found.result.keeps_baseline and found.config == {"n": 3}
    assert found.result.baseline_name == "default configuration"


def test_without_defaults_there_is_nothing_to_beat(tmp_path: Path) -> None:
    found = tune(tmp_path, spec(parameters={"n": [4, 3]}), trials=2)
    assert found.config == {"n": 3} and found.result.speedup is None


def test_a_rate_is_to_become_large(tmp_path: Path) -> None:
    found = tune(tmp_path, spec(unit="1/us"), trials=3)
    assert found.config == {"n": 5} and found.value == pytest.approx(5.0)
    assert found.latency == pytest.approx(1e-6 / 5)


FAULTS = {
    "none": ("echo right > $2; echo took $1 ms", "ok", ""),
    "crash": ("kill -SEGV $$", "crash", "killed by SIGSEGV in run"),
    "hang": ("setsid sleep 1000 & sleep 1000", "timeout", "run took longer than 2 s"),
    "exit": ("echo no memory >&2; exit 3", "crash", "exited with status 3 in run: no memory"),
    "wrong": ("echo wrong > $2; echo took 1 ms", "wrong_result", "of the bytes of its output"),
    "silent": ("echo took 1 ms", "wrong_result", "it wrote no output"),
    "garbage": ("head -c 999 /dev/urandom; echo right > $2", "invalid", "matches nothing"),
    "nan": ("echo right > $2; echo took nan ms", "invalid", "the result is nan"),
    "worker": ("kill -KILL $PPID; sleep 1000", "crash", "worker failed during run"),
    "build": ("", "build_error", "exited with status 1: a.c:3: error: build"),
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> tuple[ExternalResult, list[Record]]:
    """A run in which every fault occurs."""
    folder = tmp_path_factory.mktemp("faulty")
    for name, (script, _, _) in FAULTS.items():
        (folder / f"{name}.sh").write_text(script)
    build = 'if test $1 = build; then echo "a.c:3: error: $1" >&2; exit 1; fi; cp $1.sh $2/run'
    made = spec(
        parameters={
            "fault": {"values": list(FAULTS), "default": "none"},
            "n": {"values": [5, 3], "default": 5},
        },
        build={"command": ["sh", "-c", build, "sh", "{fault}", "{workdir}"]},
        # Only what hangs takes so long, on any machine.
        run={"command": ["sh", "{workdir}/run", "{n}", "{output}"], "timeout": 2.0, "repeats": 1},
        validate={"method": "bitexact"},
    )
    found = tune(folder, made, trials=2 * len(FAULTS))
    return found, records(folder)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_an_outcome(fault: str, faulty: tuple[ExternalResult, list[Record]]) -> None:
    _, status, message = FAULTS[fault]
    configs = [(recorded_configuration(record), record.outcome) for record in faulty[1]]
    outcomes = [outcome for config, outcome in configs if config and config["fault"] == fault]
    assert [outcome.status for outcome in outcomes] == [status] * 2
    assert all(message in outcome.message for outcome in outcomes)


def test_what_computes_other_numbers_never_wins(
    faulty: tuple[ExternalResult, list[Record]],
) -> None:
    assert faulty[0].config == {"fault": "none", "n": 3}
    assert faulty[0].result.outcomes["wrong_result"] == 4


def test_programs_of_which_the_files_are_equal_are_run_once(tmp_path: Path) -> None:
    made = spec(
        parameters={"n": {"values": [5, 3], "default": 5}, "flag": [True, False]},
        build={"command": ["sh", "-c", 'echo $1 > "$2/made"', "sh", "{n}", "{workdir}"]},
        run={
            "command": [
                "sh",
                "-c",
                'echo x >> runs; echo "took $(cat "$1") ms"',
                "sh",
                "{workdir}/made",
            ],
            "repeats": 1,
        },
    )
    found = tune(tmp_path, made, trials=4)
    duplicates = [record for record in records(tmp_path) if record.outcome.duplicate_of]
    assert len(duplicates) == 2 and found.result.outcomes["ok"] == 4


def test_a_slow_candidate_is_cut_off(tmp_path: Path) -> None:
    made = spec(
        parameters={"n": {"values": [2, 100, 3], "default": 2}},
        run={**spec()["run"], "repeats": 3},
    )
    tune(tmp_path, made, trials=3)
    found = {r.latency: len(r.outcome.samples) for r in records(tmp_path)}
    assert found == {0.002: 3, 0.003: 3, 0.1: 1}


@pytest.mark.parametrize(
    "run,read,message",
    [
        ({"command": ["sh", "-c", "exit 2", "{n}"]}, {}, "ends in crash: exited with status 2"),
        ({"command": ["sh", "-c", "echo no", "{n}"]}, None, "ends in invalid: .* matches nothing"),
        ({"command": ["./gone", "{n}"]}, {}, "cannot start './gone'"),
        ({"command": ["sh", "-c", "sleep 99", "{n}"], "timeout": 0.2}, {}, "ends in timeout"),
        ({"function": "no_such_module:f"}, {}, "No module named 'no_such_module'"),
        ({"function": "json:gone"}, {}, "has no attribute 'gone'"),
        ({"function": "json:dmps"}, {}, "has no attribute 'dmps'. Did you mean 'dumps'"),
    ],
)
def test_a_default_that_fails_is_an_error(
    run: dict[str, Any], read: dict[str, str] | None, message: str, tmp_path: Path
) -> None:
    made = spec(
        run=run, read=spec()["read"] if read is None else read, unit="s" if read == {} else "ms"
    )
    with pytest.raises(WorkerStartFailed, match=message):
        tune(tmp_path, made, trials=2)


def test_a_record_runs_nothing(tmp_path: Path) -> None:
    """A database holds data: only a program that is given here is run."""
    tune(tmp_path, spec(), trials=1)
    (record,) = records(tmp_path)
    with pytest.raises(AutotuneError, match="which a record does not run"):
        autotune.compile_record(record)
    with pytest.raises(InvalidValueError, match="run only for who gives it"):
        given_program((record.program or "").replace("took", "TOOK"))
    assert ExternalBackend().imports(record.program) is False


def test_a_function_is_tuned(tmp_path: Path) -> None:
    seen = os.getpid()

    def measure(n: int, fault: str) -> tuple[float, np.ndarray[Any, Any]]:
        assert os.getpid() != seen
        if fault == "crash":
            os.abort()
        return n * 1e-3, np.full(4, n if fault == "wrong" else 1.0)

    found = autotune.external(
        {"n": range(2, 5), "fault": ["none", "crash", "wrong"]},
        ["n != 4 or fault == 'none'"],
        measure,
        default={"n": 4, "fault": "none"},
        validate={"rtol": 1e-3},
        trials=7,
        database=str(tmp_path / "a.db"),
        **GRID,
    )
    assert found.config == {"n": 2, "fault": "none"}
    assert found.result.outcomes["crash"] == found.result.outcomes["wrong_result"] == 2
    assert found.program.name.endswith("measure")


def test_a_function_finds_what_was_built_for_it(tmp_path: Path) -> None:
    def measure(n: int) -> float:
        return float(Path(os.environ["AUTOTUNE_WORKDIR"], "made").read_text()) * 1e-3

    found = autotune.external(
        {"n": [5, 3, 4]},
        measure=measure,
        default={"n": 5},
        build=["sh", "-c", 'test $1 != 4 && echo $1 > "$2/made"', "sh", "{n}", "{workdir}"],
        trials=3,
        database=str(tmp_path / "a.db"),
        **GRID,
    )
    assert found.config == {"n": 3} and found.latency == pytest.approx(0.003)
    assert found.result.outcomes["build_error"] == 1


def test_a_function_of_a_module_is_imported_in_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(
        "import sys\nsys.modules['autotune_seen'] = sys\ndef measure(n):\n    return n * 1e-3\n"
    )
    made = spec(run={"function": "kernels:measure", "repeats": 2}, read={}, unit="s")
    found = tune(tmp_path, made, trials=3)
    assert found.config == {"n": 3} and found.latency == pytest.approx(0.003)
    import sys

    assert "autotune_seen" not in sys.modules and "kernels" not in sys.modules


def test_observers_and_cold_caches_are_for_tensor_programs(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="has no observers"):
        tune(tmp_path, spec(), trials=1, observers=["perf"])
    with pytest.raises(InvalidValueError, match="cannot empty caches"):
        tune(tmp_path, spec(), trials=1, protocol=autotune.MeasureProtocol(cold=True))


# The sixth run and later ones wait until they may go on.
WAITS = "echo $1 >> runs; until test $(wc -l < runs) -le 5 -o -e go; do sleep 0.02; done"
WAITING = spec(
    parameters={"n": {"values": list(range(10, 20)), "default": 19}},
    run={"command": ["sh", "-c", f'{WAITS}; echo "took $1 ms"', "sh", "{n}"], "repeats": 1},
)
COMMAND = ("tune-external", "waiting.json", "--strategy", "random", "--trials", "10")
MORE = ("--database", "a.db", "--threads", "1", "--round-size", "4")


def start(folder: Path) -> subprocess.Popen[str]:
    (folder / "waiting.json").write_text(json.dumps(WAITING))
    return start_python("-m", "autotune", *COMMAND, *MORE, cwd=folder, TMPDIR=str(folder))


def count(folder: Path) -> int:
    path = folder / "runs"
    return len(path.read_text().split()) if path.exists() else 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_stopped_is_continued(number: signal.Signals, tmp_path: Path) -> None:
    process = start(tmp_path)
    assert becomes_true(lambda: count(tmp_path) > 5)
    process.send_signal(number)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == (130 if number == signal.SIGINT else -number), errors
    # The keepers of its workers clean up behind it.
    assert becomes_true(lambda: not list(tmp_path.glob("autotune-*")))
    kept = records(tmp_path)
    # The default, and perhaps a candidate that was being run.
    assert len(kept) >= 3
    (tmp_path / "go").touch()
    done = tune_external(
        program_of(WAITING, tmp_path),
        database=str(tmp_path / "a.db"),
        trials=10,
        round_size=4,
        threads=1,
        parts={"strategy": "random"},
    )
    assert done.config == {"n": 10} and done.trials == 10
    assert {record.run_id for record in kept} == {done.run_id}
    # What was recorded was not run again, but for the leaders' turns.
    runs = Counter((tmp_path / "runs").read_text().split())
    slow = [str(n) for n in range(13, 19)]
    assert sum(runs[n] for n in slow) <= len(slow) + 1


def test_an_interrupted_call_says_how_to_go_on(tmp_path: Path) -> None:
    stopped: list[object] = []

    def stop(event: object) -> None:
        # Once: seconds later it would be another interrupt, of what the first one asks for.
        if type(event).__name__ == "TrialFinished" and not stopped:
            stopped.append(event)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(TuningInterrupted):
        tune(tmp_path, spec(), trials=3, listeners=[stop])
    assert tune(tmp_path, spec(), trials=3).config == {"n": 3}


def test_a_run_of_which_the_time_is_over_is_killed(tmp_path: Path) -> None:
    made = spec(run={"command": ["sh", "-c", "touch begun; sleep 1000", "{n}"]}, read={}, unit="s")
    program = program_of(made, tmp_path)
    workload = note_given(program).sketch.workload
    shared = SharedWorkers()
    shared.is_late = (tmp_path / "begun").exists
    setup = WorkerSetup("external", detect_cpu(), 1)
    context = MeasurerContext(setup=setup, workload=workload, program=program.text, workers=shared)
    with pytest.raises(TimeIsOver), make_external_measurer(context) as measurer:
        measurer.measure_baselines([None])
    shared.close()
    assert pids_in(tmp_path) == []


def pids_in(folder: Path) -> list[int]:
    """Processes whose working directory is a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if os.readlink(path) == str(folder):
                found.append(int(path.parent.name))
        except OSError:  # it has ended meanwhile, or is another user's
            continue
    return found


def test_values_below_zero_are_recorded(tmp_path: Path) -> None:
    made = spec(parameters={"n": [4], "shift": {"values": [-2, 0], "default": 0}})
    tune(tmp_path, made, trials=2)
    configs = [recorded_configuration(record) for record in records(tmp_path)]
    assert [config and config["shift"] for config in configs] == [-2, 0]
