"""Contenders of `operators.py`, as `serve.py` serves them.

By ``contender``: ``autotune`` (our record in a database), ``tvm`` (a program in TVM's JSON form as
TVM itself compiles it: nobody scheduled it, or MetaSchedule did), ``torch`` (one of its variants)
and ``roofline`` (what the machine can do at best, measured in its turn).

All have the same inputs. What a contender computes of them goes to ``output``, where it is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from support.operator_rows import draw
from support.operator_task import IMPORTED, RECORDS

# What nobody scheduled is not timed where a call takes longer.
MOST_SECONDS = 0.2
# To measure each rate of a roofline, in each turn.
RATE_SECONDS, MEMORY_RATE_SECONDS = 0.02, 0.1

Timer = Callable[[int], float]
Maker = Callable[[int], Timer]


def serve_operator(request: Mapping[str, Any]) -> Maker:
    """The maker of a contender's timers."""
    makers: dict[str, Callable[[Mapping[str, Any]], Maker]] = {
        "autotune": _autotune,
        "tvm": _tvm,
        "torch": _torch,
        "roofline": _roofline,
    }
    return makers[request["contender"]](request)


def _autotune(request: Mapping[str, Any]) -> Maker:
    """The best record, as ``Result.build`` compiles it, on arrays at new places each time."""
    import autotune
    from autotune.backends import aligned_copy, aligned_empty

    folder = Path(request["folder"])
    with autotune.open_database(folder / RECORDS, read_only=True) as database:
        record = database.best(autotune.RecordFilter(workload=request["digest"]))
    if record is None:
        raise RuntimeError("the database has no record of this workload")
    program = (folder / IMPORTED).read_text(encoding="utf-8")
    function = autotune.compile_record(record, program)
    taken = function.workload.inputs
    tensors = [function.workload.tensors[name] for name in function.workload.outputs]

    def bound(number: int) -> tuple[Any, list[Any]]:
        arrays = zip(draw(request["inputs"], number), taken, strict=True)
        inputs = [aligned_copy(tensor.element.stored(array)) for array, tensor in arrays]
        outputs = [aligned_empty(tensor.shape, tensor.element.dtype) for tensor in tensors]
        return function.executable.bind(inputs, outputs), outputs

    call, outputs = bound(0)
    call.run()
    _write(request, tensors[0].element.numbers(outputs[0]))

    def made(number: int) -> Timer:
        timer: Timer = bound(number)[0].time
        return timer

    return made


def _tvm(request: Mapping[str, Any]) -> Maker:
    """A module, compiled by TVM's own pipeline and timed by its own timer."""
    from autotune_tvm import runtime

    tvm = runtime.load()
    from autotune_tvm.compiler import tvm_target
    from autotune_tvm.importer import module_from_text

    from autotune.targets import detect_cpu

    threads = request["threads"]
    module = module_from_text(Path(request["module"]).read_text(encoding="utf-8"))
    _check_fast_enough(module["main"], request)
    target = tvm.target.Target(tvm_target(detect_cpu(), threads))
    built = tvm.compile(module, target=target)
    device = tvm.cpu()

    def arrays(number: int) -> list[Any]:
        given = [tvm.runtime.tensor(array, device) for array in _inputs(request, number)]
        (spec,) = request["outputs"]
        return [*given, tvm.runtime.empty(spec["shape"], spec["dtype"], device)]

    first = arrays(0)
    # The first call compiles.
    built.mod["main"](*first)
    begin = time.perf_counter()
    built.mod["main"](*first)
    seconds = time.perf_counter() - begin
    if request.get("skip_slow") and seconds > MOST_SECONDS:
        raise RuntimeError(f"skipped: a call takes {seconds:.2g} s")
    _write(request, first[-1].numpy())

    def made(number: int) -> Timer:
        given = arrays(number)

        def timer(calls: int) -> float:
            evaluate = built.mod.time_evaluator("main", device, number=calls, repeat=1)
            return float(evaluate(*given).mean)

        return timer

    return made


def _check_fast_enough(function: Any, request: Mapping[str, Any]) -> None:
    """Refuse what is slow for certain without running it: that may take minutes."""
    from autotune_tvm.importer import least_seconds

    least = least_seconds(function) if request.get("skip_slow") else 0.0
    if least > MOST_SECONDS:
        raise RuntimeError(f"skipped: a call takes {least:.2g} s at least")


def _torch(request: Mapping[str, Any]) -> Maker:
    """An of torch's variants; its tensors are copied into its own layout before.

    What eager writes is computed in double precision: others are compared with it, and torch's own
    norm of millions of float32 numbers is as far off as is allowed.
    """
    import torch

    from support.operator_torch import COMPILED, EAGER, prepared
    from support.serve import timer_of

    torch.set_num_threads(request["threads"])
    kind, arguments, variant = (request[key] for key in ("operator", "arguments", "variant"))

    def made_of(number: int, *, exact: bool = False) -> Any:
        tensors = [
            torch.from_numpy(array).to(getattr(torch, spec["dtype"]))
            for array, spec in zip(draw(request["inputs"], number), request["inputs"], strict=True)
        ]
        if exact:
            tensors = [it.double() if it.dtype == torch.float32 else it for it in tensors]
        return prepared(kind, arguments, tensors, variant)

    with torch.inference_mode():
        function, given, finish = made_of(0)
        # Once: it depends on shapes alone.
        function = torch.compile(function) if variant == COMPILED else function
        result = finish(function(*given))
        if variant == EAGER:
            exact, wider, finish = made_of(0, exact=True)
            result = finish(exact(*wider))
        plain = result.float() if result.dtype == torch.bfloat16 else result
        _write(request, plain.contiguous().numpy())

    def made(number: int) -> Timer:
        with torch.inference_mode():
            _, given, _ = made_of(number)
        return timer_of(torch.inference_mode()(lambda: function(*given)))

    return made


def _roofline(request: Mapping[str, Any]) -> Maker:
    """The larger of what its products and its arrays take at least, on so many threads."""
    from peak import COPIES, MEMORY, Ceilings, capacities, sizes_of

    from autotune.targets import detect_cpu, measure_bandwidth, measure_peak

    target, threads, dtype = detect_cpu(), request["threads"], request["dtype"]
    if dtype != "float32" and any(name.startswith("amx") for name in target.features):
        raise RuntimeError("the peak of tile registers is not measured")
    read, written = request["read"], request["written"]
    sizes, held = sizes_of(target, threads), capacities(target, threads)
    level = Ceilings(threads, {}, {}, held).level_of(read + written)

    effort = MEMORY_RATE_SECONDS if level == MEMORY else RATE_SECONDS

    def made(_: int) -> Timer:
        rates = {
            pattern: measure_bandwidth(pattern, sizes[level], threads, effort)
            for pattern in ("read", *COPIES)
        }
        found = Ceilings(threads, {}, {level: rates}, held)
        seconds = found.transfer_seconds(read, written)
        if request["flop"]:
            peak = measure_peak(dtype, threads, RATE_SECONDS)
            seconds = max(seconds, request["flop"] / peak)
        return lambda _: seconds

    return made


def _inputs(request: Mapping[str, Any], number: int) -> list[Any]:
    """Return the inputs of a request as the program takes them."""
    arrays = draw(request["inputs"], number)
    if any(spec["dtype"] == "bfloat16" for spec in request["inputs"]):
        import ml_dtypes

        arrays = [
            array.astype(ml_dtypes.bfloat16) if spec["dtype"] == "bfloat16" else array
            for array, spec in zip(arrays, request["inputs"], strict=True)
        ]
    return arrays


def _write(request: Mapping[str, Any], output: Any) -> None:
    """Write what was computed of the inputs of number 0; bfloat16 as float32."""
    if request.get("output"):
        plain = output.astype(np.float32) if output.dtype.name == "bfloat16" else output
        np.save(request["output"], plain)
