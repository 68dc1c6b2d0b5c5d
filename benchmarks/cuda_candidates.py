"""Candidates of this project's spaces that were measured on a GPU, and how well scores order them.

A file holds one JSON object a line, perhaps compressed: ``case``, ``workload``, ``parameters`` of
its builder, ``sketch``, ``config``, ``drawn_by``, ``outcome``, ``latency`` in seconds, ``small``
where it was not timed. That of the repository is ``MEASURED``; ``research/results/README.md`` says
where it is from.

writes the timed ones as records, which ``autotune records import`` reads and ``autotune replay``
searches in.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from draft import spearman
from numpy.typing import NDArray

from autotune.ir.workloads import Workload, builders
from autotune.plugins.parts import create_part
from autotune.sketches import Candidate, Sketch
from autotune.spaces import SketchSpace
from autotune.store.jsonl import BadLine, read_lines, record_line, replacing
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import preset

Array = NDArray[np.float64]

TARGET = preset("h100")
RESULTS = Path(__file__).resolve().parents[1] / "research" / "results"
MEASURED, TUNED = RESULTS / "h100-candidates.jsonl.gz", RESULTS / "h100-tuning.jsonl.xz"
"""Candidates that were drawn and timed on an H100, and records of tuning runs there."""
# What was drawn uniformly; the rest was chosen by a formula, which a correlation would repeat.
UNIFORM = frozenset({"R", "R2", "ALL"})
FIRST, ORDERS = 10, 50


def opened(path: Path) -> IO[bytes]:
    """A file that is perhaps compressed."""
    opens: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    found: IO[bytes] = opens(path, "rb")
    return found


def add_candidates(parser: argparse.ArgumentParser) -> None:
    """The option that names a file of candidates."""
    parser.add_argument(
        "--candidates",
        metavar="FILE",
        type=Path,
        default=MEASURED,
        help="candidates that were measured (default: those of the repository)",
    )


def read_tuned(path: Path) -> list[Record]:
    """The records of a file.

    Raises:
        SystemExit: a line is none.
    """
    records: list[Record] = []
    with opened(path) as stream:
        for line in read_lines(stream):
            if isinstance(line, BadLine):
                raise SystemExit(f"{path}: {line}")
            records.append(line)
    return records


def read_cases(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The timed candidates by case."""
    cases: dict[str, list[dict[str, Any]]] = {}
    with opened(path) as file:
        for line in file:
            row = json.loads(line)
            if not row["small"] and row["outcome"] == "ok":
                cases.setdefault(row["case"], []).append(row)
    return cases


def space_of(rows: Sequence[dict[str, Any]]) -> SketchSpace:
    """The space that the candidates of a case are from."""
    backend = create_part("backend", "tvm")
    name = rows[0]["workload"]
    if name == "layernorm":
        centred = rows[0]["case"].startswith("layernorm4096")
        workload: Workload = backend.import_program(layer_norm(centred)).workload
    else:
        workload = getattr(builders, name)(**rows[0]["parameters"])
    return SketchSpace(workload, TARGET, backend.limits(TARGET))


def layer_norm(centred: bool, m: int = 4096, n: int = 1024) -> Any:
    """Layer norm as a PrimFunc: with a centred variance, or from sums of squares."""
    from tvm import te

    x = te.placeholder((m, n), name="X")
    gamma, beta = (te.placeholder((n,), name=name) for name in ("G", "B"))
    k, k2 = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "k2")
    total = te.compute((m,), lambda i: te.sum(x[i, k], k), name="S")

    def mean(i: Any) -> Any:
        return total[i] * (1 / n)

    def spread(i: Any) -> Any:
        moved = x[i, k2] - mean(i) if centred else x[i, k2]
        return te.sum(moved * moved, k2)

    squares = te.compute((m,), spread, name="V")

    def variance(i: Any) -> Any:
        return squares[i] * (1 / n) - (0 if centred else mean(i) * mean(i))

    y = te.compute(
        (m, n),
        lambda i, j: (x[i, j] - mean(i)) * te.rsqrt(variance(i) + 1e-5) * gamma[j] + beta[j],
        name="Y",
    )
    return te.create_prim_func([x, gamma, beta, y])


def candidates_of(rows: Sequence[dict[str, Any]], space: SketchSpace) -> list[Candidate]:
    """The candidates of a case, in order."""
    sketches = {sketch.name: sketch for sketch in space.sketches()}
    return [
        Candidate.from_config(sketches[row["sketch"]], whole_config(row, sketches[row["sketch"]]))
        for row in rows
    ]


def whole_config(row: Mapping[str, Any], sketch: Sketch) -> dict[str, int]:
    """The configuration of a row, without a padding where rows could not be padded yet."""
    return {name: 0 for name in sketch.param_names if name.endswith(".pad")} | row["config"]


def order_figures(scores: Array, rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Figures of the order that scores (higher is better) give the candidates of a case.

    ``spearman`` is over those that were drawn uniformly; ``best_of_first`` how much slower than
    the best of all the best of the ten is that come first, the mean over orders of equal scores.
    """
    latencies = np.array([row["latency"] for row in rows])
    uniform = np.array([not UNIFORM.isdisjoint(row["drawn_by"]) for row in rows])
    rng = np.random.default_rng(0)
    best = [
        latencies[np.lexsort((rng.random(len(rows)), -scores))[:FIRST]].min()
        for _ in range(ORDERS)
    ]
    return {
        "spearman": spearman(scores[uniform], -latencies[uniform]),
        "best_of_first": float(np.mean(best) / latencies.min()),
    }


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    add_candidates(parser)
    parser.add_argument("records", type=Path)
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> None:
    """Write the records."""
    with replacing(options.records) as stream:
        for name, rows in read_cases(options.candidates).items():
            for record in records_of(name, rows):
                stream.write(record_line(record))


def records_of(name: str, rows: Sequence[dict[str, Any]]) -> list[Record]:
    """The candidates of a case as records of a run of that name, without what building took."""
    key = MeasureKey(TARGET.fingerprint, "tvm", "", "", 1, "warm CUDA graphs")
    return [
        Record(
            run_id=name,
            trial=trial,
            candidate=candidate,
            key=key,
            target=TARGET.to_json(),
            space=f"{SketchSpace.name}-{SketchSpace.version}",
            outcome=Outcome("ok", row["latency"]),
            created=0.0,
        )
        for trial, (row, candidate) in enumerate(
            zip(rows, candidates_of(rows, space_of(rows)), strict=True)
        )
    ]
