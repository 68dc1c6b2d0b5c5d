"""Specs: external programs as TOML or JSON, through one strict schema.

Read into data only: no word of a spec is evaluated, and its commands are run by nothing here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.errors import InvalidValueError
from autotune.external.program import ExternalProgram, parameters_of, table
from autotune.ir.converter import from_json
from autotune.ir.text_files import document
from autotune.spaces.parameters import Parameter

__all__ = ["parameters_of_text", "program_of", "program_of_text", "read_spec"]

_MOST_BYTES = 1 << 22


def read_spec(path: str | Path) -> ExternalProgram:
    """The program that a spec describes; a file that ends in ``.json`` is JSON, others are TOML.

    Raises:
        InvalidValueError: the file cannot be read, is neither, or says something that cannot be.
        UnknownNameError: it has a key, a placeholder or a word that there is none of.
    """
    path = Path(path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InvalidValueError(f"spec {str(path)!r} has more than {_MOST_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidValueError(f"cannot read spec {str(path)!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidValueError(f"spec {str(path)!r} is no text in UTF-8") from None
    data = document(text, f"spec {str(path)!r}", is_json=path.suffix == ".json")
    return program_of(data, path.resolve().parent, path.stem)


def program_of_text(text: str, directory: str | Path) -> ExternalProgram:
    """The program of :attr:`ExternalProgram.text`.

    Raises:
        AutotuneError: as of :func:`program_of`.
    """
    return program_of(_loaded(text), directory)


def parameters_of_text(text: str) -> tuple[Parameter, ...]:
    """The parameters of :attr:`ExternalProgram.text`, such as a record holds.

    Raises:
        InvalidValueError: it is no such text.
        UnknownNameError: it has a key that there is none of.
    """
    data = table("the program of a record", _loaded(text))
    return parameters_of(data.get("parameters"))


def program_of(data: object, directory: str | Path, name: str = "external") -> ExternalProgram:
    """The program that the object of a spec describes.

    Args:
        data: The object.
        directory: What a relative ``directory`` of it is relative to.
        name: What the program is called if the spec does not say.

    Raises:
        InvalidValueError: something is of the wrong type, out of range, or contradicts another.
        UnknownNameError: a key, a placeholder or a word does not exist; names what is near.
    """
    spec = {"name": name, **table("a spec", data)}
    run, read = spec.get("run"), spec.get("read", {})
    if isinstance(read, Mapping):
        is_called = isinstance(run, Mapping) and "command" not in run
        usual = "function" if is_called else "wall"
        usual = "stdout" if read.get("pattern") else "json" if read.get("field") else usual
        spec["read"] = {"from": usual, **read}
    spec["directory"] = _folder(Path(directory), spec.get("directory", "."))
    return from_json(ExternalProgram, spec)


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"not the text of an external program: {error}") from None


def _folder(base: Path, given: object) -> Path:
    if not isinstance(given, str):
        raise InvalidValueError(f"directory is a text, not {given!r}")
    directory = (base / given).resolve()
    if not directory.is_dir():
        raise InvalidValueError(f"directory {given!r}: there is no folder {str(directory)!r}")
    return directory
