"""The benchmark of models that others made: what takes part, what is kept, and its bars."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
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
