"""Networks that write inputs, or what they hold between calls, here and as libraries."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.networks import NetworkTensor
from autotune.networks.fixed_inputs import FixedInputs
from autotune.networks.frontend import CompiledNetwork, LoadOptions
from autotune.networks.graph import Graph, binary, constant, input_value, reshape, take
from autotune.networks.graph_program import GraphProgram, GraphSource
from autotune.networks.library.loaded import load_network
from autotune.networks.library.saving import save_library
from autotune.networks.running import WrongOutputs, build_network, check_network, compare_outputs
from autotune.targets import Target, detect_cpu, resolve

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)


def program() -> GraphProgram:
    """Sums up ``x``, counts calls, doubles ``y``, and returns a row of four by the count."""
    x, y = input_value("x", (3,), "float32"), input_value("y", (2,), "float32")
    total, count = input_value("total", (3,), "float32"), input_value("count", (), "int64")
    new = binary("add", total, x)
    outputs = {
        "total (written)": new,
        "y (written)": binary("mul", y, 2.0),
        "count (written)": binary("add", count, 1),
        "row": reshape(take(constant(TABLE), reshape(count, (1,)), 0), (3,)),
        "total": new,
    }
    source = GraphSource(
        "sums",
        Graph((x, y, total, count), outputs),
        FixedInputs({"x": (3,), "y": (2,)}, None),
        writes=("total", "y", "count"),
        state={"total": np.ones(3, np.float32), "count": np.array(1)},
    )
    return GraphProgram(source, LoadOptions(detect_cpu(), 1))


@pytest.fixture
def network() -> CompiledNetwork:
    return build_network(program(), {}, detect_cpu(), 1)


X = np.array([1, 2, 3], np.float32)


def check_calls(network: Any) -> None:
    """Two calls, one that is refused, and another beginning."""
    for number in (1, 2, 3):
        row, total = network(X, np.ones(2, np.float32))[-2:]
        np.testing.assert_array_equal(row, TABLE[number])
        np.testing.assert_array_equal(total, 1 + number * X)
        total[...] = 0  # it is the caller's
    assert network.state["count"] == 4
    with pytest.raises(InvalidValueError, match="index 4 is not from -4 to 3"):
        network(X, np.ones(2, np.float32))
    assert network.state["count"] == 4
    np.testing.assert_array_equal(network.state["total"], 1 + 3 * X)
    network.state["total"][...] = 0  # a copy
    network.reset()
    assert network.state["count"] == 1
    np.testing.assert_array_equal(network(X, np.ones(2, np.float32))[-1], 1 + X)


def test_a_call_reads_what_the_last_one_kept(network: CompiledNetwork) -> None:
    check_calls(network)


def test_inputs_are_written_and_the_state_is_none_of_them(network: CompiledNetwork) -> None:
    y = np.array([1, 3], np.float32)
    assert len(network(X, y)) == 2
    np.testing.assert_array_equal(y, [2, 6])
    with pytest.raises(InvalidValueError, match="'y' is of type list, and the network writes it"):
        network(X, [1.0, 3.0])


def test_the_state_is_compared_and_is_as_it_was_afterwards(network: CompiledNetwork) -> None:
    made = program()
    assert [it.name for it in made.inputs] == ["x", "y"]
    network(X, np.ones(2, np.float32))
    names = [it.output for it in check_network(made, network)]
    assert names == ["total (written)", "y (written)", "count (written)", "row", "total"]
    assert network.state["count"] == 1
    other = program()
    other.state = {**other.state, "count": np.array(2)}
    with pytest.raises(WrongOutputs, match=r"output 'count \(written\)'"):
        check_network(other, network)


def test_timing_keeps_inputs_and_state(network: CompiledNetwork) -> None:
    y = np.ones(2, np.float32)
    assert len(network.time_calls((X, y), 7)) == 7
    assert network.profile((X, y))
    assert network.state["count"] == 1 and np.all(y == 1)


def count_at_once(network: Any, calls: int) -> None:
    threads = [
        threading.Thread(target=network, args=(X * 0, np.ones(2, np.float32)))
        for _ in range(calls)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_calls_at_once_and_a_forked_child_have_one_state_each(network: CompiledNetwork) -> None:
    count_at_once(network, 2)
    assert network.state["count"] == 3
    child = os.fork()
    if not child:
        network(X, np.ones(2, np.float32))
        os._exit(int(network.state["count"]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    assert network.state["count"] == 3


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("beside", [False, True])
def test_a_library_keeps_it_too(tmp_path: Path, beside: bool, monkeypatch: Any) -> None:
    if beside:
        outside = partial(save_library, most_embedded=0)
        monkeypatch.setattr("autotune.networks.graph_program.save_library", outside)
    path = tmp_path / "net.so"
    lines = build_network(program(), {}, detect_cpu(), 1).save(path)
    assert "the new values of 'y', which the model writes, are its first outputs" in lines[-1]
    assert path.with_suffix(".weights").exists() == beside
    network = load_network(path)
    assert [it.name for it in network.inputs] == ["x", "y"]
    assert [it.name for it in network.outputs] == ["y (written)", "row", "total"]
    assert network.state["count"] == 1
    check_calls(network)
    network.reset()
    count_at_once(network, 2)
    assert network.state["count"] == 3
    assert "state:" in path.with_suffix(".h").read_text()
    with pytest.raises(
        InvalidValueError, match="keeps 'total', 'count' between calls, and custom"
    ):
        network.as_torch_operator("autotune_tests::stateful")


class Elsewhere(CompiledNetwork):
    """A network that saves no state, as networks for devices."""

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        raise NotImplementedError

    def save(self, path: Path | str) -> tuple[str, ...]:
        return ()

    time_calls = profile = __call__  # type: ignore[assignment]


class Made:
    name, inputs, outputs = "sums", program().inputs, program().outputs
    writes, state = program().writes, program().state

    def build(self, *given: Any) -> CompiledNetwork:
        return Elsewhere()


def test_what_saves_no_state_says_so() -> None:
    made: Any = Made()
    lines = build_network(made, {}, evolve(detect_cpu()), 1).save("net.tar")
    assert lines == (
        "net.tar: its last inputs are 'total', 'count', which the model holds",
        "net.tar: the new values of 'total', 'y', 'count', which the model writes, are its first "
        "outputs",
    )


WANTED = np.linspace(-1, 1, 101, dtype=np.float32)


def compared(
    found: object, wanted: object = WANTED, dtype: str = "float32", target: Target | None = None
) -> tuple[bool, str]:
    tensor = NetworkTensor("logits", np.shape(wanted), dtype)  # type: ignore[arg-type]
    (difference,) = compare_outputs([tensor], [wanted], [found], target)
    return difference.ok, str(difference)


def test_rounding_is_right_and_another_number_is_not() -> None:
    assert compared(WANTED * np.float32(1 + 1e-5))[0]
    wrong = WANTED.copy()
    wrong[7] += np.float32(0.01)
    right, text = compared(wrong)
    assert not right and "'logits': error 0.01," in text and "1 elements" in text


@pytest.mark.parametrize(("dtype", "right"), [("float64", False), ("float32", True)])
def test_the_bound_is_of_the_type(dtype: str, right: bool) -> None:
    wanted = WANTED.astype(dtype)
    assert compared((wanted * (1 + 1e-5)).astype(dtype), wanted, dtype)[0] == right


def test_floats_are_held_to_tf32_where_the_target_allows_it() -> None:
    rounded = WANTED * np.float32(1 + 2.0**-8)
    assert not compared(rounded)[0] and not compared(rounded, target=resolve("h100"))[0]
    assert compared(rounded, target=resolve("h100-tf32"))[0]
    assert not compared(WANTED * np.float32(1.2), target=resolve("h100-tf32"))[0]
    precise = WANTED.astype(np.float64)
    assert not compared(precise * (1 + 2.0**-8), precise, "float64", resolve("h100-tf32"))[0]


@given(st.lists(st.tuples(st.integers(-3, 3), st.floats(-12, 3)), min_size=1, max_size=8))
@example([(0, -1.0), (0, 0.0)])
def test_what_is_reported_is_the_element_that_is_worst_beside_its_bound(
    drawn: list[tuple[int, float]],
) -> None:
    """Expect it as much where all are right as where a single element is wrong."""
    wanted = np.array([float(value) for value, _ in drawn])
    found = wanted + 10.0 ** np.array([exponent for _, exponent in drawn])
    scale = np.sqrt(np.mean(wanted * wanted))
    bounds = 2 * np.sqrt(2.0**-52) * (np.abs(wanted) + scale)
    shares = np.abs(found - wanted) / np.maximum(bounds, 1e-300)
    tensor = NetworkTensor("logits", wanted.shape, "float64")
    (difference,) = compare_outputs([tensor], [wanted], [found])
    assert difference.ok == bool((shares <= 1).all())
    reported = difference.error / max(difference.allowed, 1e-300)
    assert reported == pytest.approx(shares.max())


def test_integers_are_exact() -> None:
    wanted = np.arange(5)
    assert compared(wanted.copy(), wanted, "int64")[0]
    assert not compared(wanted + (wanted == 3), wanted, "int64")[0]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_right_where_the_model_has_the_same(value: float) -> None:
    spoilt = WANTED.copy()
    spoilt[3] = value
    assert not compared(spoilt)[0] and not compared(WANTED, spoilt)[0]
    assert compared(spoilt, spoilt)[0]


def test_other_shapes_types_and_counts_are_named() -> None:
    assert "is float32[2], and the model's float32[101]" in compared(WANTED[:2])[1]
    assert "is float64[101]" in compared(WANTED.astype(np.float64))[1]
    tensor = NetworkTensor("logits", (101,), "float32")
    (difference,) = compare_outputs([tensor], [WANTED, WANTED], [WANTED])
    assert not difference.ok and "one of 2 of the model" in str(difference)


def test_integers_that_no_task_has_are_exact() -> None:
    wanted = np.arange(4, dtype=np.int16)
    assert compared(wanted, wanted, "int16")[0]
    assert not compared(wanted + np.int16(1), wanted, "int16")[0]
