"""Table, CSV and bars of the row `operators`."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from support.bars import least_bar, mean_bar
from support.common import Bar
from support.operator_rows import CONVOLUTION, IMAGES, LARGE, MEMORY, PRODUCT, Row, bytes_of

OURS, ROOFLINE, METASCHEDULE, UNTUNED = "autotune", "roofline", "metaschedule", "untuned"
EAGER, CHANNELS_LAST, COMPILED = "torch-eager", "torch-channels-last", "torch-compile"
TORCH = (EAGER, CHANNELS_LAST, COMPILED)
CONTENDERS = (OURS, UNTUNED, METASCHEDULE, *TORCH)

# Times as fast as MetaSchedule: the geometric mean, and each row.
METASCHEDULE_MEAN, METASCHEDULE_LEAST = 1.5, 0.9
# Products and convolutions, times as fast as the best of torch.
DENSE_MEAN, DENSE_LEAST = 1.0, 0.85
# Operators that memory limits, times as fast as torch.
EAGER_MEAN, COMPILED_MEAN = 1.3, 1.0
# Softmax, norms and copies of arrays in memory: of the bandwidth, on one thread.
BANDWIDTH_LEAST = 0.7


@dataclass
class Measured:
    """A row on so many threads.

    Attributes:
        row: The operator.
        threads: Threads of all contenders.
        described: Its ``inputs`` and ``outputs``; empty where TVM cannot build it.
        tuned: What our tuning gave; None where it was refused.
        metaschedule: What MetaSchedule's gave; None where it failed or was not asked.
        final: Seconds per call of each contender in each round.
        differences: From torch's output, over what is allowed.
        errors: Why something is missing.
    """

    row: Row
    threads: int
    described: dict[str, Any] = field(default_factory=dict)
    tuned: dict[str, Any] | None = None
    metaschedule: dict[str, Any] | None = None
    final: dict[str, list[float]] = field(default_factory=dict)
    differences: dict[str, float] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.row.name}, {'1 thread' if self.threads == 1 else f'{self.threads} threads'}"

    @property
    def tuners(self) -> list[str]:
        """Tuners that have a program."""
        found = {OURS: self.tuned, METASCHEDULE: self.metaschedule}
        return [name for name, result in found.items() if result is not None]

    @property
    def torch_variants(self) -> dict[str, str]:
        """Torch's variants of the operator, by contender."""
        known = TORCH if self.row.kind in IMAGES else (EAGER, COMPILED)
        return {name: name.removeprefix("torch-") for name in known}

    @property
    def written(self) -> int:
        """Bytes of the output."""
        return sum(bytes_of(spec) for spec in self.described["outputs"])

    @property
    def read(self) -> int:
        """Bytes of the inputs that have to be read."""
        return self.row.read_bytes(self.described["inputs"], self.written)

    @property
    def is_right(self) -> bool:
        """Tell whether our output is torch's, as far as torch computed one."""
        return self.differences.get(OURS, 0.0) <= 1.0

    def latency(self, contender: str) -> float | None:
        """Median seconds per call."""
        seconds = self.final.get(contender)
        return statistics.median(seconds) if seconds else None

    def speed_beside(self, contender: str) -> float | None:
        """Speed of ours over another: the median over the rounds; None where it is wrong."""
        if not self.is_right or OURS not in self.final or contender not in self.final:
            return None
        pairs = zip(self.final[contender], self.final[OURS], strict=True)
        return statistics.median(theirs / ours for theirs, ours in pairs)

    @property
    def best_torch(self) -> str | None:
        """The fastest of torch's variants."""
        present = [name for name in TORCH if name in self.final]
        return min(present, key=lambda name: self.latency(name) or 0.0, default=None)

    @property
    def beside_torch(self) -> float | None:
        """Speed of ours over the fastest of torch's variants."""
        return self.speed_beside(self.best_torch) if self.best_torch else None

    @property
    def fraction(self) -> float | None:
        """Of what the machine can do at best: of the best of all turns, as others disturb it."""
        latency, limits = self.latency(OURS), self.final.get(ROOFLINE)
        return min(limits) / latency if limits and latency and self.is_right else None

    @property
    def problem(self) -> str:
        """Reason for which there is no figure of ours, in one line; empty where there is one."""
        if not self.is_right:
            return f"wrong: {self.differences[OURS]:.2g} times the difference that is allowed"
        for step in ("program", OURS, "timing"):
            if step in self.errors:
                return self.errors[step]
        return ""

    def cells(self) -> dict[str, Any]:
        """Cells of a line of a table."""
        times = {name: self.latency(name) for name in CONTENDERS}
        ratios = {"x torch": self.beside_torch, "x MetaSchedule": self.speed_beside(METASCHEDULE)}
        return {
            "operator": self.row.name,
            "family": self.row.family,
            "threads": self.threads,
            "flop": self.row.flop,
            "bytes": self.read + self.written if self.described else None,
            **times,
            **ratios,
            "of the roofline": self.fraction,
            "checked with": "torch" if OURS in self.differences else "numpy" if self.tuned else "",
            "problem": self.problem,
        }

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {**asdict(self), "summary": self.cells()}

    def print(self) -> None:
        """A line for each contender."""
        for name in (*CONTENDERS, ROOFLINE):
            latency, ratio = self.latency(name), self.speed_beside(name)
            if latency is not None:
                beside = "" if ratio is None else f"{ratio:7.2f}x"
                print(f"    {name:<20} {latency * 1e3:10.4f} ms {beside}", flush=True)
            elif name in self.errors:
                print(f"    {name:<20} {self.errors[name]}", flush=True)
        for name, value in self.differences.items():
            if value > 1.0:
                print(f"    {name} differs from torch: {value:.2g} times what is allowed")


def print_table(measured: Iterable[Measured]) -> None:
    """A line for each row."""
    heads = ("ms", "untuned", "MetaSchedule", "eager", "chan. last", "compile")
    print(f"\n{'':<44}" + "".join(f"{head:>13}" for head in heads), end="")
    print(f"{'x torch':>9}{'x MetaS.':>9}{'roofline':>9}", flush=True)
    for one in measured:
        times = [text(one.latency(name), 1e3, 4) for name in CONTENDERS]
        ratios = (one.beside_torch, one.speed_beside(METASCHEDULE), one.fraction)
        line = "".join(f"{cell:>13}" for cell in times)
        line += "".join(f"{text(ratio, 1.0, 2):>9}" for ratio in ratios)
        print(f"{one.label:<44}{line}  {one.problem}".rstrip(), flush=True)


def text(value: float | None, scale: float, digits: int) -> str:
    """A cell."""
    return "-" if value is None else f"{value * scale:.{digits}f}"


def write_csv(path: Path, measured: Sequence[Measured]) -> None:
    """A line for each row; times in seconds."""
    lines = [one.cells() for one in measured]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]) if lines else [])
        writer.writeheader()
        writer.writerows(lines)


def bars_of(measured: Sequence[Measured]) -> list[Bar]:
    """The promises; those on rows that were not asked for say so."""
    theirs = [one for one in measured if one.metaschedule is not None]
    bars = _mean_and_least(
        "MetaSchedule",
        {one.label: one.speed_beside(METASCHEDULE) for one in theirs},
        METASCHEDULE_MEAN,
        METASCHEDULE_LEAST,
    )
    dense = [one for one in measured if one.row.family in (PRODUCT, CONVOLUTION)]
    bars += _mean_and_least(
        "torch, products and convolutions",
        {one.label: one.beside_torch for one in dense},
        DENSE_MEAN,
        DENSE_LEAST,
    )
    limited = [one for one in measured if one.row.family in (MEMORY, LARGE)]
    for contender, wanted in ((EAGER, EAGER_MEAN), (COMPILED, COMPILED_MEAN)):
        values = {one.label: one.speed_beside(contender) for one in limited}
        name = f"times {contender}, what memory limits"
        bars.append(mean_bar(name, values, wanted, _operator))
    large = [one for one in measured if one.row.family == LARGE and one.threads == 1]
    shares = {one.label: one.fraction for one in large}
    name = "of the bandwidth of memory, the least"
    bars.append(least_bar(name, shares, BANDWIDTH_LEAST, _operator))
    bars.append(Bar("rows whose output is wrong", _wrong(measured), 0, at_most=True))
    return bars


def _wrong(measured: Iterable[Measured]) -> float:
    return float(sum(not one.is_right for one in measured))


def _mean_and_least(
    beside: str, values: Mapping[str, float | None], mean: float, least: float
) -> list[Bar]:
    name = f"times {beside}, the least"
    return [
        mean_bar(f"times {beside}", values, mean, _operator),
        least_bar(name, values, least, _operator),
    ]


def _operator(label: str) -> str:
    """Of a row's label: a note names operators, and not each of their shapes."""
    return label.split()[0]
