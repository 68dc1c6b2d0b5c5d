"""Object files of ELF without a compiler: other names for functions, and data as it is."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import BinaryIO

from autotune.backends.backend import BuildFailed

__all__ = ["with_prefix", "write_data_object"]

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SECTIONS_AT, _SECTION_COUNT_AT = 0x28, 0x3C
_SYMBOLS, _UNDEFINED, _HIDDEN = 2, 0, 2
_HEAD = b"\x7fELF\x02\x01"
_RELOCATABLE, _VERSION = 1, 1
_MACHINES = {"x86_64": 62, "aarch64": 183}
_BITS, _NAMES, _ALLOCATED = 1, 3, 2
_GLOBAL_OBJECT = 0x11
_PAGE = 4096
_SECTION_NAMES = (".autotune_weights", ".note.GNU-stack", ".symtab", ".strtab")


def with_prefix(code: bytes, prefix: str) -> bytes:
    """An object file whose functions have names that begin with ``prefix``.

    A library that it is linked into keeps them to itself.

    Args:
        code: An object file of ELF, of 64 bits and with the least significant byte first.
        prefix: Letters, digits, underscores, dots.

    Raises:
        BuildFailed: it is no such file.
    """
    if not code.startswith(_HEAD):
        raise BuildFailed("the machine code is no object file of ELF with 64 bits")
    whole = bytearray(code)
    (begin,) = struct.unpack_from("<Q", code, _SECTIONS_AT)
    (count,) = struct.unpack_from("<H", code, _SECTION_COUNT_AT)
    heads = [list(_SECTION.unpack_from(code, begin + at * _SECTION.size)) for at in range(count)]
    symbols = next(head for head in heads if head[1] == _SYMBOLS)
    names_at = int(symbols[6])
    names = heads[names_at]
    text = bytearray(code[names[4] : names[4] + names[5]])
    # Local symbols are first, and keep their names.
    for number in range(symbols[7], symbols[5] // _SYMBOL.size):
        at = symbols[4] + number * _SYMBOL.size
        name, kind, other, section, value, size = _SYMBOL.unpack_from(code, at)
        if section == _UNDEFINED:
            continue
        end = text.index(0, name)
        _SYMBOL.pack_into(whole, at, len(text), kind, other | _HIDDEN, section, value, size)
        text += prefix.encode() + text[name:end] + b"\0"
    names[4], names[5] = len(whole), len(text)
    _SECTION.pack_into(whole, begin + names_at * _SECTION.size, *names)
    return bytes(whole + text)


def write_data_object(
    stream: BinaryIO, name: str, parts: Iterable[memoryview], architecture: str
) -> None:
    """Write an object file of data that a library maps where it is first read.

    Args:
        stream: An empty file.
        name: What C calls the data, which begins a page; a library keeps it to itself.
        parts: The bytes, one part behind the other.
        architecture: ``x86_64`` or ``aarch64``.
    """
    stream.write(bytes(_PAGE))
    size = sum(stream.write(part) for part in parts)
    text = b"\0" + b"\0".join(it.encode() for it in (name, *_SECTION_NAMES)) + b"\0"
    names_at = _PAGE + size
    symbols_at = names_at + len(text)
    symbol = text.index(name.encode()), _GLOBAL_OBJECT, _HIDDEN, 1, 0, size
    stream.write(text + bytes(_SYMBOL.size) + _SYMBOL.pack(*symbol))
    data, stack, symbols, names = (text.index(it.encode()) for it in _SECTION_NAMES)
    heads = [
        (0,) * 10,
        (data, _BITS, _ALLOCATED, 0, _PAGE, size, 0, 0, _PAGE, 0),
        # Without it, linkers take the stack for one that code runs on.
        (stack, _BITS, 0, 0, names_at, 0, 0, 0, 1, 0),
        (symbols, _SYMBOLS, 0, 0, symbols_at, 2 * _SYMBOL.size, 4, 1, 8, _SYMBOL.size),
        (names, _NAMES, 0, 0, names_at, len(text), 0, 0, 1, 0),
    ]
    begin = symbols_at + 2 * _SYMBOL.size
    stream.write(b"".join(_SECTION.pack(*head) for head in heads))
    sizes = _HEADER.size, 0, 0, _SECTION.size, len(heads), len(heads) - 1
    machine = _RELOCATABLE, _MACHINES[architecture], _VERSION
    stream.seek(0)
    stream.write(_HEADER.pack(_HEAD + bytes([_VERSION]), *machine, 0, 0, begin, 0, *sizes))
