from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from autotune.errors import InvalidValueError, PluginError, UnknownNameError, UnsupportedTarget
from autotune.networks.frontend import Frontend, NetworkProgram
from autotune.networks.loading import load_network, read_passes
from autotune.networks.source import (
    Source,
    find_frontend,
    in_precision,
    read_network,
    read_source,
)
from autotune.plugins.installing import install_distributions
from autotune.plugins.manager import PluginManager
from autotune.targets import preset
from autotune.testing.reference_frontend import (
    REFERENCE_FRONTEND,
    ReferenceFrontend,
    ReferenceModel,
    three_layers,
)

MACHINE = preset("haswell")
MODELS = """
import autotune.testing.reference_frontend as reference
network = reference.three_layers
def alone(): return network()[0]
def listed(): return network()[0], list(network()[1])
def array(): return network()[0], network()[1][0]
def broken(): raise RuntimeError("no weights here")
def number(): return 5
weights = 5
"""


class Named:
    """A manager that knows these frontends."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def names(self, kind: str) -> tuple[str, ...]:
        return self._names


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "given_models.py").write_text(MODELS)
    (tmp_path / "given_broken.py").write_text("import no_such_module_anywhere")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "given_models", raising=False)


@pytest.mark.parametrize("name", ["network", "listed", "array"])
def test_a_function_returns_a_model_and_its_inputs(name: str) -> None:
    source = read_source(f"given_models:{name}")
    assert isinstance(source.model, ReferenceModel)
    assert source.example_inputs is not None and len(source.example_inputs) == 1


def test_a_function_may_return_a_model_alone() -> None:
    source = read_source("given_models:alone")
    assert isinstance(source.model, ReferenceModel) and source.example_inputs is None


@pytest.fixture
def two_frontends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two frontends are installed, and no others."""

    class Json(ReferenceFrontend):
        formats = (".json", ".one")

    class Onnx(ReferenceFrontend):
        formats = (".one", ".onnx")

    parts = {"json": Json(), "onnx": Onnx()}
    monkeypatch.setattr("autotune.networks.source.manager", lambda: Named(tuple(parts)))
    monkeypatch.setattr(
        "autotune.networks.source.create_held_part", lambda kind, name: parts[name]
    )


@pytest.mark.usefixtures("two_frontends")
def test_a_file_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"")
    assert read_source(str(path)).model == path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("given_models:netwrk", "has no 'netwrk'; did you mean 'network'"),
        ("given_models:weights", "given_models:weights is of type int; name a function"),
        ("given_models:broken", "given_models:broken failed: RuntimeError: no weights here"),
        ("given_broken:model", "'given_broken' cannot be imported: ModuleNotFoundError"),
        ("no_such_models:model", "'no_such_models' cannot be imported"),
        ("given_models", "there is no file 'given_models'; name a file, or a function"),
        ("{folder}/modle.onnx", "did you mean 'model.onnx'"),
        ("{folder}", "is no file"),
        ("{folder}/model.txt", "by its name it is not a .json, .one or .onnx file; name another"),
    ],
)
def test_what_cannot_be_read_is_named(
    text: str, message: str, two_frontends: None, tmp_path: Path
) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    (tmp_path / "model.txt").write_bytes(b"")
    with pytest.raises(InvalidValueError) as raised:
        read_source(text.format(folder=tmp_path))
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_what_no_frontend_reads_is_refused_with_what_can_be_read() -> None:
    source = read_source("given_models:number")
    with pytest.raises(InvalidValueError, match="int is no model.*: a reference model"):
        find_frontend(source, REFERENCE_FRONTEND, MACHINE)
    with pytest.raises(UnknownNameError, match="unknown frontend 'nobody'"):
        find_frontend(source, "nobody", MACHINE)


def test_it_says_which_frontends_can_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.networks.source.manager", lambda: Named(("graph",)))
    message = r"What can be read: graph: .*; mlir, relax can be installed: .*plugins/tvm"
    with pytest.raises(InvalidValueError, match=message):
        find_frontend(Source(three_layers()[0], None, "model"), None, MACHINE)


@pytest.mark.usefixtures("two_frontends")
def test_the_first_that_makes_networks_for_the_target_reads_a_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Source(three_layers()[0], None, "model")
    read = [find_frontend(source, None, MACHINE).formats[0]]
    monkeypatch.setattr(
        "autotune.testing.reference_frontend.ReferenceFrontend.builds_for",
        lambda self, target: ".onnx" in self.formats,
    )
    read.append(find_frontend(source, None, MACHINE).formats[-1])
    assert read == [".json", ".onnx"]
    with pytest.raises(UnsupportedTarget, match="'reference', which makes no networks for .*'has"):
        find_frontend(source, "json", MACHINE)


class Twice(ReferenceFrontend):
    """Calls two tasks the same."""

    def load(self, *arguments: object) -> NetworkProgram:  # type: ignore[override]
        network = super().load(*arguments)  # type: ignore[arg-type]
        network.tasks = (network.tasks[0], network.tasks[0])
        return network


class Never(ReferenceFrontend):
    """Has a task that is never called."""

    def load(self, *arguments: object) -> NetworkProgram:  # type: ignore[override]
        network = super().load(*arguments)  # type: ignore[arg-type]
        network.tasks = (evolve(network.tasks[0], occurrences=0),)
        return network


@pytest.mark.parametrize(
    ("kind", "message"),
    [(Twice, "calls several tasks 'first'"), (Never, "'first' has 0 occurrences")],
)
def test_what_a_frontend_says_is_checked(
    kind: type[Frontend], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.networks.loading.find_frontend", lambda *_: kind())
    with pytest.raises(PluginError, match=f"frontend 'reference'.* {message}"):
        load_network(Source(three_layers()[0], None, "model"), MACHINE, 1)


def test_passes_are_read_from_texts() -> None:
    found = read_passes(["fold=off", "layout=given_models:number"])
    assert found["fold"] is None and found["layout"] is not None
    assert found["layout"].__name__ == "number"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["fold"], "not of the form NAME=off or NAME=module:function"),
        (["fold=on"], "not of the form"),
        (["fold=off", "fold=off"], "pass 'fold' is named twice"),
    ],
)
def test_what_is_no_pass_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        read_passes(texts)


def test_a_function_that_imports_torch_itself_is_called_with_a_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "torch")
    (tmp_path / "imports_torch.py").write_text(
        "import sys, types\n"
        "seeds = []\n"
        "def model():\n"
        "    fresh = types.SimpleNamespace(manual_seed=seeds.append)\n"
        "    sys.modules.setdefault('torch', fresh)\n"
        "    return len(seeds), (1,)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert read_source("imports_torch:model").model == 1


needs_torch = pytest.mark.needs("torch")


def test_what_cannot_be_converted_is_refused_by_name() -> None:
    source = Source(Path("model.onnx"), None, "model.onnx")
    assert in_precision(source, None) is source
    with pytest.raises(InvalidValueError, match=r"model\.onnx cannot be converted to float16: on"):
        in_precision(source, "float16")
    with pytest.raises(UnknownNameError, match="unknown precision 'float15'.*'float16'"):
        in_precision(source, "float15")


def layers() -> Any:
    """A module of two inputs in a tuple, one of them whole numbers, and a named output."""
    import torch

    class Chosen(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(8, 4)

        def forward(self, pair: Any) -> Any:
            x, places = pair
            return {"rows": self.first(x)[places]}

    torch.manual_seed(0)
    return Chosen().eval(), ((torch.randn(6, 8), torch.tensor([3, 1])),)


@needs_torch
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_weights_and_inputs_are_converted_and_the_model_stays(precision: str) -> None:
    import torch

    model, inputs = layers()
    source = Source(model, inputs, "layers")
    found: Any = in_precision(source, precision)
    kind = getattr(torch, precision)
    assert found.model.first.weight.dtype == kind and model.first.weight.dtype == torch.float32
    ((x, places),) = found.example_inputs
    assert (x.dtype, places.dtype) == (kind, torch.int64)
    assert found.text == f"layers in {precision}" and found.key != source.key
    # Of the inputs as they were rounded, in float32.
    (rows,) = found.wide((x, places))
    wanted = model((x.float(), places))["rows"].detach().numpy()
    np.testing.assert_array_equal(rows, wanted)
    half = found.model((x, places))["rows"].detach().float().numpy()
    assert 0 < np.abs(half - wanted).max() < 0.05
    array = np.asarray(inputs[0][0])
    given: Any = in_precision(Source(model, ((array, inputs[0][1]),), "layers"), precision)
    assert str(given.example_inputs[0][0].dtype) == precision


@needs_torch
def test_a_module_needs_example_inputs() -> None:
    with pytest.raises(InvalidValueError, match="layers has no example inputs"):
        in_precision(Source(layers()[0], None, "layers"), "float16")


@pytest.mark.parametrize("name", ["mobilenet_v2", "mobilnet_v2", "mine"])
def test_without_a_plugin_that_builds_networks_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    core = PluginManager(entry_points=[])
    monkeypatch.setattr("autotune.networks.source.manager", lambda: core)
    with pytest.raises(UnknownNameError) as caught:
        read_network(name, {})
    message = str(caught.value)
    assert "a part of autotune-zoo, which is not installed: run " in message
    assert install_distributions("autotune-zoo") in message and "\n" not in message
