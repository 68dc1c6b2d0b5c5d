"""Plan of a comparison: workloads, contenders, seeds, and one budget for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import asdict, frozen

from autotune.errors import InvalidValueError
from autotune.evaluation.compare.runs import AFTER_A_RUN, Arena
from autotune.models.cost import trained_model

__all__ = [
    "BASELINE",
    "COMPARE_SCHEMA",
    "COMPARE_VERSION",
    "Budget",
    "ComparedWorkload",
    "Contender",
    "Piece",
    "Plan",
    "check_same_study",
    "named_arguments",
]

COMPARE_SCHEMA = "autotune.compare"
COMPARE_VERSION = 1
BASELINE = "random"
"""The contender that others are compared with: what uniform draws find is no merit of a search."""

# Fields without which a line of the results is not understood, by its kind. A run has these and an
# error, or what it found.
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "study": ("budget", "common"),
    "run": ("workload", "contender", "seed", "trials"),
    "turns": ("workload", "turns", "errors"),
}
_FOUND = ("wall", "spent", "latency", "schedule", "steps", "history", "seconds")
_MODEL_FLAG = "--load-cost-model"


@frozen
class Budget:
    """Limits of each run.

    Attributes:
        trials: Candidates; None for as many as the time allows.
        seconds: Wall seconds; None for no limit.
    """

    trials: int | None
    seconds: float | None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Arguments as ``autotune tune`` is given them."""
        given = {"--trials": self.trials, "--time": self.seconds}
        return tuple(
            text for flag, it in given.items() if it is not None for text in (flag, str(it))
        )

    def __str__(self) -> str:
        parts = [] if self.trials is None else [f"{self.trials} trials"]
        parts += [] if self.seconds is None else [f"{self.seconds:g} s"]
        return " or ".join(parts)


@frozen
class ComparedWorkload:
    """A workload that every contender tunes.

    Attributes:
        label: What the user calls it.
        digest: Of the workload.
        arguments: As ``autotune tune`` is given it.
    """

    label: str
    digest: str
    arguments: tuple[str, ...]


@frozen
class Contender:
    """A way to tune.

    Attributes:
        name: What it is called.
        arguments: What ``autotune tune`` is given for it.
    """

    name: str
    arguments: tuple[str, ...]


@frozen
class Piece:
    """A run of one contender on one workload with one seed."""

    workload: str
    contender: str
    seed: int

    @staticmethod
    def of(line: Mapping[str, Any]) -> Piece:
        """The piece that a line of the results is."""
        return Piece(line["workload"], line["contender"], line["seed"])

    @property
    def label(self) -> str:
        """Among all runs of a workload."""
        return f"{self.contender}/{self.seed}"


@frozen
class Plan:
    """A comparison.

    Attributes:
        workloads: What is tuned; no two have one label or one digest.
        contenders: What tunes it; no two have one name.
        seeds: Each contender tunes each workload with the seeds from 0 to here.
        budget: Of each run.
        common: What ``autotune tune`` is given for all of them.
        setting: What latencies depend on besides: the machine and the compiler; JSON values.
        arena: Where the programs that were found take turns.
    """

    workloads: tuple[ComparedWorkload, ...]
    contenders: tuple[Contender, ...]
    seeds: int
    budget: Budget
    common: tuple[str, ...]
    setting: Mapping[str, Any]
    arena: Arena = AFTER_A_RUN

    def __attrs_post_init__(self) -> None:
        named = {
            "contender": [it.name for it in self.contenders],
            "workload": [it.label for it in self.workloads],
        }
        for kind, names in named.items():
            for name in names:
                if names.count(name) > 1:
                    raise InvalidValueError(f"two {kind}s are called {name!r}: rename one")
        digests = [it.digest for it in self.workloads]
        for number, digest in enumerate(digests):
            if (first := digests.index(digest)) < number:
                one, other = self.workloads[first].label, self.workloads[number].label
                raise InvalidValueError(f"workloads {one!r} and {other!r} are the same")

    @property
    def head(self) -> dict[str, Any]:
        """The first line of the results: pieces of other heads do not compare."""
        return {
            "kind": "study",
            "schema": COMPARE_SCHEMA,
            "version": COMPARE_VERSION,
            "budget": asdict(self.budget),
            "common": list(named_arguments(self.common)),
            **self.setting,
        }

    def pieces(self) -> list[Piece]:
        """All runs, in the order in which they are done.

        Seed by seed, so that a study that is stopped has something of everything, and within a
        seed at random: a machine that gets slower hits no contender more than another. The order
        is the same in every call.
        """
        ordered = []
        for seed in range(self.seeds):
            runs = [
                Piece(workload.label, contender.name, seed)
                for workload in self.workloads
                for contender in self.contenders
            ]
            order = np.random.default_rng(seed).permutation(len(runs))
            ordered += [runs[number] for number in order]
        return ordered

    def arguments(self, piece: Piece) -> list[str]:
        """Arguments of ``autotune tune`` for a run."""
        workload = next(it for it in self.workloads if it.label == piece.workload)
        contender = next(it for it in self.contenders if it.name == piece.contender)
        seeded = (*self.budget.arguments, "--seed", str(piece.seed))
        return [*workload.arguments, *seeded, *self.common, *contender.arguments]


def named_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Arguments of ``autotune tune`` as results name them: a model file by what is in it."""
    named = list(arguments)
    for place, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag != _MODEL_FLAG:
            continue
        if equals:
            named[place] = f"{flag}={trained_model(value).digest}"
        elif place + 1 < len(named):
            named[place + 1] = trained_model(named[place + 1]).digest
    return tuple(named)


def check_same_study(plan: Plan, lines: Sequence[Mapping[str, Any]], path: str) -> None:
    """Refuse results of runs that do not compare with those of the plan.

    Workloads, contenders and seeds may be other ones: a study can grow.

    Args:
        plan: What is to be compared.
        lines: Of the results file.
        path: Its name.

    Raises:
        InvalidValueError: the results are of another budget, machine or compiler, of a workload
            or contender of the same name that is another one, or of no comparison.
    """
    if not lines:
        return
    first = lines[0]
    if first.get("schema") != COMPARE_SCHEMA or first.get("version") != COMPARE_VERSION:
        found = f"{first.get('schema')!r}, version {first.get('version')!r}"
        raise InvalidValueError(
            f"{path!r} holds no results that this version compares: it is {found}, not "
            f"{COMPARE_SCHEMA!r}, version {COMPARE_VERSION}"
        )
    wanted = {"study": plan.head}
    wanted |= {f"workload {it.label!r}": {"digest": it.digest} for it in plan.workloads}
    wanted |= {
        f"contender {it.name!r}": {"arguments": list(named_arguments(it.arguments))}
        for it in plan.contenders
    }
    for number, line in enumerate(lines, start=1):
        needed = _NEEDED.get(str(line.get("kind")), ("",))
        if line.get("kind") == "run" and not line.get("error"):
            needed = (*needed, *_FOUND)
        if not all(name in line for name in needed):
            raise InvalidValueError(f"line {number} of {path!r} is no result of a comparison")
        names = ["study"] if line["kind"] == "study" else []
        if line["kind"] == "run":
            names = [f"workload {line['workload']!r}", f"contender {line['contender']!r}"]
        for name in names:
            for key, value in wanted.get(name, {}).items():
                if line.get(key) != value:
                    raise InvalidValueError(
                        f"{path!r} holds the results of another {name.partition(' ')[0]}: {name} "
                        f"has {key} {line.get(key)!r} there, and {value!r} here; name another file"
                    )
