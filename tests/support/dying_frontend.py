"""A frontend whose parser crashes, hangs or complains, as the text of the file says."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from pathlib import Path

from autotune.errors import InvalidValueError
from autotune.networks import LoadOptions, NetworkProgram
from autotune.testing.reference_frontend import ReferenceFrontend, three_layers


class DyingFrontend(ReferenceFrontend):
    """Reads any ``.onnx`` file as the same model, if it survives it."""

    name = "dying"
    sources = ("an .onnx file",)

    def accepts(self, source: object) -> bool:
        return isinstance(source, Path) and source.suffix == ".onnx"

    def check_file(self, path: Path) -> None:
        text = path.read_text()
        if text == "crash":
            ctypes.string_at(0)
        if text == "hang":
            time.sleep(600)
        if text == "error":
            raise ZeroDivisionError("no such node")
        if text != "fine":
            raise InvalidValueError(f"{str(path)!r} is damaged; export it again")

    def load(
        self, source: object, example_inputs: Sequence[object] | None, options: LoadOptions
    ) -> NetworkProgram:
        assert isinstance(source, Path) and source.read_text() == "fine", "it was parsed before"
        return super().load(three_layers()[0], example_inputs, options)
