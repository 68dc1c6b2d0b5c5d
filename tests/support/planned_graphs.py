"""Random graphs, and plans that numpy runs: their arena is memory like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from network_graphs import drawn
from numpy.typing import NDArray

from autotune.ir.element_types import element_type
from autotune.ir.workloads import Workload, reference_outputs
from autotune.networks.graph import (
    Graph,
    Node,
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
from autotune.networks.graph.host import run_on_host
from autotune.networks.plan.planning import plan_graph
from autotune.runtime.plan import Call, Check, Copy, HostCall, Operand, Place, Plan, unrolled

__all__ = ["graphs", "numpy_plan", "recurrence", "run_plan", "values_for"]

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
    """The outputs of a plan, computed by numpy in an arena that holds nothing but poison before.

    What lies around arena and outputs is found as it was.
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
    def memory(place: Place, size: int) -> Array:
        whole = begins[place.kind][place.number]
        assert place.offset >= 0 and place.offset + size <= whole.size, place
        assert not place.strides
        return whole[place.offset : place.offset + size]

    def array(operand: Operand) -> Array:
        kind = element_type(operand.dtype).dtype
        return memory(operand.place, operand.bytes).view(kind).reshape(operand.shape)

    def results(written: Sequence[Operand], found: Sequence[Array], read: Sequence[Place]) -> None:
        for operand, result in zip(written, found, strict=True):
            for place in read:
                assert operand.place != place
            array(operand)[...] = result

    for step in unrolled(plan.steps):
        if isinstance(step, Copy):
            assert step.source != step.target
            memory(step.target, step.bytes)[:] = memory(step.source, step.bytes).copy()
        elif isinstance(step, Check):
            step.requirement.check(array(step.operand), step.label)
        elif isinstance(step, HostCall):
            names = [
                input_value(f"x{n}", it.shape, it.dtype) for n, it in enumerate(step.operands)
            ]
            kinds = tuple((it.shape, it.dtype) for it in step.results)
            node = Node(step.operator, tuple(names), kinds)
            places = [it.place for it in step.operands]
            results(step.results, run_on_host(node, [array(it) for it in step.operands]), places)
        else:
            _call(plan.programs[step.program], step, array, results)


def _call(workload: Workload, step: Call, array: Any, results: Any) -> None:
    tensors = workload.tensors
    names = [*(it.name for it in workload.inputs), *workload.outputs]
    operands = [
        Operand(place, tensors[name].shape, tensors[name].dtype)
        for place, name in zip(step.arguments, names, strict=True)
    ]
    assert all(it.place.offset % 64 == 0 for it in operands)
    count = len(workload.inputs)
    given = {
        it.name: array(operand) for it, operand in zip(workload.inputs, operands, strict=False)
    }
    with np.errstate(all="ignore"):
        found = reference_outputs(workload, given)
    places = [it.place for it in operands[:count]]
    results(operands[count:], [found[name] for name in workload.outputs], places)


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
