"""The one converter between attrs classes and their JSON forms, in files and between processes.

A class is an object with its fields, in their order, unless its module registers another form.
Nothing is coerced: a value of another type than the field's is refused. The converter is made when
it is first used, so that importing a module with forms does not cost loading cattrs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from threading import RLock
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

import attrs

from autotune.errors import AutotuneError, InvalidValueError

if TYPE_CHECKING:
    from cattrs import Converter
    from typing_extensions import Self

__all__ = [
    "JsonForm",
    "from_json",
    "json_forms",
    "list_form",
    "noun",
    "object_form",
    "new_converter",
    "tagged_lists",
    "tagged_objects",
    "to_json",
]

Value = TypeVar("Value")
Forms = Callable[["Converter"], None]

_PRIMITIVES: Mapping[type[Any], tuple[tuple[type[Any], ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((float, int), "a number"),
    str: ((str,), "a text"),
}
_MOST_SHOWN = 80

_forms: list[Forms] = []
"""Forms that modules registered, in the order in which they were imported."""
_registered = {False: 0, True: 0}
"""Number of them that either converter has."""
_registering = RLock()


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
    except (AutotuneError, RecursionError):
        raise
    except Exception:  # whatever the classes raise: once more, to say where
        try:
            return _converter(detailed=True).structure(data, kind)
        except Exception as error:
            raise refusal(kind, error) from error


class JsonForm:
    """Base class of values that are read from and written to JSON by themselves."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON object that :meth:`from_json` reads back."""
        return dict(to_json(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_json` wrote, here or in an earlier version.

        Raises:
            InvalidValueError: the object is not of this form; names the field and what is wrong.
        """
        return from_json(cls, data)


def refusal(kind: Any, error: Exception) -> AutotuneError:
    """The error to raise for one of the converter: its first cause, with the place."""
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
    place, _, name = path.rpartition(".")
    if isinstance(error, KeyError) and error.args == (name,):
        reason = f"{place or 'it'} lacks {name!r}"
    elif isinstance(error, _WrongType):
        reason = f"{path or 'it'} {error}"
    else:
        said = isinstance(error, (TypeError, ValueError)) and error.args
        reason = f"{path}: " * bool(path) + (str(error.args[0]) if said else repr(error))
    return InvalidValueError(f"{beginning}: {reason}")


def noun(kind: Any) -> str:
    """``"a measure key"`` for ``MeasureKey``."""
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", getattr(kind, "__name__", str(kind))).lower()
    return _with_article(words)


def _with_article(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _converter(detailed: bool = False) -> Converter:
    converter = _made(detailed)
    if _registered[detailed] < len(_forms):
        with _registering:
            while _registered[detailed] < len(_forms):
                _forms[_registered[detailed]](converter)
                _registered[detailed] += 1
    return converter


@cache
def _made(detailed: bool) -> Converter:
    return new_converter(detailed)


def new_converter(detailed: bool) -> Converter:
    """A converter without the forms of any class; a detailed one says where an error is."""
    from cattrs import Converter
    from cattrs.fns import identity

    converter = Converter(
        forbid_extra_keys=True,
        unstruct_collection_overrides={tuple: list},
        detailed_validation=detailed,
    )
    for kind in _PRIMITIVES:
        converter.register_structure_hook(kind, _primitive_reader(kind))
    converter.register_unstructure_hook_factory(_is_primitive, lambda _: identity)
    converter.register_structure_hook_factory(_is_row_of_primitives, _row_reader)
    converter.register_unstructure_hook_factory(_is_row_of_primitives, lambda _: list)
    converter.register_structure_hook_factory(_is_plain_mapping, _mapping_reader)
    converter.register_unstructure_hook_factory(_is_plain_mapping, lambda _: dict)
    return converter


class _WrongType(TypeError):
    """A value of another type; the text goes on after the name of the field."""

    def __init__(self, wanted: str, data: object) -> None:
        super().__init__(f"is not {wanted}: {repr(data)[:_MOST_SHOWN]}")


def _read_primitive(data: Any, kind: Any) -> Any:
    types, wanted = _PRIMITIVES[kind]
    if not isinstance(data, types) or (isinstance(data, bool) and kind is not bool):
        raise _WrongType(wanted, data)
    return data


def _primitive_reader(kind: type[Any]) -> Callable[[Any, Any], Any]:
    types = _PRIMITIVES[kind][0]
    return lambda data, _: data if type(data) in types else _read_primitive(data, kind)


def _is_primitive(kind: Any) -> bool:
    return all(item in _PRIMITIVES or item is type(None) for item in _members(kind))


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
    primitive = get_args(kind)[0]
    types = frozenset(_PRIMITIVES[primitive][0])

    def read(data: Any, _: Any) -> tuple[Any, ...]:
        if not isinstance(data, (list, tuple)):
            raise _WrongType("a list", data)
        if not types.issuperset(map(type, data)):
            for item in data:
                _read_primitive(item, primitive)
        return tuple(data)

    return read


def _is_plain_mapping(kind: Any) -> bool:
    """Return whether its values are JSON values already."""
    origin, arguments = get_origin(kind), get_args(kind)
    if not isinstance(origin, type) or not issubclass(origin, Mapping) or arguments[0] is not str:
        return False
    return all(item in (Any, *_PRIMITIVES, type(None)) for item in _members(arguments[1]))


def _members(kind: Any) -> tuple[Any, ...]:
    """The types of a union; the one type of anything else."""
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _mapping_reader(kind: Any) -> Callable[[Any, Any], dict[str, Any]]:
    members = _members(get_args(kind)[1])
    (primitive,) = (item for item in members if item is not type(None))

    def read(data: Any, _: Any) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            raise _WrongType("an object", data)
        if primitive is not Any:
            for item in data.values():
                if item is not None or type(None) not in members:
                    _read_primitive(item, primitive)
        return dict(data)

    return read


def object_form(
    converter: Converter,
    kind: type[Any],
    *,
    required: tuple[str, ...] = (),
    left_out: tuple[str, ...] = (),
    ignores_others: bool = False,
    order: tuple[str, ...] = (),
) -> tuple[Callable[[Any], dict[str, Any]], Callable[[Any, Any], Any]]:
    """Let a class be an object with its fields, and say how; returns the writer and the reader.

    Args:
        converter: Where to.
        kind: The class.
        required: Fields that must be there although the class has a default.
        left_out: Fields that are not written.
        ignores_others: Whether fields that the class does not have are passed over.
        order: Fields that are written first.
    """
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

    omitted: dict[str, Any] = {name: override(omit=True) for name in left_out}
    write = make_dict_unstructure_fn(kind, converter, **omitted)
    build = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=not ignores_others)

    def write_ordered(value: Any) -> dict[str, Any]:
        data = write(value)
        return {**{name: data.pop(name) for name in order}, **data}

    def read(data: Any, _: Any) -> Any:
        if not isinstance(data, Mapping):
            raise _WrongType("an object", data)
        for name in required:
            if name not in data:
                raise TypeError(f"it lacks {name!r}")
        return build(data, kind)

    writer = write_ordered if order else write
    converter.register_unstructure_hook(kind, writer)
    converter.register_structure_hook(kind, read)
    return writer, read


def list_form(
    converter: Converter, kind: type[Any]
) -> tuple[Callable[[Any], list[Any]], Callable[[Any, Any], Any]]:
    """Let a class be the list of its fields, of which those with defaults may be missing.

    Returns:
        The writer and the reader.
    """
    fields = _Fields(converter)

    def read(data: Any, _: Any) -> Any:
        return fields.read(kind, data, True)

    converter.register_unstructure_hook(kind, fields.write)
    converter.register_structure_hook(kind, read)
    return fields.write, read


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
            if not converter.detailed_validation:
                raise
            raise _refused(f"not {_with_article(what)}: {data!r}", error) from error

    for kind in tags:
        converter.register_unstructure_hook(kind, write)
    converter.register_structure_hook(union, read)


def tagged_objects(
    converter: Converter,
    union: Any,
    what: str,
    tag: str,
    kinds: Mapping[str, type[Any]],
    spellings: Mapping[str, str] = MappingProxyType({}),
    find: Callable[[str], None] = lambda name: None,
    added: Mapping[type[Any], tuple[str, ...]] = MappingProxyType({}),
) -> None:
    """Let the classes of a union be objects: the kind under ``tag``, and the fields by name.

    Kinds may be added to ``kinds`` later; ``find`` may do so for a name that is not there. Those
    in ``spellings`` are read as what they map to. Fields in ``added`` are not written where they
    have their defaults: values of a class that had no such fields have the same form as before.
    """
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

    def writer(kind: type[Any]) -> Callable[[Any], dict[str, Any]]:
        (name,) = (name for name, found in kinds.items() if found is kind)
        fields: dict[str, Any] = {
            field: override(omit_if_default=True) for field in added.get(kind, ())
        }
        write = make_dict_unstructure_fn(kind, converter, **fields)
        return lambda value: {tag: name, **write(value)}

    readers: dict[str, Callable[[Any, Any], Any]] = {}

    def read(data: Any, _: Any) -> Any:
        if not isinstance(data, Mapping):
            raise InvalidValueError(f"not {_with_article(what)}: {data!r}")
        name = data.get(tag)
        name = spellings.get(name, name) if isinstance(name, str) else name
        if isinstance(name, str) and name not in kinds:
            find(name)
        if not isinstance(name, str) or name not in kinds:
            raise InvalidValueError(f"unknown {what} {name!r}; known: {', '.join(kinds)}")
        try:
            if name not in readers:
                readers[name] = make_dict_structure_fn(kinds[name], converter)
            fields = dict(data)
            del fields[tag]
            return readers[name](fields, kinds[name])
        except Exception as error:  # whatever the classes raise
            if not converter.detailed_validation:
                raise
            raise _refused(f"malformed {what} {data!r}", error) from error

    converter.register_unstructure_hook_factory(lambda kind: kind in kinds.values(), writer)
    converter.register_structure_hook(union, read)


class _Fields:
    """The fields of classes as lists."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter
        self._writers: dict[type[Any], Callable[[Any], list[Any]]] = {}
        self._readers: dict[type[Any], list[tuple[Callable[[Any, Any], Any], Any]]] = {}

    def write(self, value: Any) -> list[Any]:
        """The list of the fields of a value."""
        kind = type(value)
        if kind not in self._writers:
            self._writers[kind] = self._writer(kind)
        return self._writers[kind](value)

    def _writer(self, kind: type[Any]) -> Callable[[Any], list[Any]]:
        types = _field_types(kind)
        if all(map(_is_primitive, types.values())):
            values = attrgetter(*types)
            return lambda value: list(values(value))
        hooks = [(name, self._converter.get_unstructure_hook(of)) for name, of in types.items()]
        return lambda value: [hook(getattr(value, name)) for name, hook in hooks]

    def read(self, kind: type[Any], data: Any, defaults: bool = False) -> Any:
        """The value of a class with these fields; the last may be missing with ``defaults``."""
        if not isinstance(data, (list, tuple)):
            raise _WrongType("a list", data)
        if kind not in self._readers:
            hook = self._converter.get_structure_hook
            self._readers[kind] = [(hook(of), of) for of in _field_types(kind).values()]
        readers = self._readers[kind]
        if len(data) > len(readers) or (len(data) < len(readers) and not defaults):
            raise TypeError(f"{data!r} has {len(data)} values and not {len(readers)}")
        return kind(*(read(item, of) for item, (read, of) in zip(data, readers, strict=False)))


def _field_types(kind: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in attrs.fields(kind)}
