"""Train the weights that autotune-pruner brings, and what its tests rank with them.

    python scripts/train_checkpoint.py DATABASE --held-out DATABASE

The first database is one of `autotune train record`; operators of the shapes by which
benchmarks/strategies.py compares strategies are left out, whatever it holds. The second has
outcomes of some of those: a part of them becomes the data by which the tests see that the
weights rank what they were not trained on. research/model_quality.py judges such models.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotune import open_database
from autotune.models import ModelContext
from autotune.models.cost import TrainingGroup
from autotune.models.training import (
    judge,
    make_trainable,
    only_target,
    quality_figures,
    score_groups,
    training_groups,
)
from autotune.plugins.parts import create_part
from autotune.plugins.workload_names import make_workload
from autotune.store.jsonl import replacing
from autotune.targets import Target

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = ROOT / "plugins" / "pruner"
WEIGHTS = PLUGIN / "src" / "autotune_pruner" / "data" / "pacm-cpu.npz"
FIXTURE = PLUGIN / "tests" / "data" / "held_out.json"
# Of the fixture: tasks, and programs of each.
TASKS, PROGRAMS = 3, 48


def main() -> int:
    """Run; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("database", type=Path, help="recorded outcomes to train on")
    parser.add_argument("--held-out", type=Path, required=True, help="recorded outcomes to rank")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="of the training")
    options = parser.parse_args()
    groups, target = read(options.database)
    compared = compared_workloads()
    kept = [group for group in groups if group.workload not in compared]
    held, held_target = read(options.held_out)
    unseen = [group for group in held if group.workload in compared]
    if not kept or not unseen:
        raise SystemExit("there is nothing to train on, or nothing to rank")
    rows = sum(len(group.outcomes) for group in kept)
    print(f"{rows} programs of {len({group.workload for group in kept})} tasks", flush=True)
    model = make_trainable(
        "pacm", ModelContext(target=target, seed=options.seed, threads=options.threads)
    )
    print(told(model.fit(kept)), flush=True)
    WEIGHTS.parent.mkdir(exist_ok=True)
    with replacing(WEIGHTS) as stream:
        model.save(stream)
    psa = create_part("pruning_model", "psa", ModelContext(target=held_target))
    print("pacm, held out:", told(judge(model, unseen).figures))
    print("psa, held out:", told(quality_figures(score_groups(psa.score, unseen))))
    FIXTURE.parent.mkdir(exist_ok=True)
    FIXTURE.write_text(json.dumps(fixture(unseen[:TASKS], held_target)) + "\n", encoding="utf-8")
    print(f"{WEIGHTS}: {WEIGHTS.stat().st_size} bytes; {FIXTURE}: {FIXTURE.stat().st_size} bytes")
    return 0


def read(database: Path) -> tuple[list[TrainingGroup], Target]:
    """Tasks of a database that have a valid candidate, and their target."""
    with open_database(database, read_only=True) as opened:
        records = list(opened.records())
    if not records:
        raise SystemExit(f"{database} has no records")
    groups = [group for group in training_groups(records) if group.is_informative]
    return groups, only_target(records)


def compared_workloads() -> frozenset[str]:
    """Digests of the workloads by which strategies are compared."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from strategies import WORKLOADS

    return frozenset(make_workload(it.builder, it.shape).digest for it in WORKLOADS.values())


def fixture(groups: Sequence[TrainingGroup], target: Target) -> dict[str, Any]:
    """A part of the outcomes of some tasks, evenly from the fastest to the slowest."""
    tasks = []
    for group in groups:
        timed = [(c, o.latency) for c, o in group.outcomes if o.latency is not None]
        timed.sort(key=lambda pair: pair[1])
        places = np.unique(np.linspace(0, len(timed) - 1, PROGRAMS).astype(int))
        chosen = [timed[place] for place in places]
        sketches = {c.sketch.digest: c.sketch for c, _ in chosen}
        numbers = {digest: number for number, digest in enumerate(sketches)}
        tasks.append(
            {
                "workload": chosen[0][0].sketch.workload.to_json(),
                "sketches": [sketch.to_json() for sketch in sketches.values()],
                "programs": [
                    [numbers[c.sketch.digest], [int(value) for value in c.values], latency]
                    for c, latency in chosen
                ],
            }
        )
    return {"target": target.to_json(), "tasks": tasks}


def told(figures: Any) -> str:
    """``epochs 17.000, loss 2.125``."""
    return ", ".join(f"{name} {value:.3f}" for name, value in figures.items())


if __name__ == "__main__":
    sys.exit(main())
