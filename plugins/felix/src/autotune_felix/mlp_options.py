"""Options of the networks. Importing them imports no torch."""

from __future__ import annotations

from attrs import frozen

from autotune.plugins.options import option

__all__ = [
    "FelixMlpOptions",
    "PublishedMlpOptions",
]

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
