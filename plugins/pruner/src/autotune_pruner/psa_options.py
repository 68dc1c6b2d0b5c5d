"""The pruning model ``pruner-psa``: PSA with its options, and without single terms of it."""

from __future__ import annotations

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.models import ModelContext
from autotune.models.pruning import PSA
from autotune.models.pruning.psa_gpu import FORMULAS, PublishedGpu, published_gpu, symbol_tape
from autotune.models.pruning.psa_symbols import PUBLISHED_SYMBOLS
from autotune.plugins.options import option, read_options
from autotune.sketches import CandidateBatch, Sketch

__all__ = ["ConfigurablePSA", "PSAOptions", "published_milliseconds"]


@frozen
class PSAOptions:
    """Options of ``pruner-psa``. CPUs have none of them.

    Attributes:
        formula: ``published`` as released, or ``corrected``.
        gpu_spec: Name of published figures of a GPU; empty for those of the target.
        waves: Whether blocks that do not fill a last wave cost (published formula).
        lanes: Whether threads that do not fill a last warp cost (published formula).
        registers: Whether tiles beyond the registers cost (published formula).
        reuse: Whether elements that are used seldom cost (published formula).
        memory: Whether traffic costs (published formula).
    """

    formula: str = option("published", choices=FORMULAS)
    gpu_spec: str = option("")
    waves: bool = option(True)
    lanes: bool = option(True)
    registers: bool = option(True)
    reuse: bool = option(True)
    memory: bool = option(True)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of the terms that are switched off."""
        names = ("waves", "lanes", "registers", "reuse", "memory")
        return tuple(name for name in names if not getattr(self, name))


class ConfigurablePSA(PSA):
    """PSA with any of its formulas, figures and terms.

    With all terms it is the pruning model ``psa`` of the core, native code included. Without some
    it is for studies of what a term contributes (Pruner, ASPLOS'25, ablations of the released
    code): computed in numpy, some microseconds a candidate.

    Args:
        context: The target that candidates are for, and options; see :class:`PSAOptions`.

    Raises:
        InvalidValueError: an option is unknown or of the wrong type, or terms of the corrected
            arithmetic are switched off.
        UnknownNameError: there is no such formula, or there are no such figures.
        UnsupportedTarget: options are given for a CPU.
    """

    name = "pruner-psa"

    def __init__(self, context: ModelContext) -> None:
        self._target = target = context.target
        self._options = options = read_options(
            f"pruning model {self.name!r}", PSAOptions, context.options
        )
        given = {"formula": options.formula, "gpu_spec": options.gpu_spec}
        if target.kind != "cuda":
            if options != PSAOptions():
                raise UnsupportedTarget(
                    f"options of the pruning model {self.name!r} are for GPUs; target "
                    f"{target.name!r} is of kind {target.kind!r}"
                )
            given = {}
        elif options.left_out:
            if options.formula != "published":
                raise InvalidValueError(
                    f"terms ({', '.join(options.left_out)}) can be switched off in the "
                    f"published formula only, not in the {options.formula} one"
                )
            self._gpu = published_gpu(target, options.gpu_spec or None)
        super().__init__(ModelContext(target=target, options=given))

    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Scores of shape [n], one over estimated milliseconds; higher is better."""
        return batch.each(self._scores) if self._options.left_out else super().score(batch)

    def _scores(self, sketch: Sketch, matrix: NDArray[np.int64]) -> NDArray[np.float64]:
        tape, maxima = symbol_tape(sketch, self._target, "published")
        values = tape.evaluate(np.ascontiguousarray(matrix, dtype=np.int64)).astype(np.float64)
        width = values.shape[1] - len(maxima)
        per_statement = len(PUBLISHED_SYMBOLS)
        symbols = values[:, :width].reshape(len(values), width // per_statement, per_statement)
        milliseconds = published_milliseconds(symbols, self._gpu, self._options)
        legal = (values[:, width:] <= np.array(maxima)).all(axis=1)
        valid = legal & (milliseconds > 0) & np.isfinite(milliseconds)
        return np.where(valid, 1.0 / np.where(valid, milliseconds, 1.0), -np.inf)


def published_milliseconds(
    symbols: NDArray[np.float64], gpu: PublishedGpu, options: PSAOptions
) -> NDArray[np.float64]:
    """Estimated milliseconds [n] of programs: Pruner's released formula, terms left out.

    Args:
        symbols: Of the statements of each program, [n, statements, 6]: flop of a thread F,
            elements in registers R, elements touched Q, elements moved D, blocks G, threads T.
        gpu: Figures of the machine.
        options: Which terms there are. One that there is not is 1 if it is a factor, else 0.
    """
    flop, registers, touched, moved, blocks, threads = np.moveaxis(symbols, -1, 0)
    warps = threads / gpu.warp
    whole_warps = np.ceil(warps)
    used = np.ones_like(flop)
    if options.waves:
        used = _share_of_waves(blocks, whole_warps, gpu)
    if options.lanes:
        used = used * (warps / whole_warps)
    if options.registers:
        used = used / np.maximum(1.0, registers / gpu.registers)
    work = flop * blocks * threads
    if options.reuse:
        known = (flop != 0) & (touched != 0)
        work = work * (
            1.0 + 1.0 / (1.0 + np.where(known, flop / np.where(known, touched, 1), 0.0))
        )
    compute = work / (gpu.peak * used) / 1e6
    memory = moved / gpu.bandwidth * 1000.0 / 2**30 if options.memory else np.zeros_like(moved)
    return np.asarray(np.maximum(compute, memory).sum(axis=1), dtype=np.float64)


def _share_of_waves(
    blocks: NDArray[np.float64], whole_warps: NDArray[np.float64], gpu: PublishedGpu
) -> NDArray[np.float64]:
    """Share of the multiprocessors, or of their partitions, that waves of blocks keep busy."""
    block_slots = gpu.active_blocks * gpu.multiprocessors
    filled = blocks >= block_slots
    units = np.where(filled, blocks, blocks * np.minimum(whole_warps, gpu.partitions))
    slots = np.where(filled, block_slots, gpu.partitions * gpu.multiprocessors)
    return np.asarray(units / (np.ceil(units / slots) * slots), dtype=np.float64)
