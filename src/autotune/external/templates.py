"""Command lines with placeholders: words of which no shell ever sees one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from attrs import frozen

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.spaces.parameters import Value

__all__ = ["CommandTemplate", "command_template", "value_text"]

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@frozen
class CommandTemplate:
    """A command line whose words may hold ``{name}``; ``{{`` and ``}}`` are braces.

    Attributes:
        words: The words, as they were written.
    """

    words: tuple[str, ...]

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Names in the order of their first use."""
        found = [match[1] for word in self.words for match in _TOKEN.finditer(word)]
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def filled(self, values: Mapping[str, Value]) -> list[str]:
        """The words with values in place of names.

        A word that is made of placeholders alone and comes out empty is left out, so that a
        parameter can be a flag or nothing.

        Args:
            values: One for each placeholder at least.
        """
        texts = [_fill(word, values) for word in self.words]
        return [
            text
            for word, text in zip(self.words, texts, strict=True)
            if text or not _TOKEN.search(word)
        ]


def command_template(owner: str, given: object, known: Sequence[str]) -> CommandTemplate:
    """Read a command line.

    Args:
        owner: What it is called in messages, such as ``build command``.
        given: A list of words, or one text that is split as a shell would, without being one.
        known: Names that placeholders can have.

    Raises:
        InvalidValueError: it is neither, has no words, or a brace is left open.
        UnknownNameError: a placeholder has another name.
    """
    if isinstance(given, str):
        try:
            words = shlex.split(given)
        except ValueError as error:
            raise InvalidValueError(f"{owner} {given!r} cannot be split: {error}") from None
    elif isinstance(given, (list, tuple)) and all(isinstance(word, str) for word in given):
        words = list(given)
    else:
        raise InvalidValueError(f"{owner} is a text or a list of texts, not {given!r}")
    if not words or not words[0]:
        raise InvalidValueError(f"{owner} is empty")
    for word in words:
        if "\0" in word:
            raise InvalidValueError(f"{owner} has a null character in {word!r}")
        for match in _TOKEN.finditer(word):
            if match[0] in ("{", "}"):
                raise InvalidValueError(
                    f"{owner} has a single {match[0]!r} in {word!r}: placeholders are "
                    "{name}, and braces are written {{ and }}"
                )
    template = CommandTemplate(tuple(words))
    for name in template.placeholders:
        if name not in known:
            raise UnknownNameError(f"placeholder in {owner}:", name, known)
    return template


def value_text(value: Value) -> str:
    """Write a value as it stands in a command: truth values as 1 and 0."""
    if isinstance(value, bool):
        return str(int(value))
    return value if isinstance(value, str) else repr(value)


def _fill(word: str, values: Mapping[str, Value]) -> str:
    def text(match: re.Match[str]) -> str:
        return match[0][0] if match[1] is None else value_text(values[match[1]])

    return _TOKEN.sub(text, word)
