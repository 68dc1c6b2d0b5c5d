"""From what LLVM makes to a shared library that an RPC server can load."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from attrs import define, field

from autotune.backends import BuildFailed
from autotune.errors import InvalidValueError

__all__ = ["Toolchain", "sha256_of"]

_COMPILERS = ("cc", "gcc", "clang")
_SHOWN_CHARACTERS = 400
_MAIN = "int __tvm_ffi_main(void *a, const void *b, int c, void *d) {return 0;}\n"


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@define(eq=False)
class Toolchain:
    """A C compiler for the machines that programs go to, which also links.

    Attributes:
        command: The command and its first options, such as ``aarch64-linux-gnu-gcc``; "" finds
            the host's own.
    """

    command: str = ""
    _arguments: list[str] = field(factory=list, init=False)
    _helper: Path | None = field(default=None, init=False)
    _found_linker: str | None = field(default=None, init=False)

    def check(self) -> list[str]:
        """The command as arguments.

        Raises:
            InvalidValueError: there is no such compiler.
        """
        if not self._arguments:
            given = shlex.split(self.command)
            names = given[:1] or list(_COMPILERS)
            found = next((path for name in names if (path := shutil.which(name))), None)
            if found is None:
                wanted = repr(names[0]) if given else f"none of {', '.join(_COMPILERS)}"
                missing = f"{wanted} is {'not ' if given else ''}on the PATH"
                raise InvalidValueError(
                    f"programs for RPC servers are linked by a C compiler, but {missing}: "
                    "name one with the option cc, such as cc=aarch64-linux-gnu-gcc"
                )
            self._arguments = [found, *given[1:]]
        return self._arguments

    def link(self, module: Any, path: Path) -> str:
        """Make a shared library of a module of LLVM's with the function ``main``.

        Args:
            module: TVM's runtime module.
            path: Where to.

        Returns:
            The SHA-256 of what is in the file.

        Raises:
            BuildFailed: the linker refused.
        """
        helper = self._compiled_helper(path.parent)
        part = path.with_suffix(".o")
        try:
            module.write_to_file(str(part))
            self._link([part, helper], path)
        finally:
            part.unlink(missing_ok=True)
        return sha256_of(path)

    def link_parts(self, parts: Mapping[str, bytes], path: Path) -> str:
        """Make a shared library of object files and source files of C, by their names.

        Args:
            parts: Contents; one of them defines the function ``main``.
            path: Where to.

        Returns:
            The SHA-256 of what is in the file.

        Raises:
            BuildFailed: the compiler or the linker refused.
        """
        made = [self._compiled_helper(path.parent)]
        for name, content in parts.items():
            part = path.with_name(name)
            part.write_bytes(content)
            if part.suffix == ".c":
                source, part = part, part.with_suffix(".c.o")
                self._run(self.check(), ["-O2", "-fPIC", "-c", "-o", str(part), str(source)])
            made.append(part)
        self._link(made, path)
        return sha256_of(path)

    def probe(self, folder: Path) -> Path:
        """A shared library that says what machine loads it, and computes nothing."""
        helper = self._compiled_helper(folder)
        path, source = folder / "autotune_probe.so", folder / "autotune_probe.c"
        source.write_text(_MAIN)
        part = folder / "autotune_probe.o"
        self._run(self.check(), ["-O2", "-fPIC", "-c", "-o", str(part), str(source)])
        self._link([part, helper], path)
        return path

    def _link(self, parts: Sequence[Path], path: Path) -> None:
        """By the compiler's linker itself, which takes a quarter of the time, where that does."""
        arguments = ["-shared", "-o", str(path), *map(str, parts)]
        linker = self._linker()
        if linker:
            # What is left open, such as the C library's functions, the server's process has.
            self._run([linker], arguments)
        else:
            self._run(self.check(), ["-fPIC", *arguments])

    def _linker(self) -> str:
        """The linker that a compiler without options of its own would call; "" if unknown."""
        if self._found_linker is None:
            self._found_linker = ""
            if len(self.check()) == 1:
                told = self._run(self.check(), ["-print-prog-name=ld"]).strip()
                self._found_linker = shutil.which(told) or ""
        return self._found_linker

    def _compiled_helper(self, folder: Path) -> Path:
        if self._helper is None or not self._helper.exists():
            source = folder / "autotune_helper.c"
            text = resources.files("autotune_tvm.rpc").joinpath("helper.c").read_text()
            source.write_text(text)
            made = folder / "autotune_helper.o"
            self._run(self.check(), ["-O2", "-fPIC", "-c", "-o", str(made), str(source)])
            self._helper = made
        return self._helper

    def _run(self, program: Sequence[str], arguments: Sequence[str]) -> str:
        """Run a command; returns what it prints."""
        command = [*program, *arguments]
        # Temporary files of the compiler go where ours go.
        environment = {**os.environ, "TMPDIR": tempfile.gettempdir()}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", env=environment
            )
        except OSError as error:
            raise BuildFailed(f"{command[0]} cannot be run: {error}") from error
        if done.returncode != 0:
            said = " ".join(done.stderr.split())[:_SHOWN_CHARACTERS] or "no message"
            raise BuildFailed(f"{Path(command[0]).name} failed: {said}")
        return done.stdout
