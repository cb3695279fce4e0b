"""Schedules: when is a seed done? ``(bench, cases, …) -> (N,) bool`` over the columns ``step`` and ``hits``."""
