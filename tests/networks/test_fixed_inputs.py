"""Lengths of open axes, examples and values that a person gives."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedWorkload
from autotune.networks import AskedInputs, DeclaredInput
from autotune.networks.fixed_inputs import fix_inputs, read_asked
from autotune.networks.loading import load_network
from autotune.networks.source import Source, with_inputs
from autotune.targets import preset
from autotune.testing.reference_frontend import (
    REFERENCE_FRONTEND,
    ReferenceFrontend,
    three_layers,
)

IMAGE = DeclaredInput("image", ("batch", 3, "height", "width"), "float32")
MASK = DeclaredInput("mask", ("batch", "height"), "bool")
RATE = DeclaredInput("rate", (), "int64")
STATE = DeclaredInput("state", (2, "", 128), "float32")


def fixed(declared: list[DeclaredInput], *texts: str, examples: Any = None) -> Any:
    """Texts with ``:`` are those of ``--dim``."""
    dims = [it.replace(":", "=") for it in texts if ":" in it]
    inputs = [it for it in texts if ":" not in it]
    return fix_inputs(declared, read_asked(dims, inputs), examples, "m.onnx")


def test_lengths_by_name_and_by_shape_are_the_same() -> None:
    wanted = {"image": (2, 3, 8, 16), "mask": (2, 8)}
    for texts in (["batch:2,height:8", "width:16"], ["image=2,3,8,16"], ["mask=2,8", "width:16"]):
        found = fixed([IMAGE, MASK], *texts)
        assert found.shapes == wanted and not found.remarks and found.examples is None
        assert found.lengths == {"batch": 2, "height": 8, "width": 16}


def test_the_first_axis_is_one_and_others_are_asked_for() -> None:
    found = fixed([IMAGE, MASK], "height:8", "width:16")
    assert found.shapes == {"image": (1, 3, 8, 16), "mask": (1, 8)}
    assert found.remarks == (
        "m.onnx leaves the length of axis 'batch' open: it is 1 (--dim batch=N for another)",
    )
    with pytest.raises(UnsupportedWorkload) as caught:
        fixed([IMAGE, MASK, STATE, RATE], "height:8")
    line = str(caught.value)
    assert "input 'image', 'state' of m.onnx" in line and "\n" not in line
    assert "give --dim width=N --input state=2,N,128 (in Python" in line
    first = fixed([DeclaredInput("x", ("", 4), "float32")])
    assert first.shapes == {"x": (1, 4)} and "--input x=N,4 for another" in first.remarks[0]


def test_a_number_is_the_value_of_an_input_of_one_element() -> None:
    found = fixed([IMAGE, RATE], "image=1,3,8,8", "rate=16000")
    assert list(found.shapes) == ["image"]
    assert found.constants["rate"] == 16000 and found.constants["rate"].dtype == np.int64
    single = fixed([DeclaredInput("rate", (1, 1), "float32")], "rate=0.5")
    assert single.constants["rate"].tolist() == [[0.5]]
    line = fixed([DeclaredInput("sound", ("samples",), "float32")], "sound=512")
    assert line.shapes == {"sound": (512,)} and not line.constants
    assert fixed([DeclaredInput("on", (), "bool")], "on=true").constants["on"].item() is True


def test_examples_are_read_and_compared(tmp_path: Path) -> None:
    array = np.arange(2 * 3 * 4 * 4, dtype=np.float32).reshape(2, 3, 4, 4)
    np.save(tmp_path / "image.npy", array)
    found = fixed([IMAGE, MASK], f"image={tmp_path}/image.npy")
    assert found.shapes["mask"] == (2, 4) and found.examples[0] is not None
    np.testing.assert_array_equal(found.examples[0], array)
    assert found.examples[1].shape == (2, 4) and found.examples[1].dtype == bool
    positional = fixed([IMAGE, RATE], "rate=1", examples=[array])
    np.testing.assert_array_equal(positional.examples[0], array)


def test_a_shape_that_is_asked_for_counts_more_than_an_example() -> None:
    array = np.ones((2, 3, 4, 4), np.float32)
    found = fixed([IMAGE], "image=1,3,5,5", examples=[array])
    assert found.shapes == {"image": (1, 3, 5, 5)} and found.examples[0].shape == (1, 3, 5, 5)


def test_the_examples_of_a_model_give_lengths() -> None:
    own = evolve(IMAGE, example=np.ones((2, 3, 4, 4), np.float32))
    found = fixed([own, MASK])
    assert found.shapes == {"image": (2, 3, 4, 4), "mask": (2, 4)}
    assert len(found.remarks) == 3
    np.testing.assert_array_equal(found.examples[0], own.example)
    assert fixed([MASK, own]).shapes["mask"] == (2, 4)
    other = fixed([own, MASK], "height:5")
    assert other.shapes["image"] == (2, 3, 5, 4) and other.examples[0].shape == (2, 3, 5, 4)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            ["heigth:8"],
            "unknown axis of m.onnx 'heigth'; available: batch, height, width. Did you",
        ),
        (["image:8"], "unknown axis .*--input gives the shape of an input"),
        (["imag=1,3,8,8"], "unknown input of m.onnx 'imag'; available: image, mask, rate. Did"),
        (["image=1,4,8,8"], r"axis 1 of input 'image' .* is of length 3, and 4 in \[1, 4, 8, 8\]"),
        (["image=1,3,8"], r"has 4 axes, \[batch, 3, height, width\], and not the 3 of"),
        (["batch:2", "image=1,3,8,8"], r"axis 0 \('batch'\) of input 'image' .* length 2, and 1"),
        (["image=1,3,8,8", "mask=2,8"], r"axis 0 \('batch'\) of input 'mask' .* length 1, and 2"),
        (["image=5"], "'image' has the axes .*, and not one element"),
        (["rate=0.5"], "'rate' is int64, and cannot be 0.5"),
        (["rate=1e30"], "'rate' is int64, and cannot be 1e"),
        (["image=none.npy"], "'image': 'none.npy' cannot be read as an array"),
        (["image=picture.png"], r"--input: image is a shape .*, a file .* or a number, not 'pic"),
        (["height:many"], "--dim: height must be a whole number, not 'many'"),
        (["height:0"], "axis 'height' is a whole number from 1 on, not 0"),
        (["image=1,0,8,8"], "the shape of input 'image' is of whole numbers from 1 on"),
        (["image=1,9999999,9999999,3"], "of at most 2147483648 elements"),
        (["height:1", "height:2"], "--dim names 'height' twice"),
        (["rate=1", "rate=2"], "--input names 'rate' twice"),
        (["rate="], "--input 'rate=' is not of the form NAME=SHAPE"),
    ],
)
def test_what_does_not_fit_is_named(
    texts: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((InvalidValueError, UnknownNameError), match=message) as caught:
        fixed([IMAGE, MASK, RATE], *texts)
    assert "\n" not in str(caught.value)


def test_an_array_of_another_type_or_objects_are_refused(tmp_path: Path) -> None:
    wide = np.ones((1, 3, 4, 4))
    with pytest.raises(InvalidValueError, match="'image' is float64.*takes float32"):
        fix_inputs([IMAGE], AskedInputs(inputs={"image": wide}), None, "m")
    np.save(tmp_path / "o.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(InvalidValueError, match="cannot be read as an array"):
        fixed([IMAGE], f"image={tmp_path}/o.npy")
    with pytest.raises(InvalidValueError, match="not by list"):
        AskedInputs(inputs={"image": [1, 3, 4, 4]})


names = st.sampled_from(["batch", "height", "width", "time"])
axes = st.one_of(st.integers(1, 4), names)
lengths = st.fixed_dictionaries(
    {it: st.integers(1, 5) for it in ("batch", "height", "width", "time")}
)


@given(st.lists(st.lists(axes, max_size=4), min_size=1, max_size=4), lengths, st.data())
def test_every_way_to_say_lengths_gives_the_same_shapes(
    shapes: list[list[Any]], known: dict[str, int], data: Any
) -> None:
    """Each input by its shape, by an array, or by the names of its axes."""
    declared = [
        DeclaredInput(f"x{at}", tuple(shape), "float32") for at, shape in enumerate(shapes)
    ]
    wanted = {it.name: tuple(known.get(axis, axis) for axis in it.shape) for it in declared}
    dims: dict[str, int] = {}
    inputs: dict[str, Any] = {}
    for one in declared:
        way = data.draw(st.sampled_from(["dims", "shape", "array"]))
        if way == "dims" or not one.shape:
            dims |= {axis: known[axis] for axis in one.shape if isinstance(axis, str)}
        elif way == "shape":
            inputs[one.name] = wanted[one.name]
        else:
            inputs[one.name] = np.zeros(wanted[one.name], np.float32)
    found = fix_inputs(declared, AskedInputs(dims=dims, inputs=inputs), None, "m")
    assert found.shapes == wanted and not found.remarks and not found.constants
    if found.examples is not None:
        assert [it.shape for it in found.examples] == list(wanted.values())
        assert all(math.isfinite(float(it.sum())) for it in found.examples)


def test_a_frontend_that_takes_none_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model, examples = three_layers()
    source = with_inputs(Source(model, examples, "m"), read_asked([], ["A=16,16"]))
    load = ReferenceFrontend.load

    def deaf(*arguments: Any) -> Any:
        network = load(*arguments)
        network.fixed = None
        return network

    monkeypatch.setattr(ReferenceFrontend, "load", deaf)
    with pytest.raises(
        InvalidValueError, match="takes no lengths of axes and no inputs, and A is"
    ):
        load_network(source, preset("a100_40"), 1, frontend=REFERENCE_FRONTEND)


class Module:
    """Module as torch's are: called by ``forward``."""

    def forward(self, image: Any, factor: float, *others: Any) -> Any: ...


def test_the_inputs_of_a_module_are_those_of_its_forward() -> None:
    image = np.zeros((1, 3, 4, 4), np.float32)
    source = Source(Module(), (image, 0.5, image), "module")
    changed = with_inputs(source, read_asked([], ["image=2,3,8,8", "factor=0.25"]))
    assert changed.example_inputs is not None and not changed.asked
    first, factor, last = changed.example_inputs
    assert first.shape == (2, 3, 8, 8) and factor == 0.25 and last is image
    with pytest.raises(UnknownNameError, match="'imag'; available: image, others_0. Did you"):
        with_inputs(source, read_asked([], ["imag=2,3,8,8"]))
    with pytest.raises(InvalidValueError, match="'factor' is a number of type float, not 3"):
        with_inputs(source, read_asked([], ["factor=3"]))
    with pytest.raises(UnknownNameError, match="unknown axis of module 'batch'"):
        with_inputs(source, read_asked(["batch=2"], []))
