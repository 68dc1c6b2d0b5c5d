"""Options of the strategy ``felix``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.plugins.options import option, read_options

__all__ = [
    "FelixMlpOptions",
    "FelixOptions",
    "PUBLISHED",
    "PublishedMlpOptions",
    "checked_options",
]

PUBLISHED: Mapping[str, Any] = {
    "force": "matched",
    "divisibility": "penalty",
    "rounding": "independent",
    "sampler": "one-sided",
    "measured_share": 0.0,
    "tournament": 1,
    "repairs": 0,
    "polish": 0,
    "epsilon": 0.0,
    "sketches": 1000,
    "sketch_trials": 0,
    "even_drafts": False,
    "sampled_drafts": 0.0,
    "spacing": 0.0,
    "sketch_share": 1.0,
}
"""Options that ``fidelity=published`` changes; those that a user gives count."""


@frozen
class FelixOptions:
    """Options of ``felix``.

    Attributes:
        fidelity: ``ours``; or ``published``: other defaults for what is below, as in Felix.
        seeds: Points that descend at once in each sketch.
        steps: Steps in the first round of a sketch; later ones have ``steps // 4``.
        learning_rate: First step size, in exponents of a prime and octaves; a fifth of it after
            three tenths of the steps.
        sketches: Most sketches that points descend in, in one round.
        sketch_trials: Candidates that every sketch gets before only scores count.
        even_drafts: Whether all sketches in which points descended get equally many candidates
            until there are outcomes.
        sampled_drafts: Share of the picks by score that are the best of a sample until there are
            outcomes, and not what points passed.
        spacing: Octaves, summed over the parameters, that picks by score of one round and sketch
            are apart while there are others.
        sketch_share: Share of the other picks by score that one sketch may have, while others in
            which points descended have any left.
        epsilon: Share of each round that is sampled at random instead of picked by score.
        measured_share: Share of the points that begin near the best measured candidates.
        noise: Deviation of these from the candidates, in exponents and octaves.
        tournament: Points drawn for each other one that begins; the best predicted begins.
        repairs: Most broken configurations of a sketch and round that are repaired; the others,
            those with the worse predictions, are left out.
        force: How constraints push: ``ramped``, ``matched`` or ``fixed``.
        strength: The push by constraints, relative to the cost's; with ``fixed``, its factor.
        divisibility: ``projection``, or ``penalty``: products may be broken, and push.
        rounding: ``remainders``, or ``independent``: each exponent to the nearest, and what breaks
            a product is left out.
        roundings: How often each point is rounded: once by the largest remainders, then by ones
            that are drawn by size.
        polish: How often configurations one move from the best ``seeds`` of a sketch join those
            that were passed.
        ranking: ``aligned``, or ``misaligned``: predictions are not those of the candidates that
            they rank once a configuration was left out, as in the released code.
        sampler: ``uniform``, or ``one-sided``: points of a growing set in positive directions.
    """

    fidelity: str = option("ours", choices=("ours", "published"))
    seeds: int = option(32, low=1, high=100_000)
    steps: int = option(64, low=0, high=100_000)
    learning_rate: float = option(0.5, low=0.0, high=100.0)
    sketches: int = option(5, low=1, high=1000)
    sketch_trials: int = option(3, low=0, high=1_000_000)
    even_drafts: bool = option(True)
    sampled_drafts: float = option(0.5, low=0.0, high=1.0)
    spacing: float = option(4.0, low=0.0, high=1000.0)
    sketch_share: float = option(0.5, low=0.0, high=1.0)
    epsilon: float = option(0.1, low=0.0, high=1.0)
    measured_share: float = option(0.25, low=0.0, high=1.0)
    noise: float = option(0.5, low=0.0, high=100.0)
    tournament: int = option(4, low=1, high=1000)
    repairs: int = option(128, low=0, high=1_000_000)
    force: str = option("ramped", choices=("ramped", "matched", "fixed"))
    strength: float = option(5.0, low=0.0, high=1e6)
    divisibility: str = option("projection", choices=("projection", "penalty"))
    rounding: str = option("remainders", choices=("remainders", "independent"))
    roundings: int = option(1, low=1, high=100)
    polish: int = option(2, low=0, high=100)
    ranking: str = option("aligned", choices=("aligned", "misaligned"))
    sampler: str = option("uniform", choices=("uniform", "one-sided"))


def checked_options(owner: str, given: Mapping[str, Any]) -> FelixOptions:
    """The options, with the defaults of the fidelity asked for.

    Args:
        owner: The strategy's name, for messages.
        given: What the user gave.

    Raises:
        InvalidValueError: an option is unknown or has a value that it may not have.
    """
    options = read_options(f"strategy {owner!r}", FelixOptions, given)
    if options.fidelity == "published":
        changes = {name: value for name, value in PUBLISHED.items() if name not in given}
        options = attrs.evolve(options, **changes)
    if options.divisibility == "penalty" and options.rounding == "remainders":
        raise InvalidValueError(
            "rounding by remainders needs exact products: give rounding=independent with "
            "divisibility=penalty, or divisibility=projection"
        )
    return options


_SMOOTHINGS = ("narrow", "published")


@frozen
class FelixMlpOptions:
    """Options of ``felix-mlp``.

    Attributes:
        members: Networks, which differ in their first weights.
        width: Of each layer.
        caution: Standard deviations of the members that are added to their mean logarithm of
            latency: what they do not agree on is not taken for a gain.
        steps: Batches of training after an update; three times as many when the own data have
            doubled since the columns were scaled.
        fit_epochs: Passes over the data of a training beforehand.
        precision: Of the network: ``single``, or ``double`` to check gradients.
        smoothing: Of the features between configurations: ``published`` is as wide as Felix has
            it. A model trained with one is not read with the other.
    """

    members: int = option(3, low=1, high=32)
    width: int = option(128, low=4, high=4096)
    caution: float = option(0.5, low=0.0, high=10.0)
    steps: int = option(60, low=1)
    fit_epochs: int = option(20, low=1)
    precision: str = option("single", choices=("single", "double"))
    smoothing: str = option("narrow", choices=_SMOOTHINGS)


@frozen
class PublishedMlpOptions:
    """Options of ``felix-mlp-published``; the defaults are those of the released code.

    Attributes:
        width: Of each layer.
        smoothing: Of the features between configurations: ``published`` is as wide as Felix has
            it, ``narrow`` as other models here. A model trained with one is not read with the
            other.
        least_outcomes: Outcomes with a latency that there are before weights of a file are
            fine-tuned. Without a file, it learns from the first outcomes on.
        programs: Programs that all batches of a training after an update have together.
        fit_epochs: Passes over the data of a training beforehand.
        precision: Of the network: ``single``, or ``double`` to check gradients.
    """

    width: int = option(256, low=4, high=4096)
    smoothing: str = option("published", choices=_SMOOTHINGS)
    least_outcomes: int = option(256, low=1)
    programs: int = option(30_000, low=1)
    fit_epochs: int = option(200, low=1)
    precision: str = option("single", choices=("single", "double"))
