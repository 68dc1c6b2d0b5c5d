"""Command lines with placeholders."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.external.program import CommandTemplate, value_text


def test_a_text_is_split_as_a_shell_would_but_by_none() -> None:
    template = CommandTemplate("cc '{level} x' -DT={tile}; $HOME `id`")
    assert template.placeholders == ("level", "tile")
    filled = template.filled({"level": "-O2", "tile": 8})
    assert filled == ["cc", "-O2 x", "-DT=8;", "$HOME", "`id`"]


def test_a_placeholder_that_comes_out_empty_is_no_word() -> None:
    template = CommandTemplate(["cc", "{level}", "", "-D={level}"])
    assert template.filled({"level": ""}) == ["cc", "", "-D="]


def test_truth_values_are_digits() -> None:
    texts = [value_text(value) for value in (True, False, 3, 0.5, "x y")]
    assert texts == ["1", "0", "3", "0.5", "x y"]


@settings(max_examples=40)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_escaped_words_come_out_as_they_are(word: str) -> None:
    escaped = word.replace("{", "{{").replace("}", "}}")
    assert CommandTemplate([escaped]).filled({}) == [word]


@settings(max_examples=40)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_a_value_is_never_more_than_its_place_in_a_word(value: str) -> None:
    template = CommandTemplate(("prog", "-D={tile}"))
    assert template.filled({"tile": value}) == ["prog", f"-D={value}"]


@pytest.mark.parametrize(
    "given,message",
    [
        ("", "a command is empty"),
        ([], "a command is empty"),
        ([1], "is a text or a list of texts, not [1]"),
        ("cc 'x", "cannot be split: No closing quotation"),
        ("cc {", "has a single '{'"),
        ("cc }{", "has a single '}'"),
        ("cc a\0b", "has a null character"),
    ],
)
def test_what_is_no_command(given: object, message: str) -> None:
    with pytest.raises(InvalidValueError, match=re.escape(message)):
        CommandTemplate(given)
