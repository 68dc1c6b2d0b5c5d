"""Stop a run anywhere, and say the same again: it goes on where it stopped."""

import signal

import autotune
from autotune.tuning.events import TrialFinished

workload = autotune.workloads.gemm(m=128, n=128, k=128)


def stop_at_ten(event):
    if isinstance(event, TrialFinished) and event.trial == 9:
        signal.raise_signal(signal.SIGINT)  # what Ctrl-C does


settings = {"round_size": 8, "database": "runs.db"}
try:
    autotune.tune(workload, trials=32, listeners=[stop_at_ten], **settings)
except autotune.TuningInterrupted as stopped:
    print(stopped)

result = autotune.tune(workload, trials=32, **settings)
print(result.trials, "trials in all:", result.reason)

longer = autotune.tune(workload, trials=48, **settings)
print(longer.trials, "with a larger budget; the same run:", longer.run_id == result.run_id)

again = autotune.tune(workload, trials=48, **settings)
print("searched again:", not again.from_records)
