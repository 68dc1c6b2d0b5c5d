"""Passes over a scheduled program for which MLIR has none, one per module, and what they share."""
