"""Train a cost model on candidates that were measured on a GPU, and say how well it orders others.

    python scripts/train_cuda_checkpoint.py [--candidates FILE] [--tuned] [--output FILE]

FILE is one that benchmarks/cuda.py reads, too. With ``--tuned`` the tasks of tuning runs on the
same device (``research/results/h100-tuning.jsonl.xz``) are added to what is trained on. For every
timed case a model is trained on all other workloads and orders the candidates of this one, beside
the pruning model that needs no training; with ``--output`` a model of everything is written. torch
and autotune-pruner must be installed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from cuda_candidates import (  # noqa: E402
    TARGET,
    TUNED,
    add_candidates,
    candidates_of,
    order_figures,
    read_cases,
    read_tuned,
    space_of,
)

from autotune.models import ModelContext  # noqa: E402
from autotune.models.cost import TrainableCostModel, TrainingGroup  # noqa: E402
from autotune.models.training import make_trainable, training_groups  # noqa: E402
from autotune.plugins.parts import create_part  # noqa: E402
from autotune.sketches import Candidate, CandidateBatch  # noqa: E402
from autotune.sketches.candidates import order_of  # noqa: E402
from autotune.store.jsonl import replacing  # noqa: E402
from autotune.store.records import Outcome  # noqa: E402

NEAR = 1.15

Case = tuple[Sequence[dict[str, Any]], list[Candidate]]


def main() -> int:
    """Run; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_candidates(parser)
    parser.add_argument("--tuned", action="store_true", help="also learn from tuning runs")
    parser.add_argument("--model", default="pacm", help="trainable cost model (default: pacm)")
    parser.add_argument("--seeds", type=int, default=1, help="models trained for each case")
    parser.add_argument("--threads", type=int, default=1, help="of the training")
    parser.add_argument("--output", type=Path, help="file of the model of everything")
    options = parser.parse_args()
    cases = {
        name: (rows, candidates_of(rows, space_of(rows)))
        for name, rows in read_cases(options.candidates).items()
    }
    groups = [group_of(name, case) for name, case in cases.items()]
    if options.tuned:
        groups += [it for it in training_groups(read_tuned(TUNED)) if it.is_informative]
    rows = sum(len(group.outcomes) for group in groups)
    print(f"{rows} programs of {len({group.workload for group in groups})} workloads", flush=True)
    leave_one_out(options, cases, groups)
    if options.output is not None:
        model, facts = trained(options, groups, 0)
        with replacing(options.output) as stream:
            model.save(stream)
        told = ", ".join(f"{name} {value:.3f}" for name, value in facts.items())
        print(f"{options.output}: {options.output.stat().st_size} bytes; {told}")
    return 0


def group_of(name: str, case: Case) -> TrainingGroup:
    """What was measured of a case, as data to train on."""
    rows, candidates = case
    outcomes = tuple(
        (candidate, Outcome("ok", row["latency"]))
        for candidate, row in zip(candidates, rows, strict=True)
    )
    return TrainingGroup(name, candidates[0].sketch.workload.digest, outcomes)


def trained(
    options: argparse.Namespace, groups: Sequence[TrainingGroup], seed: int
) -> tuple[TrainableCostModel, Mapping[str, float]]:
    """A model that was trained on some tasks, and what it says of its training."""
    context = ModelContext(target=TARGET, seed=seed, threads=options.threads)
    model = make_trainable(options.model, context)
    return model, model.fit(groups)


def leave_one_out(
    options: argparse.Namespace, cases: Mapping[str, Case], groups: Sequence[TrainingGroup]
) -> None:
    """Print how each case is ordered by models that have not seen its workload."""
    draft = create_part("pruning_model", "psa", ModelContext(target=TARGET))
    found: dict[str, list[dict[str, float]]] = {options.model: [], "psa": []}
    for name, (rows, candidates) in cases.items():
        batch, order = CandidateBatch.of(candidates), order_of(candidates)
        workload = candidates[0].sketch.workload.digest
        others = [group for group in groups if group.workload != workload]
        models = [trained(options, others, seed)[0] for seed in range(options.seeds)]
        figures = [order_figures(model.predict(batch)[order], rows) for model in models]
        mean = {key: statistics.mean(each[key] for each in figures) for key in figures[0]}
        found[options.model].append(mean)
        found["psa"].append(order_figures(draft.score(batch)[order], rows))
        told = "; ".join(f"{model} {spelled(each[-1])}" for model, each in found.items())
        print(f"{name:22} {told}", flush=True)
    for model, figures in found.items():
        correlations = [each["spearman"] for each in figures]
        near = sum(each["best_of_first"] <= NEAR for each in figures)
        print(
            f"{model}: median rank correlation {statistics.median(correlations):.2f}, least "
            f"{min(correlations):.2f}; best of the first ten within {NEAR}: {near} of "
            f"{len(figures)}",
            flush=True,
        )


def spelled(figures: Mapping[str, float]) -> str:
    """``0.72, 1.04``."""
    return f"{figures['spearman']:.2f}, {figures['best_of_first']:.2f}"


if __name__ == "__main__":
    sys.exit(main())
