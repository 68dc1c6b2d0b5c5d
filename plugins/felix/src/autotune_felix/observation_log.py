"""The observations of a cost model, replayed when it is restored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.models.cost import Observation
from autotune.sketches import Candidate, Sketch
from autotune.store.records import Outcome

__all__ = ["ObservationLog"]


class ObservationLog:
    """Candidates and their latencies, in order, each sketch once."""

    def __init__(self) -> None:
        self._sketches: dict[str, tuple[int, dict[str, Any]]] = {}
        self._rows: list[tuple[int, tuple[int, ...], float]] = []

    def add(self, observations: Sequence[Observation]) -> None:
        """Add candidates that have a latency."""
        for candidate, outcome in observations:
            content = candidate.sketch.to_json()
            key = f"{candidate.sketch.digest} {content['params']}"
            if key not in self._sketches:
                workload = candidate.sketch.workload.to_json()
                entry = {"sketch": content, "workload": workload}
                self._sketches[key] = len(self._sketches), entry
            values = tuple(int(value) for value in candidate.values)
            self._rows.append((self._sketches[key][0], values, float(outcome.latency or 0.0)))

    def to_json(self) -> dict[str, Any]:
        """A JSON object that :meth:`read` reads back."""
        return {
            "sketches": [content for _, content in self._sketches.values()],
            "rows": [[number, list(values)] for number, values, _ in self._rows],
            "latencies": [latency for _, _, latency in self._rows],
        }

    @staticmethod
    def read(data: Mapping[str, Any]) -> list[Observation]:
        """The observations, in order.

        Raises:
            InvalidValueError: the object is not what :meth:`to_json` returns.
        """
        try:
            sketches = [
                Sketch.from_json(item["sketch"], Workload.from_json(item["workload"]))
                for item in data["sketches"]
            ]
            return [
                (Candidate(sketches[number], tuple(values)), Outcome("ok", float(latency)))
                for (number, values), latency in zip(data["rows"], data["latencies"], strict=True)
            ]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InvalidValueError(f"not outcomes: {type(error).__name__}: {error}") from error
