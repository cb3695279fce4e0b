"""DeepHunter: image transforms with coverage feedback (Xie et al., ISSTA 2019)."""

from assay.recipes.recipe import Recipe

# Public code: the true class of a seed is what the model says of it. Here: its label; seeds the model gets wrong are
# left out. All criteria go: --set coverage=nbc. What differs in the transforms stands in core/transforms.py.
DEEPHUNTER = Recipe(
    name="deephunter",
    summary="Eight image transforms, few values or small changes, one affine a line; go on from what covers sections.",
    paper="Xie et al., ISSTA 2019",
    mutate="transform",
    valid=("few_or_small",),
    keep=("gains",),
    coverage="kmnc(k=1000)",
    schedule="pool(pick=prob, mutants=20)",
    train="plain(epochs=10, schedule=constant)",
)

DEEPHUNTER_CODE = Recipe(
    name="deephunter-code",
    summary="DeepHunter as its public code groups transforms: contrast, brightness and blur once, pixels may change.",
    paper="Xie et al., ISSTA 2019",
    mutate="transform(group=code)",
    valid=("few_or_small",),
    keep=("gains",),
    coverage="kmnc(k=1000)",
    schedule="pool(pick=prob, mutants=20)",
    train="plain(epochs=10, schedule=constant)",
)
