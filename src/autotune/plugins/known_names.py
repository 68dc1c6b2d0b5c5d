"""Names of parts that are not installed, and what other tuners call parts: where they lead."""

from __future__ import annotations

from collections.abc import Container, Mapping
from types import MappingProxyType

__all__ = ["IN_REPOSITORY", "OTHER_TUNERS", "where_it_is"]

IN_REPOSITORY: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "felix": {
            "cost_model": ("felix-gp", "felix-mlp", "felix-mlp-published"),
            "strategy": ("felix",),
            "preset": ("felix-published",),
        },
        "heron": {
            "strategy": (
                *("heron", "heron-random", "heron-ga", "heron-sa"),
                *("heron-srga", "heron-sdga", "heron-idea"),
            ),
            "preset": ("heron-published",),
        },
        "mlir": {"backend": ("mlir",), "frontend": ("mlir",)},
        "perf": {"observer": ("energy", "perf")},
        "pruner": {
            "cost_model": ("pacm", "moa-pacm", "tenset-mlp"),
            "strategy": ("pruner", "moa-pruner"),
            "pruning_model": ("pruner-psa",),
            "trained_model": ("pacm-cpu", "pacm-cuda"),
            "preset": (
                *("pruner-published", "pruner-offline"),
                *("pruner-finetune", "moa-pruner-published"),
            ),
        },
        "tvm": {
            "backend": ("tvm",),
            "runner": ("rpc",),
            "search_space": ("trace",),
            "step": ("tvm_trace",),
            "cost_model": ("lowered",),
            "frontend": ("relax",),
        },
        "zoo": {
            "network": (
                *("bert_base", "dcgan", "gpt2", "llama_block"),
                *("mobilenet_v2", "r3d_18", "resnet_50", "vit_b_16"),
            ),
        },
    }
)
"""Parts of the distributions in this repository, by its folder in `plugins`, kind and name."""

_XGB = "XGBoost's trees are 'gbdt' here"
_MLP = "TenSet's network is 'tenset-mlp' here"
_OFFLINE = "Pruner's offline rows are the presets 'pruner-offline' and 'pruner-finetune' here"
_ANNEALED = "Nearest to AutoTVM's annealing on trees is 'evolutionary' with cost model 'gbdt'"
OTHER_TUNERS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "strategy": {
            "ansor": "Ansor's search is 'evolutionary', or the preset 'ansor'",
            "cga": "Heron's CGA is 'heron'",
            "crand": "Heron's CRAND is 'heron-random'",
            "ga": "AutoTVM's genetic tuner is nearest to 'evolutionary'; Heron's GA is 'heron-ga'",
            "gridsearch": "AutoTVM's tuner is 'grid' here",
            "idea": "Heron's IDEA is 'heron-idea'",
            "sa": "Heron's SA is 'heron-sa'; without a model, 'annealing'",
            "sdga": "Heron's SDGA is 'heron-sdga'",
            "srga": "Heron's SRGA is 'heron-srga'",
            "xgb": _ANNEALED,
            "xgb_knob": _ANNEALED,
            "xgb_itervar": _ANNEALED,
            "xgb_curve": _ANNEALED,
        },
        "cost_model": {
            "mlp": _MLP,
            "mlp-no-update": f"{_MLP}, with --cost-model-option learn=false",
            "pam": "Pruner's pam is 'pacm' here, with strategy 'pruner'; "
            "all of it is the preset 'pruner-published'",
            "pam-no-update": _OFFLINE,
            "pam-siamese-update": "MoA-Pruner is the strategy 'moa-pruner', "
            "or the preset 'moa-pruner-published'",
            "xgb": _XGB,
            "xgb-no-update": f"{_XGB}; they always learn from the run",
        },
        "backend": {
            "llvm": "A processor is a target: --target llvm",
        },
    }
)
"""Names of parts in other tuners, by kind: the name here."""


def where_it_is(kind: str, name: str, failed: Container[str] = ()) -> str:
    """Returns where a part that is unknown here may be found, as a sentence; `""` if unknown.

    Args:
        kind: Kind of part.
        name: The name that was asked for.
        failed: Distributions that are installed, and were not loaded.
    """
    for folder, parts in IN_REPOSITORY.items():
        distribution = f"autotune-{folder}"
        if name in parts.get(kind, ()) and distribution not in failed:
            # Only now: it takes as long to import as all of this package.
            from autotune.plugins.installing import install_distributions

            command = install_distributions(distribution)
            return f"{name!r} is a part of {distribution}, which is not installed: run {command}."
    meant = OTHER_TUNERS.get(kind, {}).get(name.casefold())
    return f"{meant}." if meant else ""
