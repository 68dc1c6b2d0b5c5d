"""Options that somebody may have meant, by their look or by what other tuners call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import click

from autotune.errors import did_you_mean, near_matches

__all__ = ["OTHER_TUNERS", "near_options", "unknown_option"]

OTHER_TUNERS: Mapping[str, str] = MappingProxyType(
    {
        "--build-timeout": "--protocol deadlines.build=SECONDS",
        "--config": "--tasks FILE",
        "--early-stopping": "--patience TRIALS",
        "--load-model": "--load-cost-model FILE",
        "--load_model": "--load-cost-model FILE",
        "--log-file": "--database FILE",
        "--min-repeat-ms": "--protocol min_sample_seconds=SECONDS",
        "--model-file": "--load-cost-model FILE",
        "--n-trials": "--trials N",
        "--num-measure-per-iter": "--round-size N",
        "--num-measures-per-round": "--round-size N",
        "--num-trials": "--trials N",
        "--num-trials-per-iter": "--round-size N",
        "--psa": "--pruning-model-option gpu_spec=NAME, or the figures of --target by default",
        "--repeat": "--protocol max_samples=N",
        "--run-timeout": "--protocol deadlines.run=SECONDS",
        "--timeout": "--protocol deadlines.run=SECONDS, or --time for the whole run",
        "--tuner": "--strategy NAME",
        "-c": "--tasks FILE",
        "-p": "--target NAME",
    }
)
"""Options of other tuners, and what to write here in a command that has that option."""


def unknown_option(error: click.NoSuchOption) -> str:
    """Name the option to write instead: another tuner's, or one that looks alike."""
    known: list[str] = []
    if error.ctx is not None:
        for parameter in error.ctx.command.get_params(error.ctx):
            known += [*parameter.opts, *parameter.secondary_opts]
    here = OTHER_TUNERS.get(error.option_name, "")
    if here.split(" ")[0] in known:
        return f"No such option: {error.option_name}. Here it is {here}."
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
    """Return whether letters are found in a word, in their order."""
    rest = iter(word)
    return all(letter in rest for letter in letters)
