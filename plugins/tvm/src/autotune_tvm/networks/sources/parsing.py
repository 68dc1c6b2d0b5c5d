"""From a file to what its own format's package makes of it.

A file of somebody else may crash or hold up such a package, and is therefore parsed in a process
of its own first. Nothing here imports more than that package, which takes time enough.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from autotune.errors import InvalidValueError
from autotune.plugins.installing import install_extra
from autotune_tvm.compiler import brief
from autotune_tvm.runtime import environment

__all__ = ["parse_json", "parse_pt2", "quiet_torch"]


def parse_pt2(path: Path) -> Any:
    """The exported program in a file that ``torch.export.save`` wrote; imports no TVM.

    Pickles in it are read for tensors only; a file with objects of other kinds is refused.

    Raises:
        InvalidValueError: the file is damaged, of another kind, or has objects in it, or torch
            is missing.
    """
    try:
        import torch
    except ImportError as error:
        raise InvalidValueError(
            f"{str(path)!r} is read with torch, which is not installed: run "
            + install_extra("torch")
        ) from error

    _check_archive(path)
    try:
        with quiet_torch(), _tensors_only():
            return torch.export.load(path)
    except Exception as error:  # whatever torch's reader meets
        raise InvalidValueError(
            f"{str(path)!r} cannot be read by torch {torch.__version__}: {brief(error)}"
        ) from error


def parse_json(path: Path) -> Any:
    """The ``IRModule`` in a file that holds what ``tvm.ir.save_json`` returned.

    Raises:
        InvalidValueError: the file holds something else.
    """
    from tvm.ir import IRModule, load_json

    try:
        module = load_json(path.read_text())
    except Exception as error:  # whatever the reader raises for text that is not its own
        raise InvalidValueError(
            f"{str(path)!r} is no Relax module in JSON ({brief(error)}); tvm.ir.save_json writes "
            "such files"
        ) from error
    if not isinstance(module, IRModule):
        raise InvalidValueError(
            f"{str(path)!r} holds an object of type {type(module).__name__}, not a Relax module"
        )
    return module


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


def _tensors_only() -> AbstractContextManager[None]:
    """Inside, torch reads pickles for tensors only, whatever its own callers ask for."""
    return environment(TORCH_FORCE_WEIGHTS_ONLY_LOAD="1", TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD="0")


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Torch's exporter warns of its own deprecated functions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
