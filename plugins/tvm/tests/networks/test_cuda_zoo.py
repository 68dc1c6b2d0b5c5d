"""The networks of the package for a CUDA device: every task can be tuned, and all is compiled."""

from __future__ import annotations

import autotune_zoo as zoo
import pytest
from autotune_tvm.backend import TVMBackend
from fake_cuda import FakeCuda
from small_networks import SMALL

from autotune.backends import BuildRequest
from autotune.ir.workloads import Workload
from autotune.networks.loading import load_network
from autotune.networks.running import check_network
from autotune.networks.source import in_precision, read_network
from autotune.sketches import baseline_candidate
from autotune.spaces import SketchSpace
from autotune.targets import preset

pytestmark = pytest.mark.needs("torch")
TARGET = preset("h100")
AT_EVERY_MERGE = ("resnet_50", "gpt2")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in AT_EVERY_MERGE else pytest.mark.long)
        for name in zoo.names()
    ],
)
def test_every_task_has_a_space_and_source(name: str) -> None:
    """Of schedules to search in, and the default one."""
    network = load_network(read_network(name, SMALL[name]), TARGET, 1)
    backend = TVMBackend()
    limits = backend.limits(TARGET)
    for task in network.tasks:
        workload = task.program
        assert isinstance(workload, Workload)
        space = SketchSpace(workload, TARGET, limits)
        assert space.sketches(), task.name
        assert space.count() > 0, task.name
        default = baseline_candidate(workload, backend.default_schedule)
        source = backend.cuda_source(BuildRequest(workload, None, default, TARGET, 1))
        assert 'extern "C" __global__' in source


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["bert_base", "dcgan", "gpt2"])
def test_networks_in_halves_compute_what_the_model_does(
    cuda: FakeCuda, name: str, precision: str
) -> None:
    """On the fake device, beside the model as it was in float32."""
    source = in_precision(read_network(name, SMALL[name]), precision)
    network = load_network(source, TARGET, 1)
    differences = check_network(network, network.build({}, TARGET, 1))
    assert differences
    assert {tensor.dtype for tensor in network.outputs} == {precision}
