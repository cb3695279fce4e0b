"""Seeders: which cases are worth working on. ``(bench, cases, *, rng, …) -> Cases``."""
