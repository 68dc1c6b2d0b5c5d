"""Networks in this process: what they compute, how they are called, and what they leave alone."""

from __future__ import annotations

import gc
import os
import threading
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from network_graphs import drawn
from numpy.typing import NDArray
from planned_graphs import graphs, recurrence, values_for

from autotune.backends import ALIGNMENT, InvalidSchedule
from autotune.backends.native import NativeBackend
from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedTarget
from autotune.ir.workloads import gemm
from autotune.networks.graph import (
    Graph,
    HostOperator,
    Value,
    binary,
    constant,
    evaluate,
    gather_nd,
    input_value,
    loop,
    matmul,
    reduce,
    sort,
    take,
    unary,
)
from autotune.networks.graph.making import compute
from autotune.networks.plan import cpu_network
from autotune.networks.plan.cpu_network import CpuNetwork, compile_network
from autotune.networks.plan.planning import native_program, plan_of
from autotune.runtime.plan import Packing
from autotune.sketches import Candidate, prepacked_operands
from autotune.targets import Target, detect_cpu, preset
from autotune.testing.programs import sample_candidates

X = input_value("x", (4, 16), "float32")
POISON = 0xA5
GUARD = 4096


@cache
def machine() -> Target:
    return detect_cpu()


def compiled(graph: Graph, threads: int = 2) -> CpuNetwork:
    return compile_network(graph, {}, machine(), threads)


def layers(count: int) -> Value:
    weights = constant(drawn((16, 16), "float32", 1) / 4)
    made = X
    for _ in range(count):
        made = unary("tanh", matmul(made, weights))
    return made


@cache
def network() -> tuple[CpuNetwork, Graph]:
    """A network with calls of the host, a loop, and a check of indices."""
    picks = input_value("picks", (3,), "int64")
    values, places = sort(layers(2))
    last, _, kept = recurrence(take(values, picks, 0), 2, 1, True, True)
    graph = Graph((X, picks), {"last": last, "kept": kept, "places": places, "x": X})
    return compiled(graph), graph


def given_to_it(seed: int = 0) -> dict[str, NDArray[Any]]:
    return {"x": drawn((4, 16), "float32", seed), "picks": np.array([3, -1, 0])}


def check(found: dict[str, NDArray[Any]], wanted: dict[str, NDArray[Any]]) -> None:
    assert [*found] == [*wanted]
    for name, right in wanted.items():
        assert found[name].dtype == right.dtype
        np.testing.assert_allclose(found[name], right, rtol=2e-5, atol=1e-5)


class Guarded:
    """Memory with guards around, in the place of the memory of networks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memory: list[NDArray[Any]] = []
        monkeypatch.setattr(cpu_network, "aligned_empty", self.empty)
        monkeypatch.setattr(cpu_network, "_new_output", self.located)

    def empty(self, shape: tuple[int, ...], kind: Any) -> NDArray[Any]:
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        memory = np.full(size + 2 * GUARD + ALIGNMENT, POISON, np.uint8)
        begin = GUARD + -(memory.ctypes.data + GUARD) % ALIGNMENT
        self.memory += [memory[:begin], memory[begin + size :]]
        found: NDArray[Any] = memory[begin : begin + size].view(kind).reshape(shape)
        return found

    def located(self, shape: tuple[int, ...], kind: Any) -> tuple[NDArray[Any], int]:
        found = self.empty(shape, kind)
        return found, found.ctypes.data

    def is_whole(self) -> bool:
        return all((it == POISON).all() for it in self.memory)


def test_random_networks_compute_what_numpy_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in memory that a call before has used; what lies beside it is left alone."""
    guarded = Guarded(monkeypatch)

    @settings(max_examples=12)
    @given(graphs(6))
    def check_random(graph: Graph) -> None:
        found = compiled(graph)
        for seed in (0, 1, 1):
            inputs = values_for(graph, seed)
            check(found.run(inputs), evaluate(graph, inputs))

    check_random()
    assert guarded.memory and guarded.is_whole()


def test_a_network_with_everything() -> None:
    found, graph = network()
    for seed in range(3):
        check(found.run(given_to_it(seed)), evaluate(graph, given_to_it(seed)))
    names = [tensor.name for tensor in found.plan.outputs]
    outputs = found(*given_to_it().values())
    check(dict(zip(names, outputs, strict=True)), evaluate(graph, given_to_it()))
    for output in outputs:
        assert output.ctypes.data % ALIGNMENT == 0 and output.base is not None


def test_inputs_may_lie_anywhere_and_are_left_as_they_are() -> None:
    found, graph = network()
    inputs = given_to_it(5)
    wanted = evaluate(graph, inputs)
    x = inputs["x"]
    unaligned = np.empty(x.size + 1, np.float32)[1:].reshape(x.shape)
    unaligned[...] = x
    fixed = x.copy()
    fixed.flags.writeable = False
    wide = np.zeros((4, 32), np.float32)
    wide[:, ::2] = x
    for each in (unaligned, np.asfortranarray(x), wide[:, ::2], x.astype(">f4"), fixed):
        check(found.run({**inputs, "x": each}), wanted)
        np.testing.assert_array_equal(each, x)


def test_outputs_are_new_in_each_call() -> None:
    found, _ = network()
    first = found(*given_to_it(1).values())
    kept = [it.copy() for it in first]
    found(*given_to_it(2).values())
    for before, now in zip(kept, first, strict=True):
        np.testing.assert_array_equal(before, now)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_conditions_that_do_not_hold_are_errors_and_no_signals(dtype: str) -> None:
    """The message is that of numpy's evaluator; the next call is as if nothing had been."""
    places = input_value("places", (3,), dtype)
    graph = Graph((X, places), {"y": take(X, places, 0), "q": binary("div", places, places)})
    found, x = compiled(graph), drawn((4, 16), "float32")
    highest = np.iinfo(dtype).max
    for elements in ([1, 7, 2], [1, 0, 2], [1, highest, 9], [2, 3, highest]):
        given = {"x": x, "places": np.array(elements, dtype)}
        with pytest.raises(InvalidValueError) as wanted:
            evaluate(graph, given)
        with pytest.raises(InvalidValueError) as error:
            found.run(given)
        assert str(error.value) == str(wanted.value)
    fine = {"x": x, "places": np.array([1, 3, 2], dtype)}
    check(found.run(fine), evaluate(graph, fine))


def test_conditions_are_of_places_along_the_last_axis_and_hold_in_loops() -> None:
    pairs = input_value("pairs", (5, 1, 2), "int64")
    kept = loop(lambda s, c, f: (s, [gather_nd(f[0], c[0])]), 5, [], [pairs], [X])[1]
    graph = Graph((X, pairs), {"y": kept[0]})
    found, x = compiled(graph), drawn((4, 16), "float32")
    right = np.array([[[3, 15]], [[0, 0]], [[-4, 3]], [[1, -16]], [[2, 2]]])
    given = {"x": x, "pairs": right}
    check(found.run(given), evaluate(graph, given))
    for trip, axis, element in ((4, 0, 4), (2, 1, 16), (0, 1, -17)):
        wrong = right.copy()
        wrong[trip, 0, axis] = element
        with pytest.raises(InvalidValueError, match=f"index {element} is not from"):
            found.run({"x": x, "pairs": wrong})


def test_what_fails_on_the_host_is_raised_where_the_network_is_called() -> None:
    wrong = compute(HostOperator("sotr"), [X], [(X.shape, X.dtype)])[0]
    found = compiled(Graph((X,), {"y": wrong}))
    for _ in range(2):
        with pytest.raises(UnknownNameError, match="sort"):
            found.run({"x": drawn((4, 16), "float32")})


def test_threads_call_a_network_at_the_same_time() -> None:
    found, graph = network()
    wanted = [evaluate(graph, given_to_it(seed)) for seed in range(4)]
    failures: list[BaseException] = []

    def call(seed: int) -> None:
        try:
            for _ in range(50):
                check(found.run(given_to_it(seed)), wanted[seed])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_forked_child_calls_it() -> None:
    found, graph = network()
    wanted = evaluate(graph, given_to_it())
    found.run(given_to_it())
    child = os.fork()
    if child == 0:
        status = 1
        try:
            check(found.run(given_to_it()), wanted)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def product() -> tuple[Graph, Candidate]:
    """A network of two products with equal constants, and a schedule that packs them."""
    weights = drawn((24, 96), "float32", 3)
    x = input_value("x", (20, 24), "float32")
    made = [matmul(it, constant(weights.copy())) for it in (x, unary("tanh", x))]
    graph = Graph((x,), {"a": made[0], "b": made[1]})
    workload = next(it for it in graph.workloads if it.name == "matmul")
    drawn_ones = sample_candidates(NativeBackend(), workload, machine(), each=2)
    return graph, next(it for it in drawn_ones if prepacked_operands(it))


def test_constants_are_packed_once() -> None:
    graph, candidate = product()
    chosen = {candidate.sketch.workload.digest: candidate}
    plan = plan_of(graph, chosen, machine(), 2)
    assert len(plan.packings) == 1 and 0 not in plan.read_constants
    assert plan.packings[0] == Packing(
        candidate.sketch.workload.spelling, plan.packings[0].entry, 0, (1,)
    )
    found = compile_network(graph, chosen, machine(), 2)
    assert found.built.constants[0] is None
    gc.collect()
    for seed in range(2):
        given = {"x": drawn((20, 24), "float32", seed)}
        check(found.run(given), evaluate(graph, given))


def test_schedules_are_of_equal_workloads() -> None:
    graph, candidate = product()
    other = next(it for it in graph.workloads if it.name == "tanh")
    with pytest.raises(InvalidSchedule, match="task 'second': "):
        compile_network(graph, {other.digest: candidate}, machine(), 1, {other.digest: "second"})
    with pytest.raises(InvalidSchedule, match="'abc', which the network lacks"):
        compile_network(graph, {"abc": candidate}, machine(), 1)
    with pytest.raises(InvalidSchedule):
        native_program(gemm(m=20, n=96, k=25), candidate, machine(), 1)
    equal = gemm(m=20, n=96, k=24).with_constants("B")
    assert equal.digest == candidate.sketch.workload.digest
    assert native_program(equal, candidate, machine(), 1).layout.packed


def test_what_cannot_be_done_is_said() -> None:
    graph = Graph((X,), {"y": reduce("add", X)})
    with pytest.raises(UnsupportedTarget):
        compile_network(graph, {}, preset("a100"), 1)
    with pytest.raises(InvalidValueError, match="'net.so' cannot be written"):
        compiled(graph).save("net.so")


@pytest.mark.needs("ml_dtypes")
def test_bfloat16_is_a_type_outside_and_bits_inside() -> None:
    import ml_dtypes

    x = input_value("x", (8,), "bfloat16")
    graph = Graph((x,), {"y": unary("exp", x)})
    bits = drawn((8,), "bfloat16")
    wanted = evaluate(graph, {"x": bits})["y"]
    found = compiled(graph)
    (y,) = found(bits.view(ml_dtypes.bfloat16))
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(y.view(np.uint16), wanted)
    np.testing.assert_array_equal(found.run({"x": bits})["y"], wanted)


@pytest.mark.needs("torch")
def test_tensors_of_torch_are_taken_and_returned() -> None:
    import torch

    graph = Graph((X,), {"y": layers(1)})
    found, x = compiled(graph), drawn((4, 16), "float32")
    (y,) = found(torch.from_numpy(x).requires_grad_())
    assert isinstance(y, torch.Tensor)
    check({"y": y.numpy()}, evaluate(graph, {"x": x}))
