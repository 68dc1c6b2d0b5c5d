"""A damaged database gives no wrong record, and says what it lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from attack_cases import sampled
from damaged_files import PAGE, Truth, check

from autotune.errors import DatabaseError
from autotune.store.sqlite import open_database
from autotune.testing.sample_records import sample_record, sample_run

pytestmark = pytest.mark.attack("file damage")

RECORDS = 200
SEEDS = 9


def flip_bytes(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) - 8)
    data[at : at + 8] = bytes(value ^ 0xFF for value in data[at : at + 8])


def flip_header(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(100)] ^= 1 << rng.randrange(8)


def swap_pages(data: bytearray, rng: random.Random) -> None:
    one, other = (PAGE * page for page in rng.sample(range(1, len(data) // PAGE), 2))
    kept = data[one : one + PAGE]
    data[one : one + PAGE] = data[other : other + PAGE]
    data[other : other + PAGE] = kept


def repeat_page(data: bytearray, rng: random.Random) -> None:
    one, other = (PAGE * page for page in rng.sample(range(1, len(data) // PAGE), 2))
    data[one : one + PAGE] = data[other : other + PAGE]


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


FILE_DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    flip_bytes,
    flip_header,
    swap_pages,
    repeat_page,
    cut_anywhere,
    lengthen,
    shift,
    spoil_index,
)
CASES = {
    f"{damage.__name__} {seed}": (damage, seed) for seed in range(SEEDS) for damage in FILE_DAMAGES
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Truth]:
    """A file with many records, and what is in it."""
    path = tmp_path_factory.mktemp("sound") / "records.db"
    truth: Truth = {}
    with open_database(path) as database:
        database.start_run(sample_run())
        for trial in range(RECORDS):
            record = sample_record(trial, 1e-3 + trial * 1e-6, run_id=f"run-{trial % 7}")
            database.append_record(record)
            truth[record.run_id, trial] = record
    return path.read_bytes(), truth


@pytest.mark.parametrize("case", sampled(CASES, now=6, slow=12, least=70))
@pytest.mark.promise(
    "a database file that is damaged anywhere",
    "no record is wrong or there twice, and none is lost without a word",
)
def test_a_damaged_file(
    case: tuple[Callable[[bytearray, random.Random], None], int],
    sound: tuple[bytes, Truth],
    tmp_path: Path,
    verdict: Callable[[str], None],
) -> None:
    damage, seed = case
    content, truth = sound
    data = bytearray(content)
    damage(data, random.Random(f"{damage.__name__} {seed}"))
    path = tmp_path / "records.db"
    path.write_bytes(data)
    with suppress(DatabaseError), open_database(path, read_only=True) as database:
        found = list(database.records())
        check(found, truth)
        assert len(found) == RECORDS
    said: list[str] = []
    try:
        with open_database(path, warn=said.append) as database:
            records = list(database.records())
            check(records, truth)
            assert said or len(records) == RECORDS
            assert database.append_record(sample_record(0, run_id="after"))
    except DatabaseError as error:
        # The header says that it is of another program, or of a later version.
        assert damage in (flip_header, flip_bytes) and path.read_bytes() == bytes(data), error
        verdict("refused")
        return
    if said:
        (aside,) = tmp_path.glob("records.db.corrupt-*")
        assert aside.read_bytes() == bytes(data) and str(aside) in said[0]
        lost = RECORDS - len(records)
        assert not lost or "no record is missed" not in said[0]
    verdict("recovered" if said else "unharmed")


def flipped(log: bytearray, rng: random.Random) -> None:
    # Behind the first frames, which have the tables.
    log[rng.randrange(len(log) // 8, len(log))] ^= 1 << rng.randrange(8)


def text(log: bytearray, rng: random.Random) -> None:
    log[:] = b"notes\n" * 1000


def zeroed(log: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(log) // 8, len(log) - PAGE)
    log[at : at + PAGE] = bytes(PAGE)


def headless(log: bytearray, rng: random.Random) -> None:
    log[rng.randrange(32)] ^= 1 << rng.randrange(8)


LOG_DAMAGES = (flipped, zeroed, text, headless)
LOG_CASES = {
    f"log {damage.__name__} {seed}": (damage, seed)
    for seed in range(SEEDS)
    for damage in LOG_DAMAGES
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, Truth]:
    """The file and the log that a killed process leaves, and the records in them."""
    path = tmp_path_factory.mktemp("killed") / "records.db"
    truth: Truth = {}
    with open_database(path) as database:
        for trial in range(60):
            record = sample_record(trial, 1e-3 + trial * 1e-6)
            database.append_record(record)
            truth[record.run_id, trial] = record
        log = path.with_name("records.db-wal").read_bytes()
        return path.read_bytes(), log, truth


@pytest.mark.parametrize("case", sampled(LOG_CASES, now=3, slow=6, least=30))
@pytest.mark.promise(
    "a damaged log of a process that was killed",
    "what can be read of it is recovered, and nothing is lost without a word",
)
def test_a_damaged_log(
    case: tuple[Callable[[bytearray, random.Random], None], int],
    killed: tuple[bytes, bytes, Truth],
    tmp_path: Path,
    verdict: Callable[[str], None],
) -> None:
    damage, seed = case
    content, log, truth = killed
    data = bytearray(log)
    damage(data, random.Random(f"{damage.__name__} {seed}"))
    path = tmp_path / "records.db"
    path.write_bytes(content)
    path.with_name("records.db-wal").write_bytes(data)
    said: list[str] = []
    with open_database(path, warn=said.append) as database:
        records = list(database.records())
        check(records, truth)
        assert database.append_record(sample_record(0, run_id="after"))
    assert said or len(records) == len(truth)
    verdict("recovered" if said else "unharmed")
