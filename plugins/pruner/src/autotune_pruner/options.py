"""Options of the cost models. Importing them imports no torch."""

from __future__ import annotations

from attrs import frozen

from autotune.plugins.options import option

__all__ = ["CostModelOptions", "MomentumOptions"]


@frozen
class CostModelOptions:
    """Options of ``pacm`` and ``tenset-mlp``.

    Attributes:
        fidelity: ``ours``; or ``published``: features with the published errors, all tasks of a
            batch ranked against each other, and a training from scratch after every round.
        epochs: Of a full training; 0 for 20, or 50 as published.
        growth: A full training follows when there are so many times the rows of the last one;
            until then, rounds fine-tune. 1 trains fully after every round.
        fine_tune_steps: Steps of fine-tuning after a round.
        fine_tune_batch: Rows of such a step: the round's own, and a sample of earlier ones.
        device: Where torch computes: ``cpu``, ``cuda``, ``cuda:1``, ...
    """

    fidelity: str = option("ours", choices=("ours", "published"))
    epochs: int = option(0, low=0)
    growth: float = option(3.0, low=1.0)
    fine_tune_steps: int = option(4, low=1)
    fine_tune_batch: int = option(64, low=2)
    device: str = option("cpu")


@frozen
class MomentumOptions:
    """Options of ``moa-pacm``.

    Attributes:
        fidelity: ``ours``; or ``published``: features with the published errors, all tasks of a
            batch ranked against each other, columns rescaled at each fine-tuning, and batch
            statistics that are not blended.
        epochs: Of a fine-tuning; 0 for 20, or 50 as published.
        momentum: Share of the slow weights that stays at each blend.
        period: Updates from one fine-tuning to the next.
        device: Where torch computes: ``cpu``, ``cuda``, ``cuda:1``, ...
    """

    fidelity: str = option("ours", choices=("ours", "published"))
    epochs: int = option(0, low=0)
    momentum: float = option(0.99, low=0.0, high=1.0)
    period: int = option(4, low=1)
    device: str = option("cpu")
