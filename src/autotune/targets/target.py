"""The description of a machine, neutral between compilers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import NOTHING, Attribute, evolve, field, fields, frozen

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.converter import JsonForm, json_forms, noun
from autotune.ir.element_types import element_type

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = ["TARGET_KINDS", "Cache", "Target", "compute_capability", "most_shared_memory"]

TARGET_KINDS = ("cpu", "cuda")

# A kind this similar to one of the core is a slip of the fingers; an "npu" is not.
_MISSPELT = 0.7

# Machines have rates for more types than workloads have tensors of.
_RATES_ONLY = ("int16",)

# What is measured or estimated about a machine, rather than what it is: two descriptions that
# differ only in these are of machines on which the same code performs the same.
_NOT_IN_FINGERPRINT = (
    "name",
    "memory_bandwidth",
    "peak_flops",
    "rates_measured",
    "tensor_peak_flops",
    "clock",
)
# Left out while unknown, so that machines without them keep the description, and the fingerprint,
# that their records have.
_DESCRIBED_WHEN_KNOWN = (
    "clock",
    "tensor_peak_flops",
    "shared_memory_per_multiprocessor",
    "registers_per_multiprocessor",
    "max_threads_per_multiprocessor",
    "max_blocks_per_multiprocessor",
    "warp_schedulers",
)


def _whole(instance: object, attribute: Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidValueError(f"{attribute.name} must be a whole number, not {value!r}")


def _positive(instance: object, attribute: Attribute[Any], value: object) -> None:
    _whole(instance, attribute, value)
    if value == 0:
        raise InvalidValueError(f"{attribute.name} must be at least 1")


def _rate(instance: object, attribute: Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e30:
        raise InvalidValueError(f"{attribute.name} must be a rate per second, not {value!r}")


def _text(instance: object, attribute: Attribute[Any], value: object) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidValueError(f"{attribute.name} must be a non-empty string, not {value!r}")


def _flag(instance: object, attribute: Attribute[Any], value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidValueError(f"{attribute.name} must be true or false, not {value!r}")


@frozen
class Cache:
    """Level of data cache.

    Attributes:
        level: 1 is nearest to the core.
        size_bytes: Size of one instance.
        shared: Whether several cores use one instance.
        line_bytes: Size of a line.
    """

    level: int = field(validator=_positive)
    size_bytes: int = field(validator=_positive)
    shared: bool = field(validator=_flag)
    line_bytes: int = field(default=64, validator=_positive)


def _features(names: object) -> tuple[str, ...]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in _listed(names)):
        raise InvalidValueError(f"features must be a list of names, not {names!r}")
    return tuple(sorted({str(name) for name in _listed(names)}))


def _caches(caches: object) -> tuple[Cache, ...]:
    found = _listed(caches)
    if not all(isinstance(cache, Cache) for cache in found):
        raise InvalidValueError(f"caches must be a list of Cache, not {caches!r}")
    return tuple(sorted(found, key=lambda cache: int(cache.level)))


def _listed(values: object) -> tuple[Any, ...]:
    if not isinstance(values, (list, tuple, set, frozenset)):
        raise InvalidValueError(f"expected a list, not {values!r}")
    return tuple(values)


def _shapes(shapes: object) -> tuple[tuple[int, int, int], ...]:
    found = tuple(tuple(_listed(shape)) for shape in _listed(shapes))
    for shape in found:
        if len(shape) != 3 or not all(isinstance(extent, int) and extent > 0 for extent in shape):
            raise InvalidValueError(f"a tensor-core shape is (m, n, k), not {shape!r}")
    return tuple(sorted(found))


def _rates(rates: object) -> Mapping[str, float]:
    if not isinstance(rates, Mapping):
        raise InvalidValueError(f"peak_flops must map dtypes to flop/s, not {rates!r}")
    for dtype, rate in rates.items():
        if dtype not in _RATES_ONLY:
            element_type(str(dtype))
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate < 1e30:
            raise InvalidValueError(f"peak_flops of {dtype} must be positive, not {rate!r}")
    return MappingProxyType({dtype: float(rates[dtype]) for dtype in sorted(rates)})


@frozen
class Target(JsonForm):
    """The machine that programs run on.

    Attributes:
        kind: `"cpu"` or `"cuda"`.
        name: What a user calls it; no part of the fingerprint.
        cores: Cores that a program may use.
        vector_bytes: Width of a vector register.
        features: Instruction-set extensions, by LLVM's names, sorted.
        processor: Processor model by LLVM's `-mcpu` names, such as `"sapphirerapids"`.
        caches: Data caches, nearest first.
        memory_bandwidth: bytes/s of all cores together; 0 when unknown.
        peak_flops: flop/s of all cores together by dtype; a multiply-add counts as two.
        rates_measured: Whether the two above were measured; otherwise they are estimates.
        vector_registers: Vector registers that one thread can name.
        fma_units: Full-width multiply-adds that a core starts per cycle.
        multiprocessors: CUDA: streaming multiprocessors.
        shared_memory_bytes: CUDA: shared memory that one block can have.
        registers_per_block: CUDA: 32-bit registers that one block can have.
        max_threads_per_block: CUDA: threads that one block can have.
        warp_size: CUDA: threads per warp.
        tensor_core_shapes: CUDA: (m, n, k) of each matrix instruction.
        tensor_peak_flops: CUDA: flop/s of the tensor cores by dtype of the operands; the rates
            of `peak_flops` are those without them.
        clock: CUDA: cycles/s of a multiprocessor; 0 when unknown.
        shared_memory_per_multiprocessor: CUDA: bytes that the blocks on one share.
        registers_per_multiprocessor: CUDA: 32-bit registers that the blocks on one share.
        max_threads_per_multiprocessor: CUDA: threads that one can hold.
        max_blocks_per_multiprocessor: CUDA: blocks that one can hold.
        warp_schedulers: CUDA: warps of which a multiprocessor starts an instruction per cycle.

    Raises:
        InvalidValueError: A value has the wrong type or is out of range.
        UnknownNameError: The kind or a dtype does not exist.
    """

    kind: str = field()
    name: str = field(validator=_text)
    cores: int = field(default=1, validator=_positive)
    vector_bytes: int = field(default=16, validator=_positive)
    features: tuple[str, ...] = field(default=(), converter=_features)
    processor: str = field(default="x86-64", validator=_text)
    caches: tuple[Cache, ...] = field(default=(), converter=_caches)
    memory_bandwidth: float = field(default=0.0, validator=_rate)
    peak_flops: Mapping[str, float] = field(factory=dict, converter=_rates, hash=False)
    rates_measured: bool = field(default=False, validator=_flag)
    vector_registers: int = field(default=16, validator=_positive)
    fma_units: int = field(default=1, validator=_positive)
    multiprocessors: int = field(default=0, validator=_whole)
    shared_memory_bytes: int = field(default=0, validator=_whole)
    registers_per_block: int = field(default=0, validator=_whole)
    max_threads_per_block: int = field(default=0, validator=_whole)
    warp_size: int = field(default=0, validator=_whole)
    tensor_core_shapes: tuple[tuple[int, int, int], ...] = field(default=(), converter=_shapes)
    tensor_peak_flops: Mapping[str, float] = field(factory=dict, converter=_rates, hash=False)
    clock: float = field(default=0.0, validator=_rate)
    shared_memory_per_multiprocessor: int = field(default=0, validator=_whole)
    registers_per_multiprocessor: int = field(default=0, validator=_whole)
    max_threads_per_multiprocessor: int = field(default=0, validator=_whole)
    max_blocks_per_multiprocessor: int = field(default=0, validator=_whole)
    warp_schedulers: int = field(default=0, validator=_whole)

    @kind.validator
    def _check_kind(self, attribute: Attribute[Any], value: object) -> None:
        # Plugins bring kinds of their own: what a part does not know, it refuses itself.
        if value in TARGET_KINDS:
            return
        plain = isinstance(value, str) and value.isidentifier() and value == value.lower()
        if not plain or get_close_matches(str(value), TARGET_KINDS, 1, _MISSPELT):
            raise UnknownNameError("kind of target", str(value), TARGET_KINDS)

    @vector_bytes.validator
    def _check_vector_bytes(self, attribute: Attribute[Any], value: int) -> None:
        if value & (value - 1):
            raise InvalidValueError(f"vector_bytes must be a power of two, not {value}")

    @property
    def fingerprint(self) -> str:
        """Digest (16 hex digits) of what the speed of generated code depends on.

        The name and the rates are left out: they vary between measurements of one machine. The
        memory of a GPU is part of it, so its bandwidth counts: it tells an H100 from an H200.
        """
        left_out = set(_NOT_IN_FINGERPRINT)
        if self.kind == "cuda":
            left_out.remove("memory_bandwidth")
        described = {key: value for key, value in self.to_json().items() if key not in left_out}
        text = json.dumps(described, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def lanes(self, dtype: str) -> int:
        """Returns how many elements of `dtype` a vector register holds.

        Raises:
            UnknownNameError: There is no such dtype.
        """
        return max(1, self.vector_bytes // element_type(dtype).bytes)

    def with_cores(self, cores: int) -> Target:
        """Returns the same machine when only `cores` of its cores are used.

        Peak rates scale with the cores; the memory bandwidth stays, although few cores may be
        unable to use all of it.

        Raises:
            InvalidValueError: `cores` is not a positive whole number.
        """
        stem = self.name.removesuffix(f"-{self.cores}core")
        name = self.name if stem == self.name else f"{stem}-{cores}core"
        changed = evolve(self, cores=cores, name=name)
        scale = cores / self.cores
        return evolve(
            changed, peak_flops={dtype: rate * scale for dtype, rate in self.peak_flops.items()}
        )


@json_forms
def _forms(converter: Converter) -> None:
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

    write = make_dict_unstructure_fn(Target, converter)

    def what_is_known(target: Target) -> dict[str, Any]:
        data = write(target)
        return {
            name: value
            for name, value in data.items()
            if value or name not in _DESCRIBED_WHEN_KNOWN
        }

    def reader(kind: type[Any], **hooks: Any) -> Callable[[Any, Any], Any]:
        """Fields are checked by the class, which says what they are for."""
        given = {item.name: override(struct_hook=lambda data, _: data) for item in fields(kind)}
        read = make_dict_structure_fn(kind, converter, **{**given, **hooks})

        def checked(data: Any, _: Any) -> Any:
            _check_fields(data, kind)
            return read(data, kind)

        return checked

    read_cache = reader(Cache)
    caches = override(
        struct_hook=lambda data, _: [read_cache(cache, Cache) for cache in _listed(data)]
    )
    converter.register_unstructure_hook(Target, what_is_known)
    converter.register_structure_hook(Target, reader(Target, caches=caches))


def _check_fields(data: object, kind: type[Any]) -> None:
    what = noun(kind)
    if not isinstance(data, Mapping):
        raise InvalidValueError(f"{what} is a JSON object, not {data!r}")
    known = {item.name: item for item in fields(kind)}
    for name in data:
        if name not in known:
            raise UnknownNameError(f"field of {what}", str(name), known)
    required = [name for name, item in known.items() if item.default is NOTHING]
    missing = [name for name in required if name not in data]
    if missing:
        raise InvalidValueError(f"{what} needs {', '.join(missing)}")


TF32_SUFFIX = "-tf32"
"""Suffix of the names of targets that allow it."""

TF32_EPS = 2.0**-10
"""The distance of 1 to the next number of 10 bits."""

_FEATURE = "tf32"
# Of the rate for 16-bit factors, by the data sheets of A100 and H100.
_RATE_OF_HALVES = 0.5


# TF32 changes what programs compute, so it is part of the target: of its name and its features, by
# which records with and without it are told apart.
def allows_tf32(target: Target) -> bool:
    """Return whether factors of float32 products may be rounded to TF32."""
    return _FEATURE in target.features


def with_tf32(target: Target) -> Target:
    """The same GPU, with TF32 allowed.

    Raises:
        InvalidValueError: it is no GPU.
    """
    if target.kind != "cuda":
        raise InvalidValueError(f"target {target.name!r} is no GPU: only these have TF32")
    halves = target.tensor_peak_flops.get("float16")
    own = {"float32": halves * _RATE_OF_HALVES} if halves else {}
    return evolve(
        target,
        name=f"{target.name}{TF32_SUFFIX}",
        features=(*target.features, _FEATURE),
        tensor_peak_flops={**target.tensor_peak_flops, **own},
    )


# Letters mark what only this architecture has (`sm_90a`).
_ARCHITECTURE = re.compile(r"sm_(\d+)[a-z]?")
# From this capability on, all shared memory of a multiprocessor but what the system keeps for a
# block may be one block's ("Technical Specifications per Compute Capability" of CUDA's guide).
_AMPERE, _RESERVED_BYTES = 80, 1024


def compute_capability(processor: str) -> int:
    """The compute capability in NVIDIA's name of an architecture: 80 of ``sm_80``; else 0."""
    found = _ARCHITECTURE.fullmatch(processor)
    return int(found.group(1)) if found else 0


def most_shared_memory(target: Target) -> int:
    """Bytes of shared memory that a block may have where it asks for them when it is launched.

    At least ``shared_memory_bytes``, which a block has without asking.
    """
    if compute_capability(target.processor) < _AMPERE:
        return target.shared_memory_bytes
    requested = target.shared_memory_per_multiprocessor - _RESERVED_BYTES
    return max(target.shared_memory_bytes, requested)
