"""Imported by nobody: hostile files name it."""

raise SystemExit("the tripwire was imported")
