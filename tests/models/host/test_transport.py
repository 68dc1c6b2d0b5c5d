from __future__ import annotations

import json
import math
import weakref
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.models.host.transport import (
    SketchReader,
    SketchWriter,
    pack_state,
    pieces,
    unpack_state,
)
from autotune.process import Decoder, Message, encode
from autotune.sketches import CandidateBatch, Sketch
from autotune.store.records import Outcome
from autotune.testing.toy_space import ToySpace, toy_outcome

FLOATS = st.floats(allow_nan=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.lists(FLOATS)
        | st.lists(st.lists(FLOATS, min_size=2, max_size=2))
        | st.dictionaries(st.text(), inner)
    ),
)


def sent(message: Message) -> Message:
    """The message as the other process sees it."""
    (received,) = Decoder().feed(encode(message))
    return received


@given(st.dictionaries(st.text(), JSON))
def test_states_arrive_as_json_would_bring_them(state: dict[str, Any]) -> None:
    arrived = unpack_state(sent(pack_state(state)))
    # As text, which tells 1 from 1.0 and 0.0 from -0.0.
    assert json.dumps(arrived) == json.dumps(state)


def test_numbers_of_a_state_travel_as_bytes() -> None:
    rows = np.random.default_rng(0).random((100, 20)).tolist()
    message = pack_state({"rows": rows, "last": [math.inf, 0.1], 3: [0.5], "mixed": [1.0, 1]})
    assert len(json.dumps({**message, "attachments": []})) < 200
    arrived = unpack_state(sent(message))
    assert arrived == {"rows": rows, "last": [math.inf, 0.1], "3": [0.5], "mixed": [1.0, 1]}
    assert [type(item) for item in arrived["mixed"]] == [float, int]


@pytest.mark.parametrize("state", [3, None, [], {"a": object()}, {"a": np.zeros(3)}])
def test_what_is_not_json_is_refused(state: Any) -> None:
    with pytest.raises(TypeError):
        pack_state(state)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"state": 3},
        {"state": {}, "packed": 1},
        {"state": {}, "packed": [[["a", "b"], [1]]], "attachments": [b"12345678"]},
        {"state": {"a": []}, "packed": [[["a"], [2]]], "attachments": [b"12345678"]},
        {"state": {"a": []}, "packed": [[["a"], [1]]], "attachments": []},
        {"state": {"a": []}, "packed": [[[], [1]]], "attachments": [b"12345678"]},
    ],
)
def test_damaged_states_are_refused(message: Message) -> None:
    with pytest.raises(InvalidValueError, match="state"):
        unpack_state(message)


def test_batches_arrive_whole_and_sketches_travel_once() -> None:
    space, rng = ToySpace(), np.random.default_rng(1)
    writer, reader = SketchWriter(), SketchReader()
    for round_number in range(3):
        batch = space.sample(40, rng)
        message = sent(writer.batch(batch))
        assert len(message["sketches"]) == (2 if round_number == 0 else 0)
        arrived = reader.batch(message)
        for (sketch, matrix), (other, values) in zip(batch.parts, arrived.parts, strict=True):
            assert other == sketch and other.digest == sketch.digest
            np.testing.assert_array_equal(values, matrix)
            assert values.dtype == np.int64 and values.flags.writeable


def test_sketches_are_told_apart_by_more_than_their_digest() -> None:
    """Models may look at names and constraints."""
    (sketch, matrix), _ = ToySpace().sample(4, np.random.default_rng(0)).parts
    renamed = attrs.evolve(sketch, name="another")
    equal = attrs.evolve(sketch)
    assert sketch.digest == renamed.digest
    batch = CandidateBatch(((sketch, matrix), (renamed, matrix), (equal, matrix)))
    message = sent(SketchWriter().batch(batch))
    assert len(message["sketches"]) == 2
    arrived = SketchReader().batch(message)
    assert [found.name for found, _ in arrived.parts] == [sketch.name, "another", sketch.name]


def test_sketches_that_are_made_anew_each_time_are_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("autotune.models.host.transport._MOST_KNOWN", 2)
    (sketch, matrix), _ = ToySpace().sample(4, np.random.default_rng(0)).parts
    writer, reader = SketchWriter(), SketchReader()
    found = weakref.WeakSet[Sketch]()
    for index in range(12):
        copy = attrs.evolve(sketch, name=f"{index % 4}")
        found.add(copy)
        ((arrived, _),) = reader.batch(sent(writer.batch(CandidateBatch(((copy, matrix),))))).parts
        assert arrived == copy
    del copy
    assert len(found) <= 3


def test_matrices_need_not_be_contiguous() -> None:
    (sketch, matrix), _ = ToySpace().sample(20, np.random.default_rng(0)).parts
    batch = CandidateBatch(((sketch, np.asfortranarray(matrix)[::2]),))
    arrived = SketchReader().batch(sent(SketchWriter().batch(batch)))
    np.testing.assert_array_equal(arrived.parts[0][1], matrix[::2])


def test_outcomes_arrive_as_they_were() -> None:
    candidates = list(ToySpace().sample(30, np.random.default_rng(2)))
    told = [(candidate, toy_outcome(candidate)) for candidate in candidates]
    told[3] = (told[3][0], told[3][1].as_cached())
    told[4] = (told[4][0], Outcome("ok", 0.25, (0.25, 0.5), {"run": 1.0}, "x", drift=1.5))
    writer, reader = SketchWriter(), SketchReader()
    assert reader.outcomes(sent(writer.outcomes(told))) == told
    assert reader.outcomes(sent(writer.outcomes([]))) == []


@given(st.integers(0, 60), st.integers(1, 2000))
def test_pieces_are_the_batch_in_order(rows: int, most_bytes: int) -> None:
    batch = ToySpace(8).sample(rows, np.random.default_rng(3))
    found = list(pieces(batch, most_bytes))
    assert [item for piece in found for item in piece] == list(batch)
    width = 8 * len(batch.parts[0][0].params)
    assert all(len(piece) * width <= max(most_bytes, width) for piece in found)
    assert found


def test_most_batches_are_one_piece() -> None:
    batch = ToySpace().sample(50, np.random.default_rng(3))
    (piece,) = pieces(batch)
    assert len(piece) == 50 and list(map(len, pieces(CandidateBatch(())))) == [0]
