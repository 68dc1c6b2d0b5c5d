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
from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError, UnsupportedWorkload
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


class BackendSuite:
    """The contract of backends."""

    heavy_modules: Sequence[str] = ()
    """Modules that importing the backend must not import, such as the compiler's package."""

    runs_in_place: bool = True
    """True if programs run on the caller's arrays; those for a device run on copies."""

    packs_ahead: bool = True
    """True if programs are given what ``prepack`` packs; otherwise they pack it in every call."""

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

    def _asked(
        self, candidate: Candidate | None = None, program: str | None = None
    ) -> BuildRequest:
        return self.request(self.workload_, self.target_, candidate, program)

    @pytest.fixture(autouse=True)
    def _given(self, backend: Backend, target: Target, workload: Workload) -> None:
        self.backend_, self.target_, self.workload_ = backend, target, workload

    def test_names_itself(self) -> None:
        assert self.backend_.name
        assert self.backend_.version
        assert self.backend_.compiler_version()
        assert isinstance(self.backend_.compiler_version(), str)

    def test_is_cheap_to_import(self) -> None:
        cls, machine = type(self.backend_), json.dumps(self.target_.to_json())
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

    def test_limits(self) -> None:
        self.backend_.check_target(self.target_)
        limits = self.backend_.limits(self.target_)
        assert limits.steps <= set(STEP_TYPES)
        assert limits.stack_bytes > 0
        assert limits.unrolled_statements > 0
        assert limits.source

    @pytest.mark.parametrize("threads", [1, 2])
    def test_worker_environment(self, threads: int) -> None:
        environment = self.backend_.worker_environment(threads)
        assert all(isinstance(v, str) for item in environment.items() for v in item)

    def test_foreign_programs_are_not_its_own(self) -> None:
        for program in (object(), 3, "text", None, gemm(m=1, n=1, k=1)):
            assert not self.backend_.imports(program)
        with pytest.raises(UnsupportedWorkload):
            self.backend_.import_program(object())

    def test_the_untuned_program_is_right(self, program: str | None) -> None:
        self.check(self._asked(None, program))

    def test_the_default_schedule_is_right_where_there_is_one(self) -> None:
        assert isinstance(self.backend_.default_schedule, str)
        if not self.backend_.default_schedule:
            return
        for workload in (gemm(m=7, n=5, k=3), softmax(m=5, n=9)):
            candidate = baseline_candidate(workload, self.backend_.default_schedule)
            request = self.request(workload, self.target_, candidate, None)
            try:
                self.backend_.lower(request)
            except InvalidSchedule as error:
                assert str(error)
            else:
                self.check(request)
                assert self.backend_.show(request)

    @pytest.mark.parametrize(
        "workload",
        [gemm(m=7, n=5, k=3, dtype="float64"), softmax(m=5, n=9)],
        ids=["f64", "stages"],
    )
    def test_other_workloads_are_right(self) -> None:
        self.check(self._asked())

    @pytest.mark.parametrize("dtype", HALF_DTYPES)
    @pytest.mark.parametrize("build", [gemm, softmax], ids=["product", "stages"])
    def test_halves_are_computed_with_or_refused(
        self, build: Callable[..., Workload], dtype: str
    ) -> None:
        shape = {"m": 7, "n": 5} if build is softmax else {"m": 7, "n": 5, "k": 3}
        request = self.request(build(**shape, dtype=dtype), self.target_)
        try:
            self.backend_.check_workload(request.workload)
        except UnsupportedWorkload as error:
            assert repr(dtype) in str(error)
        else:
            self.check(request)

    def test_a_foreign_element_type_is_computed_with_or_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = element_types.ElementType("foreign", 2.0**-10, storage="float32")
        known = {**element_types.ELEMENT_TYPES, made.name: made}
        monkeypatch.setattr(element_types, "ELEMENT_TYPES", known)
        text = json.dumps(gemm(m=7, n=5, k=3).to_json()).replace("float32", made.name)
        request = self.request(Workload.from_json(json.loads(text)), self.target_)
        try:
            self.backend_.check_workload(request.workload)
        except UnsupportedWorkload as error:
            assert repr(made.name) in str(error) and repr(self.backend_.name) in str(error)
            with pytest.raises(UnsupportedWorkload, match=made.name):
                self.backend_.build(request)
        else:
            self.check(request)

    def test_candidates_are_right(self, program: str | None, candidates: list[Candidate]) -> None:
        assert candidates
        for candidate in candidates:
            self.check(self._asked(candidate, program))

    def test_a_candidate_survives_the_way_to_a_worker(
        self, program: str | None, candidates: list[Candidate]
    ) -> None:
        sent = (self.workload_, candidates[0], self.target_)
        data = json.loads(json.dumps([it.to_json() for it in sent]))
        received = Workload.from_json(data[0])
        candidate = Candidate.from_json(data[1], received)
        request = self.request(received, Target.from_json(data[2]), candidate, program)
        call, inputs = self._bound(request)
        self._check(call, inputs)

    def test_poison_leaves_nothing_right(self) -> None:
        call, inputs = self._bound()
        call.run()
        call.poison()
        right = reference_outputs(self.workload_, inputs)
        for name, output in zip(self.workload_.outputs, call.outputs(), strict=True):
            assert not np.any(output == right[name])

    def test_outputs_are_copies(self) -> None:
        call, inputs = self._bound()
        call.run()
        first = call.outputs()
        kept = [output.copy() for output in first]
        call.poison()
        for output, copy in zip(first, kept, strict=True):
            np.testing.assert_array_equal(output, copy)
            output.fill(0)
        call.run()
        self._check(call, inputs)

    def test_inputs_are_left_alone_and_kept(self) -> None:
        inputs, outputs = self._arguments()
        given = [array.copy() for array in inputs]
        call = self.backend_.build(self._asked()).bind(inputs, outputs)
        call.run()
        for array, copy in zip(inputs, given, strict=True):
            np.testing.assert_array_equal(array, copy)
        del inputs, outputs, array
        taken = [aligned_copy(np.zeros_like(copy)) for copy in given for _ in range(4)]
        call.poison()
        call.time(3)
        call.run()
        self._check(call, self._named(given))
        assert not any(array.any() for array in taken)

    def test_runs_on_the_callers_arrays(self) -> None:
        if not self.runs_in_place:
            pytest.skip("the device has memory of its own")  # noqa: TID251
        inputs, outputs = self._arguments()
        call = self.backend_.build(self._asked()).bind(inputs, outputs)
        call.poison()
        for _ in range(2):
            call.run()
            for output, copy in zip(outputs, call.outputs(), strict=True):
                np.testing.assert_array_equal(output, copy)
            self._compare(call, self._named(inputs))
            for array in inputs:
                array[...] = array[::-1].copy()

    def test_read_only_inputs_are_accepted(self) -> None:
        inputs, outputs = self._arguments()
        for array in inputs:
            array.flags.writeable = False
        call = self.backend_.build(self._asked()).bind(inputs, outputs)
        self._check(call, self._named(inputs))

    def test_two_calls_do_not_share(self) -> None:
        executable = self.backend_.build(self._asked())
        calls = []
        for seed in (1, 2):
            inputs = random_inputs(self.workload_, np.random.default_rng(seed))
            calls.append((bind_copies(executable, self.workload_, list(inputs.values())), inputs))
        for call, _ in calls:
            call.run()
        for call, inputs in calls:
            self._compare(call, inputs)

    def test_constants_are_those_of_the_binding(self) -> None:
        """A program may pack constants once for a binding, but not once for all of them."""
        names = [tensor.name for tensor in self.workload_.inputs]
        constant = self.workload_.with_constants(*names)
        space = SketchSpace(constant, self.target_, self.backend_.limits(self.target_))
        for candidate in space.sample(8, np.random.default_rng(3)):
            executable = self.backend_.build(self.request(constant, self.target_, candidate))
            for seed in (1, 2):
                inputs = random_inputs(constant, np.random.default_rng(seed))
                call = bind_copies(executable, constant, list(inputs.values()))
                self._check(call, inputs)

    def test_time_is_positive(self) -> None:
        call, _ = self._bound()
        for number in (1, 10):
            assert 0 < call.time(number) < 10

    def test_timing_keeps_the_outputs(self) -> None:
        call, inputs = self._bound()
        call.run()
        call.time(2)
        self._compare(call, inputs)

    def test_the_native_call_is_the_program(self) -> None:
        call, inputs = self._bound()
        native = call.native()
        if native is None:
            pytest.skip("programs of this backend are not called natively")  # noqa: TID251
        call.poison()
        assert time_native_call(native, 3) > 0
        self._compare(call, inputs)

    def test_refuses_what_it_cannot_replay(
        self, program: str | None, invalid_candidate: Candidate
    ) -> None:
        self._check_is_refused(self._asked(invalid_candidate, program))

    def test_a_step_of_a_plugin_is_run_by_its_effect_on_the_nest_or_not_offered(self) -> None:
        candidate = _of_one_step(self.workload_, Reversed(self.workload_.stages[-1].name))
        limits, request = self.backend_.limits(self.target_), self._asked(candidate)
        assert limits.missing(names_used(candidate.sketch)) == (
            () if limits.runs_nests else (Reversed.name,)
        )
        if limits.runs_nests:
            self.check(request)
        else:
            self._check_is_refused(request)

    def test_steps_that_it_does_not_declare_are_refused(self) -> None:
        stage = self.workload_.stages[-1]
        loops = (f"{stage.axes[0].name}.0",)
        steps: dict[str, Step] = {
            Elsewhere.name: Elsewhere(stage.name),
            "bind": Bind(stage.name, loops, "block"),
            "parallel": Parallel(stage.name, loops),
        }
        missing = self.backend_.limits(self.target_).missing(steps)
        assert Elsewhere.name in missing
        for name in missing:
            candidate = _of_one_step(self.workload_, steps[name])
            self._check_is_refused(self._asked(candidate))

    def test_refuses_wrong_arguments(self) -> None:
        executable = self.backend_.build(self._asked())
        inputs, outputs = self._arguments()
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
        self, program: str | None, candidates: list[Candidate]
    ) -> None:
        requests = [self._asked(None, program)]
        requests += [self._asked(c, program) for c in candidates[:2]]
        found = [program_digests(self.backend_, request) for request in requests]
        for level in zip(*found, strict=True):
            assert all(isinstance(digest, str) for digest in level)
            assert len(set(level)) > 1 or not any(level)
        assert [program_digests(self.backend_, request) for request in requests] == found
        assert program_digests_elsewhere(self.backend_, requests) == found

    def test_parks_at_any_time(self) -> None:
        self.backend_.park()
        call, inputs = self._bound()
        call.time(1)
        self.backend_.park()
        self.backend_.park()
        self._check(call, inputs)

    def test_shows_programs(self, candidates: list[Candidate]) -> None:
        for candidate in (None, candidates[0]):
            text = self.backend_.show(self._asked(candidate))
            assert isinstance(text, str)
            assert text.strip()

    def test_writes_records_in_the_formats_that_it_offers(
        self, candidates: list[Candidate], program: str | None, tmp_path: Path
    ) -> None:
        it, machine = self.backend_, self.target_.fingerprint
        key = MeasureKey(machine, it.name, it.version, it.compiler_version(), 1, "warm-1")
        about, outcome = self.target_.to_json(), Outcome("ok", 1e-3)
        records = [
            Record("run", trial, candidate, key, about, "", outcome, 0.0, program=program)
            for trial, candidate in enumerate(candidates)
        ]
        for position, name in enumerate(self.backend_.export_formats()):
            report = self.backend_.export_records(records, name, tmp_path / str(position))
            assert report.exported + len(report.refused) == len(records)
            assert bool(report.files) == bool(report.exported)
            assert all(Path(file).is_file() for file in report.files)
        with pytest.raises(UnknownNameError, match="no such format"):
            self.backend_.export_records(records, "no such format", tmp_path / "none")

    def test_a_format_that_is_not_offered_is_not_imported(self, tmp_path: Path) -> None:
        for name in self.backend_.import_formats():
            with pytest.raises(InvalidValueError):
                self.backend_.import_records(name, tmp_path / "none", self.target_)
        with pytest.raises(UnknownNameError, match="no such format"):
            self.backend_.import_records("no such format", tmp_path, self.target_)

    @pytest.fixture
    def packing_candidate(self, backend: Backend, target: Target, workload: Workload) -> Candidate:
        """A candidate whose program is given its last input packed."""
        if not self.packs_ahead or "prepack" not in backend.limits(target).steps:
            pytest.skip("nothing is packed ahead")  # noqa: TID251
        constant = workload.with_constants(workload.inputs[-1].name)
        drawn = sample_candidates(backend, constant, target, each=2)
        return next(candidate for candidate in drawn if prepacked_operands(candidate))

    def test_bindings_to_equal_constants_share_what_is_packed(
        self, packing_candidate: Candidate
    ) -> None:
        executable = self.backend_.build(request_for(packing_candidate, self.target_))
        workload = packing_candidate.sketch.workload
        inputs = list(random_inputs(workload, np.random.default_rng(0)).values())
        first, second = (bind_copies(executable, workload, inputs) for _ in range(2))
        assert first.copies()
        for one, other in zip(first.copies(), second.copies(), strict=True):
            assert one is other

    def test_what_is_timed_does_not_pack(self, packing_candidate: Candidate) -> None:
        """A call reads the packed constant only: changes of the constant itself are not seen."""
        call, _ = self._bound(request_for(packing_candidate, self.target_))
        call.run()
        before = call.outputs()
        call.copies()[0][...] = 0
        call.run()
        assert not np.array_equal(before[0], call.outputs()[0])

    def test_warms_up_more_than_once(self) -> None:
        self.backend_.warm_up()
        self.backend_.warm_up()

    def _bound(self, request: BuildRequest | None = None) -> tuple[BoundCall, dict[str, Array]]:
        request = request or self._asked()
        inputs = random_inputs(request.workload, np.random.default_rng(0))
        executable = self.backend_.build(request)
        return bind_copies(executable, request.workload, list(inputs.values())), inputs

    def check(self, request: BuildRequest) -> None:
        """Check what is computed, and that nothing beside the arrays is read or written to.

        A program that does so ends this process by SIGSEGV.
        """
        check_program(self.backend_, request)

    def _check_is_refused(self, request: BuildRequest) -> None:
        """Check that what cannot be scheduled is refused in one line before it is compiled."""
        for act in (self.backend_.lower, self.backend_.build, self.backend_.show):
            with pytest.raises(InvalidSchedule) as caught:
                act(request)
            assert 0 < len(str(caught.value)) < 500

    def _arguments(self) -> tuple[list[Array], list[Array]]:
        """Inputs and outputs as `bind` wants them."""
        inputs = random_inputs(self.workload_, np.random.default_rng(0))
        tensors = [self.workload_.tensors[name] for name in self.workload_.outputs]
        outputs = [aligned_empty(tensor.shape, tensor.element.dtype) for tensor in tensors]
        return [aligned_copy(array) for array in inputs.values()], outputs

    def _named(self, inputs: Sequence[Array]) -> dict[str, Array]:
        names = (tensor.name for tensor in self.workload_.inputs)
        return dict(zip(names, inputs, strict=True))

    def _check(self, call: BoundCall, inputs: dict[str, Array]) -> None:
        call.poison()
        call.run()
        self._compare(call, inputs)

    def _compare(self, call: BoundCall, inputs: dict[str, Array]) -> None:
        check_call(call, self.workload_, inputs)


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
