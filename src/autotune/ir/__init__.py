"""Tensor programs: expressions and workloads."""
