"""The interface of a cost (verify) model: a score learned from outcomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.plugins.parts import current_options
from autotune.sketches import Candidate, CandidateBatch, Sketch
from autotune.store.records import Outcome

Observation = tuple[Candidate, Outcome]
"""A candidate and its outcome: what cost models learn from."""


class CostModel(ABC):
    """Predicts which candidates are fast. Owned by the tuner and shared by its tasks.

    A model is deterministic: the same updates in the same order give the same predictions.
    """

    name: str

    unused_packages: ClassVar[tuple[str, ...]] = ()
    """Packages that a library of this model imports where they are installed, and that the model
    has no use for.

    In the process of the models they cannot be imported during :meth:`warm_up`.
    """

    def warm_up(self) -> None:  # noqa: B027
        """Load what learning needs, such as a library; called in the background, at most once.

        Raises:
            AutotuneError: something is missing, and the user can do something about it.
        """

    @abstractmethod
    def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Scores of shape [n]; higher is better. Defined before the first update too."""

    @abstractmethod
    def update(self, outcomes: Sequence[Observation]) -> None:
        """Learn from new outcomes, failures included.

        What is logged as a warning to the logger ``autotune.models.cost`` meanwhile is shown to
        the user.
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """A JSON object from which :meth:`load_state` restores the model, also when untrained."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""


Values = NDArray[np.float64]


class DifferentiableCostModel(CostModel):
    """A cost model that is a smooth function of real-valued parameters.

    What it is trained on, what it ranks and what is descended along is one function: a prediction
    is minus :meth:`relaxed` at whole numbers.
    """

    @abstractmethod
    def relaxed(self, sketch: Sketch, rows: Values) -> tuple[Values, Values]:
        """Predicted latency and its gradient at points between configurations.

        Args:
            sketch: What the points are of.
            rows: float64 ``[n, params]``, one point a row, within
                :func:`autotune.nest.relaxed.param_bounds`.

        Returns:
            The natural logarithm of seconds, up to a constant for each task, ``[n]``; and its
            gradient by the values of the parameters, ``[n, params]``.

        Raises:
            InvalidValueError: the rows have another shape or type or are outside the bounds, or
                the sketch cannot be relaxed.
        """

    def predict(self, batch: CandidateBatch) -> Values:
        """Minus the predicted logarithm of latency, [n]; higher is better."""
        return -batch.each(lambda sketch, rows: self.relaxed(sketch, rows.astype(np.float64))[0])

    def feature_slopes(
        self, sketch: Sketch, rows: Values
    ) -> tuple[tuple[str, ...], Values, Values]:
        """Features that the model reads of points, and the weight of each.

        Args:
            sketch: What the points are of.
            rows: As for :meth:`relaxed`.

        Returns:
            Names of features; their values, ``[n, features]``; and the derivative of the natural
            logarithm of latency for each doubling of what a feature says, ``[n, features]``. By
            default there are none.
        """
        return (), np.zeros((len(rows), 0)), np.zeros((len(rows), 0))


def require_differentiable(
    model: CostModel, allowed: Iterable[str] = ("analytic",)
) -> DifferentiableCostModel:
    """The model, if it has a gradient.

    A model in a process of its own is taken to have one here, and is asked by its first
    :meth:`~DifferentiableCostModel.relaxed`, which raises the same error.

    Args:
        model: Any cost model.
        allowed: Names of cost models that have one, for the message.

    Raises:
        InvalidValueError: it has none.
    """
    if isinstance(model, DifferentiableCostModel):
        return model
    raise InvalidValueError(
        f"cost model {model.name!r} has no gradient to descend along; those that have one: "
        f"{', '.join(sorted(allowed))}"
    )


@frozen(eq=False)
class TrainingGroup:
    """Outcomes of one task, whose latencies compare with each other and with no other group's.

    Attributes:
        name: What a person calls the task.
        workload: Digest of its workload.
        outcomes: Distinct candidates and their outcomes, failures included.
    """

    name: str
    workload: str
    outcomes: tuple[tuple[Candidate, Outcome], ...]

    @property
    def is_informative(self) -> bool:
        """True if there is anything to learn: some candidate has a latency."""
        return any(outcome.ok for _, outcome in self.outcomes)


def closeness(latencies: Sequence[float | None], tasks: Sequence[Hashable]) -> NDArray[np.float64]:
    """The best latency of each one's task over its own, in (0, 1], and 0 for failures, [n].

    Args:
        latencies: Seconds, or None for a failure, [n].
        tasks: What latencies compare within, [n].
    """
    best: dict[Hashable, float] = {}
    for task, latency in zip(tasks, latencies, strict=True):
        if latency is not None:
            best[task] = min(latency, best.get(task, latency))
    return np.array(
        [
            # A latency of zero can only be its task's best.
            0.0 if latency is None else best[task] / latency if latency > 0 else 1.0
            for task, latency in zip(tasks, latencies, strict=True)
        ],
        dtype=np.float64,
    )


class TrainableCostModel(CostModel):
    """A cost model that learns from recorded data of many tasks before it is used.

    A run that begins with such a model in a file updates it with its own outcomes. What
    :meth:`state` returns need not hold the weights of the file: it is loaded into a model that
    has loaded the same file, and should be refused by any other.
    """

    @abstractmethod
    def fit(self, groups: Sequence[TrainingGroup]) -> Mapping[str, float]:
        """Learn from scratch; what was learned before, from updates too, is forgotten.

        Where no group is informative, nothing changes.

        Returns:
            What is worth knowing of the training, such as its loss; empty where nothing changed.
        """

    @abstractmethod
    def save(self, stream: BinaryIO) -> None:
        """Write what decides the predictions, also of a model that has learned nothing.

        The file says which model it is of and which version its features have, and holds nothing
        that would be executed when it is read; see :func:`autotune.models.cost.write_model`.
        """

    @abstractmethod
    def load(self, stream: BinaryIO) -> None:
        """Become what :meth:`save` wrote; updates continue from there.

        Raises:
            InvalidValueError: the file is damaged, of another model, or its features have
                another version, which is named together with the own one.
        """


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
