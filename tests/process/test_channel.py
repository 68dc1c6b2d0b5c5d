from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.process.channel import Decoder, NotAMessage, encode

MESSAGES = [
    {"op": "hello"},
    {"text": "ünïcode\n\0"},
    {"scores": [3], "attachments": [b"", bytes(range(256)), b"ATM1"]},
    {"list": list(range(1000))},
    {"attachments": []},
    {},
]


@given(st.integers(1, 4000))
def test_messages_survive_any_cut(size: int) -> None:
    data = b"".join(map(encode, MESSAGES))
    decoder = Decoder()
    received = []
    for start in range(0, len(data), size):
        received += decoder.feed(data[start : start + size])
    assert received == MESSAGES


@pytest.mark.parametrize(
    "damage",
    [
        b"hello, world",
        encode({"a": 1})[:8] + b"x" * 20,
        encode({})[:4] + b"\xff\xff\xff\xff",
        encode({})[:4] + b"\0\0\0\2[]",
        b"ATM1\0\3\0\0" + b"[" * (3 << 16),
        # Attachments that are longer, shorter, or of a length that is none.
        b"ATM2\0\0\0\2{}",
        b"ATM2\0\0\0\x0c\0\0\0\x08[{},[1]]",
        b"ATM2\0\0\0\x0e\0\0\0\x08[{},[1]]ab",
        b"ATM2\0\0\0\x0d\0\0\0\x09[{},[-1]]",
        b"ATM2\0\0\0\x0f\0\0\0\x0a[{},[1.0]]a",
        b"ATM2\0\0\0\x0d\0\0\0\x08[[],[1]]a",
        b"ATM2\0\0\0\x0a\0\0\0\x06[{},1]",
        b"ATM2\0\0\0\x06\0\0\0\x02{}",
        b"ATM2\0\0\0\x05\0\0\0\x017",
    ],
)
def test_damage_shows_after_what_came_before_it(damage: bytes) -> None:
    decoder = Decoder()
    assert decoder.feed(encode({"good": 1}) + damage) == [{"good": 1}]
    with pytest.raises(NotAMessage):
        decoder.feed(b"")


def test_messages_without_attachments_are_what_they_always_were() -> None:
    assert encode({"op": "hello", "n": [1, 2.5]}) == b'ATM1\0\0\0\x1a{"op":"hello","n":[1,2.5]}'


def test_attachments_are_the_bytes_of_arrays() -> None:
    matrix = np.arange(6).reshape(2, 3)
    (message,) = Decoder().feed(encode({"rows": 2, "attachments": [matrix, matrix[1]]}))
    assert message == {"rows": 2, "attachments": [matrix.tobytes(), matrix[1].tobytes()]}
