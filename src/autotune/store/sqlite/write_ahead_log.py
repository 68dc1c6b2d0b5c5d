"""The write-ahead log beside a file: whether all of it can be read, and what can be mended.

SQLite reads a log up to the first frame that does not verify, and forgets the others without a
word. Its index outlives a killed process and says how many frames were committed. Both formats:
https://www.sqlite.org/fileformat2.html#the_write_ahead_log and
https://www.sqlite.org/walformat.html
"""

from __future__ import annotations

import functools
import struct
from pathlib import Path

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.store.sqlite.schema import DAMAGE_NOTE, beside

__all__ = ["LogDamage", "log_damage", "mended_log"]

Words = NDArray[np.uint32]

# Files of this program have pages of this size; a damaged header does not say.
_PAGE = 4096
_HEADER = 32
_FRAME_HEADER = 24
# The last bit says in which order the bytes of checksummed words are.
_MAGIC = 0x377F0682
_VERSION = 3007000
_LIKELY = struct.pack(">III", _MAGIC, _VERSION, _PAGE)
_FEW = 4
_INDEX_HEADER = 48
_INDEX_BYTES = 2 * _INDEX_HEADER + 4


@frozen
class LogDamage:
    """Damage of a log.

    Attributes:
        reason: What is wrong, for people.
        whole: Whether it still has every frame that was committed, damaged or not.
        readable: Whether SQLite reads any of it.
    """

    reason: str
    whole: bool
    readable: bool = True


@frozen
class _Index:
    """Contents of a log's index.

    Attributes:
        committed: Frames up to the last commit.
        in_file: How many of these are in the file itself.
        salts: The salts of the log as its header has them.
    """

    committed: int
    in_file: int
    salts: bytes


@frozen(eq=False)
class _Log:
    """A log as far as its own bytes tell.

    Attributes:
        sound: Whether its header verifies.
        order: Order of the bytes of checksummed words, ``<`` or ``>``.
        page: Bytes of a page.
        header: Its first 24 bytes.
        frames: Whole frames as bytes, [frames, 24 + page].
        salts: The salts of its frames.
        left: Bytes behind the last whole frame.
    """

    sound: bool
    order: str
    page: int
    header: bytes
    frames: NDArray[np.uint8]
    salts: bytes
    left: bytes

    def heads(self) -> Words:
        """Page number, pages after a commit (or 0), two salts and two checksums of each frame."""
        heads = np.ascontiguousarray(self.frames[:, :_FRAME_HEADER])
        return heads.view(">u4").astype(np.uint32)

    def own(self) -> NDArray[np.bool_]:
        """Mark the frames written since the log began anew: a single salt may be damaged."""
        salts = np.frombuffer(self.salts, ">u4").astype(np.uint32)
        found: NDArray[np.bool_] = (self.heads()[:, 2:4] == salts).any(axis=1)
        return found


def log_damage(path: Path) -> LogDamage | None:
    """Describe the damage of a log that nobody has open; None where nothing is known.

    Args:
        path: The file itself. The log and its index stand beside it, or one or both do not.
    """
    content = _content(path, "-wal")
    # A reader that found damage may have made the index, which then knows of nothing lost.
    is_noted = beside(path, DAMAGE_NOTE).exists()
    index = None if is_noted else _read_index(_content(path, "-shm") or b"")
    log = None if content is None else _read_log(content)
    if log is None or not log.sound:
        return _damage_of_a_lost_log(content, log, index)
    verified, committed = _verify(log)
    own = log.own()[verified:]
    if index is not None and index.salts == log.salts and index.committed >= committed:
        missing = index.committed - committed
        reason = f"{missing} of {index.committed} frames of its log cannot be read"
        if missing:
            return LogDamage(reason, whole=len(log.frames) >= index.committed)
        # A kill may have torn one commit. An index that was made anew knows of no other.
        if np.count_nonzero(own & (log.heads()[verified:, 1] > 0)) <= 1:
            return None
    if beyond := int(own.sum()):
        return LogDamage(f"{beyond} frames of its log do not verify", whole=False)
    if log.left[8:16] == log.salts or 0 < len(log.left) < _FRAME_HEADER:
        return LogDamage("its log ends within a frame", whole=False)
    return None


def _damage_of_a_lost_log(
    content: bytes | None, log: _Log | None, index: _Index | None
) -> LogDamage | None:
    """The damage where nothing of a log can be read, if anything was in it."""
    if index is None and not content:
        return None
    if index is not None and index.committed <= index.in_file:
        return None
    what = "is missing" if content is None else "is no log" if content else "is empty"
    whole = False
    if log is not None and content:
        what = "has a damaged header"
        whole = index is not None and len(log.frames) >= index.committed
    had = "" if index is None else f": it had {index.committed} frames"
    return LogDamage(f"its log {what}{had}", whole, readable=False)


def mended_log(content: bytes) -> bytes:
    """A log in which every frame verifies up to the last commit, whatever was in them.

    A frame that was damaged then comes back damaged: rows are told sound by their checksums.

    Args:
        content: A log; what is none, or has no commit, is given back as it is.
    """
    log = _read_log(content)
    if log is None:
        return content
    heads = log.heads()
    commits = np.flatnonzero(log.own() & (heads[:, 1] > 0))
    if not len(commits):
        return content
    header = struct.pack(">III", _MAGIC | (log.order == ">"), _VERSION, log.page)
    header += log.header[12:16] + log.salts
    state = _checksum(header, log.order, (0, 0))
    frames, heads = log.frames[: commits[-1] + 1].copy(), heads[: commits[-1] + 1]
    # A file does not shrink. A page number beyond all pages would have SQLite make that many.
    sizes = heads[commits, 1].astype(np.int64)
    most = 2 * int(np.median(sizes)) + len(frames)
    last = int(sizes[sizes <= most].max())
    frames[-1, 4:8] = np.frombuffer(struct.pack(">I", last), np.uint8)
    frames = frames[(heads[:, 0] > 0) & (heads[:, 0] <= most)]
    frames[:, 8:16] = np.frombuffer(log.salts, np.uint8)
    pieces = [header, struct.pack(">II", *state)]
    for frame, own in zip(frames, _partial_checksums(frames, log), strict=True):
        state = _advance(state, own, log.page)
        frame[16:24] = np.frombuffer(struct.pack(">II", *state), np.uint8)
        pieces.append(frame.tobytes())
    return b"".join(pieces)


def _content(path: Path, suffix: str) -> bytes | None:
    try:
        return beside(path, suffix).read_bytes()
    except OSError:
        return None


def _read_index(content: bytes) -> _Index | None:
    """The index; None where it is empty or damaged, or a kill has torn it."""
    header = content[:_INDEX_HEADER]
    if len(content) < _INDEX_BYTES or header != content[_INDEX_HEADER : 2 * _INDEX_HEADER]:
        return None
    if _checksum(header[:40], "<", (0, 0)) != struct.unpack("<II", header[40:]) or not any(header):
        return None
    (committed,) = struct.unpack_from("<I", header, 16)
    (in_file,) = struct.unpack_from("<I", content, 2 * _INDEX_HEADER)
    return _Index(committed, in_file, header[32:40])


def _read_log(content: bytes) -> _Log | None:
    """A log, also one with a damaged header; None where it is nothing of the kind."""
    header = content[:_HEADER]
    if len(content) < _HEADER:
        return None
    magic, version, page = struct.unpack_from(">III", header)
    order = ">" if magic & 1 else "<"
    sound = (
        magic & ~1 == _MAGIC
        and version == _VERSION
        and _checksum(header[:24], order, (0, 0)) == struct.unpack(">II", header[24:])
    )
    if not sound:
        page = _PAGE
    size = _FRAME_HEADER + page
    count = (len(content) - _HEADER) // size
    end = _HEADER + count * size
    frames = np.frombuffer(content[_HEADER:end], np.uint8).reshape(count, size)
    salts = header[16:24]
    if not sound:
        # Frames tell which salts they share, and whether they are frames at all.
        order, salts = "<", frames[0, 8:16].tobytes() if count else b""
        wrong = sum(mine != other for mine, other in zip(header, _LIKELY, strict=False))
        alike = count > 1 and bool((frames[0, 8:16] == frames[1, 8:16]).all())
        if not count or not (alike or wrong <= _FEW):
            return None
    return _Log(sound, order, page, header[:24], frames, salts, content[end:])


def _verify(log: _Log) -> tuple[int, int]:
    """Count the frames that verify one after the other, and those of them that are committed."""
    state: tuple[int, int] = _checksum(log.header, log.order, (0, 0))
    heads = log.heads()
    salts = np.frombuffer(log.salts, ">u4").astype(np.uint32)
    committed = number = 0
    for number, own in enumerate(_partial_checksums(log.frames, log)):
        state = _advance(state, own, log.page)
        page, commit, *rest = heads[number].tolist()
        if page == 0 or rest != [*salts.tolist(), *state]:
            return number, committed
        if commit:
            committed = number + 1
    return len(log.frames), committed


def _partial_checksums(frames: NDArray[np.uint8], log: _Log) -> list[list[int]]:
    """Checksums that each frame adds to those before it, [frames, 2]."""
    content = np.concatenate([frames[:, :8], frames[:, _FRAME_HEADER:]], axis=1)
    words = content.view(f"{log.order}u4").astype(np.uint32)
    found: list[list[int]] = (words @ _weights(words.shape[1] // 2)[0]).tolist()
    return found


def _advance(state: tuple[int, int], own: list[int], page: int) -> tuple[int, int]:
    """The checksum behind a frame."""
    return _applied(_weights((8 + page) // 8)[1], state, own)


def _checksum(content: bytes, order: str, state: tuple[int, int]) -> tuple[int, int]:
    """SQLite's checksum of whole pairs of words."""
    words = np.frombuffer(content, f"{order}u4").astype(np.uint32)
    weights, step = _weights(len(words) // 2)
    return _applied(step, state, (words @ weights).tolist())


def _applied(
    step: tuple[int, int, int, int], state: tuple[int, int], own: list[int]
) -> tuple[int, int]:
    a, b, c, d = step
    first, second = state
    mask = 0xFFFFFFFF
    return (a * first + b * second + own[0]) & mask, (c * first + d * second + own[1]) & mask


@functools.cache
def _weights(pairs: int) -> tuple[Words, tuple[int, int, int, int]]:
    """The checksum as what it is, a linear function of words and of the checksum before them.

    One pair (x, y) takes (s, t) to (s + t + x, s + 2 t + x + y).

    Returns:
        What each of ``2 * pairs`` words counts in both halves, and what the checksum before does.
    """
    mask = 0xFFFFFFFF
    weights = np.empty((2 * pairs, 2), np.uint32)
    a, b, c, d = 1, 0, 0, 1
    for pair in reversed(range(pairs)):
        weights[2 * pair] = (a + b) & mask, (c + d) & mask
        weights[2 * pair + 1] = b, d
        a, b, c, d = (a + b) & mask, (a + 2 * b) & mask, (c + d) & mask, (c + 2 * d) & mask
    return weights, (a, b, c, d)
