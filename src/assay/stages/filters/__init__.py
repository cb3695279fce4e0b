"""Filters: is a case valid, is it worth going on from? ``(bench, cases) -> (N,) bool``."""
