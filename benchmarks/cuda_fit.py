"""Fit the constants of the corrected PSA to measured candidates, without one workload in turn.

prints the constants that fit all workloads best, which `autotune.models.pruning.psa_gpu` has
rounded, and how well those that were fitted without a workload order its candidates.

There are few workloads, so that a constant has to pay for every step away from what is known of
such devices. A candidate counts in proportion to its speed, for what is slow is not measured
anyway; a workload's mean error does not count, because its candidates are compared only with each
other.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import astuple, evolve, fields_dict, frozen
from cuda_candidates import (
    TARGET,
    Array,
    add_candidates,
    order_figures,
    read_cases,
    space_of,
    whole_config,
)

from autotune._native import PsaGpu
from autotune.models.pruning.psa_gpu import Calibration, corrected_gpu, symbol_tape
from autotune.spaces import SketchSpace

START = Calibration(
    global_latency=500,
    wait_for_global=60,
    wait_for_shared=30,
    reduction_step=100,
    dependent_slot=8,
    block_start=500,
    reduction_instructions=60,
    shared_wavefront=1,
    global_wavefront=1,
    cache_bytes=48,
    spilled_tile=1.25,
    copies_at_once=4,
    chains=4,
)
"""About what such a device has: 500 cycles to memory, which eight loads in flight share; 30 to
shared memory; 8 between dependent multiply-adds; a wavefront a cycle."""

# What a constant pays for being twice or half as large; steps by which it moves, as factors.
PENALTY = 0.03 * np.log(2) ** 2 / len(fields_dict(Calibration))
STEPS, SWEEPS = (2**0.5, 2**0.25, 2**0.125), 8


@frozen(eq=False)
class Case:
    """Measured candidates of one workload.

    Attributes:
        rows: As recorded.
        groups: Pairs of the places of some rows, and their symbols; each pair has one sketch.
        log_latency: Of the rows.
        weights: Of the rows; their sum is one.
    """

    rows: Sequence[dict[str, Any]]
    groups: Sequence[tuple[Any, Array]]
    log_latency: Array
    weights: Array

    def scores(self, calibration: Calibration) -> Array:
        """The score of every row."""
        gpu = evolve(corrected_gpu(TARGET), calibration=calibration)
        scorer, scores = PsaGpu("corrected", gpu.parameters()), np.empty(len(self.rows))
        for own, symbols in self.groups:
            scores[own] = scorer.score_symbols(symbols)
        return scores


def case_of(rows: Sequence[dict[str, Any]], space: SketchSpace) -> Case:
    """Candidates of a workload, as fitting needs them."""
    groups = []
    for sketch in space.sketches():
        own = [at for at, row in enumerate(rows) if row["sketch"] == sketch.name]
        if own:
            configs = [whole_config(rows[at], sketch) for at in own]
            matrix = [[config[it] for it in sketch.param_names] for config in configs]
            tape, maxima = symbol_tape(sketch, TARGET, "corrected")
            values = tape.evaluate(np.array(matrix, dtype=np.int64)).astype(np.float64)
            symbols = values[:, : values.shape[1] - len(maxima)]
            groups.append((own, np.ascontiguousarray(symbols)))
    latencies = np.array([row["latency"] for row in rows])
    return Case(rows, groups, np.log(latencies), 1 / latencies / np.sum(1 / latencies))


def error_of(cases: Iterable[Case], calibration: Calibration) -> float:
    """Mean over cases of the weighted variance of the error of log(latency), and the penalty."""
    variances = []
    for case in cases:
        errors = case.log_latency + np.log(case.scores(calibration))
        mean = np.sum(case.weights * errors)
        variances.append(np.sum(case.weights * (errors - mean) ** 2))
    moved = np.log2(np.array(astuple(calibration)) / np.array(astuple(START)))
    return float(np.mean(variances) + PENALTY * np.sum(moved**2))


def fitted(cases: Sequence[Case]) -> Calibration:
    """The constants of least error, one after the other by smaller and smaller steps."""
    best, least = START, error_of(cases, START)
    for step in STEPS:
        for _ in range(SWEEPS):
            before = least
            for name in fields_dict(Calibration):
                for factor in (step, 1 / step):
                    tried = evolve(best, **{name: getattr(best, name) * factor})
                    error = error_of(cases, tried)
                    if error < least:
                        best, least = tried, error
            if least == before:
                break
    return best


def figures_left_out(
    measured: Mapping[str, Sequence[dict[str, Any]]], spaces: Mapping[str, SketchSpace]
) -> dict[str, dict[str, float]]:
    """Order of each workload by constants that were fitted to all others."""
    cases = {name: case_of(rows, spaces[name]) for name, rows in measured.items()}
    found = {}
    for name, case in cases.items():
        others = [other for known, other in cases.items() if known != name]
        found[name] = order_figures(case.scores(fitted(others)), case.rows)
    return found


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    add_candidates(parser)
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> None:
    """Fit them, and print them."""
    measured = read_cases(options.candidates)
    spaces = {name: space_of(rows) for name, rows in measured.items()}
    best = fitted([case_of(rows, spaces[name]) for name, rows in measured.items()])
    for name in fields_dict(Calibration):
        print(f"{name:22} {getattr(best, name):8.3g}")
    for name, figures in figures_left_out(measured, spaces).items():
        print(f"{name:22} {figures['spearman']:5.2f} {figures['best_of_first']:.3f}")
