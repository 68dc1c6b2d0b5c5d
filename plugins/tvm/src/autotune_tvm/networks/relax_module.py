"""Networks that are Relax modules already: objects, JSON, and TVMScript.

TVM's parser reads the text of a class, and evaluates the expressions in it as Python. A file of
TVMScript is therefore looked through first: what is accepted names TVM's own script functions and
the file's own variables, and nothing else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from attrs import evolve
from numpy.typing import NDArray
from tvm import cpu, relax
from tvm.ir import IRModule, load_json
from tvm.runtime import tensor

from autotune.errors import InvalidValueError
from autotune.networks import AskedInputs, DeclaredInput, GraphSource, Yardstick
from autotune.networks.fixed_inputs import fix_inputs
from autotune.runtime.arrays import check_examples
from autotune_tvm.compiler import brief
from autotune_tvm.networks.graph import ENTRY, dtype_of, input_tensors, output_tensors
from autotune_tvm.networks.reader import read_graph

Array = NDArray[Any]

__all__ = ["check_script", "parse_file", "read_source"]

_ALIASES = {"I": "ir", "R": "relax", "T": "tirx"}
_PLAIN_NAMES = frozenset(["range", "float", "int", "bool", "True", "False", "None"])
# What TVMScript has below its own names: `R.nn.conv2d`, `T.axis.spatial`.
_GROUPS = {"R": ("nn", "image", "vision", "builtin", "vm", "memory"), "T": ("axis",), "I": ()}
# Makes any object of Python a part of the program.
_EVALUATES = frozenset(["meta_var"])
_REFUSED = (
    ast.AsyncFor,
    ast.AsyncFunctionDef,
    ast.AsyncWith,
    ast.Await,
    ast.Delete,
    ast.DictComp,
    ast.GeneratorExp,
    ast.Global,
    ast.JoinedStr,
    ast.Lambda,
    ast.ListComp,
    ast.NamedExpr,
    ast.Nonlocal,
    ast.Raise,
    ast.SetComp,
    ast.Try,
    ast.Yield,
    ast.YieldFrom,
)


def read_source(
    source: object, example_inputs: Sequence[object] | None, asked: AskedInputs | None = None
) -> GraphSource:
    """A Relax module with a function ``main`` as a graph.

    Args:
        source: The ``IRModule``, or the path of a file as of :func:`parse_file`.
        example_inputs: What it is called with; None where that was not given.
        asked: What a person says of its inputs.

    Raises:
        InvalidValueError: it is something else or damaged, has no such function, or the example
            inputs are not its inputs.
        UnsupportedWorkload: an input or an output is no tensor of a fixed shape, or an operator
            has no form as a loop nest; names it.
    """
    name, module = "network", source
    if isinstance(source, Path):
        if not source.is_file():
            raise InvalidValueError(f"there is no file {str(source)!r}")
        name, module = source.stem, parse_file(source)
    if not isinstance(module, IRModule):
        raise InvalidValueError(
            f"an object of type {type(source).__name__!r} is no Relax module; what can be read is "
            "one, or a file .json, .py"
        )
    functions = {str(variable.name_hint): body for variable, body in module.functions_items()}
    if not isinstance(functions.get(ENTRY), relax.Function):
        listed = ", ".join(sorted(functions)) or "none"
        raise InvalidValueError(
            f"{name}: a network is the Relax function {ENTRY!r} of its module; this one has the "
            f"functions {listed}"
        )
    fixed = fix_inputs(_declared(module), asked or AskedInputs(), example_inputs, name)
    if fixed.lengths:
        module = relax.transform.BindSymbolicVars(dict(fixed.lengths), ENTRY)(module)
    if fixed.constants:
        module = relax.transform.BindParams(ENTRY, dict(fixed.constants))(module)
    examples = check_examples(input_tensors(module), fixed.examples)
    graph = read_graph(module, [tensor.name for tensor in output_tensors(module)])
    yardstick = Yardstick("TVM without schedules", _Run(module))
    return GraphSource(name, graph, evolve(fixed, examples=examples), yardstick)


def _declared(module: Any) -> list[DeclaredInput]:
    """The inputs of ``main``; axes that are variables are open."""
    found = []
    for parameter in module[ENTRY].params:
        shape = getattr(getattr(parameter.ty, "shape", None), "values", None)
        if shape is not None and dtype_of(parameter):
            axes = tuple(int(it) if hasattr(it, "value") else str(it) for it in shape)
            found.append(DeclaredInput(parameter.name, axes, dtype_of(parameter)))
    return found


def parse_file(path: Path) -> IRModule:
    """The ``IRModule`` in a file of JSON, or of TVMScript.

    Raises:
        InvalidValueError: the file holds something else.
    """
    return _parse_json(path) if path.suffix == ".json" else _parse_script(path)


def _parse_json(path: Path) -> IRModule:
    """The module in a file that holds what ``tvm.ir.save_json`` returned."""
    try:
        module = load_json(path.read_text())
    except Exception as error:  # whatever the reader raises for text that is not its own
        raise InvalidValueError(
            f"{str(path)!r} is no Relax module in JSON ({brief(error)}); tvm.ir.save_json writes "
            "such files"
        ) from error
    if not isinstance(module, IRModule):
        raise InvalidValueError(
            f"{str(path)!r} holds an object of type {type(module).__name__}, not a Relax module"
        )
    return module


class _Run:
    """The module as TVM alone builds it: no pass of ours, no schedule."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._function: Any = None

    def __call__(self, inputs: Sequence[Array]) -> tuple[Array, ...] | None:
        if self._function is None:
            try:
                built = relax.build(self._module, "llvm")
            except Exception:  # what TVM alone cannot build computes nothing to compare with
                return None
            self._function = relax.VirtualMachine(built, cpu())[ENTRY]
        found = self._function(*(tensor(array) for array in inputs))
        return tuple(np.from_dlpack(item) for item in _flat(found))


def _flat(result: Any) -> Iterator[Any]:
    """The tensors that a network returned, which may be in tuples of tuples."""
    if hasattr(result, "__dlpack__"):
        yield result
    else:
        for item in result:
            yield from _flat(item)


def _parse_script(path: Path) -> IRModule:
    """The module of a class under ``I.ir_module``, as ``module.script()`` prints it."""
    from tvm.script import from_source
    from tvm.script import ir as script_ir
    from tvm.script import relax as script_relax
    from tvm.script import tirx as script_tir

    names = {"I": script_ir, "R": script_relax, "T": script_tir}
    try:
        text = path.read_text()
        check_script(text, names)
    except (UnicodeDecodeError, SyntaxError, InvalidValueError) as error:
        raise InvalidValueError(
            f"{str(path)!r} is no literal TVMScript module: {error}"
        ) from error
    try:
        return from_source(text, names)
    except Exception as error:  # the parser raises whatever it meets
        raise InvalidValueError(f"{str(path)!r}: TVM cannot parse it: {brief(error)}") from error


def check_script(text: str, modules: Mapping[str, object]) -> None:
    """Refuse what is no literal TVMScript module.

    Args:
        text: Of the file.
        modules: What ``I``, ``R`` and ``T`` stand for.

    Raises:
        SyntaxError: it is no Python.
        InvalidValueError: says which line, and what may stand there.
    """
    tree = ast.parse(text)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    if len(classes) != 1:
        raise InvalidValueError(f"it has {len(classes)} classes, not one")
    for node in tree.body:
        if node is not classes[0] and not _is_import(node):
            raise InvalidValueError(
                f"line {node.lineno}: only imports 'from tvm.script import ir as I, relax as R, "
                "tirx as T' may stand beside the class"
            )
    (body,) = classes
    if [ast.unparse(decorator) for decorator in body.decorator_list] != ["I.ir_module"]:
        raise InvalidValueError(f"line {body.lineno}: its class is not decorated with I.ir_module")
    known = _names_of_its_own(body) | set(_ALIASES) | _PLAIN_NAMES
    for part in ast.walk(body):
        _check_node(part, known)
        if isinstance(part, ast.Attribute):
            _check_attribute(part, modules)


def _is_import(node: ast.stmt) -> bool:
    if not isinstance(node, ast.ImportFrom) or node.module != "tvm.script":
        return False
    return all(_ALIASES.get(alias.asname or "") == alias.name for alias in node.names)


def _names_of_its_own(body: ast.ClassDef) -> set[str]:
    """Variables, parameters and functions that the class defines."""
    found = {body.name}
    for node in ast.walk(body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
    return found


def _check_node(node: ast.AST, known: set[str]) -> None:
    line = getattr(node, "lineno", 0)
    if isinstance(node, (*_REFUSED, ast.Import, ast.ImportFrom)):
        raise InvalidValueError(f"line {line}: {type(node).__name__} has no place in a module")
    if isinstance(node, ast.Name):
        if node.id not in known or node.id.startswith("__"):
            raise InvalidValueError(f"line {line}: {node.id!r} is not defined in the module")
        if isinstance(node.ctx, ast.Store) and node.id in (*_ALIASES, *_PLAIN_NAMES):
            raise InvalidValueError(f"line {line}: {node.id!r} cannot be defined")


def _check_attribute(node: ast.Attribute, modules: Mapping[str, object]) -> None:
    """``R.name``, ``R.nn.name``, ``cls.name``, and one name of a value: nothing deeper."""
    inner = node.value
    if isinstance(inner, ast.Name) and inner.id in modules:
        found = getattr(modules[inner.id], node.attr, None)
        fine = not isinstance(found, ModuleType) or node.attr in _GROUPS[inner.id]
    elif isinstance(inner, ast.Attribute):
        root = inner.value
        fine = isinstance(root, ast.Name) and inner.attr in _GROUPS.get(root.id, ())
    else:
        fine = True
    if not fine or node.attr.startswith("_") or node.attr in _EVALUATES:
        raise InvalidValueError(
            f"line {node.lineno}: {ast.unparse(node)!r} has no place in a module"
        )
