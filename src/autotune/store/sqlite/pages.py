"""Rows read from the pages of a SQLite file, without asking SQLite for them.

SQLite finds rows through the tree above them, and stops at the first page that is not what it
should be. Here every page is looked at by itself: the rows of a sound leaf are read whatever
became of the tree, of the other pages and of the schema. The layout is that of
https://www.sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = ["Value", "apply_log", "page_size_of", "read_rows"]

Value = int | float | str | None

PAGE_SIZES = tuple(512 << shift for shift in range(8))

_FILE_HEADER = 100
_TABLE_LEAF = 0x0D
_LEAF_HEADER = 8
_LOG_HEADER = struct.Struct(">8I")
_FRAME_HEADER = struct.Struct(">6I")
_LOG_MAGIC = 0x377F0682
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)


def page_size_of(data: bytes, log: bytes) -> int | None:
    """Bytes of a page as the file's header or its log says; None when neither does."""
    stated = int.from_bytes(data[16:18], "big") if data[:6] == b"SQLite" else 0
    size = 65536 if stated == 1 else stated
    if size not in PAGE_SIZES and len(log) >= _LOG_HEADER.size:
        size = int.from_bytes(log[8:12], "big")
    return size if size in PAGE_SIZES else None


def apply_log(data: bytes, log: bytes, page_size: int) -> bytes:
    """The file as it is with every transaction that its write-ahead log has completely."""
    if len(log) < _LOG_HEADER.size:
        return data
    magic, _, size, _, *salt, first, second = _LOG_HEADER.unpack_from(log)
    if magic & ~1 != _LOG_MAGIC or size != page_size:
        return data
    words = ">" if magic & 1 else "<"
    sums = _checksum(log[:24], words, (0, 0))
    if sums != (first, second):
        return data
    pages = bytearray(data)
    pending: dict[int, bytes] = {}
    for start in range(_LOG_HEADER.size, len(log), _FRAME_HEADER.size + page_size):
        frame = log[start : start + _FRAME_HEADER.size + page_size]
        if len(frame) < _FRAME_HEADER.size + page_size:
            break
        number, count, *rest = _FRAME_HEADER.unpack_from(frame)
        content = frame[_FRAME_HEADER.size :]
        sums = _checksum(content, words, _checksum(frame[:8], words, sums))
        if rest != [*salt, *sums] or number == 0:
            break
        pending[number] = content
        if count:
            _write_pages(pages, pending, count * page_size, page_size)
            pending = {}
    return bytes(pages)


def _write_pages(pages: bytearray, pending: dict[int, bytes], total: int, page_size: int) -> None:
    pages.extend(bytes(max(0, total - len(pages))))
    del pages[total:]
    for number, content in pending.items():
        if number * page_size <= total:
            pages[(number - 1) * page_size : number * page_size] = content


def _checksum(data: bytes, words: str, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    for one, two in struct.iter_unpack(f"{words}II", data):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second


def read_rows(data: bytes, page_size: int) -> Iterator[tuple[int, list[Value]]]:
    """The number and the values of every row that can be read, of whatever table.

    Pages that the file lists as free are left out. What is not a row may be among the rows.

    Args:
        data: The file with its log applied.
        page_size: Bytes of a page.
    """
    reserved = data[20] if data[:6] == b"SQLite" and data[20] <= page_size - 480 else 0
    pages = _Pages(data, page_size, page_size - reserved)
    free = pages.free()
    for number in range(1, len(data) // page_size + 1):
        if number in free:
            continue
        for offset in pages.cells(number):
            try:
                yield pages.row(number, offset)
            except (IndexError, ValueError, struct.error):
                continue


class _Pages:
    """Pages by their numbers, from 1; reading outside of one raises IndexError or ValueError."""

    def __init__(self, data: bytes, size: int, usable: int) -> None:
        self._data = memoryview(data)
        self._size = size
        self._usable = usable

    def _page(self, number: int) -> memoryview:
        page = self._data[(number - 1) * self._size : number * self._size]
        if number < 1 or len(page) < self._size:
            raise IndexError(f"there is no page {number}")
        return page

    def free(self) -> set[int]:
        """Numbers of the pages on the free list, as far as it can be followed."""
        found: set[int] = set()
        number = int.from_bytes(self._data[32:36], "big")
        while number and number not in found:
            try:
                page = self._page(number)
            except IndexError:
                break
            found.add(number)
            count = min(int.from_bytes(page[4:8], "big"), self._size // 4 - 2)
            found.update(item for (item,) in struct.iter_unpack(">I", page[8 : 8 + 4 * count]))
            number = int.from_bytes(page[:4], "big")
        return found

    def cells(self, number: int) -> list[int]:
        """Offsets of the cells of a page; none where it is not a leaf of a table."""
        page = self._page(number)
        start = _FILE_HEADER if number == 1 else 0
        if page[start] != _TABLE_LEAF:
            return []
        begin = start + _LEAF_HEADER
        count = int.from_bytes(page[start + 3 : start + 5], "big")
        pointers = page[begin : min(begin + 2 * count, self._usable & ~1)]
        return [offset for (offset,) in struct.iter_unpack(">H", pointers)]

    def row(self, number: int, offset: int) -> tuple[int, list[Value]]:
        """The row of a cell."""
        page = self._page(number)
        length, offset = _varint(page, offset)
        rowid, offset = _varint(page, offset)
        return rowid - (rowid >> 63 << 64), _values(self._payload(page, offset, length))

    def _payload(self, page: memoryview, offset: int, length: int) -> bytes:
        local = self._local_bytes(length)
        if length > len(self._data) or offset + local > self._usable:
            raise ValueError("a row is larger than the page or the file")
        payload = bytearray(page[offset : offset + local])
        following = int.from_bytes(page[offset + local : offset + local + 4], "big")
        while len(payload) < length:
            page = self._page(following)
            following = int.from_bytes(page[:4], "big")
            payload += page[4 : min(self._usable, 4 + length - len(payload))]
        return bytes(payload)

    def _local_bytes(self, length: int) -> int:
        """How much of a row is on its own page; the rest is on pages that follow one another."""
        most = self._usable - 35
        if length <= most:
            return length
        least = (self._usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (self._usable - 4)
        return local if local <= most else least


def _varint(data: memoryview | bytes, offset: int) -> tuple[int, int]:
    """An integer of up to nine bytes, and where the next thing begins."""
    value = 0
    for place in range(offset, offset + 8):
        byte = data[place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + 1
    return value << 8 | data[offset + 8], offset + 9


def _values(payload: bytes) -> list[Value]:
    """The values of a row: the header has their types, the values follow it."""
    end, offset = _varint(payload, 0)
    kinds: list[int] = []
    while offset < end:
        kind, offset = _varint(payload, offset)
        kinds.append(kind)
    values: list[Value] = []
    for kind in kinds:
        value, offset = _value(payload, kind, offset)
        values.append(value)
    if offset != len(payload):
        raise ValueError("the types of a row do not add up to its length")
    return values


def _value(payload: bytes, kind: int, offset: int) -> tuple[Value, int]:
    if kind == 0:
        return None, offset
    if kind in (8, 9):
        return kind - 8, offset
    if kind >= 13 and kind % 2:
        size = (kind - 13) // 2
    elif kind <= 7:
        size = 8 if kind == 7 else _INTEGER_BYTES[kind]
    else:
        raise ValueError("no table has binary values")
    data = payload[offset : offset + size]
    if len(data) < size:
        raise ValueError("a value is longer than its row")
    if kind >= 13:
        return data.decode(), offset + size
    if kind == 7:
        return struct.unpack(">d", data)[0], offset + size
    return int.from_bytes(data, "big", signed=True), offset + size
