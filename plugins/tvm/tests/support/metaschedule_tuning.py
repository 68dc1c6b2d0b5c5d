"""Databases that TVM's own tuner writes, with programs built and timed in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import te, topi
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule

__all__ = ["layer", "rows", "tuned_by_tvm"]


def layer() -> Any:
    """A product of matrices with relu."""
    x, w = te.placeholder((32, 24), "float32", "x"), te.placeholder((24, 48), "float32", "w")
    return te.create_prim_func([x, w, topi.nn.relu(topi.matmul(x, w))])


def rows() -> Any:
    """A softmax, whose rules choose where blocks are computed."""
    x = te.placeholder((8, 24), "float32", "x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


@derived_object
class _Builder(meta_schedule.builder.PyBuilder):  # type: ignore[misc]
    """Compiles in this process; what it made is found by its number."""

    def __init__(self) -> None:
        super().__init__()
        self.built: list[Any] = []

    def build(self, build_inputs: list[Any]) -> list[Any]:
        results = []
        for each in build_inputs:
            results.append(meta_schedule.builder.BuilderResult(str(len(self.built)), None))
            self.built.append(tvm.compile(each.mod, target=each.target).jit())
        return results


@derived_object
class _Future(meta_schedule.runner.PyRunnerFuture):  # type: ignore[misc]
    def __init__(self, seconds: list[float]) -> None:
        super().__init__()
        self.seconds = seconds

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return meta_schedule.runner.RunnerResult(self.seconds, None)


@derived_object
class _Runner(meta_schedule.runner.PyRunner):  # type: ignore[misc]
    """Times in this process, three times each."""

    def __init__(self, built: list[Any]) -> None:
        super().__init__()
        self.built = built

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        return [_Future(self._timed(each)) for each in runner_inputs]

    def _timed(self, each: Any) -> list[float]:
        function = self.built[int(each.artifact_path)]
        arguments = [
            tvm.runtime.tensor(np.ones([*map(int, info.shape)], str(info.dtype)))
            for info in each.args_info
        ]
        timed = function.time_evaluator("main", tvm.cpu(), number=1, repeat=3)(*arguments)
        return [float(seconds) for seconds in timed.results]


def tuned_by_tvm(functions: dict[str, Any], folder: Path, trials: int) -> None:
    """Let TVM tune functions for two cores, so many trials each, and write its database."""
    builder = _Builder()
    named = {name: it.with_attr("global_symbol", name) for name, it in functions.items()}
    meta_schedule.tune_tir(
        tvm.IRModule(named),
        target=tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}),
        work_dir=str(folder),
        max_trials_global=trials * len(functions),
        max_trials_per_task=trials,
        num_trials_per_iter=trials,
        num_tuning_cores=1,
        cost_model="random",
        builder=builder,
        runner=_Runner(builder.built),
        # The usual ones also remove the files that a builder has made: here there are none.
        measure_callbacks=[meta_schedule.measure_callback.AddToDatabase()],
        seed=1,
    )
