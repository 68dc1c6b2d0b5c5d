from __future__ import annotations

import importlib.util
import re
from collections import defaultdict
from pathlib import Path

import pytest

from autotune.errors import UnknownNameError
from autotune.plugins import parts
from autotune.plugins.installing import install_distributions
from autotune.plugins.known_names import IN_REPOSITORY, OTHER_TUNERS, where_it_is
from autotune.plugins.manager import PluginManager
from autotune.plugins.spec import KINDS

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml"))
CORE = PluginManager(entry_points=[])


def registered(folder: str) -> dict[str, set[str]]:
    """Names by kind that a plugin of this repository registers, installed or not."""
    (path,) = ROOT.glob(f"plugins/{folder}/src/*/plugin.py")
    spec = importlib.util.spec_from_file_location(f"_plugin_{folder}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = defaultdict(set)
    for part in module.autotune_parts():
        found[part.kind].add(part.name)
    return dict(found)


def test_every_plugin_of_the_repository_is_listed() -> None:
    assert sorted(IN_REPOSITORY) == FOLDERS


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_listed_is_what_it_registers(folder: str) -> None:
    listed = {kind: set(names) for kind, names in IN_REPOSITORY[folder].items()}
    assert listed == registered(folder)
    project = (ROOT / "plugins" / folder / "pyproject.toml").read_text(encoding="utf-8")
    assert f'name = "autotune-{folder}"' in project


@pytest.mark.parametrize(
    ("kind", "name", "folder"),
    [
        (kind, name, folder)
        for folder, kinds in IN_REPOSITORY.items()
        for kind, names in kinds.items()
        for name in names
    ],
)
def test_a_part_that_is_not_installed_names_its_distribution(
    kind: str, name: str, folder: str
) -> None:
    with pytest.raises(UnknownNameError) as caught:
        CORE.get(kind, name)
    assert f"{name!r} is a part of autotune-{folder}, which is not installed" in str(caught.value)
    assert install_distributions(f"autotune-{folder}") in str(caught.value)


def test_one_that_is_installed_and_was_not_loaded_is_not_to_be_installed() -> None:
    assert where_it_is("strategy", "pruner", {"autotune-pruner"}) == ""
    assert where_it_is("strategy", "prunr") == ""


def test_a_record_of_a_part_that_is_not_installed_names_its_distribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parts, "manager", lambda: CORE)
    with pytest.raises(UnknownNameError, match=r"-m pip install \S*plugins/tvm"):
        parts.check_recorded("backend", "tvm")


@pytest.mark.parametrize(
    ("kind", "word"), [(kind, word) for kind, words in OTHER_TUNERS.items() for word in words]
)
def test_what_another_tuner_calls_a_part_leads_to_ours(kind: str, word: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        CORE.get(kind, word)
    sentence = OTHER_TUNERS[kind][word]
    assert sentence in str(caught.value)
    ours = {name for kind in KINDS for name in CORE.names(kind)}
    ours |= {name for it in IN_REPOSITORY.values() for names in it.values() for name in names}
    quoted = re.findall(r"'([a-z-]+)'", sentence)
    assert set(quoted) <= ours and (quoted or "--target" in sentence)
