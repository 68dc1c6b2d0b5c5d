"""Random graphs, and plans whose programs are numpy's: their arena is memory like any other."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from attrs import evolve
from hypothesis import strategies as st
from network_graphs import drawn
from numpy.typing import NDArray

from autotune import _native
from autotune.backends.native.executable import Layout, table_of
from autotune.backends.native.printed import PrintedProgram
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Workload, reference_outputs
from autotune.networks.graph import (
    Graph,
    Value,
    Window,
    binary,
    concat,
    constant,
    convolution,
    input_value,
    loop,
    matmul,
    reduce,
    reshape,
    sort,
    take,
    transpose,
    unary,
)
from autotune.networks.plan.cpu_network import FRAME, HostTable, array_at, written_steps
from autotune.networks.plan.planning import plan_graph
from autotune.runtime.plan import Call, Copy, HostCall, Operand, Place, Plan, leaves

Array = NDArray[Any]
POISON = 0xA5
GUARD = 256


def numpy_plan(graph: Graph, alignment: int = 64) -> Plan[Workload]:
    """A plan whose programs are the workloads themselves."""
    workloads = {it.spelling: it for it in graph.workloads}
    tasks = {spelling: it.name for spelling, it in workloads.items()}
    return plan_graph(graph, workloads, tasks, {}, alignment)


def values_for(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Random inputs; whole numbers are valid indices."""
    rng = np.random.default_rng(seed)
    return {
        it.name: drawn(it.shape, it.dtype, seed + number)
        if element_type(it.dtype).is_float
        else rng.integers(0, 2, it.shape).astype(it.dtype)
        for number, it in enumerate(graph.inputs)
    }


def run_plan(plan: Plan[Workload], graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a plan, whose steps are made as networks make them, in guarded memory.

    The arena holds nothing but poison before; what lies around it and outputs is found as it was.
    """
    sizes = [
        int(np.prod(it.shape)) * element_type(it.dtype).bytes for it in graph.outputs.values()
    ]
    outputs = [np.full(size + 2 * GUARD, POISON, np.uint8) for size in sizes]
    arena = np.full(plan.arena_bytes + 2 * GUARD, POISON, np.uint8)
    begins = {
        "input": [_bytes(inputs[it.name]).copy() for it in graph.inputs],
        "output": [it[GUARD : it.size - GUARD] for it in outputs],
        "constant": [_bytes(it.array) for it in plan.constants if it.array is not None],
        "arena": [arena[GUARD : arena.size - GUARD]],
    }
    for step in leaves(plan.steps):
        if isinstance(step, Call):
            assert all(place.is_aligned(64) for place in step.arguments)
        elif isinstance(step, HostCall):
            read, written = ({it.place for it in part} for part in (step.operands, step.results))
            assert not read & written
        elif isinstance(step, Copy):
            assert step.source != step.target
    _run(plan, begins)
    for memory in (*outputs, arena):
        assert (memory[:GUARD] == POISON).all() and (memory[-GUARD:] == POISON).all()
    for given, held in zip(graph.inputs, begins["input"], strict=True):
        assert (_bytes(inputs[given.name]) == held).all()
    return {
        name: held.view(element_type(it.dtype).dtype).reshape(it.shape)
        for (name, it), held in zip(graph.outputs.items(), begins["output"], strict=True)
    }


def _run(plan: Plan[Workload], begins: Mapping[str, Sequence[Array]]) -> None:
    errors: list[BaseException] = []
    functions = [_PROGRAM(partial(_call, it, errors)) for it in plan.programs.values()]
    own = {
        key: PrintedProgram("", Layout((), (), False), len(it.inputs) + len(it.outputs))
        for key, it in plan.programs.items()
    }
    steps = written_steps(evolve(plan, programs=own))
    hosts = HostTable([it for it in leaves(plan.steps) if isinstance(it, HostCall)])
    failure = ctypes.c_int64()
    tables = {
        "programs": table_of([ctypes.cast(it, ctypes.c_void_p).value or 0 for it in functions]),
        "hosts": hosts.table,
        "failure": failure,
        **{
            f"{kind}s": table_of([it.ctypes.data for it in begins[kind]])
            for kind in ("input", "output", "constant")
        },
    }
    words = {name: ctypes.addressof(table) for name, table in tables.items()}
    words |= {"steps": steps.ctypes.data, "arena": begins["arena"][0].ctypes.data, "threads": 1}
    frame = (ctypes.c_uint64 * len(FRAME))(*(words.get(name, 0) for name in FRAME))
    run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_native.step_runner())
    assert (run(ctypes.addressof(frame)), errors) == (0, [])


_PROGRAM = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_void_p
)


def _call(
    workload: Workload, errors: list[BaseException], arrays: Any, _launch: Any, _pool: Any
) -> int:
    """A program of a workload, by numpy."""
    try:
        tensors, count = workload.tensors, len(workload.inputs)
        names = [*(it.name for it in workload.inputs), *workload.outputs]
        found = [
            array_at(arrays[at], Operand(Place("arena"), tensors[name].shape, tensors[name].dtype))
            for at, name in enumerate(names)
        ]
        for written in found[count:]:
            assert not any(np.may_share_memory(written, read) for read in found[:count])
        with np.errstate(all="ignore"):
            right = reference_outputs(workload, dict(zip(names, found[:count], strict=False)))
        for name, written in zip(workload.outputs, found[count:], strict=True):
            written[...] = right[name]
    except BaseException as error:  # C knows none
        errors.append(error)
    return 0


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


@st.composite
def graphs(draw: st.DrawFn, most: int = 8) -> Graph:
    """Networks of every kind of node, whose values are used any number of times."""
    x = input_value("x", (draw(st.integers(1, 5)), draw(st.sampled_from([3, 4, 16]))), "float32")
    picks = input_value("picks", (draw(st.integers(1, 3)),), "int64")
    known = [x]
    for _ in range(draw(st.integers(0, most))):
        value = draw(st.sampled_from(known))
        known += _operations(draw, value, known, picks)
    chosen = draw(st.lists(st.sampled_from(known), min_size=1, max_size=4))
    outputs = {f"y{number}": it for number, it in enumerate(chosen)}
    if draw(st.booleans()):
        outputs["picks"] = picks
        outputs["fixed"] = constant(np.arange(3.0, dtype=np.float32))
    return Graph((x, picks), outputs)


def _operations(
    draw: st.DrawFn, value: Value, known: Sequence[Value], picks: Value
) -> Sequence[Value]:
    rows, columns = value.shape
    seed = draw(st.integers(0, 3))
    kind = draw(
        st.sampled_from(
            ("unary", "binary", "matmul", "convolution", "reduce", "reshape", "transpose")
            + ("sort", "loop", "concat", "take")
        )
    )
    if kind == "unary":
        return [unary("tanh", value)]
    if kind == "binary":
        alike = [it for it in known if it.shape == value.shape]
        return [binary("add", value, draw(st.sampled_from(alike)))]
    if kind == "matmul":
        weights = drawn((columns, 4), "float32", seed)
        return [unary("tanh", matmul(value, constant(weights)))]
    if kind == "convolution":
        kernel = constant(drawn((1, 1, 1, 3), "float32", seed))
        image = reshape(value, (1, 1, rows, columns))
        made = convolution(image, kernel, Window.of((1, 3), None, (0, 1), (0, 1)))
        return [unary("tanh", reshape(made, (rows, columns)))]
    if kind == "reduce":
        return [reduce("max", value, [draw(st.sampled_from([0, 1]))])]
    if kind == "reshape":
        return [reshape(value, (columns, rows))]
    if kind == "transpose":
        return [transpose(value, (1, 0))]
    if kind == "sort":
        values, places = sort(value, 1, draw(st.booleans()))
        return [values, unary("tanh", binary("add", values, value))] if seed else [values]
    if kind == "concat":
        return [reduce("add", concat([value, value], 0), [0])]
    if kind == "take":
        return [take(value, binary("min", picks, rows - 1), 0)]
    choices = (draw(st.integers(0, 3)), draw(st.integers(0, 3)))
    return recurrence(value, *choices, draw(st.booleans()), draw(st.booleans()))


def recurrence(
    value: Value, order: int, keeps: int, nests: bool, backwards: bool
) -> Sequence[Value]:
    """A recurrence over the rows of a matrix: its last states, and what it keeps.

    Args:
        value: The matrix.
        order: How its two states change places; from 0 to 3.
        keeps: What it keeps, likewise.
        nests: Whether a step has a loop.
        backwards: Whether it begins at the last row.
    """
    rows, columns = value.shape
    weights = constant(drawn((columns, columns), "float32", 7))

    def step(
        states: Sequence[Value], slices: Sequence[Value], fixed: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        first, second = states
        made = unary("tanh", binary("add", matmul(first, weights), slices[0]))
        if nests:
            made = _nested(made, fixed[0])
        after = [[made, second], [second, made], [made, first], [second, first]][order]
        kept = ([], [made], [made, second], [reshape(first, (columns, 1)), slices[0]])[keeps]
        return after, list(kept)

    row = reduce("max", value, [0])
    zero = constant(np.zeros((1, columns), np.float32))
    slices = reshape(value, (rows, 1, columns))
    count = (0, 1, 2, 2)[keeps]
    states, kept = loop(step, rows, [row, zero], [slices], [row], [backwards], [backwards] * count)
    return [*states, *(reshape(it, (rows, columns)) for it in kept)]


def _nested(value: Value, factor: Value) -> Value:
    states, _ = loop(
        lambda s, c, f: ([binary("mul", unary("tanh", s[0]), f[0])], []),
        2,
        [value],
        fixed=[factor],
    )
    return states[0]
