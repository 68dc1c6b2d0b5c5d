import numpy as np

from autotune.plugins.options import NoOptions, read_options
from autotune.search import strategies


class DraftStrategy(strategies.RecordedStrategy):
    """Asks for what the pruning model ranks first among samples."""

    name = "draft"

    def __init__(self, context):
        read_options("strategy 'draft'", NoOptions, context.options)
        super().__init__(context)
        self.model = context.pruning_model

    def ask(self, n):
        fresh = self._history.unseen(self._sampler.sample(64 * n))
        best = np.argsort(-self.model.score(fresh), kind="stable")[:n]
        chosen = fresh.take([int(row) for row in best])
        self._history.add(chosen)
        return chosen
