"""What a cost model begins with, by the name of what a plugin brings or by a file's path."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.models.cost import ModelFile, model_file, trained_model
from autotune.plugins import PluginSpec, parts
from autotune.plugins.manager import PluginManager


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a trained model ``brought-1``; another file of this name is at hand."""
    file = tmp_path / "weights.npz"
    file.write_bytes(b"weights")
    spec = PluginSpec("trained_model", "brought-1", lambda _context: file, "Weights for a test")
    manager = PluginManager(entry_points=())
    plugin = SimpleNamespace(autotune_parts=lambda: [spec])
    manager.register(plugin, "bringing")
    monkeypatch.setattr(model_file, "manager", lambda: manager)
    monkeypatch.setattr(parts, "manager", lambda: manager)
    monkeypatch.chdir(tmp_path)
    Path("brought-1").write_bytes(b"other")
    return file


def test_a_name_is_that_of_a_plugin_and_a_path_that_of_a_file(brought: Path) -> None:
    assert trained_model("brought-1") == ModelFile.at(brought)
    for path in ("./brought-1", Path("brought-1")):
        assert trained_model(path) == ModelFile.at("brought-1")


def test_a_name_without_a_suffix_may_be_that_of_a_file(brought: Path) -> None:
    Path("mine").write_bytes(b"other")
    assert trained_model("mine") == ModelFile.at("mine")


def test_what_is_neither_is_refused(brought: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'brought-1'.*no such file"):
        trained_model("brougt-1")
    with pytest.raises(InvalidValueError, match="'missing.npz' cannot be read"):
        trained_model("missing.npz")
