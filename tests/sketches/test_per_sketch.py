from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import attrs
import pytest

from autotune.errors import InvalidValueError
from autotune.ir.workloads import gemm
from autotune.sketches import Ordinal, Sketch, Unroll, per_sketch

SKETCH = Sketch("one", gemm(m=4, n=4, k=4), (Ordinal("u", (0, 1)),), (), (Unroll("C", ("k.0",)),))
RENAMED = attrs.evolve(SKETCH, name="another")


def test_sketches_of_one_digest_share_what_is_made() -> None:
    seen: list[tuple[str, int]] = []

    @per_sketch
    def made(sketch: Sketch, factor: int = 1) -> int:
        """A made value."""
        seen.append((sketch.name, factor))
        return factor

    assert [made(SKETCH), made(RENAMED), made(SKETCH, 2), made(RENAMED, 2)] == [1, 1, 2, 2]
    assert seen == [("one", 1), ("one", 2)] and made.__doc__ == "A made value."


def test_exactly_equal_ones_share_it_where_domains_matter() -> None:
    seen: list[str] = []
    made = per_sketch(lambda sketch: seen.append(sketch.name) or sketch.name, exact=True)
    assert [made(SKETCH), made(RENAMED), made(attrs.evolve(SKETCH))] == ["one", "another", "one"]
    assert seen == ["one", "another"]


def test_what_was_asked_for_longest_ago_is_forgotten() -> None:
    seen: list[int] = []
    sketches = [attrs.evolve(SKETCH, workload=gemm(m=size, n=4, k=4)) for size in (1, 2, 3)]
    made = per_sketch(lambda sketch: seen.append(len(seen)), most=2)
    for index in (0, 1, 0, 2, 0, 1):
        made(sketches[index])
    assert len(seen) == 4


def test_what_fails_is_tried_again() -> None:
    tries: list[int] = []

    @per_sketch
    def made(sketch: Sketch) -> int:
        tries.append(1)
        if len(tries) < 2:
            raise InvalidValueError("not yet")
        return 1

    with pytest.raises(InvalidValueError):
        made(SKETCH)
    assert made(SKETCH) == 1


def test_threads_share_it() -> None:
    made = per_sketch(lambda sketch: object())
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: made(SKETCH), range(64)))
    assert made(SKETCH) is made(RENAMED)
