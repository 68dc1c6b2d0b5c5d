from __future__ import annotations

import importlib
import mmap
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import attrs
import pytest
from python_processes import run_python

import autotune
import autotune.plugins.builtin
from autotune.errors import PluginError, UnknownNameError
from autotune.measure.observers import Observer
from autotune.plugins import Context, PluginSpec
from autotune.plugins import manager as plugins
from autotune.plugins.manager import PluginManager, PluginStatus
from autotune.plugins.spec import API_VERSION, KINDS
from autotune.tuning.options import Choice, chosen_parts

EXAMPLE = Path(__file__).parents[1] / "third_party" / "autotune_example"


@pytest.fixture(autouse=True)
def _no_disabled_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(plugins.DISABLE_VARIABLE, raising=False)


@pytest.fixture(scope="session")
def example_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the third-party distribution."""
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "--target", str(site)]
    subprocess.run([*command, str(EXAMPLE)], check=True, timeout=300)
    return site


@pytest.fixture
def example(example_site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(example_site))
    yield
    for name in [name for name in sys.modules if name.startswith("autotune_example")]:
        del sys.modules[name]


class Site:
    """A folder of hand-written distributions on the import path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, name: str, body: str) -> None:
        (self.folder / f"{name}_module.py").write_text(textwrap.dedent(body))
        info = self.folder / f"{name}_dist-0.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-dist\nVersion: 0.5\n")
        (info / "entry_points.txt").write_text(f"[autotune]\n{name} = {name}_module\n")

    def entry_points(self) -> list[metadata.EntryPoint]:
        found = metadata.distributions(path=[str(self.folder)])
        return [point for dist in found for point in dist.entry_points]

    def manager(self) -> PluginManager:
        return PluginManager(entry_points=self.entry_points())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Site(tmp_path)
    for name in [name for name in sys.modules if name.endswith("_module")]:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


GOOD = """
    from autotune.plugins import PluginSpec

    class Part:
        def __init__(self, context):
            self.options = context.options

    def autotune_parts():
        return [PluginSpec("strategy", "{name}", Part, "A part")]
"""

MARKED = GOOD.replace(
    "    def autotune_parts", "    @autotune.hookimpl\n    def autotune_parts"
).replace("from autotune.plugins", "import autotune\n    from autotune.plugins")


def failures(manager: PluginManager) -> list[PluginStatus]:
    return [status for status in manager.report() if status.status != "ok"]


def test_the_example_is_swapped_in_by_name(example: None) -> None:
    manager = PluginManager()
    assert "example-memory" in manager.names("observer")
    assert "autotune_example.observer" not in sys.modules, "listing must not import the part"
    assert isinstance(manager.factory("observer", "example-memory")(Context()), Observer)
    ok = PluginStatus("observer", "example-memory", "autotune-example", "1.2.3", "ok")
    assert ok in manager.report()


def test_the_example_observes(example: None) -> None:
    observer = PluginManager().factory("observer", "example-memory")(Context())
    assert isinstance(observer, Observer)
    found = observer.check()
    assert found.reads and not found.absent
    observer.before_run()
    # Fresh pages: what an allocator returns may be resident since earlier tests.
    with mmap.mmap(-1, 1 << 24) as kept:
        kept.write(bytes(range(256)) * (len(kept) >> 8))
        observer.after_run()
    readings = observer.readings(1)
    assert set(readings) == set(found.reads)
    assert readings["resident_growth_bytes"] >= 1 << 23
    assert readings["resident_bytes"] > readings["resident_growth_bytes"]


@pytest.mark.parametrize("name", ["example", "autotune-example", "*"])
def test_disabled_by_name_of_entry_point_or_distribution(
    example: None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "example-memory" not in PluginManager(disabled=[name]).names("observer")
    monkeypatch.setenv(plugins.DISABLE_VARIABLE, f"nothing , {name}")
    manager = PluginManager()
    assert "autotune_example.plugin" not in sys.modules
    # Other plugins that are installed here are not touched.
    assert set(manager.names("backend")) >= {"cuda", "native"}
    assert "example-memory" not in manager.names("observer")
    with pytest.raises(UnknownNameError, match="'example' is disabled"):
        manager.get("observer", "example-memory")
    absent = [status for status in failures(manager) if status.name == "nothing"]
    assert absent and absent[0].error == "asked to be disabled, but not installed"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import a_module_that_is_not_there", "ModuleNotFoundError: No module named"),
        ("raise SystemExit('bye')", "SystemExit: bye"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt: (no message)"),
        (GOOD.replace("return", "raise KeyboardInterrupt #"), "KeyboardInterrupt: (no message)"),
        (GOOD.replace("return", "raise GeneratorExit #"), "GeneratorExit: (no message)"),
        ("class Odd(BaseException):\n    pass\nraise Odd('x')", "Odd: x"),
        (
            "class Mute(Exception):\n    def __str__(self):\n        raise self\nraise Mute",
            "Mute: (its text cannot be made: Mute)",
        ),
        ("x = 1", "registers nothing"),
        (
            GOOD.format(name="broken") + f"\n    AUTOTUNE_API_VERSION = {API_VERSION + 1}",
            f"written for plugin interface {API_VERSION + 1}, while this autotune has",
        ),
        (GOOD.format(name="Has Spaces"), "name 'Has Spaces' is not made of"),
        (GOOD.replace("A part", " "), "has no description"),
        (GOOD.replace("Part, ", "'no colon', "), "is not 'module:attribute'"),
        (GOOD.replace("Part, ", "7, "), "neither callable nor an import string"),
        (GOOD.replace("[PluginSpec", "[1, PluginSpec"), "autotune_parts returned a int"),
        (GOOD.replace("return [", "return 'x' or ["), "returned str, not a list"),
        (GOOD.replace("parts()", "part()"), "no function 'autotune_parts', only 'autotune_part'"),
        (GOOD.replace("parts()", "parts(many)"), "Argument(s) {'many'} are declared"),
        (MARKED.replace("parts()", "parts(many)"), "Argument(s) {'many'} are declared"),
        (MARKED.replace("autotune_parts", "autotune_part"), "unknown hook 'autotune_part'"),
        (MARKED.replace("hookimpl\n", "hookimpl(wrapper=True)\n"), "historic incompatible"),
        ("autotune_parts = int", "registers nothing"),
        (GOOD.replace("return", "return None or print() and"), "returned NoneType, not a list"),
        (GOOD.replace('"strategy"', '"strategys"'), "Did you mean 'strategy'"),
        (GOOD.replace("return [", "return [] and ["), "returned an empty list"),
        (GOOD.replace("return", "raise OSError(7) #"), "OSError: 7"),
        (GOOD.replace("return", "yield"), "returned generator"),
        (
            GOOD.replace('"A part")]', '"A part")] * 2'),
            "is there twice",
        ),
        (GOOD.replace('"A part")', '"A part", options=[1])'), "do not map names to descriptions"),
    ],
)
@pytest.mark.promise(
    "a plugin that cannot be loaded",
    "it is quarantined and named; other plugins keep working",
)
def test_a_broken_plugin_is_quarantined(site: Site, body: str, reason: str) -> None:
    site.add("good", GOOD.format(name="good"))
    site.add("broken", body.replace("{name}", "broken"))
    manager = site.manager()
    assert "good" in manager.names("strategy")
    (status,) = failures(manager)
    assert (status.kind, status.name, status.status) == ("plugin", "broken", "quarantined")
    assert (status.distribution, status.version) == ("broken-dist", "0.5")
    assert reason in status.error
    with pytest.raises(UnknownNameError, match="'broken' is quarantined") as caught:
        manager.get("strategy", "brokn")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (GOOD, ["mine"]),
        (MARKED, ["mine"]),
        (
            MARKED.replace("hookimpl\n", "hookimpl(specname='autotune_parts')\n").replace(
                "def autotune_parts", "def other"
            ),
            ["mine"],
        ),
        (
            MARKED
            + """
    @autotune.hookimpl(specname="autotune_parts")
    def more():
        return [PluginSpec("strategy", "further", Part, "A part")]
""",
            ["further", "mine"],
        ),
    ],
    ids=["not marked", "marked", "of another name", "two functions"],
)
def test_functions_are_known_by_their_name_or_their_mark(
    site: Site, body: str, names: list[str]
) -> None:
    before = set(PluginManager(entry_points=[]).names("strategy"))
    site.add("mine", body.format(name="mine"))
    manager = site.manager()
    assert not failures(manager)
    assert sorted(set(manager.names("strategy")) - before) == names
    assert manager.has_plugin("mine-dist:mine")


def test_entry_points_of_two_distributions_may_have_one_name(site: Site) -> None:
    site.add("one", GOOD.format(name="one"))
    site.add("two", GOOD.format(name="two"))
    for info in site.folder.glob("*.dist-info/entry_points.txt"):
        info.write_text(info.read_text().replace("one =", "same =").replace("two =", "same ="))
    manager = site.manager()
    assert not failures(manager) and {"one", "two"} <= set(manager.names("strategy"))


def test_what_pluggy_traces(site: Site) -> None:
    """A plugin's author sees each registration, and what the hook returned or raised."""
    site.add("good", MARKED.format(name="good"))
    site.add("wrong", GOOD.replace("return", "raise OSError(7) #"))
    lines: list[str] = []
    manager = PluginManager(entry_points=[])
    manager.trace.root.setwriter(lines.append)
    manager.enable_tracing()
    manager.load(site.entry_points())
    text = "".join(lines)
    assert text.count("autotune_parts [hook]") == 2
    assert re.search(
        r"register 'good' of good-dist.*\n.*\n *finish autotune_parts --> .*A part", text
    )
    assert "register 'wrong' of wrong-dist [pluginmanage]" in text


def test_the_second_of_two_equal_names_is_refused(site: Site) -> None:
    site.add("one", GOOD.format(name="mine"))
    site.add("two", GOOD.format(name="mine"))
    site.add("usurper", GOOD.format(name="random"))
    manager = site.manager()
    assert manager.get("strategy", "mine").resolve().__module__ == "one_module"
    assert (
        manager.get("strategy", "random").factory
        == "autotune.search.strategies.random:RandomStrategy"
    )
    errors = [status.error for status in failures(manager)]
    assert len(errors) == 2
    assert "'two' of two-dist" in errors[0] and "'one' of one-dist" in errors[0]
    assert "'usurper' of usurper-dist" in errors[1] and "'builtin'" in errors[1]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("step", "tile"), ("step", "tile_ceil"), ("target", "haswell"), ("target", "cpu")]
    + [("dtype", "float32"), ("dtype", "mine"), ("step", "mine"), ("target", "mine")],
)
def test_a_plugin_that_renames_what_programs_are_written_in_is_refused(
    site: Site, kind: str, name: str
) -> None:
    body = (
        GOOD.format(name="{rule}")
        + f"""
    def autotune_parts(own=autotune_parts()):
        return [*own, PluginSpec("{kind}", "{name}", Part, "A part")]
"""
    )
    if name == "mine":
        site.add("first", body.format(rule="one"))
    site.add("second", body.format(rule="two"))
    site.add("third", GOOD.format(name="three"))
    manager = site.manager()
    (status,) = failures(manager)
    assert (status.kind, status.name, status.status) == ("plugin", "second", "quarantined")
    owner = "'first' of first-dist" if name == "mine" else "'builtin' of tensor-autotune"
    assert status.error == (
        f"plugin 'second' of second-dist registers {kind} {name!r}, "
        f"which plugin {owner} registered first"
    )
    assert "two" not in manager.names("strategy") and "three" in manager.names("strategy")
    with pytest.raises(PluginError, match="which plugin"):
        manager.register(importlib.import_module("second_module"), "again")


def test_a_factory_that_cannot_be_imported_names_its_plugin(site: Site) -> None:
    site.add("lazy", GOOD.replace("Part, ", "'lazy_part:Thing', ").format(name="lazy"))
    manager = site.manager()
    with pytest.raises(PluginError, match=r"strategy 'lazy' from plugin 'lazy' of lazy-dist"):
        manager.factory("strategy", "lazy")
    (site.folder / "lazy_part.py").write_text("Thing = 3\n")
    with pytest.raises(PluginError, match="is not callable"):
        manager.factory("strategy", "lazy")


def test_a_strategy_may_choose_the_cost_model_of_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine:
        def autotune_parts(self) -> list[PluginSpec]:
            return [PluginSpec("strategy", "choosy", dict, "A dict", default_cost_model="random")]

    manager = PluginManager(entry_points=[])
    manager.register(Mine(), "mine")
    monkeypatch.setattr("autotune.plugins.manager.manager", lambda: manager)
    monkeypatch.setattr("autotune.plugins.parts.manager", lambda: manager)
    for name, expected in [
        ("choosy", "random"),
        ("evolutionary", "gbdt"),
        ("module:Strategy", "gbdt"),
    ]:
        assert chosen_parts({"strategy": name}, {})["cost_model"] == Choice(expected)
    spec = PluginSpec("strategy", "wrong", dict, "A dict", default_cost_model=3)  # type: ignore[arg-type]
    assert spec.problem() == "the default cost model of 'wrong' is not a name"
    for spaces in ("trace", ["trace"], (3,)):
        spec = PluginSpec("cost_model", "wrong", dict, "A dict", spaces=spaces)  # type: ignore[arg-type]
        assert spec.problem() == "the search spaces of 'wrong' are not a tuple of names"


def test_unknown_kinds_and_names() -> None:
    manager = PluginManager(entry_points=[])
    with pytest.raises(UnknownNameError, match="unknown kind of plugin 'strategie'"):
        manager.names("strategie")
    with pytest.raises(UnknownNameError, match="Did you mean 'round-robin'"):
        manager.get("task_scheduler", "round-robbin")


def test_a_plugin_of_this_process_is_registered_whole_or_not_at_all() -> None:
    class Mine:
        def __init__(self, *names: str) -> None:
            self._names = names

        def autotune_parts(self) -> list[PluginSpec]:
            return [PluginSpec("strategy", name, dict, "A dict") for name in self._names]

    manager = PluginManager(entry_points=[])
    clash = Mine("fresh", "random")
    with pytest.raises(PluginError, match="'mine' registers strategy 'random', which"):
        manager.register(clash, "mine")
    assert "fresh" not in manager.names("strategy")
    manager.register(Mine("fresh"), "mine")
    assert manager.get("strategy", "fresh").factory is dict
    with pytest.raises(PluginError, match="registered already"):
        manager.register(autotune.plugins.builtin, "again")
    with pytest.raises(PluginError, match="another plugin is registered as 'mine' already"):
        manager.register(Mine("fresher"), "mine")


def test_a_plugin_is_forgotten_with_all_its_parts() -> None:
    @attrs.define  # which has no hash
    class Mine:
        name: str

        @autotune.hookimpl
        def autotune_parts(self) -> list[PluginSpec]:
            return [PluginSpec("strategy", self.name, dict, "A dict")]

    manager = PluginManager(entry_points=[])
    before = manager.report()
    first, second = Mine("first"), Mine("second")
    for plugin in (first, second):
        assert manager.register(plugin, plugin.name) == plugin.name
        assert plugin.name in manager.names("strategy")
    assert manager.unregister(first) is first
    assert "second" in manager.names("strategy")
    assert manager.unregister(name="second") is second
    assert manager.unregister(name="second") is None
    assert manager.report() == before
    manager.register(first, "second")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_names_what_its_parts_are(kind: str) -> None:
    module, _, name = KINDS[kind].rpartition(".")
    assert isinstance(getattr(importlib.import_module(module), name), type)


def test_the_default_manager_is_made_once() -> None:
    assert plugins.manager() is plugins.manager()


def test_listing_imports_no_part() -> None:
    code = (
        "import sys; from autotune.plugins.manager import PluginManager; "
        "manager = PluginManager(entry_points=[]); manager.report(); "
        "[manager.names(kind) for kind in manager.kinds()]; print(*sys.modules)"
    )
    imported = run_python("-c", code).split()
    heavy = {"tvm", "torch", "lightgbm", "scipy"}
    parts = (
        "autotune.search.strategies.",
        "autotune.models.cost.",
        "autotune.ir.workloads.builders",
    )
    assert not heavy & set(imported)
    assert not [name for name in imported if name.startswith(parts)]
