"""A strategy of your own, named by import string: no plugin is needed to try it."""

import numpy as np

import autotune
from autotune.search import strategies


class Draft(strategies.Strategy):
    """The candidates that the pruning model ranks first among many samples."""

    name = "draft"

    def __init__(self, context):
        self.model, self.rng = context.pruning_model, context.rng
        self.history = strategies.History(context.space.sketches())
        self.sampler = strategies.FreshSampler(context.space, self.rng, self.history)

    def ask(self, n):
        fresh = self.history.unseen(self.sampler.sample(64 * n))
        order = np.argsort(-self.model.score(fresh))
        chosen = fresh.take([int(row) for row in order[:n]])
        self.history.add(chosen)
        return chosen

    def tell(self, outcomes):
        self.history.tell(outcomes)

    def state(self):  # a JSON object: what resuming begins with, in another process
        return {"rng": strategies.generator_state(self.rng), **self.history.state()}

    def load_state(self, state):
        self.history.load_state(state)
        strategies.restore_generator(self.rng, state["rng"])


if __name__ == "__main__":
    result = autotune.tune(
        autotune.workloads.gemm(m=128, n=128, k=128),
        parts={"strategy": "own_strategy:Draft"},
        trials=32,
    )
    print(result.strategy, result.best.latency, dict(result.outcomes))
