"""The static plan of a network: which calls follow one another, and where their arrays lie.

:mod:`autotune.runtime.plan` has the data, :mod:`~autotune.networks.plan.planning` makes it
of a graph, and :mod:`~autotune.networks.plan.cpu_network` writes it as words that ``steps.c``
carries out in this process.
"""
