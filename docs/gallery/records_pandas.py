"""Read records with pandas: every trial, with its configuration by parameter name."""

import pandas

import autotune

workload = autotune.workloads.gemm(m=128, n=128, k=128)
autotune.tune(workload, trials=32, database="records.db")

with autotune.open_database("records.db", read_only=True) as database:
    where = autotune.RecordFilter(workload=workload.digest)
    frame = pandas.DataFrame(
        {
            "trial": record.trial,
            "status": record.outcome.status,
            "us": None if record.latency is None else 1e6 * record.latency,
            "build": record.outcome.timings.get("build"),
            "sketch": record.candidate.sketch.name,
            **record.candidate.config,
        }
        for record in database.records(where)
    )
print(frame.status.value_counts().to_string())
print(frame.groupby("sketch").us.describe()[["count", "min", "50%"]].to_string())
print(frame.nsmallest(3, "us").dropna(axis="columns").to_string())
