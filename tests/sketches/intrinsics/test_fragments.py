"""Fragments as data, executed: a warp that loads by them computes the matrix product."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from attrs import evolve
from warp import LANES, Array, load_matrices, multiply

from autotune.errors import InvalidValueError
from autotune.sketches.intrinsics import Fragment, Intrinsic, find_intrinsic
from autotune.sketches.intrinsics.intrinsic import factor_fragments
from autotune.targets import preset, with_tf32

# Values of factors that are exact, so that sums are.
KINDS = {
    "mma-m16n8k16": ("f16", np.float16),
    "mma-m16n8k16-bf16": ("bf16", np.float16),
    "mma-m16n8k8-tf32": ("tf32", np.float32),
    "mma-m16n8k32-int8": ("s8", np.int8),
}


def fragment_of(intrinsic: Intrinsic, operand: str) -> Fragment:
    fragment = getattr(intrinsic, operand).fragment
    assert isinstance(fragment, Fragment)
    return fragment


def held(fragment: Fragment, matrix: Array, axes: tuple[str, str]) -> Array:
    """Elements of a matrix over ``axes`` that lanes hold, [32, elements]."""
    places = [
        [fragment.position(lane, slot) for slot in range(fragment.elements)]
        for lane in range(LANES)
    ]
    return np.array([[matrix[p[axes[0]], p[axes[1]]] for p in row] for row in places])


def factors(intrinsic: Intrinsic, dtype: type) -> tuple[Array, Array, Array]:
    extents = {axis.name: axis.extent for axis in intrinsic.axes}
    rng = np.random.default_rng(3)
    total = np.int32 if dtype is np.int8 else np.float32
    left = rng.integers(-8, 8, (extents["i"], extents["k"])).astype(dtype)
    right = rng.integers(-8, 8, (extents["k"], extents["j"])).astype(dtype)
    return left, right, rng.integers(-99, 99, (extents["i"], extents["j"])).astype(total)


@pytest.mark.parametrize("name", KINDS)
def test_a_warp_computes_the_product_from_its_fragments(name: str) -> None:
    intrinsic, (kind, dtype) = find_intrinsic(name), KINDS[name]
    left, right, start = factors(intrinsic, dtype)
    sums = fragment_of(intrinsic, "result")
    after = multiply(
        kind,
        held(fragment_of(intrinsic, "left"), left, ("i", "k")),
        held(fragment_of(intrinsic, "right"), right, ("k", "j")),
        held(sums, start, ("i", "j")),
    )
    product = start + left.astype(start.dtype) @ right.astype(start.dtype)
    np.testing.assert_array_equal(after, held(sums, product, ("i", "j")))


@pytest.mark.parametrize("padding", [0, 8])
@pytest.mark.parametrize("name", KINDS)
def test_ldmatrix_fills_fragments_from_rows(name: str, padding: int) -> None:
    intrinsic, (_, dtype) = find_intrinsic(name), KINDS[name]
    left, right, _ = factors(intrinsic, dtype)
    for operand, rows, matrix in (("left", "i", left), ("right", "j", right.T)):
        fragment = fragment_of(intrinsic, operand)
        pitch = matrix.shape[1] + padding
        memory = np.full(matrix.shape[0] * pitch, 77, dtype)
        memory.reshape(-1, pitch)[:, : matrix.shape[1]] = matrix
        places = fragment.row_starts(getattr(intrinsic, operand).dtype)
        starts = [place[rows] * pitch + place["k"] for place in places]
        found = load_matrices(memory, starts)
        np.testing.assert_array_equal(found, held(fragment, matrix, (rows, "k")))


def test_ldmatrix_transposes_halves_that_lie_along_columns() -> None:
    """The right factor lies [k, j] there: lane ``8 m + g`` gives row ``8 m + g`` of it."""
    intrinsic = find_intrinsic("mma-m16n8k16")
    _, right, _ = factors(intrinsic, np.float16)
    found = load_matrices(right.ravel(), [row * 8 for row in range(16)], transposed=True)
    np.testing.assert_array_equal(found, held(fragment_of(intrinsic, "right"), right, ("k", "j")))


@pytest.mark.parametrize("name", KINDS)
def test_fragments_share_out_every_element_once(name: str) -> None:
    intrinsic = find_intrinsic(name)
    for operand in intrinsic.operands:
        fragment = operand.fragment
        assert fragment is not None
        places = {
            tuple(fragment.position(*place).items())
            for place in itertools.product(range(LANES), range(fragment.elements))
        }
        assert len(places) == operand.elements == LANES * fragment.elements
        assert fragment.registers(operand.dtype) * 4 * LANES == operand.bytes


def test_fragments_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"of 16 lanes; a warp has 32"):
        Fragment(((16, "i", 1),), ((1, "k", 1),))
    with pytest.raises(InvalidValueError, match=r"holds element \{'i': 1\} in two places"):
        Fragment(((32, "i", 1),), ((2, "i", 1),))
    with pytest.raises(InvalidValueError, match=r"12 products of float16; allowed: 8, 16; near"):
        factor_fragments(12, "float16")
    mma = find_intrinsic("mma-m16n8k16")
    other = find_intrinsic("mma-m16n8k8-tf32").left.fragment
    with pytest.raises(InvalidValueError, match=r"fragment of operand 'data' is of .*'k': 8"):
        evolve(mma, left=evolve(mma.left, fragment=other))


@pytest.mark.parametrize(
    ("name", "oldest"),
    [("wmma-16x16x16", "v100"), *((name, "a100") for name in KINDS)],
)
def test_architectures_before_the_first_that_has_it(name: str, oldest: str) -> None:
    gpus = ("k80", "v100", "t4", "a100", "h100")
    found = [gpu for gpu in gpus if find_intrinsic(name).supported_by(with_tf32(preset(gpu)))]
    assert found == list(gpus[gpus.index(oldest) :])


def test_a_letter_after_the_architecture_changes_nothing_here() -> None:
    mma = find_intrinsic("mma-m16n8k16")
    assert mma.supported_by(evolve(preset("h100"), processor="sm_90a"))
    assert not mma.supported_by(evolve(preset("h100"), processor="x86-64"))


@pytest.mark.parametrize("name", ["wgmma-m64n8k16", "wgmma-m64n8k16-bf16", "wgmma-m64n8k32-int8"])
def test_lanes_of_a_warpgroup_hold_what_the_figure_says(name: str) -> None:
    """PTX ISA, "register fragment layout for accumulator matrix D" of ``wgmma``'s m64nNk16."""
    sums = fragment_of(find_intrinsic(name), "result")
    assert find_intrinsic(name).lanes == 128
    held_places = [[sums.position(lane, slot) for slot in range(4)] for lane in range(128)]
    for lane, places in enumerate(held_places):
        warp, group, member = lane // 32, lane % 32 // 4, lane % 4
        assert places == [
            {"i": 16 * warp + group + 8 * row, "j": 2 * member + column}
            for row in range(2)
            for column in range(2)
        ]
    together = {tuple(place.values()) for places in held_places for place in places}
    assert len(together) == 64 * 8


def test_columns_of_an_instruction_of_a_warpgroup() -> None:
    """PTX ISA, "Matrix Shape" of ``wgmma``: eights up to 256; whole numbers fewer above 32."""
    halves, whole = find_intrinsic("wgmma-m64n8k16"), find_intrinsic("wgmma-m64n8k32-int8")
    assert [it for it in range(40) if halves.takes_columns(it)] == list(range(1, 33))
    assert [it for it in range(40) if whole.takes_columns(it)] == [1, 2, 3, *range(4, 33, 2)]


@pytest.mark.parametrize(
    ("processor", "has"),
    [("sm_80", False), ("sm_90", True), ("sm_90a", True), ("sm_100a", False), ("x86-64", False)],
)
def test_warpgroups_multiply_on_one_architecture(processor: str, has: bool) -> None:
    target = evolve(preset("h100"), processor=processor)
    assert find_intrinsic("wgmma-m64n8k16").supported_by(target) == has
