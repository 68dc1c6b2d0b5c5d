"""Names and sizes of the networks; none of this needs torch."""

from __future__ import annotations

import sys

import pytest

from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError
from autotune.networks import zoo
from autotune.plugins.installing import install_extra

EIGHT = (
    "bert_base",
    "dcgan",
    "gpt2",
    "llama_block",
    "mobilenet_v2",
    "r3d_18",
    "resnet_50",
    "vit_b_16",
)


def test_the_networks_have_their_usual_names() -> None:
    assert zoo.names() == EIGHT


def test_an_unknown_network_is_told_its_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="unknown network 'resnet50'.*'resnet_50'"):
        zoo.create("resnet50")


def test_an_unknown_size_is_told_its_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="unknown size of bert_base 'layer'.*'layers'"):
        zoo.create("bert_base", layer=2)


@pytest.mark.parametrize("wrong", [0, -3, 1 << 21])
def test_a_size_out_of_range_is_refused(wrong: int) -> None:
    with pytest.raises(InvalidValueError, match=f"layers of gpt2 is {wrong}; it is 1 to 1048576"):
        zoo.create("gpt2", layers=wrong)


@pytest.mark.parametrize("wrong", [1.5, "2", True, None])
def test_a_size_that_is_no_whole_number_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidValueError, match="layers of gpt2 is a whole number, not"):
        zoo.create("gpt2", layers=wrong)  # type: ignore[arg-type]


def test_without_torch_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("autotune.networks.zoo.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(AutotuneError) as caught:
        zoo.create("dcgan")
    assert str(caught.value) == (
        "network 'dcgan' is built with torch, which is not installed: run "
        + install_extra("torch")
    )
