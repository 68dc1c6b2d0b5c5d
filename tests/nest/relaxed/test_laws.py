"""Laws F1 to F7 of what relaxed tapes of sketches say about programs.

F1 and F2 (footprints, traffic and operations are exact at whole numbers) hold for the exact form:
`test_relaxed_tape` finds it equal to the integer tape of every sketch, and the tests of the nest
hold that against a walk of the loops. For the relaxed form they become bounds, here.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from relaxed_samples import Sample, samples, samples_of

from autotune.ir.expressions import const, var
from autotune.ir.workloads import Workload, conv2d, gemm, softmax
from autotune.nest import Statement, nest_tape
from autotune.nest.relaxed import RelaxedTape, param_bounds
from autotune.sketches import Factor, Order, ProductEquals, Sketch, Tile
from autotune.targets import preset

Values = NDArray[np.float64]


@pytest.fixture(params=samples(), ids=lambda sample: sample.name)
def sample(request: pytest.FixtureRequest) -> Sample:
    found: Sample = request.param
    return found


def dominant(sample: Sample) -> Statement:
    nest = nest_tape(sample.sketch)
    return nest.nest.statements[nest.dominant]


def elasticities(sample: Sample, tape: RelaxedTape, point: Values) -> Values:
    """Derivatives of the logarithms of outputs by those of parameters, ``[outputs, params]``.

    Of outputs below 1, by their value; of parameters that are 0, by their value.
    """
    unit = np.where(point > 0, point, 1.0)
    scale = np.maximum(np.abs(tape.values(point[None])[0]), 1)
    return np.asarray(sample.jacobian(tape, point) * unit / scale[:, None])


def octaves(sample: Sample, tape: RelaxedTape) -> Values:
    """By how many octaves outputs may be off at whole numbers, ``[outputs]``.

    Minima and maxima add half of epsilon, products add what their factors are off. Of what is
    subtracted, divided, compared or linear, no such bound is known: infinite.
    """
    lowered = tape.lowered
    off = [0.0] * (lowered.inputs + len(lowered.constants))
    constants = [*(1.0,) * lowered.inputs, *lowered.constants]
    for form, operands in lowered.instructions:
        given = [off[slot] for slot in operands]
        subtracts = any(slot < len(constants) and constants[slot] < 0 for slot in operands)
        if form == "mul" and not subtracts:
            off.append(sum(given))
        elif form == "add" and not subtracts:
            off.append(max(given))
        elif form in ("min_log", "max_log"):
            off.append(max(given) + tape.smoothing.epsilon / 2)
        else:
            off.append(math.inf)
    return np.array([off[slot] for slot in lowered.outputs])


def test_f1_f2_bounds_at_configurations(sample: Sample) -> None:
    tape = sample.relaxed()
    exact = sample.tape.evaluate(sample.rows)
    found = tape.values(sample.rows.astype(np.float64))
    allowed = octaves(sample, tape)
    known = np.isfinite(allowed) & (exact > 0).all(axis=0)
    error = np.abs(np.log2(found[:, known]) - np.log2(exact[:, known]))
    assert (error <= allowed[known] + 1e-9).all()
    assert np.array_equal(found[:, allowed == 0], exact[:, allowed == 0])
    # Extents, trips and operations at least are among what is known to the last digit.
    assert (allowed == 0).sum() >= 10


def conserves(sample: Sample) -> bool:
    """Tell whether the loops of the statement that does the arithmetic are products of factors.

    Those of threads that overshoot (a fused loop split with a remainder) are not, and larger tiles
    reach into padding with fewer taps.
    """
    return all(
        loop.extent.op in ("const", "var", "mul") and loop.bound is None
        for loop in dominant(sample).loops
    )


def test_f3_conservation(sample: Sample) -> None:
    """Moving a factor from one level of an axis to another changes no number of operations.

    Asked of the statement that does the arithmetic; of copies it does not hold.
    """
    if not conserves(sample):
        return  # few are left out: the next test counts
    statement = dominant(sample)
    tape = sample.relaxed()
    rows = [
        column
        for column, (name, _) in enumerate(sample.tape.outputs)
        if name.startswith(f"{statement.name}/operations/")
    ]
    assert rows
    names = list(sample.tape.inputs)
    for point in sample.between(2, np.random.default_rng(21)):
        found = elasticities(sample, tape, point)[rows]
        for constraint in sample.sketch.constraints:
            if isinstance(constraint, ProductEquals):
                shares = found[:, [names.index(factor) for factor in constraint.factors]]
                np.testing.assert_allclose(shares, shares[:, :1].repeat(shares.shape[1], 1))


def test_conservation_was_asked_of_many() -> None:
    assert sum(map(conserves, samples())) >= 2 * len(samples()) // 3


def test_f4_what_is_touched_grows_with_the_loops_inside(sample: Sample) -> None:
    """And what is outside does not matter, for tensors of the workload.

    A buffer of the schedule is held within its allocation by a minimum; a smooth one lets the
    allocation's parameters through, so that of it only the first half is asked. Copies that a
    block makes together count through elements, not through axes: where rows become longer, one
    thread's share is a part of fewer of them. They are left out.
    """
    nest = nest_tape(sample.sketch).nest
    allocated = {buffer.name for buffer in nest.buffers}
    column = {name: index for index, (name, _) in enumerate(sample.tape.outputs)}
    tape = sample.relaxed()
    for point in sample.between(2, np.random.default_rng(22)):
        found = elasticities(sample, tape, point)
        for statement in (each for each in nest.statements if not each.flattened):
            for buffer in {access.buffer for access in statement.accesses}:
                for depth in range(len(statement.loops) + 1):
                    moves = found[column[f"{statement.name}/region/{buffer}/{depth}"]]
                    assert (moves >= -1e-9).all()
                    inside = _inside(statement, depth)
                    outside = [
                        i for i, name in enumerate(sample.tape.inputs) if name not in inside
                    ]
                    if buffer not in allocated:
                        assert (np.abs(moves[outside]) <= 1e-9).all()
        for name in ("shared_bytes", "local_bytes", *(f"buffer/{b}" for b in allocated)):
            assert (found[column[name]] >= -1e-9).all()


def _inside(statement: Statement, depth: int) -> set[str]:
    """Parameters of the loops from ``depth`` on, and of what bounds and holds their axes."""
    expressions = [loop.extent for loop in statement.loops[depth:]]
    expressions += [extent for loop in statement.loops[depth:] for _, extent in loop.parts]
    expressions += [extent for _, extent in statement.flattened]
    expressions += list(statement.guards.values())
    expressions += [extent for access in statement.accesses for extent in access.shape]
    return set().union(*(expression.variables for expression in expressions))


@pytest.mark.parametrize("name", ["i", "j"])
def test_f5_twice_the_outermost_factor(name: str) -> None:
    """Twice the work and the writes; nothing inside is touched differently."""
    chosen = next(s for s in samples() if s.name == "cpu-gemm-64x96x32xfloat32-direct")
    params = list(chosen.tape.inputs)
    statement = dominant(chosen)
    before = chosen.rows[chosen.rows[:, params.index(f"C.{name}.0")] >= 2].astype(np.float64)
    assert len(before)
    after = before.copy()
    after[:, params.index(f"C.{name}.0")] /= 2
    tape = chosen.relaxed()
    ratio = tape.values(after) / np.maximum(tape.values(before), 1)
    column = {output: index for index, (output, _) in enumerate(chosen.tape.outputs)}
    inner = len(statement.loops)
    written = next(access.buffer for access in statement.accesses if access.write)
    for output in (
        f"trips/{inner}",
        "operations/add",
        "operations/mul",
        f"traffic/{written}/{inner}",
    ):
        np.testing.assert_allclose(ratio[:, column[f"{statement.name}/{output}"]], 0.5)
    position = next(
        i for i, loop in enumerate(statement.loops) if f"C.{name}.0" in loop.extent.variables
    )
    for buffer in {access.buffer for access in statement.accesses}:
        for depth in range(position + 1, inner + 1):
            output = f"{statement.name}/region/{buffer}/{depth}"
            np.testing.assert_array_equal(ratio[:, column[output]], 1)


def renamed(workload: Workload) -> Workload:
    """The same computation with other names of tensors and axes, in reverse alphabetic order."""
    data = workload.to_json()
    names = {tensor[0] for tensor in data["inputs"]}
    for stage in data["stages"]:
        names |= {stage["output"][0], *(axis[0] for axis in stage["axes"])}
    ordered = sorted(names)
    table = {f'"{name}"': f'"z{len(ordered) - i:02d}"' for i, name in enumerate(ordered)}
    text = json.dumps({key: data[key] for key in ("inputs", "stages", "outputs")})
    words = re.sub(r'"[A-Za-z_0-9]+"', lambda match: table.get(match[0], match[0]), text)
    return Workload.from_json({"name": "renamed", **json.loads(words)})


@pytest.mark.parametrize(
    "workload", [gemm(m=16, n=24, k=8), softmax(m=8, n=12)], ids=lambda workload: workload.name
)
@pytest.mark.parametrize("target", ["skylake-avx512-2core", "a100"])
def test_f6_names_do_not_matter(workload: Workload, target: str) -> None:
    """Up to rounding: terms of a sum are in the order of their names."""
    first = samples_of(workload, preset(target))
    second = samples_of(renamed(workload), preset(target))
    assert [one.sketch.name for one in first] == [other.sketch.name for other in second]
    for one, other in zip(first, second, strict=True):
        rows = one.rows.astype(np.float64)
        assert one.rows.shape[1] == len(other.tape.inputs)
        found = np.sort(one.relaxed().values(rows), axis=1)
        again = np.sort(other.relaxed().values(rows), axis=1)
        np.testing.assert_allclose(found, again, rtol=1e-9)


def tiled(workload: Workload, levels: int) -> Sketch:
    """A product whose rows are split in ``levels``, without anything else."""
    output = workload.outputs[0]
    factors = tuple(f"f{level}" for level in range(levels))
    extent = workload.stage(output).axis("i").extent
    return Sketch(
        "made",
        workload,
        tuple(Factor(name) for name in factors),
        (ProductEquals(factors, const(extent)),),
        (
            Tile(output, "i", tuple(var(name) for name in factors)),
            Tile(output, "j", (const(10),)),
            Tile(output, "k", (const(6),)),
            Order(output, (*(f"i.{level}" for level in range(levels)), "j.0", "k.0")),
        ),
    )


@pytest.mark.parametrize("position", [0, 1, 2])
def test_f7_a_loop_that_runs_once(position: int) -> None:
    """Inserted anywhere it changes nothing at the depths that were there before.

    The exact form is equal. The relaxed one counts the loop as a small part of one that runs
    (5.3 % at a width of 1/4), which moves what depends on whether loops run (traffic, reuse) by
    that part of the octaves that these can differ by.
    """
    workload = gemm(m=24, n=10, k=6)
    short, long = tiled(workload, 2), tiled(workload, 3)
    rows = np.array([[2.0, 12.0], [8.0, 3.0], [24.0, 1.0], [1.0, 24.0]])
    longer = np.insert(rows, position, 1.0, axis=1)
    tapes = {sketch: nest_tape(sketch).tape for sketch in (short, long)}
    for mode in ("exact", "relaxed"):
        values = [
            RelaxedTape(tapes[sketch], mode, param_bounds(sketch)).values(at)
            for sketch, at in ((short, rows), (long, longer))
        ]
        columns = [{n: i for i, (n, _) in enumerate(tapes[s].outputs)} for s in (short, long)]
        moved = 0
        for output, index in columns[0].items():
            found, expected = (
                values[1][:, columns[1][_shifted(output, position)]],
                values[0][:, index],
            )
            if mode == "exact" or not re.search("/(traffic|reuse_[a-z]+)/", output):
                np.testing.assert_array_equal(found, expected)
            else:
                error = np.abs(np.log2(1 + found) - np.log2(1 + expected))
                assert (error <= 0.053 * np.log2(1 + values[0].max())).all()
                moved += not np.array_equal(found, expected)
        assert (moved > 0) == (mode == "relaxed")


def _shifted(output: str, position: int) -> str:
    """Name of an output when a loop is inserted at ``position``."""
    found = re.fullmatch(r"(.*/(?:loop|trips|region/\w+|unique/\w+|traffic/\w+)/)(\d+)", output)
    if found is None:
        return output
    depth = int(found[2])
    return f"{found[1]}{depth + (depth >= position if '/loop/' in output else depth > position)}"


def test_windows_overlap_smoothly() -> None:
    """The hull of a window grows by the stride for every further row, at whole numbers exactly."""
    workload = conv2d(h=32, w=32, ci=2, co=4, kh=3, kw=3, stride=2)
    for sample in samples_of(workload, preset("skylake-avx512-2core")):
        if sample.sketch.name != "direct":
            continue
        column = {name: index for index, (name, _) in enumerate(sample.tape.outputs)}
        statement = dominant(sample)
        found = sample.relaxed().values(sample.rows.astype(np.float64))
        exact = sample.tape.evaluate(sample.rows)
        for depth in range(len(statement.loops) + 1):
            index: Any = column[f"{statement.name}/region/X/{depth}"]
            np.testing.assert_allclose(found[:, index], exact[:, index], rtol=2**0.2 - 1)
