"""Builds candidates with TVM and times them on demand, in a process of its own.

    python serve_candidates.py

reads a JSON object from the first line of standard input (``workload``, ``target``, ``threads``,
``sketches`` by digest, ``candidates`` as pairs of a sketch's digest and a configuration, ``cpus``
to be timed on, ``build`` whether to build them all), and answers with ``{"ready": [...]}``, the
numbers of those that run. Then it answers every line:

- ``{"do": "time", "candidate": N}``: ``{"seconds": S}``, the median of a few samples of one call,
  by this project's loop and on the given CPUs;
- ``{"do": "evaluate", "candidate": N}``: the same by TVM's own timer, set as its tuner sets it;
- ``{"do": "build", "candidate": N}``: builds it once more; ``{"seconds": S}`` that this took;
- ``{"do": "build on"}``: builds candidates until another line comes; ``{"built": N}``;
- ``{"do": "rest"}``: ``{}``.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import select
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from autotune_tvm import compiler, runtime
from autotune_tvm.backend import TVMBackend, TVMExecutable

from autotune import Target, Workload
from autotune.backends import (
    BoundCall,
    BuildFailed,
    BuildRequest,
    InvalidSchedule,
    aligned_copy,
    aligned_empty,
)
from autotune.ir.workloads import random_inputs
from autotune.measure.pinning import pinned
from autotune.sketches import Candidate, Sketch

SAMPLES = 3
SAMPLE_SECONDS = 0.003
# `EvaluatorConfig()` of TVM's MetaSchedule: what its tuner times candidates with.
EVALUATOR = {"number": 3, "repeat": 1, "min_repeat_ms": 100}


class Server:
    """Candidates that were asked for, built.

    Args:
        request: The first line.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self.workload = Workload.from_json(request["workload"])
        self.target = Target.from_json(request["target"])
        self.threads: int = request["threads"]
        self.cpus: list[int] = request["cpus"]
        sketches = {
            digest: Sketch.from_json(sketch, self.workload)
            for digest, sketch in request["sketches"].items()
        }
        self.candidates = [
            Candidate.from_config(sketches[digest], config)
            for digest, config in request["candidates"]
        ]
        self.backend = TVMBackend()
        arrays = random_inputs(self.workload, np.random.default_rng(0))
        self.inputs = [aligned_copy(arrays[tensor.name]) for tensor in self.workload.inputs]
        made = {stage.output.name: stage.output for stage in self.workload.stages}
        results = [made[name] for name in self.workload.outputs]
        self.outputs = [aligned_empty(result.shape, result.dtype) for result in results]
        self.tensors = [tvm.runtime.tensor(array) for array in (*self.inputs, *self.outputs)]
        self.calls: dict[int, BoundCall] = {}
        self.numbers: dict[int, int] = {}
        self.evaluators: dict[int, Callable[[], float]] = {}
        self.handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "time": self.time,
            "evaluate": self.evaluate,
            "build": self.build,
            "build on": self.build_on,
            "rest": lambda _request: {},
        }

    def build_all(self) -> list[int]:
        """Build every candidate; returns the numbers of those that run."""
        for number in range(len(self.candidates)):
            try:
                self._load(number)
            except (InvalidSchedule, BuildFailed):
                continue
        return list(self.calls)

    def time(self, request: dict[str, Any]) -> dict[str, Any]:
        """Seconds of one call by this project's loop."""
        number = request["candidate"]
        call = self.calls[number]
        with pinned(self.cpus):
            estimate = call.time(1)
            count = self.numbers.setdefault(number, math.ceil(SAMPLE_SECONDS / estimate))
            seconds = [call.time(count) for _ in range(SAMPLES)]
        self.backend.park()
        return {"seconds": statistics.median(seconds)}

    def evaluate(self, request: dict[str, Any]) -> dict[str, Any]:
        """Seconds of one call by TVM's timer, and what the timing took."""
        runtime.use_threads(self.threads)
        begin = time.perf_counter()
        seconds = self.evaluators[request["candidate"]]()
        spent = time.perf_counter() - begin
        self.backend.park()
        return {"seconds": seconds, "spent": spent}

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        """Build a candidate, and forget the result."""
        begin = time.perf_counter()
        self.backend.build(self._request(request["candidate"]))
        return {"seconds": time.perf_counter() - begin}

    def build_on(self, _request: dict[str, Any]) -> dict[str, Any]:
        """Build candidates over and over until the host says something else."""
        os.sched_setaffinity(0, self.cpus)
        for built in itertools.count():
            if select.select([0], [], [], 0.0)[0]:
                return {"built": built}
            try:
                self.backend.build(self._request(built % len(self.candidates)))
            except (InvalidSchedule, BuildFailed):
                continue
        raise AssertionError("counting does not end")

    def _request(self, number: int) -> BuildRequest:
        return BuildRequest(
            self.workload, None, self.candidates[number], self.target, self.threads
        )

    def _load(self, number: int) -> None:
        lowered = self.backend.lower(self._request(number))
        module = lowered.program.module
        built, _ = compiler.generate_code(module, self.target, self.threads)
        names = (*(tensor.name for tensor in self.workload.inputs), *self.workload.outputs)
        executable = TVMExecutable(built, self.workload, names, self.threads)
        call = executable.bind(self.inputs, self.outputs)
        call.run()
        self.calls[number] = call
        timer = built.time_evaluator("main", tvm.cpu(), **EVALUATOR)
        self.evaluators[number] = lambda: float(timer(*self.tensors).mean)


def main() -> int:
    """Serve until standard input ends."""
    # Unbuffered: whether another line has come can be seen from outside then.
    lines = open(0, "rb", buffering=0)  # noqa: SIM115
    request = json.loads(lines.readline())
    server = Server(request)
    ready = server.build_all() if request["build"] else []
    print(json.dumps({"ready": ready}), flush=True)
    for line in lines:
        asked = json.loads(line)
        print(json.dumps(server.handlers[asked["do"]](asked)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
