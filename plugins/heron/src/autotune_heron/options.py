"""Options of the strategies, and their values in each variant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.plugins.options import option, read_options

__all__ = [
    "AnnealingOptions",
    "GeneticOptions",
    "HeronOptions",
    "IdeaOptions",
    "ParentsOptions",
    "RoundOptions",
    "StochasticRankingOptions",
    "checked_options",
]


@frozen
class RoundOptions:
    """Options of ``heron-random``, which the others have as well.

    Attributes:
        variant: ``ours``; ``paper``, as the first published state of the code; or ``head``, as
            the last.
        population: Rows that a round starts its generations with.
        generations: Generations of a round.
        children: Children of a generation, and samples that a round starts with.
        elite: Best rows of all so far that join the children of a generation.
        history: Best measured candidates that may join the first generation.
        greedy: Share of a round that is picked by score; the others are drawn by score. 0 for
            that of the variant: 0.9 for ours, else 0.6.
        sketch_trials: Candidates that every sketch gets before only scores count. Only ours.
    """

    variant: str = option("ours", choices=("ours", "paper", "head"))
    population: int = option(200, low=2, high=1_000_000)
    generations: int = option(5, low=0, high=1000)
    children: int = option(208, low=1, high=1_000_000)
    elite: int = option(20, low=0, high=1_000_000)
    history: int = option(32, low=0, high=1_000_000)
    greedy: float = option(0.0, low=0.0, high=1.0)
    sketch_trials: int = option(3, low=0, high=1_000_000)

    @property
    def is_ours(self) -> bool:
        """True if nothing published is reproduced."""
        return self.variant == "ours"

    @property
    def greedy_share(self) -> float:
        """Share of a round that is picked by score."""
        return self.greedy or (0.9 if self.is_ours else 0.6)


@frozen
class ParentsOptions(RoundOptions):
    """The further options of ``heron``, ``heron-ga``, ``heron-srga`` and ``heron-sdga``.

    Attributes:
        parents: Parents of a generation; 0 for those of the variant: 32 for paper, else 100.
    """

    parents: int = option(0, low=0, high=1_000_000)

    @property
    def parent_count(self) -> int:
        """Parents of a generation."""
        return self.parents or (32 if self.variant == "paper" else 100)


@frozen
class GeneticOptions(ParentsOptions):
    """Options of ``heron-ga`` only.

    Attributes:
        infeasible: ``reject``: children that are infeasible are lost; or ``repair``: the nearest
            feasible row replaces such a child.
    """

    infeasible: str = option("reject", choices=("reject", "repair"))


@frozen
class HeronOptions(ParentsOptions):
    """Options of ``heron`` only.

    Attributes:
        keys: ``importance``: those parameters are keys that the cost model's scores depend on
            most; or ``random``. Empty for that of the variant: random for head, else importance.
        key_share: Share of the parameters that are keys; 0 for that of the variant: 0.5 for
            ours, 0.14 for paper, 0.2 for head. There are two keys at least.
        drop: Keys that a child need not share with its parents: ``one``, or ``geometric``, one
            and with a chance of a half each time another. Empty for that of the variant:
            geometric for ours, else one.
    """

    keys: str = option("", choices=("importance", "random"))
    key_share: float = option(0.0, low=0.0, high=1.0)
    drop: str = option("", choices=("one", "geometric"))

    @property
    def by_importance(self) -> bool:
        """True if keys are the important parameters and not random ones."""
        return (self.keys or ("random" if self.variant == "head" else "importance")) != "random"

    @property
    def share(self) -> float:
        """Share of the parameters that are keys."""
        return self.key_share or {"ours": 0.5, "paper": 0.14, "head": 0.2}[self.variant]

    @property
    def drops_several(self) -> bool:
        """True if more than one key may be dropped at first."""
        return (self.drop or ("geometric" if self.is_ours else "one")) == "geometric"


@frozen
class StochasticRankingOptions(ParentsOptions):
    """Options of ``heron-srga`` only; the defaults are Heron's.

    Attributes:
        score_chance: Chance that two neighbours in the ranking, of which one is infeasible, are
            compared by score; otherwise by how far they violate constraints.
        sweeps: Most sweeps of the ranking.
    """

    score_chance: float = option(0.45, low=0.0, high=1.0)
    sweeps: int = option(10, low=0, high=100_000)


@frozen
class IdeaOptions(RoundOptions):
    """Options of ``heron-idea`` only; the defaults are Heron's.

    Attributes:
        infeasible_share: Share of a population that infeasible rows have, while there are any.
        crossover_index: Of simulated binary crossover: the larger, the nearer children are to
            their parents.
        mutation_index: Of polynomial mutation, likewise.
        mutation_probability: Chance that a value of a child is mutated.
    """

    infeasible_share: float = option(0.2, low=0.0, high=1.0)
    crossover_index: float = option(15.0, low=0.0, high=1000.0)
    mutation_index: float = option(20.0, low=0.0, high=1000.0)
    mutation_probability: float = option(0.1, low=0.0, high=1.0)


@frozen
class AnnealingOptions(RoundOptions):
    """Options of ``heron-sa`` only; the defaults are Heron's for 2000 trials.

    Attributes:
        temperature: At the first step, as a share of the difference between the best and the
            worst score of a round.
        cooling: Steps in which the temperature falls to zero, evenly; each generation is one.
    """

    temperature: float = option(0.6, low=0.0, high=1000.0)
    cooling: int = option(315, low=1, high=1_000_000)


_Options = TypeVar("_Options", bound=RoundOptions)


def checked_options(name: str, cls: type[_Options], given: Mapping[str, Any]) -> _Options:
    """Options of a strategy that do not contradict each other.

    Raises:
        InvalidValueError: an option is unknown, of the wrong type or out of its bounds, or two
            contradict each other.
        UnknownNameError: there is no such variant or way.
    """
    options = read_options(f"strategy {name!r}", cls, given)
    if options.elite > options.population:
        raise InvalidValueError(
            f"strategy {name!r}: an elite of {options.elite} is more than the population of "
            f"{options.population}; give elite at most {options.population}"
        )
    if not options.is_ours and "sketch_trials" in given:
        raise InvalidValueError(
            f"strategy {name!r}: variant={options.variant} gives sketches no trials of their "
            f"own; leave out sketch_trials, or use variant=ours"
        )
    return options
