"""Conformance suite for backends: subclass it and give the one fixture.

::

    class TestMyBackend(BackendSuite):
        @pytest.fixture
        def backend(self):
            return MyBackend()

Other fixtures may be given too, such as ``candidates`` that are not those of a `SketchSpace`.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import frozen

from autotune.backends import (
    Backend,
    BoundCall,
    BuildRequest,
    InvalidSchedule,
    aligned_copy,
    aligned_empty,
    bind_copies,
    time_native_call,
)
from autotune.backends.backend import Array
from autotune.errors import (
    AutotuneError,
    InvalidValueError,
    UnknownNameError,
    UnsupportedWorkload,
)
from autotune.ir import element_types
from autotune.ir.expressions import const
from autotune.ir.workloads import Workload, gemm, random_inputs, reference_outputs, softmax
from autotune.ir.workloads.halves import HALF_DTYPES
from autotune.process.fork_server_process import worker_environment
from autotune.sketches import (
    STEP_TYPES,
    Bind,
    Candidate,
    OpenStep,
    Parallel,
    Sketch,
    Step,
    Tile,
    baseline_candidate,
    names_used,
    prepacked_operands,
)
from autotune.spaces import SketchSpace
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import Target, detect_cpu
from autotune.testing.programs import check_call, check_program, request_for, sample_candidates

__all__ = ["PackingSuite"]


class PackingSuite:
    """Promises of programs whose constants are packed when they are bound.

    For backends whose limits name the step ``prepack``.
    """

    packs_ahead: bool = True
    """True if programs are given what ``prepack`` packs; otherwise they pack it in every call."""

    @pytest.fixture
    def packing_candidate(self, backend: Backend, target: Target, workload: Workload) -> Candidate:
        """A candidate whose program is given its last input packed."""
        if not self.packs_ahead or "prepack" not in backend.limits(target).steps:
            pytest.skip("nothing is packed ahead")  # noqa: TID251
        constant = workload.with_constants(workload.inputs[-1].name)
        drawn = sample_candidates(backend, constant, target, each=2)
        return next(candidate for candidate in drawn if prepacked_operands(candidate))

    def test_bindings_to_equal_constants_share_what_is_packed(
        self, backend: Backend, target: Target, packing_candidate: Candidate
    ) -> None:
        executable = backend.build(request_for(packing_candidate, target))
        workload = packing_candidate.sketch.workload
        inputs = list(random_inputs(workload, np.random.default_rng(0)).values())
        first, second = (bind_copies(executable, workload, inputs) for _ in range(2))
        assert first.copies()
        for one, other in zip(first.copies(), second.copies(), strict=True):
            assert one is other

    def test_what_is_timed_does_not_pack(
        self, backend: Backend, target: Target, packing_candidate: Candidate
    ) -> None:
        """A call reads the packed constant only: changes of the constant itself are not seen."""
        executable = backend.build(request_for(packing_candidate, target))
        workload = packing_candidate.sketch.workload
        inputs = random_inputs(workload, np.random.default_rng(0))
        call = bind_copies(executable, workload, list(inputs.values()))
        call.run()
        before = call.outputs()
        call.copies()[0][...] = 0
        call.run()
        assert not np.array_equal(before[0], call.outputs()[0])


@frozen
class Reversed(OpenStep):
    """A plugin's step: the stage's loops in reverse order, by its effect on the nest alone."""

    name = "suite_reversed"

    def derive(self, schedules: Mapping[str, Any]) -> None:
        """The other way round."""
        schedules[self.stage].order.reverse()


@frozen
class Elsewhere(OpenStep):
    """A plugin's step: a whole schedule of some other compiler."""

    name = "suite_elsewhere"
    opaque = True
    backends = frozenset({"of-somebody-else"})


class BackendSuite(PackingSuite):
    """The contract of backends."""

    heavy_modules: Sequence[str] = ()
    """Modules that importing the backend must not import, such as the compiler's package."""

    runs_in_place: bool = True
    """True if programs run on the caller's arrays; those for a device run on copies."""

    @pytest.fixture
    def backend(self) -> Backend:
        """The backend."""
        raise NotImplementedError("override this fixture")

    @pytest.fixture
    def target(self) -> Target:
        """A target that the backend supports and this machine can run; the machine itself."""
        return detect_cpu()

    @pytest.fixture
    def workload(self) -> Workload:
        """Workload of ``candidates``."""
        return gemm(m=32, n=48, k=16)

    @pytest.fixture
    def candidates(self, backend: Backend, target: Target, workload: Workload) -> list[Candidate]:
        """Candidates of ``workload`` that the backend can replay; some of a `SketchSpace`."""
        space = SketchSpace(workload, target, backend.limits(target))
        return list(space.sample(8, np.random.default_rng(3)))

    @pytest.fixture
    def invalid_candidate(self, workload: Workload) -> Candidate:
        """A candidate that the backend has to refuse: its factors are not an axis's extent."""
        stage = workload.stages[-1]
        steps = (Tile(stage.name, stage.axes[0].name, (const(5), const(3))),)
        return Candidate(Sketch("broken", workload, (), (), steps), ())

    @pytest.fixture
    def program(self) -> str | None:
        """The imported program's text, when the candidates are for one."""
        return None

    def request(
        self,
        workload: Workload,
        target: Target,
        candidate: Candidate | None = None,
        program: str | None = None,
        threads: int = 1,
    ) -> BuildRequest:
        """A build request; override to change the number of threads and the like."""
        return BuildRequest(workload, program, candidate, target, threads)

    def test_names_itself(self, backend: Backend) -> None:
        assert backend.name
        assert backend.version
        assert backend.compiler_version()
        assert isinstance(backend.compiler_version(), str)

    def test_is_cheap_to_import(self, backend: Backend, target: Target) -> None:
        cls, machine = type(backend), json.dumps(target.to_json())
        check = (
            f"import json, sys; from {cls.__module__} import {cls.__qualname__} as B; b = B(); "
            f"from autotune.targets import Target; t = Target.from_json(json.loads({machine!r})); "
            "b.version, b.compiler_version(), b.worker_environment(1), b.imports(3); "
            "b.check_target(t), b.limits(t); "
            f"sys.exit(' '.join(set({list(self.heavy_modules)!r}) & set(sys.modules)) or 0)"
        )
        process = subprocess.run(
            [sys.executable, "-c", check],
            capture_output=True,
            text=True,
            timeout=60,
            env=worker_environment(1, {}),
        )
        assert (process.returncode, process.stderr) == (0, "")

    def test_limits(self, backend: Backend, target: Target) -> None:
        backend.check_target(target)
        limits = backend.limits(target)
        assert limits.steps <= set(STEP_TYPES)
        assert limits.stack_bytes > 0
        assert limits.unrolled_statements > 0
        assert limits.source

    @pytest.mark.parametrize("threads", [1, 2])
    def test_worker_environment(self, backend: Backend, threads: int) -> None:
        environment = backend.worker_environment(threads)
        assert all(isinstance(v, str) for item in environment.items() for v in item)

    def test_foreign_programs_are_not_its_own(self, backend: Backend) -> None:
        for program in (object(), 3, "text", None, gemm(m=1, n=1, k=1)):
            assert not backend.imports(program)
        with pytest.raises(UnsupportedWorkload):
            backend.import_program(object())

    def test_the_untuned_program_is_right(
        self, backend: Backend, target: Target, workload: Workload, program: str | None
    ) -> None:
        self._check_between_guards(backend, self.request(workload, target, None, program))

    def test_the_default_schedule_is_right_where_there_is_one(
        self, backend: Backend, target: Target
    ) -> None:
        assert isinstance(backend.default_schedule, str)
        if not backend.default_schedule:
            return
        for workload in (gemm(m=7, n=5, k=3), softmax(m=5, n=9)):
            candidate = baseline_candidate(workload, backend.default_schedule)
            request = self.request(workload, target, candidate, None)
            try:
                backend.lower(request)
            except InvalidSchedule as error:
                assert str(error)
            else:
                self._check_between_guards(backend, request)
                assert backend.show(request)

    @pytest.mark.parametrize(
        "workload",
        [gemm(m=7, n=5, k=3, dtype="float64"), softmax(m=5, n=9)],
        ids=["f64", "stages"],
    )
    def test_other_workloads_are_right(
        self, backend: Backend, target: Target, workload: Workload
    ) -> None:
        self._check_between_guards(backend, self.request(workload, target))

    @pytest.mark.parametrize("dtype", HALF_DTYPES)
    @pytest.mark.parametrize("build", [gemm, softmax], ids=["product", "stages"])
    def test_halves_are_computed_with_or_refused(
        self, backend: Backend, target: Target, build: Callable[..., Workload], dtype: str
    ) -> None:
        shape = {"m": 7, "n": 5} if build is softmax else {"m": 7, "n": 5, "k": 3}
        request = self.request(build(**shape, dtype=dtype), target)
        try:
            backend.check_workload(request.workload)
        except UnsupportedWorkload as error:
            assert repr(dtype) in str(error)
        else:
            self._check_between_guards(backend, request)

    def test_a_foreign_element_type_is_computed_with_or_refused(
        self, backend: Backend, target: Target, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = element_types.ElementType("foreign", 2.0**-10, storage="float32")
        known = {**element_types.ELEMENT_TYPES, made.name: made}
        monkeypatch.setattr(element_types, "ELEMENT_TYPES", known)
        text = json.dumps(gemm(m=7, n=5, k=3).to_json()).replace("float32", made.name)
        request = self.request(Workload.from_json(json.loads(text)), target)
        try:
            backend.check_workload(request.workload)
        except UnsupportedWorkload as error:
            assert repr(made.name) in str(error) and repr(backend.name) in str(error)
            with pytest.raises(UnsupportedWorkload, match=made.name):
                backend.build(request)
        else:
            self._check_between_guards(backend, request)

    def test_candidates_are_right(
        self,
        backend: Backend,
        target: Target,
        workload: Workload,
        program: str | None,
        candidates: list[Candidate],
    ) -> None:
        assert candidates
        for candidate in candidates:
            request = self.request(workload, target, candidate, program)
            self._check_between_guards(backend, request)

    def test_a_candidate_survives_the_way_to_a_worker(
        self,
        backend: Backend,
        target: Target,
        workload: Workload,
        program: str | None,
        candidates: list[Candidate],
    ) -> None:
        text = json.dumps([workload.to_json(), candidates[0].to_json(), target.to_json()])
        data = json.loads(text)
        received = Workload.from_json(data[0])
        candidate = Candidate.from_json(data[1], received)
        request = self.request(received, Target.from_json(data[2]), candidate, program)
        call, inputs = self._bound(backend, request)
        self._check(workload, call, inputs)

    def test_poison_leaves_nothing_right(
        self, backend: Backend, target: Target, workload: Workload
    ) -> None:
        call, inputs = self._bound(backend, self.request(workload, target))
        call.run()
        call.poison()
        right = reference_outputs(workload, inputs)
        for name, output in zip(workload.outputs, call.outputs(), strict=True):
            assert not np.any(output == right[name])

    def test_outputs_are_copies(
        self, backend: Backend, target: Target, workload: Workload
    ) -> None:
        call, inputs = self._bound(backend, self.request(workload, target))
        call.run()
        first = call.outputs()
        kept = [output.copy() for output in first]
        call.poison()
        for output, copy in zip(first, kept, strict=True):
            np.testing.assert_array_equal(output, copy)
            output.fill(0)
        call.run()
        self._check(workload, call, inputs)

    def test_inputs_are_left_alone_and_kept(
        self, backend: Backend, target: Target, workload: Workload
    ) -> None:
        inputs, outputs = self._arguments(workload)
        given = [array.copy() for array in inputs]
        call = backend.build(self.request(workload, target)).bind(inputs, outputs)
        call.run()
        for array, copy in zip(inputs, given, strict=True):
            np.testing.assert_array_equal(array, copy)
        del inputs, outputs, array
        taken = [aligned_copy(np.zeros_like(copy)) for copy in given for _ in range(4)]
        call.poison()
        call.time(3)
        call.run()
        names = [tensor.name for tensor in workload.inputs]
        self._check(workload, call, dict(zip(names, given, strict=True)))
        assert not any(array.any() for array in taken)

    def test_runs_on_the_callers_arrays(
        self, backend: Backend, target: Target, workload: Workload
    ) -> None:
        if not self.runs_in_place:
            pytest.skip("the device has memory of its own")  # noqa: TID251
        inputs, outputs = self._arguments(workload)
        call = backend.build(self.request(workload, target)).bind(inputs, outputs)
        call.poison()
        for _ in range(2):
            call.run()
            for output, copy in zip(outputs, call.outputs(), strict=True):
                np.testing.assert_array_equal(output, copy)
            names = [tensor.name for tensor in workload.inputs]
            self._compare(workload, call, dict(zip(names, inputs, strict=True)))
            for array in inputs:
                array[...] = array[::-1].copy()

    def test_read_only_inputs_are_accepted(
        self, backend: Backend, target: Target, workload: Workload
    ) -> None:
        inputs, outputs = self._arguments(workload)
        for array in inputs:
            array.flags.writeable = False
        call = backend.build(self.request(workload, target)).bind(inputs, outputs)
        names = [tensor.name for tensor in workload.inputs]
        self._check(workload, call, dict(zip(names, inputs, strict=True)))

    def test_two_calls_do_not_share(
        self, backend: Backend, target: Target, workload: Workload
    ) -> None:
        executable = backend.build(self.request(workload, target))
        calls = []
        for seed in (1, 2):
            inputs = random_inputs(workload, np.random.default_rng(seed))
            calls.append((bind_copies(executable, workload, list(inputs.values())), inputs))
        for call, _ in calls:
            call.run()
        for call, inputs in calls:
            self._compare(workload, call, inputs)

    def test_constants_are_those_of_the_binding(
        self, backend: Backend, target: Target, workload: Workload
    ) -> None:
        """A program may pack constants once for a binding, but not once for all of them."""
        constant = workload.with_constants(*(tensor.name for tensor in workload.inputs))
        space = SketchSpace(constant, target, backend.limits(target))
        for candidate in space.sample(8, np.random.default_rng(3)):
            executable = backend.build(self.request(constant, target, candidate))
            for seed in (1, 2):
                inputs = random_inputs(constant, np.random.default_rng(seed))
                call = bind_copies(executable, constant, list(inputs.values()))
                self._check(constant, call, inputs)

    def test_time_is_positive(self, backend: Backend, target: Target, workload: Workload) -> None:
        call, _ = self._bound(backend, self.request(workload, target))
        for number in (1, 10):
            assert 0 < call.time(number) < 10

    def test_timing_keeps_the_outputs(
        self, backend: Backend, target: Target, workload: Workload
    ) -> None:
        call, inputs = self._bound(backend, self.request(workload, target))
        call.run()
        call.time(2)
        self._compare(workload, call, inputs)

    def test_the_native_call_is_the_program(
        self, backend: Backend, target: Target, workload: Workload
    ) -> None:
        call, inputs = self._bound(backend, self.request(workload, target))
        native = call.native()
        if native is None:
            pytest.skip("programs of this backend are not called natively")  # noqa: TID251
        call.poison()
        assert time_native_call(native, 3) > 0
        self._compare(workload, call, inputs)

    def test_refuses_what_it_cannot_replay(
        self,
        backend: Backend,
        target: Target,
        workload: Workload,
        program: str | None,
        invalid_candidate: Candidate,
    ) -> None:
        self._check_is_refused(backend, self.request(workload, target, invalid_candidate, program))

    def test_a_step_of_a_plugin_is_run_by_its_effect_on_the_nest_or_not_offered(
        self, backend: Backend, target: Target, workload: Workload
    ) -> None:
        candidate = _of_one_step(workload, Reversed(workload.stages[-1].name))
        limits, request = backend.limits(target), self.request(workload, target, candidate)
        assert limits.missing(names_used(candidate.sketch)) == (
            () if limits.runs_nests else (Reversed.name,)
        )
        if limits.runs_nests:
            self._check_between_guards(backend, request)
        else:
            self._check_is_refused(backend, request)

    def test_steps_that_it_does_not_declare_are_refused(
        self, backend: Backend, target: Target, workload: Workload
    ) -> None:
        stage = workload.stages[-1]
        loops = (f"{stage.axes[0].name}.0",)
        steps: dict[str, Step] = {
            Elsewhere.name: Elsewhere(stage.name),
            "bind": Bind(stage.name, loops, "block"),
            "parallel": Parallel(stage.name, loops),
        }
        missing = backend.limits(target).missing(steps)
        assert Elsewhere.name in missing
        for name in missing:
            candidate = _of_one_step(workload, steps[name])
            self._check_is_refused(backend, self.request(workload, target, candidate))

    def test_refuses_wrong_arguments(
        self, backend: Backend, target: Target, workload: Workload
    ) -> None:
        executable = backend.build(self.request(workload, target))
        inputs, outputs = self._arguments(workload)
        wrong = [inputs[0][:-1], inputs[0][:, ::-1], aligned_empty(inputs[0].shape, "complex64")]
        shifted = aligned_empty((inputs[0].size + 1,), inputs[0].dtype)[1:]
        for array in (*wrong, shifted.reshape(inputs[0].shape)):
            with pytest.raises(AutotuneError):
                executable.bind([array, *inputs[1:]], outputs)
        with pytest.raises(AutotuneError):
            executable.bind(inputs[:-1], outputs)
        with pytest.raises(AutotuneError):
            executable.bind(inputs, [])
        outputs[0].flags.writeable = False
        with pytest.raises(AutotuneError):
            executable.bind(inputs, outputs)

    def test_digests_are_of_the_program(
        self,
        backend: Backend,
        target: Target,
        workload: Workload,
        program: str | None,
        candidates: list[Candidate],
    ) -> None:
        requests = [self.request(workload, target, None, program)]
        requests += [self.request(workload, target, c, program) for c in candidates[:2]]
        found = [program_digests(backend, request) for request in requests]
        for level in zip(*found, strict=True):
            assert all(isinstance(digest, str) for digest in level)
            assert len(set(level)) > 1 or not any(level)
        assert [program_digests(backend, request) for request in requests] == found
        assert program_digests_elsewhere(backend, requests) == found

    def test_parks_at_any_time(self, backend: Backend, target: Target, workload: Workload) -> None:
        backend.park()
        call, inputs = self._bound(backend, self.request(workload, target))
        call.time(1)
        backend.park()
        backend.park()
        self._check(workload, call, inputs)

    def test_shows_programs(
        self, backend: Backend, target: Target, workload: Workload, candidates: list[Candidate]
    ) -> None:
        for candidate in (None, candidates[0]):
            text = backend.show(self.request(workload, target, candidate))
            assert isinstance(text, str)
            assert text.strip()

    def test_writes_records_in_the_formats_that_it_offers(
        self,
        backend: Backend,
        target: Target,
        candidates: list[Candidate],
        program: str | None,
        tmp_path: Path,
    ) -> None:
        version = backend.compiler_version()
        key = MeasureKey(target.fingerprint, backend.name, backend.version, version, 1, "warm-1")
        about, outcome = target.to_json(), Outcome("ok", 1e-3)
        records = [
            Record("run", trial, candidate, key, about, "", outcome, 0.0, program=program)
            for trial, candidate in enumerate(candidates)
        ]
        for position, name in enumerate(backend.export_formats()):
            report = backend.export_records(records, name, tmp_path / str(position))
            assert report.exported + len(report.refused) == len(records)
            assert bool(report.files) == bool(report.exported)
            assert all(Path(file).is_file() for file in report.files)
        with pytest.raises(UnknownNameError, match="no such format"):
            backend.export_records(records, "no such format", tmp_path / "none")

    def test_a_format_that_is_not_offered_is_not_imported(
        self, backend: Backend, target: Target, tmp_path: Path
    ) -> None:
        for name in backend.import_formats():
            with pytest.raises(InvalidValueError):
                backend.import_records(name, tmp_path / "none", target)
        with pytest.raises(UnknownNameError, match="no such format"):
            backend.import_records("no such format", tmp_path, target)

    def test_warms_up_more_than_once(self, backend: Backend) -> None:
        backend.warm_up()
        backend.warm_up()

    def _bound(
        self, backend: Backend, request: BuildRequest
    ) -> tuple[BoundCall, dict[str, Array]]:
        inputs = random_inputs(request.workload, np.random.default_rng(0))
        executable = backend.build(request)
        return bind_copies(executable, request.workload, list(inputs.values())), inputs

    def _check_between_guards(self, backend: Backend, request: BuildRequest) -> None:
        """Check what is computed, and that nothing beside the arrays is read or written to.

        A program that does so ends this process by SIGSEGV.
        """
        check_program(backend, request)

    def _check_is_refused(self, backend: Backend, request: BuildRequest) -> None:
        """Check that what cannot be scheduled is refused in one line before it is compiled."""
        for act in (backend.lower, backend.build, backend.show):
            with pytest.raises(InvalidSchedule) as caught:
                act(request)
            assert 0 < len(str(caught.value)) < 500

    def _arguments(self, workload: Workload) -> tuple[list[Array], list[Array]]:
        """Inputs and outputs as `bind` wants them."""
        inputs = random_inputs(workload, np.random.default_rng(0))
        tensors = [workload.tensors[name] for name in workload.outputs]
        outputs = [aligned_empty(tensor.shape, tensor.element.dtype) for tensor in tensors]
        return [aligned_copy(array) for array in inputs.values()], outputs

    def _check(self, workload: Workload, call: BoundCall, inputs: dict[str, Array]) -> None:
        call.poison()
        call.run()
        self._compare(workload, call, inputs)

    def _compare(self, workload: Workload, call: BoundCall, inputs: dict[str, Array]) -> None:
        check_call(call, workload, inputs)


def _of_one_step(workload: Workload, step: Step) -> Candidate:
    return Candidate(Sketch("one step", workload, (), (), (step,)), ())


def program_digests(backend: Backend, request: BuildRequest) -> tuple[str, str]:
    """Digests of the lowered and of the compiled program."""
    lowered = backend.lower(request)
    return lowered.digest, backend.compile(lowered).digest


def program_digests_elsewhere(
    backend: Backend, requests: Sequence[BuildRequest]
) -> list[tuple[str, str]]:
    """The same in a process of its own.

    Args:
        backend: Of a class that needs no arguments.
        requests: What to build, which may differ in their candidates only.
    """
    threads = requests[0].threads
    sent = [
        f"{type(backend).__module__}:{type(backend).__qualname__}",
        [requests[0].workload.to_json(), requests[0].target.to_json()],
        [requests[0].program, threads],
        [request.candidate and request.candidate.to_json() for request in requests],
    ]
    process = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import main; main()"],
        input=json.dumps(sent),
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
        env=worker_environment(threads, backend.worker_environment(threads)),
    )
    return [(lowered, compiled) for lowered, compiled in json.loads(process.stdout)]


def main() -> None:
    """Write the digests of programs; what :func:`program_digests_elsewhere` runs.

    Standard input has, in JSON, the backend's import string, the workload and the target, the
    imported program and the number of threads, and the candidates.
    """
    name, (about, described), (program, threads), candidates = json.load(sys.stdin)
    module, _, attribute = name.partition(":")
    backend: Backend = getattr(importlib.import_module(module), attribute)()
    workload, target = Workload.from_json(about), Target.from_json(described)
    found = []
    for data in candidates:
        candidate = None if data is None else Candidate.from_json(data, workload)
        request = BuildRequest(workload, program, candidate, target, threads)
        found.append(program_digests(backend, request))
    sys.stdout.write(json.dumps(found))
