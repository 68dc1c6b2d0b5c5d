"""Tables that mirror code, compared with it."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any, get_args

import attrs
import pytest
from command_lines import commands

from autotune.cli.app import command_group
from autotune.ir.workloads import builders
from autotune.measure import MeasureProtocol
from autotune.models.features import FEATURE_NAMES, STATEMENT_FEATURES
from autotune.models.host import HostLimits
from autotune.nest import nest_tape
from autotune.nest.tape import OPERATIONS, build_tape
from autotune.networks.passes.pipeline import graph_passes
from autotune.plugins.spec import KINDS
from autotune.sketches.steps import STEP_TYPES
from autotune.spaces import BUILT_IN_RULES, ScheduleLimits
from autotune.spaces.rules import generate_sketches
from autotune.spaces.rules.multi_level_tiling import GPU_LABELS, PACKINGS
from autotune.spaces.rules.row_fusion import GPU_ROW_LABELS
from autotune.store.records import OUTCOME_STATUSES
from autotune.targets import preset
from autotune.tuning.events import Event, event_name

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GOLDEN_RESULT = ROOT / "tests" / "report" / "result_version_1.json"


def rows(page: str, head: str) -> list[list[str]]:
    """Cells of the table of a page whose first heading is ``head``."""
    lines = iter((DOCS / page).read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.startswith(f"| {head} |"):
            break
    next(lines)
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


def names(cell: str) -> list[str]:
    """Code in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def first_names(page: str, head: str) -> list[str]:
    """Code in the first cell of each row."""
    return [name for row in rows(page, head) for name in names(row[0])]


def test_passes_of_networks_are_in_their_order() -> None:
    assert first_names("networks.md", "pass") == list(graph_passes())


def test_steps() -> None:
    assert first_names("steps.md", "step") == list(STEP_TYPES)
    for row in rows("steps.md", "step"):
        cls = STEP_TYPES[names(row[0])[0]]
        assert names(row[3]) == [attribute.name for attribute in attrs.fields(cls)]


def test_features() -> None:
    assert tuple(first_names("loop-nest.md", "feature")) == STATEMENT_FEATURES
    (summed, main, *extra) = rows("loop-nest.md", "columns")
    assert {f"all.{name}" for name in names(summed[1])} == {
        name for name in FEATURE_NAMES if name.startswith("all.")
    }
    assert names(main[0]) == ["main.*"]
    plain = tuple(name for name in FEATURE_NAMES if "." not in name)
    assert tuple(name for row in extra for name in names(row[0])) == plain


def test_tape() -> None:
    documented = [*first_names("loop-nest.md", "output"), *first_names("loop-nest.md", "total")]
    patterns = {name: re.compile(_pattern(name)) for name in documented}
    found = set()
    for target in ("avx2", "a100"):
        limits = ScheduleLimits(frozenset(STEP_TYPES), 1 << 16, 512, "test")
        workload = builders.conv2d(h=14, w=14, ci=16, co=32, pad=1)
        for sketch in generate_sketches(workload, preset(target), limits, BUILT_IN_RULES).sketches:
            made = nest_tape(sketch)
            statements = {statement.name for statement in made.nest.statements}
            for output in made.tape.output_index:
                owner, _, rest = output.partition("/")
                name = rest if owner in statements else output
                matches = [label for label, pattern in patterns.items() if pattern.fullmatch(name)]
                assert len(matches) == 1, (output, matches)
                found.update(matches)
    assert found == set(documented)


def _pattern(documented: str) -> str:
    words = {"BUFFER": r"[\w.]+", "KIND": r"\w+"}
    numbers = dict.fromkeys(("LOOP", "DEPTH", "DIMENSION"), r"\d+")
    return "/".join({**words, **numbers}.get(part, part) for part in documented.split("/"))


def test_instructions_and_json_of_a_tape() -> None:
    assert tuple(first_names("loop-nest.md", "operation")) == OPERATIONS
    tape = build_tape((), {})
    assert first_names("loop-nest.md", "field") == list(tape.to_json())


def test_result_file() -> None:
    golden = json.loads(GOLDEN_RESULT.read_text(encoding="utf-8"))
    documented = set(first_names("records.md", "result field"))
    parents = {
        *("task", "target", "backend", "seconds", "baseline", "best", "best.record"),
        *("confirmation", "run"),
    }
    flat = flattened(golden, parents)
    assert documented == flat | (documented & parents)


def test_events() -> None:
    documented = {
        names(row[0])[0]: (names(row[1]), names(row[2])) for row in rows("records.md", "event")
    }
    assert documented == {
        event_name(kind): ([kind.__name__], [item.name for item in attrs.fields(kind)])
        for kind in get_args(Event)
    }


def flattened(value: dict[str, Any], parents: set[str], prefix: str = "") -> set[str]:
    """Dotted names of fields, into the objects in ``parents``."""
    found: set[str] = set()
    for key, item in value.items():
        name = prefix + key
        found |= flattened(item, parents, name + ".") if name in parents else {name}
    return found


def test_packings_and_rules() -> None:
    assert first_names("search-space.md", "sketch") == [packing.label for packing in PACKINGS]
    documented = first_names("search-space.md", "rule")
    assert documented == [rule.name for rule in BUILT_IN_RULES]
    on_gpus = first_names("search-space.md", "rule on GPUs")
    assert on_gpus == [name for name in documented if name in on_gpus]
    assert first_names("search-space.md", "GPU sketch") == [*GPU_LABELS, *GPU_ROW_LABELS]


def test_limits_of_models() -> None:
    defaults = {field.name: field.default for field in attrs.fields(HostLimits)}
    found = {names(name)[0]: default for name, default, _ in rows("models.md", "limit")}
    assert found == {
        name: "none" if default is None else f"{default:g}" for name, default in defaults.items()
    }


@pytest.mark.needs("tvm")
def test_limits_of_tvm() -> None:
    from autotune_tvm.backend import TVMBackend

    from autotune.targets import preset

    backend = TVMBackend()
    limits = backend.limits(preset("avx2"))
    text = (DOCS / "search-space.md").read_text(encoding="utf-8")
    assert f"TVM: at most {limits.unrolled_statements} |" in text
    assert f"TVM: at most {limits.stack_bytes >> 20} MiB |" in text


def test_phases_and_outcomes() -> None:
    protocol = MeasureProtocol()
    documented = {names(row[0])[0]: float(row[1]) for row in rows("measuring.md", "phase")}
    assert documented == dict(protocol.deadlines)
    assert tuple(first_names("measuring.md", "status")) == OUTCOME_STATUSES
    text = (DOCS / "measuring.md").read_text(encoding="utf-8")
    assert f"`{protocol.identity}`" in text


def test_the_json_of_every_command_is_shown() -> None:
    assert set(first_names("cli.md", "command")) == set(dict(commands(command_group)))


def test_workloads() -> None:
    for name in first_names("parts.md", "workload"):
        assert callable(getattr(builders, name))


def test_kinds_of_parts() -> None:
    documented = {names(row[0])[0]: names(row[2])[0] for row in rows("plugins.md", "kind")}
    assert documented == dict(KINDS)
    contexts = {names(row[0])[0]: names(row[1]) for row in rows("plugins.md", "kind")}
    assert contexts.pop("workload") == []
    for kind, (path, *fields) in contexts.items():
        module, _, name = path.rpartition(".")
        context = getattr(importlib.import_module(module), name)
        assert set(attrs.fields_dict(context)) == {*fields}, kind


def test_suites() -> None:
    for row in rows("plugins.md", "interface"):
        module, _, suite = names(row[1])[0].rpartition(".")
        for fixture in names(row[2]):
            assert hasattr(getattr(importlib.import_module(module), suite), fixture)


def test_every_suite_is_documented() -> None:
    folder = Path(importlib.import_module("autotune.testing").__file__ or "").parent
    modules = {path.stem for path in folder.glob("*_suite.py")}
    documented = {names(row[1])[0].split(".")[2] for row in rows("plugins.md", "interface")}
    assert documented == modules


@pytest.mark.parametrize(("section", "least"), [("Constraints", 25), ("Relaxed schedules", 40)])
def test_laws_name_tests_that_exist(section: str, least: int) -> None:
    text = (ROOT / "tests" / "laws.md").read_text(encoding="utf-8")
    lines = text.partition(f"## {section}\n")[2].partition("\n## ")[0].splitlines()
    named = [name for line in lines if line.startswith("|") for name in names(line)]
    folders = (ROOT / "tests", *ROOT.glob("plugins/*/tests"), ROOT / "src")
    assert len(named) > least
    for name in named:
        file, _, test = name.partition("::")
        texts = [path.read_text(encoding="utf-8") for it in folders for path in it.rglob(file)]
        assert any(f"def {test}(" in text for text in texts), name


def test_every_class_of_options_is_shown() -> None:
    page = (DOCS / "parts.md").read_text(encoding="utf-8")
    declared, bases = set(), set()
    for folder in (ROOT / "src", *ROOT.glob("plugins/*/src")):
        files = (path for path in folder.rglob("*.py") if "testing" not in path.parts)
        text = "".join(path.read_text(encoding="utf-8") for path in files)
        for name, body in re.findall(r"^class (\w+Options)\b.*:\n((?:(?: .*)?\n)*)", text, re.M):
            if re.search(r"^    \w+: \w+ = option\(", body, re.M):
                declared.add(name)
        bases.update(re.findall(r"^class \w+Options\((\w+)\)", text, re.M))
    shown = set(re.findall(r"^[\w-]+: [\w.]+:(\w+)$", page, re.M))
    assert declared and not declared - shown - bases
