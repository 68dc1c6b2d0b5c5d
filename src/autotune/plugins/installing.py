"""Commands that install what is missing, as they work where they are read.

No index of packages has this project. It has what extras ask for, which is therefore named;
a distribution of this repository is installed from the checkout that the core came from.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["install_distributions", "install_extra"]

_CORE = "tensor-autotune"


def install_extra(extra: str, distribution: str = _CORE) -> str:
    """Returns the command that installs what an extra of an installed distribution asks for.

    Such as `"/usr/bin/python3 -m pip install 'jinja2>=3.1' 'matplotlib>=3.8'"`.

    Args:
        extra: One that the distribution declares.
        distribution: The core, or a plugin of this repository.
    """
    try:
        lines = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        lines = []
    asked = re.compile(rf"""\bextra\s*==\s*["']{re.escape(extra)}["']""")
    packages = [line.partition(";")[0].strip() for line in lines if asked.search(line)]
    return _pip(packages) if packages else _from_checkout([distribution], f"[{extra}]")


def install_distributions(*names: str) -> str:
    """Returns the command that installs distributions of this repository.

    Such as `"/usr/bin/python3 -m pip install /home/me/autotune/plugins/pruner"`. Where what is
    installed does not tell where the checkout is, the command is for the checkout's folder.

    Args:
        names: Such as ``"autotune-pruner"``.
    """
    return _from_checkout(names)


def _from_checkout(names: Sequence[str], extra: str = "") -> str:
    checkout = _checkout()
    root = "." if checkout is None else str(checkout)
    folders = [
        root if name == _CORE else f"{root}/plugins/{name.removeprefix('autotune-')}"
        for name in names
    ]
    command = _pip([folder + extra for folder in folders])
    return f"{command} in a checkout of autotune" if checkout is None else command


def _pip(arguments: Sequence[str]) -> str:
    return shlex.join([sys.executable or "python3", "-m", "pip", "install", *arguments])


def _checkout() -> Path | None:
    """The checkout that the core was installed from, or runs in; None where neither is known."""
    found = [Path(__file__).parents[3]]
    try:
        origin = metadata.distribution(_CORE).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        origin = None
    if origin is not None:
        found.append(Path(unquote(urlsplit(json.loads(origin)["url"]).path)))
    return next(
        (it for it in found if (it / "plugins" / "tvm" / "pyproject.toml").is_file()), None
    )
