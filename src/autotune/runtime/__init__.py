"""Devices and arrays on them, plans of calls, callables, and files of networks."""
