"""Hints on what to install: pip itself has to understand them, and find what they name."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from autotune.plugins import installing
from autotune.plugins.installing import install_distributions, install_extra

EXTRAS = [("report", "tensor-autotune"), ("ray", "tensor-autotune"), ("torch", "tensor-autotune")]


def arguments_of(command: str) -> list[str]:
    """Arguments after the interpreter's ``-m pip install``."""
    interpreter, *words = shlex.split(command)
    assert (interpreter, words[:3]) == (sys.executable, ["-m", "pip", "install"])
    return words[3:]


@pytest.mark.parametrize(("extra", "distribution"), EXTRAS)
def test_an_extra_is_what_its_distribution_asks_for(extra: str, distribution: str) -> None:
    asked = [Requirement(line) for line in metadata.requires(distribution) or []]
    chosen = [it for it in asked if it.marker and it.marker.evaluate({"extra": extra})]
    always = [it.name for it in asked if it.marker is None]
    wanted = {(it.name, str(it.specifier)) for it in chosen if it.name not in always}
    found = [Requirement(text) for text in arguments_of(install_extra(extra, distribution))]
    assert {(it.name, str(it.specifier)) for it in found} == wanted
    # What is in an index, and not this project, which is in none.
    assert not any(re.search("autotune", it.name) for it in found)


def checkout_in(folder: Path, *plugins: str) -> Path:
    for name in ("tvm", *plugins):
        made = folder / "plugins" / name
        made.mkdir(parents=True, exist_ok=True)
        (made / "pyproject.toml").touch()
    return folder


class Installed:
    """A distribution that pip noted an origin of."""

    def __init__(self, origin: str | None) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps({"url": self.origin})


def installed(patch: pytest.MonkeyPatch, module: Path, origin: str | None) -> None:
    """The core runs in ``module``, and is installed from ``origin``."""
    patch.setattr(installing, "__file__", str(module))
    patch.setattr(metadata, "distribution", lambda name: Installed(origin))


@pytest.mark.parametrize("name", ["plain", "with a space and a %"])
def test_plugins_are_where_the_core_came_from(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = checkout_in(tmp_path / name, "pruner")
    module = tmp_path / "lib" / "site-packages" / "autotune" / "plugins" / "installing.py"
    installed(monkeypatch, module, checkout.as_uri())
    (folder,) = arguments_of(install_distributions("autotune-pruner"))
    assert (Path(folder) / "pyproject.toml").is_file()
    assert arguments_of(install_distributions("tensor-autotune")) == [str(checkout)]


@pytest.mark.parametrize(
    "origin", [None, "file:///nowhere", "file:///tmp/tensor_autotune-0.1.0-py3-none-any.whl"]
)
def test_sources_that_run_where_they_are_are_a_checkout(
    origin: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = checkout_in(tmp_path, "felix")
    module = checkout / "src" / "autotune" / "plugins" / "installing.py"
    installed(monkeypatch, module, origin)
    assert arguments_of(install_distributions("autotune-felix")) == [f"{checkout}/plugins/felix"]


@pytest.mark.parametrize("names", [("autotune-tvm",), ("tensor-autotune", "autotune-pruner")])
def test_without_a_checkout_the_command_is_for_one(
    names: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, tmp_path / "a" / "b" / "c" / "installing.py", None)
    command, place, _ = install_distributions(*names).partition(" in a checkout of autotune")
    folders = ["." if it == "tensor-autotune" else f"./plugins/{it[9:]}" for it in names]
    assert place and arguments_of(command) == folders
    monkeypatch.setattr(metadata, "requires", lambda name: [])
    command, place, _ = install_extra("report").partition(" in a checkout of autotune")
    assert place and arguments_of(command) == [".[report]"]
