"""Judging tuners: live runs beside one another, and strategies on recorded spaces."""
