"""Rewrites of other people's programs to the form that workloads have: one a module."""
