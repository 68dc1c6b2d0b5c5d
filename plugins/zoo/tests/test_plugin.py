"""Names and sizes of the networks, and how the core finds them."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import autotune_zoo as zoo
import pytest
from autotune_zoo import plugin

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.networks.source import read_network
from autotune.testing.plugin_suite import PluginSuite

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


class TestPlugin(PluginSuite):
    @pytest.fixture
    def plugin(self) -> ModuleType:
        return plugin


def test_a_network_is_found_by_name_with_its_sizes() -> None:
    source = read_network("dcgan", {"noise": 8, "width": 4})
    module, inputs = zoo.create("dcgan", noise=8, width=4)
    assert source.text == "dcgan" and str(source.model) == str(module)
    assert [it.shape for it in source.example_inputs or ()] == [it.shape for it in inputs]
    with pytest.raises(UnknownNameError, match="unknown network 'dcgn'.*Did you mean 'dcgan'"):
        read_network("dcgn", {})


def test_listing_imports_no_torch() -> None:
    code = (
        "import sys, autotune_zoo.plugin as p; p.autotune_parts(); print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "False\n", result.stderr
