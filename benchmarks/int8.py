"""int8 matmul: autotune and torch's calls of oneDNN and FBGEMM, in turns.

Matrix products as sums (beside ``torch._int_mm``) and as bytes (beside quantised linear layers),
and ResNet-50's convolutions as bytes, with one image. Like is compared with like: where torch
makes bytes of its sums, so does the program. Torch's weights were packed before; the program packs
them in every call.

Where the processor has AMX, torch is also timed without it (``ONEDNN_MAX_CPU_ISA``). The bars are
about torch with everything; the other ratio is printed beside each.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from support.bars import geometric_mean
from support.common import Bar, Report, TuningFailed, add_tuning_options, compare, cores, tune

GEMM_RATIO = 0.8
CONVOLUTION_RATIO = 0.7
FLOAT_RATIO = 2.5

# oneDNN's name for what a processor has without AMX.
WITHOUT_AMX = "AVX512_CORE_VNNI"
# Torch says of every quantised tensor that there will be none in a later version.
QUIET = {"PYTHONWARNINGS": "ignore"}
DTYPE = "u8s8s32"
# Sums of a thousand products of random bytes fill a byte when divided by this power of two.
SHIFT = 10

GEMMS = (
    {"m": 512, "n": 512, "k": 512},
    {"m": 1024, "n": 1024, "k": 1024},
    {"m": 32, "n": 1008, "k": 2048},
)
FLOAT_GEMM = GEMMS[1]

# Image size, input and output channels, kernel, stride.
RESNET_50 = (
    *((224, 3, 64, 7, 2), (56, 64, 64, 1, 1), (56, 64, 64, 3, 1), (56, 64, 256, 1, 1)),
    *((56, 256, 64, 1, 1), (56, 256, 128, 1, 1), (56, 128, 128, 3, 2), (56, 256, 512, 1, 2)),
    *((28, 128, 512, 1, 1), (28, 512, 128, 1, 1), (28, 128, 128, 3, 1), (28, 512, 256, 1, 1)),
    *((28, 256, 256, 3, 2), (28, 512, 1024, 1, 2), (14, 256, 1024, 1, 1), (14, 1024, 256, 1, 1)),
    *((14, 256, 256, 3, 1), (14, 1024, 512, 1, 1), (14, 512, 512, 3, 2), (14, 1024, 2048, 1, 2)),
    *((7, 512, 2048, 1, 1), (7, 2048, 512, 1, 1), (7, 512, 512, 3, 1)),
)
QUICK_CONVOLUTIONS = (RESNET_50[2], RESNET_50[9], RESNET_50[16])


@dataclass
class Row:
    """A workload on so many threads.

    Attributes:
        name: What it is called.
        kind: ``sums``, ``bytes`` or ``convolution``.
        threads: Threads of every contender.
        flop: Operations of one call.
        final: Seconds per call of each contender in each round.
        errors: Why a contender is missing.
    """

    name: str
    kind: str
    threads: int
    flop: int
    final: dict[str, list[float]]
    errors: dict[str, str]

    def ratio(self, contenders: Sequence[str]) -> float | None:
        """Seconds of the fastest of these over the program's: the median over the rounds."""
        present = [name for name in contenders if name in self.final]
        if not present or "autotune" not in self.final:
            return None
        fastest = min(present, key=lambda name: statistics.median(self.final[name]))
        pairs = zip(self.final[fastest], self.final["autotune"], strict=True)
        return statistics.median(theirs / ours for theirs, ours in pairs)

    @property
    def same(self) -> list[str]:
        """Torch without AMX."""
        capped = [name for name in self.final if name.endswith("without AMX")]
        others = [name for name in self.final if name == "fbgemm"]
        return capped + others if capped else self.vendors

    @property
    def vendors(self) -> list[str]:
        """All of torch's."""
        return [name for name in self.final if name not in ("autotune", "float32")]


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    add_tuning_options(parser)
    parser.add_argument(
        "--threads", default="", metavar="N,...", help="one and all cores if not given"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name has this")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> Report:
    """Measure."""
    rows = [
        row
        for threads in thread_counts(options)
        for name, workload, shape, dtype in workloads(quick=options.quick)
        if options.only in name
        for row in [measured(options, threads, name, workload, shape, dtype)]
    ]
    return Report({"rows": [asdict(row) for row in rows]}, bars_of(rows))


def thread_counts(options: argparse.Namespace) -> list[int]:
    """Numbers of threads, each once."""
    if options.threads:
        return [int(text) for text in options.threads.split(",")]
    return [1] if options.quick else sorted({1, cores()})


def workloads(*, quick: bool) -> list[tuple[str, str, dict[str, int], str]]:
    """Name of the row, builder, shape and dtype."""
    found = []
    for shape in GEMMS[:2] if quick else GEMMS:
        sizes = "x".join(str(shape[key]) for key in "mnk")
        found.append((f"gemm {sizes}, sums", "gemm", shape, DTYPE))
        if not quick or shape == GEMMS[0]:
            found.append((f"gemm {sizes}, bytes", "gemm", {**shape, "requantize": SHIFT}, DTYPE))
    for size, ci, co, kernel, stride in QUICK_CONVOLUTIONS if quick else RESNET_50:
        shape = {"h": size, "w": size, "ci": ci, "co": co, "kh": kernel, "kw": kernel}
        shape |= {"stride": stride, "pad": kernel // 2, "requantize": SHIFT}
        text = f"convolution {size}x{size}x{ci} -> {co}, {kernel}x{kernel} / {stride}"
        found.append((text, "conv2d", shape, DTYPE))
    return found


def measured(
    options: argparse.Namespace,
    threads: int,
    name: str,
    workload: str,
    shape: Mapping[str, int],
    dtype: str,
) -> Row:
    """Tune one workload, then time it and torch's in turns."""
    from autotune import make_workload

    made = make_workload(workload, dict(shape), dtype)
    parameters = dict(made.parameters)
    kind = "convolution" if workload == "conv2d" else name.rpartition(" ")[2]
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "benchmark.db"
        record = {"kind": "record", "database": str(database), "threads": threads}
        requests: dict[str, tuple[Mapping[str, Any], str]] = {}
        errors: dict[str, str] = {}
        plain = make_workload("gemm", dict(FLOAT_GEMM))
        jobs = [("autotune", workload, shape, dtype, made)]
        if kind == "sums" and shape == FLOAT_GEMM:
            jobs.append(("float32", "gemm", FLOAT_GEMM, "float32", plain))
        for label, builder, its_shape, its_dtype, its_workload in jobs:
            try:
                tune(
                    builder,
                    its_shape,
                    options.trials,
                    0,
                    database,
                    threads=threads,
                    arguments=("--dtype", its_dtype),
                )
                request = {**record, "workload": its_workload.to_json()}
                requests[label] = (request, sys.executable)
            except TuningFailed as error:
                errors[label] = str(error)
        for label, request in vendors(workload, parameters, kind, threads).items():
            requests[label] = (request, options.torch_python)
        final, missing = compare(requests)
    row = Row(name, kind, threads, made.flop, final, {**errors, **missing})
    _print(row)
    return row


def vendors(
    workload: str, parameters: Mapping[str, Any], kind: str, threads: int
) -> dict[str, dict[str, Any]]:
    """Requests for torch's calls, by contender."""
    request = {
        "kind": "torch",
        "workload": workload,
        "parameters": dict(parameters),
        "threads": threads,
        "environment": QUIET,
    }
    capped = {**QUIET, "ONEDNN_MAX_CPU_ISA": WITHOUT_AMX}
    found = {"onednn": {**request, "engine": "onednn"}}
    if "amx_int8" in Path("/proc/cpuinfo").read_text():
        found["onednn without AMX"] = {**found["onednn"], "environment": capped}
    if kind != "sums":
        found["fbgemm"] = {**request, "engine": "fbgemm"}
    return found


def _print(row: Row) -> None:
    print(f"{row.name}, {row.threads} threads", flush=True)
    for name, seconds in row.final.items():
        latency = statistics.median(seconds)
        print(f"    {name:<20} {latency * 1e3:8.3f} ms  {row.flop / latency / 1e9:7.0f} GOP/s")
    for name, why in row.errors.items():
        print(f"    {name:<20} not measured: {why}")


def bars_of(rows: Sequence[Row]) -> list[Bar]:
    """The promises."""
    bars = []
    for row in rows:
        if row.kind != "convolution":
            alike = row.ratio(row.same)
            note = f"{alike:.2f} of torch without AMX" if alike else ""
            label = f"{row.name}, {row.threads} threads, times torch"
            bars.append(Bar(label, row.ratio(row.vendors), GEMM_RATIO, note=note))
        if "float32" in row.final or "float32" in row.errors:
            label = f"{row.name}, {row.threads} threads, times our float32"
            bars.append(Bar(label, row.ratio(["float32"]), FLOAT_RATIO))
    for threads in sorted({row.threads for row in rows}):
        found = [row for row in rows if row.kind == "convolution" and row.threads == threads]
        if found:
            alike = geometric_mean([row.ratio(row.same) for row in found])
            note = f"{alike:.2f} of torch without AMX" if alike else ""
            label = f"{len(found)} convolutions, {threads} threads, times torch"
            value = geometric_mean([row.ratio(row.vendors) for row in found])
            bars.append(Bar(label, value, CONVOLUTION_RATIO, note=note))
    return bars


if __name__ == "__main__":
    from bench import main

    sys.exit(main(["int8", *sys.argv[1:]]))
