"""Adapters to other tuners and compilers; their packages are imported where they are used."""
