"""Proposal of candidates: the loop of one task, strategies, schedulers."""
