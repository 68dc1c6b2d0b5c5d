from __future__ import annotations

import copy

import pytest

from autotune import errors
from autotune.errors import AutotuneError, UnknownNameError, near_matches, one_line


def test_unknown_name_lists_the_allowed_ones_and_the_nearest() -> None:
    error = UnknownNameError("strategy", "evolutionry", ["random", "evolutionary", "grid"])
    assert str(error) == (
        "unknown strategy 'evolutionry'; available: evolutionary, grid, random. "
        "Did you mean 'evolutionary'?"
    )


def test_unknown_name_without_a_near_match_or_any_name() -> None:
    assert str(UnknownNameError("backend", "x", [])) == "unknown backend 'x'; available: none"
    text = str(UnknownNameError("backend", "zzz", ["tvm"], "Plugin 'mlir' failed to load."))
    assert text == "unknown backend 'zzz'; available: tvm. Plugin 'mlir' failed to load."


def test_extra_follows_the_near_match() -> None:
    text = str(UnknownNameError("backend", "tvn", ["tvm"], "More."))
    assert text.endswith("Did you mean 'tvm'? More.")


def test_near_matches_ignore_case() -> None:
    assert near_matches("Gemm", ["gemm", "softmax"]) == ["gemm"]
    assert near_matches("qqq", ["gemm", "softmax"]) == []


@pytest.mark.parametrize(
    ("name", "expected"), [("bertt", "bert_base"), ("ViT", "vit_b_16"), ("mobilenet", None)]
)
def test_near_matches_begin_alike_where_none_is_alike_as_a_whole(
    name: str, expected: str | None
) -> None:
    found = near_matches(name, ["bert_base", "gpt2", "vit_b_16"])
    assert found == ([] if expected is None else [expected])
    assert near_matches("b", ["bert_base"]) == []


def test_unknown_name_can_be_rebuilt_from_its_parts() -> None:
    error = UnknownNameError("strategy", "a", ["b"], "c")
    rebuilt = copy.copy(error)
    assert str(rebuilt) == str(error)
    assert rebuilt.allowed == ("b",)


@pytest.mark.parametrize("name", [n for n in errors.__all__ if n[0].isupper()])
def test_every_error_is_an_autotune_error(name: str) -> None:
    assert issubclass(getattr(errors, name), AutotuneError)


def test_one_line() -> None:
    assert one_line("a\n b" + "c" * 200, 10) == "a bcccc..."
    assert one_line(" a\tb ") == "a b"
