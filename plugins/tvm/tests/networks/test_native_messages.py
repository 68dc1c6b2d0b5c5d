from __future__ import annotations

import os

import pytest
from autotune_tvm.networks.reader import without_messages


def test_lines_with_a_part_are_left_out_and_others_kept(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ValueError, match="kept"), without_messages((b"noise",)):
        os.write(2, b"a line of noise\nan error\n")
        raise ValueError("kept")
    os.write(2, b"noise, later\n")
    assert capfd.readouterr().err == "an error\nnoise, later\n"
