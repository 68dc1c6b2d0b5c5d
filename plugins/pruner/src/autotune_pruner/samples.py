"""The observations of a cost model: candidates, latencies and their features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.models.cost import Observation
from autotune.sketches import Candidate, CandidateBatch, Sketch
from autotune.sketches.candidates import order_of
from autotune.store.records import Outcome
from autotune.targets import Target
from autotune_pruner.programs import Programs, TrainingData, featurise

__all__ = ["Samples"]


class Samples:
    """Outcomes in order of arrival, of tasks in the order of appearance.

    Args:
        target: What the candidates are for.
        fidelity: Of the features; see :func:`autotune_pruner.programs.featurise`.
        threads: Of computing them.
    """

    def __init__(self, target: Target, fidelity: str, threads: int = 1) -> None:
        self._target = target
        self._fidelity = fidelity
        self._threads = threads
        self._sketches: dict[str, tuple[int, Sketch, dict[str, Any]]] = {}
        self._rows: list[tuple[int, tuple[int, ...]]] = []
        self._latencies: list[float | None] = []
        self._tasks: list[str] = []
        self._programs = Programs.joined(())

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, outcomes: Sequence[Observation]) -> None:
        """Add outcomes, failures included."""
        candidates = [candidate for candidate, _ in outcomes]
        found = featurise(
            CandidateBatch.of(candidates), self._target, self._fidelity, self._threads
        )
        order = np.array(order_of(candidates), dtype=np.int64)
        self._programs = Programs.joined([self._programs, found.take(order)])
        for candidate, outcome in outcomes:
            values = tuple(int(value) for value in candidate.values)
            self._rows.append((self._number(candidate.sketch), values))
            self._latencies.append(outcome.latency)
            self._tasks.append(candidate.sketch.workload.digest)

    def _number(self, sketch: Sketch) -> int:
        if sketch.digest not in self._sketches:
            content = {"sketch": sketch.to_json(), "workload": sketch.workload.to_json()}
            self._sketches[sketch.digest] = len(self._sketches), sketch, content
        return self._sketches[sketch.digest][0]

    def data(self) -> TrainingData:
        """Everything so far, with labels by what is the best of each task so far."""
        best: dict[str, float] = {}
        for task, latency in zip(self._tasks, self._latencies, strict=True):
            if latency is not None:
                best[task] = min(latency, best.get(task, latency))
        labels = [
            # A latency of zero can only be its task's best.
            0.0 if latency is None else best[task] / latency if latency > 0 else 1.0
            for task, latency in zip(self._tasks, self._latencies, strict=True)
        ]
        numbers = {task: number for number, task in enumerate(dict.fromkeys(self._tasks))}
        return TrainingData(
            self._programs,
            np.array(labels, dtype=np.float32),
            np.array([numbers[task] for task in self._tasks], dtype=np.int64),
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object without the features, which are computed again: a tenth of their size."""
        return {
            "sketches": [content for _, _, content in self._sketches.values()],
            "numbers": [number for number, _ in self._rows],
            "values": [list(values) for _, values in self._rows],
            "latencies": list(self._latencies),
        }

    def load_json(self, data: Mapping[str, Any]) -> None:
        """Replace everything by what :meth:`to_json` wrote.

        Raises:
            InvalidValueError: the object is none of samples.
        """
        other = Samples(self._target, self._fidelity, self._threads)
        try:
            sketches = [
                Sketch.from_json(item["sketch"], Workload.from_json(item["workload"]))
                for item in data["sketches"]
            ]
            rows = zip(data["numbers"], data["values"], data["latencies"], strict=True)
            told = [
                (Candidate(sketches[number], tuple(values)), _outcome(latency))
                for number, values, latency in rows
            ]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InvalidValueError(f"not samples: {type(error).__name__}: {error}") from error
        other.add(told)
        self.__dict__.update(other.__dict__)


def _outcome(latency: float | None) -> Outcome:
    """As much of an outcome as a model learns from; any failure stands for all."""
    return Outcome("crash") if latency is None else Outcome("ok", float(latency))
