"""Presets: published tuners by one name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toy_parts import REFERENCE_BACKEND

from autotune.cli.app import run
from autotune.errors import UnknownNameError
from autotune.plugins.spec import Preset
from autotune.store.sqlite import open_database
from autotune.tuning.options import Choice, TuneOptions

OWN = Preset(
    "own",
    "a tuner of this test",
    {"strategy": ("evolutionary", {"epsilon": 0.5, "population": 64}), "cost_model": "random"},
    round_size=10,
    differences=("it was never published",),
)
PUBLISHED = {
    "ansor": ("evolutionary", "gbdt", 64),
    "felix-published": ("felix", "felix-mlp-published", 64),
    "heron-published": ("heron", "gbdt", 32),
    "moa-pruner-published": ("moa-pruner", "moa-pacm", 10),
    "pruner-finetune": ("pruner", "pacm", 10),
    "pruner-offline": ("pruner", "pacm", 10),
    "pruner-published": ("pruner", "pacm", 10),
}


NEEDS = {
    "felix": ("felix", "torch"),
    "heron": ("heron",),
    "moa": ("pruner",),
    "pruner": ("pruner",),
}


def cases() -> list[Any]:
    """Published presets; of those whose models are torch's one runs at every change."""
    later = {
        **dict.fromkeys(("felix-published", "moa-pruner-published"), [pytest.mark.slow]),
        **dict.fromkeys(("pruner-finetune", "pruner-offline"), [pytest.mark.long]),
    }
    return [pytest.param(name, marks=[needing(name), *later.get(name, [])]) for name in PUBLISHED]


def needing(name: str) -> pytest.MarkDecorator:
    """Marks a test of a preset with what it needs."""
    return pytest.mark.needs(*NEEDS.get(name.partition("-")[0], ()))


def options(**given: Any) -> TuneOptions:
    return TuneOptions(target="zen4", threads=1, **given)


def test_a_preset_is_what_it_stands_for() -> None:
    short = options(preset=OWN)
    long = options(parts=OWN.parts, round_size=10, first_round=10, lookahead=0)
    assert short.decisions(2) == long.decisions(2)


def test_what_is_given_besides_counts() -> None:
    made = options(preset=OWN, round_size=4, parts={"strategy": {"epsilon": 0.1}})
    assert made.round_size == 4 and made.chosen["cost_model"].name == "random"
    assert made.chosen["strategy"] == Choice("evolutionary", {"epsilon": 0.1, "population": 64})
    other = options(preset=OWN, parts={"strategy": "heron"}).chosen["strategy"]
    assert other == Choice("heron")


def test_an_unknown_preset_is_named() -> None:
    with pytest.raises(UnknownNameError, match="unknown preset 'heron-publised'"):
        options(preset="heron-publised")


@pytest.mark.parametrize("name", [pytest.param(name, marks=needing(name)) for name in PUBLISHED])
def test_published_tuners_name_parts_that_there_are(name: str) -> None:
    made = options(preset=name)
    chosen = made.chosen["strategy"].name, made.chosen["cost_model"].name
    assert (*chosen, made.round_size) == PUBLISHED[name]


@pytest.mark.parametrize("name", cases())
def test_published_tuners_run(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strategy, cost_model, round_size = PUBLISHED[name]
    database = str(tmp_path / "records.db")
    program = ["gemm", "--shape", "m=32,n=32,k=32", "--backend", REFERENCE_BACKEND]
    asked = ["--preset", name, "--trials", "4", "--threads", "1", "--database", database]
    assert run(["tune", *program, *asked, "--json", str(tmp_path / "out.json")]) == 0
    said = capsys.readouterr().err
    result = json.loads((tmp_path / "out.json").read_text())
    assert (result["strategy"], result["cost_model"]) == (strategy, cost_model)
    assert said.count(f"{name} is not as published: ") >= 4
    assert "goes on without" not in said
    with open_database(database) as opened:
        (stored,) = opened.runs()
    assert (stored.options["round_size"], stored.options["lookahead"]) == (round_size, 0)
