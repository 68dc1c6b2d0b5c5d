"""Comparison of models that rank schedules of tasks that they have not seen.

    python research/model_quality.py --database FILE [--quick] [--results FILE] [--report]
                                       [--models NAME,...] [--json FILE] [--check]

The tasks of a database of `autotune train record` are split into folds. Each model is trained on
all folds but one and judged by that one; pruning models need no training. A model with a fold left
out is a piece: it is appended to ``--results``, and what is there already is not done again.
``--report`` shows what is there and trains nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import attrs
import benchmarks_path  # noqa: F401
import numpy as np
from numpy.typing import NDArray
from support.common import Bar, basic_parser, finish_with, machine

from autotune import Target, open_database
from autotune.cli.options import read_options
from autotune.evaluation.compare import append_piece, read_pieces
from autotune.models import ModelContext
from autotune.models.cost import GradientBoostedTrees, TrainingGroup
from autotune.models.features import DATAFLOW_COLUMNS, FEATURE_COLUMNS, PAM_VERSION, pam_features
from autotune.models.training import (
    folds_by_task,
    make_trainable,
    only_target,
    quality_figures,
    score_groups,
    training_groups,
)
from autotune.plugins.manager import manager
from autotune.plugins.parts import create_part
from autotune.report import Table
from autotune.report.bootstrap import ConfidenceInterval, paired_difference
from autotune.sketches import CandidateBatch

FOLDS, QUICK_FOLDS = 10, 3
# Programs of each task that are looked at with --quick.
QUICK_PROGRAMS = 64
# Any order is as likely as any other.
RANDOM = "random"
UNTRAINED = ("psa",)
# The trees of `gbdt`, with what the networks read instead of its own features.
PAM_TREES = "gbdt-pam"
TRAINED = ("gbdt", PAM_TREES, "tenset-mlp", "pacm")
JUDGED, PUBLISHED = "pacm", "tenset-mlp"

# The difference between the two of Pruner's networks that its interval must not go below.
AHEAD = 0.0


@dataclass(frozen=True)
class Piece:
    """A model with one fold left out.

    Attributes:
        model: Its name, with its options.
        fold: Number of the fold that it is judged by.
        folds: How many folds there are.
        seed: Of the folds and of the training.
        data: Digest of the outcomes.
    """

    model: str
    fold: int
    folds: int
    seed: int
    data: str

    @staticmethod
    def of(line: Mapping[str, Any]) -> Piece:
        """The piece that a line of the results is."""
        return Piece(line["model"], line["fold"], line["folds"], line["seed"], line["data"])


def main() -> int:
    """Run; returns the exit status."""
    options = options_of()
    groups, target = read_groups(options.database, QUICK_PROGRAMS if options.quick else None)
    data = digest_of(groups)
    wanted = [
        Piece(model, fold, options.folds, options.seed, data)
        for fold in range(options.folds)
        for model in options.models
    ]
    rows = sum(len(group.outcomes) for group in groups)
    tasks = len({group.workload for group in groups})
    print(f"{rows} programs of {tasks} tasks, {options.folds} folds", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        results = options.results or Path(folder) / "model_quality.jsonl"
        if not options.report:
            judge_all(options, wanted, groups, target, results)
        lines = {Piece.of(line): line for line in read_pieces(results)}
    found = {piece: lines[piece] for piece in wanted if piece in lines}
    figures = figures_of(found, options.models)
    print(f"\n{means_table(figures).to_text()}", flush=True)
    if JUDGED in options.models:
        print(f"\n{differences_table(figures).to_text()}", flush=True)
    written = {"machine": machine(), "pieces": list(found.values())}
    return finish_with(options, written, bars_of(figures, options.folds))


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = basic_parser((__doc__ or "").splitlines()[0])
    parser.add_argument("--database", type=Path, required=True, help="recorded outcomes")
    parser.add_argument("--results", type=Path, metavar="FILE", help="where the pieces are")
    parser.add_argument("--report", action="store_true", help="only show what is in --results")
    parser.add_argument(
        "--models",
        help="which, separated by commas; options after colons, as in pacm:epochs=20; by default "
        + ", ".join((RANDOM, *UNTRAINED, *TRAINED)),
    )
    parser.add_argument("--folds", type=int, help=f"{FOLDS}, or {QUICK_FOLDS} with --quick")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="of the training")
    options = parser.parse_args(arguments)
    options.folds = options.folds or (QUICK_FOLDS if options.quick else FOLDS)
    for path in (options.database, *([options.results] if options.report else [])):
        if path is None or not path.exists():
            parser.error("--report needs --results" if path is None else f"there is no {path}")
    cost, pruning = (manager().names(kind) for kind in ("cost_model", "pruning_model"))
    allowed = {RANDOM, *cost, *pruning, *([PAM_TREES] if "gbdt" in cost else [])}
    if options.models is None:
        options.models = [n for n in (RANDOM, *UNTRAINED, *TRAINED) if n in allowed]
    else:
        options.models = options.models.split(",")
    for model in options.models:
        if model.partition(":")[0] not in allowed:
            parser.error(f"there is no model {model!r}, only {', '.join(sorted(allowed))}")
    return options


def read_groups(database: Path, programs: int | None) -> tuple[list[TrainingGroup], Target]:
    """The tasks of a database that have a valid candidate, and their target.

    Args:
        database: The file.
        programs: How many outcomes of each task are taken; None for all.
    """
    with open_database(database, read_only=True) as opened:
        records = list(opened.records())
    if not records:
        raise SystemExit(f"{database} has no records")
    groups = [
        attrs.evolve(group, outcomes=group.outcomes[:programs])
        for group in training_groups(records)
    ]
    return [group for group in groups if group.is_informative], only_target(records)


def digest_of(groups: Sequence[TrainingGroup]) -> str:
    """Of what models are trained on: candidates and latencies."""
    told = [
        [group.workload, [(c.digest, outcome.latency) for c, outcome in group.outcomes]]
        for group in groups
    ]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def judge_all(
    options: argparse.Namespace,
    wanted: Sequence[Piece],
    groups: Sequence[TrainingGroup],
    target: Target,
    results: Path,
) -> None:
    """Do the pieces that are missing."""
    held = folds_by_task(groups, options.folds, options.seed)
    done = {Piece.of(line) for line in read_pieces(results)}
    for piece in wanted:
        if piece in done:
            continue
        began = time.perf_counter()
        kept = [group for number, group in enumerate(groups) if number not in held[piece.fold]]
        left_out = [groups[number] for number in held[piece.fold]]
        figures = judge(piece, kept, left_out, target, options.threads)
        seconds = time.perf_counter() - began
        told = ", ".join(f"{name} {value:.3f}" for name, value in figures.items())
        print(f"fold {piece.fold}, {piece.model}: {told}, {seconds:.1f} s", flush=True)
        line = {**vars(piece), "tasks": [group.name for group in left_out], "figures": figures}
        append_piece(results, {**line, "seconds": seconds, "machine": machine()})


def judge(
    piece: Piece,
    kept: Sequence[TrainingGroup],
    left_out: Sequence[TrainingGroup],
    target: Target,
    threads: int,
) -> dict[str, float]:
    """Train a model on some tasks, and judge it by others; returns its figures."""
    name, *texts = piece.model.split(":")
    context = ModelContext(
        target=target,
        seed=piece.seed,
        threads=threads,
        options=read_options(texts, "option"),
    )
    if name == RANDOM:
        tasks = score_groups(lambda batch: np.zeros(len(batch)), left_out)
    elif name in manager().names("pruning_model"):
        made = create_part("pruning_model", name, context)
        tasks = score_groups(made.score, left_out)
    else:
        model = (
            GradientBoostedTrees(context, pam_table, PAM_VERSION)
            if name == PAM_TREES
            else make_trainable(name, context)
        )
        model.fit(kept)
        tasks = score_groups(model.predict, left_out)
    return dict(quality_figures(tasks))


def pam_table(batch: CandidateBatch, target: Target) -> NDArray[np.float64]:
    """The features of statements and of the data flow as one row for each candidate.

    Trees want as many columns for every program: so of each of the 164 columns of a statement
    the sum over the program's statements, and the largest; then the 8 accesses as they are.

    Returns:
        ``[n, 512]``.
    """
    parts = [np.zeros((0, 2 * len(FEATURE_COLUMNS) + 8 * len(DATAFLOW_COLUMNS)))]
    for sketch, matrix in batch.parts:
        if not len(matrix):
            continue
        found = pam_features(sketch, matrix, target)
        starts = found.offsets[:-1]
        summed, largest = (pool.reduceat(found.values, starts) for pool in (np.add, np.maximum))
        flow = found.dataflow.reshape(len(matrix), -1)
        parts.append(np.concatenate([summed, largest, flow], axis=1).astype(np.float64))
    return np.concatenate(parts)


# Figures by name, then by model, then by fold.
Figures = Mapping[str, Mapping[str, Mapping[int, float]]]


def figures_of(found: Mapping[Piece, Mapping[str, Any]], models: Sequence[str]) -> Figures:
    """The figures of all pieces."""
    names = list(dict.fromkeys(name for line in found.values() for name in line["figures"]))
    return {
        name: {
            model: {
                piece.fold: line["figures"][name]
                for piece, line in found.items()
                if piece.model == model
            }
            for model in models
        }
        for name in names
    }


def difference(
    ours: Mapping[int, float], theirs: Mapping[int, float]
) -> ConfidenceInterval | None:
    """Mean difference over the folds that both have, with its interval; None without such."""
    folds = sorted(set(ours) & set(theirs))
    if not folds:
        return None
    pairs = [ours[fold] for fold in folds], [theirs[fold] for fold in folds]
    return paired_difference(*pairs, np.random.default_rng(0)).interval


def means_table(figures: Figures) -> Table:
    """A line for each model: means over its folds."""
    models = list(next(iter(figures.values()), {}))
    rows = []
    for model in models:
        means = [list(by_model[model].values()) for by_model in figures.values()]
        cells = [f"{np.mean(values):.4f}" if values else "-" for values in means]
        rows.append((model, str(len(means[0])), *cells))
    heads = ("model", "folds>", *(f"{name}>" for name in figures))
    return Table("means over the folds", heads, tuple(rows))


def differences_table(figures: Figures) -> Table:
    """A line for each other model: how far the judged one is ahead of it, fold by fold."""
    models = list(next(iter(figures.values()), {}))
    rows = []
    for model in models:
        if model == JUDGED:
            continue
        found = [difference(by[JUDGED], by[model]) for by in figures.values()]
        rows.append((model, *("-" if it is None else interval_text(it) for it in found)))
    heads = ("model", *(f"{name}>" for name in figures))
    title = f"{JUDGED} minus the model, mean over the folds, with its paired 95 % interval"
    return Table(title, heads, tuple(rows))


def interval_text(interval: ConfidenceInterval) -> str:
    """``0.012 [-0.001, 0.020]``."""
    return f"{interval.value:.4f} [{interval.low:.4f}, {interval.high:.4f}]"


def bars_of(figures: Figures, folds: int) -> list[Bar]:
    """The promise, where both models are there: one is ahead, by more than chance."""
    bars = []
    for name, by_model in figures.items():
        if not {JUDGED, PUBLISHED} <= set(by_model):
            continue
        found = difference(by_model[JUDGED], by_model[PUBLISHED])
        whole = all(len(by_model[model]) == folds for model in (JUDGED, PUBLISHED))
        note = "" if found is None else interval_text(found)
        title = f"{JUDGED} minus {PUBLISHED}, {name}, low end of the interval"
        bars.append(Bar(title, found.low if found and whole else None, AHEAD, note=note))
    return bars


if __name__ == "__main__":
    sys.exit(main())
