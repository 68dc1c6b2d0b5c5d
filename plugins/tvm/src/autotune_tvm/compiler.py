"""Compiling by TVM: targets, passes, digests of what is made, and exceptions as one line."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from importlib import metadata
from typing import Any

from autotune.backends import BuildFailed
from autotune.targets import Target, check_is_cuda, check_is_x86_64
from autotune_tvm import runtime

__all__ = [
    "PRINTED",
    "brief",
    "check_target",
    "code_digest",
    "compile_module",
    "compiler_version",
    "cuda_target",
    "described_target",
    "generate_code",
    "lower_module",
    "module_digest",
    "tir_pipeline",
    "tvm_target",
    "without_checks",
]

_MESSAGE_LIMIT = 480
# Between them they have every feature that is worth naming.
_RICHEST = ("diamondrapids", "graniterapids", "sapphirerapids", "znver5")


def compiler_version() -> str:
    """The installed versions, such as ``"apache-tvm 0.27.0.post1 (ffi 0.1.14.post0)"``."""
    return f"apache-tvm {_installed('apache-tvm')} (ffi {_installed('apache-tvm-ffi')})"


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def check_target(target: Target) -> None:
    """Refuse what this plugin cannot compile for, without importing TVM.

    Raises:
        UnsupportedTarget: it is neither an x86-64 CPU nor a GPU that CUDA toolkits compile for.
    """
    check = check_is_cuda if target.kind == "cuda" else check_is_x86_64
    check(target, "tvm")


def tvm_target(target: Target, threads: int) -> dict[str, Any]:
    """The dictionary that TVM makes its target from.

    Features that the processor's name does not imply are named. They are all of a processor that
    TVM's LLVM does not know, and some of one whose other features a hypervisor hides.
    """
    codegen = runtime.load().target.codegen
    make = runtime.load().target.Target

    def implied(processor: str) -> set[str]:
        return set(
            map(str, codegen.llvm_get_cpu_features(make({"kind": "llvm", "mcpu": processor})))
        )

    processors = set(map(str, codegen.llvm_get_cpu_archlist(make({"kind": "llvm"}))))
    processor = target.processor if target.processor in processors else "x86-64"
    described: dict[str, Any] = {"kind": "llvm", "num-cores": threads, "mcpu": processor}
    unsaid = set(target.features) - implied(processor)
    if unsaid:
        known = set().union(*map(implied, _RICHEST))
        described["mattr"] = [f"+{name}" for name in target.features if name in unsaid & known]
    return described


def lower_module(module: Any, target: Target, threads: int) -> Any:
    """Run TVM's passes on ``module``, up to where LLVM begins.

    These are the passes of ``tvm.compile``, which offers no way to stop here, and some of ours:
    see :mod:`autotune_tvm.compiler`.

    Raises:
        BuildFailed: a pass rejected it; the message is the start of its own.
    """
    tvm = runtime.load()
    try:
        made = _host_target(target, threads)
        pipeline, finalize_host, _ = tir_pipeline()
        bound = tvm.tirx.transform.BindTarget(made.with_host(made))(module)
        with _kept_buffers(bound):
            return finalize_host()(pipeline(bound))
    except Exception as error:  # TVM raises whatever its passes raise
        raise BuildFailed(brief(error)) from error


def without_checks(lowered: Any) -> Any:
    """Module that :func:`lower_module` returned, without checks of its arguments in each call.

    What asks for registers is an assertion, too, and stays.
    """
    from autotune_tvm.passes.request_tiles import request_tiles

    return request_tiles(runtime.load().tirx.transform.SkipAssert()(lowered))


def _kept_buffers(module: Any) -> AbstractContextManager[object]:
    """Passes that leave buffers as they are where some hold truth values.

    TVM makes those that are only read and written in vectors buffers of vectors, and then loses
    the type of their elements.
    """
    from autotune_tvm.passes.statements import blocks

    transform = runtime.load().transform
    kept = [
        buffer
        for function in module.functions.values()
        for block in blocks(function.body)
        for buffer in block.alloc_buffers
        if str(buffer.dtype) == "bool"
    ]
    if not kept:
        return nullcontext()
    current = transform.PassContext.current()
    config = {**dict(current.config), "tirx.disable_storage_rewrite": True}
    made: AbstractContextManager[object] = transform.PassContext(
        opt_level=current.opt_level, config=config, instruments=list(current.instruments)
    )
    return made


def generate_code(
    lowered: Any, target: Target, threads: int, *, runs_here: bool = True
) -> tuple[Any, str]:
    """Let LLVM make what runs in this process, and the digest of what it made.

    Args:
        lowered: What :func:`lower_module` returned for the same target and threads.
        target: What it runs on.
        threads: Threads that its parallel loops use.
        runs_here: Whether machine code for this process is wanted, too.

    Raises:
        BuildFailed: LLVM rejected it; the message is the start of its own.
    """
    tvm = runtime.load()
    try:
        generate = tvm.get_global_func("target.build.llvm")
        printed = all(map(is_printed, lowered.functions.values()))
        made = _printed_target(target, threads) if printed else _host_target(target, threads)
        built = generate(lowered, made)
        # Before machine code is generated, which changes the text.
        digest = code_digest(str(built.inspect_source("ll")))
        # LLVM generates machine code when a function is first looked up: that is building too.
        if runs_here:
            built["main"]
    except Exception as error:  # TVM raises whatever its passes raise
        raise BuildFailed(brief(error)) from error
    return built, digest


def compile_module(module: Any, target: Target, threads: int) -> Any:
    """Compile ``module`` into something that runs in this process.

    Raises:
        BuildFailed: TVM or LLVM rejected it; the message is the start of theirs.
    """
    return generate_code(lower_module(module, target, threads), target, threads)[0]


@lru_cache(maxsize=8)
def _host_target(target: Target, threads: int) -> Any:
    return runtime.load().target.Target(tvm_target(target, threads))


@lru_cache(maxsize=8)
def _printed_target(target: Target, threads: int) -> Any:
    """Of printed functions, which have their vectors and unrolled loops: LLVM looks for none."""
    described = {**tvm_target(target, threads), "opt-level": 1}
    return runtime.load().target.Target(described)


def cuda_target(target: Target) -> dict[str, Any]:
    """The dictionary that TVM makes its target from; the host's part is compiled by LLVM."""
    described: dict[str, Any] = {"kind": "cuda", "arch": target.processor, "host": "llvm"}
    limits = {
        "max_threads_per_block": target.max_threads_per_block,
        "max_shared_memory_per_block": target.shared_memory_bytes,
        "registers_per_block": target.registers_per_block,
        "thread_warp_size": target.warp_size,
    }
    described.update({name: limit for name, limit in limits.items() if limit})
    return described


def described_target(target: Target, threads: int) -> Any:
    """TVM's own target object, whatever the kind."""
    described = cuda_target(target) if target.kind == "cuda" else tvm_target(target, threads)
    return runtime.load().target.Target(described)


def brief(error: BaseException) -> str:
    """The first lines of a TVM message that say something, in less than 500 characters.

    TVM's messages hold stack traces and whole programs.
    """
    kept: list[str] = []
    for line in str(error).splitlines():
        text = re.sub(r"\s+", " ", line).strip()
        if not text or _is_noise(text):
            continue
        if text.startswith(("# from tvm", "@I.ir_module", "@T.prim_func")):
            break
        kept.append(text)
        if sum(map(len, kept)) > _MESSAGE_LIMIT:
            break
    message = " ".join(kept) or "no message"
    return f"{type(error).__name__}: {message}"[:_MESSAGE_LIMIT]


def _is_noise(text: str) -> bool:
    return bool(
        re.match(r"(Traceback|File \"|\d+: |\[bt\]|at .*\.cc:|_+$|-+$|=+$)", text)
        or text.endswith((".cc", ".h"))
    )


# What LLVM's text says for debuggers and readers.
_REMARKS = re.compile(
    r"^ *#dbg_.*\n|, !dbg !\d+| +; preds = .*$|^!\d+ = (?:distinct )?!DI.*\n", re.MULTILINE
)
# Numbers of metadata nodes, and the names of nodes that say what may overlap what: TVM writes the
# addresses of its variables there.
_NODES = re.compile(r'!\d+|!"0x[0-9a-f]+')


def module_digest(module: Any) -> str:
    """Digest of a TVM module: its structure, without names.

    Variables that a lowered function uses and never defines, such as those of its buffers, are
    numbered as they appear: their addresses would differ otherwise.
    """
    import tvm_ffi

    return f"{tvm_ffi.structural_hash(module, map_free_vars=True) % (1 << 64):016x}"


def code_digest(text: str) -> str:
    """Digest of a module in LLVM's text form, optimised: what its machine code is made from.

    What is there for debuggers is left out. Names of values are not: programs that differ in
    nothing else count as different, of which there are next to none after :func:`module_digest`.
    """
    numbers: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        node = match.group()
        return numbers.setdefault(node, f"{node[0]}{len(numbers)}")

    plain = _NODES.sub(numbered, _REMARKS.sub("", text))
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


PRINTED = "autotune.printed"
"""Attribute of functions that are printed: most passes have nothing to do for them."""


def is_printed(function: Any) -> bool:
    """Return whether a function is printed."""
    attributes = getattr(function, "attrs", None)
    return attributes is not None and PRINTED in attributes


def tir_pipeline() -> tuple[Any, Any, Any]:
    """TVM's default pipeline in the form of its registry, which printed functions pass by.

    These have nothing to be lowered but their parameters. In all others conversions of bfloat16
    are made right by the passes of :mod:`autotune_tvm.passes.bfloat16`, of which one comes first
    and one before TVM's last passes, as does
    :func:`~autotune_tvm.passes.expand_functions.expand_functions`: vectors call no library.

    Returns:
        The passes over all functions, what makes the last passes for the host's functions, and
        the same for those of devices.
    """
    import tvm
    from tvm.tirx.compilation_pipeline import get_tir_pipeline

    from autotune_tvm.passes.bfloat16 import bfloat16_constants, round_to_bfloat16
    from autotune_tvm.passes.expand_functions import expand_functions
    from autotune_tvm.passes.request_tiles import request_tiles

    def packed(module: Any) -> Any:
        for variable, function in module.functions_items():
            module[variable] = function.with_body(function.body.block.body)
        calls = tvm.tirx.transform.MakePackedAPI()(module)
        return tvm.tirx.transform.BF16StorageLegalize()(calls)

    def lower(module: Any, _: Any) -> Any:
        return _apart(module, packed, lambda others: pipeline(bfloat16_constants(others)))

    def expanded(module: Any) -> Any:
        return expand_functions(round_to_bfloat16(module))

    def finish(module: Any, _: Any) -> Any:
        return last(_apart(module, request_tiles, expanded))

    def finalize_host() -> Any:
        return tvm.transform.module_pass(finish, opt_level=0, name="Finish")

    pipeline, finalize, finalize_device = get_tir_pipeline("default")
    last = finalize()
    made = tvm.transform.module_pass(lower, opt_level=0, name="Lower")
    return made, finalize_host, finalize_device


def _apart(module: Any, printed: Callable[[Any], Any], others: Callable[[Any], Any]) -> Any:
    """A module whose printed functions went through one pass, and all else through another."""
    from tvm.ir import IRModule

    own = {
        variable: function
        for variable, function in module.functions_items()
        if is_printed(function)
    }
    if not own:
        return others(module)
    rest = {
        variable: function
        for variable, function in module.functions_items()
        if not is_printed(function)
    }
    made = printed(IRModule(own, attrs=module.attrs))
    if rest:
        made.update(others(IRModule(rest, attrs=module.attrs)))
    return made
