"""The networks of the package for a CUDA device: every task can be tuned, and all is compiled."""

from __future__ import annotations

from typing import Any

import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.networks.frontend import RelaxFrontend
from fake_cuda import FakeCuda

from autotune.networks import LoadOptions, zoo
from autotune.networks.precision import in_precision
from autotune.networks.running import check_network
from autotune.networks.source import Source, as_inputs
from autotune.spaces import SketchSpace
from autotune.targets import preset

pytestmark = pytest.mark.needs("torch")
TARGET = preset("h100")
SMALL: dict[str, dict[str, int]] = {
    "resnet_50": {"image": 32, "width": 8, "blocks": 2, "classes": 10},
    "mobilenet_v2": {"image": 32, "width_percent": 25, "blocks": 2, "classes": 10},
    "bert_base": {"sequence": 8, "layers": 2, "width": 32, "heads": 2, "vocabulary": 50},
    "vit_b_16": {"image": 32, "layers": 2, "width": 32, "heads": 2, "classes": 10},
    "gpt2": {"sequence": 8, "layers": 2, "width": 32, "heads": 2, "vocabulary": 50},
    "llama_block": {"sequence": 8, "width": 32, "heads": 4, "groups": 2, "hidden": 64},
    "dcgan": {"noise": 8, "width": 4},
    "r3d_18": {"frames": 4, "image": 16, "width": 4, "classes": 10},
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", zoo.names())
def test_every_task_has_a_space_and_source(name: str) -> None:
    from autotune_tvm.cuda_code import cuda_source
    from autotune_tvm.networks.apply import apply_functions, default_function
    from autotune_tvm.networks.device_plan import lowered_functions, named_functions

    source: Any = zoo.create(name, **SMALL[name])
    network = RelaxFrontend().load(*source, LoadOptions(TARGET, 1))
    backend = TVMBackend()
    limits = backend.limits(TARGET)
    functions = {}
    for task in network.tasks:
        if not task.view:
            workload = backend.import_program(task.program).workload
            space = SketchSpace(workload, TARGET, limits)
            assert space.sketches(), task.name
            assert space.count() > 0, task.name
        functions[task.name] = default_function(task.program, TARGET, 1)
    module = apply_functions(network.module, functions)
    modules = {task: alone for task, (alone, _) in named_functions(module).items()}
    lowered = lowered_functions(modules, TARGET)
    assert set(lowered) == {task.name for task in network.tasks}
    assert all('extern "C" __global__' in cuda_source(it, TARGET) for it in lowered.values())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["bert_base", "dcgan", "gpt2"])
def test_networks_in_halves_compute_what_the_model_does(
    cuda: FakeCuda, name: str, precision: str
) -> None:
    """On the fake device, beside the model as it was in float32."""
    model, inputs, *_ = zoo.create(name, **SMALL[name])
    source = in_precision(Source(model, as_inputs(inputs), name), precision)
    options = LoadOptions(TARGET, 1)
    network = RelaxFrontend().load(source.model, source.example_inputs, options)
    network.wide = source.wide
    differences = check_network(network, network.build({}, TARGET, 1))
    assert differences
    assert {tensor.dtype for tensor in network.outputs} == {precision}
