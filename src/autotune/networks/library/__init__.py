"""A network as a shared library of its own, which needs the C library alone.

:mod:`~autotune.networks.library.saving` writes one, and
:mod:`~autotune.networks.library.loaded` calls it from Python, without any compiler.
"""
