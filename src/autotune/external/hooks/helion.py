"""Strategies of this library in Helion: ``@helion.kernel(autotuner_fn=autotuner())``.

Written for helion 1.5.1: the search subclasses its ``BaseSearch``, so that Helion compiles,
checks, times and logs every configuration as it does for its own searches.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.external.ask_tell import DEFAULT_STRATEGY, AskTell
from autotune.external.hooks.packages import check_count, load
from autotune.spaces.parameters import Parameter, Value

__all__ = ["HelionLoop", "Slot", "autotuner", "slots_of"]

_VERSION = "1.5.1"
_MOST_VALUES = 1 << 16
_LONGEST_PERMUTATION = 7
_MOST_ROUNDS = 10
"""Rounds per round of configurations that Helion neither refuses nor makes equal to others."""
_MILLISECOND = 1e-3


def autotuner(
    strategy: str = DEFAULT_STRATEGY,
    options: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    trials: int = 200,
    batch: int = 16,
) -> Callable[..., Any]:
    """Value of Helion's setting ``autotuner_fn``.

    Helion's default configuration and the seeds of its settings are tried first. Configurations
    that Helion makes equal by repairing them are timed once.

    Args:
        strategy: Name of a strategy that needs no loop nest.
        options: Its options.
        seed: Of everything that is random.
        trials: Configurations that are timed at most.
        batch: Those that Helion compiles side by side.

    Returns:
        A function of a bound kernel and its arguments, which returns a ``BaseSearch`` of Helion.

    Raises:
        InvalidValueError: ``trials`` or ``batch`` is not above 0.
    """
    check_count("trials", trials)
    check_count("batch", batch)
    given = dict(options or {})

    def autotuner_fn(bound_kernel: Any, args: Sequence[object], **keywords: Any) -> Any:
        base = load("helion.autotuner.base_search", "helion", _VERSION).BaseSearch

        class AutotuneSearch(base):  # type: ignore[misc, valid-type]
            """A search of Helion whose configurations a strategy of this library proposes."""

            def _autotune(self) -> Any:
                settings = self.settings
                generation = self.config_spec.create_config_generation(
                    overrides=settings.autotune_config_overrides or None,
                    advanced_controls_files=settings.autotune_search_acf or None,
                    process_group_name=self.kernel.env.process_group_name,
                )
                first = [generation.default_flat()]
                first += map(generation.flatten, self._autotune_seed_configs())
                run = HelionLoop(generation, slots_of(generation.flat_spec), self.benchmark_batch)
                search = AskTell(
                    [it.parameter for it in run.slots],
                    strategy=strategy,
                    options=given,
                    seed=seed,
                    program="helion",
                )
                search.seed([run.config(flat) for flat in first])
                found = run.best(search, trials, batch, self._autotune_budget_exceeded)
                if found is None:
                    raise load("helion.exc", "helion", _VERSION).NoConfigFound
                return found

        return AutotuneSearch(bound_kernel, args, **keywords)

    return autotuner_fn


@frozen
class Slot:
    """A tunable of Helion's flat configuration, or an element of a list of such.

    Attributes:
        parameter: The parameter.
        values: What Helion has for each value of the parameter, in its order.
        index: Position in the flat configuration.
        element: Position in the list that the flat configuration has there; None where it has
            the value itself.
    """

    parameter: Parameter
    values: tuple[Any, ...]
    index: int
    element: int | None


def slots_of(fragments: Sequence[Any]) -> tuple[Slot, ...]:
    """The parameters of a flat configuration.

    Args:
        fragments: ``ConfigGeneration.flat_spec``.

    Raises:
        InvalidValueError: one has too many values, or values that Helion does not list.
    """
    kinds = load("helion.autotuner.config_fragment", "helion", _VERSION)
    slots = []
    for index, fragment in enumerate(fragments):
        is_list = isinstance(fragment, kinds.ListOf)
        inner = fragment.inner if is_list else fragment
        values = _values(kinds, inner)
        for element in range(fragment.length) if is_list else [None]:
            name = f"slot_{index}" if element is None else f"slot_{index}_{element}"
            slots.append(Slot(Parameter(name, _labels(values)), values, index, element))
    return tuple(slots)


def _values(kinds: Any, fragment: Any) -> tuple[Any, ...]:
    if isinstance(fragment, kinds.PermutationFragment):
        if fragment.length <= _LONGEST_PERMUTATION:
            return tuple(map(list, itertools.permutations(range(fragment.length))))
    else:
        found = fragment.search_values(_MOST_VALUES)
        if found:
            return tuple(found)
    raise InvalidValueError(
        f"{type(fragment).__name__} of Helion has more values than are searched, or lists none: "
        f"{fragment!r}"[:200]
    )


def _labels(values: Sequence[Any]) -> tuple[Value, ...]:
    """Whole numbers and truth values as they are; of anything else its text."""
    kinds = {type(value) for value in values}
    return tuple(values) if kinds in ({int}, {bool}) else tuple(map(repr, values))


@frozen(eq=False)
class HelionLoop:
    """The loop between a search and Helion's benchmark.

    Attributes:
        generation: Helion's ``ConfigGeneration``.
        slots: The parameters of its flat configurations.
        benchmark: ``BaseSearch.benchmark_batch``.
    """

    generation: Any
    slots: tuple[Slot, ...]
    benchmark: Callable[[list[Any]], list[Any]]

    def config(self, flat: Sequence[Any]) -> dict[str, Value]:
        """Values of the parameters that a flat configuration has."""
        found = {}
        for slot in self.slots:
            value = flat[slot.index] if slot.element is None else flat[slot.index][slot.element]
            position = [*map(repr, slot.values)].index(repr(value))
            found[slot.parameter.name] = slot.parameter.values[position]
        return found

    def flat(self, config: Mapping[str, Value]) -> list[Any]:
        """A flat configuration with the values of the parameters."""
        found: list[Any] = copy.deepcopy(self.generation.default_flat())
        for slot in self.slots:
            wanted = repr(config[slot.parameter.name])
            value = slot.values[[*map(repr, slot.parameter.values)].index(wanted)]
            if slot.element is None:
                found[slot.index] = value
            else:
                found[slot.index][slot.element] = value
        return found

    def best(
        self, search: AskTell, trials: int, batch: int, is_over: Callable[[], bool]
    ) -> Any | None:
        """The fastest configuration of Helion; None where none works."""
        invalid = load("helion.exc", "helion", _VERSION).InvalidConfig
        timed: dict[Any, float] = {}
        for _ in range(_MOST_ROUNDS * math.ceil(trials / batch)):
            proposals = search.ask(min(batch, trials - len(timed)))
            if not proposals or is_over():
                break
            made: dict[int, Any] = {}
            for proposal in proposals:
                try:
                    made[proposal.id] = self.generation.unflatten(self.flat(proposal.config))
                except invalid as error:
                    search.tell(proposal, failed=str(error) or type(error).__name__)
            fresh = [it for it in dict.fromkeys(made.values()) if it not in timed]
            if fresh:
                for config, result in zip(fresh, self.benchmark(fresh), strict=True):
                    timed[config] = result.perf
            for number, config in made.items():
                _tell(search, number, timed[config])
        working = {config: time for config, time in timed.items() if math.isfinite(time)}
        return min(working, key=working.__getitem__, default=None)


def _tell(search: AskTell, number: int, milliseconds: float) -> None:
    if math.isfinite(milliseconds) and milliseconds > 0:
        search.tell(number, seconds=float(milliseconds) * _MILLISECOND)
    else:
        search.tell(number, failed="it does not compile, is wrong, or was cut off")
