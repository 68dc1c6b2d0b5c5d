import numpy as np

from autotune.search import strategies


class DraftStrategy(strategies.Strategy):
    name = "draft"

    def __init__(self, context):
        self.model, self.rng = context.pruning_model, context.rng
        self.history = strategies.History(context.space.sketches())
        self.sampler = strategies.FreshSampler(context.space, self.rng, self.history)

    def ask(self, n):
        fresh = self.history.unseen(self.sampler.sample(64 * n))
        best = np.argsort(-self.model.score(fresh), kind="stable")[:n]
        chosen = fresh.take([int(row) for row in best])
        self.history.add(chosen)
        return chosen

    def tell(self, outcomes):
        self.history.tell(outcomes)

    def state(self):
        return {"rng": strategies.generator_state(self.rng), **self.history.state()}

    def load_state(self, state):
        self.history.load_state(state)
        strategies.restore_generator(self.rng, state["rng"])
