"""Knobs that a compiler leaves open in a script of MLIR's Transform dialect.

``transform.tune.knob`` is a choice among attributes, ``transform.tune.alternatives`` one among
regions, and ``transform.smt.constrain_params`` says which choices fit together.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from attrs import evolve, frozen

from autotune.errors import InvalidValueError
from autotune.spaces.parameters import Parameter, Value, encode_config
from autotune_mlir import bindings
from autotune_mlir.importing.importer import ask_reader
from autotune_mlir.importing.reading import at, parse_text
from autotune_mlir.parsing import new_context

__all__ = ["Knobs", "knobs_of", "read_knobs", "select", "write_selected"]


@frozen
class Knobs:
    """Choices in a script.

    Attributes:
        parameters: One for each name of a knob, its options as values, and one for each of
            alternatives, with the numbers of its regions; the default is what is selected already.
            In names, what is no letter or digit becomes ``_``. An option that is no number, truth
            value or text is a text: how MLIR prints it.
        constraints: What ``transform.smt.constrain_params`` asserts, as expressions over the
            parameters; and that a knob in a region of alternatives keeps one value where another
            region is chosen, so that no program is tried twice.
    """

    parameters: tuple[Parameter, ...]
    constraints: tuple[str, ...]


@lru_cache(maxsize=64)
def read_knobs(text: str) -> Knobs:
    """The knobs of a module.

    Like all MLIR text of others, a script is read in a process of its own, which takes about a
    second the first time.

    Args:
        text: Of the module, in either form that MLIR prints.

    Raises:
        UnsupportedWorkload: it does not parse, or MLIR does not survive it; says where and why.
        InvalidValueError: there are no knobs, two of one name have other options, options are no
            list, or a constraint cannot be read; says which and where.
        BindingsMissing: MLIR is not installed.
    """
    found = ask_reader({"op": "read_knobs", "text": text, "file": FILE})
    parameters = [
        Parameter(it["name"], tuple(it["values"]), it["default"]) for it in found["parameters"]
    ]
    return Knobs(tuple(parameters), tuple(found["constraints"]))


def write_selected(text: str, config: Mapping[str, Value]) -> str:
    """The module with a configuration selected, for ``--transform-interpreter``.

    Args:
        text: Of the module.
        config: Value of every parameter of :func:`read_knobs`; what was selected is replaced.

    Returns:
        The module with the attribute ``selected`` of every knob, and ``selected_region`` of
        alternatives.

    Raises:
        InvalidValueError: a parameter is missing or unknown, a value is none of its options, or
            as of :func:`read_knobs`.
        UnsupportedWorkload: as of :func:`read_knobs`.
        BindingsMissing: MLIR is not installed.
    """
    read_knobs(text)  # so that MLIR is known to survive reading it here, too
    return select(text, config)


FILE = "the script"
_KNOB = "transform.tune.knob"
_ALTERNATIVES = "transform.tune.alternatives"
_CONSTRAINTS = "transform.smt.constrain_params"

Guard = tuple[tuple[str, int], ...]
"""Regions of alternatives that have to be chosen: name of each, and the region's number."""


@frozen(eq=False)
class _Site:
    """An operation that reads a knob.

    Attributes:
        operation: It.
        name: Of its parameter.
        values: The options, as parameters have them.
        options: The same as attributes; empty for alternatives.
        selected: Position of the option that is selected already, or None.
        guard: Where it is.
    """

    operation: Any
    name: str
    values: tuple[Value, ...]
    options: tuple[Any, ...]
    selected: int | None
    guard: Guard


def knobs_of(text: str) -> tuple[list[Parameter], list[str]]:
    """Parameters and constraints of a module; see :func:`autotune_mlir.knobs.read_knobs`."""
    mlir = bindings.load()
    with new_context(), mlir.ir.Location.unknown():
        module = parse_text(mlir, text, FILE)
        sites, constrained = _sites(mlir, module)
        parameters = _parameters(sites)
        constraints = list(_inactive(sites, parameters))
        by_name = {parameter.name: parameter for parameter in parameters}
        knobs = {it.operation.results[0]: by_name[it.name] for it in sites if it.options}
        for operation, guard in constrained:
            for condition in constraint_texts(mlir, operation, knobs):
                constraints.append(f"{_outside(guard)} or ({condition})" if guard else condition)
        return parameters, constraints


def select(text: str, config: Mapping[str, Value]) -> str:
    """A module with what is selected; see :func:`autotune_mlir.knobs.write_selected`."""
    mlir = bindings.load()
    with new_context(), mlir.ir.Location.unknown():
        module = parse_text(mlir, text, FILE)
        sites, _ = _sites(mlir, module)
        parameters = _parameters(sites)
        columns = encode_config(parameters, config)
        chosen = {
            parameter.name: parameter.decode(column)
            for parameter, column in zip(parameters, columns, strict=True)
        }
        for site in sites:
            kinds = [(type(value), value) for value in site.values]
            wanted = chosen[site.name]
            position = kinds.index((type(wanted), wanted))
            if site.options:
                site.operation.attributes["selected"] = site.options[position]
            else:
                index = mlir.ir.IntegerAttr.get(mlir.ir.IndexType.get(), position)
                site.operation.attributes["selected_region_attr"] = index
        module.operation.verify()
        return str(module)


def _sites(mlir: bindings.Bindings, module: Any) -> tuple[list[_Site], list[tuple[Any, Guard]]]:
    """Knobs and alternatives in the order of the text, and the operations with constraints."""
    sites: list[_Site] = []
    constrained: list[tuple[Any, Guard]] = []
    for operation, guard in _walk(module.operation, ()):
        if operation.name == _KNOB:
            sites.append(_knob(mlir, operation, guard))
        elif operation.name == _ALTERNATIVES and not len(operation.operands):
            sites.append(_alternatives(operation, guard))
        elif operation.name == _CONSTRAINTS:
            constrained.append((operation, guard))
    if not sites:
        raise InvalidValueError(
            f"{FILE} has no knobs: neither {_KNOB} nor {_ALTERNATIVES} without a parameter that "
            "selects its region"
        )
    return sites, constrained


def _walk(operation: Any, guard: Guard) -> Iterator[tuple[Any, Guard]]:
    """Every operation inside, with the regions of alternatives that it is in."""
    for number, region in enumerate(operation.regions):
        inner = guard
        if operation.name == _ALTERNATIVES and not len(operation.operands):
            inner = (*guard, (_name(operation), number))
        for block in region.blocks:
            for view in block.operations:
                yield view.operation, inner
                yield from _walk(view.operation, inner)


def _knob(mlir: bindings.Bindings, operation: Any, guard: Guard) -> _Site:
    given = operation.attributes["options"]
    if not isinstance(given, mlir.ir.ArrayAttr):
        raise InvalidValueError(
            f"knob {_name(operation)!r}{at(operation, FILE)} has options {given}; a list of them "
            "is read"
        )
    options = tuple(given)
    selected = None
    if "selected" in operation.attributes:
        selected = options.index(operation.attributes["selected"])
    values = tuple(_value(mlir, option) for option in options)
    return _Site(operation, _name(operation), values, options, selected, guard)


def _alternatives(operation: Any, guard: Guard) -> _Site:
    selected = None
    if "selected_region_attr" in operation.attributes:
        selected = int(operation.attributes["selected_region_attr"].value)
    values = tuple(range(len(operation.regions)))
    return _Site(operation, _name(operation), values, (), selected, guard)


def _name(operation: Any) -> str:
    """The name of a parameter: what is no letter or digit becomes ``_``."""
    given = operation.attributes["name"]
    text = re.sub(r"\W", "_", str(getattr(given, "value", given)))
    return text if text.isidentifier() else f"_{text}"


def _value(mlir: bindings.Bindings, option: Any) -> Value:
    """An option as a parameter has it: a number, a truth value, a text; of any other its text."""
    ir = mlir.ir
    if isinstance(option, ir.BoolAttr):
        return bool(option.value)
    if isinstance(option, ir.IntegerAttr):
        return int(option.value)
    if isinstance(option, ir.FloatAttr):
        return float(option.value)
    return str(option.value) if isinstance(option, ir.StringAttr) else str(option)


def _parameters(sites: Sequence[_Site]) -> list[Parameter]:
    """Parameters, one for each name; operations of one name are one knob."""
    found: dict[str, _Site] = {}
    for site in sites:
        first = found.setdefault(site.name, site)
        if [*map(repr, first.values)] != [*map(repr, site.values)]:
            raise InvalidValueError(
                f"two knobs are called {site.name!r} (what is no letter or digit counts as _), "
                f"with options {list(first.values)} and {list(site.values)}"
                f"{at(site.operation, FILE)}"
            )
        if first.selected is None:
            found[site.name] = evolve(first, selected=site.selected)
    return [
        Parameter(
            site.name, site.values, None if site.selected is None else site.values[site.selected]
        )
        for site in found.values()
    ]


def _inactive(sites: Sequence[_Site], parameters: Sequence[Parameter]) -> Iterator[str]:
    """A knob in regions that are not chosen has one value, so that no program is tried twice."""
    for parameter in parameters:
        guards = [site.guard for site in sites if site.name == parameter.name]
        if all(guards) and len(parameter.values) > 1:
            idle = parameter.values[0] if parameter.default is None else parameter.default
            inside = " or ".join(dict.fromkeys(f"({_inside(guard)})" for guard in guards))
            yield f"{inside} or {parameter.name} == {idle!r}"


def _inside(guard: Guard) -> str:
    return " and ".join(f"{name} == {number}" for name, number in guard)


def _outside(guard: Guard) -> str:
    return " or ".join(f"{name} != {number}" for name, number in guard)


@frozen
class _Term:
    """An expression, and whether it is always above zero."""

    text: str
    is_positive: bool = False


_COMPARED = ("<", "<=", ">", ">=")
"""By the number of smt.int.cmp's predicate."""

_Form = Callable[[Any, list[str]], str]


def _joined(sign: str) -> _Form:
    return lambda _, texts: f" {sign} ".join(texts)


def _compared(operation: Any, texts: list[str]) -> str:
    return f"{texts[0]} {_COMPARED[int(operation.attributes['pred'].value)]} {texts[1]}"


def _distinct(_: Any, texts: list[str]) -> str:
    pairs = [(a, b) for at, a in enumerate(texts) for b in texts[at + 1 :]]
    return " and ".join(f"{a} != {b}" for a, b in pairs)


def _odd(_: Any, texts: list[str]) -> str:
    return functools.reduce(lambda left, right: f"({left}) != {right}", texts)


def _signed(operation: Any, _: list[str]) -> str:
    """A constant of SMT, which MLIR keeps in two's complement, as narrow as it can."""
    attribute = operation.attributes["value"]
    value, width = int(attribute.value), int(attribute.type.width)
    return str(value - (1 << width) if value >> (width - 1) else value)


READ_OPERATIONS: Mapping[str, _Form] = {
    "smt.int.add": _joined("+"),
    "smt.int.mul": _joined("*"),
    "smt.and": _joined("and"),
    "smt.or": _joined("or"),
    "smt.int.div": _joined("//"),
    "smt.int.mod": _joined("%"),
    "smt.int.sub": _joined("-"),
    "smt.int.constant": _signed,
    "smt.int.cmp": _compared,
    "smt.constant": lambda operation, _: str(bool(operation.attributes["value"].value)),
    "smt.eq": _joined("=="),
    "smt.distinct": _distinct,
    "smt.implies": lambda _, texts: f"not {texts[0]} or {texts[1]}",
    "smt.ite": lambda _, texts: f"{texts[1]} if {texts[0]} else {texts[2]}",
    "smt.not": lambda _, texts: f"not {texts[0]}",
    "smt.xor": _odd,
}
"""Operations that may be asserted, and what they are of the texts of their operands."""

# For divisors above zero, SMT's Euclidean division rounds down, as ours does.
_DIVISIONS = ("smt.int.div", "smt.int.mod")
_GROWING = ("smt.int.add", "smt.int.mul")


def constraint_texts(
    mlir: bindings.Bindings, operation: Any, knobs: Mapping[Any, Parameter]
) -> list[str]:
    """Write the assertions of a ``transform.smt.constrain_params``.

    Args:
        mlir: The bindings.
        operation: It.
        knobs: The parameter of each value that is a knob's result.

    Raises:
        InvalidValueError: it is about something else than knobs and constants, gives results, or
            has an operation that is not read; says which.
    """
    if len(operation.results):
        raise InvalidValueError(
            f"constraints{at(operation, FILE)} give parameters as results, which is not read"
        )
    (block,) = operation.regions[0].blocks
    known = {
        argument: _operand(mlir, operation, operand, knobs)
        for argument, operand in zip(block.arguments, operation.operands, strict=True)
    }
    texts = []
    for view in block.operations:
        inner = view.operation
        if inner.name == "smt.assert":
            texts.append(known[inner.operands[0]].text)
        elif inner.name != "smt.yield":
            known[inner.results[0]] = _read(inner, [known[it] for it in inner.operands])
    return texts


def _operand(
    mlir: bindings.Bindings, operation: Any, operand: Any, knobs: Mapping[Any, Parameter]
) -> _Term:
    knob = knobs.get(operand)
    if knob is not None:
        return _Term(knob.name, all(isinstance(it, int) and it > 0 for it in knob.values))
    owner = operand.owner
    if getattr(owner, "name", "") == "transform.param.constant":
        value = owner.attributes["value"]
        if isinstance(value, mlir.ir.IntegerAttr) and not isinstance(value, mlir.ir.BoolAttr):
            return _constant(str(value.value))
    raise InvalidValueError(
        f"constraints{at(operation, FILE)} are about something else than knobs and constants"
    )


def _constant(text: str) -> _Term:
    return _Term(f"({text})" if text.startswith("-") else text, int(text) > 0)


def _read(operation: Any, terms: Sequence[_Term]) -> _Term:
    """The expression that an operation makes of others."""
    kind = operation.name
    if kind not in READ_OPERATIONS:
        raise InvalidValueError(
            f"{kind}{at(operation, FILE)} in constraints is not read; read are "
            f"{', '.join(READ_OPERATIONS)}"
        )
    if kind in _DIVISIONS and not terms[1].is_positive:
        raise InvalidValueError(
            f"{kind}{at(operation, FILE)} divides by {terms[1].text}, which is not always positive"
        )
    text = READ_OPERATIONS[kind](operation, [term.text for term in terms])
    if kind == "smt.int.constant":
        return _constant(text)
    if not terms:
        return _Term(text)
    return _Term(f"({text})", kind in _GROWING and all(it.is_positive for it in terms))
