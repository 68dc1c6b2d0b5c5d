"""Scans: operations of which each result continues the one before it along a dimension.

In linalg that is a ``linalg.generic`` of two results, of which the first lacks the dimension that
is scanned along, and the second has all. Both are what was there and a new element. The operation
``tm_tensor.scan``, as torch-mlir has it, is brought into this form.
"""

from __future__ import annotations

import importlib
from typing import Any

from autotune_mlir.bindings import Bindings
from autotune_mlir.building import Builder, is_identity
from autotune_mlir.importing.generic_form import maps_of
from autotune_mlir.importing.scalar_import import Unsupported, combiner_of, defining
from autotune_mlir.importing.separation import erase

__all__ = ["SCANS", "is_scan", "load_scans", "replace_scan", "scan_of", "start_anew"]

SCANS = ("tm_tensor.scan",)
"""Operations that are scans."""

# Loads the dialect, which the bindings have no name for.
_LOADING = "builtin.module(func.func(convert-torch-to-tmtensor))"


def load_scans(mlir: Bindings, text: str) -> None:
    """Make the dialect of scans known to the current context, where a text may have them."""
    if "tm_tensor." not in text or mlir.root != "torch_mlir":
        return
    dialect = importlib.import_module("torch_mlir.dialects.torch")
    dialect.register_dialect(mlir.ir.Context.current)
    nothing = mlir.ir.Module.parse("func.func @f() { return }")
    mlir.passmanager.PassManager.parse(_LOADING).run(nothing.operation)


def replace_scan(mlir: Bindings, operation: Any) -> None:
    """Replace an operation of :data:`SCANS` by a ``linalg.generic``.

    Args:
        mlir: The bindings.
        operation: In the body of a function; shapes are static.

    Raises:
        Unsupported: it leaves out the element itself, its last results are used, or its body does
            something else than combine two numbers.
    """
    ir, build = mlir.ir, Builder(mlir)
    if not operation.attributes["inclusive"].value:
        raise Unsupported("it is exclusive; only inclusive scans are supported")
    if any(True for _ in operation.results[1].uses):
        raise Unsupported("what it ends with is used; only all results are supported")
    combining, end = _combining(operation.regions[0].blocks[0])
    along = int(operation.attributes["dimension"].value)
    kind = operation.results[0].type
    rank = kind.rank
    everything = ir.AffineMap.get_identity(rank)
    kept = [ir.AffineDimExpr.get(it) for it in range(rank) if it != along]
    maps = [everything, ir.AffineMap.get(rank, 0, kept), everything]
    names = ["reduction" if it == along else "parallel" for it in range(rank)]
    with ir.InsertionPoint(operation), operation.location:
        outputs = [operation.operands[2], build.empty(kind)]
        new = ir.Operation.create(
            "linalg.generic",
            [it.type for it in outputs],
            [operation.operands[0], *outputs],
            {
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(it) for it in maps]),
                "iterator_types": ir.ArrayAttr.get(
                    [ir.Attribute.parse(f"#linalg.iterator_type<{name}>") for name in names]
                ),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 2]),
            },
            regions=1,
        )
        number = kind.element_type
        body = new.regions[0].blocks.append(number, number, number)
        with ir.InsertionPoint(body):
            given = [body.arguments[1], body.arguments[0]]
            value = ir.Operation.create(combining.name, [number], given).results[0]
            ir.Operation.create("linalg.yield", operands=[value, value])
    operation.results[0].replace_all_uses_with(new.results[1])
    erase(operation)


def _combining(body: Any) -> tuple[Any, Any]:
    """The operation that combines both arguments of a body, and the one that yields its result.

    Raises:
        Unsupported: it does something else.
    """
    inner = [view.operation for view in body.operations]
    arguments = list(body.arguments)
    if len(inner) == 2 and combiner_of(inner[0]) in ("add", "mul", "max", "min"):
        operands = list(inner[0].operands)
        if operands in (arguments, arguments[::-1]):
            return inner[0], inner[1]
    raise Unsupported("it does not combine each element with what was there by +, *, max or min")


def is_scan(ir: Any, operation: Any) -> bool:
    """Whether a ``linalg.generic`` is a scan, as the form of programs has it."""
    if len(operation.results) != 2:
        return False
    *_, continued, everything = maps_of(operation)
    kinds = ["reduction" in str(kind) for kind in operation.attributes["iterator_types"]]
    if everything != ir.AffineMap.get_identity(len(kinds)) or sum(kinds) != 1:
        return False
    kept = [ir.AffineDimExpr.get(it) for it, reduced in enumerate(kinds) if not reduced]
    body = operation.regions[0].blocks[0]
    yielded = list(list(body.operations)[-1].operation.operands)
    unread = not any(True for _ in list(body.arguments)[-1].uses)
    return list(continued.results) == kept and yielded[0] == yielded[1] and unread


def scan_of(operation: Any) -> tuple[str, Any]:
    """How a scan combines, and what it combines with what was there.

    Raises:
        Unsupported: it does something else.
    """
    body = operation.regions[0].blocks[0]
    *_, before, _ = body.arguments
    combining = defining(list(list(body.operations)[-1].operation.operands)[0])
    combiner = "" if combining is None else combiner_of(combining)
    if combiner in ("add", "mul", "max", "min") and sum(1 for _ in before.uses) == 1:
        operands = list(combining.operands) if combining is not None else []
        if before in operands:
            return combiner, operands[1 if operands[0] == before else 0]
    raise Unsupported("its body is not a scan of the form output = previous (+, *, max or min) x")


def start_anew(mlir: Bindings, operation: Any, stage: str) -> None:
    """Have a scan begin with a neutral element of its own.

    Raises:
        Unsupported: it begins with something else.
    """
    build = Builder(mlir)
    combiner, _ = scan_of(operation)
    place = len(operation.operands) - 2
    first, everything = list(operation.operands)[place:]
    given = build.constant_of(first)
    element = first.type.element_type
    if given is None or not is_identity(combiner, given, element):
        raise Unsupported("it does not begin with the neutral element of what combines")
    with mlir.ir.InsertionPoint(operation), operation.location:
        start = build.identity(combiner, element)
        operation.operands[place] = build.filled(first.type, start, stage)
        operation.operands[place + 1] = build.empty(everything.type)
