"""Candidates, printed as C and compiled by one compiler in one go."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from autotune.backends.backend import Executable
from autotune.backends.native.executable import Layout, NativeExecutable
from autotune.backends.native.exports.features import Machine
from autotune.lower import CEmitter, print_candidate
from autotune.sketches import Candidate

_HEAD = """\
#include <stddef.h>
#include <stdint.h>
typedef void autotune_task(void *const *arrays, int64_t begin, int64_t end, int64_t thread);
typedef void autotune_launch(void *pool, autotune_task *task, void *const *arrays, int64_t count);
"""


@frozen
class _Code:
    """Functions of a library whose names begin with a prefix; it is kept as long as they are."""

    library: ctypes.CDLL
    prefix: str
    digest: str = ""

    def address(self, name: str) -> int:
        function = getattr(self.library, f"{self.prefix}_{name}_called")
        return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def compiled(
    candidates: Sequence[Candidate], machine: Machine, compiler: str, folder: Path
) -> list[Executable]:
    """Programs of candidates, on one thread.

    Args:
        candidates: What is printed.
        machine: Whose registers and extensions they use.
        compiler: The command; everything that it warns of is an error.
        folder: For its files.
    """
    text, layouts = [_HEAD], []
    for number, candidate in enumerate(candidates):
        prefix = f"program{number}"
        emitter = CEmitter(prefix, machine.width, machine.c_features)
        program = print_candidate(candidate, emitter, machine.width)
        layouts.append(Layout.of(program, candidate.sketch.workload))
        text.append(str(program.text))
        text += [_called(prefix, entry) for entry in layouts[-1].entries]
    source, library = folder / "programs.c", folder / "programs.so"
    source.write_text("\n".join(text))
    options = ["-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o", str(library)]
    subprocess.run([compiler, *options, str(source), "-lm"], check=True)
    loaded = ctypes.CDLL(str(library))
    return [
        NativeExecutable(_Code(loaded, f"program{number}"), layout, it.sketch.workload, 1)  # type: ignore[arg-type]
        for number, (it, layout) in enumerate(zip(candidates, layouts, strict=True))
    ]


def _called(prefix: str, entry: str) -> str:
    return (
        f"int {prefix}_{entry}_called(void *const *arrays, autotune_launch *launch, void *pool) "
        f"{{\n  {prefix}_{entry}(arrays, launch, pool);\n  return 0;\n}}\n"
    )
