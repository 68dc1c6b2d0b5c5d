"""Files of databases and logs that killed processes left, and one table of damage to either."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from autotune.store.records import Outcome, Record
from autotune.store.sqlite import open_database
from autotune.testing.sample_records import sample_baseline, sample_record, sample_run

PAGE = 4096
"""Bytes of a page."""
RECORDS = 500
"""Records of a sound file, and the rounds of a killed run, the last of which are only in a log."""
ROUNDS, ROUND, IN_FILE = 7, 5, 20
Truth = dict[tuple[str, int], Record]
"""Records that were stored, by run and trial."""
INVALID_BASELINE = sample_baseline(outcome=Outcome("invalid"))


def sound_file(path: Path) -> Truth:
    """Write a file with 500 records of seven runs; returns what is in it."""
    truth: Truth = {}
    with open_database(path) as database:
        database.start_run(sample_run())
        database.append_baseline(INVALID_BASELINE)
        for trial in range(RECORDS):
            record = sample_record(trial, 1e-3 + trial * 1e-6, run_id=f"run-{trial % 7}")
            database.append_record(record)
            truth[record.run_id, trial] = record
            if trial % 50 == 0:
                # Large enough for pages of its own, which are given up again and again.
                database.update_run("run-1", checkpoint={"state": list(range(trial, 3000))})
    return truth


def killed_files(folder: Path) -> tuple[Path, list[Record]]:
    """Make a folder as a killed process leaves it; returns it, and what was recorded."""
    truth: list[Record] = []
    with open_database(folder / "live.db") as database:
        database.start_run(sample_run("run-1", checkpoint={"trials": 0}))
        for trial in range(ROUNDS * ROUND):
            truth.append(sample_record(trial, 1e-3 + trial * 1e-6))
            database.append_record(truth[-1])
            if trial % ROUND == ROUND - 1:
                database.update_run("run-1", checkpoint={"trials": trial})
        (folder / "left").mkdir()
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(folder / f"live.db{suffix}", folder / "left" / f"records.db{suffix}")
    return folder / "left", truth


def log_of(path: Path) -> Path:
    """The log beside a file."""
    return path.with_name(f"{path.name}-wal")


def check(records: list[Record], truth: Truth) -> None:
    """No record is wrong or there twice."""
    names = [(record.run_id, record.trial) for record in records]
    assert len(set(names)) == len(names)
    assert all(truth[name] == record for name, record in zip(names, records, strict=True))


Damage = Callable[[bytearray, random.Random], None]
LogDamage = Callable[[Path, random.Random], None]


def flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def flip_bytes(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) - 8)
    data[at : at + 8] = bytes(value ^ 0xFF for value in data[at : at + 8])


def flip_header(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(100)] ^= 1 << rng.randrange(8)


def zero(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 4)):
        page = rng.randrange(len(data) // PAGE) * PAGE
        data[page : page + PAGE] = bytes(PAGE)


def scribble(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 4)):
        page = rng.randrange(len(data) // PAGE) * PAGE
        data[page : page + PAGE] = rng.randbytes(PAGE)


def behead(data: bytearray, rng: random.Random) -> None:
    data[:PAGE] = bytes(PAGE) if rng.random() < 0.5 else rng.randbytes(PAGE)


def swap_pages(data: bytearray, rng: random.Random) -> None:
    one, other = (PAGE * page for page in rng.sample(range(1, len(data) // PAGE), 2))
    kept = data[one : one + PAGE]
    data[one : one + PAGE] = data[other : other + PAGE]
    data[other : other + PAGE] = kept


def repeat_page(data: bytearray, rng: random.Random) -> None:
    one, other = (PAGE * page for page in rng.sample(range(1, len(data) // PAGE), 2))
    data[one : one + PAGE] = data[other : other + PAGE]


def cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) // 2, len(data)) :]


def cut_anywhere(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(PAGE, len(data)) :]


def lengthen(data: bytearray, rng: random.Random) -> None:
    data += rng.randbytes(rng.randrange(1, 4 * PAGE))


def shift(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at:at] = rng.randbytes(rng.randrange(1, 64))


def spoil_index(data: bytearray, rng: random.Random) -> None:
    leaves = [at for at in range(PAGE, len(data), PAGE) if data[at] in (0x0A, 0x02)]
    at = rng.choice(leaves) + rng.randrange(8, PAGE)
    data[at] ^= 1 << rng.randrange(8)


FILE_DAMAGES: dict[Damage, int] = {
    flip: 490,
    zero: 400,
    scribble: 400,
    behead: 500,
    cut: 100,
    flip_bytes: 0,
    flip_header: 0,
    swap_pages: 0,
    repeat_page: 0,
    cut_anywhere: 0,
    lengthen: 0,
    shift: 0,
    spoil_index: 0,
}
"""Damage to a file, and the fewest of its records that are recovered then."""


def within_log(damage: Damage) -> LogDamage:
    """Damage to the content of the log."""

    def changed(path: Path, rng: random.Random) -> None:
        data = bytearray(log_of(path).read_bytes())
        damage(data, rng)
        log_of(path).write_bytes(data)

    return changed


def flip_bit(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def flip_head(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(32)] ^= 1 << rng.randrange(8)


def zero_anywhere(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) // 8, len(data) - PAGE)
    data[at : at + PAGE] = bytes(PAGE)


def keep_some(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(1, len(data)) :]


def write_text(data: bytearray, rng: random.Random) -> None:
    data[:] = b"notes\n" * rng.randrange(100, 3000)


flip_log = within_log(flip_bit)


def flip_log_without_index(path: Path, rng: random.Random) -> None:
    flip_log(path, rng)
    path.with_name(f"{path.name}-shm").unlink()


LOG_DAMAGES: dict[str, LogDamage] = {
    "flip": flip_log,
    "flip without index": flip_log_without_index,
    "flip head": within_log(flip_head),
    "zero": within_log(zero_anywhere),
    "cut": within_log(keep_some),
    "empty": within_log(lambda data, rng: data.clear()),
    "text": within_log(write_text),
    "remove": lambda path, rng: log_of(path).unlink(),
}
