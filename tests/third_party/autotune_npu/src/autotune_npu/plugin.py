"""Target of the entry point."""

from __future__ import annotations

from autotune.plugins import PluginSpec

AUTOTUNE_API_VERSION = 4


def autotune_parts() -> list[PluginSpec]:
    """Returns the parts of this distribution."""
    return [
        PluginSpec("dtype", "tf32", "autotune_npu.target:tf32", "float32 with a short mantissa"),
        PluginSpec("target", "tiny-npu", "autotune_npu.target:tiny_npu", "A made-up accelerator"),
        PluginSpec(
            "importer", "sizes", "autotune_npu.importer:SizesImporter", "Sizes of products"
        ),
        PluginSpec("step", "strip", "autotune_npu.steps:Strip", "Parallel strips of one axis"),
        PluginSpec("step", "innermost", "autotune_npu.steps:Innermost", "A part innermost"),
        PluginSpec("sketch_rule", "npu", "autotune_npu.rule:NpuRule", "Strips, a part innermost"),
    ]
