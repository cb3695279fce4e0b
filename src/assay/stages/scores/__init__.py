"""Scores: a number per case. ``(bench, cases) -> (N,)``, differentiable in ``cases.x`` where a step has filled it."""
