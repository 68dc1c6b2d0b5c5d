"""Parts of plugins behind their interfaces: what they raise or return is one error at most."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from autotune.errors import PluginError
from autotune.plugins.calling import Calling, part_noun
from autotune.plugins.parts import create_part, interface_of
from autotune.plugins.spec import Context

__all__ = ["create_held_part", "fits", "hold"]

_SHOWN_CHARACTERS = 80
_OWN_PACKAGE = "autotune"
_SEQUENCES = (list, tuple, set, frozenset, collections.abc.Sequence)
_MAPPINGS = (dict, collections.abc.Mapping)
_WIDER: Mapping[Any, Any] = {None: NoneType, int: Integral, float: Real, bool: (bool, np.bool_)}


def create_held_part(kind: str, name: str, context: Context | None = None) -> Any:
    """Create as :func:`autotune.plugins.parts.create_part`, and hold as :func:`hold`."""
    return hold(kind, create_part(kind, name, context))


def hold(kind: str, part: Any) -> Any:
    """A part whose every call is held to its interface; those of autotune itself are as they are.

    A method or an attribute of the interface that raises, or returns something else than the
    interface says, raises ``PluginError``. The part's other attributes are its own.

    Args:
        kind: Kind of part.
        part: An instance of the interface of this kind.
    """
    if type(part).__module__.partition(".")[0] == _OWN_PACKAGE:
        return part
    # Measuring takes as long as it takes, and has deadlines of its own.
    return _held_class(kind)(part, part_noun(kind, part), kind != "measurer")


class _GuardedPart:
    """A part behind its interface."""

    def __init__(self, part: Any, noun: str, timed: bool) -> None:
        self.__dict__.update(_part=part, _noun=noun, _timed=timed)

    def _calling(self, what: str) -> Calling:
        return Calling(self._noun, f"in {what}", timed=self._timed)

    def _checked(self, what: str, value: Any, hint: Any) -> Any:
        with self._calling(what):
            if fits(value, hint):
                return value
            shown = repr(value)[:_SHOWN_CHARACTERS]
        wanted = re.sub(r"\b[a-z_]\w*\.", "", inspect.formatannotation(hint))
        raise PluginError(f"{self._noun} returned {shown} from {what}, not {wanted}")

    def __getattr__(self, name: str) -> Any:
        with self._calling(name):
            return getattr(self._part, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._part, name, value)

    def __enter__(self) -> Any:
        with self._calling("__enter__()"):
            self._part.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        with self._calling("__exit__()"):
            self._part.__exit__(*exception)


@functools.cache
def _held_class(kind: str) -> type[Any]:
    interface = interface_of(kind)
    members: dict[str, Any] = {
        name: _attribute(name, hint) for name, hint in get_type_hints(interface).items()
    }
    for name in (name for name in dir(interface) if not name.startswith("_")):
        found = inspect.getattr_static(interface, name)
        if isinstance(found, property):
            members[name] = _attribute(name, _returned(found.fget))
        elif inspect.isfunction(found):
            members[name] = _method(f"{name}()", name, _returned(found))
    return type(f"Held{interface.__name__}", (_GuardedPart, interface), members)


def _returned(function: Any) -> Any:
    return get_type_hints(function).get("return", Any)


def _attribute(name: str, hint: Any) -> property:
    def read(self: Any) -> Any:
        with self._calling(name):
            value = getattr(self._part, name)
        return self._checked(name, value, hint)

    return property(read)


def _method(call: str, name: str, hint: Any) -> Callable[..., Any]:
    def ask(self: Any, *arguments: Any, **named: Any) -> Any:
        with self._calling(call):
            value = getattr(self._part, name)(*arguments, **named)
        value = self._checked(call, value, hint)
        is_iterator = get_origin(hint) is collections.abc.Iterator
        return _items(self, call, value, get_args(hint)[0]) if is_iterator else value

    return ask


def _items(held: Any, call: str, iterator: Iterator[Any], hint: Any) -> Iterator[Any]:
    """Items that an iterator gives, of the type that the interface says."""
    over = object()
    while True:
        with held._calling(call):
            item = next(iterator, over)
        if item is over:
            return
        yield held._checked(call, item, hint)


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of an annotated type, with what containers hold.

    Integers and floats of numpy are numbers. What an annotation says of iterators, arrays and
    functions is not looked into.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    kind = origin or hint
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if kind in (Union, UnionType):
        return any(fits(value, each) for each in arguments)
    if kind in _WIDER:
        return isinstance(value, _WIDER[kind])
    if not isinstance(value, kind):
        return False
    if kind is tuple and arguments[1:] != (...,):
        return len(value) == len(arguments) and all(map(fits, value, arguments))
    if kind in _SEQUENCES and arguments:
        return all(fits(each, arguments[0]) for each in value)
    if kind in _MAPPINGS and arguments:
        return all(fits(key, arguments[0]) and fits(it, arguments[1]) for key, it in value.items())
    return True
