"""The entry point. Importing it imports no torch."""

from __future__ import annotations

from autotune import hookimpl
from autotune.plugins import PluginSpec

__all__ = ["autotune_parts"]

AUTOTUNE_API_VERSION = 4

_PRESETS = {
    "pruner-published": "Pruner (ASPLOS'25) as its released code searches",
    "moa-pruner-published": "MoA-Pruner (ASPLOS'25) as its released code searches",
    "pruner-offline": "Pruner (ASPLOS'25) with weights that learn nothing during the run",
    "pruner-finetune": "Pruner (ASPLOS'25) with weights that are fine-tuned during the run",
}


_TERMS = ("waves", "lanes", "registers", "reuse", "memory")

_PARTS = (
    PluginSpec(
        "cost_model",
        "pacm",
        "autotune_pruner.cost_models:PaCM",
        "Network over statements and data flow that learns to rank, as in Pruner",
        reads_nest=True,
    ),
    PluginSpec(
        "cost_model",
        "tenset-mlp",
        "autotune_pruner.cost_models:TenSetMLP",
        "Network over statements that learns to rank, as in TenSet",
        reads_nest=True,
    ),
    PluginSpec(
        "cost_model",
        "moa-pacm",
        "autotune_pruner.cost_models:MomentumPaCM",
        "pacm that adapts trained weights with momentum, as in MoA-Pruner",
        reads_nest=True,
        trained=True,
    ),
    PluginSpec(
        "strategy",
        "pruner",
        "autotune_pruner.strategy:PrunerStrategy",
        "Drafts with the pruning model, verifies with the cost model, as in Pruner",
        default_cost_model="pacm",
        reads_nest=True,
    ),
    PluginSpec(
        "strategy",
        "moa-pruner",
        "autotune_pruner.strategy:MoAPrunerStrategy",
        "pruner for a cost model that was trained on other tasks, as in MoA-Pruner",
        default_cost_model="moa-pacm",
        reads_nest=True,
        trained=True,
    ),
    PluginSpec(
        "pruning_model",
        "pruner-psa",
        "autotune_pruner.psa_options:ConfigurablePSA",
        "psa with its terms as options",
        {
            "formula": "published or corrected; for GPUs",
            "gpu_spec": "GPU whose published figures the published formula takes",
            **dict.fromkeys(_TERMS, "false to leave this term out"),
        },
        renamed={"formula": "arithmetic", "gpu_spec": "figures"},
        reads_nest=True,
    ),
    PluginSpec(
        "trained_model",
        "pacm-cpu",
        "autotune_pruner.presets:pacm_cpu",
        "Weights of pacm and moa-pacm, trained on programs of 64 operators on one CPU core",
    ),
    PluginSpec(
        "trained_model",
        "pacm-cuda",
        "autotune_pruner.presets:pacm_cuda",
        "Weights of pacm and moa-pacm, trained on kernels of ten operators on an H100",
    ),
    *(
        PluginSpec(
            "preset",
            name,
            f"autotune_pruner.presets:{name.replace('-', '_')}",
            description,
        )
        for name, description in _PRESETS.items()
    ),
)


@hookimpl
def autotune_parts() -> list[PluginSpec]:
    """Returns every part of this distribution."""
    return [*_PARTS]
