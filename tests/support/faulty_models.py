"""Models that fail on command, for tests of fault tolerance.

Named by import string; what they do is in the environment variable ``AUTOTUNE_MODEL_FAULT``, a
JSON object:

- ``fault``: a key of :data:`FAULTS`, or ``nan`` or ``shape``, which spoil scores;
- ``in``: ``make``, ``predict``, ``update``, ``state``, ``load_state`` or ``score``;
- ``after``: outcomes that must have been learned before (0 if absent);
- ``marks``: a file, and ``times``: how many faults are made by all processes that share it.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UnsupportedTarget
from autotune.models import ModelContext
from autotune.models.cost import CostModel, RandomCostModel, check_model
from autotune.models.pruning import PruningModel
from autotune.sketches import Candidate, CandidateBatch
from autotune.store.records import Outcome
from autotune.testing.reference_backend import MISCONDUCT

FAULT_VARIABLE = "AUTOTUNE_MODEL_FAULT"
FAULTY_COST_MODEL = "faulty_models:FaultyCostModel"
FAULTY_PRUNING_MODEL = "faulty_models:FaultyPruningModel"

_SPOILS = ("nan", "shape")


def _raise() -> None:
    raise ZeroDivisionError("scripted")


def _refuse() -> None:
    raise UnsupportedTarget("scripted refusal")


def _warn() -> None:
    logging.getLogger("autotune.models.cost").warning("scripted %s", "warning")


FAULTS: Mapping[str, Callable[[], object]] = MappingProxyType(
    {
        "segfault": lambda: ctypes.string_at(0),
        **{name: MISCONDUCT[name] for name in ("exit", "kill", "stop")},
        "hang": lambda: time.sleep(86_400),
        **{name: MISCONDUCT[name] for name in ("memory", "garbage")},
        "exception": _raise,
        "refusal": _refuse,
        "warning": _warn,
    }
)
"""Faults of a model beyond wrong scores; a warning alone is none."""


class _Script:
    """The scripted fault."""

    def __init__(self) -> None:
        self._script: dict[str, Any] = json.loads(os.environ.get(FAULT_VARIABLE, "{}"))

    def play(self, where: str, learned: int = 0) -> str:
        """Do what the script has for this moment; returns how scores are to be spoilt, or ""."""
        if self._script.get("in") != where or learned < self._script.get("after", 0):
            return ""
        if "marks" in self._script:
            with Path(self._script["marks"]).open("ab") as marks:
                if marks.tell() >= self._script["times"]:
                    return ""
                marks.write(b"x")
        fault: str = self._script["fault"]
        if fault not in _SPOILS:
            FAULTS[fault]()
        return fault


def _spoilt(scores: NDArray[np.float64], how: str) -> NDArray[np.float64]:
    if how == "nan":
        scores[len(scores) // 2 :] = np.nan
    return scores[1:] if how == "shape" else scores


class FaultyCostModel(CostModel):
    """Scores at random, in a way that depends on everything it has learned.

    Args:
        context: Its seed chooses the scores.
    """

    name = "faulty"

    def __init__(self, context: ModelContext) -> None:
        self._script = _Script()
        self._script.play("make")
        self._seed = context.seed
        self._latencies: list[float] = []

    def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Scores of shape [n], unless a fault is set."""
        how = self._script.play("predict", len(self._latencies))
        seed = self._seed + sum(int(latency * 1e12) for latency in self._latencies)
        return _spoilt(RandomCostModel(ModelContext(seed=seed)).predict(batch), how)

    def update(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Learn half of the outcomes, then perhaps fail, then learn the rest."""
        latencies = [outcome.latency or 0.0 for _, outcome in outcomes]
        middle = len(latencies) // 2
        before = len(self._latencies)
        self._latencies += latencies[:middle]
        self._script.play("update", before)
        self._latencies += latencies[middle:]

    def state(self) -> dict[str, Any]:
        """A JSON object with the latencies."""
        self._script.play("state", len(self._latencies))
        return {"model": self.name, "seed": self._seed, "latencies": list(self._latencies)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another model.
        """
        check_model(self.name, state)
        self._script.play("load_state", len(state["latencies"]))
        self._seed, self._latencies = int(state["seed"]), list(state["latencies"])


class FaultyPruningModel(PruningModel):
    """Scores at random."""

    name = "faulty"

    def __init__(self, context: ModelContext) -> None:
        self._script = _Script()
        self._script.play("make")

    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Scores of shape [n], unless a fault is set."""
        return _spoilt(
            RandomCostModel(ModelContext(seed=7)).predict(batch), self._script.play("score")
        )
