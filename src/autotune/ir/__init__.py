"""What to compute: expressions and workloads."""
