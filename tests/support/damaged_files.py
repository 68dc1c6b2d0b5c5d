"""Damage to files of databases, and what is never wrong in spite of it."""

from __future__ import annotations

import random

from autotune.store.records import Record

__all__ = ["PAGE", "Truth", "behead", "check", "cut", "flip", "scribble", "zero"]

PAGE = 4096
"""Bytes of a page."""
Truth = dict[tuple[str, int], Record]
"""Records that were stored, by run and trial."""


def flip(data: bytearray, rng: random.Random) -> None:
    """Turn some bits around."""
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def zero(data: bytearray, rng: random.Random) -> None:
    """Replace some pages by zeros."""
    for _ in range(rng.randint(1, 4)):
        page = rng.randrange(len(data) // PAGE) * PAGE
        data[page : page + PAGE] = bytes(PAGE)


def scribble(data: bytearray, rng: random.Random) -> None:
    """Replace some pages by random bytes."""
    for _ in range(rng.randint(1, 4)):
        page = rng.randrange(len(data) // PAGE) * PAGE
        data[page : page + PAGE] = rng.randbytes(PAGE)


def behead(data: bytearray, rng: random.Random) -> None:
    """Replace the first page, by zeros or by random bytes."""
    data[:PAGE] = bytes(PAGE) if rng.random() < 0.5 else rng.randbytes(PAGE)


def cut(data: bytearray, rng: random.Random) -> None:
    """Take away up to half of it, at the end."""
    del data[rng.randrange(len(data) // 2, len(data)) :]


def check(records: list[Record], truth: Truth) -> None:
    """No record is wrong or there twice."""
    names = [(record.run_id, record.trial) for record in records]
    assert len(set(names)) == len(names)
    assert all(truth[name] == record for name, record in zip(names, records, strict=True))
