"""Tune several operators within one budget, and watch which of them gets the rounds."""

from collections import Counter

import autotune
from autotune.tuning.events import RoundStarted

rounds = Counter()


def watch(event):
    if isinstance(event, RoundStarted):
        rounds[event.task] += 1


tasks = [
    autotune.Task(autotune.workloads.dense(m=64, n=256, k=256), weight=12, name="projection"),
    autotune.Task(autotune.workloads.softmax(m=256, n=64), weight=12, name="attention"),
    autotune.Task(autotune.workloads.elementwise(m=64, n=256), name="activation"),
]
for result in autotune.tune_tasks(tasks, trials=48, round_size=8, listeners=[watch]):
    print(f"{result.task:10} {rounds[result.task]} rounds, {1e6 * result.best.latency:.1f} us")
