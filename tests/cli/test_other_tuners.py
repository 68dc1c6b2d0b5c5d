"""Options of other tuners are answered by what to type here."""

from __future__ import annotations

from typing import Any

import pytest
from command_lines import TUNE, refused

from autotune.cli.app import OTHER_TUNERS, command_group


def options_of(command: str) -> set[str]:
    found = command_group.get_command(None, command)  # type: ignore[arg-type]
    assert found is not None
    return {name for option in found.params for name in option.opts}


@pytest.mark.parametrize("option", sorted(OTHER_TUNERS))
def test_an_option_of_another_tuner_leads_to_ours(cli: Any, option: str) -> None:
    ours = OTHER_TUNERS[option].split(" ")[0].rstrip(",")
    assert ours in options_of("tune") and option not in options_of("tune")
    line = refused(cli(*TUNE, option, "7"))
    assert line == f"autotune: error: No such option: {option}. Here it is {OTHER_TUNERS[option]}."
