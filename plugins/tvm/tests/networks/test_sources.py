"""Relax modules, their JSON and their TVMScript; and what is refused, in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from autotune_tvm.networks.frontend import RelaxFrontend
from autotune_tvm.networks.relax_module import check_script, read_source
from relax_networks import network, op, run, small_network, weights
from tvm import relax
from tvm.ir import save_json
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.networks import AskedInputs, LoadOptions
from autotune.networks.graph import evaluate
from autotune.targets import Target

SCRIPT = """# from tvm.script import ir as I
# from tvm.script import relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), dtype="float32")) -> R.Tensor((2, 3), dtype="float32"):
        with R.dataflow():
            lv: R.Tensor((2, 3), dtype="float32") = R.nn.relu(x)
            gv: R.Tensor((2, 3), dtype="float32") = R.add(lv, R.const(1.0, "float32"))
            R.output(gv)
        return gv
"""


def test_a_file_of_json_is_the_module_with_its_weights(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_text(str(save_json(small_network())))
    source = read_source(path, None)
    x = weights(1, 3, 12, 12)
    assert source.name == "small"
    assert source.yardstick is not None and source.yardstick.name == "TVM without schedules"
    wanted = run(small_network(), x)[0]
    np.testing.assert_array_equal((source.yardstick.run([x]) or [None])[0], wanted)
    (found,) = evaluate(source.graph, {"x0": x}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_file_of_script_is_the_module(tmp_path: Path) -> None:
    path = tmp_path / "tiny.py"
    path.write_text(SCRIPT)
    source = read_source(path, None)
    x = weights(2, 3)
    (found,) = evaluate(source.graph, {"x": x}).values()
    np.testing.assert_array_equal(found, np.maximum(x, 0) + 1)


def test_compiled_functions_in_script_are_read(tmp_path: Path, target: Target) -> None:
    """Modules that TVM prints after it legalised them."""

    def body(emit: Any, x: Any) -> Any:
        return emit(op.nn.relu(emit(op.add(x, x))))

    module = relax.transform.LegalizeOps()(network([((2, 3), "float32")], body))
    path = tmp_path / "legal.py"
    path.write_text(module.script())
    program = RelaxFrontend().load(path, None, LoadOptions(target, 1))
    x = weights(2, 3)
    (found,) = program.build({}, target, 1)(x)
    np.testing.assert_array_equal(found, np.maximum(x + x, 0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import os\n" + SCRIPT, "line 1: only imports"),
        (SCRIPT + "\nprint('read')\n", "only imports"),
        (SCRIPT.replace("R.nn.relu(x)", "__import__('os')"), "'__import__' is not defined"),
        (SCRIPT.replace("R.nn.relu(x)", "open('f')"), "'open' is not defined"),
        (SCRIPT.replace("R.nn.relu(x)", "x.__class__"), "has no place"),
        (SCRIPT.replace("R.nn.relu(x)", "R.parser.entry.os"), "has no place"),
        (SCRIPT.replace("R.nn.relu(x)", "R.builder"), "has no place"),
        (SCRIPT.replace("R.nn.relu(x)", "T.meta_var(x)"), "has no place"),
        (SCRIPT.replace("R.nn.relu(x)", "(lambda: x)()"), "Lambda has no place"),
        (SCRIPT.replace("R.nn.relu(x)", "[i for i in x]"), "ListComp has no place"),
        (SCRIPT.replace("lv: ", "range: "), "'range' cannot be defined"),
        (SCRIPT.replace("@I.ir_module", "@I.other"), "not decorated"),
        (SCRIPT.replace("@I.ir_module\n", ""), "not decorated"),
        ("x = 1\n", "0 classes"),
    ],
)
def test_a_script_that_says_anything_else_is_refused(text: str, message: str) -> None:
    modules = {"I": I, "R": R, "T": T}
    check_script(SCRIPT, modules)
    with pytest.raises(InvalidValueError, match=message):
        check_script(text, modules)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{}", "no Relax module in JSON"),
        ("a.json", '{"root_index": 0, "nodes": [', "no Relax module in JSON"),
        ("a.json", str(save_json(weights(2).tolist())), "not a Relax module"),
        ("a.py", "class A(:", "no literal TVMScript module"),
        ("a.py", SCRIPT.replace("R.nn.relu", "R.nn.no_such"), "TVM cannot parse it"),
        ("a.py", SCRIPT.replace("def main", "def other"), "this one has the functions other"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InvalidValueError, match=message) as caught:
        read_source(path, None)
    assert "\n" not in str(caught.value)


def test_what_is_no_module_is_named(target: Target) -> None:
    with pytest.raises(InvalidValueError, match="type 'dict' is no Relax module"):
        RelaxFrontend().load({}, (), LoadOptions(target, 1))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="no file .*none.json"):
        read_source(tmp_path / "none.json", None)


def open_network() -> Any:
    """Two axes without a length, and a factor."""
    from tvm import tirx

    builder = relax.BlockBuilder()
    shape = (tirx.Var("batch", "int64"), tirx.Var("width", "int64"), 4)
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    factor = relax.Var("factor", relax.TensorType((), "float32"))
    with builder.function("main", [x, factor]):
        with builder.dataflow():
            output = builder.emit_output(op.multiply(op.nn.relu(x), factor))
        builder.emit_func_output(output)
    return builder.finalize()


def test_open_axes_are_given_lengths(target: Target) -> None:
    options = LoadOptions(target, 1)
    with pytest.raises(UnsupportedWorkload, match="input 'x' of network .*give --dim width=N"):
        RelaxFrontend().load(open_network(), None, options)
    asked = AskedInputs(dims={"width": 3}, inputs={"factor": 2.5})
    program = RelaxFrontend().load(open_network(), None, evolve(options, asked=asked))
    assert [(it.name, it.shape) for it in program.inputs] == [("x", (1, 3, 4))]
    x = weights(1, 3, 4)
    (found,) = program.build({}, target, 1)(x)
    np.testing.assert_array_equal(found, np.maximum(x, 0) * np.float32(2.5))


def test_an_input_without_elements_is_refused_by_name(target: Target) -> None:
    empty = network([((0, 8), "float32")], lambda emit, x: emit(op.nn.relu(x)))
    with pytest.raises(UnsupportedWorkload, match=r"input .* has the shape \(0, 8\), which"):
        RelaxFrontend().load(empty, None, LoadOptions(target, 1))


def test_example_inputs_are_those_of_the_network() -> None:
    with pytest.raises(InvalidValueError, match="'x0' is float64"):
        read_source(small_network(), [np.zeros((1, 3, 12, 12))])
    with pytest.raises(InvalidValueError, match="0 example inputs; network takes x0"):
        read_source(small_network(), [])
