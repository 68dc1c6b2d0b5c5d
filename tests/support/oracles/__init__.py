"""Slow, independent oracles of what the package computes fast."""
