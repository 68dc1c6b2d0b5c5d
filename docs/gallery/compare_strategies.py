"""Compare strategies: the same space, budget and measurements, means over seeds."""

from statistics import geometric_mean

import autotune

workload = autotune.workloads.conv2d(h=14, w=14, ci=32, co=32, kh=3, kw=3, pad=1)
settings = {"trials": 24, "round_size": 8, "database": "compare.db", "warm_start": False}

print("microseconds after    8       16       24 trials")
for strategy in ("random", "evolutionary"):
    results = [
        autotune.tune(workload, parts={"strategy": strategy}, seed=seed, **settings)
        for seed in range(2)
    ]
    best = [
        geometric_mean(1e6 * result.history[n].best for result in results) for n in (7, 15, 23)
    ]
    print(f"{strategy:16}", *(f"{latency:8.1f}" for latency in best))
