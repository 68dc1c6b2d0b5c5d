"""Modules as networks: their tasks, what is refused, and what they compute."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from autotune_mlir import bindings
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.networks import program as module_program
from autotune_mlir.networks.frontend import MLIRFrontend
from autotune_mlir.networks.function import ModuleFunction
from autotune_mlir.networks.program import ModuleProgram, load_network
from autotune_mlir.networks.units import compile_kernel, compile_unit
from mlir_modules import ADDED, FLAT, LAYERS, OTHERS, SOFTMAX, product, written
from tile_machine import has_tiles

from autotune.backends import NativeCallFailed
from autotune.errors import AutotuneError, InvalidValueError, UnsupportedWorkload
from autotune.networks import LoadOptions
from autotune.networks.loading import unique_tasks
from autotune.process import Message
from autotune.sketches.intrinsics.tile_registers import REFUSED
from autotune.targets import Target, detect_cpu


def expected(a: Any, b: Any, w: Any) -> tuple[Any, Any]:
    """What the module with everything in it computes."""
    products = a @ b
    powers = np.exp(products - products.max(axis=1, keepdims=True))
    added = np.maximum(powers / powers.sum(axis=1, keepdims=True) @ w + a, 0)
    return (2 * (added @ b)).reshape(-1), added


def test_each_function_is_a_task_and_equal_ones_are_one(mixed: ModuleProgram) -> None:
    calls = {task.name: task.occurrences for task in mixed.tasks}
    assert calls == {
        "first": 2,
        "normalized": 1,
        "added": 1,
        "again": 1,
        "flat": 1,
        "main": 1,
        "dynamic": 1,
        "buffers": 1,
    }
    tasks = {task.name: task for task in unique_tasks(mixed)}
    assert tasks["first"].names == ("first", "again") and tasks["first"].occurrences == 3
    assert tasks["first"].flop == 2 * 32 * 48 * 16
    assert tasks["added"].nodes == ("linalg.matmul", "linalg.generic")
    tunable = [name for name, task in tasks.items() if task.is_tunable]
    assert tunable == ["first", "normalized", "added"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("flat", r"operation tensor\.reshape is not supported at \S*model\.mlir:\d+:8"),
        ("main", "function @main calls @first beside what it computes itself; inline the call"),
        ("dynamic", r"argument 0 of function @dynamic has the dynamic shape tensor<\?x16xf32>"),
        ("buffers", "argument 0 of function @buffers is a buffer, memref<4xf32>: give the"),
    ],
)
def test_what_cannot_be_tuned_is_a_task_with_the_reason(
    name: str, reason: str, mixed: ModuleProgram
) -> None:
    (task,) = (task for task in mixed.tasks if task.name == name)
    with pytest.raises(UnsupportedWorkload, match=reason):
        MLIRBackend().import_program(task.program)


def test_everything_that_can_be_run_is(mixed: ModuleProgram, target: Target) -> None:
    assert [tensor.name for tensor in mixed.inputs] == ["arg0", "arg1", "arg2"]
    assert [tensor.shape for tensor in mixed.outputs] == [(1536,), (32, 16)]
    inputs = mixed.example_inputs()
    network = mixed.build({}, target, 1)
    wanted = expected(*inputs)
    for found in (network(*inputs), mixed.reference(inputs)):
        assert found is not None
        for want, got in zip(wanted, found, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    timed = network.profile(inputs)
    assert set(timed) == {"first", "again", "normalized", "added", "flat"}


def test_without_a_caller_each_function_is_run(
    read_here: None, tmp_path: Path, target: Target
) -> None:
    text = product("kernel") + product("main")
    network = load_network(written(tmp_path, text), None)
    assert [tensor.name for tensor in network.inputs] == [
        *("kernel.arg0", "kernel.arg1", "main.arg0", "main.arg1")
    ]
    (task,) = unique_tasks(network)
    assert task.occurrences == 2
    a, b, c, d = inputs = network.example_inputs()
    one, other = network.build({}, target, 1)(*inputs)
    np.testing.assert_allclose(one, a @ b, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(other, c @ d, rtol=1e-4, atol=1e-4)


def test_loops_around_calls_are_run(read_here: None, tmp_path: Path, target: Target) -> None:
    kind = "tensor<32x48xf32>"
    text = f"""{SOFTMAX}
    func.func @main(%a: {kind}) -> {kind} {{
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %three = arith.constant 3 : index
      %0 = scf.for %i = %zero to %three step %one iter_args(%x = %a) -> ({kind}) {{
        %y = func.call @normalized(%x) : ({kind}) -> {kind}
        scf.yield %y : {kind}
      }}
      return %0 : {kind}
    }}"""
    network = load_network(written(tmp_path, text), None)
    (inputs,) = given = network.example_inputs()
    kept = inputs.copy()
    (found,) = network.build({}, target, 1)(*given)
    wanted = inputs
    for _ in range(3):
        powers = np.exp(wanted - wanted.max(axis=1, keepdims=True))
        wanted = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    np.testing.assert_array_equal(inputs, kept)


def test_a_module_of_the_bindings_is_read_as_a_file_is(read_here: None) -> None:
    ir = bindings.load().ir
    with ir.Context():
        network = load_network(ir.Module.parse(LAYERS), None)
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
}


@pytest.mark.parametrize(("text", "kind", "message"), BAD.values(), ids=BAD.keys())
def test_bad_modules_are_one_line(
    text: str, kind: type[AutotuneError], message: str, read_here: None, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=message) as raised:
        load_network(written(tmp_path, text), None)
    assert "\n" not in str(raised.value)


def test_what_calls_something_without_a_body_is_not_run(read_here: None, tmp_path: Path) -> None:
    text = f"""{FLAT}{OTHERS}
    func.func @main(%a: tensor<32x48xf32>, %b: tensor<4xf32>) -> tensor<1536xf32> {{
      %0 = call @flat(%a) : (tensor<32x48xf32>) -> tensor<1536xf32>
      %1 = call @elsewhere(%b) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<1536xf32>
    }}"""
    network = load_network(written(tmp_path, text), None)
    assert [entry.name for entry in network.entries] == ["flat"]


def test_a_function_that_the_reader_does_not_survive_is_one_task_that_is_not_tuned(
    read_here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No text that kills every release of MLIR is known: the answers are scripted."""
    ask = module_program.ask_reader
    died = UnsupportedWorkload("the module cannot be read: the process that reads it: killed")

    def answer(question: Message) -> Message:
        if question["function"] == "added" or (question["facts"] and not question["function"]):
            raise died
        return ask(question)

    monkeypatch.setattr(module_program, "ask_reader", answer)
    network = load_network(written(tmp_path, SOFTMAX + ADDED), None)
    tasks = {task.name: task for task in unique_tasks(network)}
    assert tasks["normalized"].is_tunable and tasks["added"].refusal == str(died)
    assert [entry.name for entry in network.entries] == ["normalized"]


def test_an_object_that_is_no_module_is_refused() -> None:
    with pytest.raises(InvalidValueError) as caught:
        MLIRFrontend().load(3, None, LoadOptions(detect_cpu(), 1))
    assert str(caught.value) == (
        "an object of type 'int' is no module; what can be read is an .mlir file or a module of "
        "MLIR's Python bindings"
    )


def test_a_module_asks_for_tile_registers_that_one_of_its_functions_uses(
    mixed: ModuleProgram, target: Target
) -> None:
    """What calls a function ignores its status."""
    (task,) = (it for it in mixed.tasks if it.name == "first")
    assert isinstance(task.program, ModuleFunction)
    unit = compile_unit(task.program, mixed.text, None, target, 1)
    assert not compile_kernel(mixed.text, mixed.entries, {"first": unit}, 1).asks_for_tiles
    tiled = evolve(unit, generated=evolve(unit.generated, asks_for_tiles=True))
    kernel = compile_kernel(mixed.text, mixed.entries, {"first": tiled}, 1)
    inputs = mixed.example_inputs()
    if has_tiles():
        assert mixed.run(kernel, inputs)
    else:
        with pytest.raises(NativeCallFailed, match=re.escape(REFUSED)):
            mixed.run(kernel, inputs)
