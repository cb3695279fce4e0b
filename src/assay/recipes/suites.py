"""Suites by name."""

from assay.recipes.recipe import Suite

FAST = Suite(
    name="fast",
    summary="FGSM and PGD-20: seconds, for a first look and for CI.",
    attacks=("fgsm", ("pgd", {"steps": 20})),
)
