"""Options of the strategies ``pruner`` and ``moa-pruner``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import frozen

from autotune.errors import UnknownNameError
from autotune.plugins.options import option, read_options

__all__ = ["MoAPrunerOptions", "PrunerOptions", "checked_strategy_options"]

_FIDELITIES = ("ours", "published")
# Where these are not given.
_PUBLISHED = {"population": 1536, "generations": 1}


@frozen
class PrunerOptions:
    """Options of ``pruner``; the defaults of what was published are the published ones.

    Attributes:
        fidelity: ``ours``; or ``published``: drafts by evolution from a sample, which the cost
            model then ranks together with all of that sample.
        drafts: Candidates that a draft keeps.
        draft_share: Share of what a draft looks at, best first, that it is drawn from, the better
            the likelier; 0 keeps the best. As published, 0.
        refresh: Rounds of a task that one draft serves.
        verified: Share of the draft that the cost model ranks in a round, drawn at random. As
            published, 1.
        configurations: Configurations that a draft looks at; all, where there are no more.
            As published, 3 populations.
        population: Candidates that the cost model ranks in a round, and of a generation of a
            draft. As published 1536, which is the size of every generation and of the sample.
        draft_generations: Generations of a draft, ranked by the pruning model.
        generations: Generations of a round, ranked by the cost model; as published 1.
        parents: Candidates, best first, that children of a round come from. As published, all.
        crossover_probability: Chance that a child mixes two parents; as published, none does.
        mutation_probability: Chance that a mixture (as published: a clone) is mutated.
        measured_ratio: Share of the population that the best measured candidates may take.
        epsilon: Share of a round that is picked at random.
        heap: Candidates kept by score for each one asked for, from which the round is picked.
            Ours renews a draft early that has fewer left.
        prior: Measured candidates after which only the cost model ranks. Until then the pruning
            model has a say that shrinks evenly. As published, it only breaks ties.
        prior_share: That say before anything was measured: 1 ranks by the pruning model alone.
        sketch_trials: Candidates that every sketch gets before only scores count; as published,
            none.
    """

    fidelity: str = option("ours")
    drafts: int = option(512, low=1, high=100_000)
    draft_share: float = option(0.1, low=0.0, high=1.0)
    refresh: int = option(2, low=1)
    verified: float = option(0.5, low=0.0, high=1.0)
    configurations: int = option(100_000, low=1, high=10_000_000)
    population: int = option(1024, low=2, high=1_000_000)
    draft_generations: int = option(2, low=0, high=1000)
    generations: int = option(4, low=0, high=1000)
    parents: int = option(32, low=1, high=1_000_000)
    crossover_probability: float = option(0.3, low=0.0, high=1.0)
    mutation_probability: float = option(0.85, low=0.0, high=1.0)
    measured_ratio: float = option(0.1, low=0.0, high=1.0)
    epsilon: float = option(0.1, low=0.0, high=1.0)
    heap: int = option(2, low=1, high=1000)
    prior: int = option(200, low=0)
    prior_share: float = option(1.0, low=0.0, high=1.0)
    sketch_trials: int = option(3, low=0, high=1_000_000)


@frozen
class MoAPrunerOptions(PrunerOptions):
    """Options of ``moa-pruner``: those of ``pruner``.

    The cost model knows other tasks: it is worth as much as the pruning model at first.

    Attributes:
        prior_share: As for ``pruner``, but one half.
    """

    prior_share: float = option(0.5, low=0.0, high=1.0)


_Options = TypeVar("_Options", bound=PrunerOptions)


def checked_strategy_options(name: str, cls: type[_Options], given: Mapping[str, Any]) -> _Options:
    """Options of a strategy, with the fidelity checked too.

    Raises:
        InvalidValueError: an option is unknown, of the wrong type or out of its bounds.
        UnknownNameError: there is no such fidelity.
    """
    if given.get("fidelity") == "published":
        given = {**_PUBLISHED, **given}
    options = read_options(f"strategy {name!r}", cls, given)
    if options.fidelity not in _FIDELITIES:
        raise UnknownNameError("fidelity", options.fidelity, _FIDELITIES)
    return options
