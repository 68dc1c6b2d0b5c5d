"""Joins the files of a bundle that `gpu_bundle.py` made, and checks every one by its hash.

Usage: python3 gpu_reassemble.py BUNDLE FOLDER    (the folder is made)

Needs nothing but Python: it runs where nothing is installed yet.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

CHUNK = 1 << 20


def main(arguments: list[str]) -> int:
    """Run; returns the exit status."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    bundle, folder = map(Path, arguments)
    try:
        files = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))["files"]
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            join(bundle, folder, file)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"error: {bundle}: {error}", file=sys.stderr)
        return 1
    print(f"{len(files)} files, {sum(file['size'] for file in files) / 2**20:.0f} MiB")
    return 0


def join(bundle: Path, folder: Path, file: dict[str, Any]) -> None:
    """A file from its parts; raises ValueError where something is not what the manifest says."""
    name, whole = file["name"], hashlib.sha256()
    if Path(name).name != name:
        raise ValueError(f"{name!r} is no name of a file")
    target = folder / name
    with target.open("wb") as joined:
        for part in file["parts"]:
            path = Path(part["path"])
            if path.is_absolute() or ".." in path.parts:
                raise ValueError(f"{part['path']!r} is outside of the bundle")
            with (bundle / path).open("rb") as source:
                while piece := source.read(CHUNK):
                    joined.write(piece)
                    whole.update(piece)
    if whole.hexdigest() != file["sha256"]:
        target.unlink()
        raise ValueError(f"{name} is damaged: its sha256 is not that of the manifest")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
