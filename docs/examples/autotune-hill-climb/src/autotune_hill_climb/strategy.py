from attrs import frozen

from autotune.plugins.options import option, read_options
from autotune.search import strategies


@frozen
class Options:
    parents: int = option(4, low=1)


class HillClimb(strategies.Strategy):
    name = "hill-climb"

    def __init__(self, context):
        self.options = read_options("strategy 'hill-climb'", Options, context.options)
        self.space, self.rng = context.space, context.rng
        self.history = strategies.History(self.space.sketches())
        self.sampler = strategies.FreshSampler(self.space, self.rng, self.history)

    def ask(self, n):
        best = self.history.best(self.options.parents).without_empty()
        fresh = self.history.unseen(self.space.neighbours(best, self.rng))
        chosen = fresh.take(range(min(n, len(fresh))))
        self.history.add(chosen)
        return chosen + self.sampler.draw(n - len(chosen))

    def tell(self, outcomes):
        self.history.tell(outcomes)

    def state(self):
        rng = strategies.generator_state(self.rng)
        return {"strategy": self.name, "rng": rng, **self.history.state()}

    def load_state(self, state):
        strategies.check_strategy(self.name, state)
        self.history.load_state(state)
        strategies.restore_generator(self.rng, state["rng"])
