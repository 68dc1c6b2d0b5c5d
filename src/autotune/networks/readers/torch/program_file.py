"""Files that ``torch.export.save`` wrote."""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from autotune.errors import InvalidValueError, one_line

__all__ = ["open_program", "quiet_torch"]

_TENSORS_ONLY = {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "0"}


def open_program(path: Path) -> Any:
    """The exported program in a file.

    Pickles in it are read for tensors only; a file with objects of other kinds is refused.

    Raises:
        InvalidValueError: the file is damaged, of another kind, or has objects in it.
    """
    _check_archive(path)
    try:
        with quiet_torch(), _tensors_only():
            return torch.export.load(path)
    except Exception as error:  # whatever torch's reader meets
        raise InvalidValueError(
            f"{str(path)!r} cannot be read by torch {torch.__version__}: {one_line(str(error))}"
        ) from error


def _check_archive(path: Path) -> None:
    """Refuse archives with pickled objects, which would be executed while they are read."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile) as error:
        raise InvalidValueError(
            f"{str(path)!r} is no exported program of torch ({error}); torch.export.save writes "
            "such files"
        ) from error
    for entry in names:
        kind = entry.rsplit("/", 1)[-1]
        if "constants/" in entry and kind.startswith(("opaque_obj", "custom_obj")):
            raise InvalidValueError(
                f"{str(path)!r} holds a pickled object ({entry}): reading it would execute what "
                "the file says; load it with torch.export.load, and give the program itself"
            )


@contextmanager
def _tensors_only() -> Iterator[None]:
    """Inside, torch reads pickles for tensors only, whatever its own callers ask for."""
    before = {name: os.environ.get(name) for name in _TENSORS_ONLY}
    os.environ.update(_TENSORS_ONLY)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Torch's exporter warns of its own deprecated functions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
