"""Gradient-boosted trees over features of the loop nest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autotune.cost_models.cost_model import CostModel
from autotune.cost_models.model_state import check_model
from autotune.errors import AutotuneError, InvalidValueError
from autotune.records import Outcome
from autotune.sketches import Candidate, CandidateBatch
from autotune.sketches.candidate import order_of

if TYPE_CHECKING:
    from autotune.targets import Target

Features: TypeAlias = "Callable[[CandidateBatch, Target], NDArray[np.float64]]"

ROUNDS = 60

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

# Below this many rows one thread is as fast as several on an idle machine, and far faster on a
# busy one: lightgbm's threads spin at a barrier for every leaf.
_PARALLEL_ROWS = 20_000

# Stands in for features that are not finite: JSON has no infinity.
_HUGE = 1e30


class GradientBoostedTrees(CostModel):
    """Predicts how close a candidate comes to its task's best, from loop-nest features.

    The label of a row is the best latency of its workload divided by its own, in (0, 1], and 0
    for a failure, so that tasks of any size share one model. It is trained from scratch at
    each update. Until it has seen an outcome it predicts zeros.

    Args:
        target: What the candidates are for; given to ``features``.
        seed: Of the column sampling.
        threads: For training and prediction on much data; results are reproducible for a fixed
            number.
        features: Maps a batch and the target to a matrix [n, f]; by default the pooled
            features of :mod:`autotune.nest`.
        feature_version: Names the meaning of ``features`` when those are given; a state of
            another version is refused.
    """

    name = "gbdt"

    def __init__(
        self,
        target: Target,
        seed: int = 0,
        threads: int = 1,
        features: Features | None = None,
        feature_version: int | str = "custom",
    ) -> None:
        self._target = target
        self._seed = seed
        self._threads = threads
        if features is None:
            # Here, because whoever brings features need not pay for the loop nest.
            from autotune.nest import FEATURE_VERSION, pooled_features

            features, feature_version = pooled_features, FEATURE_VERSION
        self._features = features
        self._feature_version = feature_version
        self._rows: list[NDArray[np.float64]] = []
        self._latencies: list[float | None] = []
        self._workloads: list[str] = []
        self._booster: Any = None

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
        if not self._rows or not len(batch):
            return np.zeros(len(batch))
        if self._booster is None:
            self._train()
        threads = self._threads_for(len(batch))
        predicted = self._booster.predict(self._featurised(batch), num_threads=threads)
        return np.asarray(predicted, dtype=np.float64)

    def update(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Add outcomes to the training rows and train again.

        Raises:
            AutotuneError: lightgbm is not installed.
        """
        if not outcomes:
            return
        candidates = [candidate for candidate, _ in outcomes]
        rows = self._featurised(CandidateBatch.of(candidates))[order_of(candidates)]
        self._rows += list(rows)
        self._latencies += [outcome.latency for _, outcome in outcomes]
        self._workloads += [candidate.sketch.workload.digest for candidate in candidates]
        self._train()

    def _featurised(self, batch: CandidateBatch) -> NDArray[np.float64]:
        features = np.asarray(self._features(batch, self._target), dtype=np.float64)
        width = len(self._rows[0]) if self._rows else features.shape[-1]
        if features.shape != (len(batch), width):
            raise InvalidValueError(
                f"features of {len(batch)} candidates must have shape {(len(batch), width)}, "
                f"not {features.shape}"
            )
        return np.nan_to_num(features, nan=0.0, posinf=_HUGE, neginf=-_HUGE)

    def _labels(self) -> NDArray[np.float64]:
        best: dict[str, float] = {}
        for workload, latency in zip(self._workloads, self._latencies, strict=True):
            if latency is not None:
                best[workload] = min(latency, best.get(workload, latency))
        return np.array(
            [
                # A latency of zero can only be its workload's best.
                0.0 if latency is None else best[workload] / latency if latency > 0 else 1.0
                for workload, latency in zip(self._workloads, self._latencies, strict=True)
            ]
        )

    def _threads_for(self, rows: int) -> int:
        return self._threads if rows >= _PARALLEL_ROWS else 1

    def _train(self) -> None:
        lightgbm = _lightgbm()
        threads = self._threads_for(len(self._rows))
        parameters = {**PARAMETERS, "num_threads": threads, "seed": self._seed % 2**31}
        dataset = lightgbm.Dataset(np.stack(self._rows), label=self._labels(), params=parameters)
        self._booster = lightgbm.train(parameters, dataset, num_boost_round=ROUNDS)

    def state(self) -> dict[str, Any]:
        """A JSON object with the training rows, from which the same trees grow again."""
        return {
            "model": self.name,
            "feature_version": self._feature_version,
            "seed": self._seed,
            "features": [row.tolist() for row in self._rows],
            "latencies": list(self._latencies),
            "workloads": list(self._workloads),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned; trains when first asked to predict.

        Raises:
            InvalidValueError: the state is of another model, or its features have another
                version.
        """
        check_model(self.name, state)
        if state["feature_version"] != self._feature_version:
            raise InvalidValueError(
                f"the saved cost model has features of version {state['feature_version']!r}, "
                f"this autotune computes version {self._feature_version!r}: train a new one"
            )
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
