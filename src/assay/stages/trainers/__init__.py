"""Trainers: a new net from a net and data. ``(module, data, extra, *, rng, watch, …) -> Module``."""
