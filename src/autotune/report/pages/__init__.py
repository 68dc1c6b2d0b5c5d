"""A page about a database: what it shows, its plots, and how it is written.

``plots`` and ``page`` import matplotlib and jinja2, which the extra ``report`` installs.
"""
