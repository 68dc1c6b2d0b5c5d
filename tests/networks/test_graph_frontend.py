"""Models of ONNX through the core's own frontend, from a file to a network that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from attrs import evolve
from onnx import helper
from onnx_models import graph_of, model_of

import autotune
from autotune.backends import InvalidSchedule
from autotune.errors import AutotuneError, InvalidValueError, UnsupportedTarget
from autotune.networks import AskedInputs, Frontend, LoadOptions
from autotune.networks.frontend import NetworkProgram
from autotune.networks.graph_frontend import GraphFrontend
from autotune.networks.graph_program import EDGES, draft_candidate
from autotune.networks.running import WrongOutputs, check_network
from autotune.networks.source import Source as Given
from autotune.networks.source import find_frontend
from autotune.sketches import UNTUNED, Candidate, baseline_candidate
from autotune.store.best_record import best_of_backends
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.store.sqlite import open_database
from autotune.targets import Target, detect_cpu
from autotune.testing.frontend_suite import FrontendSuite, Source

node = helper.make_node
RNG = np.random.default_rng(0)


def _weights(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def small_model() -> Any:
    """A convolution, and two products that are equal."""
    nodes = [
        node("Conv", ["x", "filters"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("Reshape", ["r", "rows"], ["m"]),
        node("MatMul", ["m", "w0"], ["h"]),
        node("MatMul", ["h", "w1"], ["y"]),
    ]
    constants = {
        "filters": _weights(8, 3, 3, 3),
        "rows": np.array([8, 64]),
        "w0": _weights(64, 64),
        "w1": _weights(64, 64),
    }
    shapes = {"x": ("float32", (1, 3, 8, 8))}
    return model_of(nodes, shapes, {"y": ("float32", (8, 64))}, constants)


class TestGraph(FrontendSuite):
    @pytest.fixture
    def frontend(self) -> Frontend:
        return GraphFrontend()

    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        path = tmp_path / "small.onnx"
        onnx.save(small_model(), path)
        return path, None

    @pytest.mark.needs("gcc")
    def test_it_is_saved(self, program: NetworkProgram, target: Target, tmp_path: Path) -> None:
        super().test_it_is_saved(program, target, tmp_path)
        network, inputs = autotune.load_network(tmp_path / "network.so"), program.example_inputs()
        assert (network.inputs, network.outputs) == (program.inputs, program.outputs)
        np.testing.assert_array_equal(network(*inputs), program.build({}, target, 1)(*inputs))
        with pytest.raises(InvalidValueError, match=r"ends in \.so, and 'network\.o' does not"):
            program.check_saving(Path("network.o"), target)


def _loaded(model: Any, **asked: Any) -> NetworkProgram:
    as_read = {"layouts": None}
    options = LoadOptions(detect_cpu(), 1, as_read, asked=AskedInputs(inputs=asked))
    return GraphFrontend().load(model, None, options)


def _task(program: NetworkProgram, name: str) -> Any:
    return next(it for it in program.tasks if it.name == name)


def test_equal_workloads_are_one_task_and_steps_of_loops_count_each_time() -> None:
    tasks = {it.name: it.occurrences for it in _loaded(small_model()).tasks}
    assert tasks["matmul"] == 2
    body = graph_of(
        [
            node("MatMul", ["s", "w"], ["p"]),
            node("Tanh", ["p"], ["s_next"]),
            node("Identity", ["go"], ["go_on"]),
        ],
        {"i": ("int64", ()), "go": ("bool", ()), "s": ("float32", (4, 4))},
        {"go_on": ("bool", ()), "s_next": ("float32", (4, 4))},
    )
    loop = model_of(
        [node("Loop", ["trips", "yes", "x"], ["y"], body=body)],
        {"x": ("float32", (4, 4))},
        {"y": ("float32", (4, 4))},
        {"w": _weights(4, 4), "trips": np.int64(7), "yes": np.bool_(True)},
    )
    assert [it.occurrences for it in _loaded(loop).tasks] == [7]


def _record(candidate: Candidate, backend: str, baseline: str = "") -> Record:
    machine = detect_cpu()
    key = MeasureKey(machine.fingerprint, backend, "1", "1", 1, "warm-3")
    outcome = Outcome("ok", 1e-3, (1e-3,))
    return Record(
        "run", 0, candidate, key, machine.to_json(), "trace-1", outcome, 0.0, baseline=baseline
    )


def test_a_schedule_that_only_another_compiler_can_apply_is_refused_by_its_task() -> None:
    program: Any = _loaded(small_model())
    task = _task(program, "matmul")
    name = "TVM's default schedule"
    record = _record(baseline_candidate(task.program, name), "tvm", name)
    with pytest.raises(InvalidSchedule, match="task 'matmul': record run/.* only backend 'tvm'"):
        program.build({task.name: record}, detect_cpu(), 1)


def test_a_network_is_built_of_the_best_record_that_it_can_be_built_of(tmp_path: Path) -> None:
    """A record that only another compiler can apply may be the fastest one of a task."""
    program: Any = _loaded(small_model())
    task, machine = _task(program, "matmul"), detect_cpu()
    name = "TVM's default schedule"
    opaque = _record(baseline_candidate(task.program, name), "tvm")
    slower = evolve(
        _record(draft_candidate(task.program, machine), "native"),
        trial=1,
        outcome=Outcome("ok", 2e-3, (2e-3,)),
    )
    assert "only backend 'tvm'" in program.refuses(opaque, machine)
    assert not program.refuses(slower, machine)
    path = tmp_path / "records.db"
    with open_database(path) as database:
        database.append_missing(
            [evolve(it, key=evolve(it.key, threads=machine.cores)) for it in (opaque, slower)]
        )
    with open_database(path, read_only=True) as database:
        found = [
            best_of_backends(database, task.program.digest, machine, ("native", "tvm"), accepts)
            for accepts in (bool, lambda it: not program.refuses(it, machine))
        ]
    assert [it.candidate for it in found if it] == [opaque.candidate, slower.candidate]


def test_a_record_of_another_workload_is_refused_by_its_task() -> None:
    program: Any = _loaded(small_model())
    first, last = _task(program, "conv2d_3x3_relu"), _task(program, "matmul")
    record = _record(baseline_candidate(first.program, UNTUNED), "native", UNTUNED)
    with pytest.raises(InvalidSchedule, match=f"task {last.name!r}: .* 'convolution"):
        program.build({last.name: record}, detect_cpu(), 1)


def test_examples_have_no_zero_among_integers_that_others_are_divided_by() -> None:
    shape = ("int64", (64,))
    model = model_of([node("Div", ["x", "z"], ["y"])], {"x": shape, "z": shape}, {"y": shape})
    program = _loaded(model)
    assert np.all(program.example_inputs()[1]) and not np.all(program.example_inputs()[0])
    check_network(program, program.build({}, detect_cpu(), 1))


def test_an_input_is_baked_in_and_what_it_is_compared_with_is_given_it() -> None:
    shape = ("float32", (4, 4))
    model = model_of(
        [node("Mul", ["x", "rate"], ["y"])], {"x": shape, "rate": ("float32", ())}, {"y": shape}
    )
    program = _loaded(model, rate=3.0)
    assert [it.name for it in program.inputs] == ["x"]
    compiled = program.build({}, detect_cpu(), 1)
    assert check_network(program, compiled)[0].ok
    x = np.ones((4, 4), np.float32)
    assert np.all(compiled(x)[0] == 3) and "onnxruntime" in program.yardstick


def test_where_the_runtime_lacks_a_type_the_graph_that_was_read_is_the_yardstick() -> None:
    resize = node("Resize", ["x", "", "s"], ["y"], mode="linear")
    shapes = {"x": ("float64", (1, 2, 4, 4))}, {"y": ("float64", (1, 2, 8, 8))}
    model = model_of([resize], *shapes, {"s": np.array([1, 1, 2, 2], np.float32)})
    program = _loaded(model)
    assert check_network(program, program.build({}, detect_cpu(), 1))[0].ok
    assert "in numpy, as onnxruntime" in program.yardstick


def test_products_of_bytes_are_compared_with_exact_ones() -> None:
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])]
    nodes += [node("MatMulInteger", ["q", "w", "z"], ["y"])]
    shapes = {"x": ("float32", (4, 64))}, {"y": ("int32", (4, 8))}
    weights = RNG.choice(np.array([-128, 127], np.int8), (64, 8))
    program = _loaded(model_of(nodes, *shapes, {"w": weights}))
    assert check_network(program, program.build({}, detect_cpu(), 1))[0].ok
    assert "with exact products of bytes" in program.yardstick


def test_a_pass_is_not_blamed_for_what_another_reader_makes_of_a_model() -> None:
    model = small_model()
    program: Any = _loaded(model)
    compiled = program.build({}, detect_cpu(), 1)
    own = program._source.yardstick
    program.reference = lambda inputs: tuple(it + 5 for it in own.run(list(inputs)))
    with pytest.raises(WrongOutputs, match="no pass is at fault, but one of the two readers"):
        check_network(program, compiled)

    class Broken:
        def __call__(self, *inputs: Any) -> Any:
            return tuple(it + 5 for it in compiled(*inputs))

    program, broken = _loaded(model), Broken()
    with pytest.raises(WrongOutputs, match="with onnxruntime .*leave graph passes out"):
        check_network(program, broken)


def test_bounds_are_those_of_the_fewest_digits_inside() -> None:
    shape = ("float32", (4, 4))
    nodes = [
        node("Cast", ["x"], ["h"], to=onnx.TensorProto.BFLOAT16),
        node("Cast", ["h"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    halves = model_of(nodes, {"x": shape}, {"y": shape})
    assert _loaded(halves).eps == 2**-7 and _loaded(small_model()).eps == 2**-23
    quantised = model_of(
        [node("QuantizeLinear", ["x", "s"], ["q"]), node("DequantizeLinear", ["q", "s"], ["y"])],
        {"x": shape},
        {"y": shape},
        {"s": np.float32(0.1)},
    )
    assert _loaded(quantised).eps == 2**-7


def test_models_that_are_objects_are_read_and_other_targets_are_left_to_others() -> None:
    source = Given(small_model(), None, "module:function")
    assert find_frontend(source, None, detect_cpu()).name == "graph"
    with pytest.raises(UnsupportedTarget, match="frontend 'graph', which makes no networks for"):
        find_frontend(source, "graph", Target(kind="cpu", name="arm", processor="apple-m1"))


def test_a_network_for_another_architecture_is_built_and_not_tuned(tmp_path: Path) -> None:
    given = {"target": "aarch64-linux-gnu:cortex-a76", "threads": 1}
    database = str(tmp_path / "r.db")
    with pytest.raises(AutotuneError, match="backend .native. compiles for x86-64 only"):
        autotune.tune_model(small_model(), trials=1, database=database, **given)
    autotune.tune_model(small_model(), trials=1, database=database, threads=1)
    network = autotune.build_model(small_model(), database=database, check=False, **given)
    assert "cortex-a76 runs on aarch64" in network.lacks
    with pytest.raises(UnsupportedTarget, match="runs on aarch64, which this is not"):
        network(np.zeros((1, 3, 8, 8), np.float32))
    with pytest.raises(UnsupportedTarget, match="for aarch64-unknown-linux-gnu, and not for"):
        autotune.build_model(small_model(), target="aarch64-linux-musl", database=database)


@pytest.mark.parametrize(("kind", "takes"), [("Relu", True), ("Log", False)])
def test_it_is_checked_with_small_and_large_numbers_where_it_takes_them(
    kind: str, takes: bool
) -> None:
    """The logarithm of half of them is no number, whatever computes it."""
    shape = ("float32", (40, 40))
    program = _loaded(model_of([node(kind, ["x"], ["y"])], {"x": shape}, {"y": shape}))
    (given,) = program.check_inputs()
    assert np.isin(np.array(EDGES, np.float32), given).all() == takes
    assert program.check_inputs()[0] is given  # and what it is compared with is known
    assert check_network(program, program.build({}, detect_cpu(), 1))[0].ok
    assert not np.isin(16.0, program.example_inputs()[0])
