"""How candidates are proposed: the loop of one task, strategies, schedulers."""
