"""Targets from a user's text: presets by name, files, and what is detected."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from attrs import evolve, frozen

from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError, UnsupportedTarget
from autotune.ir.text_files import read_text_file
from autotune.targets import processors
from autotune.targets.cuda_driver import CudaDriver, load_driver
from autotune.targets.detection import detect_cpu
from autotune.targets.target import TF32_SUFFIX, Cache, Target, with_tf32

KIB = 1024
MIB = 1024 * KIB
WARP = 32
LINE = 128
# One thread loads or stores at most 16 bytes at once.
WIDEST_ACCESS = 16

SCORING_ONLY = ("k80", "titanv", "v100")
"""Presets of GPUs that current CUDA toolkits no longer compile for: to score candidates with."""


def _tera(**rates: float) -> dict[str, float]:
    return {dtype: rate * 1e12 for dtype, rate in rates.items()}


def _gpu(
    name: str,
    architecture: str,
    multiprocessors: int,
    clock: float,
    bandwidth: float,
    caches: tuple[int, int],
    shared: int,
    registers: int,
    threads: int,
    blocks: int,
    peak_flops: Mapping[str, float],
    tensor_peak_flops: Mapping[str, float],
    tensor_core_shapes: tuple[tuple[int, int, int], ...],
) -> Target:
    """A GPU model, per die.

    The shared memory of a block is what it has without asking for more when it is launched:
    48 KiB on every model.

    Args:
        name: What people call it.
        architecture: NVIDIA's name of its compute capability: `"sm_80"`.
        multiprocessors: Streaming multiprocessors.
        clock: Boost clock in cycles/s.
        bandwidth: bytes/s of device memory.
        caches: Bytes of L1 cache and shared memory together, of one multiprocessor, and of L2.
        shared: Bytes of shared memory of one multiprocessor.
        registers: 32-bit registers of one multiprocessor.
        threads: Threads that one multiprocessor can hold.
        blocks: Blocks that one multiprocessor can hold.
        peak_flops: As of `Target`, like those below.
        tensor_peak_flops: flop/s by dtype of the operands on tensor cores.
        tensor_core_shapes: (m, n, k) of the matrix instructions of a warp.
    """
    return Target(
        kind="cuda",
        name=name,
        vector_bytes=WIDEST_ACCESS,
        processor=architecture,
        caches=(Cache(1, caches[0], False, LINE), Cache(2, caches[1], True, LINE)),
        memory_bandwidth=bandwidth,
        peak_flops=peak_flops,
        tensor_peak_flops=tensor_peak_flops,
        clock=clock,
        multiprocessors=multiprocessors,
        shared_memory_bytes=48 * KIB,
        shared_memory_per_multiprocessor=shared,
        registers_per_block=65536,
        registers_per_multiprocessor=registers,
        max_threads_per_block=1024,
        max_threads_per_multiprocessor=threads,
        max_blocks_per_multiprocessor=blocks,
        warp_size=WARP,
        warp_schedulers=4,
        tensor_core_shapes=tensor_core_shapes,
    )


_A100 = _gpu(
    *("a100", "sm_80", 108, 1.41e9, 1935e9, (192 * KIB, 40 * MIB)),
    *(164 * KIB, 65536, 2048, 32),
    _tera(float64=9.746, float32=19.49, float16=77.97, bfloat16=38.98, int32=19.49),
    _tera(float64=19.49, float16=311.9, bfloat16=311.9, int8=623.7, uint8=623.7),
    ((16, 8, 8), (16, 8, 16)),
)
_H100 = _gpu(
    *("h100", "sm_90", 132, 1.98e9, 3.35e12, (256 * KIB, 50 * MIB)),
    *(228 * KIB, 65536, 2048, 32),
    _tera(float64=33.45, float32=66.91, float16=133.8, bfloat16=133.8, int32=33.45),
    _tera(float64=66.91, float16=989.4, bfloat16=989.4, int8=1978.9, uint8=1978.9),
    ((16, 8, 8), (16, 8, 16)),
)
GPUS = (
    # One of the two dies of the board: a CUDA device is one die.
    _gpu(
        *("k80", "sm_37", 13, 0.875e9, 240e9, (16 * KIB, 1536 * KIB)),
        *(112 * KIB, 131072, 2048, 16),
        _tera(float64=1.456, float32=4.368, int32=0.728),
        {},
        (),
    ),
    _gpu(
        *("titanv", "sm_70", 80, 1.455e9, 652.8e9, (128 * KIB, 4608 * KIB)),
        *(96 * KIB, 65536, 2048, 32),
        _tera(float64=7.45, float32=14.9, float16=29.8, int32=14.9),
        _tera(float16=119.2),
        ((8, 8, 4),),
    ),
    _gpu(
        *("v100", "sm_70", 80, 1.53e9, 900e9, (128 * KIB, 6 * MIB)),
        *(96 * KIB, 65536, 2048, 32),
        _tera(float64=7.834, float32=15.67, float16=31.33, int32=15.67),
        _tera(float16=125.3),
        ((8, 8, 4),),
    ),
    _gpu(
        *("t4", "sm_75", 40, 1.59e9, 320e9, (96 * KIB, 4 * MIB)),
        *(64 * KIB, 65536, 1024, 16),
        _tera(float64=0.2544, float32=8.141, float16=16.28, int32=8.141),
        _tera(float16=65.13, int8=130.3, uint8=130.3),
        ((16, 8, 8),),
    ),
    _A100,
    evolve(_A100, name="a100_40", memory_bandwidth=1555e9),
    # The 64 GB module at its highest power.
    _gpu(
        *("orin", "sm_87", 16, 1.3e9, 204.8e9, (192 * KIB, 4 * MIB)),
        *(164 * KIB, 65536, 1536, 16),
        _tera(float64=0.0832, float32=5.325, float16=10.65, bfloat16=5.325, int32=2.662),
        _tera(float16=42.6, bfloat16=42.6, int8=85.2, uint8=85.2),
        ((16, 8, 8), (16, 8, 16)),
    ),
    _H100,
    evolve(_H100, name="h200", memory_bandwidth=4.8e12),
)


DEFAULT_CORES = 4
"""Cores of a preset whose name does not say how many."""

# What people call a thing -> LLVM's name for it.
_ALIASES = {
    "sse2": "x86-64",
    "avx2": "x86-64-v3",
    "avx512": "x86-64-v4",
    "zen": "znver1",
    "zen2": "znver2",
    "zen3": "znver3",
    "zen4": "znver4",
    "zen5": "znver5",
}
_PROCESSOR_OF_NAME = {found.name: found for found in processors.PROCESSORS}
_GPU_OF_NAME = {gpu.name: gpu for gpu in GPUS}


def preset_names() -> tuple[str, ...]:
    """Returns the names that `preset` knows, without numbers of cores, sorted."""
    return tuple(sorted([*_PROCESSOR_OF_NAME, *_ALIASES, *_GPU_OF_NAME]))


def gpu_hint() -> str:
    """Returns a sentence that names the GPUs, which are few among many processors."""
    return f"GPUs: {', '.join(sorted(_GPU_OF_NAME))}."


def preset(name: str) -> Target:
    """Returns a GPU, or the typical machine with a certain processor, with estimated rates.

    Args:
        name: A GPU, such as `"a100"`, or a processor, such as `"haswell"`, `"zen4"` or `"avx2"`,
            optionally with a number of cores: `"sapphirerapids-8core"`. There are 4 unless it
            says otherwise.

    Raises:
        UnknownNameError: There is no such preset.
    """
    if name in _GPU_OF_NAME:
        return _GPU_OF_NAME[name]
    match = re.fullmatch(r"(.+?)(?:-([1-9]\d{0,3})core)?", name)
    stem, count = (match[1], match[2]) if match else (name, None)
    found = _PROCESSOR_OF_NAME.get(_ALIASES.get(stem, stem))
    if found is None:
        raise UnknownNameError("preset", name, preset_names(), gpu_hint())
    cores = int(count) if count else DEFAULT_CORES
    return Target(
        kind="cpu",
        name=f"{stem}-{cores}core",
        cores=cores,
        vector_bytes=processors.vector_bytes_of(found.features),
        features=found.features,
        processor=found.name,
        caches=found.cache_levels(),
        memory_bandwidth=processors.estimate_bandwidth(cores),
        peak_flops=processors.estimate_flops(found.features, found.fma_units, cores, found.clock),
        vector_registers=processors.vector_registers_of(found.features),
        fma_units=found.fma_units,
    )


__all__ = [
    "CORE_NAMES",
    "DEFAULT_CORES",
    "GPUS",
    "SCORING_ONLY",
    "name_of_tvm_target",
    "resolve",
]

CORE_NAMES = ("cpu", "cuda", *preset_names())
"""Names of targets that no plugin may register."""


def resolve(spec: Target | str | os.PathLike[str], others: Iterable[str] = ()) -> Target:
    """Returns the target that a specification means.

    Args:
        spec: `"cpu"` for this machine's CPU, `"cuda"` or `"cuda:N"` for its first or another GPU,
            the name of a preset, one of these followed by `"-tf32"` for a GPU that may round
            factors of float32 products to TF32, one of these as TVM writes it
            (`"llvm -mcpu=cascadelake"`), the path of a JSON file that holds `Target.to_json()`,
            or a target, which is returned as it is.
        others: Further names that are allowed, for the message.

    Raises:
        UnknownNameError: It is none of these.
        InvalidValueError: The file cannot be read, or holds no target.
        UnsupportedTarget: It cannot be detected here.
    """
    if isinstance(spec, Target):
        return spec
    if isinstance(spec, str) and spec.endswith(TF32_SUFFIX):
        return with_tf32(resolve(spec.removesuffix(TF32_SUFFIX), others))
    if spec == "cpu":
        return detect_cpu()
    if isinstance(spec, str) and is_cuda_name(spec):
        return detect_cuda(spec)
    if not isinstance(spec, (str, os.PathLike)):
        raise InvalidValueError(
            f"a target is 'cpu', 'cuda', a preset, a path or a Target, not {type(spec).__name__}"
        )
    if isinstance(spec, str) and (name := name_of_tvm_target(spec)) is not None:
        return resolve(name, others)
    path = Path(spec)
    if isinstance(spec, os.PathLike) or path.suffix == ".json" or os.sep in spec:
        return _read(path)
    try:
        return preset(spec)
    except UnknownNameError:
        raise UnknownNameError(
            "target",
            spec,
            (*CORE_NAMES, *others),
            f"{gpu_hint()} A path of a JSON file ends in '.json'.",
        ) from None


def _read(path: Path) -> Target:
    try:
        return Target.from_json(json.loads(read_text_file(path)))
    except OSError as error:
        raise InvalidValueError(
            f"cannot read the target file {str(path)!r}: {error.strerror}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"{str(path)!r} is not a JSON file: {error}") from error
    except AutotuneError as error:
        raise InvalidValueError(f"{str(path)!r} does not hold a target: {error}") from error


_TAG = re.compile(r"nvidia/(?!.*\.json$)(.+)")
_VENDOR = re.compile(r"^(?:nvidia/)?(?:nvidia-|tesla-|jetson-agx-)?")
_ATTRIBUTE = re.compile(r"--?([A-Za-z][\w-]*)(?:=(.*))?")
_GPU_OF_MODEL = {gpu.name.replace("-", ""): gpu for gpu in GPUS}
# What the preset describes is one of several modules.
_MODULES = {"orin64gb": "orin"}
# LLVM's other names of processors.
_PROCESSORS = {
    "core-avx2": "haswell",
    "corei7-avx": "sandybridge",
    "skx": "skylake-avx512",
}


def name_of_tvm_target(text: str) -> str | None:
    """Returns the name of the target that TVM's text means; None where it is none of TVM's.

    A kind alone, such as `cuda`, is none: it means the same here.

    Raises:
        UnknownNameError: There is no such kind of target, or no GPU of that model.
        InvalidValueError: An attribute is not read, lacks its value, or contradicts another.
    """
    tag = _TAG.fullmatch(text)
    if tag is not None:
        return _name_of_gpu(text)
    if text == "llvm":
        return "cpu"
    if text.startswith("{"):
        kind, attributes = _from_json(text)
    elif " " in text.strip():
        kind, *words = text.split()
        if not words[0].startswith("-"):
            return None
        attributes = _from_words(text, words)
    else:
        return None
    if kind not in _KINDS:
        raise UnknownNameError("kind of target", kind, _KINDS)
    allowed, named = _KINDS[kind]
    for name in attributes:
        if name not in allowed:
            raise InvalidValueError(
                f"target {text!r}: its attribute {name!r} is not read; allowed: "
                f"{', '.join(allowed)}. A JSON file can describe any machine."
            )
    return named(text, attributes)


def _from_words(text: str, words: list[str]) -> dict[str, str]:
    """Attributes of a text: `-name=value`, `--name=value` or `-name value`."""
    found: dict[str, str] = {}
    pending = ""
    for word in words:
        match = _ATTRIBUTE.fullmatch(word)
        if pending and match is None:
            found[pending], pending = word, ""
        elif pending or match is None:
            raise InvalidValueError(f"target {text!r}: {pending or word!r} is no -name=value")
        elif match[2] is None:
            pending = match[1]
        else:
            found[match[1]] = match[2]
    if pending:
        raise InvalidValueError(f"target {text!r}: {pending!r} is no -name=value")
    return found


def _from_json(text: str) -> tuple[str, dict[str, str]]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"target {text!r} is not JSON: {error}") from error
    if not isinstance(data.get("kind"), str):
        raise InvalidValueError(f'target {text!r} lacks its kind, as in {{"kind": "llvm"}}')
    return data.pop("kind"), {name: str(value) for name, value in data.items()}


def _cuda(text: str, attributes: Mapping[str, str]) -> str:
    model, architecture = attributes.get("model"), attributes.get("arch")
    if model is not None and model != "unknown":
        name = _name_of_gpu(model)
        own = next(gpu.processor for gpu in GPUS if gpu.name == name)
        if architecture not in (None, own):
            raise InvalidValueError(
                f"target {text!r}: {name} is {own}, not {architecture}; leave out arch"
            )
        return name
    if architecture is None:
        return "cuda"
    fitting = [gpu.name for gpu in GPUS if gpu.processor == architecture]
    others = f", or one of {', '.join(fitting)}" if fitting else f". {gpu_hint()}"
    raise InvalidValueError(
        f"target {text!r}: {architecture} does not tell which GPU it is; give 'cuda' for the one "
        f"in this machine{others}"
    )


def _name_of_gpu(model: str) -> str:
    """Returns the preset of a GPU by the name that TVM has for it."""
    plain = _VENDOR.sub("", model.casefold()).replace("-", "")
    found = _GPU_OF_MODEL.get(_MODULES.get(plain, plain))
    if found is None:
        raise UnknownNameError("model of GPU", model, [gpu.name for gpu in GPUS])
    return found.name


def _llvm(text: str, attributes: Mapping[str, str]) -> str:
    processor, cores = attributes.get("mcpu"), attributes.get("num-cores")
    if cores is not None and not re.fullmatch(r"[1-9]\d{0,3}", cores):
        raise InvalidValueError(f"target {text!r}: num-cores must be 1 to 9999, not {cores!r}")
    if attributes.get("device", "cpu") != "cpu":
        raise InvalidValueError(f"target {text!r}: its device can only be cpu")
    if processor in (None, "native"):
        if cores is not None:
            raise InvalidValueError(
                f"target {text!r}: cores of this machine are chosen by threads (--threads {cores})"
            )
        return "cpu"
    name = _PROCESSORS.get(str(processor), str(processor))
    return name if cores is None else f"{name}-{cores}core"


_KINDS: Mapping[str, tuple[tuple[str, ...], Callable[[str, Mapping[str, str]], str]]] = {
    "cuda": (("model", "arch"), _cuda),
    "llvm": (("mcpu", "num-cores", "device"), _llvm),
}
"""Facts that are read of each kind of target, and the function that makes a name of them."""


_ATTRIBUTES = {
    "max_threads_per_block": 1,
    "shared_memory_bytes": 8,
    "warp_size": 10,
    "registers_per_block": 12,
    "clock_khz": 13,
    "multiprocessors": 16,
    "compute_mode": 20,
    "memory_clock_khz": 36,
    "bus_bits": 37,
    "l2": 38,
    "max_threads_per_multiprocessor": 39,
    "major": 75,
    "minor": 76,
    "shared_memory_per_multiprocessor": 81,
    "registers_per_multiprocessor": 82,
    "max_blocks_per_multiprocessor": 106,
}
"""``CUdevice_attribute`` by what it is here."""

_EDGES = 2  # Memory of GPUs transfers data on both edges of its clock.
# Lanes of float32 of a multiprocessor, by compute capability; others since 8.6 have 128.
_LANES = {75: 64, 80: 64}
# A preset describes a device whose bandwidth differs by no more than this share.
_SAME_BANDWIDTH = 0.1
_PROHIBITED = 2


@frozen
class CudaDevice:
    """A device as the driver describes it.

    Attributes:
        index: Its number, as in ``cuda:1``.
        name: Its product name.
        memory_bytes: Size of its memory.
        prohibited: Whether its compute mode forbids every context.
        target: What programs are made for.
    """

    index: int
    name: str
    memory_bytes: int
    prohibited: bool
    target: Target


def is_cuda_name(spec: str) -> bool:
    """Return whether a text asks for a detected GPU: ``cuda`` or ``cuda:N``."""
    return re.fullmatch(r"cuda(:\d+)?", spec) is not None


def cuda_devices(driver: CudaDriver) -> list[CudaDevice]:
    """Every device that this process may use, in the driver's order."""
    return [_describe(driver, index) for index in range(driver.device_count())]


def detect_cuda(spec: str = "cuda", driver: CudaDriver | None = None) -> Target:
    """The GPU that ``cuda`` (the first one) or ``cuda:N`` means.

    One that is as a preset says is described by it, so that records of both agree.

    Args:
        spec: Which one.
        driver: The driver; that of this machine unless given.

    Raises:
        InvalidValueError: there is no device of that number.
        UnsupportedTarget: there is no usable driver or device, or it allows no computing.
    """
    devices = cuda_devices(driver or load_driver())
    index = int(spec.partition(":")[2] or 0)
    if index >= len(devices):
        names = ", ".join(f"cuda:{it.index} ({it.name})" for it in devices)
        raise InvalidValueError(f"there is no device {spec!r}; there are: {names}")
    device = devices[index]
    if device.prohibited:
        raise UnsupportedTarget(
            f"{spec!r} ({device.name}) is in compute mode 'prohibited': nvidia-smi -c changes it"
        )
    return device.target if index == 0 else evolve(device.target, name=_indexed(device))


def matching_device(target: Target, driver: CudaDriver) -> CudaDevice:
    """The device that a target describes: the one its name numbers, else the first alike.

    Raises:
        UnsupportedTarget: no device of this machine is as the target says; names them.
    """
    devices = cuda_devices(driver)
    asked = re.search(r":(\d+)$", target.name.removesuffix(TF32_SUFFIX))
    for device in devices:
        if asked is not None and device.index != int(asked.group(1)):
            continue
        if _alike(device.target, target):
            return device
    found = ", ".join(f"cuda:{it.index} is {it.name} ({it.target.processor})" for it in devices)
    raise UnsupportedTarget(
        f"target {target.name!r} ({target.processor}, {target.multiprocessors} multiprocessors) "
        f"is no device of this machine: {found}; --target cuda means what is here"
    )


def _indexed(device: CudaDevice) -> str:
    return f"{device.target.name}:{device.index}"


def _alike(found: Target, target: Target) -> bool:
    """Return whether programs that are timed on one count for the other."""
    architectures = [re.sub("[af]$", "", it.processor) for it in (found, target)]
    return (
        architectures[0] == architectures[1]
        and found.multiprocessors == target.multiprocessors
        and _near(found.memory_bandwidth, target.memory_bandwidth)
    )


def _near(found: float, wanted: float) -> bool:
    if not found or not wanted:
        return True
    return abs(found - wanted) <= _SAME_BANDWIDTH * max(found, wanted)


def _describe(driver: CudaDriver, index: int) -> CudaDevice:
    device = driver.device(index)
    facts = {name: driver.attribute(device, number) for name, number in _ATTRIBUTES.items()}
    name = driver.name(device)
    target = _target(name, facts)
    target = next((gpu for gpu in GPUS if _alike(target, gpu)), target)
    prohibited = facts["compute_mode"] == _PROHIBITED
    return CudaDevice(index, name, driver.total_memory(device), prohibited, target)


def _target(name: str, facts: dict[str, int]) -> Target:
    capability = facts["major"] * 10 + facts["minor"]
    clock = facts["clock_khz"] * 1e3
    lanes = _LANES.get(capability, 128)
    shared = facts["shared_memory_per_multiprocessor"]
    cycles = facts["multiprocessors"] * clock
    float32 = 2 * lanes * cycles
    made = Target(
        kind="cuda",
        name=re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or f"sm-{capability}",
        vector_bytes=WIDEST_ACCESS,
        processor=f"sm_{capability}",
        caches=tuple(
            Cache(level, size, level == 2, LINE)
            for level, size in ((1, shared), (2, facts["l2"]))
            if size
        ),
        memory_bandwidth=_EDGES * facts["memory_clock_khz"] * 1e3 * facts["bus_bits"] / 8,
        peak_flops={"float32": float32} if float32 else {},
        clock=clock,
        warp_size=facts["warp_size"] or WARP,
        warp_schedulers=4,
        multiprocessors=facts["multiprocessors"],
        shared_memory_bytes=facts["shared_memory_bytes"],
        registers_per_block=facts["registers_per_block"],
        max_threads_per_block=facts["max_threads_per_block"],
        shared_memory_per_multiprocessor=shared,
        registers_per_multiprocessor=facts["registers_per_multiprocessor"],
        max_threads_per_multiprocessor=facts["max_threads_per_multiprocessor"],
        max_blocks_per_multiprocessor=facts["max_blocks_per_multiprocessor"],
    )
    return _with_rates(made, cycles)


def _with_rates(target: Target, cycles: float) -> Target:
    """A device with the rates that a cycle of a multiprocessor has on a known GPU of its kind.

    Args:
        target: The device as the driver describes it, which tells nothing of tensor cores.
        cycles: Cycles a second of all its multiprocessors.
    """
    known = next((gpu for gpu in GPUS if gpu.processor == target.processor), None)
    if known is None or not cycles:
        return target
    scale = cycles / (known.multiprocessors * known.clock)
    peak, tensor = (
        {dtype: rate * scale for dtype, rate in rates.items()}
        for rates in (known.peak_flops, known.tensor_peak_flops)
    )
    return evolve(
        target,
        peak_flops=peak,
        tensor_peak_flops=tensor,
        tensor_core_shapes=known.tensor_core_shapes,
    )
