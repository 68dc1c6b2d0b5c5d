from autotune.errors import InvalidValueError
from autotune.plugins.options import NoOptions, read_options
from autotune.search import schedulers

KEPT = ("rounds", "latencies", "exhausted")


class SlowestFirst(schedulers.TaskScheduler):
    name = "slowest-first"

    def __init__(self, context):
        super().__init__(context)
        read_options("task scheduler 'slowest-first'", NoOptions, context.options)
        if context.objective is not None:
            raise InvalidValueError("task scheduler 'slowest-first' takes no objective")
        self.rounds = [0 for _ in self.tasks]
        self.latencies = [None for _ in self.tasks]
        self.exhausted = [False for _ in self.tasks]

    def next_task(self, outstanding=()):
        left = [task for task, done in enumerate(self.exhausted) if not done]
        return max(left, key=lambda task: self._urgency(task, outstanding), default=None)

    def _urgency(self, task, outstanding):
        rounds = self.rounds[task] + outstanding.count(task)
        slowest = max(filter(None, self.latencies), default=1.0)
        seconds = self.tasks[task].weight * (self.latencies[task] or slowest)
        return seconds / rounds if rounds else float("inf")

    def tell(self, task, best_latency, trials):
        schedulers.check_round(self.tasks, task, best_latency, trials)
        self.rounds[task] += 1
        self.latencies[task] = best_latency
        self.exhausted[task] |= trials == 0

    def state(self):
        return {"scheduler": self.name, **{key: list(vars(self)[key]) for key in KEPT}}

    def load_state(self, state):
        schedulers.check_scheduler(self.name, self.tasks, state)
        vars(self).update({key: list(state[key]) for key in KEPT})
