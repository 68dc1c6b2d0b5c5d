"""The option ``learn``, which every cost model has: whether outcomes of the run change it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.errors import InvalidValueError
from autotune.models.cost.cost_model import CostModel
from autotune.models.cost.trainable import TrainableCostModel
from autotune.plugins.parts import current_options

__all__ = ["check_has_learned", "split_learn"]

_LEARN = "learn"


def split_learn(name: str, options: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Return whether a cost model is to learn during a run, and its own options.

    A model that is not to learn is never updated, so that it predicts as it was loaded (Pruner's
    offline mode).

    Args:
        name: Name of the cost model.
        options: What the user gave.

    Raises:
        InvalidValueError: the option is neither true nor false.
        UnknownNameError: no plugin registers the model.
    """
    own = current_options("cost_model", name, options)
    learn = own.pop(_LEARN, True)
    if not isinstance(learn, bool):
        raise InvalidValueError(
            f"option 'learn' of cost model {name!r} must be true or false, not {learn!r}"
        )
    return learn, own


def check_has_learned(name: str, model: CostModel) -> None:
    """Refuse a model that is not to learn, and has not been trained beforehand either.

    Raises:
        InvalidValueError: it can be trained beforehand, so it needs a file.
    """
    if isinstance(model, TrainableCostModel):
        raise InvalidValueError(
            f"cost model {name!r} is not to learn (learn=false) and was not trained beforehand: "
            "load what it has learned (--load-cost-model, load_cost_model), or let it learn"
        )
