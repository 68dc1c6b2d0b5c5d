"""From a file to what its own format's package makes of it.

A file of somebody else may crash or hold up such a package, and is therefore parsed in a process
of its own first. Nothing here imports more than that package, which takes time enough.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.errors import InvalidValueError
from autotune_tvm.compiler import brief

__all__ = ["parse_json"]


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
