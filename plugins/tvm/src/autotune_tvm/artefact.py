"""A compiled program in one file, for a process that runs it and compiles nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from autotune.backends import BuildFailed
from autotune.ir.converter import JsonForm
from autotune_tvm import runtime
from autotune_tvm.compiler import brief
from autotune_tvm.executable import PackedOperand

__all__ = ["LIBRARY", "Link", "StoredProgram", "read_library", "read_program", "write_program"]

Link = Callable[[Any, Path], object]
"""Makes a shared library of a module."""

LIBRARY, _DESCRIPTION = "program.so", "program.json"
# A zip file holds dates; equal programs have equal files.
_EPOCH = (1980, 1, 1, 0, 0, 0)


@frozen
class StoredProgram(JsonForm):
    """Contents of the file beside the shared library.

    Attributes:
        arguments: Names of the tensors in the function's own order.
        digest: Of its code.
        packed: Constants that ``main`` takes packed.
    """

    arguments: tuple[str, ...]
    digest: str
    packed: tuple[PackedOperand, ...] = ()


def write_program(
    path: Path, module: Any, program: StoredProgram, link: Link | None = None
) -> None:
    """Link a module into a shared library, and write it with its description.

    Args:
        path: Where to.
        module: TVM's runtime module.
        program: The description.
        link: Makes the library; by default the host's compiler does, as TVM calls it.

    Raises:
        BuildFailed: it cannot be linked; the message is the start of the linker's.
    """
    with tempfile.TemporaryDirectory(prefix="export-") as folder:
        library = Path(folder) / LIBRARY
        try:
            if link is None:
                module.export_library(str(library), **_linking())
            else:
                link(module, library)
        except BuildFailed:
            raise
        except Exception as error:  # the linker's failure is a RuntimeError, and others
            raise BuildFailed(f"the program cannot be exported: {brief(error)}") from error
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(zipfile.ZipInfo(LIBRARY, _EPOCH), library.read_bytes())
            text = json.dumps(program.to_json(), sort_keys=True)
            archive.writestr(zipfile.ZipInfo(_DESCRIPTION, _EPOCH), text)


def _linking() -> dict[str, Any]:
    """Linking command: the linker alone takes a third of the time of a compiler driver."""
    linker = shutil.which("ld")
    if linker is None:
        return {}

    def link(output: str, objects: Sequence[str], options: object = None, **_: object) -> None:
        command = [linker, "-shared", "-o", output, *objects]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip() or f"{linker} ended with {done.returncode}")

    return {"fcompile": link}


def read_program(path: Path) -> tuple[Any, StoredProgram]:
    """The module and the description that :func:`write_program` has written.

    Raises:
        BuildFailed: the file is no such program, or cannot be loaded here.
    """
    content, described = read_library(path)
    try:
        with tempfile.TemporaryDirectory(prefix="load-") as folder:
            library = Path(folder) / LIBRARY
            library.write_bytes(content)
            # Mapped: the file itself is needed no longer.
            module = runtime.load().runtime.load_module(str(library))
    except Exception as error:  # a damaged library may make anything raise
        raise BuildFailed(
            f"the program in {path.name} cannot be loaded: {brief(error)}"
        ) from error
    return module, described


def read_library(path: Path) -> tuple[bytes, StoredProgram]:
    """The content of the shared library, which is not loaded, and the description.

    Raises:
        BuildFailed: the file is no such program.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            described = StoredProgram.from_json(json.loads(archive.read(_DESCRIPTION)))
            return archive.read(LIBRARY), described
    except Exception as error:  # a damaged file may make anything raise
        raise BuildFailed(
            f"the program in {path.name} cannot be loaded: {brief(error)}"
        ) from error
