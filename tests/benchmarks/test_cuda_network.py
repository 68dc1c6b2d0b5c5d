"""The benchmark of networks on CUDA devices, without one: how it goes on, and what it promises."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import benchmark_scripts

from autotune.targets import preset


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    with benchmark_scripts("cuda_network") as (module,):
        yield module


def row(runtime: str, latency: float | None, error: float | None = 0.1) -> dict[str, Any]:
    known = {"runtime": runtime, "latency": latency, "error": error, "call": 2e-3, "problem": ""}
    return {**known, "problem": "" if latency else "it failed"}


def bench(**changes: float | None) -> dict[str, Any]:
    latencies = {"autotune": 1e-3, "untuned": 3e-3, "torch eager": 2e-3, "torch.compile": 1.5e-3}
    return {"runtimes": [row(*pair) for pair in {**latencies, **changes}.items()]}


class Commands:
    """Answers in place of commands; tuning takes two sessions for each precision."""

    def __init__(self) -> None:
        self.asked: list[Sequence[str]] = []
        self.trials: dict[str, int] = {}

    def __call__(self, command: Sequence[str], variables: Any) -> str:
        self.asked.append(command)
        if "--session" not in command:
            return json.dumps(bench())
        precision = command[command.index("--session") + 1]
        trials = self.trials[precision] = self.trials.get(precision, 0) + 60
        result = {"latency": 0.9e-3} if trials >= 120 else None
        found = {"done": trials >= 120, "seconds": 100.0, "trials": trials, "result": result}
        return json.dumps(found)


def called(script: Any, patch: pytest.MonkeyPatch, work: Path, *arguments: str) -> int:
    patch.setattr(sys, "argv", ["cuda_network.py", "--work", str(work), *arguments])
    status: int = script.main()
    return status


def test_without_a_device_it_is_one_line(
    script: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AUTOTUNE_LIBCUDA", str(tmp_path / "none.so"))
    assert called(script, monkeypatch, tmp_path) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: there is no CUDA device here") and said.count("\n") == 1


def test_a_command_goes_on_where_the_last_one_ended(
    script: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    commands = Commands()
    monkeypatch.setattr(script, "output_of", commands)
    monkeypatch.setattr(script, "resolve", preset)
    monkeypatch.setattr(script, "load_driver", lambda: None)
    monkeypatch.setattr(script, "matching_device", lambda target, driver: None)
    asked = (
        "--target",
        "h100",
        "--trials",
        "120",
        "--json",
        str(tmp_path / "found.json"),
        "--check",
    )
    assert called(script, monkeypatch, tmp_path, *asked, "--seconds", "1") == script.NOT_DONE
    assert "float32: 0 of 120 trials: the same command goes on" in capsys.readouterr().out
    assert called(script, monkeypatch, tmp_path, *asked) == 0
    said = capsys.readouterr().out
    assert "tuned in 200 s, 120 trials: 0.900 ms by the sum of its tasks" in said
    assert "torch.compile      1.500 ms called     2.000 ms   1.50x" in said
    assert sum("--session" in command for command in commands.asked) == 4
    compiled, _ = [it for it in commands.asked if "bench-model" in it and "float16" in it]
    assert compiled[-4:] == ["--only", "torch.compile", "--turns", "1"]
    data = json.loads((tmp_path / "found.json").read_text())
    assert [it["precision"] for it in data["rows"]] == ["float32", "float16"]
    # What is done is not done again.
    before = len(commands.asked)
    assert called(script, monkeypatch, tmp_path, *asked) == 0 and len(commands.asked) == before


def test_what_was_not_timed_or_is_wrong_falls_short(script: Any) -> None:
    good = script.Measured("float32", bench=bench())
    assert all(bar.holds for bar in script.bars_of([good]))
    assert good.ratio("torch eager") == 2.0 and good.ratio("metaschedule") is None
    beside = {"latency": 4e-3, "error": 1.5}
    wrong = script.Measured("float32", bench=bench(), metaschedule=beside)
    assert [bar.holds for bar in script.bars_of([wrong])] == [False, True, True]
    assert wrong.ratio("metaschedule") == 4.0
    slow = script.Measured("float32", bench=bench(untuned=0.5e-3, **{"torch.compile": None}))
    assert [bar.holds for bar in script.bars_of([slow])] == [True, False, False]
    assert not any(bar.holds for bar in script.bars_of([script.Measured("float32")]))


def test_metaschedule_has_as_many_trials(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In as many calls as it takes; one that ends without measuring is no endless loop."""
    records = tmp_path / "metaschedule" / "records"
    ran: list[Sequence[str]] = []

    def run(command: Sequence[str], seconds: float) -> None:
        ran.append(command)
        records.mkdir(parents=True, exist_ok=True)
        with (records / "database_tuning_record.json").open("a") as file:
            file.write("[]\n" * (50 if len(ran) < 3 else 0))

    answers = {"prepare": "", "build": '{"functions": 9, "tuned": 8}', "time": '{"latency": 1.0}'}
    monkeypatch.setattr(script, "run_at_most", run)
    monkeypatch.setattr(script, "output_of", lambda command, _: answers[command[2]])
    patch = ["cuda_network.py", "--metaschedule-python", "python", "--trials", "120", "--quick"]
    monkeypatch.setattr(sys, "argv", patch)
    options, one = script.parsed_options(), script.Measured("float16")
    found = script.with_metaschedule(options, one, tmp_path, lambda: 500.0)
    assert found is not None
    assert (found["tuned"], found["latency"], found["trials"]) == (8, 1.0, 100)
    assert len(ran) == 3 and "without measuring" in one.errors["metaschedule"]
    assert ran[0][-4:] == ["--target", "cuda", "--trials", "120"]


def test_a_command_that_fails_is_told_from_one_that_is_ended(script: Any) -> None:
    script.run_at_most(["sh", "-c", "sleep 60"], 0.2)
    with pytest.raises(script.StepFailed, match="no xgboost"):
        script.run_at_most(["sh", "-c", "echo no xgboost >&2; exit 1"], 300.0)
