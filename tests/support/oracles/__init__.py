"""Slow, independent twins of what the package computes fast."""
