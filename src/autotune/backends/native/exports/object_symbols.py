"""Names in object files: several that define the same functions are linked under others."""

from __future__ import annotations

import struct

from autotune.backends.backend import BuildFailed

__all__ = ["with_prefix"]

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SECTIONS_AT, _SECTION_COUNT_AT = 0x28, 0x3C
_SYMBOLS, _UNDEFINED, _HIDDEN = 2, 0, 2
_HEAD = b"\x7fELF\x02\x01"


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
