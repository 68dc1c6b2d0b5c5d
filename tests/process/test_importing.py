"""Packages are hidden from imports, and garbage is not looked for, as long as asked for."""

from __future__ import annotations

import gc
import importlib
import sys

import pytest

from autotune.process.importing import no_collection, packages_hidden


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


@pytest.mark.parametrize("is_enabled", [True, False])
def test_collection_is_as_it_was_before(is_enabled: bool) -> None:
    assert gc.isenabled()
    try:
        (gc.enable if is_enabled else gc.disable)()
        with pytest.raises(KeyError), no_collection():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() == is_enabled
    finally:
        gc.enable()
