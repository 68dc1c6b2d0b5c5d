"""Passes over a Relax module between import and extraction, one per module."""
