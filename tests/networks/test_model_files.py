from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import AutotuneError, InvalidValueError
from autotune.networks import model_files
from autotune.networks.loading import load_network
from autotune.networks.source import read_source
from autotune.targets import preset

FRONTEND = "dying_frontend:DyingFrontend"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def load(path: Path, text: str) -> tuple[str, ...]:
    path.write_text(text)
    source = read_source(str(path))
    network = load_network(source, preset("skylake-avx512"), 1, frontend=FRONTEND)
    return tuple(task.name for task in network.tasks)


def test_a_sound_file_is_loaded(path: Path) -> None:
    assert load(path, "fine") == ("first", "scale", "second")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("crash", "model.onnx' cannot be read: the process that reads it: killed by SIGSEGV"),
        ("damaged", "model.onnx' is damaged; export it again"),
        ("error", "frontend 'dying' .* failed in check_file.*ZeroDivisionError: no such node"),
    ],
)
@pytest.mark.promise(
    "a model file that crashes or holds up what parses it",
    "one line that names the file; the caller's process lives",
)
def test_a_file_that_cannot_be_parsed_is_one_line(path: Path, text: str, message: str) -> None:
    with pytest.raises(AutotuneError, match=message) as caught:
        load(path, text)
    assert "\n" not in str(caught.value)


def test_a_parser_that_does_not_end_is_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "SECONDS", 3.0)
    with pytest.raises(InvalidValueError, match="the process that reads it: no answer in 3 s"):
        load(path, "hang")
