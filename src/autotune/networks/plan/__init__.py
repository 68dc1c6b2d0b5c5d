"""The static plan of a network: which calls follow one another, and where their arrays lie.

:mod:`autotune.runtime.plan` has the data, :mod:`~autotune.networks.plan.planning` makes it
of a graph, :mod:`~autotune.networks.plan.driver` prints it as a function that makes all calls, and
:mod:`~autotune.networks.plan.cpu_network` runs that in this process.
"""
