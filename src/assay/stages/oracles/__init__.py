"""Oracles: is a case a failure? ``(bench, cases) -> (N,) bool``."""
