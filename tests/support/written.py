"""Workloads from text, a line for each stage.

written("A[32, 20], B[20, 48]", "C[i, j; k] += A[i, k] * B[k, j]", i=32, j=48, k=20)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from attrs import evolve, frozen

from autotune.errors import InvalidValueError
from autotune.ir.element_types import ELEMENT_TYPES
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Gather,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    maximum,
    minimum,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload

_TENSOR = re.compile(r"\s*(\w+)\[([^\]]*)\](?::\s*(\w+))?\s*(?:,|$)")
_STAGE = re.compile(
    r"\s*(\w+)\[([^\];]*);?([^\]]*)\](?::\s*(\w+))?\s*(\+|\*|max|min|)=\s*(.*)", re.S
)
_COMBINERS = {"": None, "+": "add", "*": "mul", "max": "max", "min": "min"}
_OTHER_NAMES = {"mult": "mul", "noteq": "ne", "lte": "le", "gte": "ge"}
_IN_INDICES = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Call)


def written(
    inputs: str, *stages: str, name: str = "made", outputs: str = "", **values: float
) -> Workload:
    """Read a workload.

    Args:
        inputs: Tensors with their extents and, but for float32, their types: ``X[8, n]: int8``.
        stages: ``NAME[axes; reduced axes]: type = body``. In place of ``=`` stands ``+=``,
            ``*=``, ``max=`` or ``min=`` where axes are reduced, or one is scanned, ``~i``. The
            extent of an axis is the value of its name, or as in ``i:16``. Bodies are of Python:
            ``a if condition else b``, functions by their names in workloads, casts as
            ``int32(x)``. Numbers have the type of the stage.
        name: Of the workload.
        outputs: Names of stages, apart by spaces; the last one by default.
        values: Extents, and other numbers in the texts.

    Raises:
        InvalidValueError: a text is no stage.
    """
    given = tuple(
        Tensor(found[1], _extents(found[2], values), found[3] or "float32")
        for found in _TENSOR.finditer(inputs)
    )
    made = tuple(_stage(text, values) for text in stages)
    return Workload(name, given, made, tuple(outputs.split()) or (made[-1].name,))


def _extents(text: str, values: Mapping[str, float]) -> tuple[int, ...]:
    return tuple(_extent(part, values) for part in text.split(",") if part.strip())


def _extent(text: str, values: Mapping[str, float]) -> int:
    return int(eval(text, {}, dict(values)))


def _operation(op: ast.AST) -> str:
    name = type(op).__name__.lower()
    return _OTHER_NAMES.get(name, name)


def _parsed(text: str) -> ast.expr:
    return ast.parse(" ".join(text.split()), mode="eval").body


def _stage(text: str, values: Mapping[str, float]) -> Stage:
    found = _STAGE.fullmatch(text)
    if found is None:
        raise InvalidValueError(f"{text!r} is no stage, such as 'C[i; k] += A[i, k]'")
    name, spatial, reduced, dtype, combiner, body = found.groups()
    axes = [
        _axis(part, kind, values)
        for listed, kind in ((spatial, "spatial"), (reduced, "reduce"))
        for part in listed.split(",")
        if part.strip()
    ]
    shape = tuple(axis.extent for axis in axes if axis.kind != "reduce")
    reader = _Body({axis.name: axis.extent for axis in axes}, values, dtype or "float32")
    read = reader.scalar(_parsed(body))
    return Stage(Tensor(name, shape, reader.dtype), tuple(axes), read, _COMBINERS[combiner])


def _axis(text: str, kind: str, values: Mapping[str, float]) -> Axis:
    name, _, extent = text.strip().removeprefix("~").partition(":")
    along = "scan" if text.strip().startswith("~") else kind
    return Axis(name.strip(), _extent(extent or name, values), along)


@frozen
class _Body:
    """Reader of the bodies of one stage.

    Attributes:
        axes: Extents of the axes.
        values: Numbers by name.
        dtype: Of literals.
    """

    axes: Mapping[str, int]
    values: Mapping[str, float]
    dtype: str

    def scalar(self, node: ast.expr) -> ScalarExpr:
        """Read an expression: of axes alone it is the value of an index."""
        if self._is_index(node) and self._names(node) & set(self.axes):
            return IndexValue(self.index(node))
        match node:
            case ast.Constant(value=value):
                return Constant(value, "bool" if isinstance(value, bool) else self.dtype)
            case ast.Name(id=name):
                return Constant(self.values[name], self.dtype)
            case ast.Subscript(value=ast.Name(id=tensor), slice=indices):
                listed = indices.elts if isinstance(indices, ast.Tuple) else [indices]
                if all(map(self._is_index, listed)):
                    return Load(tensor, tuple(map(self.index, listed)))
                return Gather(tensor, tuple(map(self._place, listed)))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return Select(*map(self.scalar, (test, body, orelse)))
            case ast.BinOp(left=left, op=op, right=right):
                return Binary(_operation(op), self.scalar(left), self.scalar(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                sides = (left, right)
                of_axes = any(isinstance(self.scalar(it), IndexValue) for it in sides)
                read = self._place if of_axes and all(map(self._is_index, sides)) else self.scalar
                return Binary(_operation(op), *map(read, sides))
            case ast.BoolOp(op=op, values=[first, *others]):
                found = self.scalar(first)
                for other in others:
                    found = Binary(_operation(op), found, self.scalar(other))
                return found
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
                return Constant(-value, self.dtype)  # type: ignore[operator]
            case ast.UnaryOp(op=op, operand=operand):
                return Unary("not" if isinstance(op, ast.Not) else "neg", self.scalar(operand))
            case ast.Call(func=ast.Name(id=function), args=arguments):
                return self._call(function, arguments)
        raise InvalidValueError(f"{ast.unparse(node)!r} is no expression of a stage")

    def _call(self, function: str, arguments: list[ast.expr]) -> ScalarExpr:
        if function in ELEMENT_TYPES:
            found = self.scalar(*arguments)
            if isinstance(found, Constant):
                return evolve(found, dtype=function)
            return Cast(function, found)
        if len(arguments) == 2:
            return Binary(function, *map(self.scalar, arguments))
        return Unary(function, self.scalar(*arguments))

    def _place(self, node: ast.expr) -> ScalarExpr:
        return IndexValue(self.index(node)) if self._is_index(node) else self.scalar(node)

    def _names(self, node: ast.expr) -> set[str]:
        return {it.id for it in ast.walk(node) if isinstance(it, ast.Name)}

    def _is_index(self, node: ast.expr) -> bool:
        """Tell whether an expression is of whole numbers and axes alone."""
        parts = list(ast.walk(node))
        numbers = [it.value for it in parts if isinstance(it, ast.Constant)]
        numbers += [self.values[name] for name in self._names(node) & set(self.values)]
        known = {*self.axes, *self.values, "min", "max"}
        return (
            all(isinstance(it, _IN_INDICES) for it in parts if isinstance(it, ast.expr))
            and not any(isinstance(it, (ast.Div, ast.Pow, ast.Not)) for it in parts)
            and all(isinstance(number, int) for number in numbers)
            and self._names(node) <= known
        )

    def index(self, node: ast.expr) -> IntExpr:
        """Read an index, which Python computes of the variables of the axes."""
        names = {**self.values, **{axis: var(axis) for axis in self.axes}}
        found = eval(ast.unparse(node), {"min": minimum, "max": maximum}, names)
        return found if isinstance(found, IntExpr) else const(found)
