"""Mutators: new inputs from cases. ``(bench, cases, *, rng, …) -> x`` with N rows."""
