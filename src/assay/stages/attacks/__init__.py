"""Attacks: bounded searches around each input. ``(target, x, y, *, rng, eps, …) -> x_adv`` with N rows."""
