"""Networks as TVMScript.

TVM's parser reads the text of a class, and evaluates the expressions in it as Python. A file is
therefore looked through first: what is accepted names TVM's own script functions and the file's
own variables, and nothing else.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from autotune.errors import InvalidValueError
from autotune.networks import AskedInputs
from autotune_tvm.compiler import brief
from autotune_tvm.networks.sources.relax_module import from_module

if TYPE_CHECKING:
    from autotune.networks import GraphSource

__all__ = ["check_script", "from_script", "parse_script"]

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


def parse_script(path: Path) -> Any:
    """The ``IRModule`` of a class under ``I.ir_module``, as ``module.script()`` prints it.

    Raises:
        InvalidValueError: the file holds anything else, or TVM cannot parse it.
    """
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


def from_script(
    path: Path, example_inputs: Sequence[object] | None, asked: AskedInputs
) -> GraphSource:
    """A file with a Relax module as TVMScript.

    Raises:
        InvalidValueError: as of :func:`parse_script`.
        UnsupportedWorkload: as of :func:`from_module`.
    """
    return from_module(parse_script(path), example_inputs, path.stem, asked)


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
