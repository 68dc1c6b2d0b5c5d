"""The one converter between attrs classes and their JSON forms, in files and between processes.

A class is an object with its fields, in their order, unless its module registers another form.
Nothing is coerced: a value of another type than the field's is refused. The converter is made when
it is first used, so that importing a module with forms does not cost loading cattrs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

import attrs

from autotune.errors import AutotuneError, InvalidValueError

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = [
    "from_json",
    "json_forms",
    "list_form",
    "noun",
    "new_converter",
    "tagged_lists",
    "tagged_objects",
    "to_json",
]

Value = TypeVar("Value")
Forms = Callable[["Converter"], None]

_PRIMITIVES: Mapping[type[Any], tuple[frozenset[type[Any]], str]] = {
    bool: (frozenset({bool}), "true or false"),
    int: (frozenset({int}), "a whole number"),
    float: (frozenset({float, int}), "a number"),
    str: (frozenset({str}), "a text"),
}

_forms: list[Forms] = []
"""What modules registered, in the order in which they were imported."""


def json_forms(register: Forms) -> Forms:
    """Decorates a function that registers a module's forms; it is called when one is needed."""
    _forms.append(register)
    return register


def to_json(value: object) -> Any:
    """The JSON form of a value."""
    return _converter().unstructure(value)


def from_json(kind: type[Value], data: Any) -> Value:
    """The value of this type that has ``data`` as its form.

    Raises:
        InvalidValueError: it is no such form; names the field and what is wrong with it.
        AutotuneError: what the class itself raises for values that it refuses.
    """
    try:
        return _converter().structure(data, kind)
    except RecursionError:
        raise
    except Exception as error:  # groups of whatever the classes raise
        raise refusal(kind, error) from error


def refusal(kind: Any, error: Exception) -> AutotuneError:
    """What to raise for an error of the converter: its first cause, with the place."""
    return _refused(f"not {noun(kind)}", error)


def _refused(beginning: str, error: Exception) -> AutotuneError:
    path = ""
    while getattr(error, "exceptions", ()):
        error = error.exceptions[0]  # type: ignore[attr-defined]
        for note in getattr(error, "__notes__", ()):
            if hasattr(note, "name"):
                path += f".{note.name}"
            elif hasattr(note, "index"):
                path += f"[{note.index}]"
    if isinstance(error, AutotuneError):
        error.__dict__.pop("__notes__", None)
        return error
    path = path.removeprefix(".")
    if isinstance(error, KeyError) and path.rpartition(".")[2] == error.args[0]:
        reason = f"it lacks {error}"
    else:
        reason = str(error) if isinstance(error, (TypeError, ValueError)) else repr(error)
        reason = f"{path}: {reason}" if path else reason
    return InvalidValueError(f"{beginning}: {reason}")


def noun(kind: Any) -> str:
    """``"a measure key"`` for ``MeasureKey``."""
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", getattr(kind, "__name__", str(kind))).lower()
    return _with_article(words)


def _with_article(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


@cache
def _made() -> Converter:
    return new_converter()


def _converter() -> Converter:
    converter = _made()
    while _forms:
        _forms.pop(0)(converter)
    return converter


def new_converter() -> Converter:
    """A converter without the forms of any class."""
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True, unstruct_collection_overrides={tuple: list})
    for kind in _PRIMITIVES:
        converter.register_structure_hook(kind, _read_primitive)
    converter.register_structure_hook_factory(_is_row_of_primitives, _row_reader)
    converter.register_unstructure_hook_factory(_is_row_of_primitives, lambda _: list)
    converter.register_structure_hook_factory(_is_plain_mapping, lambda _: _read_mapping)
    converter.register_unstructure_hook_factory(_is_plain_mapping, lambda _: dict)
    return converter


def _read_primitive(data: Any, kind: Any) -> Any:
    types, wanted = _PRIMITIVES[kind]
    if type(data) not in types:
        raise TypeError(f"{data!r} is not {wanted}")
    return data


def _is_row_of_primitives(kind: Any) -> bool:
    arguments = get_args(kind)
    return (
        get_origin(kind) is tuple
        and len(arguments) == 2
        and arguments[0] in _PRIMITIVES
        and arguments[1] is Ellipsis
    )


def _row_reader(kind: Any) -> Callable[[Any, Any], tuple[Any, ...]]:
    """Reads a tuple of primitives at once, since there are many and some are long."""
    types, wanted = _PRIMITIVES[get_args(kind)[0]]

    def read(data: Any, _: Any) -> tuple[Any, ...]:
        if not isinstance(data, (list, tuple)):
            raise TypeError(f"{data!r} is not a list")
        if not types.issuperset(map(type, data)):
            (wrong, *_) = (item for item in data if type(item) not in types)
            raise TypeError(f"{wrong!r} is not {wanted}")
        return tuple(data)

    return read


def _is_plain_mapping(kind: Any) -> bool:
    """Whether its values are any JSON values, which are taken as they are."""
    origin, arguments = get_origin(kind), get_args(kind)
    return isinstance(origin, type) and issubclass(origin, Mapping) and arguments == (str, Any)


def _read_mapping(data: Any, _: Any) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise TypeError(f"{data!r} is not an object")
    return dict(data)


def list_form(converter: Converter, kind: type[Any]) -> None:
    """Let a class be the list of its fields."""
    fields = _Fields(converter)
    converter.register_unstructure_hook(kind, fields.write)
    converter.register_structure_hook(kind, lambda data, _: fields.read(kind, data))


def tagged_lists(
    converter: Converter, union: Any, what: str, kinds: Mapping[str, type[Any]]
) -> None:
    """Let the classes of a union be lists: the kind, and the fields.

    A class of several kinds has its kind as its first field.
    """
    fields = _Fields(converter)
    tags: dict[type[Any], list[str]] = {}
    for tag, kind in kinds.items():
        tags.setdefault(kind, []).append(tag)
    own = {kind for kind, names in tags.items() if len(names) > 1}

    def write(value: Any) -> list[Any]:
        kind = type(value)
        return [*(() if kind in own else tags[kind]), *fields.write(value)]

    def read(data: Any, _: Any) -> Any:
        try:
            kind = kinds[data[0]]
            return fields.read(kind, data if kind in own else data[1:])
        except Exception as error:  # whatever the classes raise
            raise _refused(f"not {_with_article(what)}: {data!r}", error) from error

    for kind in tags:
        converter.register_unstructure_hook(kind, write)
    converter.register_structure_hook(union, read)


def tagged_objects(
    converter: Converter, union: Any, what: str, tag: str, kinds: Mapping[str, type[Any]]
) -> None:
    """Let the classes of a union be objects: the kind under ``tag``, and the fields by name.

    Kinds may be added to ``kinds`` later.
    """
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn

    def writer(kind: type[Any]) -> Callable[[Any], dict[str, Any]]:
        (name,) = (name for name, found in kinds.items() if found is kind)
        write = make_dict_unstructure_fn(kind, converter)
        return lambda value: {tag: name, **write(value)}

    readers: dict[str, Callable[[Any, Any], Any]] = {}

    def read(data: Any, _: Any) -> Any:
        if not isinstance(data, Mapping):
            raise InvalidValueError(f"not {_with_article(what)}: {data!r}")
        name = data.get(tag)
        if not isinstance(name, str) or name not in kinds:
            raise InvalidValueError(f"unknown {what} {name!r}; known: {', '.join(kinds)}")
        try:
            if name not in readers:
                readers[name] = make_dict_structure_fn(kinds[name], converter)
            return readers[name]({key: data[key] for key in data if key != tag}, kinds[name])
        except Exception as error:  # whatever the classes raise
            raise _refused(f"malformed {what} {data!r}", error) from error

    converter.register_unstructure_hook_factory(lambda kind: kind in kinds.values(), writer)
    converter.register_structure_hook(union, read)


class _Fields:
    """The fields of classes as lists."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter
        self._readers: dict[type[Any], list[tuple[Callable[[Any, Any], Any], Any]]] = {}

    def write(self, value: Any) -> list[Any]:
        """The list of the fields of a value."""
        write = self._converter.unstructure
        return [write(getattr(value, field.name)) for field in attrs.fields(type(value))]

    def read(self, kind: type[Any], data: Any) -> Any:
        """The value of a class with these fields."""
        if not isinstance(data, (list, tuple)):
            raise TypeError(f"{data!r} is not a list")
        if kind not in self._readers:
            hints = get_type_hints(kind)
            types = [hints[field.name] for field in attrs.fields(kind)]
            hook = self._converter.get_structure_hook
            self._readers[kind] = [(hook(found), found) for found in types]
        readers = self._readers[kind]
        if len(data) != len(readers):
            raise TypeError(f"{data!r} has {len(data)} values and not {len(readers)}")
        return kind(*(read(item, of) for item, (read, of) in zip(data, readers, strict=True)))
