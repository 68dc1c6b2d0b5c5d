"""Lines and bars of the row `cuda_device`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from support.bars import least_bar, mean_bar, without
from support.common import Bar
from support.cuda_rows import FP32, HALF, MEMORY, Case

TUNED, EAGER, COMPILED, METASCHEDULE = "tuned", "eager", "compiled", "metaschedule"
DEFAULT = "default"
BESIDE = (DEFAULT, EAGER, COMPILED, METASCHEDULE)

# Times as fast as torch without TF32, in the faster layout: the geometric mean, and each row.
FP32_MEAN, FP32_LEAST = 1.2, 0.95
# Products and convolutions of two bytes, times as fast as cuBLAS and cuDNN.
HALF_MEAN = 0.9
# Softmax, norms and attention, times as fast as `torch.compile`.
COMPILED_MEAN = 1.0
# Times as fast as what MetaSchedule found in as much wall clock.
METASCHEDULE_MEAN = 1.3
# Times as fast as TVM's default schedule: the median.
DEFAULT_RATIO = 1.0


@dataclass
class Row:
    """Seconds of a case, as far as it was run, and errors of steps.

    Attributes:
        case: What was run.
        steps: What it was to be compared with in this call, tuning included.
        done: Steps that were run, successfully or not.
        latencies: Of the best program, of the fastest one without tuning (``default``), and of
            what they are compared with. MetaSchedule may have found none in its time.
        seconds: Wall clock of tuning.
        trials: Candidates that were measured.
        errors: By the step that failed.
    """

    case: Case
    steps: tuple[str, ...]
    done: list[str] = field(default_factory=list)
    latencies: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    trials: int = 0
    errors: dict[str, str] = field(default_factory=dict)

    def add(self, step: str, found: Mapping[str, Any]) -> None:
        """Take in what a step gave."""
        self.done.append(step)
        if "error" in found:
            self.errors[step] = found["error"]
            return
        if found["latency"] is not None:
            self.latencies[step] = found["latency"]
        if step == TUNED:
            self.seconds, self.trials = found["seconds"], found["trials"]
            if found[DEFAULT] is not None:
                self.latencies[DEFAULT] = found[DEFAULT]

    @property
    def left(self) -> list[str]:
        """Steps that were not run yet."""
        return [it for it in self.steps if it not in self.done]

    def ratio(self, other: str) -> float | None:
        """Speed of the tuned program over another one's."""
        if TUNED not in self.latencies or other not in self.latencies:
            return None
        return self.latencies[other] / self.latencies[TUNED]

    def line(self) -> str:
        """For people."""
        tuned = self.latencies.get(TUNED)
        ours = "not measured" if tuned is None else f"{tuned * 1e6:10.2f} us"
        ratios = {name: self.ratio(name) for name in BESIDE}
        cells = [f"{name} {it:.2f}x" for name, it in ratios.items() if it is not None]
        cells += [f"{self.trials} trials"] if tuned is not None else []
        if METASCHEDULE in self.done and METASCHEDULE not in (*self.latencies, *self.errors):
            cells.append("metaschedule found nothing in time")
        cells += [f"to do: {', '.join(self.left)}"] if self.left else []
        return f"{self.case.name:<34} {ours:>13}  {', '.join(cells)}".rstrip()

    def print(self) -> None:
        """Its line, and what failed."""
        print(self.line(), flush=True)
        for step, why in self.errors.items():
            print(f"    {step}: {why}", flush=True)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        ratios = {name: self.ratio(name) for name in BESIDE}
        return {**asdict(self), "name": self.case.name, "left": self.left, "ratios": ratios}


def bars_of(rows: Sequence[Row]) -> list[Bar]:
    """The promises; those on rows or comparisons that were not asked for say so."""
    exact = _ratios(rows, FP32, EAGER)
    bars = [
        mean_bar("times torch, float32", exact, FP32_MEAN),
        least_bar("times torch, float32, the least", exact, FP32_LEAST),
        mean_bar("times cuBLAS and cuDNN, halves", _ratios(rows, HALF, EAGER), HALF_MEAN),
        mean_bar(
            "times torch.compile, softmax, norms and attention",
            _ratios(rows, MEMORY, COMPILED),
            COMPILED_MEAN,
        ),
        mean_bar(
            "times MetaSchedule, equal wall clock",
            {it.case.name: it.ratio(METASCHEDULE) for it in rows if METASCHEDULE in it.steps},
            METASCHEDULE_MEAN,
        ),
    ]
    default = {it.case.name: it.ratio(DEFAULT) for it in rows}
    known = [it for it in default.values() if it is not None]
    median = statistics.median(known) if known else None
    name = "times TVM's default schedule, median"
    bars.append(Bar(name, median, DEFAULT_RATIO, note=without(default)))
    failed = [it.case.name for it in rows if it.errors]
    left = [it.case.name for it in rows if it.left]
    bars.append(_none("rows with an error", failed))
    bars.append(_none("rows with something left to do", left))
    return bars


def _ratios(rows: Sequence[Row], of: str, other: str) -> dict[str, float | None]:
    return {it.case.name: it.ratio(other) for it in rows if of in it.case.sets}


def _none(name: str, rows: Sequence[str]) -> Bar:
    return Bar(name, len(rows), 0, at_most=True, note=", ".join(rows))
