import numpy as np

from autotune.models.pruning import PruningModel
from autotune.nest import nest_tape
from autotune.plugins.options import NoOptions, read_options


class LeastTraffic(PruningModel):
    name = "least-traffic"

    def __init__(self, context):
        read_options("pruning model 'least-traffic'", NoOptions, context.options)

    def score(self, batch):
        scores = [self._scores(sketch, matrix) for sketch, matrix in batch.parts]
        return np.concatenate([np.zeros(0), *scores])

    def _scores(self, sketch, matrix):
        tape = nest_tape(sketch).tape
        traffic = [name for name, _ in tape.outputs if "/traffic/" in name]
        elements = tape.restricted(traffic).evaluate(matrix)
        return -np.log2(1 + elements.sum(axis=1, dtype=np.float64))
