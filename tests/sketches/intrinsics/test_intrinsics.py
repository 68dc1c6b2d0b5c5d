from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from attrs import evolve

from autotune.errors import InvalidValueError, PluginError, UnknownNameError, UnsupportedWorkload
from autotune.ir.workloads import Axis, gemm
from autotune.nest import layout_conflict
from autotune.plugins import PluginSpec
from autotune.plugins.manager import PluginManager
from autotune.sketches import Candidate, Sketch
from autotune.sketches.intrinsics import INTRINSICS, Intrinsic, IntrinsicOperand, find_intrinsic
from autotune.spaces.feasible import build_feasible_set
from autotune.spaces.rules import intrinsic_sketch
from autotune.targets import preset

SHAPE = gemm(m=64, n=1024, k=4096)
WIDE = Intrinsic(
    "wide-4x2",
    "declared elsewhere",
    (Axis("k", 2, "reduce"), Axis("j", 4)),
    IntrinsicOperand("data", "int8", (("k", 2),)),
    IntrinsicOperand("weights", "int8", (("j", 4), ("k", 2))),
    IntrinsicOperand("sums", "int32", (("j", 4),)),
)


def test_layouts_of_vpdpbusd() -> None:
    dot = find_intrinsic("vnni-16x4")
    assert (dot.left.bytes, dot.right.bytes, dot.result.bytes) == (4, 64, 64)
    assert dot.right.strides("j") == ((16, 4),)
    assert dot.right.strides("k") == ((4, 1),)
    assert dot.left.strides("j") == ()


def test_an_axis_may_be_laid_out_in_two_parts() -> None:
    weights = find_intrinsic("amx-32x32x64").right
    assert weights.strides("k") == ((16, 128), (4, 1))
    assert weights.bytes == 2048


def test_targets() -> None:
    dot = find_intrinsic("vnni-16x4")
    assert dot.supported_by(preset("cascadelake"))
    assert not dot.supported_by(preset("skylake-avx512"))
    assert not dot.supported_by(preset("a100"))
    assert find_intrinsic("amx-32x32x64").supported_by(preset("sapphirerapids"))
    assert find_intrinsic("wmma-16x16x16").supported_by(preset("a100"))


def test_those_of_plugins_are_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = PluginManager()
    for module in ("autotune.sketches.intrinsics.declared", "autotune.plugins.parts"):
        monkeypatch.setattr(f"{module}.manager", lambda: plugins)
    specs = [
        PluginSpec("intrinsic", WIDE.name, lambda context: WIDE, "-"),
        PluginSpec("intrinsic", "narrow", lambda context: WIDE, "-"),
    ]
    plugins.register(SimpleNamespace(autotune_parts=lambda: specs), "wide")
    assert find_intrinsic(WIDE.name) is WIDE
    with pytest.raises(PluginError, match="'narrow' calls itself 'wide-4x2'"):
        find_intrinsic("narrow")
    taken = [PluginSpec("intrinsic", "vnni-16x4", lambda context: WIDE, "-")]
    with pytest.raises(PluginError, match="registered first"):
        plugins.register(SimpleNamespace(autotune_parts=lambda: taken), "taken")


def test_nothing_that_a_sketch_names_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hostile.py").write_text("raise SystemExit('it was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    sketch = intrinsic_sketch(SHAPE, "C", find_intrinsic("vta-1x16x16"))
    text = json.dumps(sketch.to_json()).replace('"vta-1x16x16"', '"hostile:x"')
    foreign = Sketch.from_json(json.loads(text), sketch.workload)
    candidate = Candidate(foreign, tuple(1 for _ in foreign.params))
    with pytest.raises(UnknownNameError, match="'hostile:x'.*registered ones only"):
        layout_conflict(candidate)
    assert "hostile" not in sys.modules


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("vnni-16x5", UnknownNameError, "vnni-16x4"),
        ("os:abort", UnknownNameError, "registered ones only"),
    ],
)
def test_what_does_not_exist(name: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        find_intrinsic(name)


def test_layouts_that_contradict_the_axes() -> None:
    axes = (Axis("k", 4, "reduce"), Axis("j", 16))
    data = IntrinsicOperand("data", "uint8", (("k", 4),))
    sums = IntrinsicOperand("sums", "int32", (("j", 16),))
    with pytest.raises(InvalidValueError, match="'weights' holds 8 values of axis 'j', which has"):
        Intrinsic("bad", "-", axes, data, IntrinsicOperand("weights", "int8", (("j", 8),)), sums)
    with pytest.raises(InvalidValueError, match="the result has a reduce axis"):
        Intrinsic("bad", "-", axes, data, data, IntrinsicOperand("sums", "int32", (("k", 4),)))
    with pytest.raises(UnknownNameError, match="dtype"):
        IntrinsicOperand("data", "u8", (("k", 4),))


def test_implementations_are_named() -> None:
    with pytest.raises(
        InvalidValueError, match="implemented for native, tvm, mlir, not for 'other'"
    ):
        find_intrinsic("amx-32x32x64").implementation("other")
    with pytest.raises(InvalidValueError, match="implemented for no backend"):
        find_intrinsic("vta-1x16x16").implementation("tvm")


def divisors(extent: int) -> list[int]:
    return [value for value in range(1, extent + 1) if extent % value == 0]


def by_hand(m: int, n: int, k: int, intrinsic: Intrinsic) -> set[tuple[int, ...]]:
    """Numbers of calls (i, k, j) inside the memories that fit them."""
    extents = {axis.name: axis.extent for axis in intrinsic.axes}
    found = set()
    for i in divisors(m // extents["i"]):
        for depth in divisors(k // extents["k"]):
            for j in divisors(n // extents["j"]):
                held = {"i": i, "k": depth, "j": j}
                used: dict[str, int] = {}
                for operand in intrinsic.operands:
                    calls = 1
                    for axis in {name for name, _ in operand.layout}:
                        calls *= held[axis]
                    used[operand.scope] = used.get(operand.scope, 0) + calls * operand.bytes
                if all(used[scope] <= size for scope, size in intrinsic.capacities.items()):
                    found.add((i, depth, j))
    return found


@pytest.mark.parametrize(
    ("name", "shape", "count"),
    [
        ("wmma-16x16x16", (64, 96, 128), 3 * 4 * 4),
        ("mma-m16n8k16", (64, 96, 128), 3 * 4 * 6),
        ("vta-1x16x16", (64, 1024, 4096), None),
    ],
)
def test_spaces_are_counted_exactly(
    name: str, shape: tuple[int, int, int], count: int | None
) -> None:
    m, n, k = shape
    intrinsic = find_intrinsic(name)
    feasible = build_feasible_set(intrinsic_sketch(gemm(m=m, n=n, k=k), "C", intrinsic))
    expected = by_hand(m, n, k, intrinsic)
    everything = by_hand(m, n, k, evolve(intrinsic, capacities={}))
    assert feasible.count == len(expected) == (count or len(expected))
    assert bool(intrinsic.capacities) == (len(expected) < len(everything))
    extents = {axis.name: axis.extent for axis in intrinsic.axes}
    whole = {"i": m, "k": k, "j": n}

    def row(inside: tuple[int, ...]) -> list[int]:
        values: list[int] = []
        for axis, calls in zip(intrinsic.axes, inside, strict=True):
            size = extents[axis.name]
            values += [whole[axis.name] // (calls * size), calls, size]
        return values

    inside = np.array([row(point) for point in sorted(everything)], dtype=np.int64)
    assert feasible.contains(inside).tolist() == [p in expected for p in sorted(everything)]


def test_smaller_memories_never_add_points() -> None:
    vta = find_intrinsic("vta-1x16x16")
    counts = []
    for divisor in (1, 4, 16, 64):
        less = {scope: size // divisor for scope, size in vta.capacities.items()}
        sketch = intrinsic_sketch(SHAPE, "C", evolve(vta, capacities=less))
        counts.append(build_feasible_set(sketch).count)
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] > 0


def test_an_intrinsic_that_fits_no_loop() -> None:
    wmma = find_intrinsic("wmma-16x16x16")
    with pytest.raises(UnsupportedWorkload, match="no loop of axis 'j' of stage 'C': 20 is no mu"):
        intrinsic_sketch(gemm(m=32, n=20, k=32), "C", wmma)


def test_every_declaration_has_a_name_of_its_own() -> None:
    assert all(name == intrinsic.name for name, intrinsic in INTRINSICS.items())


def test_operands_in_one_memory_add_up() -> None:
    """Eight tile registers for all three operands."""
    tile = IntrinsicOperand("data", "int8", (("i", 16), ("k", 64)), "tiles", row_stride=True)
    weights = (("k", 16), ("j", 16), ("k", 4))
    small = Intrinsic(
        "small-tiles",
        "one product of two tile registers",
        (Axis("i", 16), Axis("k", 64, "reduce"), Axis("j", 16)),
        tile,
        IntrinsicOperand("weights", "int8", weights, "tiles", row_stride=True),
        IntrinsicOperand("sums", "int32", (("i", 16), ("j", 16)), "tiles", row_stride=True),
        capacities={"tiles": 8 * 1024},
    )
    # One call needs 3, two along any axis 5, four along any two axes 8, and eight calls 12.
    sketch = intrinsic_sketch(gemm(m=32, n=32, k=128), "C", small)
    assert build_feasible_set(sketch).count == 7 == len(by_hand(32, 32, 128, small))
