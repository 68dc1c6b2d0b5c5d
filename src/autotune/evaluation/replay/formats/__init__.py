"""Recorded spaces as files of others: caches of Kernel Tuner, T4 results, T1 descriptions.

They are told apart by what is in them.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError
from autotune.evaluation.replay.formats.fields import SECONDS, checked_unit, read_text
from autotune.evaluation.replay.formats.kernel_tuner_cache import (
    cache_text,
    parse_cache,
    read_cache,
)
from autotune.evaluation.replay.formats.t4 import (
    Description,
    check_described,
    read_t1,
    read_t4,
    t1_text,
    t4_text,
)
from autotune.evaluation.replay.recorded import RecordedSpace, make_space

__all__ = [
    "ENDINGS",
    "Description",
    "format_of",
    "read_description",
    "read_space",
    "read_spaces",
    "space_bytes",
]

KERNEL_TUNER, T1, T4 = "kernel-tuner", "t1", "t4"
ENDINGS: Mapping[str, str] = {".t1.json": T1, ".t4.json": T4, ".json": KERNEL_TUNER}
"""Format of a file that is written, by the end of its name, which ``.gz`` may follow."""

_SIGNS: Mapping[str, str] = {"ConfigurationSpace": T1, "results": T4, "cache": KERNEL_TUNER}
_SECOND_UNIT = "ms"


def read_spaces(
    paths: Sequence[str],
    described_by: str | None = None,
    units: Mapping[str, str] | None = None,
) -> list[RecordedSpace]:
    """The spaces of several files.

    Args:
        paths: Where they are.
        described_by: A T1 file that has their parameters and constraints, or None.
        units: Unit of the times of those, by name, whose files are wrong about it.

    Raises:
        InvalidValueError: a file cannot be read, or two have one name.
        UnknownNameError: there is no such unit, or no space of a name among ``units``.
    """
    description = None if described_by is None else read_description(described_by)
    units = units or {}
    spaces = [read_space(path, description) for path in paths]
    names = [space.name for space in spaces]
    for name in names:
        if names.count(name) > 1:
            raise InvalidValueError(f"two spaces are called {name!r}: rename one of the files")
    for name in units:
        if name not in names:
            raise UnknownNameError("space", name, names)
    return [
        space.scaled(checked_unit(units[space.name], space.name) / SECONDS[_SECOND_UNIT])
        if space.name in units
        else space
        for space in spaces
    ]


def read_space(path: str, description: Description | None = None) -> RecordedSpace:
    """The space of a file: a cache of Kernel Tuner, or results in T4.

    Args:
        path: Where it is; its name is that of the space, and of kernel and device where it is
            ``KERNEL-DEVICE`` and the file does not name them.
        description: The parameters and constraints that it has to agree with, or None.

    Raises:
        AutotuneError: it cannot be read, or contradicts the description; names what is wrong.
    """
    name = _stem(path)
    kernel, _, device = name.rpartition("-")
    data, kind = _read(path)
    try:
        if kind == KERNEL_TUNER:
            space = read_cache(data, name, device)
        elif kind == T4:
            parameters = None if description is None else description.parameters
            space = read_t4(data, name, kernel, device, parameters)
        else:
            raise InvalidValueError(f"{name} describes a space and has no results to replay")
        if description is not None:
            space = _described(space, description)
    except AutotuneError as error:
        raise InvalidValueError(f"{path!r}: {error}") from error
    return space


def _described(space: RecordedSpace, description: Description) -> RecordedSpace:
    """The space with the parameters of a description, which its configurations satisfy."""
    described = make_space(
        space.name,
        description.parameters,
        space.evaluations,
        space.kernel,
        space.device,
        space.problem,
        space.notes,
    )
    check_described(described, description)
    return described


def read_description(path: str) -> Description:
    """Parameters and constraints of a T1 file, or the parameters of a recorded space.

    Raises:
        AutotuneError: it cannot be read; names what is wrong.
    """
    data, kind = _read(path)
    if kind != T1:
        space = read_space(path)
        return Description(space.kernel, space.parameters)
    try:
        return read_t1(data, _stem(path))
    except AutotuneError as error:
        raise InvalidValueError(f"{path!r}: {error}") from error


def space_bytes(space: RecordedSpace, description: Description | None, path: str) -> bytes:
    """Return the bytes of a space's file of this name.

    Args:
        space: The space.
        description: Its parameters and constraints where they are known.
        path: Its end says the format; see ``ENDINGS``.

    Raises:
        InvalidValueError: it ends otherwise, or the format cannot say what there is.
    """
    kind = format_of(path)
    if kind == T1:
        text = t1_text(description or Description(space.kernel, space.parameters))
    else:
        text = t4_text(space) if kind == T4 else cache_text(space)
    # Without a time in it, equal spaces make equal files.
    return gzip.compress(text.encode(), mtime=0) if path.endswith(".gz") else text.encode()


def format_of(path: str) -> str:
    """The format of a file to be written.

    Raises:
        InvalidValueError: its name ends in none of ``ENDINGS``.
    """
    for ending, kind in ENDINGS.items():
        if path.removesuffix(".gz").endswith(ending):
            return kind
    raise InvalidValueError(
        f"{path!r} ends in none of {', '.join(ENDINGS)}, which .gz may follow: a recorded space "
        "is written as T4 (.t4.json), as a cache of Kernel Tuner (.json), or its parameters as T1"
    )


def _read(path: str) -> tuple[dict[str, Any], str]:
    """The object in a file, and its format."""
    text = read_text(path)
    if not text.strip():
        raise InvalidValueError(f"{path!r} is empty")
    try:
        data = parse_cache(text)
        for sign, kind in _SIGNS.items():
            if sign in data:
                return data, kind
        if "schema_version" in data:
            return data, T4
    except AutotuneError as error:
        raise InvalidValueError(f"{path!r}: {error}") from error
    raise InvalidValueError(
        f"{path!r} is no recorded space: it has none of {', '.join(map(repr, _SIGNS))}, by which "
        "T1, T4 and caches of Kernel Tuner are told"
    )


def _stem(path: str) -> str:
    name = Path(path).name.removesuffix(".gz")
    for ending in ENDINGS:
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name
