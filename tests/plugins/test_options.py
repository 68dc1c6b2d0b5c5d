from __future__ import annotations

from typing import Any

import pytest
from attrs import frozen

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.plugins.options import option, read_options


@frozen
class Options:
    share: float = option(0.5, low=0.0, high=1.0)
    rounds: int = option(4, low=1)
    fast: bool = option(False)
    mode: str = option("a")


@frozen
class NoOptions:
    pass


def test_defaults_and_given_values() -> None:
    assert read_options("x", Options, None) == Options()
    assert read_options("x", Options, {"share": 1, "rounds": 7, "fast": True, "mode": "b"}) == (
        Options(1.0, 7, True, "b")
    )


def test_whole_numbers_become_floats() -> None:
    assert isinstance(read_options("x", Options, {"share": 1}).share, float)


def test_unknown_option_names_the_allowed_and_the_nearest() -> None:
    with pytest.raises(InvalidValueError) as caught:
        read_options("strategy 'x'", Options, {"shares": 1})
    assert str(caught.value) == (
        "strategy 'x' has no option 'shares'; allowed: fast, mode, rounds, share. "
        "Did you mean 'share'?"
    )
    with pytest.raises(InvalidValueError, match="allowed: none"):
        read_options("x", NoOptions, {"a": 1})


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("share", 1.5, "between 0.0 and 1.0, not 1.5"),
        ("share", float("nan"), "must be a number, not nan"),
        ("share", "half", "must be a number, not 'half'"),
        ("share", True, "must be a number"),
        ("rounds", 0, "must be at least 1, not 0"),
        ("rounds", 1.5, "must be a whole number"),
        ("rounds", True, "must be a whole number"),
        ("fast", 1, "must be true or false"),
        ("mode", 1, "must be a text"),
    ],
)
def test_bad_values_name_the_option_and_its_owner(name: str, value: Any, text: str) -> None:
    with pytest.raises(InvalidValueError, match=text) as caught:
        read_options("strategy 'x'", Options, {name: value})
    assert f"option {name!r} of strategy 'x'" in str(caught.value)


def test_a_text_with_choices_is_one_of_them_or_the_default() -> None:
    @frozen
    class Chosen:
        way: str = option("", choices=("short", "long"))

    assert read_options("x", Chosen, {"way": ""}) == Chosen()
    assert read_options("x", Chosen, {"way": "long"}).way == "long"
    with pytest.raises(UnknownNameError) as caught:
        read_options("strategy 'x'", Chosen, {"way": "shrt"})
    assert str(caught.value) == (
        "unknown value of option 'way' of strategy 'x' 'shrt'; available: long, short. "
        "Did you mean 'short'?"
    )
    with pytest.raises(InvalidValueError, match="must be a text"):
        read_options("x", Chosen, {"way": 1})
