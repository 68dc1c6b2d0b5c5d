"""The benchmark of models that others made: what takes part, what is kept, and its bars."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import benchmark_scripts


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    with benchmark_scripts("foreign_models") as (module,):
        yield module


def row(script: Any, name: str, **seconds: list[float]) -> Any:
    data = {"error": 0.1, "read": 1.0, "tasks": 3, "calls": 4, "seconds": seconds}
    return script.Row(name, data)


def options(**changes: bool) -> argparse.Namespace:
    given = {"quick": False, "only": None, "tune": False, "trials": 64, **changes}
    return argparse.Namespace(**given)


def test_every_choice_is_a_model(script: Any) -> None:
    assert {*script.QUICK, *script.TUNABLE} <= {*script.CATALOGUE}
    made = [it for it in script.CATALOGUE.values() if it.make is not None]
    assert len(made) >= script.MODELS
    assert len(script.CATALOGUE) - len(made) >= script.FILES
    assert sum(map(script.is_quick, script.CATALOGUE)) == 8


def test_commands_find_what_makes_a_model(script: Any) -> None:
    assert script.timm_resnet18 is script.CATALOGUE["timm/resnet18"].make
    with pytest.raises(AttributeError):
        _ = script.timm_resnet


def test_what_is_not_installed_is_left_out_with_the_reason(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = script.Model("no-such-package", file="no_such_package/model.onnx")
    assert absent.missing == "no-such-package is not installed"
    assert script.Model("numpy", file="numpy/model.onnx").missing.endswith(
        "has no numpy/model.onnx"
    )
    assert not script.Model("numpy", file="numpy/__init__.py").missing
    monkeypatch.setattr(script, "CATALOGUE", {"absent": absent})
    monkeypatch.setattr("sys.argv", ["foreign_models.py", "--work", str(tmp_path), "--check"])
    assert script.main() == 1  # too few that are right


def test_ratios_are_medians_over_rounds_beside_the_faster_of_the_others(script: Any) -> None:
    found = row(
        script, "x", untuned=[1.0, 2.0, 1.0], onnxruntime=[2.0, 2.0, 3.0], openvino=[9.0] * 3
    )
    assert found.ratio("onnxruntime") == 2.0
    assert found.least_ratio("untuned") == 2.0
    assert found.least_ratio("tuned") is None
    assert "2.00 times onnxruntime, 9.00 times openvino" in script.line_of(found)


def test_a_failure_is_named_and_counted(script: Any) -> None:
    failed = script.Row("timm/resnet18", {}, {"row": "WrongOutputs: it is wrong"})
    assert script.line_of(failed) == "WrongOutputs: it is wrong"
    bars = {it.name: it for it in script.bars_of([failed], options(only=True))}
    assert not bars["models that fail"].holds
    assert bars["models that fail"].note == "timm/resnet18"
    assert not bars["models of torch that are right"].applies


def test_what_a_process_finds_or_why_it_ends_is_told(script: Any) -> None:
    sent: list[bytes] = []

    class Sending:
        send_bytes = staticmethod(sent.append)

    absent = script.Model("no-such-package", file="no_such_package/model.onnx")
    script.CATALOGUE["absent"] = absent
    try:
        script.reported("absent", "", Sending)
    finally:
        del script.CATALOGUE["absent"]
    assert b'"failed": "InvalidValueError: there is no file' in sent[0]
