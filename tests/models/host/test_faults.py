"""Everything that a model can do wrong, in real processes: once, and always."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from faulty_models import (
    FAULT_VARIABLE,
    FAULTY_COST_MODEL,
    FAULTY_PRUNING_MODEL,
    FaultyCostModel,
    FaultyPruningModel,
)
from thinning import thinned

from autotune.errors import PluginError, UnsupportedTarget
from autotune.models import ModelContext
from autotune.models.host import (
    HostedCostModel,
    HostedPruningModel,
    HostLimits,
    ModelHost,
    ModelSpec,
)
from autotune.testing.toy_space import ToySpace, toy_outcome

SPACE = ToySpace()
COST = ModelSpec("cost_model", FAULTY_COST_MODEL, {"seed": 5, "threads": 1})
PRUNING = ModelSpec("pruning_model", FAULTY_PRUNING_MODEL)
BATCH = SPACE.sample(40, np.random.default_rng(1))
TOLD = [
    (candidate, toy_outcome(candidate)) for candidate in SPACE.sample(24, np.random.default_rng(2))
]

# What is said of a fault, first of all.
ENDS = {
    "segfault": "killed by SIGSEGV",
    "exit": "exited with status 3",
    "kill": "killed by SIGKILL",
    "stop": "took more than 2 s",
    "hang": "took more than 2 s",
    "memory": "MemoryError",
    "garbage": "sent something that is not a message",
    "exception": "ZeroDivisionError: scripted",
    "refusal": "UnsupportedTarget: scripted refusal",
}
SCORE_ENDS = {
    "nan": "gave 20 scores of 40 that are not numbers",
    "shape": "gave scores of shape [39] for 40 candidates",
}
# Those that never answer, and how long they are waited for.
SILENT, SILENT_SECONDS = ("stop", "hang"), 2.0

MakeHost = Callable[..., ModelHost]
SetFault = Callable[..., None]


def limits_for(fault: str) -> HostLimits:
    limits = HostLimits(memory_bytes=1 << 30)
    if fault in SILENT:
        return evolve(limits, call_seconds=SILENT_SECONDS, row_seconds=0.0)
    return limits


def learned(model: Any, read: Callable[[Any], Any]) -> Any:
    """Findings of ``read`` after some rounds of a run."""
    found = []
    for start in range(0, len(TOLD), 8):
        model.update(TOLD[start : start + 8])
        found.append(read(model))
        if start == 8:
            model.state()
    return found


def predictions(model: Any) -> list[float]:
    scores: list[float] = model.predict(BATCH).tolist()
    return scores


@functools.cache
def expected() -> list[list[float]]:
    """Predictions of a model that makes no faults."""
    # Whichever test comes first may have set a fault by now; this model has no process of its own.
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv(FAULT_VARIABLE, raising=False)
        model = FaultyCostModel(ModelContext(seed=5))
    found: list[list[float]] = learned(model, predictions)
    return found


@pytest.mark.parametrize("fault", thinned(["segfault", "memory", "stop", "garbage"], 2))
def test_a_model_that_fails_once_goes_on_as_if_it_had_not(
    fault: str, make_host: MakeHost, set_fault: SetFault
) -> None:
    set_fault(fault, "update", after=16, times=1)
    warnings: list[str] = []
    host = make_host(COST, limits=limits_for(fault), on_warning=warnings.append)
    assert learned(HostedCostModel(host), predictions) == expected()
    assert not warnings


@pytest.mark.parametrize("where", thinned(["state", "predict"], 2))
def test_wherever_it_fails(where: str, make_host: MakeHost, set_fault: SetFault) -> None:
    set_fault("segfault", where, after=8, times=1)
    warnings: list[str] = []
    model = HostedCostModel(make_host(COST, on_warning=warnings.append))
    assert learned(model, predictions) == expected()
    reference = FaultyCostModel(ModelContext(seed=5))
    reference.update(TOLD)
    assert model.state() == reference.state()
    assert not warnings


def test_what_a_model_warns_of_is_passed_on(make_host: MakeHost, set_fault: SetFault) -> None:
    set_fault("warning", "update", after=16)
    warnings: list[str] = []
    model = HostedCostModel(make_host(COST, on_warning=warnings.append))
    assert learned(model, predictions) == expected()
    assert warnings == ["scripted warning"]


@pytest.mark.parametrize(("fault", "end"), thinned(ENDS.items(), 3))
def test_a_model_that_fails_twice_is_given_up(
    fault: str, end: str, make_host: MakeHost, set_fault: SetFault
) -> None:
    set_fault(fault, "update", after=8)
    warnings: list[str] = []
    host = make_host(COST, limits=limits_for(fault), on_warning=warnings.append)
    model = HostedCostModel(host)
    found = learned(model, predictions)
    assert found == [expected()[0], [0.0] * 40, [0.0] * 40]
    (warning,) = warnings
    first, _, rest = warning.partition("\n")
    assert first.startswith(f"cost model '{FAULTY_COST_MODEL}' failed in update: {end}")
    assert first.endswith("; the run continues without it")
    assert ("Segmentation fault" in rest) == (fault == "segfault")


@pytest.mark.parametrize(
    ("fault", "end"), thinned([*SCORE_ENDS.items(), ("exit", ENDS["exit"])], 2)
)
def test_scores(fault: str, end: str, make_host: MakeHost, set_fault: SetFault) -> None:
    set_fault(fault, "score")
    warnings: list[str] = []
    host = make_host(COST, PRUNING, limits=limits_for(fault), on_warning=warnings.append)
    cost, pruning = HostedCostModel(host), HostedPruningModel(host)
    cost.update(TOLD[:8])
    assert pruning.score(BATCH).tolist() == [0.0] * 40
    assert pruning.score(BATCH).tolist() == [0.0] * 40
    (warning,) = warnings
    assert f"pruning model '{FAULTY_PRUNING_MODEL}' failed in score: {end}" in warning
    # The other model is what it was.
    assert predictions(cost) == expected()[0]


@pytest.mark.parametrize("fault", thinned(SCORE_ENDS, 2))
def test_scores_that_are_wrong_once(fault: str, make_host: MakeHost, set_fault: SetFault) -> None:
    set_fault(fault, "score", times=1)
    warnings: list[str] = []
    model = HostedPruningModel(make_host(PRUNING, on_warning=warnings.append))
    np.testing.assert_array_equal(
        model.score(BATCH), FaultyPruningModel(ModelContext()).score(BATCH)
    )
    assert not warnings


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        *thinned(
            [
                ("segfault", PluginError, "failed on construction: killed by SIGSEGV"),
                ("hang", PluginError, "failed on construction: took more than 3 s"),
                ("refusal", UnsupportedTarget, "^scripted refusal$"),
                ("exception", PluginError, "failed on construction: ZeroDivisionError: scripted"),
            ],
            2,
        )
    ],
)
def test_models_that_cannot_be_made_are_errors(
    fault: str,
    error: type[Exception],
    message: str,
    make_host: MakeHost,
    set_fault: SetFault,
) -> None:
    set_fault(fault, "make")
    host = make_host(COST, limits=HostLimits(start_seconds=3.0) if fault == "hang" else None)
    with pytest.raises(error, match=message):
        host.wait_ready()
    assert host.pid is None


def test_a_process_that_dies_once_while_it_starts_is_started_again(
    make_host: MakeHost, set_fault: SetFault
) -> None:
    set_fault("kill", "make", times=1)
    host = make_host(COST)
    host.wait_ready()
    assert predictions(HostedCostModel(host)) == predictions(FaultyCostModel(ModelContext(seed=5)))


def test_a_model_that_cannot_be_restored_is_given_up(
    make_host: MakeHost, set_fault: SetFault
) -> None:
    set_fault("segfault", "load_state")
    warnings: list[str] = []
    host = make_host(COST, PRUNING, on_warning=warnings.append)
    cost, pruning = HostedCostModel(host), HostedPruningModel(host)
    cost.update(TOLD[:8])
    state = cost.state()
    assert host.pid is not None
    host._process.end()
    # The innocent one pays with two restarts, and no more.
    np.testing.assert_array_equal(
        pruning.score(BATCH), FaultyPruningModel(ModelContext()).score(BATCH)
    )
    (warning,) = warnings
    assert "failed when it was started again: killed by SIGSEGV" in warning
    assert predictions(cost) == [0.0] * 40
    assert cost.state()["state"] == state
