"""The main loop of the process that owns a device.

It answers the messages by which :class:`~autotune.measure.timing_session.TimingSession` has held
programs checked and timed, as :mod:`autotune.measure.worker` does on CPUs; programs come with the
first of them, built by other processes. It needs no compiler of programs, and imports none.

After an error that loses the context it answers, says that it is ``spent``, and is replaced.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from ctypes import c_uint64

import numpy as np
from attrs import define, frozen

from autotune.backends import CudaProgram, find_cuda_compiler
from autotune.backends.backend import Array
from autotune.errors import AutotuneError
from autotune.ir.element_types import ElementType
from autotune.ir.workloads import Workload
from autotune.measure.devices.calls import DeviceCall, warm_up
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.timing import (
    LONG_SECONDS,
    CheckedCall,
    FirstCall,
    time_call,
)
from autotune.measure.validation import Expected, expectations, mismatch, read_arrays
from autotune.process.channel import Message
from autotune.process.child import Connection, Handler, connect, describe, serve
from autotune.runtime.device import Device, GuardedArray, open_device
from autotune.store.records import Outcome
from autotune.targets import CudaError, Target

_THREADS, _MOST_BLOCKS, _PER_THREAD = 128, 1024, 16

# Halves are decoded by hand, so that no header of CUDA's is needed.
CHECK_SOURCE = r"""
typedef unsigned long long u64;
struct Half { unsigned short bits; };
struct Brain { unsigned short bits; };
__device__ inline double number(float value) { return value; }
__device__ inline double number(double value) { return value; }
__device__ inline double number(Half value) {
  unsigned sign = value.bits >> 15, power = value.bits >> 10 & 31, part = value.bits & 1023;
  double size;
  if (power == 31) {
    unsigned bits = part ? 0x7fc00000u : 0x7f800000u;
    size = __uint_as_float(bits);
  } else if (power == 0) {
    size = part * (1.0 / 16777216.0);
  } else {
    size = (1024 + part) * (1.0 / 33554432.0) * (double)(1u << power);
  }
  return sign ? -size : size;
}
__device__ inline double number(Brain value) {
  return __uint_as_float((unsigned)value.bits << 16);
}
template <class Element>
__device__ inline void compare(const Element* got, const Element* want, const float* bound,
                               u64* wrong, u64 count, u64 threads, u64 self) {
  u64 found = 0;
  for (u64 at = self; at < count; at += threads) {
    double result = number(got[at]), reference = number(want[at]);
    double error = result < reference ? reference - result : result - reference;
    bool near = error <= bound[at];
    bool same = result == reference || (result != result && reference != reference);
    found += !(near || same);
  }
  wrong[self] = found;
}
#define COMPARE(name, Element)                                                            \
  extern "C" __global__ void name(const Element* got, const Element* want,                \
                                  const float* bound, u64* wrong, u64 count, u64 threads) { \
    compare(got, want, bound, wrong, count, threads, (u64)blockIdx.x * 128 + threadIdx.x); \
  }
COMPARE(check_float32, float)
COMPARE(check_float64, double)
COMPARE(check_float16, Half)
COMPARE(check_bfloat16, Brain)
extern "C" __global__ void check_bytes(const unsigned char* got, const unsigned char* want,
                                       const float*, u64* wrong, u64 count, u64 threads) {
  u64 found = 0;
  // Arrays begin at multiples of 256.
  for (u64 at = (u64)blockIdx.x * 128 + threadIdx.x; at < count / 8; at += threads) {
    found += ((const u64*)got)[at] != ((const u64*)want)[at];
  }
  u64 self = (u64)blockIdx.x * 128 + threadIdx.x;
  if (self < count % 8) found += got[count / 8 * 8 + self] != want[count / 8 * 8 + self];
  wrong[self] = found;
}
"""
_FLOATS = ("float32", "float64", "float16", "bfloat16")


@frozen(eq=False)
class ExpectedOnDevice:
    """A reference output on the device.

    Attributes:
        expected: The reference and its bounds on the host.
        reference: The reference.
        bound: Largest absolute error of each element, in float32; None where bits are compared.
    """

    expected: Expected
    reference: GuardedArray
    bound: GuardedArray | None


@define(eq=False)
class DeviceChecker:
    """Compares arrays on a device.

    Attributes:
        device: The device.
        function: Finds a kernel of the module of :data:`CHECK_SOURCE`.
    """

    device: Device
    function: Callable[[str], int]
    _counts: GuardedArray | None = None

    def expect(
        self, expected: Expected, allocate: Callable[[str, int], GuardedArray]
    ) -> ExpectedOnDevice:
        """Copy a reference to the device, into memory of a name and a size."""
        reference = allocate(f"reference {expected.name}", expected.reference.nbytes)
        reference.upload(expected.reference)
        if _kernel(expected.element) == "check_bytes":
            return ExpectedOnDevice(expected, reference, None)
        bound = np.ascontiguousarray(expected.bound, np.float32)
        block = allocate(f"bounds of {expected.name}", bound.nbytes)
        block.upload(bound)
        return ExpectedOnDevice(expected, reference, block)

    def wrong_output(self, output: GuardedArray, want: ExpectedOnDevice) -> str | None:
        """Describe an error in an output; None where every element is within its bound."""
        kernel = _kernel(want.expected.element)
        count = want.expected.reference.size
        if kernel == "check_bytes":
            count = output.bytes
        bound = want.reference if want.bound is None else want.bound
        found = self._count(kernel, output, want.reference, bound, count)
        if not found:
            return None
        # Rare, so the host may say what and where.
        copy = output.download(want.expected.reference)
        described = mismatch([want.expected], [copy])
        return described or f"output {want.expected.name!r}: {found} elements are wrong"

    def differs(self, block: GuardedArray, pristine: GuardedArray) -> bool:
        """Return whether an array has other bytes than its copy."""
        return self._count("check_bytes", block, pristine, pristine, block.bytes) > 0

    def _count(
        self, kernel: str, got: GuardedArray, want: GuardedArray, bound: GuardedArray, count: int
    ) -> int:
        """Elements (or words of bytes) that are wrong."""
        blocks = min(_MOST_BLOCKS, max(1, -(-count // (_THREADS * _PER_THREAD))))
        threads = blocks * _THREADS
        if self._counts is None:
            self._counts = self.device.guarded("counts of errors", 8 * _MOST_BLOCKS * _THREADS)
        pointers = [it.pointer for it in (got, want, bound, self._counts)]
        parameters = [c_uint64(value) for value in (*pointers, count, threads)]
        driver, stream = self.device.driver, self.device.stream
        # A check that did not run must not pass.
        driver.fill(self._counts.pointer, 0xFF, 8 * threads)
        driver.launch(
            self.function(kernel), (blocks, 1, 1), (_THREADS, 1, 1), 0, stream, parameters
        )
        self.device.synchronize()
        counts = self._counts.download(np.empty(threads, np.uint64))
        return int(counts.sum(dtype=np.float64))


def _kernel(element: ElementType) -> str:
    return f"check_{element.name}" if element.name in _FLOATS else "check_bytes"


# A device that rested so long has cooled.
_REST_SECONDS = 0.02
# How long a device that seems busy is waited for: what has just ended may still be on its way out,
# and a process whose kernel hung is so for seconds.
_PATIENCE_SECONDS, _REPLACING_SECONDS = 1.0, 20.0
_NO_BINARY = frozenset({200, 209, 218, 222, 300, 301})


@define
class _Held:
    """A program of a trial.

    Attributes:
        program: What was built.
        call: It on the device, while the arrays of its task are there.
        number: How many calls make a sample.
    """

    program: CudaProgram
    call: DeviceCall | None = None
    number: int = 1


class _Task:
    """A task, and its arrays while its programs are being timed."""

    def __init__(self, message: Message) -> None:
        self.workload = Workload.from_json(message["workload"])
        self.protocol = MeasureProtocol.from_json(message["protocol"])
        self.target = Target.from_json(message["target"])
        self.held: dict[int, _Held] = {}
        self.arrays: TaskArrays | None = None
        self._files: tuple[Sequence[str], Sequence[str]] = (message["inputs"], message["outputs"])

    def load(self, checker: DeviceChecker) -> None:
        """Copy the arrays to the device."""
        inputs, outputs = map(read_arrays, self._files)
        expected = expectations(self.workload, outputs, self.target)
        self.arrays = TaskArrays.load(
            checker, self.workload, inputs, expected, cold=self.protocol.cold
        )

    def call(self, held: _Held) -> DeviceCall:
        """A program on the device, loaded on first use."""
        if self.arrays is None:
            raise RuntimeError("the arrays of a task are not loaded")
        if held.call is None:
            held.call = DeviceCall.load(self.arrays.device, held.program, self.arrays.sets)
        return held.call

    def forget(self, number: int) -> None:
        """Free the program of a trial."""
        held = self.held.pop(number, None)
        if held is not None and held.call is not None:
            held.call.unload()

    def unload(self) -> None:
        """Free what is on the device."""
        for held in self.held.values():
            if held.call is not None:
                held.call.unload()
                held.call = None
        if self.arrays is not None:
            self.arrays.unload()
            self.arrays = None


class DeviceWorker:
    """Does what one host asks for, on one device.

    Args:
        connection: Where phases are announced.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tasks: dict[str, _Task] = {}
        self._checker: DeviceChecker | None = None
        self._last_use = 0.0
        self._held: dict[int, int] = {}
        self._replaces = False

    @property
    def handlers(self) -> dict[str, Handler]:
        """Handlers of each kind of message."""
        return {
            "hello": self._hello,
            "task": self._set_task,
            "release": self._release,
            "known": lambda _: {},
            "run": self._run,
            "sample": self._sample,
            "forget": self._forget,
        }

    def _hello(self, message: Message) -> Message:
        with self._connection.phase("start"):
            self._held = {int(index): int(size) for index, size in message["held"].items()}
            self._replaces = bool(message["replaces"])
            return {}

    def _set_task(self, message: Message) -> Message:
        with self._connection.phase("task"):
            self._release(message)
            task = _Task(message)
            if self._checker is None:
                patience = _REPLACING_SECONDS if self._replaces else _PATIENCE_SECONDS
                device = open_device(task.target, held=self._held, patience=patience)
                self._checker = _checker_on(device)
            loaded = sum(it.arrays.bytes for it in self._tasks.values() if it.arrays)
            _check_fits(task, self._checker.device, loaded)
            self._tasks[message["task"]] = task
        return {}

    def _release(self, message: Message) -> Message:
        task = self._tasks.pop(message["task"], None)
        if task is not None:
            task.unload()
        return {}

    def _forget(self, message: Message) -> Message:
        task = self._tasks.get(message["task"])
        if task is not None:
            for number in message["numbers"]:
                task.forget(number)
        return {}

    def _run(self, message: Message) -> Message:
        """Check a program and take its first samples; answers with an outcome."""
        task = self._tasks[message["task"]]
        timings: dict[str, float] = {}
        try:
            held = _Held(CudaProgram.from_json(message["device_program"]))
            task.forget(message["number"])
            task.held[message["number"]] = held
            arrays = self._load(task)
            with self._connection.phase("load", timings):
                arrays.restore()
                call = task.call(held)
            with self._connection.phase("verify", timings):
                arrays.poison()
                call.poison()
                checked = call.run()
                wrong = arrays.wrong(call.intermediates)
            if wrong is None:
                with self._connection.phase("run", timings):
                    samples = self._first_samples(task, held, message["incumbent"], checked)
                    wrong = arrays.wrong(call.intermediates)
            if wrong is not None:
                # It may have written to references and copies, too: all are copied here again.
                task.unload()
                return _failure("wrong_result", wrong, timings)
        except Exception as error:  # a program may do anything
            return _failed(error, timings)
        finally:
            self._last_use = time.monotonic()
        return {
            "samples": samples,
            "calls": held.number,
            "timings": timings,
            "readings": {},
            "warnings": [],
        }

    def _first_samples(
        self, task: _Task, held: _Held, incumbent: float | None, checked: float
    ) -> tuple[float, ...]:
        timed = CheckedCall(task.call(held))
        self._warm(task.call(held), checked)
        samples = time_call(timed, task.protocol, incumbent, FirstCall(checked))
        held.number = timed.number
        return samples

    def _sample(self, message: Message) -> Message:
        """Time a held program a number of times; where its arrays lie does not change here."""
        task = self._tasks[message["task"]]
        held = task.held[message["number"]]
        try:
            self._load(task)
            with self._connection.phase("load"):
                call = task.call(held)
            with self._connection.phase("run"):
                self._warm(call, message["expected"])
                timed = CheckedCall(call)
                if message["expected"] < LONG_SECONDS:
                    timed.time(1)
                samples = [timed.time(held.number) for _ in range(message["count"])]
        except Exception as error:  # a program may do anything
            return _failed(error, {})
        finally:
            self._last_use = time.monotonic()
        return {"samples": samples, "calls": held.number}

    def _warm(self, call: DeviceCall, expected: float) -> None:
        """Have the clocks up, which fall while a device rests."""
        rested = time.monotonic() - self._last_use
        if expected < LONG_SECONDS and rested > _REST_SECONDS:
            warm_up(call)

    def _load(self, task: _Task) -> TaskArrays:
        """Have the arrays of a task on the device, and those of no other."""
        if self._checker is None:
            raise RuntimeError("a job came before its task")
        if task.arrays is None:
            with self._connection.phase("task"):
                for other in self._tasks.values():
                    other.unload()
                task.load(self._checker)
        if task.arrays is None:
            raise RuntimeError("the arrays of a task are not loaded")
        return task.arrays


def _checker_on(device: Device) -> DeviceChecker:
    """Build the comparison of results on a device; its kernels are compiled now.

    Raises:
        NoCudaCompiler: nothing is installed that makes machine code.
        BuildFailed: it does not know the device's architecture.
        CudaError: the driver is too old for what it makes.
    """
    compiler = find_cuda_compiler()
    cubin = compiler.compile(CHECK_SOURCE, device.device.target.processor, ())
    try:
        module = device.driver.load_module(cubin)
    except CudaError as error:
        if error.code not in _NO_BINARY:
            raise
        raise AutotuneError(
            f"the driver does not run what {compiler.described} makes ({error}): a driver of its "
            "CUDA version or later is needed, or an older compiler"
        ) from error
    functions: dict[str, int] = {}

    def function(name: str) -> int:
        if name not in functions:
            functions[name] = device.driver.function(module, name)
        return functions[name]

    return DeviceChecker(device, function)


def _check_fits(task: _Task, device: Device, loaded: int) -> None:
    """Refuse a task whose arrays no emptying makes room for.

    Args:
        task: The task.
        device: The device.
        loaded: Bytes of the arrays of other tasks, which make room.

    Raises:
        AutotuneError: they are larger than what the device has for this process.
    """
    tensors = task.workload.tensors
    outputs = sum(
        tensors[name].bytes + 4 * tensors[name].elements for name in task.workload.outputs
    )
    needed = 2 * task.workload.io_bytes + outputs
    free, total = device.driver.memory()
    if needed > free + loaded:
        raise AutotuneError(
            f"out of device memory: workload {task.workload.name!r} needs {needed} bytes with "
            f"copies and references, cuda:{device.device.index} has {free + loaded} of {total} "
            "free"
        )


def _failed(error: Exception, timings: dict[str, float]) -> Message:
    """The outcome of a program that failed; the process is spent where the context is lost."""
    lost = isinstance(error, CudaError) and error.loses_context
    text = str(error) if isinstance(error, (CudaError, AutotuneError)) else describe(error)
    answer = _failure("crash", text, timings)
    return {**answer, "spent": True} if lost else answer


def _failure(status: str, message: str, timings: dict[str, float]) -> Message:
    return {"outcome": Outcome(status, timings=timings, message=message).to_json()}


def main() -> None:
    """Run a worker; started by ``WorkerProcess`` only."""
    connection, _ = connect("autotune.measure.devices.worker")
    serve(connection, DeviceWorker(connection).handlers)


# Data that is this many times as large as the last level of cache is not found in it.
_TIMES_CACHE = 3
_MOST_SETS = 4096
_SHARE_OF_MEMORY = 0.4
_FLOAT_POISON, _INTEGER_POISON = 0xFF, 0x80


def rotation(io_bytes: int, cache_bytes: int, free_bytes: int) -> int:
    """Sets of arrays between which calls rotate, so that each finds the cache without its own.

    A power of two: so many are what graphs of calls go through in few turns.

    Args:
        io_bytes: Of one set.
        cache_bytes: Of the last level of cache.
        free_bytes: Of the device's memory, of which less than half is used.
    """
    wanted = -(-_TIMES_CACHE * cache_bytes // max(1, io_bytes)) + 1
    affordable = int(_SHARE_OF_MEMORY * free_bytes) // max(1, io_bytes)
    most = max(1, min(affordable, _MOST_SETS))
    return int(min(1 << (wanted - 1).bit_length(), 1 << (most.bit_length() - 1)))


@define(eq=False)
class TaskArrays:
    """Inputs, outputs and references of a task on a device.

    Attributes:
        device: The device.
        workload: What programs compute.
        sets: Inputs and outputs by name, a set for each call of a rotation.
        pristine: Copies of the inputs, which no program is given.
        expected: The references, in the order of the outputs.
        checker: Compares.
        blocks: All of them.
    """

    device: Device
    workload: Workload
    sets: Sequence[Mapping[str, GuardedArray]]
    pristine: Mapping[str, GuardedArray]
    expected: Sequence[ExpectedOnDevice]
    checker: DeviceChecker
    blocks: Sequence[GuardedArray]

    @staticmethod
    def load(
        checker: DeviceChecker,
        workload: Workload,
        inputs: Sequence[Array],
        expected: Sequence[Expected],
        *,
        cold: bool,
    ) -> TaskArrays:
        """Copy the arrays of a task to a device.

        Args:
            checker: Compares; its device is used.
            workload: What programs compute.
            inputs: In the workload's order.
            expected: Of each output.
            cold: Whether calls rotate between sets, so that the L2 cache is cold for each.

        Raises:
            CudaError: the device has too little memory.
        """
        device = checker.device
        made: list[GuardedArray] = []
        with ExitStack() as undo:

            def allocated(name: str, size: int) -> GuardedArray:
                made.append(device.guarded(name, size))
                undo.callback(made[-1].free)
                return made[-1]

            pristine = {}
            for tensor, array in zip(workload.inputs, inputs, strict=True):
                pristine[tensor.name] = allocated(f"copy of {tensor.name}", array.nbytes)
                pristine[tensor.name].upload(array)
            references = [checker.expect(want, allocated) for want in expected]
            cache = max((level.size_bytes for level in device.device.target.caches), default=0)
            free = device.driver.memory()[0]
            count = rotation(workload.io_bytes, cache, free) if cold else 1
            tensors = workload.tensors
            names = [*(tensor.name for tensor in workload.inputs), *workload.outputs]
            sets = [
                {name: allocated(name, tensors[name].bytes) for name in names}
                for _ in range(count)
            ]
            arrays = TaskArrays(device, workload, sets, pristine, references, checker, made)
            for number in range(count):
                arrays.restore(number)
            undo.pop_all()
        return arrays

    @property
    def bytes(self) -> int:
        """Bytes that they take of the device."""
        return sum(block.bytes for block in self.blocks)

    def restore(self, number: int = 0) -> None:
        """Put fresh inputs in place."""
        for name, source in self.pristine.items():
            self.device.driver.copy(self.sets[number][name].pointer, source.pointer, source.bytes)

    def poison(self) -> None:
        """Overwrite the outputs of the first set: with NaN, or with small integers."""
        for name in self.workload.outputs:
            block, element = self.sets[0][name], self.workload.tensors[name].element
            byte = _FLOAT_POISON if element.is_float else _INTEGER_POISON
            block.fill(byte)

    def wrong(self, intermediates: Sequence[GuardedArray]) -> str | None:
        """Describe what a program that has run on the first set did wrong.

        Args:
            intermediates: Arrays that are the program's own.
        """
        first, checker = self.sets[0], self.checker
        for want in self.expected:
            wrong = checker.wrong_output(first[want.expected.name], want)
            if wrong is not None:
                return wrong
        for block in (*first.values(), *intermediates):
            if block.is_damaged:
                return f"memory beside {block.name!r} was written to"
        for name, pristine in self.pristine.items():
            if checker.differs(first[name], pristine):
                return f"input {name!r} was changed"
        return None

    def unload(self) -> None:
        """Free everything."""
        for block in self.blocks:
            block.free()
