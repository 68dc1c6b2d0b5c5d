"""Conformance suite of frontends; see :mod:`autotune.testing.strategy_suite` for the use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.backends import Backend
from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.workloads import Workload
from autotune.networks import Frontend, LoadOptions, NetworkProgram, PassReport
from autotune.networks.running import compare_outputs
from autotune.plugins.parts import create_part
from autotune.sketches import UNTUNED, Candidate, baseline_candidate
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import Target, detect_cpu
from autotune.testing.programs import sample_candidates

__all__ = ["FrontendSuite", "Source"]

Source = tuple[object, Sequence[object] | None]
"""A source, and its example inputs where it has none of its own."""


class FrontendSuite:
    """The contract of frontends: fixtures ``frontend`` and ``source``, a small model."""

    @pytest.fixture
    def frontend(self) -> Frontend:
        """The frontend."""
        raise NotImplementedError("give the fixture 'frontend'")

    @pytest.fixture
    def source(self) -> Source:
        """A model that it reads, of at least two tasks that can be tuned, and its inputs."""
        raise NotImplementedError("give the fixture 'source'")

    @pytest.fixture
    def target(self) -> Target:
        """Target that networks are built for."""
        return detect_cpu()

    @pytest.fixture
    def program(self, frontend: Frontend, source: Source, target: Target) -> NetworkProgram:
        """The model, loaded."""
        return frontend.load(*source, LoadOptions(target, 1))

    def test_it_says_what_it_is(self, frontend: Frontend) -> None:
        plain = frontend.name.replace("-", "").replace("_", "")
        assert plain.isascii() and plain.isalnum() and plain == plain.lower()
        assert frontend.sources and all(frontend.sources)
        assert len(set(frontend.passes)) == len(frontend.passes)

    def test_it_accepts_its_own_sources_only(
        self, frontend: Frontend, source: Source, tmp_path: Path
    ) -> None:
        assert frontend.accepts(source[0])
        for foreign in (object(), None, 5, "text", tmp_path / "file.nobody-knows"):
            assert not frontend.accepts(foreign)
        for format in frontend.formats:
            assert format.startswith(".") and frontend.accepts(tmp_path / f"file{format}")

    def test_tasks_have_unique_names_and_are_programs_of_the_backend(
        self, program: NetworkProgram
    ) -> None:
        names = [task.name for task in program.tasks]
        assert names and all(names) and len(set(names)) == len(names)
        backend: Backend = create_part("backend", program.backend)
        for task in program.tasks:
            assert task.occurrences >= 1 and task.flop >= 0
            is_read = isinstance(task.program, Workload) or backend.imports(task.program)
            assert is_read, task.name

    def test_loading_again_gives_the_same_tasks(
        self, frontend: Frontend, source: Source, program: NetworkProgram, target: Target
    ) -> None:
        again = frontend.load(*source, LoadOptions(target, 1))
        assert _facts(again) == _facts(program)

    def test_passes_are_reported_in_order(
        self, frontend: Frontend, source: Source, target: Target
    ) -> None:
        told: list[PassReport] = []
        program = frontend.load(*source, LoadOptions(target, 1, on_pass=told.append))
        assert tuple(told) == program.passes
        places = [frontend.passes.index(report.name) for report in told]
        assert places == sorted(places) and bool(places) == bool(frontend.passes)
        assert all(report.seconds >= 0 for report in told)

    def test_a_pass_can_be_replaced(
        self, frontend: Frontend, source: Source, target: Target
    ) -> None:
        class Reached(InvalidValueError):
            pass

        def replacement(graph: Any) -> Any:
            raise Reached("the replacement was called")

        for name in frontend.passes:
            with pytest.raises(Reached):
                frontend.load(*source, LoadOptions(target, 1, {name: replacement}))

    def test_a_pass_that_does_not_exist_is_refused(
        self, frontend: Frontend, source: Source, target: Target
    ) -> None:
        names = frontend.passes
        wrong = f"{names[0] if names else 'any'}_"
        hint = f"Did you mean '{names[0]}'" if names else f"unknown pass '{wrong}'"
        with pytest.raises(UnknownNameError, match=hint):
            frontend.load(*source, LoadOptions(target, 1, {wrong: None}))

    def test_example_inputs_are_those_of_the_network(self, program: NetworkProgram) -> None:
        found = [(tuple(it.shape), str(np.asarray(it).dtype)) for it in program.example_inputs()]
        assert found == [(it.shape, it.dtype) for it in program.inputs]

    def test_without_records_it_computes_what_the_model_does(
        self, program: NetworkProgram, target: Target
    ) -> None:
        _check(program, {}, target)

    def test_with_records_it_computes_what_the_model_does(
        self, program: NetworkProgram, target: Target
    ) -> None:
        backend: Backend = create_part("backend", program.backend)
        chosen: dict[str, Record | None] = {}
        for task in program.tasks:
            if task.view:
                continue
            workload = _workload(task.program, backend)
            candidate = sample_candidates(backend, workload, target)[0]
            chosen[task.name] = _record(candidate, target)
        assert len(chosen) > 1
        first = next(record for record in chosen.values() if record is not None)
        _check(program, chosen, target)
        untuned = baseline_candidate(first.candidate.sketch.workload, UNTUNED)
        chosen[next(iter(chosen))] = _record(untuned, target, UNTUNED)
        _check(program, {**chosen, list(chosen)[-1]: None}, target)

    def test_inputs_are_not_changed(self, program: NetworkProgram, target: Target) -> None:
        network = program.build({}, target, 1)
        given = [np.array(it) for it in program.example_inputs()]
        kept = [array.copy() for array in given]
        network(*given)
        assert all(np.array_equal(a, b) for a, b in zip(given, kept, strict=True))

    def test_other_inputs_are_refused(self, program: NetworkProgram, target: Target) -> None:
        network = program.build({}, target, 1)
        given = [np.asarray(it) for it in program.example_inputs()]
        wrong: list[list[Any]] = [
            given[1:],
            [*given, given[0]],
            [np.zeros((*given[0].shape, 2), given[0].dtype), *given[1:]],
            [given[0].astype(np.complex64), *given[1:]],
        ]
        for inputs in wrong:
            with pytest.raises(InvalidValueError, match=program.inputs[0].name):
                network(*inputs)

    def test_it_is_timed_whole_and_by_task(self, program: NetworkProgram, target: Target) -> None:
        network = program.build({}, target, 1)
        inputs = program.example_inputs()
        seconds = network.time_calls(inputs, 3)
        assert len(seconds) == 3 and all(it > 0 for it in seconds)
        profile = network.profile(inputs)
        assert set(profile) == {task.name for task in program.tasks}
        assert all(it >= 0 for it in profile.values())

    def test_it_is_saved(self, program: NetworkProgram, target: Target, tmp_path: Path) -> None:
        network = program.build({}, target, 1)
        remarks = network.save(tmp_path / "network.so")
        assert (tmp_path / "network.so").stat().st_size
        assert all(remark and "\n" not in remark for remark in remarks)
        missing = tmp_path / "no_such_folder" / "network.so"
        with pytest.raises(InvalidValueError, match="no_such_folder"):
            network.save(str(missing))


def _workload(program: object, backend: Backend) -> Workload:
    """Workload of a task."""
    if isinstance(program, Workload):
        return program
    return backend.import_program(program).workload


def _facts(program: NetworkProgram) -> list[object]:
    backend: Backend = create_part("backend", program.backend)
    tasks = [
        (task.name, task.occurrences, task.flop, task.nodes, task.view)
        + (_workload(task.program, backend).digest,)
        for task in program.tasks
    ]
    return [program.name, tasks, program.inputs, program.outputs]


def _check(program: NetworkProgram, chosen: dict[str, Record | None], target: Target) -> None:
    inputs = program.example_inputs()
    wanted = program.reference(inputs)
    assert wanted is not None, "the suite needs a model that can be run"
    found = program.build(chosen, target, 1)(*inputs)
    wrong = [
        str(it)
        for it in compare_outputs(program.outputs, wanted, found, eps=program.eps)
        if not it.ok
    ]
    assert not wrong, "\n".join(wrong)


def _record(candidate: Candidate, target: Target, baseline: str = "") -> Record:
    key = MeasureKey(target.fingerprint, "any", "1", "1", 1, "warm-3")
    outcome = Outcome("ok", 1e-3, (1e-3,))
    return Record(
        "run", 0, candidate, key, target.to_json(), "sketch-1", outcome, 0.0, baseline=baseline
    )
