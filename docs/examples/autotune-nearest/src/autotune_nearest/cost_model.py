import numpy as np

from autotune.models.cost import CostModel, check_model
from autotune.plugins.options import NoOptions, read_options


class Nearest(CostModel):
    name = "nearest"

    def __init__(self, context):
        read_options("cost model 'nearest'", NoOptions, context.options)
        self.known = {}  # rows of a score and the values, by sketch

    def predict(self, batch):
        scores = [self._scores(sketch.digest, matrix) for sketch, matrix in batch.parts]
        return np.concatenate([np.zeros(0), *scores])

    def _scores(self, sketch, matrix):
        known = np.array(self.known.get(sketch, [[0.0] * (1 + matrix.shape[1])]))
        apart = np.log1p(matrix)[:, None] - np.log1p(known[:, 1:])
        return known[(apart**2).sum(axis=2).argmin(axis=1), 0]

    def update(self, outcomes):
        for candidate, outcome in outcomes:
            score = 1 / outcome.latency if outcome.latency else 0.0
            rows = self.known.setdefault(candidate.sketch.digest, [])
            rows.append([score, *candidate.values])

    def state(self):
        known = {sketch: list(rows) for sketch, rows in self.known.items()}
        return {"model": self.name, "known": known}

    def load_state(self, state):
        check_model(self.name, state)
        self.known = {sketch: list(rows) for sketch, rows in state["known"].items()}
