from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.isolation.channel import Decoder, NotAMessage, encode

MESSAGES = [{"op": "hello"}, {"text": "ünïcode\n\0"}, {"list": list(range(1000))}, {}]


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
    ],
)
def test_damage_shows_after_what_came_before_it(damage: bytes) -> None:
    decoder = Decoder()
    assert decoder.feed(encode({"good": 1}) + damage) == [{"good": 1}]
    with pytest.raises(NotAMessage):
        decoder.feed(b"")
