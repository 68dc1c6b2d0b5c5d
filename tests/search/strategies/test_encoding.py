from __future__ import annotations

import numpy as np
import pytest

from autotune.search.strategies.auto import encoding_for
from autotune.search.strategies.sampling import whole_space
from autotune.sketches import CandidateBatch
from autotune.spaces.parameters import Parameter, ParameterSpace, parameter_space
from autotune.testing.toy_space import ToySpace


def _rows(space: ParameterSpace | ToySpace) -> CandidateBatch:
    rows = whole_space(space)
    assert rows is not None
    return rows


PARAMETERS = (
    Parameter("block", (16, 32, 48, 64)),
    Parameter("unroll", (0, 1, 2, 4)),
    Parameter("share", (0.25, 0.5, 1.0)),
    Parameter("offset", (-1, 0, 3)),
    Parameter("layout", ("row", "column", "tiled")),
    Parameter("fixed", (7,)),
    Parameter("tile", (1, 2, 4)),
)
ROWS = _rows(parameter_space("p", PARAMETERS))


@pytest.mark.parametrize("rows", [ROWS, _rows(ToySpace())], ids=["parameters", "toy"])
def test_points_are_in_the_cube_and_differ(rows: CandidateBatch) -> None:
    points = encoding_for(rows).encode(rows)
    assert points.min() == 0 and points.max() == 1
    assert len(np.unique(points, axis=0)) == len(rows)


def test_coordinates_are_those_that_are_described() -> None:
    encoding = encoding_for(ROWS)
    points = encoding.encode(ROWS)
    # block has two, layout three for one group, what is fixed none; three sizes are multiplied.
    assert encoding.groups.tolist() == [0, 1, 2, 3, 4, 5, 5, 5, 6, 7, 8, 9]
    config = dict(zip("busolft", ROWS.matrices[0].T, strict=True))
    np.testing.assert_allclose(points[:, 0], np.log2(config["b"] / 16) / 2)
    np.testing.assert_allclose(points[:, 1][config["b"] == 48], 0)
    np.testing.assert_allclose(points[:, 2], np.log2(config["u"] + 1) / np.log2(5))
    np.testing.assert_allclose(points[:, 3], config["s"] / 2)
    np.testing.assert_allclose(points[:, 4], (config["o"] + 1) / 4)
    np.testing.assert_allclose(points[:, 8], np.log2(config["t"]) / 2)
    np.testing.assert_allclose(points[:, 10], np.log2(config["b"] * config["t"] / 16) / 4)


def test_choices_are_as_far_from_each_other_as_ends_of_a_range() -> None:
    corners = np.unique(encoding_for(ROWS).encode(ROWS)[:, 5:8], axis=0)
    distances = np.linalg.norm(corners[:, None] - corners[None], axis=2)
    np.testing.assert_allclose(distances, 1 - np.eye(3))


def test_a_row_alone_is_where_it_is_among_others() -> None:
    rows = _rows(ToySpace())
    encoding = encoding_for(rows)
    points = encoding.encode(rows)
    for position in (0, 100, len(rows) - 1):
        np.testing.assert_array_equal(
            encoding.encode(CandidateBatch.of(rows.take([position])))[0], points[position]
        )


def test_what_is_beyond_the_reference_has_a_finite_point() -> None:
    encoding = encoding_for(ROWS.select(np.flatnonzero(ROWS.matrices[0][:, 0] > 16)))
    assert np.isfinite(encoding.encode(ROWS)).all()
