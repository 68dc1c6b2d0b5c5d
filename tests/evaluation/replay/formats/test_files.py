"""Files: told apart by what is in them, packed or not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from recorded_spaces import kernel_tuner_cache, small_space, t1_data, t4_data

from autotune.errors import AutotuneError
from autotune.evaluation.replay.formats import (
    read_description,
    read_space,
    read_spaces,
    space_bytes,
)


def written(path: Path, data: Any) -> str:
    content = json.dumps(data).encode()
    path.write_bytes(gzip.compress(content) if path.name.endswith(".gz") else content)
    return str(path)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("k-d.json", kernel_tuner_cache()),
        ("k-d.json.gz", kernel_tuner_cache()),
        ("k-d.t4.json", t4_data()),
        ("k-d.t4.json.gz", t4_data()),
        ("k-d.json", t4_data()),
        ("k-d", kernel_tuner_cache()),
    ],
)
def test_names_say_nothing_about_formats(tmp_path: Path, name: str, data: Any) -> None:
    space = read_space(written(tmp_path / name, data))
    assert space.name == "k-d" and len(space) == 3
    assert space.kernel in ("k", "convolution") and space.device in ("d", "Some GPU")


@pytest.mark.parametrize("end", ["t4.json", "t4.json.gz", "json", "json.gz"])
def test_a_space_survives_every_format(tmp_path: Path, end: str) -> None:
    space, path = small_space(), tmp_path / f"kernel-device.{end}"
    path.write_bytes(space_bytes(space, None, str(path)))
    described = tmp_path / "kernel.t1.json"
    described.write_bytes(space_bytes(space, None, str(described)))
    read = read_space(str(path), read_description(str(described)))
    assert (read.kernel, read.device, len(read)) == ("kernel", "device", len(space))
    assert (read.seconds == space.seconds).all() and read.costs == pytest.approx(space.costs)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"{", "is no recorded space"),
        (b'{"cache": {"a": ', "no JSON, or cut off"),
        (b"[1, 2]", "the file is not an object"),
        (b"\xff\xfe", "is no text"),
        (b"\x1f\x8b\x08\x00abc", "cannot be unpacked"),
        (json.dumps(t1_data()).encode(), "has no results to replay"),
        (json.dumps({"schema_version": "3.1"}).encode(), "version '3.1'"),
        (json.dumps({"other": 1}).encode(), "is no recorded space"),
        (b"[" * 100_000, "nested too deep"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_file(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    with pytest.raises(AutotuneError) as caught:
        read_space(str(path))
    text = str(caught.value)
    assert message in text and str(path) in text and "\n" not in text


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AutotuneError, match=r"absent.json' cannot be read: No such file"):
        read_space(str(tmp_path / "absent.json"))


def test_the_unit_of_a_file_can_be_said(tmp_path: Path) -> None:
    paths = [written(tmp_path / name, kernel_tuner_cache()) for name in ("a.json", "b.json")]
    one, other = read_spaces(paths, units={"b": "us"})
    assert other.best == pytest.approx(one.best / 1000)
    assert other.costs == pytest.approx(one.costs)
    with pytest.raises(AutotuneError, match="unknown unit of time in a 'minutes'"):
        read_spaces(paths, units={"a": "minutes"})
    with pytest.raises(AutotuneError, match="unknown space 'c'"):
        read_spaces(paths, units={"c": "us"})
    with pytest.raises(AutotuneError, match="two spaces are called 'a'"):
        read_spaces([paths[0], paths[0]])


def test_a_format_that_nobody_knows_is_refused() -> None:
    with pytest.raises(AutotuneError, match=r"'space.csv' ends in none of .t1.json, .t4.json"):
        space_bytes(small_space(), None, "space.csv")
