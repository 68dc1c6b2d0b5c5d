"""A strategy that ends its process in the middle of a run, once."""

from __future__ import annotations

import os
from pathlib import Path

from autotune.search.strategies import RandomStrategy
from autotune.sketches import Candidate


class Ending(RandomStrategy):
    """Ends it at its third request, unless the file ``ended`` is there."""

    asked = 0

    def ask(self, n: int) -> list[Candidate]:
        self.asked += 1
        if self.asked == 3 and not Path("ended").exists():
            Path("ended").touch()
            os._exit(0)
        return super().ask(n)
