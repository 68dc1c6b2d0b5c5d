"""Random search: the baseline of every strategy."""

from __future__ import annotations

from autotune.plugins.options import NoOptions, read_options
from autotune.search.strategies.strategy import RecordedStrategy, StrategyContext, check_count
from autotune.sketches import Candidate


class RandomStrategy(RecordedStrategy):
    """Proposes samples of the space that it has not proposed before.

    This is the baseline of every comparison, so what it proposes is fixed: over a run the
    sketches get equal shares (a sketch that is used up leaves its share to the others), and
    within a sketch half of the sample is uniform over the feasible set and half stratified, as
    :meth:`~autotune.spaces.SearchSpace.sample` defines. Where four samples, each twice as
    large as the one before, do not find enough new candidates, the rest of the space is
    enumerated, shuffled where it has at most 65536 candidates; so the strategy ends with every
    candidate of a small space proposed once.
    """

    name = "random"

    def __init__(self, context: StrategyContext) -> None:
        """Raises InvalidValueError for any option: there are none."""
        read_options(f"strategy {self.name!r}", NoOptions, context.options)
        super().__init__(context)

    def ask(self, n: int) -> list[Candidate]:
        """Up to ``n`` new candidates; fewer only when the space is used up."""
        check_count(n)
        return self._sampler.draw(n)
