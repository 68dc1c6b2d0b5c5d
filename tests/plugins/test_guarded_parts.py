"""Parts of others are held to their interfaces, whatever they raise or return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from autotune.errors import InvalidValueError, PluginError
from autotune.ir.workloads import Workload, gemm
from autotune.plugins.guarded_parts import fits, hold
from autotune.plugins.importer import Importer, import_workload
from autotune.plugins.parts import create_part
from autotune.plugins.workload_names import make_workload
from autotune.process.interrupts import InterruptGuard
from autotune.sketches import Sketch
from autotune.store.database import RecordFilter
from autotune.store.sqlite import SQLiteDatabase
from autotune.testing.toy_space import ToySpace


class Stop(BaseException):
    """An exception that no ``except Exception`` catches."""


class Mute(InvalidValueError):
    """An error of autotune's kind, whose text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError


class Space(ToySpace):
    """Raises, or returns what it should not."""

    does: Any = None
    loosened: Mapping[str, tuple[str, ...]] = {}
    own = "its own"

    def count(self) -> int:
        if isinstance(self.does, BaseException):
            raise self.does
        return super().count() if self.does is None else self.does

    def sketches(self) -> tuple[Sketch, ...]:
        return super().sketches() if self.does is None else self.does


class Store(SQLiteDatabase):
    does: Any = None

    def records(self, where: RecordFilter | None = None) -> Iterator[Any]:
        yield from super().records(where)
        if isinstance(self.does, BaseException):
            raise self.does
        yield self.does


class Reader(Importer):
    does: Any = None

    def read(self, program: object) -> list[Workload]:
        if isinstance(self.does, BaseException):
            raise self.does
        found: list[Workload] = self.does
        return found


SPACE = f"search space 'toy' ({__name__})"
RAISED = [
    ValueError("no luck"),
    Stop(),
    Mute(),
    SystemExit(0),
    GeneratorExit(),
    KeyboardInterrupt(),
    MemoryError(),
]


def held(kind: str, part: Any, does: object = None) -> Any:
    part.does = does
    return hold(kind, part)


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_what_a_part_raises_names_it_and_the_call(error: BaseException) -> None:
    with InterruptGuard(), held("database", Store(":memory:")) as database:
        database.does = error
        for call, ask in (
            ("count()", held("search_space", Space(8), error).count),
            ("records()", lambda: list(database.records())),
            ("read()", lambda: held("importer", Reader(), error).read("program")),
        ):
            with pytest.raises(PluginError) as caught:
                ask()
            assert f"({__name__}) failed in {call}: {type(error).__name__}: " in str(caught.value)


def test_what_autotune_raises_on_purpose_passes() -> None:
    with pytest.raises(InvalidValueError, match="^on purpose$"):
        held("search_space", Space(8), InvalidValueError("on purpose")).count()


@pytest.mark.parametrize(
    ("does", "call", "message"),
    [
        ("many", "count", "returned 'many' from count\\(\\), not int"),
        (1.5, "count", "returned 1.5 from count\\(\\), not int"),
        ([], "sketches", "returned \\[\\] from sketches\\(\\), not tuple\\[Sketch, \\.\\.\\.\\]"),
        ((1,), "sketches", "returned \\(1,\\) from sketches\\(\\), not tuple"),
    ],
)
def test_what_a_part_should_not_return_is_refused(does: object, call: str, message: str) -> None:
    space = held("search_space", Space(8), does)
    with pytest.raises(PluginError, match=message):
        getattr(space, call)()


def test_attributes_and_items_are_looked_at_too() -> None:
    space = held("search_space", Space(8))
    assert space.loosened == {} and space.own == "its own"
    space.loosened = {"sketch": "text"}
    with pytest.raises(PluginError, match="'toy'.* returned .* from loosened, not Mapping"):
        _ = space.loosened
    with (
        held("database", Store(":memory:"), "no record") as database,
        pytest.raises(PluginError, match="returned 'no record' from records\\(\\), not Record"),
    ):
        list(database.records())


def test_a_part_that_behaves_is_as_it_is() -> None:
    space, plain = held("search_space", Space(8)), Space(8)
    assert (space.count(), space.sketches()) == (plain.count(), plain.sketches())
    rng, other = np.random.default_rng(1), np.random.default_rng(1)
    assert np.array_equal(space.contains(space.sample(4, rng)), np.ones(4, bool))
    assert len(plain.sample(4, other)) == 4
    assert [it.digest for it in space.enumerate()] == [it.digest for it in plain.enumerate()]


def test_parts_of_autotune_itself_are_not_wrapped() -> None:
    space = ToySpace(8)
    assert hold("search_space", space) is space


@pytest.mark.parametrize(
    "kind", ["backend", "database", "importer", "measurer", "observer", "search_space"]
)
def test_every_interface_can_be_held(kind: str) -> None:
    """Its annotations can be read at run time."""
    from autotune.plugins.guarded_parts import _held_class
    from autotune.plugins.parts import interface_of

    assert issubclass(_held_class(kind), interface_of(kind))


@pytest.mark.parametrize("made", [5, None, [], ["x"], (gemm(m=1, n=1, k=1),)])
def test_what_an_importer_should_not_return(made: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader, "does", made)
    with pytest.raises(PluginError, match="importer .*Reader.* returned .* from read\\(\\)"):
        import_workload(f"{__name__}:Reader", "program")


@pytest.mark.parametrize(
    "error", [Stop(), Mute(), SystemExit(0)], ids=lambda it: type(it).__name__
)
def test_what_a_factory_raises(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, context: object) -> None:
        raise error

    monkeypatch.setattr(Reader, "__init__", refuse)
    name = f"{__name__}:Reader"
    with pytest.raises(PluginError, match=f"importer '{name}' failed on construction: "):
        create_part("importer", name)


def test_what_a_builder_of_workloads_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*, m: int, n: int, k: int, dtype: str = "float32") -> Workload:
        raise Stop("no luck")

    monkeypatch.setattr("autotune.ir.workloads.builders.gemm", build)
    with pytest.raises(
        PluginError, match="^workload 'gemm' failed on construction: Stop: no luck$"
    ):
        make_workload("gemm", {"m": 1, "n": 1, "k": 1})


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, int, True),
        (np.int64(1), int, True),
        (1.0, int, False),
        (1, float, True),
        (np.float32(1), float, True),
        ("1", float, False),
        (None, None, True),
        (0, None, False),
        (None, int | None, True),
        ("x", int | None, False),
        (np.bool_(True), bool, True),
        (1, bool, False),
        ([1, 2], list[int], True),
        ([1, "2"], list[int], False),
        ((1,), list[int], False),
        ((1, "x"), tuple[int, str], True),
        ((1,), tuple[int, str], False),
        ((1, 2, 3), tuple[int, ...], True),
        ({"a": 1}, Mapping[str, int], True),
        ({1: 1}, Mapping[str, int], False),
        ({"a": "b"}, dict[str, int], False),
        (object(), Any, True),
    ],
)
def test_fits(value: object, hint: Any, expected: bool) -> None:
    assert fits(value, hint) is expected
