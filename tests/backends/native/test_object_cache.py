"""Machine code that is kept: found again when it is whole, and else made again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from autotune.backends import BuildRequest
from autotune.backends.native import NativeBackend, machine_code
from autotune.backends.native.machine_code import (
    VARIABLE,
    ObjectCache,
    object_cache,
    object_cache_findings,
)
from autotune.ir.workloads import gemm
from autotune.process.fork_server_process import worker_environment
from autotune.targets import detect_cpu
from autotune.testing.programs import check_executable

NAME, OTHER = "0" * 64, "1" * 64
CODE = b"\x7fELF and more"
REQUEST = BuildRequest(gemm(m=8, n=12, k=6), None, None, detect_cpu(), 1)


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "cache" / "objects")


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the compiled texts, while the cache is in a folder of the test's own."""
    texts: list[str] = []
    compile_text = machine_code.compile_text

    def noted(text: str, *given: object, **named: object) -> bytes:
        texts.append(text)
        return compile_text(text, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(machine_code, "compile_text", noted)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "objects"))
    return texts


def built(request: BuildRequest = REQUEST) -> str:
    """Build a program and check it; returns its digest."""
    executable = NativeBackend().build(request)
    check_executable(executable, request.workload)
    return executable.digest


def test_a_program_is_compiled_once(compiled: list[str]) -> None:
    assert built() == built() and len(compiled) == 1
    built(evolve(REQUEST, target=evolve(REQUEST.target, features=("sse2",))))
    built(evolve(REQUEST, workload=gemm(m=8, n=12, k=7)))
    assert len(compiled) == 3


def test_what_is_only_raced_is_not_kept(compiled: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        built(evolve(REQUEST, quick=True))
    assert len(compiled) == 2 and not (tmp_path / "objects").exists()


def test_another_compiler_compiles_again(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    built()
    monkeypatch.setattr(machine_code, "_this_compiler", lambda: "a later one")
    built()
    assert len(compiled) == 2


def test_off(compiled: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    built()
    built()
    assert len(compiled) == 2 and not list(tmp_path.iterdir())
    assert object_cache_findings()[0][1:] == (
        "ok",
        "off: programs are compiled again in every process",
    )


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a bit": damaged,
    "cut short": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: path.write_bytes(b""),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "another's": lambda path: os.replace(path.with_name(OTHER), path),
    "for others to write": lambda path: path.chmod(0o666),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_what_is_not_whole_is_not_found(
    cache: ObjectCache, damage: Callable[[Path], object]
) -> None:
    cache.keep(NAME, CODE)
    cache.keep(OTHER, b"another program")
    assert cache.find(NAME) == CODE
    damage(cache.folder / NAME)
    assert cache.find(NAME) is None
    cache.keep(NAME, CODE)
    assert cache.find(NAME) == CODE


def test_what_is_damaged_is_compiled_again_and_not_run(
    compiled: list[str], tmp_path: Path
) -> None:
    first = built()
    for path in (tmp_path / "objects").iterdir():
        damaged(path)
    assert built() == first and len(compiled) == 2
    assert built() == first and len(compiled) == 2


def test_a_link_is_not_followed(cache: ObjectCache, tmp_path: Path) -> None:
    cache.keep(NAME, CODE)
    (cache.folder / NAME).rename(tmp_path / "elsewhere")
    (cache.folder / NAME).symlink_to(tmp_path / "elsewhere")
    assert cache.find(NAME) is None


def test_only_the_user_may_read_and_write(cache: ObjectCache) -> None:
    cache.keep(NAME, CODE)
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert (cache.folder / NAME).stat().st_mode & 0o777 == 0o600


UNUSABLE: dict[str, Callable[[Path], object]] = {
    "a file": lambda folder: folder.write_text(""),
    "below a file": lambda folder: folder.parent.write_text(""),
    "for others to write": lambda folder: (folder.mkdir(), folder.chmod(0o777)),
    "a link": lambda folder: folder.symlink_to(folder.parent),
}


@pytest.mark.parametrize("made", UNUSABLE.values(), ids=UNUSABLE)
def test_a_folder_that_cannot_be_trusted_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[Path], object]
) -> None:
    cache = ObjectCache(tmp_path / "base" / "objects")
    if made is not UNUSABLE["below a file"]:
        cache.folder.parent.mkdir()
    made(cache.folder)
    cache.keep(NAME, CODE)
    assert cache.find(NAME) is None
    assert not list(tmp_path.rglob(f"{NAME}*"))
    monkeypatch.setenv(VARIABLE, str(cache.folder))
    ((_, status, message),) = object_cache_findings()
    assert (
        status == "warning" and message.startswith("not used: ") and str(cache.folder) in message
    )
    built()


def test_a_full_disk_keeps_nothing(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_name: str, _code: bytes) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("autotune.backends.native.machine_code._sealed", full)
    built()
    built()
    assert len(compiled) == 2 and not list((tmp_path / "objects").iterdir())


WRITER = """
import sys
from pathlib import Path
from autotune.backends.native.machine_code import ObjectCache
cache = ObjectCache(Path(sys.argv[1]), 4000)
for turn in range(300):
    code = bytes([turn % 251]) * 500
    name = f"{turn % 7:064x}"
    cache.keep(name, code)
    cache.sweep()
    found = cache.find(name)
    assert found is None or len(found) == 500 and len(set(found)) == 1, found
"""


def test_two_processes_at_once(cache: ObjectCache) -> None:
    command = [sys.executable, "-c", WRITER, str(cache.folder)]
    both = [
        subprocess.Popen(command, env=worker_environment(1, {}), stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for each in both:
        _, error = each.communicate(timeout=60)
        assert (each.returncode, error) == (0, "")
    count, size = cache.contents()
    assert count <= 7 and size <= 4000


def test_its_size_is_bounded_and_what_is_not_its_own_stays(cache: ObjectCache) -> None:
    small = evolve(cache, most_bytes=10_000)
    names = [f"{number:064x}" for number in range(1, 31)]
    small.folder.mkdir(parents=True)
    foreign = small.folder / "notes.txt"
    foreign.write_text("x" * 20_000)
    for age, name in enumerate(reversed(names)):
        small.keep(name, b"x" * 1000)
        os.utime(small.folder / name, (1000 - age, 1000 - age))
    assert small.find(names[0]) is not None  # the oldest, until it is used
    small.sweep()
    left = [name for name in names if small.find(name)]
    assert left == [names[0], *names[-len(left) + 1 :]] and 5 <= len(left) <= 7
    assert foreign.exists()


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert object_cache() == ObjectCache(tmp_path / "autotune" / "objects")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert object_cache() == ObjectCache(tmp_path / "me" / ".cache" / "autotune" / "objects")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "there"))
    assert object_cache() == ObjectCache(tmp_path / "there")
    ObjectCache(tmp_path / "there").keep(NAME, CODE)
    ((label, status, message),) = object_cache_findings()
    assert (label, status) == (
        "object cache",
        "ok",
    ) and f"{tmp_path / 'there'}: 1 files" in message
