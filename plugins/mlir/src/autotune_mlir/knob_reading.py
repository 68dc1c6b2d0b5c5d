"""Knobs of a parsed module of the Transform dialect: ``tune.knob``, ``tune.alternatives``, SMT."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from autotune.errors import InvalidValueError
from autotune.spaces.parameters import Parameter, Value, encode_config
from autotune_mlir import bindings
from autotune_mlir.importing.locations import at
from autotune_mlir.importing.reading import parse_text
from autotune_mlir.knob_constraints import constraint_texts
from autotune_mlir.parsing import new_context

__all__ = ["FILE", "knobs_of", "select"]

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
        by_result = {it.operation.results[0]: it.name for it in sites if it.options}
        by_name = {parameter.name: parameter for parameter in parameters}
        for operation, guard in constrained:
            for condition in constraint_texts(mlir, operation, by_result, by_name, FILE):
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
