"""The interface of a pruning (draft) model: a cheap score that needs no measurement."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from autotune.sketches import CandidateBatch


class PruningModel(ABC):
    """Ranks candidates of one target without having measured any."""

    name: str

    @abstractmethod
    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Scores of shape [n]; higher is better."""
