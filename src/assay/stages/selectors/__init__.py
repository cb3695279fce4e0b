"""Selectors: the k cases worth most. ``(bench, cases, k, *, rng, …) -> (k,) rows``."""
