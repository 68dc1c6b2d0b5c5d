"""Laws G1 to G4 of derivatives, on the tape of every sketch (G5: rows, G6: kinks, elsewhere).

Derivatives are by the logarithm of each parameter, as a descent takes them (``x = 2^theta``), and
relative to the size of the output, which reaches from 1 to billions.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from random_tapes import BOUNDS, points, relaxable, tapes
from relaxed_samples import Sample, samples

from autotune.nest import Tape
from autotune.nest.relaxed import FELIX, RelaxedTape, Smoothing, param_bounds

Values = NDArray[np.float64]

STEP = 1e-5
# Steps of differences lead beyond the bounds by this much.
MARGIN = 1e-3


@pytest.fixture(params=samples(), ids=lambda sample: sample.name)
def sample(request: pytest.FixtureRequest) -> Sample:
    found: Sample = request.param
    return found


def size(values: Values) -> Values:
    return np.maximum(np.abs(values), 1)


@pytest.mark.parametrize(
    "smoothing", [Smoothing(), Smoothing(0.5, 0.3, False)], ids=["usual", "wide"]
)
def test_differences(sample: Sample, smoothing: Smoothing) -> None:
    """G1: every output by every parameter, against central differences.

    The relaxed form has no kinks, so that no point has to be left out.
    """
    tape = sample.relaxed(smoothing, MARGIN)
    params = len(sample.tape.inputs)
    for point in sample.between(3, np.random.default_rng(11)):
        # One row a parameter, moved up and down.
        step = np.where(point > 0, point * STEP, STEP)
        up, down = point + np.diag(step), point - np.diag(step)
        differences = ((tape.values(up) - tape.values(down)) / (2 * STEP)).T
        unit = np.where(point > 0, point, 1.0)
        derivatives = sample.jacobian(tape, point) * unit
        scale = size(tape.values(point[None])).T
        assert differences.shape == derivatives.shape == (len(sample.tape.outputs), params)
        error = np.abs(derivatives - differences) / scale
        assert (error <= 1e-6 + 1e-4 * np.abs(derivatives) / scale).all()


def test_along_a_direction(sample: Sample) -> None:
    """G2: a random direction catches a term that is missing."""
    tape = sample.relaxed(margin=MARGIN)
    rng = np.random.default_rng(12)
    at = sample.between(20, rng)
    direction = rng.normal(size=at.shape)
    step = STEP * direction * np.where(at > 0, at, 1)
    weights = rng.normal(size=(20, len(sample.tape.outputs))) / size(tape.values(at))
    difference = (weights * (tape.values(at + step) - tape.values(at - step))).sum(axis=1) / 2
    derivative = (tape.vjp(at, weights) * step).sum(axis=1)
    scale = np.abs(tape.vjp(at, np.abs(weights)) * step).sum(axis=1) + STEP
    assert (np.abs(difference - derivative) <= 1e-5 * scale).all()


@pytest.mark.parametrize("smoothing", [Smoothing(), FELIX, Smoothing(0.01, 0.001)])
def test_finite_in_all_corners(sample: Sample, smoothing: Smoothing) -> None:
    """G3: values and gradients on the closed box, corners and configurations included.

    The kernel computes in float64 only, so there is no float32 form to check.
    """
    tape = sample.relaxed(smoothing)
    rng = np.random.default_rng(13)
    low, high = np.array(list(param_bounds(sample.sketch).values())).T
    corners = np.where(rng.random((60, len(low))) < 0.5, low, high)
    at = np.concatenate([low[None], high[None], corners, sample.rows])
    assert np.isfinite(tape.values(at)).all()
    assert np.isfinite(tape.vjp(at, np.ones((len(at), len(sample.tape.outputs))))).all()


def test_no_dead_zone(sample: Sample) -> None:
    """G4: every parameter that the tape reads and that is not fixed moves some output.

    Configurations themselves are included: at a vertex of the factorisations too a descent
    knows where to go. (What a tape does not read, no form of it can move.)
    """
    tape = sample.relaxed()
    for point in (*sample.between(3, np.random.default_rng(14)), *sample.rows[:3].astype(float)):
        jacobian = sample.jacobian(tape, point)
        assert (np.abs(jacobian[:, sample.moving()]).max(axis=0) > 0).all()


def test_an_exact_tape_has_the_derivatives_of_its_pieces(sample: Sample) -> None:
    """G1 for hard operations, away from their kinks: where both one-sided differences agree.

    Points are moved off whole numbers, where kinks meet: of ``min(x, 1) * max(x, 1)`` at 1, which
    is smooth, the average of each factor's sides gives no derivative.
    """
    tape = sample.exact()
    rng = np.random.default_rng(15)
    counted = 0
    for point in sample.between(4, rng) * rng.uniform(1.001, 1.1, len(sample.tape.inputs)):
        step = np.diag(np.where(point > 0, point * STEP, STEP))
        centre = tape.values(point[None])
        ahead, behind = tape.values(point + step) - centre, centre - tape.values(point - step)
        scale = size(centre) * STEP
        smooth = np.abs(ahead - behind) <= 1e-3 * scale
        unit = np.where(point > 0, point, 1.0)
        error = np.abs(
            sample.jacobian(tape, point).T * unit[:, None] * STEP - (ahead + behind) / 2
        )
        assert (error[smooth] <= 1e-3 * np.broadcast_to(scale, error.shape)[smooth]).all()
        counted += int(smooth.sum()) * 3 >= smooth.size
    assert counted > 0


@given(tapes(), points(), st.integers(0, 2**32 - 1))
def test_any_tape_along_a_direction(tape: Tape, at: Values, seed: int) -> None:
    """G2 for tapes that no sketch has: the difference shrinks with the square of the step."""
    relaxed = relaxable(tape)
    assume(relaxed is not None)
    assert relaxed is not None
    low, high = np.array(list(BOUNDS.values())).T
    at = np.clip(at, low + 0.1, high - 0.1)
    rng = np.random.default_rng(seed)
    direction = rng.uniform(-1, 1, at.shape)
    weights = rng.normal(size=(len(at), len(tape.outputs)))
    derivative = (relaxed.vjp(at, weights) * direction).sum(axis=1)
    errors = []
    for step in (1e-3, 1e-4):
        moved = relaxed.values(at + step * direction) - relaxed.values(at - step * direction)
        errors.append(np.abs((weights * moved).sum(axis=1) / (2 * step) - derivative))
    largest = np.abs(relaxed.values(at)).max(axis=1) + np.abs(derivative) + 1
    assert (errors[1] <= errors[0] / 10 + 1e-7 * largest).all()


def test_relaxed_tapes_are_smooth_between_configurations() -> None:
    """No jump on the way from one configuration to another, which hard forms do have."""
    chosen = next(sample for sample in samples() if "conv2d" in sample.name)
    share = np.linspace(0, 1, 2001)[:, None]
    first, last = chosen.rows[0], chosen.rows[-1]
    positive = (chosen.rows > 0).all(axis=0)
    path = np.where(
        positive,
        np.maximum(first, 1) ** (1 - share) * np.maximum(last, 1) ** share,
        (1 - share) * first + share * last,
    )
    values = chosen.relaxed().values(path)
    scale = size(values).max(axis=0)
    assert np.abs(np.diff(values, axis=0) / scale).max() < 0.02


def test_that_the_samples_are_of_every_kind() -> None:
    """The laws above would hold vacuously without smooth forms among the sketches."""
    forms = {form for sample in samples() for form, _ in sample.relaxed().lowered.instructions}
    assert {"add", "mul", "divide", "min_log", "min_linear", "max_log", "max_linear"} <= forms
    assert isinstance(samples()[0].exact(), RelaxedTape)
