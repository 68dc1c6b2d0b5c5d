"""Packages that are hidden from imports, and for how long."""

from __future__ import annotations

import importlib
import sys

import pytest

from autotune.process.hidden_packages import packages_hidden


def test_hidden_packages_cannot_be_imported_until_later() -> None:
    sys.modules.pop("this", None)
    with packages_hidden("this", "json"):
        with pytest.raises(ModuleNotFoundError, match="this"):
            importlib.import_module("this")
        # Somebody has it, and may go on with it.
        assert importlib.import_module("json") is sys.modules["json"]
    assert importlib.import_module("this").__name__ == "this"
    assert importlib.import_module("json").dumps(1) == "1"


def test_an_error_leaves_nothing_hidden() -> None:
    sys.modules.pop("this", None)
    with pytest.raises(ZeroDivisionError), packages_hidden("this"):
        raise ZeroDivisionError
    assert "this" not in sys.modules
