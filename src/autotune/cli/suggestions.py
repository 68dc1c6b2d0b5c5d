"""Options that somebody may have meant."""

from __future__ import annotations

from collections.abc import Iterable

import click

from autotune.errors import did_you_mean, near_matches

__all__ = ["near_options", "unknown_option"]


def unknown_option(error: click.NoSuchOption) -> str:
    """What is wrong, and the nearest options of the command that was called."""
    known: list[str] = []
    if error.ctx is not None:
        for parameter in error.ctx.command.get_params(error.ctx):
            known += [*parameter.opts, *parameter.secondary_opts]
    return f"{error.message}{did_you_mean(near_options(error.option_name, known))}"


def near_options(name: str, known: Iterable[str]) -> list[str]:
    """Up to two options that look like one that there is not, best first.

    Those that begin like it, such as ``--trials`` for ``--trial``; else those that have its
    letters in their order, from the first one on, such as ``--database`` for ``--db``; else those
    that differ in some letters.
    """
    plain = {option.lstrip("-"): option for option in known if option.startswith("--")}
    wanted = name.lstrip("-").casefold()
    begun = [word for word in plain if word.startswith(wanted) or wanted.startswith(f"{word}-")]
    short = [word for word in plain if word[:1] == wanted[:1] and _is_within(wanted, word)]
    found = sorted(begun or short, key=len)[:2] or near_matches(wanted, plain)
    return [plain[word] for word in found]


def _is_within(letters: str, word: str) -> bool:
    """Whether letters are found in a word, in their order."""
    rest = iter(word)
    return all(letter in rest for letter in letters)
