from __future__ import annotations

import os
from pathlib import Path

import pytest
from autotune_tvm.networks.frontend import RelaxFrontend
from autotune_tvm.networks.native_messages import without_messages
from relax_networks import small_network

from autotune.networks import LoadOptions
from autotune.targets import Target


def test_lines_with_a_part_are_left_out_and_others_kept(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ValueError, match="kept"), without_messages((b"noise",)):
        os.write(2, b"a line of noise\nan error\n")
        raise ValueError("kept")
    os.write(2, b"noise, later\n")
    assert capfd.readouterr().err == "an error\nnoise, later\n"


def test_saving_a_network_says_nothing(
    target: Target, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = RelaxFrontend().load(small_network(), None, LoadOptions(target, 1))
    compiled = program.build({}, target, 1)
    capfd.readouterr()
    compiled.save(tmp_path / "network.so")
    assert capfd.readouterr().err == ""
