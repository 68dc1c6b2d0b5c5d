"""Brings a function on tensors into the normal form that schedules apply to.

In this form every operation that computes a stage is one ``linalg.generic`` or ``tensor.pad``
with the attribute ``autotune.stage``: its iterators are in the order of the stage's axes, it
overwrites a ``tensor.empty``, or (a reduction) a ``linalg.fill`` of its own with the attribute
``autotune.init`` that holds the neutral element. The operations are the program's own: named ones
are generalised by the compiler, iterators are put in order, and operands that are constants
become constants in the body.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from autotune.errors import UnsupportedWorkload
from autotune_mlir.bindings import Bindings
from autotune_mlir.building import Builder, is_identity, spreads_a_constant
from autotune_mlir.emit import INIT, STAGE
from autotune_mlir.importing.expansions import expand_bodies
from autotune_mlir.importing.generic_form import (
    iterate_units,
    maps_of,
    part_multiply_add,
    put_in_order,
)
from autotune_mlir.importing.joining import (
    JOINS,
    read_through_slices,
    replace_join,
    replace_slice,
)
from autotune_mlir.importing.locations import at
from autotune_mlir.importing.reshaping import RESHAPES, fold_units, replace_reshapes
from autotune_mlir.importing.scalar_import import (
    BODY_OPERATIONS,
    Unsupported,
    combination,
    defining,
    producer_of_yield,
)
from autotune_mlir.importing.scalars import is_number, replace_splats, sink_numbers
from autotune_mlir.importing.scans import SCANS, is_scan, replace_scan, start_anew
from autotune_mlir.importing.separation import separate
from autotune_mlir.importing.zero_points import split_zero_points

__all__ = ["BESIDE_LINALG", "bring_into_form", "check_operations", "decompose", "simplify"]

_SIMPLIFY = "builtin.module(inline,symbol-dce,convert-elementwise-to-linalg,canonicalize)"
_GENERALIZE = "builtin.module(linalg-generalize-named-ops)"
_DECOMPOSE = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op) {
    %found = transform.structured.match ops{["linalg.softmax"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %parts = transform.structured.decompose_interface %found
        : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
"""
BESIDE_LINALG = (
    "arith.constant",
    "tensor.empty",
    "tensor.extract_slice",
    "tensor.splat",
    *JOINS,
    *RESHAPES,
    "tensor.pad",
    *SCANS,
    "func.return",
)
"""Operations that may stand in a function beside those of linalg."""

# Where the compiler remembers the maps of a named operation: it would remember those of before.
_MEMOIZED = "linalg.memoized_indexing_maps"
# How maps that MLIR has no tiles for are printed: their results divide, or fall.
_EXTRACTED = re.compile(r" (floordiv|mod|ceildiv) |\* -|- ?[d(]")
_PLURAL = {"add": "sum", "mul": "product"}


def simplify(mlir: Bindings, module: Any) -> None:
    """Inline calls, drop what is not used, and turn arithmetic on tensors into linalg.

    Softmax becomes the operations that it consists of.
    """
    mlir.passmanager.PassManager.parse(_SIMPLIFY).run(module.operation)
    decompose(mlir, module)
    mlir.passmanager.PassManager.parse("builtin.module(canonicalize)").run(module.operation)


def decompose(mlir: Bindings, module: Any) -> None:
    """Take softmax apart, for which MLIR has no loops."""
    schedule = mlir.ir.Module.parse(_DECOMPOSE)
    mlir.interpreter.apply_named_sequence(module, schedule.body.operations[0], schedule)


def check_operations(mlir: Bindings, block: Any, file: str) -> None:
    """Check what can be checked before anything is rewritten.

    Raises:
        UnsupportedWorkload: an operation is of a kind that is not supported, or has a dynamic
            shape; says where it stands.
    """
    computing = 0
    for view in block.operations:
        operation = view.operation
        known = operation.name in BESIDE_LINALG or operation.name.startswith("linalg.")
        if not known and not _computes_number(mlir.ir, operation):
            raise UnsupportedWorkload(
                f"operation {operation.name} is not supported{at(operation, file)}; supported are "
                "those of linalg on tensors, arithmetic on tensors and on numbers, "
                f"{', '.join(BESIDE_LINALG)}"
            )
        for result in operation.results:
            if isinstance(result.type, mlir.ir.RankedTensorType):
                _check_static(operation, result.type, file)
        computing += operation.name.startswith(
            ("linalg.", "tensor.pad", "tensor.splat", *JOINS, *RESHAPES, *SCANS)
        ) or (operation.name == "tensor.extract_slice" and len(operation.operands) > 1)
    if not computing:
        raise UnsupportedWorkload("the function has no linalg operation: nothing can be tuned")


def _computes_number(ir: Any, operation: Any) -> bool:
    """Whether an operation of a function is one that bodies have, too."""
    numbers = [is_number(ir, result.type) for result in operation.results]
    return operation.name in BODY_OPERATIONS and all(numbers)


def _check_static(operation: Any, kind: Any, file: str) -> None:
    if not kind.has_static_shape:
        raise UnsupportedWorkload(
            f"operation {operation.name}{at(operation, file)} has the dynamic shape {kind}; "
            "shapes must be known"
        )


def bring_into_form(mlir: Bindings, module: Any, block: Any, taken: set[str], file: str) -> None:
    """Rewrite the operations of ``block``, the body of the only function of ``module``.

    Args:
        mlir: The bindings.
        module: Its functions were simplified.
        block: It holds operations that :func:`check_operations` allows.
        taken: Names that stages must not have; theirs are added.
        file: What the program was read from, for messages.

    Raises:
        UnsupportedWorkload: an operation has no form as a stage; says which one and why.
    """
    replace_reshapes(mlir, block)
    replace_splats(mlir, block)
    for view in list(block.operations):
        if view.operation.name in JOINS:
            _apply(replace_join, mlir, view.operation, file)
        elif view.operation.name in SCANS:
            _apply(replace_scan, mlir, view.operation, file)
        elif view.operation.name == "tensor.extract_slice":
            _apply(replace_slice, mlir, view.operation, file)
    expand_bodies(mlir, block)
    for operation in _computing(block):
        if operation.name == "linalg.generic" and not is_scan(mlir.ir, operation):
            _apply(iterate_units, mlir, operation, file)
            _apply(separate, mlir, operation, file)
    for operation in _computing(block):
        if operation.name == "linalg.generic":
            part_multiply_add(mlir.ir, operation)
    names = [_unique(_name_for(found), taken) for found in _computing(block)]
    mlir.passmanager.PassManager.parse(_GENERALIZE).run(module.operation)
    # Generalised operations stand where the named ones stood; not every release of MLIR hands
    # attributes on.
    for operation, stage in zip(_computing(block), names, strict=True):
        operation.attributes[STAGE] = mlir.ir.StringAttr.get(stage)
    fold_units(mlir, block)
    for operation in _computing(block):
        if operation.name == "linalg.generic":
            _apply(sink_numbers, mlir, operation, file)
    rewriter = _Rewriter(mlir, block, taken)
    for view in list(block.operations):
        operation = view.operation
        name, where = operation.name, at(operation, file)
        try:
            if name == "linalg.generic":
                rewriter.generic(operation)
            elif name == "tensor.pad":
                rewriter.pad(operation)
            elif name.startswith("linalg."):
                raise Unsupported("it cannot be written as linalg.generic")
        except Unsupported as reason:
            raise UnsupportedWorkload(f"operation {name}{where}: {reason}") from None
    for operation in _computing(block):
        if operation.name == "linalg.generic" and STAGE in operation.attributes:
            split_zero_points(mlir, operation, lambda name: _unique(name, taken))
    read_through_slices(mlir, block)
    try:
        rewriter.finish()
    except Unsupported as reason:
        raise UnsupportedWorkload(str(reason)) from None


def _apply(
    rewrite: Callable[[Bindings, Any], Any], mlir: Bindings, operation: Any, file: str
) -> None:
    """Rewrite one operation.

    Raises:
        UnsupportedWorkload: it cannot be rewritten; says where it stands and why.
    """
    name, where = operation.name, at(operation, file)
    try:
        rewrite(mlir, operation)
    except Unsupported as reason:
        raise UnsupportedWorkload(f"operation {name}{where}: {reason}") from None


def _computing(block: Any) -> list[Any]:
    """The operations of a function that compute something, in order."""
    operations = [view.operation for view in block.operations]
    return [
        found
        for found in operations
        if found.name == "tensor.pad" or found.name.startswith("linalg.")
    ]


def _name_for(operation: Any) -> str:
    """A name for the stage of an operation, not yet unique."""
    if STAGE in operation.attributes:
        return str(operation.attributes[STAGE].value)
    if operation.name != "linalg.generic":
        return str(operation.name.rpartition(".")[2])
    block = operation.regions[0].blocks[0]
    if len(operation.results) > 1:
        return "scan"
    reduces = any("reduction" in str(kind) for kind in operation.attributes["iterator_types"])
    try:
        if reduces:
            combiner = combination(block)[0]
            return _PLURAL.get(combiner, combiner)
        producer = producer_of_yield(block)
    except Unsupported:
        return "generic"
    if producer is None:
        return "copy"
    name = str(producer.name.rpartition(".")[2])
    return name[:-1] if name[:-1] in ("add", "sub", "mul", "div", "neg") else name


def _unique(stem: str, taken: set[str]) -> str:
    result, count = stem, 1
    while result in taken:
        result, count = f"{stem}_{count}", count + 1
    taken.add(result)
    return result


class _Rewriter:
    """Rewrites operations of one block, in order.

    Args:
        mlir: The bindings.
        block: The body of the function.
        taken: Names of stages and tensors.
    """

    def __init__(self, mlir: Bindings, block: Any, taken: set[str]) -> None:
        self._mlir = mlir
        self._ir = mlir.ir
        self._build = Builder(mlir)
        self._block = block
        self._taken = taken

    def pad(self, operation: Any) -> None:
        """Check that a ``tensor.pad`` adds a known number of constants.

        Raises:
            Unsupported: it does not.
        """
        if len(operation.operands) != 1:
            raise Unsupported("its padding is dynamic")
        value = list(operation.regions[0].blocks[0].operations)[-1].operation.operands[0]
        if self._build.constant_of(value) is None:
            raise Unsupported("it pads with something else than a constant")
        self._check_tensor(operation.operands[0])

    def generic(self, operation: Any) -> None:
        """Replace a ``linalg.generic`` by one of the form, with what initialises it.

        Raises:
            Unsupported: it has no such form.
        """
        inputs, outputs = list(operation.attributes["operandSegmentSizes"])
        if is_scan(self._ir, operation):
            self._scan(operation, inputs)
            return
        if outputs != 1:
            raise Unsupported(f"it has {outputs} results, not one")
        if spreads_a_constant(operation):
            return  # Folded into what reads it, or made a stage when all is known.
        put_in_order(self._ir, operation)
        values, maps = self._operands(operation, inputs)
        reduced = sum("reduction" in str(kind) for kind in operation.attributes["iterator_types"])
        with self._ir.InsertionPoint(operation), operation.location:
            if reduced:
                result = self._reduction(operation, values, maps, reduced)
            else:
                result = self._elementwise(operation, values, maps)
        operation.results[0].replace_all_uses_with(result)
        operation.erase()

    def _scan(self, operation: Any, inputs: int) -> None:
        """Check what a scan reads, and have it begin with a neutral element of its own."""
        for number, place in enumerate(maps_of(operation)[:inputs]):
            self._check_tensor(operation.operands[number])
            if _is_extracted(place):
                raise Unsupported("it reads at quotients or backwards")
        start_anew(self._mlir, operation, str(operation.attributes[STAGE].value))

    def _operands(self, operation: Any, inputs: int) -> tuple[list[Any], list[Any]]:
        """What is read of the operands of a generic, without constants; and the maps of all.

        An operand that is not read stays where only its shape says how often an iterator runs.
        Of one at quotients or remainders, or backwards, the elements are extracted, and without
        reductions at sums, diagonals, or more places than there are iterators: MLIR makes no
        vectors of it.
        """
        body = operation.regions[0].blocks[0]
        operands, maps = list(operation.operands), maps_of(operation)
        reduces = any("reduction" in str(kind) for kind in operation.attributes["iterator_types"])
        values: list[Any] = [None] * inputs
        for position in range(inputs):
            value, argument = operands[position], body.arguments[position]
            if _is_used(argument) and not self._fold(operation, value, argument):
                self._check_tensor(value)
                place = maps[position]
                if _is_extracted(place) or not reduces and _is_no_view(place):
                    with self._ir.InsertionPoint.at_block_begin(body), operation.location:
                        read = self._build.extracted(value, place)
                    argument.replace_all_uses_with(read)
                else:
                    values[position] = value
        known = {str(result) for result in maps[-1].results}
        for position, value in enumerate(values):
            if value is not None:
                known.update(str(result) for result in maps[position].results)
        for position, value in enumerate(values):
            own = {str(result) for result in maps[position].results}
            axes = {f"d{axis}" for axis in range(maps[-1].n_dims)}
            if value is None and own & (axes - known):
                known |= own
                kind = operands[position].type
                if _is_extracted(maps[position]):
                    maps[position], kind = self._iterators_of(maps[position], kind)
                with self._ir.InsertionPoint(operation), operation.location:
                    values[position] = self._build.empty(kind)
        kept = [position for position in range(inputs) if values[position] is not None]
        for position in reversed(range(inputs)):
            if values[position] is None:
                body.erase_argument(position)
        return [values[p] for p in kept], [maps[p] for p in kept] + [maps[-1]]

    def _iterators_of(self, item: Any, kind: Any) -> tuple[Any, Any]:
        """A map to those results alone that are iterators, and the type of such an operand."""
        ir = self._ir
        found = [
            (result, extent)
            for result, extent in zip(item.results, kind.shape, strict=True)
            if isinstance(result, ir.AffineDimExpr)
        ]
        results = [result for result, _ in found]
        shape = [extent for _, extent in found]
        own = ir.RankedTensorType.get(shape, kind.element_type)
        return ir.AffineMap.get(item.n_dims, 0, results), own

    def finish(self) -> None:
        """Make stages of constant tensors that are still read; drop what is not read.

        What the function returns is then the result of a stage, and of another one each time.

        Raises:
            Unsupported: a constant tensor has many values.
        """
        self._copy_returned()
        for view in reversed(list(self._block.operations)):
            operation = view.operation
            for result in operation.results:
                if isinstance(result.type, self._ir.RankedTensorType) and _is_used(result):
                    self._keep_constant(operation, result)
            droppable = operation.name in ("tensor.empty", *BODY_OPERATIONS) or (
                spreads_a_constant(operation) and INIT not in operation.attributes
            )
            if droppable and not any(_is_used(result) for result in operation.results):
                operation.erase()

    def _copy_returned(self) -> None:
        """Copy arguments, parts of tensors, and results of before, where they are returned."""
        end = list(self._block.operations)[-1].operation
        returned: list[Any] = []
        for number, value in enumerate(list(end.operands)):
            producer = defining(value)
            is_part = producer is None or producer.name == "tensor.extract_slice"
            if is_part or value in returned:
                with self._ir.InsertionPoint(end), end.location:
                    name = _unique("copy", self._taken)
                    value = self._build.pointwise(name, [value], value.type, None)
                end.operands[number] = value
            returned.append(value)

    def _keep_constant(self, operation: Any, result: Any) -> None:
        if INIT in operation.attributes:
            return
        constant = self._build.constant_of(result)
        if constant is not None:
            with self._ir.InsertionPoint(operation), operation.location:
                value = self._build.scalar(constant, result.type.element_type)
                name = _unique("constant", self._taken)
                stage = self._build.pointwise(name, [value], result.type, None)
            result.replace_all_uses_with(stage)
        elif operation.name == "arith.constant":
            raise Unsupported(
                f"a constant of type {result.type} has many values; "
                "make it an argument of the function"
            )

    def _fold(self, operation: Any, value: Any, argument: Any) -> bool:
        """Put a constant for an argument of the body, where the operand is one."""
        constant = self._build.constant_of(value)
        if constant is None:
            return False
        with self._ir.InsertionPoint(operation), operation.location:
            argument.replace_all_uses_with(self._build.scalar(constant, argument.type))
        return True

    def _check_tensor(self, value: Any) -> None:
        if not isinstance(value.type, self._ir.RankedTensorType):
            raise Unsupported(f"it reads a value of type {value.type} that is no constant")
        producer = defining(value)
        if producer is not None and producer.name == "tensor.empty":
            raise Unsupported("it reads a tensor that was never written (tensor.empty)")

    def _elementwise(self, operation: Any, values: list[Any], maps: list[Any]) -> Any:
        body = operation.regions[0].blocks[0]
        before = list(body.arguments)[-1]
        old = list(operation.operands)[-1]
        if _is_used(before) and not self._fold(operation, old, before):
            self._check_tensor(old)
            values, maps = [*values, old], [*maps, maps[-1]]
            body.add_argument(before.type, operation.location)
        return self._moved(operation, values, maps, self._build.empty(old.type), 0)

    def _reduction(self, operation: Any, values: list[Any], maps: list[Any], reduced: int) -> Any:
        combiner, combining, _ = combination(operation.regions[0].blocks[0])
        old = list(operation.operands)[-1]
        given = self._build.constant_of(old)
        if given is None:
            self._check_tensor(old)
        neutral = given is not None and is_identity(combiner, given, old.type.element_type)
        name = str(operation.attributes[STAGE].value)
        # Neutral elements are written in several ways; a padded result starts with this one.
        start = self._build.identity(combiner, old.type.element_type)
        filled = self._build.filled(old.type, start, name)
        result = self._moved(operation, values, maps, filled, reduced)
        if neutral:
            return result
        first = old if given is None else self._build.scalar(given, old.type.element_type)
        name = _unique(f"{name}_accumulated", self._taken)
        return self._build.pointwise(name, [first, result], old.type, combining.name)

    def _moved(
        self, operation: Any, values: list[Any], maps: list[Any], output: Any, reduced: int
    ) -> Any:
        """The result of a generic with these operands and the body of ``operation``."""
        name = str(operation.attributes[STAGE].value)
        new = self._build.generic(name, values, maps, output, reduced)
        operation.regions[0].blocks[0].append_to(new.regions[0])
        for item in operation.attributes:
            # Distributions of the bindings differ in what they iterate over.
            key = getattr(item, "name", item)
            if key not in new.attributes and key != _MEMOIZED:
                new.attributes[key] = operation.attributes[key]
        return new.results[0]


def _is_extracted(item: Any) -> bool:
    """Whether a result of a map has a quotient or a remainder, or falls along an iterator."""
    return _EXTRACTED.search(str(item)) is not None


def _is_no_view(item: Any) -> bool:
    """Whether a map has more results than iterators, or one that is computed of several."""
    terms = [re.findall(r"d\d+", str(result)) for result in item.results]
    found = [name for names in terms for name in names]
    return (
        len(item.results) > item.n_dims
        or any(names != [str(it)] for names, it in zip(terms, item.results, strict=True) if names)
        or len(set(found)) < len(found)
    )


def _is_used(value: Any) -> bool:
    return any(True for _ in value.uses)
