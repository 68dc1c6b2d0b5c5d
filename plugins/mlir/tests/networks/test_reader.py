"""Modules as networks: their tasks, what is left out or refused, and what they compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from autotune_mlir import bindings
from autotune_mlir.networks import reader
from autotune_mlir.networks.frontend import MLIRFrontend
from mlir_modules import ADDED, FLAT, LAYERS, OTHERS, SOFTMAX, product, written
from module_networks import load

from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError, UnsupportedWorkload
from autotune.networks import GraphProgram, LoadOptions
from autotune.networks.running import check_network
from autotune.process import Message
from autotune.targets import Target, detect_cpu

SQUARE = "tensor<32x48xf32>"


def softmax(array: Any) -> Any:
    powers = np.exp(array - array.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def expected(a: Any, b: Any, w: Any) -> tuple[Any, Any]:
    """Compute the results of the module with everything in it."""
    added = np.maximum(softmax(a @ b) @ w + a, 0)
    return (2 * (added @ b)).reshape(-1), added


def computed(network: GraphProgram, target: Target, *inputs: Any) -> tuple[Any, ...]:
    """The outputs of the network, checked against those of MLIR's own passes."""
    built = network.build({}, target, 1)
    check_network(network, built)
    assert network.yardstick == "MLIR's own passes"
    return built(*inputs)


def test_functions_are_tasks_and_equal_ones_are_one(mixed: GraphProgram) -> None:
    tasks = {task.name: task for task in mixed.tasks}
    assert {name: it.occurrences for name, it in tasks.items()} == {
        "first": 3,
        "normalized": 1,
        "added": 1,
        "main_1": 1,
    }
    assert tasks["first"].nodes == ("first", "again")
    assert tasks["first"].flop == 2 * 32 * 48 * 16
    assert not mixed.passes


def test_what_cannot_be_read_is_left_out_with_the_reason(mixed: GraphProgram) -> None:
    assert mixed.fixed is not None
    dynamic, buffers = mixed.fixed.remarks
    assert "argument 0 of function @dynamic has the dynamic shape tensor<?x16xf32>" in dynamic
    assert "argument 0 of function @buffers is a buffer, memref<4xf32>: give the" in buffers


def test_everything_that_can_be_run_is(mixed: GraphProgram, target: Target) -> None:
    assert [tensor.name for tensor in mixed.inputs] == ["arg0", "arg1", "arg2"]
    assert [tensor.shape for tensor in mixed.outputs] == [(1536,), (32, 16)]
    inputs = mixed.example_inputs()
    network = mixed.build({}, target, 1)
    wanted = expected(*inputs)
    for found in (network(*inputs), mixed.reference(inputs)):
        for want, got in zip(wanted, found, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert mixed.yardstick == "MLIR's own passes"
    assert set(network.profile(inputs)) == {task.name for task in mixed.tasks}


def test_without_a_caller_each_function_is_run(
    read_here: None, tmp_path: Path, target: Target
) -> None:
    network = load(written(tmp_path, product("kernel") + product("main")))
    assert [tensor.name for tensor in network.inputs] == [
        *("kernel.arg0", "kernel.arg1", "main.arg0", "main.arg1")
    ]
    (task,) = network.tasks
    assert task.occurrences == 2
    a, b, c, d = inputs = network.example_inputs()
    one, other = computed(network, target, *inputs)
    np.testing.assert_allclose(one, a @ b, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(other, c @ d, rtol=1e-4, atol=1e-4)


def looped(body: str, trips: str = "3") -> str:
    """A module whose function runs a loop that may read ``%b``."""
    return f"""{SOFTMAX}
    func.func @main(%a: {SQUARE}, %b: {SQUARE}) -> {SQUARE} {{
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %high = arith.constant {trips} : index
      %0 = scf.for %i = %zero to %high step %one iter_args(%x = %a) -> ({SQUARE}) {{
        {body}
        scf.yield %y : {SQUARE}
      }}
      return %0 : {SQUARE}
    }}"""


def test_loops_around_calls_are_run(read_here: None, tmp_path: Path, target: Target) -> None:
    body = f"""
      %s = arith.addf %x, %b : {SQUARE}
      %y = func.call @normalized(%s) : ({SQUARE}) -> {SQUARE}"""
    network = load(written(tmp_path, looped(body)))
    assert [it.occurrences for it in network.tasks] == [3, 3]
    first, second = inputs = network.example_inputs()
    kept = first.copy()
    (found,) = computed(network, target, *inputs)
    wanted = first
    for _ in range(3):
        wanted = softmax(wanted + second)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    np.testing.assert_array_equal(first, kept)


def test_constants_are_those_of_the_graph(read_here: None, tmp_path: Path, target: Target) -> None:
    """In a function that computes, in what calls it, and read by a loop."""
    body = f"%y = arith.mulf %x, %w : {SQUARE}"
    row = ", ".join(f"{it}.0" for it in range(48))
    weights = ", ".join(f"[{row}]" for _ in range(32))
    place = f"%zero = arith.constant 0 : index\n%w = arith.constant dense<[{weights}]> : {SQUARE}"
    text = looped(body, "2").replace("%zero = arith.constant 0 : index", place)
    text = text.replace(SOFTMAX, "")
    network = load(written(tmp_path, text))
    first, second = network.example_inputs()
    (found,) = computed(network, target, first, second)
    np.testing.assert_allclose(found, first * np.arange(48, dtype=np.float32) ** 2, rtol=1e-5)
    assert network.weight_bytes == 4 * 32 * 48


def test_fills_that_are_handed_to_functions(
    read_here: None, tmp_path: Path, target: Target
) -> None:
    text = f"""{SOFTMAX}
    func.func @main(%a: {SQUARE}) -> ({SQUARE}, {SQUARE}) {{
      %two = arith.constant 2.0 : f32
      %empty = tensor.empty() : {SQUARE}
      %full = linalg.fill ins(%two : f32) outs(%empty : {SQUARE}) -> {SQUARE}
      %0 = call @normalized(%full) : ({SQUARE}) -> {SQUARE}
      %1 = arith.addf %a, %full : {SQUARE}
      return %0, %1 : {SQUARE}, {SQUARE}
    }}"""
    network = load(written(tmp_path, text))
    (given,) = network.example_inputs()
    one, other = computed(network, target, given)
    np.testing.assert_allclose(one, np.full_like(one, 1 / 48), rtol=1e-5)
    np.testing.assert_allclose(other, given + 2)


def test_bytes_are_those_that_programs_take_them_for(
    read_here: None, tmp_path: Path, target: Target
) -> None:
    """A function widens bytes without a sign; the next one gets what it returned."""
    kind, wide = "tensor<8x16xi8>", "tensor<8x16xi32>"
    both = "affine_map<(d0, d1) -> (d0, d1)>"
    text = f"""
    func.func private @widened(%a: {kind}) -> {wide} {{
      %empty = tensor.empty() : {wide}
      %0 = linalg.generic {{indexing_maps = [{both}, {both}],
        iterator_types = ["parallel", "parallel"]}} ins(%a : {kind}) outs(%empty : {wide}) {{
      ^bb0(%x: i8, %y: i32):
        %z = arith.extui %x : i8 to i32
        linalg.yield %z : i32
      }} -> {wide}
      return %0 : {wide}
    }}
    func.func @main(%a: {kind}) -> {wide} {{
      %0 = arith.addi %a, %a : {kind}
      %1 = call @widened(%0) : ({kind}) -> {wide}
      return %1 : {wide}
    }}"""
    network = load(written(tmp_path, text))
    given = np.arange(-64, 64, dtype=np.int8).reshape(8, 16)
    (found,) = computed(network, target, given)
    np.testing.assert_array_equal(found, (given + given).view(np.uint8))


def test_a_module_of_the_bindings_is_read_as_a_file_is(read_here: None) -> None:
    ir = bindings.load().ir
    with ir.Context():
        network = load(ir.Module.parse(LAYERS))
    assert network.name == "module"
    assert [task.name for task in network.tasks] == ["product", "normalized"]


BAD = {
    "cut off": (LAYERS[: len(LAYERS) // 2], InvalidValueError, r"model\.mlir:\d+:\d+: .*whole"),
    "empty": ("", InvalidValueError, r"model\.mlir has no function with a body"),
    "declared": (
        "func.func private @f(tensor<4xf32>)",
        InvalidValueError,
        r"model\.mlir has no function with a body",
    ),
    "not run": (
        OTHERS,
        UnsupportedWorkload,
        r"no function that can be run: argument 0 of function @dynamic has the dynamic shape "
        r".*; shapes must be known \(and 1 more functions\)",
    ),
    "recursion": (
        "func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
        "%0 = call @f(%a) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>\n}",
        InvalidValueError,
        "function @f calls itself",
    ),
    "circle": (
        "func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
        "%0 = call @g(%a) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>\n}\n"
        "func.func @g(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
        "%0 = call @f(%a) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>\n}",
        InvalidValueError,
        "function @f calls itself, at once or through others",
    ),
}


@pytest.mark.parametrize(("text", "kind", "message"), BAD.values(), ids=BAD.keys())
def test_bad_modules_are_one_line(
    text: str, kind: type[AutotuneError], message: str, read_here: None, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=message) as raised:
        load(written(tmp_path, text))
    assert "\n" not in str(raised.value)


TIMES = f"""
      %c = arith.constant dense<2.0> : {SQUARE}
      %y = arith.mulf %x, %c : {SQUARE}"""
INDEXED = f"""
      %n = tensor.extract %b[%i, %i] : {SQUARE}
      %y = linalg.fill ins(%n : f32) outs(%x : {SQUARE}) -> {SQUARE}"""
LEFT_OUT = {
    "no body": (
        f"%y = func.call @elsewhere(%x) : ({SQUARE}) -> {SQUARE}",
        "3 : index",
        "function @main calls @elsewhere: function @elsewhere has no body",
    ),
    "index": (INDEXED, "3 : index", "uses its index; a loop of a network runs the same"),
    "no result": (
        f"%m = memref.alloc() : memref<f32>\n%n = arith.constant 1.0 : f32\n"
        f"memref.store %n, %m[] : memref<f32>{TIMES}",
        "3 : index",
        "operation memref.store at ",
    ),
    "bounds": (TIMES, "", "has bounds that are known only when it runs"),
    "no trips": (TIMES, "0 : index", "runs no iteration"),
}


@pytest.mark.parametrize(("body", "high", "message"), LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_what_has_no_form_in_a_graph_is_left_out(
    body: str, high: str, message: str, read_here: None, tmp_path: Path
) -> None:
    text = looped(body).replace("3 : index", high) + product("other")
    if not high:
        text = text.replace("%high = arith.constant", "%high = arith.addi %one, %one : index")
    network = load(written(tmp_path, f"{text}func.func private @elsewhere({SQUARE}) -> {SQUARE}"))
    assert network.fixed is not None
    assert {it.name for it in network.tasks} == {"normalized", "other"}
    (remark,) = network.fixed.remarks
    assert message in remark and remark.endswith(": it is left out") and "\n" not in remark


def test_a_function_that_the_reader_does_not_survive_is_left_out(
    read_here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No text that kills every release of MLIR is known: the answers are scripted."""
    ask = reader.ask_reader
    died = UnsupportedWorkload("the module cannot be read: the process that reads it: killed")

    def answer(question: Message) -> Message:
        if question["function"] == "added" or (question["facts"] and not question["function"]):
            raise died
        return ask(question)

    monkeypatch.setattr(reader, "ask_reader", answer)
    network = load(written(tmp_path, SOFTMAX + ADDED))
    assert [task.name for task in network.tasks] == ["normalized"]
    assert network.fixed is not None and str(died) in network.fixed.remarks[0]


def test_other_shapes_are_no_tasks(read_here: None, tmp_path: Path, target: Target) -> None:
    network = load(written(tmp_path, FLAT))
    (given,) = network.example_inputs()
    (found,) = computed(network, target, given)
    np.testing.assert_array_equal(found, given.reshape(-1))
    assert not network.tasks


def test_an_object_that_is_no_module_is_refused() -> None:
    with pytest.raises(InvalidValueError) as caught:
        MLIRFrontend().load(3, None, LoadOptions(detect_cpu(), 1))
    assert str(caught.value) == (
        "an object of type 'int' is no module; what can be read is an .mlir file or a module of "
        "MLIR's Python bindings"
    )


def test_there_are_no_passes(tmp_path: Path) -> None:
    options = LoadOptions(detect_cpu(), 1, {"fuse": None})
    with pytest.raises(UnknownNameError, match="A module is tuned as it is"):
        MLIRFrontend().load(written(tmp_path, LAYERS), None, options)
