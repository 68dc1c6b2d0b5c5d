"""Gradient-boosted trees over features of the loop nest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autotune.errors import AutotuneError, InvalidValueError
from autotune.models.context import ModelContext
from autotune.models.cost.cost_model import TrainableCostModel, TrainingGroup, closeness
from autotune.models.cost.model_file import check_model, read_model, write_model
from autotune.plugins.options import NoOptions, read_options
from autotune.sketches import Candidate, CandidateBatch
from autotune.sketches.candidates import in_order
from autotune.store.records import Outcome

if TYPE_CHECKING:
    from autotune.targets import Target

Features: TypeAlias = "Callable[[CandidateBatch, Target], NDArray[np.float64]]"

ROUNDS = 60
FIT_ROUNDS = 300

# Small trees on little data: a leaf may hold two rows, and every distinct value is a bin.
PARAMETERS: dict[str, Any] = {
    "objective": "regression",
    "learning_rate": 0.12,
    "num_leaves": 15,
    "min_data_in_leaf": 2,
    "min_data_in_bin": 1,
    "min_sum_hessian_in_leaf": 0.0,
    "lambda_l2": 0.1,
    "feature_fraction": 0.7,
    "feature_pre_filter": False,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}

# What differs where a model is trained on the records of many tasks.
FIT_PARAMETERS: dict[str, Any] = {
    "learning_rate": 0.06,
    "num_leaves": 63,
    "min_data_in_leaf": 10,
    "min_data_in_bin": 3,
}

# Below this many rows one thread is as fast as several on an idle machine, and far faster on a
# busy one: lightgbm's threads spin at a barrier for every leaf.
_PARALLEL_ROWS = 20_000

# Stands in for features that are not finite: JSON has no infinity.
_HUGE = 1e30


class GradientBoostedTrees(TrainableCostModel):
    """Predicts how close a candidate comes to its task's best, from loop-nest features.

    The label of a row is the best latency of its workload divided by its own, in (0, 1], and 0
    for a failure, so that tasks of any size share one model. It is trained from scratch at
    each update. Until it has seen an outcome it predicts zeros.

    One that was fitted to recorded data, or loaded, keeps those trees: at each update new trees
    are grown on top of them, from its own outcomes.

    Args:
        context: The target is given to ``features``, the seed is that of the column sampling,
            threads are for much data; results are reproducible for a fixed number.
        features: Maps a batch and the target to a matrix [n, f]; by default the pooled
            features of :mod:`autotune.nest`.
        feature_version: Names the meaning of ``features`` when those are given; a state of
            another version is refused.

    Raises:
        InvalidValueError: an option is given.
    """

    name = "gbdt"
    # Where they are installed, importing lightgbm takes a second with them and 0.1 s without.
    unused_packages = ("matplotlib", "pandas", "sklearn")

    def __init__(
        self,
        context: ModelContext,
        features: Features | None = None,
        feature_version: int | str = "custom",
    ) -> None:
        read_options(f"cost model {self.name!r}", NoOptions, context.options)
        self._target = context.target
        self._seed = context.seed
        self._threads = context.threads
        if features is None:
            # Here, because callers with features need not pay for the loop nest.
            from autotune.models.features import FEATURE_VERSION, pooled_features

            features, feature_version = pooled_features, FEATURE_VERSION
        self._features = features
        self._feature_version = feature_version
        self._rows: list[NDArray[np.float64]] = []
        self._latencies: list[float | None] = []
        self._workloads: list[str] = []
        self._booster: Any = None
        self._base: Any = None
        self._base_digest = ""

    def warm_up(self) -> None:
        """Import lightgbm.

        Raises:
            AutotuneError: it is not installed.
        """
        _lightgbm()

    def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Scores of shape [n], about 1 for the best and 0 for failures.

        Raises:
            AutotuneError: lightgbm is needed and not installed.
        """
        booster = self._grown()
        if booster is None or not len(batch):
            return np.zeros(len(batch))
        threads = self._threads_for(len(batch))
        predicted = booster.predict(self._featurised(batch), num_threads=threads)
        return np.asarray(predicted, dtype=np.float64)

    def update(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Add outcomes to the training rows and train again.

        Raises:
            AutotuneError: lightgbm is not installed.
        """
        if not outcomes:
            return
        self._rows += list(self._featurised_told(outcomes))
        self._latencies += [outcome.latency for _, outcome in outcomes]
        self._workloads += [candidate.sketch.workload.digest for candidate, _ in outcomes]
        self._booster = None
        self._grown()

    def fit(self, groups: Sequence[TrainingGroup]) -> Mapping[str, float]:
        """Grow trees from recorded data; each group is a task.

        Raises:
            AutotuneError: lightgbm is not installed.
        """
        groups = [group for group in groups if group.is_informative]
        if not groups:
            return {}
        self._forget()
        table = np.concatenate([self._featurised_told(group.outcomes) for group in groups])
        told = [
            (number, outcome.latency)
            for number, group in enumerate(groups)
            for _, outcome in group.outcomes
        ]
        labels = closeness([latency for _, latency in told], [number for number, _ in told])
        booster = self._boosted(table, labels, FIT_ROUNDS, FIT_PARAMETERS)
        self._build_on(booster.model_to_string())
        error = self._base.predict(table, num_threads=self._threads) - labels
        return {
            "tasks": float(len(groups)),
            "rows": float(len(labels)),
            "training_error": float(np.sqrt(np.mean(error**2))),
        }

    def save(self, stream: BinaryIO) -> None:
        """Write the trees as text in an npz file."""
        booster = self._grown()
        text = "" if booster is None else booster.model_to_string()
        arrays = {"trees": np.frombuffer(text.encode(), dtype=np.uint8)}
        write_model(stream, self.name, self._feature_version, arrays)

    def load(self, stream: BinaryIO) -> None:
        """Take the trees of a file, and forget all else.

        Raises:
            InvalidValueError: the file is damaged, of another model or of other features.
            AutotuneError: lightgbm is needed and not installed.
        """
        saved = read_model(stream, self.name, self._feature_version)
        try:
            text = saved.arrays["trees"].tobytes().decode()
        except (KeyError, UnicodeDecodeError) as error:
            raise InvalidValueError(f"the file of the cost model has no trees: {error}") from error
        self._forget()
        if text:
            self._build_on(text)

    def _forget(self) -> None:
        self._rows, self._latencies, self._workloads = [], [], []
        self._booster = self._base = None
        self._base_digest = ""

    def _build_on(self, text: str) -> None:
        """Let trees, in lightgbm's own text form, be those that others are grown on top of."""
        lightgbm = _lightgbm()
        try:
            self._base = lightgbm.Booster(model_str=text)
        except lightgbm.basic.LightGBMError as error:
            raise InvalidValueError(f"the trees of the cost model are damaged: {error}") from error
        self._base_digest = hashlib.sha256(text.encode()).hexdigest()[:16]

    def _featurised_told(
        self, outcomes: Sequence[tuple[Candidate, Outcome]]
    ) -> NDArray[np.float64]:
        """Features of the outcomes, a row for each, in order."""
        return in_order([candidate for candidate, _ in outcomes], self._featurised)

    def _featurised(self, batch: CandidateBatch) -> NDArray[np.float64]:
        features = np.asarray(self._features(batch, self._target), dtype=np.float64)
        width = features.shape[-1]
        if self._rows:
            width = len(self._rows[0])
        elif self._base is not None:
            width = self._base.num_feature()
        if features.shape != (len(batch), width):
            raise InvalidValueError(
                f"features of {len(batch)} candidates must have shape {(len(batch), width)}, "
                f"not {features.shape}"
            )
        return np.nan_to_num(features, nan=0.0, posinf=_HUGE, neginf=-_HUGE)

    def _threads_for(self, rows: int) -> int:
        return self._threads if rows >= _PARALLEL_ROWS else 1

    def _grown(self) -> Any:
        """The trees that predict; None before there are any."""
        if not self._rows:
            return self._base
        if self._booster is None:
            labels = closeness(self._latencies, self._workloads)
            self._booster = self._boosted(np.stack(self._rows), labels, ROUNDS, {})
        return self._booster

    def _boosted(
        self,
        table: NDArray[np.float64],
        labels: NDArray[np.float64],
        rounds: int,
        settings: Mapping[str, Any],
    ) -> Any:
        """New trees, on top of those that the model was fitted with."""
        lightgbm = _lightgbm()
        threads = self._threads_for(len(table))
        seed = self._seed % 2**31
        parameters = {**PARAMETERS, **settings, "num_threads": threads, "seed": seed}
        dataset = lightgbm.Dataset(table, label=labels, params=parameters)
        return lightgbm.train(parameters, dataset, num_boost_round=rounds, init_model=self._base)

    def state(self) -> dict[str, Any]:
        """A JSON object with the training rows, from which the same trees grow again.

        Trees of a file, or of recorded data, are not in it, only their digest.
        """
        return {
            "model": self.name,
            "feature_version": self._feature_version,
            "seed": self._seed,
            "base": self._base_digest,
            "features": [row.tolist() for row in self._rows],
            "latencies": list(self._latencies),
            "workloads": list(self._workloads),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned; trains when first asked to predict.

        Raises:
            InvalidValueError: the state is of another model, its features have another version,
                or it builds on other trees than this model.
        """
        # A state of an earlier version builds on nothing.
        base = {"file": state.get("base", "")}
        check_model(self.name, {**state, **base}, self._feature_version, self._base_digest)
        self._seed = int(state["seed"])
        self._rows = [np.array(row, dtype=np.float64) for row in state["features"]]
        self._latencies = list(state["latencies"])
        self._workloads = list(state["workloads"])
        self._booster = None


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError as error:
        raise AutotuneError(
            "the cost model 'gbdt' needs lightgbm: run 'pip install lightgbm', "
            "or choose another cost model"
        ) from error
    return lightgbm
