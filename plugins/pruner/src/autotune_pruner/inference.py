"""Scoring many programs: rows they share go through the network once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from autotune_pruner.networks import (
    DATAFLOW_WIDTH,
    FLOW_LENGTH,
    HIDDEN,
    RankingNetwork,
    gathered,
)
from autotune_pruner.programs import Programs

__all__ = ["distinct_rows", "scores_of"]

# Rows that go through a layer at once, always so many: what a matrix product rounds to depends on
# its size, and a score must not depend on the rest of the batch. Fewer would fetch the weights
# more often.
_BLOCK = 256


def scores_of(
    network: RankingNetwork, programs: Programs, device: torch.device
) -> NDArray[np.float64]:
    """Scores ``[n]``; that of a program is the same, bit by bit, whatever is scored with it.

    Candidates of a search differ in a few parameters, so that many statements and accesses are
    those of another candidate too: these are encoded once.

    Args:
        network: In evaluation mode, reads columns as they are, on ``device``.
        programs: What is scored.
        device: Where torch computes.
    """
    count = len(programs)
    if not count:
        return np.zeros(0)
    statements, which = distinct_rows(programs.statements)
    (encoded,) = _in_blocks(lambda rows: (network.statement_encoder(rows),), statements, device)
    owners = np.repeat(np.arange(count, dtype=np.int64), np.diff(programs.offsets))
    # Added one after the other, in the order of a program's statements.
    summed = encoded.new_zeros(count, HIDDEN).index_add(
        0, _on(owners, device), encoded.index_select(0, _on(which, device))
    )
    accesses, place = distinct_rows(programs.dataflow.reshape(-1, DATAFLOW_WIDTH))
    tables = _in_blocks(network.encode_accesses, accesses, device)
    places = _on(place.reshape(count, FLOW_LENGTH), device)
    found = [
        network.rank(summed[block], tuple(gathered(table, places[block]) for table in tables))
        for block in (_on(each, device) for each in _blocks(count))
    ]
    scores: NDArray[np.float64] = torch.cat(found)[:count].cpu().numpy().astype(np.float64)
    return scores


def distinct_rows(rows: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The different rows of ``[n, columns]``, by first appearance, and which of them each row is.

    Rows are the same if all their bits are.
    """
    rows = np.ascontiguousarray(rows)
    texts = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0].tolist()
    numbers: dict[bytes, int] = {}
    which = [numbers.setdefault(text, len(numbers)) for text in texts]
    different = np.frombuffer(b"".join(numbers), dtype=np.float32)
    return different.reshape(len(numbers), rows.shape[1]), np.array(which, dtype=np.int64)


def _blocks(count: int) -> list[NDArray[np.int64]]:
    """The numbers below ``count``, in blocks of one size; the last begins again to be full."""
    blocks = -(-count // _BLOCK)
    return np.split(np.resize(np.arange(count), blocks * _BLOCK), blocks)


def _in_blocks(
    layers: Callable[[torch.Tensor], tuple[torch.Tensor, ...]],
    rows: NDArray[np.float32],
    device: torch.device,
) -> tuple[torch.Tensor, ...]:
    """The output of ``layers`` for each row."""
    found = [layers(_on(rows[block], device)) for block in _blocks(len(rows))]
    return tuple(torch.cat(parts)[: len(rows)] for parts in zip(*found, strict=True))


def _on(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(values).to(device)
