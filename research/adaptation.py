"""How soon a model ranks the programs of another target: accuracy after so many outcomes.

    python research/adaptation.py --source FILE --database FILE [--quick] [--results FILE]
                                    [--report] [--contenders NAME,...] [--json FILE] [--check]

Both files are of `autotune train record`, for two targets. Models are trained on the tasks of
the first that the second does not have; so neither the task nor the target is known. Each task of
the second is then a search in small: half of its programs become known in rounds of 16, in random
order, and the model ranks the other half before the first round and after each. A contender on
one task with one seed is a piece, appended to ``--results``; what is there is not done again.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import benchmarks_path  # noqa: F401
import numpy as np
from common import Bar, basic_parser, finish_with, machine
from model_quality import digest_of, interval_text, read_groups

from autotune import Target
from autotune.cli.options import read_options
from autotune.evaluation.compare import append_piece, read_pieces
from autotune.models import ModelContext
from autotune.models.cost import TrainableCostModel, TrainingGroup
from autotune.models.training import (
    make_trainable,
    pairwise_accuracy,
    score_groups,
)
from autotune.report import Table
from autotune.report.bootstrap import ConfidenceInterval, paired_difference

# What begins with weights of the first target has a plus at its end.
CONTENDERS = ("moa-pacm+", "pacm+", "pacm", "gbdt")
# What writes the weights that a model begins with.
TRAINED_AS = {"moa-pacm": "pacm"}
ROUND, ROUNDS = 16, 6
SEEDS, QUICK_SEEDS = 3, 1
# Programs of each task of the first database that are trained on with --quick.
QUICK_PROGRAMS = 64
ADAPTING, FRESH = "moa-pacm+", "gbdt"
EARLY = 32

# Without an outcome, chance ranks half of the pairs rightly.
CHANCE = 0.5
# By how much the adapting model is ahead of a fresh one early on, at the low end of the interval.
AHEAD = 0.0

Weights = dict[str, bytes]


@dataclass(frozen=True)
class Piece:
    """A contender on a task.

    Attributes:
        contender: Its name, with its options, and a plus if it begins with trained weights.
        task: Digest of the workload.
        seed: Of the order of the programs, and of the training.
        data: Digests of both databases' outcomes.
    """

    contender: str
    task: str
    seed: int
    data: str


def main() -> int:
    """Run; returns the exit status."""
    options = options_of()
    source, source_target = read_groups(options.source, QUICK_PROGRAMS if options.quick else None)
    groups, target = read_groups(options.database, None)
    tasks = {group.workload: group for group in groups if len(group.outcomes) >= 2 * ROUND}
    kept = [group for group in source if group.workload not in tasks]
    if not kept or not tasks:
        raise SystemExit("one database has no task that the other lacks, or too few programs")
    data = f"{digest_of(kept)}-{digest_of(list(tasks.values()))}"
    wanted = [
        Piece(contender, task, seed, data)
        for seed in range(options.seeds)
        for task in tasks
        for contender in options.contenders
    ]
    learned_on = f"{len(kept)} tasks on {source_target.name} with {source_target.cores} cores"
    adapts_to = f"{len(tasks)} on {target.name} with {target.cores}"
    print(f"from {learned_on} to {adapts_to}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        results = options.results or Path(folder) / "adaptation.jsonl"
        if not options.report:
            run_all(wanted, tasks, kept, (source_target, target), results)
        lines = {piece_of(line): line["accuracy"] for line in read_pieces(results)}
    found = {piece: lines[piece] for piece in wanted if piece in lines}
    curves = curves_of(found, options.contenders)
    print(f"\n{curves_table(curves).to_text()}", flush=True)
    written = {"machine": machine(), "curves": curves}
    return finish_with(options, written, bars_of(curves, len(tasks)))


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = basic_parser((__doc__ or "").splitlines()[0])
    parser.add_argument("--source", type=Path, required=True, help="outcomes to train on")
    parser.add_argument("--database", type=Path, required=True, help="outcomes of another target")
    parser.add_argument("--results", type=Path, metavar="FILE", help="where the pieces are")
    parser.add_argument("--report", action="store_true", help="only show what is in --results")
    parser.add_argument(
        "--contenders",
        default=",".join(CONTENDERS),
        help="cost models, with options after colons; those with a plus begin with what was "
        "trained on --source (default: %(default)s)",
    )
    parser.add_argument("--seeds", type=int, help=f"{SEEDS}, or {QUICK_SEEDS} with --quick")
    options = parser.parse_args(arguments)
    options.seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    options.contenders = options.contenders.split(",")
    for path in (options.source, options.database):
        if not path.exists():
            parser.error(f"there is no {path}")
    if options.report and options.results is None:
        parser.error("--report needs --results")
    return options


def piece_of(line: Mapping[str, Any]) -> Piece:
    """The piece that a line of the results is."""
    return Piece(line["contender"], line["task"], line["seed"], line["data"])


def run_all(
    wanted: Sequence[Piece],
    tasks: Mapping[str, TrainingGroup],
    source: Sequence[TrainingGroup],
    targets: tuple[Target, Target],
    results: Path,
) -> None:
    """Do the pieces that are missing."""
    done = {piece_of(line) for line in read_pieces(results)}
    weights: Weights = {}
    for piece in wanted:
        if piece in done:
            continue
        model = begun(piece.contender, piece.seed, source, targets, weights)
        group = tasks[piece.task]
        accuracy = adapted(model, group, np.random.default_rng(piece.seed))
        shown = ", ".join(f"{count}: {value:.3f}" for count, value in accuracy.items())
        print(f"{group.name}, seed {piece.seed}, {piece.contender}: {shown}", flush=True)
        append_piece(results, {**asdict(piece), "accuracy": accuracy, "machine": machine()})


def begun(
    contender: str,
    seed: int,
    source: Sequence[TrainingGroup],
    targets: tuple[Target, Target],
    weights: Weights,
) -> TrainableCostModel:
    """A model as its search begins; ``weights`` keeps what was trained, by model and seed."""
    name, *texts = contender.removesuffix("+").split(":")
    options = read_options(texts, "option")
    model = make_trainable(name, ModelContext(target=targets[1], seed=seed, options=options))
    if contender.endswith("+"):
        writer = TRAINED_AS.get(name, name)
        if f"{writer} {seed}" not in weights:
            trained = make_trainable(writer, ModelContext(target=targets[0], seed=seed))
            trained.fit(source)
            stream = io.BytesIO()
            trained.save(stream)
            weights[f"{writer} {seed}"] = stream.getvalue()
        model.load(io.BytesIO(weights[f"{writer} {seed}"]))
    return model


def adapted(
    model: TrainableCostModel, group: TrainingGroup, rng: np.random.Generator
) -> dict[str, float]:
    """Pairwise accuracy on half of a task's programs, by how many of the others are known."""
    order = rng.permutation(len(group.outcomes)).tolist()
    half = len(order) // 2
    held = [group.outcomes[place] for place in order[half:]]
    judged = [TrainingGroup(group.name, group.workload, tuple(held))]
    accuracy: dict[str, float] = {}
    for count in range(0, min(half, ROUND * ROUNDS) + 1, ROUND):
        if count:
            model.update([group.outcomes[place] for place in order[count - ROUND : count]])
        scored = score_groups(model.predict, judged)
        accuracy[str(count)] = pairwise_accuracy(scored[0]) if scored else CHANCE
    return accuracy


# Accuracy by contender, by outcomes, by task: the mean over seeds.
Curves = Mapping[str, Mapping[str, Mapping[str, float]]]


def curves_of(
    found: Mapping[Piece, Mapping[str, float]], contenders: Sequence[str]
) -> dict[str, dict[str, dict[str, float]]]:
    """The accuracy of all pieces."""
    curves: dict[str, dict[str, dict[str, list[float]]]] = {name: {} for name in contenders}
    for piece, accuracy in found.items():
        for count, value in accuracy.items():
            by_task = curves[piece.contender].setdefault(count, {})
            by_task.setdefault(piece.task, []).append(value)
    return {
        name: {
            count: {task: float(np.mean(values)) for task, values in by_task.items()}
            for count, by_task in by_count.items()
        }
        for name, by_count in curves.items()
    }


def curves_table(curves: Curves) -> Table:
    """One line for each contender: mean accuracy over tasks after so many outcomes."""
    counts = list(dict.fromkeys(count for by_count in curves.values() for count in by_count))
    rows = [
        (
            name,
            *(
                f"{np.mean(list(by_count[count].values())):.3f}" if count in by_count else "-"
                for count in counts
            ),
        )
        for name, by_count in curves.items()
    ]
    heads = ("contender", *(f"{count}>" for count in counts))
    return Table(
        "pairwise accuracy on programs of the task that are not known", heads, tuple(rows)
    )


def ahead(ours: Mapping[str, float], theirs: Mapping[str, float]) -> ConfidenceInterval | None:
    """Mean difference over the tasks that both have, with its interval; None without such."""
    tasks = sorted(set(ours) & set(theirs))
    if not tasks:
        return None
    pairs = [ours[task] for task in tasks], [theirs[task] for task in tasks]
    return paired_difference(*pairs, np.random.default_rng(0)).interval


def bars_of(curves: Curves, tasks: int) -> list[Bar]:
    """The promises: trained weights know something at once, and help early on."""
    adapting, fresh = curves.get(ADAPTING, {}), curves.get(FRESH, {})
    at_once = adapting.get("0", {})
    chance = ahead(at_once, dict.fromkeys(at_once, 0.0))
    early = ahead(adapting.get(str(EARLY), {}), fresh.get(str(EARLY), {}))
    promises = (
        (f"{ADAPTING}, accuracy without an outcome, low end", chance, CHANCE),
        (f"{ADAPTING} minus {FRESH} after {EARLY} outcomes, low end", early, AHEAD),
    )
    whole = len(at_once) == tasks
    return [
        Bar(
            title,
            found.low if found is not None and whole else None,
            wanted,
            note="" if found is None else interval_text(found),
        )
        for title, found, wanted in promises
    ]


if __name__ == "__main__":
    sys.exit(main())
