"""Outputs of a command never destroy what it reads, nor a file of another kind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from command_lines import IN_PROCESS, TUNE, refused
from model_lines import BUILD_MODEL, TUNE_MODEL
from toy_parts import REFERENCE_BACKEND, TOY_TREES

TUNED = (*TUNE, *IN_PROCESS, "--trials", "20", "--quiet")
COMMANDS = {
    "tune --json": (*TUNED, "--json"),
    "tune --log": (*TUNED, "--log"),
    "tune-model --total-latency": (*TUNE_MODEL, "--quiet", "--total-latency"),
    "best": ("best", "--json"),
    "explain": ("explain", "gemm", "--plot"),
    "export": ("records", "export"),
    "fit": ("train", "fit", "--cost-model", TOY_TREES, "--output"),
    "check": ("records", "check", "--json"),
}


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.promise(
    "an output that names the database, also through links",
    "refused, and the database is as it was",
)
def test_a_database_is_never_replaced(
    tuned_cli: Any, command: str, force: tuple[str, ...]
) -> None:
    os.symlink("autotune.db", "soft")
    os.link("autotune.db", "hard")
    before = Path("autotune.db").read_bytes()
    for name in ("autotune.db", "./autotune.db", "soft", "hard"):
        message = refused(tuned_cli(*COMMANDS[command], name, *force))
        assert "is the file that --database names" in message
        assert Path("autotune.db").read_bytes() == before


def test_an_export_does_not_write_beside_what_it_reads(tuned_cli: Any) -> None:
    os.makedirs("below/further")
    os.symlink("..", "below/up")
    before = tuned_cli.files()
    export = ("records", "export", "--format", "names", "--backend", REFERENCE_BACKEND)
    for folder in (".", "below/..", "below/up"):
        message = refused(tuned_cli(*export, folder, "--force"))
        assert "is a folder that holds 'autotune.db', which --database names" in message
    assert tuned_cli.files() == before
    # Another one is for the backend to refuse.
    assert "unknown export format 'names'" in refused(tuned_cli(*export, "below/further"))


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_what_lies_beside_a_database_is_never_replaced(tuned_cli: Any, suffix: str) -> None:
    path = f"autotune.db{suffix}"
    before = tuned_cli.files()
    assert "is a part of the database" in refused(tuned_cli("best", "--json", path, "--force"))
    assert tuned_cli.files() == before


def test_a_database_that_is_still_to_be_made_is_no_destination(cli: Any) -> None:
    done = cli(*TUNED, "--database", "new.db", "--json", "./new.db")
    assert "is the file that --database names" in refused(done)
    assert cli.files() == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ("records", "import", "in", "--json", "in"),
        ("best", "--target", "in", "--json", "in"),
        (*TUNED, "--load-cost-model", "in", "--log", "in"),
        ("explain", "gemm", "--config", "in", "--plot", "in"),
        ("best", "--mlir", "in", "--json", "in"),
        ("train", "record", "--tasks", "in", "--json", "in"),
        ("best", "--database", "plugin:in", "--json", "in"),
    ],
)
@pytest.mark.promise(
    "an output that names an input",
    "refused, and the input is as it was",
)
def test_no_input_is_replaced(cli: Any, arguments: tuple[str, ...]) -> None:
    Path("in").write_text("{}")
    assert "'in' is the file that" in refused(cli(*arguments, "--force"))
    assert Path("in").read_text() == "{}"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.promise(
    "an output that names a file of another kind",
    "the file is kept unless `--force` is given",
)
def test_files_of_another_kind_are_kept(tuned_cli: Any, command: str) -> None:
    for content in (b"notes\n", b'{"a": 1}', b"SQLite format 3\0"):
        Path("mine").write_bytes(content)
        assert "'mine' exists and is" in refused(tuned_cli(*COMMANDS[command], "mine"))
        assert Path("mine").read_bytes() == content


def test_force_replaces_a_file_of_another_kind_and_never_appends_to_it(tuned_cli: Any) -> None:
    Path("mine").write_text("notes\n")
    assert "exists" in refused(tuned_cli(*TUNED, "--log", "mine", "--force"))
    assert tuned_cli("best", "--json", "mine", "--force").status == 0
    assert "notes" not in Path("mine").read_text()


@pytest.mark.parametrize("command", COMMANDS)
def test_what_the_option_wrote_before_is_replaced(tuned_cli: Any, command: str) -> None:
    for _ in range(2):
        assert tuned_cli(*COMMANDS[command], "out").status == 0
    assert Path("out").stat().st_size > 0


def test_devices_are_no_files(tuned_cli: Any) -> None:
    assert "is a device" in refused(tuned_cli("best", "--json", "/dev/zero"))
    assert tuned_cli("best", "--json", "/dev/null").status == 0
    assert "no regular file" in refused(tuned_cli(*TUNED, "--database", "/dev/null"))
    assert not Path("/dev/null-journal").exists()


@pytest.mark.promise(
    "an output in a folder that takes no files, `/proc`",
    "refused before anything is built",
)
def test_an_output_is_refused_where_no_file_can_be_made(cli: Any) -> None:
    for command in ((*BUILD_MODEL, "-o"), (*TUNED, "--json")):
        message = refused(cli(*command, "/proc/made"))
        assert "'/proc/made' cannot be written: no file can be made in '/proc'" in message
        Path("folder").mkdir(exist_ok=True)
        assert "toy" in refused(cli(*command, "folder/made", "--target", "toy"))
        assert not any(Path("folder").iterdir())


def test_names_of_standard_output_are_standard_output(tuned_cli: Any) -> None:
    named = tuned_cli("best", "--json", "/dev/stdout")
    assert named.stdout == tuned_cli("best", "--json", "-").stdout != ""
